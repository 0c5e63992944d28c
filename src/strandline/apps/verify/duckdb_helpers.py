"""Macros that DuckDB is given: what declarations of functions call with {h}, where its own functions differ.

They check whether a result fits before it is computed: DuckDB would refuse the whole query.
"""

from __future__ import annotations

from typing import Final

_ARITHMETIC: Final = (
    "CREATE OR REPLACE MACRO sl_add(a, b) AS TRY_CAST(a::HUGEINT + b::HUGEINT AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_subtract(a, b) AS TRY_CAST(a::HUGEINT - b::HUGEINT AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_multiply(a, b) AS TRY_CAST(a::HUGEINT * b::HUGEINT AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_quotient(a, b) AS TRY_CAST(a::HUGEINT // nullif(b, 0)::HUGEINT AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_remainder(a, b) AS CAST(a::HUGEINT % nullif(b, 0)::HUGEINT AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_gcd(a, b) AS TRY_CAST(gcd(a::HUGEINT, b::HUGEINT) AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_lcm(a, b) AS TRY_CAST(lcm(a::HUGEINT, b::HUGEINT) AS BIGINT)",
    "CREATE OR REPLACE MACRO sl_ten(k) AS CAST('1' || repeat('0', k) AS HUGEINT)",
    # To the left, 64 bits of 128; the upper ones are cut off.
    """CREATE OR REPLACE MACRO sl_low_bits(x) AS
       CAST(CASE WHEN x >= 9223372036854775808 THEN x - 18446744073709551616::HUGEINT ELSE x END AS BIGINT)""",
    """CREATE OR REPLACE MACRO sl_shift_left(a, n) AS CASE WHEN n BETWEEN 0 AND 63 THEN
       sl_low_bits(((a::HUGEINT * pow(2::DOUBLE, n)::HUGEINT) % 18446744073709551616::HUGEINT
                    + 18446744073709551616::HUGEINT) % 18446744073709551616::HUGEINT) END""",
    """CREATE OR REPLACE MACRO sl_remainder_double(a, b) AS
       CASE WHEN isinf(a) AND b <> 0 THEN 'nan'::DOUBLE ELSE a % nullif(b, 0e0) END""",
    """CREATE OR REPLACE MACRO sl_half_away(x) AS CASE WHEN NOT isfinite(x) OR abs(x) >= pow(2, 52) THEN x
       ELSE trunc(x) + CASE WHEN abs(x - trunc(x)) >= 0.5 THEN sign(x) ELSE 0 END END""",
    """CREATE OR REPLACE MACRO sl_scaled_double(x, d) AS
       CASE WHEN d >= 0 THEN x * CAST('1e' || d AS DOUBLE) ELSE x / CAST('1e' || -d AS DOUBLE) END""",
    """CREATE OR REPLACE MACRO sl_round_double(x, d) AS
       CASE WHEN d IS NULL THEN NULL WHEN NOT isfinite(x) OR d > 308 THEN x WHEN d < -308 THEN x * 0
       WHEN abs(sl_scaled_double(x, d)) >= pow(2, 52) THEN x
       WHEN d >= 0 THEN sl_half_away(sl_scaled_double(x, d)) / CAST('1e' || d AS DOUBLE)
       ELSE sl_half_away(sl_scaled_double(x, d)) * CAST('1e' || -d AS DOUBLE) END""",
    # Whole numbers without, and rounded to, their last k digits; a DECIMAL is one, and a point.
    """CREATE OR REPLACE MACRO sl_cut(u, k) AS CASE WHEN k <= 0 THEN u::HUGEINT WHEN k > 38 THEN u::HUGEINT * 0
       ELSE u::HUGEINT // sl_ten(k) * sl_ten(k) END""",
    """CREATE OR REPLACE MACRO sl_rounded(u, k) AS CASE WHEN k <= 0 THEN u::HUGEINT WHEN k > 38 THEN u::HUGEINT * 0
       ELSE (u::HUGEINT + sign(u) * 5 * sl_ten(k - 1)) // sl_ten(k) * sl_ten(k) END""",
    "CREATE OR REPLACE MACRO sl_unscaled(x) AS CAST(replace(CAST(x AS VARCHAR), '.', '') AS HUGEINT)",
    "CREATE OR REPLACE MACRO sl_zeros(n, width) AS lpad(CAST(n AS VARCHAR),"
    " CAST(greatest(width, strlen(CAST(n AS VARCHAR))) AS INTEGER), '0')",
    # NULL if it does not fit; so are operands that do not fit at the scale of the sum.
    """CREATE OR REPLACE MACRO sl_moved(u, k, p) AS
       CASE WHEN abs(u) <= (sl_ten(p) - 1) // sl_ten(k) THEN u * sl_ten(k) END""",
    """CREATE OR REPLACE MACRO sl_exact_sum(x, y, p) AS
       CASE WHEN sign(x) <> sign(y) OR abs(x) <= sl_ten(p) - 1 - abs(y) THEN x + y END""",
    """CREATE OR REPLACE MACRO sl_point(u, s) AS CASE WHEN s = 0 THEN CAST(u AS VARCHAR)
       ELSE CASE WHEN u < 0 THEN '-' ELSE '' END
       || left(sl_zeros(abs(u), s + 1), -s) || '.' || right(sl_zeros(abs(u), s + 1), s) END""",
    # A macro writes out an argument wherever it is used; the lambda has it once, and nested sums stay short.
    """CREATE OR REPLACE MACRO sl_decimal_sum(x, y, i, j, p, s) AS list_transform([[x, y]],
       lambda v: sl_point(sl_exact_sum(sl_moved(v[1], i, p), sl_moved(v[2], j, p), p), s))[1]""",
    """CREATE OR REPLACE MACRO sl_decimal_product(x, y, p, s) AS list_transform([[x, y]], lambda v: sl_point(
       CASE WHEN v[2] = 0 OR abs(v[1]) <= (sl_ten(p) - 1) // abs(v[2]) THEN v[1] * v[2] END, s))[1]""",
)

_MATHEMATICS: Final = (
    "CREATE OR REPLACE MACRO sl_isnan(x) AS isnan(x)",
    "CREATE OR REPLACE MACRO sl_isinf(x) AS isinf(x)",
    "CREATE OR REPLACE MACRO sl_exp(x) AS exp(x)",
    "CREATE OR REPLACE MACRO sl_degrees(x) AS degrees(x)",
    "CREATE OR REPLACE MACRO sl_radians(x) AS radians(x)",
    """CREATE OR REPLACE MACRO sl_power(x, y) AS
       CASE WHEN (x = 0 AND y < 0) OR (x < 0 AND isfinite(y) AND y <> floor(y)) THEN NULL ELSE power(x, y) END""",
    """CREATE OR REPLACE MACRO sl_share(x, low, high) AS
       CASE WHEN isinf(high - low) THEN (x / 2 - low / 2) / (high / 2 - low / 2) ELSE (x - low) / (high - low) END""",
    """CREATE OR REPLACE MACRO sl_bucket(x, low, high, n) AS
       CASE WHEN x IS NULL OR low IS NULL OR high IS NULL OR n IS NULL THEN NULL
       WHEN n <= 0 OR low = high OR isnan(x) OR NOT isfinite(low) OR NOT isfinite(high) THEN NULL
       WHEN (low < high AND x < low) OR (low > high AND x > low) THEN n * 0
       WHEN (low < high AND x >= high) OR (low > high AND x <= high) THEN TRY_CAST(n::BIGINT + 1 AS INTEGER)
       ELSE least(CAST(floor(sl_share(x, low, high) * n) AS BIGINT), n - 1) + 1 END""",
)

_TIMES: Final = (
    "CREATE OR REPLACE MACRO sl_micros(ts) AS epoch_us(CAST(ts AS TIMESTAMP))",
    """CREATE OR REPLACE MACRO sl_moment(n) AS
       CASE WHEN n BETWEEN -62135596800000000 AND 253402300799999999 THEN make_timestamp(CAST(n AS BIGINT)) END""",
    "CREATE OR REPLACE MACRO sl_in_calendar(ts) AS CASE WHEN ts BETWEEN TIMESTAMP '0001-01-01' "
    "AND TIMESTAMP '9999-12-31 23:59:59.999999' THEN ts END",
    "CREATE OR REPLACE MACRO sl_later(ts, n) AS sl_moment(sl_add(epoch_us(ts), n))",
    """CREATE OR REPLACE MACRO sl_days(n) AS
       CASE WHEN n BETWEEN -719162 AND 2932896 THEN DATE '1970-01-01' + CAST(n AS INTEGER) END""",
    "CREATE OR REPLACE MACRO sl_days_later(d, n) AS sl_days(sl_add(d - DATE '1970-01-01', n))",
    """CREATE OR REPLACE MACRO sl_bin(n, ts, origin) AS CASE WHEN n > 0 THEN sl_moment(epoch_us(ts)::HUGEINT
       - ((epoch_us(ts)::HUGEINT - epoch_us(origin)) % n + n) % n) END""",
    """CREATE OR REPLACE MACRO sl_date_of(y, m, d) AS CASE WHEN y BETWEEN 1 AND 9999 AND m BETWEEN 1 AND 12
       AND d BETWEEN 1 AND 31 THEN TRY_CAST(format('{:04d}-{:02d}-{:02d}', y, m, d) AS DATE) END""",
    # The 24th hour and the 60th second are allowed, if they do not lead beyond midnight.
    """CREATE OR REPLACE MACRO sl_micros_of(h, m, s) AS CASE WHEN h BETWEEN 0 AND 24 AND m BETWEEN 0 AND 59
       AND round_even(s * 1e6, 0) BETWEEN 0 AND 60000000
       THEN (h::BIGINT * 60 + m) * 60000000 + CAST(round_even(s * 1e6, 0) AS BIGINT) END""",
    """CREATE OR REPLACE MACRO sl_moment_of(y, mo, d, h, mi, s) AS CASE WHEN sl_micros_of(h, mi, s) <= 86400000000
       THEN sl_moment(epoch_us(CAST(sl_date_of(y, mo, d) AS TIMESTAMP)) + sl_micros_of(h, mi, s)) END""",
    """CREATE OR REPLACE MACRO sl_moment_of_seconds(x) AS
       CASE WHEN abs(x) < 1e12 THEN sl_moment(TRY_CAST(round_even(x * 1e6, 0) AS BIGINT)) END""",
)

_TEXTS: Final = (
    # Where case is more than a letter for a letter: DuckDB knows neither ß as SS, nor the last sigma of a word, nor i
    # with its dot. There are some hundred rarer letters of the kind, which it takes as they are.
    """CREATE OR REPLACE MACRO sl_lower(s) AS lower(regexp_replace(replace(s, 'İ', 'i̇'),
       '(\\p{L})Σ(\\P{L}|$)', '\\1ς\\2', 'g'))""",
    "CREATE OR REPLACE MACRO sl_upper(s) AS upper(replace(s, 'ß', 'SS'))",
    # An escape at the very end stands for itself.
    """CREATE OR REPLACE MACRO sl_whole_pattern(p, e) AS
       CASE WHEN (length(p) - length(rtrim(p, e))) % 2 = 1 THEN p || e ELSE p END""",
    """CREATE OR REPLACE MACRO sl_part(s, a, n) AS CASE WHEN n < 0 THEN NULL
       WHEN a::BIGINT + n <= 1 THEN CASE WHEN s IS NOT NULL THEN '' END
       ELSE substring(s, greatest(a, 1), a::BIGINT + n - greatest(a, 1)) END""",
    "CREATE OR REPLACE MACRO sl_capital(c) AS CASE WHEN c = 'ß' THEN c ELSE upper(c) END",
    """CREATE OR REPLACE MACRO sl_initcap(s) AS array_to_string(list_transform(
       regexp_extract_all(s, '(?s)[\\p{L}\\p{N}]+|.'),
       lambda w: sl_capital(left(w, 1)) || sl_lower(substring(w, 2))), '')""",
    """CREATE OR REPLACE MACRO sl_padded_left(s, n, f) AS CASE WHEN n IS NULL OR n > 1000000 OR f IS NULL THEN NULL
       WHEN f = '' OR n <= length(s) THEN left(s, greatest(n, 0)) ELSE lpad(s, n, f) END""",
    """CREATE OR REPLACE MACRO sl_padded_right(s, n, f) AS CASE WHEN n IS NULL OR n > 1000000 OR f IS NULL THEN NULL
       WHEN f = '' OR n <= length(s) THEN left(s, greatest(n, 0)) ELSE rpad(s, n, f) END""",
    """CREATE OR REPLACE MACRO sl_overlaid(s, r, a, n) AS
       CASE WHEN a > 0 AND n IS NOT NULL THEN left(s, a - 1) || r || substring(s, greatest(a::BIGINT + n, 1)) END""",
    """CREATE OR REPLACE MACRO sl_nth_part(s, sep, n) AS CASE WHEN n = 0 THEN NULL
       WHEN sep = '' THEN CASE WHEN n IN (1, -1) THEN s WHEN s IS NOT NULL AND n IS NOT NULL THEN '' END
       ELSE split_part(s, sep, n) END""",
    """CREATE OR REPLACE MACRO sl_holds(v, x) AS CASE WHEN v IS NULL THEN NULL WHEN len(v) = 0 THEN FALSE
       WHEN x IS NULL THEN NULL
       WHEN list_contains(v, x) THEN TRUE
       WHEN len(list_filter(v, lambda e: e IS NULL)) > 0 THEN NULL ELSE FALSE END""",
    "CREATE OR REPLACE MACRO sl_known(v) AS list_filter(v, lambda e: e IS NOT NULL)",
    """CREATE OR REPLACE MACRO sl_listed(v, s) AS CASE WHEN s IS NULL THEN NULL WHEN len(sl_known(v)) = 0 THEN ''
       ELSE list_reduce(sl_known(v), lambda a, b: a || s || b) END""",
)

HELPERS: Final = (*_ARITHMETIC, *_MATHEMATICS, *_TIMES, *_TEXTS)

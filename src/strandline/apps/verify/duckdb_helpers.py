"""Macros that DuckDB is given: what declarations of functions call with {h}, where its own functions differ.

They check whether a result fits before it is computed: DuckDB would refuse the whole query. A macro is created under
its name here with `sl_` in front.
"""

from __future__ import annotations

from typing import Final

_NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_TRUE, _FALSE = "('true','t','yes','y','on','1')", "('false','f','no','n','off','0')"
_BLANKS: Final = r"' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"

_ARITHMETIC: Final = (
    "add(a, b) AS TRY_CAST(a::HUGEINT + b::HUGEINT AS BIGINT)",
    "subtract(a, b) AS TRY_CAST(a::HUGEINT - b::HUGEINT AS BIGINT)",
    "multiply(a, b) AS TRY_CAST(a::HUGEINT * b::HUGEINT AS BIGINT)",
    "quotient(a, b) AS TRY_CAST(a::HUGEINT // nullif(b, 0)::HUGEINT AS BIGINT)",
    "remainder(a, b) AS CAST(a::HUGEINT % nullif(b, 0)::HUGEINT AS BIGINT)",
    "gcd(a, b) AS TRY_CAST(gcd(a::HUGEINT, b::HUGEINT) AS BIGINT)",
    "lcm(a, b) AS TRY_CAST(lcm(a::HUGEINT, b::HUGEINT) AS BIGINT)",
    "ten(k) AS CAST('1' || repeat('0', k) AS HUGEINT)",
    # To the left, 64 bits of 128; the upper ones are cut off.
    """low_bits(x) AS
       CAST(CASE WHEN x >= 9223372036854775808 THEN x - 18446744073709551616::HUGEINT ELSE x END AS BIGINT)""",
    """shift_left(a, n) AS CASE WHEN n BETWEEN 0 AND 63 THEN
       sl_low_bits(((a::HUGEINT * pow(2::DOUBLE, n)::HUGEINT) % 18446744073709551616::HUGEINT
                    + 18446744073709551616::HUGEINT) % 18446744073709551616::HUGEINT) END""",
    "remainder_double(a, b) AS CASE WHEN isinf(a) AND b <> 0 THEN 'nan'::DOUBLE ELSE a % nullif(b, 0e0) END",
    """half_away(x) AS CASE WHEN NOT isfinite(x) OR abs(x) >= pow(2, 52) THEN x
       ELSE trunc(x) + CASE WHEN abs(x - trunc(x)) >= 0.5 THEN sign(x) ELSE 0 END END""",
    """scaled_double(x, d) AS
       CASE WHEN d >= 0 THEN x * CAST('1e' || d AS DOUBLE) ELSE x / CAST('1e' || -d AS DOUBLE) END""",
    """round_double(x, d) AS
       CASE WHEN d IS NULL THEN NULL WHEN NOT isfinite(x) OR d > 308 THEN x WHEN d < -308 THEN x * 0
       WHEN abs(sl_scaled_double(x, d)) >= pow(2, 52) THEN x
       WHEN d >= 0 THEN sl_half_away(sl_scaled_double(x, d)) / CAST('1e' || d AS DOUBLE)
       ELSE sl_half_away(sl_scaled_double(x, d)) * CAST('1e' || -d AS DOUBLE) END""",
    # Whole numbers without, and rounded to, their last k digits; a DECIMAL is one, and a point.
    """cut(u, k) AS CASE WHEN k <= 0 THEN u::HUGEINT WHEN k > 38 THEN u::HUGEINT * 0
       ELSE u::HUGEINT // sl_ten(k) * sl_ten(k) END""",
    """rounded(u, k) AS CASE WHEN k <= 0 THEN u::HUGEINT WHEN k > 38 THEN u::HUGEINT * 0
       ELSE (u::HUGEINT + sign(u) * 5 * sl_ten(k - 1)) // sl_ten(k) * sl_ten(k) END""",
    "unscaled(x) AS CAST(replace(CAST(x AS VARCHAR), '.', '') AS HUGEINT)",
    "zeros(n, width) AS lpad(CAST(n AS VARCHAR), CAST(greatest(width, strlen(CAST(n AS VARCHAR))) AS INTEGER), '0')",
    # NULL if it does not fit; so are operands that do not fit at the scale of the sum.
    "moved(u, k, p) AS CASE WHEN abs(u) <= (sl_ten(p) - 1) // sl_ten(k) THEN u * sl_ten(k) END",
    "exact_sum(x, y, p) AS CASE WHEN sign(x) <> sign(y) OR abs(x) <= sl_ten(p) - 1 - abs(y) THEN x + y END",
    """point(u, s) AS CASE WHEN s = 0 THEN CAST(u AS VARCHAR) ELSE CASE WHEN u < 0 THEN '-' ELSE '' END
       || left(sl_zeros(abs(u), s + 1), -s) || '.' || right(sl_zeros(abs(u), s + 1), s) END""",
    # A macro writes out an argument wherever it is used; the lambda has it once, and nested sums stay short.
    """decimal_sum(x, y, i, j, p, s) AS list_transform([[x, y]],
       lambda v: sl_point(sl_exact_sum(sl_moved(v[1], i, p), sl_moved(v[2], j, p), p), s))[1]""",
    """decimal_product(x, y, p, s) AS list_transform([[x, y]], lambda v: sl_point(
       CASE WHEN v[2] = 0 OR abs(v[1]) <= (sl_ten(p) - 1) // abs(v[2]) THEN v[1] * v[2] END, s))[1]""",
)

_MATHEMATICS: Final = (
    "isnan(x) AS isnan(x)",
    "isinf(x) AS isinf(x)",
    "exp(x) AS exp(x)",
    "degrees(x) AS degrees(x)",
    "radians(x) AS radians(x)",
    """power(x, y) AS
       CASE WHEN (x = 0 AND y < 0) OR (x < 0 AND isfinite(y) AND y <> floor(y)) THEN NULL ELSE power(x, y) END""",
    """share(x, low, high) AS
       CASE WHEN isinf(high - low) THEN (x / 2 - low / 2) / (high / 2 - low / 2) ELSE (x - low) / (high - low) END""",
    """bucket(x, low, high, n) AS CASE WHEN x IS NULL OR low IS NULL OR high IS NULL OR n IS NULL THEN NULL
       WHEN n <= 0 OR low = high OR isnan(x) OR NOT isfinite(low) OR NOT isfinite(high) THEN NULL
       WHEN (low < high AND x < low) OR (low > high AND x > low) THEN n * 0
       WHEN (low < high AND x >= high) OR (low > high AND x <= high) THEN TRY_CAST(n::BIGINT + 1 AS INTEGER)
       ELSE least(CAST(floor(sl_share(x, low, high) * n) AS BIGINT), n - 1) + 1 END""",
)

_TIMES: Final = (
    "micros(ts) AS epoch_us(CAST(ts AS TIMESTAMP))",
    """moment(n) AS
       CASE WHEN n BETWEEN -62135596800000000 AND 253402300799999999 THEN make_timestamp(CAST(n AS BIGINT)) END""",
    """in_calendar(ts) AS
       CASE WHEN ts BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999' THEN ts END""",
    "later(ts, n) AS sl_moment(sl_add(epoch_us(ts), n))",
    "days(n) AS CASE WHEN n BETWEEN -719162 AND 2932896 THEN DATE '1970-01-01' + CAST(n AS INTEGER) END",
    "days_later(d, n) AS sl_days(sl_add(d - DATE '1970-01-01', n))",
    "floor_quotient(a, b) AS CAST(a // b - CASE WHEN a % b < 0 THEN 1 ELSE 0 END AS BIGINT)",
    "months(ts) AS CAST(year(ts) * 12 + month(ts) - 1 AS BIGINT)",
    # Of DuckDB's own, with a the earlier one.
    "whole_months(a, b) AS date_sub('month', a, b)",
    """months_later(ts, n) AS
       CASE WHEN n BETWEEN -120000 AND 120000 THEN sl_in_calendar(ts + to_months(CAST(n AS INTEGER))) END""",
    """bin(n, ts, origin) AS CASE WHEN n > 0 THEN sl_moment(epoch_us(ts)::HUGEINT
       - ((epoch_us(ts)::HUGEINT - epoch_us(origin)) % n + n) % n) END""",
    """date_of(y, m, d) AS CASE WHEN y BETWEEN 1 AND 9999 AND m BETWEEN 1 AND 12
       AND d BETWEEN 1 AND 31 THEN TRY_CAST(format('{:04d}-{:02d}-{:02d}', y, m, d) AS DATE) END""",
    # The 24th hour and the 60th second are allowed, if they do not lead beyond midnight.
    """micros_of(h, m, s) AS CASE WHEN h BETWEEN 0 AND 24 AND m BETWEEN 0 AND 59
       AND round_even(s * 1e6, 0) BETWEEN 0 AND 60000000
       THEN (h::BIGINT * 60 + m) * 60000000 + CAST(round_even(s * 1e6, 0) AS BIGINT) END""",
    """moment_of(y, mo, d, h, mi, s) AS CASE WHEN sl_micros_of(h, mi, s) <= 86400000000
       THEN sl_moment(epoch_us(CAST(sl_date_of(y, mo, d) AS TIMESTAMP)) + sl_micros_of(h, mi, s)) END""",
    "moment_of_seconds(x) AS CASE WHEN abs(x) < 1e12 THEN sl_moment(TRY_CAST(round_even(x * 1e6, 0) AS BIGINT)) END",
)

_TEXTS: Final = (
    # Where case is more than a letter for a letter: DuckDB knows neither ß as SS, nor the last sigma of a word, nor i
    # with its dot. There are some hundred rarer letters of the kind, which it takes as they are.
    "lower(s) AS lower(regexp_replace(replace(s, 'İ', 'i̇'), '(\\p{L})Σ(\\P{L}|$)', '\\1ς\\2', 'g'))",
    "upper(s) AS upper(replace(s, 'ß', 'SS'))",
    # An escape at the very end stands for itself.
    "whole_pattern(p, e) AS CASE WHEN (length(p) - length(rtrim(p, e))) % 2 = 1 THEN p || e ELSE p END",
    """part(s, a, n) AS CASE WHEN n < 0 THEN NULL WHEN a::BIGINT + n <= 1 THEN CASE WHEN s IS NOT NULL THEN '' END
       ELSE substring(s, greatest(a, 1), a::BIGINT + n - greatest(a, 1)) END""",
    "capital(c) AS CASE WHEN c = 'ß' THEN c ELSE upper(c) END",
    """initcap(s) AS array_to_string(list_transform(regexp_extract_all(s, '(?s)[\\p{L}\\p{N}]+|.'),
       lambda w: sl_capital(left(w, 1)) || sl_lower(substring(w, 2))), '')""",
    """padded_left(s, n, f) AS CASE WHEN n IS NULL OR n > 1000000 OR f IS NULL THEN NULL
       WHEN f = '' OR n <= length(s) THEN left(s, greatest(n, 0)) ELSE lpad(s, n, f) END""",
    """padded_right(s, n, f) AS CASE WHEN n IS NULL OR n > 1000000 OR f IS NULL THEN NULL
       WHEN f = '' OR n <= length(s) THEN left(s, greatest(n, 0)) ELSE rpad(s, n, f) END""",
    """overlaid(s, r, a, n) AS
       CASE WHEN a > 0 AND n IS NOT NULL THEN left(s, a - 1) || r || substring(s, greatest(a::BIGINT + n, 1)) END""",
    """nth_part(s, sep, n) AS CASE WHEN n = 0 THEN NULL
       WHEN sep = '' THEN CASE WHEN n IN (1, -1) THEN s WHEN s IS NOT NULL AND n IS NOT NULL THEN '' END
       ELSE split_part(s, sep, n) END""",
    """holds(v, x) AS CASE WHEN v IS NULL THEN NULL WHEN len(v) = 0 THEN FALSE WHEN x IS NULL THEN NULL
       WHEN list_contains(v, x) THEN TRUE WHEN len(list_filter(v, lambda e: e IS NULL)) > 0 THEN NULL ELSE FALSE END""",
    "known(v) AS list_filter(v, lambda e: e IS NOT NULL)",
    """listed(v, s) AS CASE WHEN s IS NULL THEN NULL WHEN len(sl_known(v)) = 0 THEN ''
       ELSE list_reduce(sl_known(v), lambda a, b: a || s || b) END""",
)

_CASTS: Final = (
    f"bare(s) AS trim(s, {_BLANKS})",
    "digits(s) AS CASE WHEN regexp_full_match(sl_bare(s), '[+-]?[0-9]+') THEN sl_bare(s) END",
    f"number(s) AS CASE WHEN regexp_full_match(sl_bare(s), '{_NUMBER}') THEN sl_bare(s) END",
    """read_double(s) AS
       CASE WHEN regexp_full_match(lower(sl_bare(s)), '[+-]?(inf|infinity|nan)') THEN TRY_CAST(sl_bare(s) AS DOUBLE)
       WHEN isfinite(TRY_CAST(sl_number(s) AS DOUBLE)) THEN TRY_CAST(sl_number(s) AS DOUBLE) END""",
    f"""read_truth(s) AS CASE WHEN lower(sl_bare(s)) IN {_TRUE} THEN TRUE
        WHEN lower(sl_bare(s)) IN {_FALSE} THEN FALSE END""",
    r"day(s) AS CASE WHEN regexp_matches(sl_bare(s), '^[0-9]{4}-[0-9]{2}-[0-9]{2}') THEN sl_bare(s) END",
    # PostgreSQL writes an exponent from 1e15 on, DuckDB from 1e16 on.
    """with_exponent(digits, e) AS
       left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' ELSE '' END || substring(digits, 2) || e""",
    """double_text(x) AS CASE WHEN isnan(x) THEN 'NaN'
       WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END
       WHEN abs(x) >= 1e15 AND abs(x) < 1e16 THEN CASE WHEN x < 0 THEN '-' ELSE '' END
            || sl_with_exponent(rtrim(replace(CAST(abs(x) AS VARCHAR), '.', ''), '0'), 'e+15')
       ELSE regexp_replace(CAST(x AS VARCHAR), '\\.0$', '') END""",
    """moment_text(ts) AS CASE WHEN epoch_us(ts) % 1000000 = 0 THEN strftime(ts, '%Y-%m-%d %H:%M:%S')
       ELSE rtrim(strftime(ts, '%Y-%m-%d %H:%M:%S.%f'), '0') END""",
)

_AGGREGATES: Final = (
    "huge(x) AS CASE WHEN abs(x) >= pow(2, 1014) THEN TRY_CAST(x / pow(2, 960) AS HUGEINT) END",
    "fixed(x) AS CASE WHEN abs(x) BETWEEN pow(2, -8) AND pow(2, 54) THEN TRY_CAST(x * pow(2, 60) AS HUGEINT) END",
    # The exact sum of doubles, in fixed point where the digits fit: values near 1, near 1e308 and near 0 apart, since
    # the largest of these that is not 0 decides alone. What lies between is added with compensation.
    """sum_double(v) AS
       CASE WHEN v IS NULL OR len(v) = 0 THEN NULL
            WHEN len(list_filter(v, lambda x: NOT isfinite(x))) > 0
            THEN list_sum(list_filter(v, lambda x: NOT isfinite(x)))
            WHEN len(list_filter(v, lambda x: x <> 0 AND abs(x) > 1e-300
                                              AND NOT abs(x) BETWEEN pow(2, -8) AND pow(2, 54)
                                              AND abs(x) < pow(2, 1014))) > 0 THEN list_aggregate(v, 'fsum')
            WHEN coalesce(list_sum(list_transform(v, lambda x: sl_huge(x))), 0) <> 0
            THEN CAST(list_sum(list_transform(v, lambda x: sl_huge(x))) AS DOUBLE) * pow(2, 960)
            WHEN coalesce(list_sum(list_transform(v, lambda x: sl_fixed(x))), 0) <> 0
            THEN CAST(list_sum(list_transform(v, lambda x: sl_fixed(x))) AS DOUBLE) / pow(2, 60)
            ELSE coalesce(list_sum(list_filter(v, lambda x: abs(x) <= 1e-300)), 0) END""",
    "squarable(x) AS CASE WHEN abs(x) < pow(2, 511) THEN x END",
    """dispersion(name, v) AS CASE WHEN v IS NULL OR (len(v) = 1 AND name LIKE '%samp') THEN NULL
       WHEN len(list_filter(v, lambda x: sl_squarable(x) IS NULL)) > 0 THEN 'nan'::DOUBLE
       ELSE list_aggregate(list_transform(v, lambda x: sl_squarable(x)), name) END""",
    """between(v, f) AS
       CASE WHEN v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1] = v[CAST(ceil(f * (len(v) - 1)) AS BIGINT) + 1]
       THEN v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1]
       ELSE v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1] + (f * (len(v) - 1) - floor(f * (len(v) - 1)))
            * (v[CAST(ceil(f * (len(v) - 1)) AS BIGINT) + 1] - v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1]) END""",
    "copies(v) AS list_transform(v, lambda x: len(list_filter(v, lambda y: y = x)))",
    "most_frequent(v) AS v[list_position(sl_copies(v), list_max(sl_copies(v)))]",
)

MACROS: Final = (*_ARITHMETIC, *_MATHEMATICS, *_TIMES, *_TEXTS, *_CASTS, *_AGGREGATES)

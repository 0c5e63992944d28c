"""Translations of functions for DuckDB, with macros where its own function differs.

Overflow is tested before a result is computed: DuckDB would reject the whole query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.apps.verify.dialect import FUNCTIONS, Dialect, Templates, Untranslatable, Write
from strandline.apps.verify.patterns import first_group_says_all, known_texts
from strandline.core.types import MAX_PRECISION
from strandline.functions.definitions.datetimes import trunc_unit
from strandline.functions.definitions.formatting import Digits, Name, Piece, pieces
from strandline.functions.definitions.patterns import replacement
from strandline.functions.regex import Regex, regex, similar_regex
from strandline.logical.expressions import Call, Literal

TEMPLATES: Final[Templates] = {
    **FUNCTIONS,
    ("like/2", "*"): r"({0} LIKE {h}whole_pattern({1}, '\') ESCAPE '\')",
    ("%", "DECIMAL"): "CAST({0} % nullif({1}, 0) AS DECIMAL({p},{s}))",
    ("+", "DOUBLE"): "({0} + {1})",
    ("-", "DOUBLE"): "({0} - {1})",
    ("*", "DOUBLE"): "({0} * {1})",
    ("/", "DOUBLE"): "({0} / nullif({1}, 0e0))",
    ("%", "DOUBLE"): "{h}remainder_double({0}, {1})",
    ("#", "*"): "xor({0}, {1})",
    ("sign", "DOUBLE"): "CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END",
    ("floor", "DECIMAL"): "TRY_CAST(floor({0}) AS DECIMAL({p},{s}))",
    ("ceil", "DECIMAL"): "TRY_CAST(ceil({0}) AS DECIMAL({p},{s}))",
    ("round/1", "DECIMAL"): "TRY_CAST(round({0}) AS DECIMAL({p},{s}))",
    ("round/2", "BIGINT"): "TRY_CAST({h}rounded({0}, -{1}) AS BIGINT)",
    ("round/2", "DECIMAL"): "TRY_CAST({h}point({h}rounded({h}unscaled({0}), {s} - {1}), {s}) AS DECIMAL({p},{s}))",
    ("trunc/1", "DECIMAL"): "TRY_CAST(trunc({0}) AS DECIMAL({p},{s}))",
    ("trunc/2", "BIGINT"): "CAST({h}cut({0}, -{1}) AS BIGINT)",
    ("trunc/2", "DECIMAL"): "TRY_CAST({h}point({h}cut({h}unscaled({0}), {s} - {1}), {s}) AS DECIMAL({p},{s}))",
    ("log2", "*"): "CASE WHEN {0} > 0 THEN log2({0}) END",
    ("epoch", "BIGINT"): "({0} / 1e6)",
    ("lower", "*"): "{h}lower({0})",
    ("upper", "*"): "{h}upper({0})",
    # Its own function keeps a letter and its accent together.
    ("reverse", "*"): "array_to_string(list_reverse(string_split({0}, '')), '')",
    ("octet_length", "*"): "CAST(strlen({0}) AS INTEGER)",
    ("trim/1", "*"): "trim({0}, ' ')",
    ("ltrim/1", "*"): "ltrim({0}, ' ')",
    ("rtrim/1", "*"): "rtrim({0}, ' ')",
    ("trim/2", "*"): "trim({0}, {1})",
    ("ltrim/2", "*"): "ltrim({0}, {1})",
    ("rtrim/2", "*"): "rtrim({0}, {1})",
    ("cardinality", "*"): "CAST(len({0}) AS INTEGER)",
    ("array_contains", "*"): "{h}holds({0}, {1})",
    ("array_to_string/2", "*"): "{h}listed({0}, {1})",
    ("array_to_string/3", "*"): "{h}listed(list_transform({0}, lambda x: coalesce(x, {2})), {1})",
}


# ---- calls whose literals decide -------------------------------------------------------------------------------------


def _text(dialect: Dialect, call: Call) -> str:
    return dialect.sql(call.arguments[0])


def _nothing(dialect: Dialect, call: Call) -> str:
    return dialect.literal(None, call.type)


def _exact(dialect: Dialect, call: Call) -> str | None:
    """Sums and products of DECIMALs: plain where the type holds every result, else by way of whole numbers."""
    if call.type.name != "DECIMAL":
        return None
    left, right = call.arguments
    one, two, kind = dialect.sql(left), dialect.sql(right), dialect.type_name(call.type)
    if call.type.precision < MAX_PRECISION:
        wide = f"CAST({one} AS DECIMAL({MAX_PRECISION},{left.type.scale}))" if call.function == "*" else one
        return f"CAST({wide} {call.function} {two} AS {kind})"
    h, p, s = dialect.prefix, call.type.precision, call.type.scale
    whole = f"{h}unscaled({one}), {'-' if call.function == '-' else ''}{h}unscaled({two})"
    if call.function == "*":
        return f"CAST({h}decimal_product({whole}, {p}, {s}) AS {kind})"
    return f"CAST({h}decimal_sum({whole}, {s - left.type.scale}, {s - right.type.scale}, {p}, {s}) AS {kind})"


def _array(dialect: Dialect, call: Call) -> str:
    return dialect.array_of([dialect.sql(argument) for argument in call.arguments], call.type)


def _matches(dialect: Dialect, call: Call, pattern: Regex) -> str:
    return f"regexp_matches({_text(dialect, call)}, {dialect.quote(_re2(pattern))})"


def _re2(pattern: Regex) -> str:
    return pattern.rust.replace(r"(?-u:\b)", r"\b")


def _similar(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    return _nothing(dialect, call) if known is None else _matches(dialect, call, similar_regex(*known))


def _regexp_like(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    return _nothing(dialect, call) if known is None else _matches(dialect, call, regex(*known))


def _match(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    if known is None:
        return _nothing(dialect, call)
    pattern = regex(*known)
    if not pattern.groups:
        return _regexp_substr(dialect, call)
    empty = first_group_says_all(pattern)
    if empty is None:
        raise Untranslatable("a group that may be empty or missing, which are the same to DuckDB")
    found = f"regexp_extract({_text(dialect, call)}, {dialect.quote(_re2(pattern))}, 1)"
    held = found if empty else f"nullif({found}, '')"
    return f"CASE WHEN {_matches(dialect, call, pattern)} THEN {held} END"


def _regexp_substr(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    if known is None:
        return _nothing(dialect, call)
    pattern = regex(*known)
    found = f"regexp_extract({_text(dialect, call)}, {dialect.quote(_re2(pattern))}, 0)"
    return f"CASE WHEN {_matches(dialect, call, pattern)} THEN {found} END"


def _regexp_count(dialect: Dialect, call: Call) -> str:
    """One character more for each match: DuckDB's list of all matches has more empty ones."""
    known = known_texts(call)
    if known is None:
        return _nothing(dialect, call)
    text = _text(dialect, call)
    longer = rf"regexp_replace({text}, {dialect.quote(_re2(regex(*known)))}, '\0.', 'g')"
    return f"CAST(length({longer}) - length({text}) AS INTEGER)"


def _regexp_replace(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    if known is None:
        return _nothing(dialect, call)
    written, new, flags = (*known, "")[:3]
    pattern = regex(written, flags.replace("g", ""))
    groups = (f"\\{part}" if part <= pattern.groups else "" for part in replacement(new) if isinstance(part, int))
    parts = (p.replace("\\", r"\\") if isinstance(p, str) else next(groups) for p in replacement(new))
    all_of_them = "'g'" if "g" in flags else "''"
    return (
        f"regexp_replace({_text(dialect, call)}, {dialect.quote(_re2(pattern))}, "
        f"{dialect.quote(''.join(parts))}, {all_of_them})"
    )


_PARTS: Final = {
    "year": "extract(year FROM {0})",
    "isoyear": "extract(isoyear FROM {0})",
    "century": "extract(century FROM {0})",
    "quarter": "extract(quarter FROM {0})",
    "month": "extract(month FROM {0})",
    "week": "extract(week FROM {0})",
    "week of year": "((extract(doy FROM {0}) - 1) // 7 + 1)",
    "week of month": "((extract(day FROM {0}) - 1) // 7 + 1)",
    "day": "extract(day FROM {0})",
    "day of year": "extract(doy FROM {0})",
    "weekday from Sunday": "(extract(dow FROM {0}) + 1)",
    "weekday": "extract(isodow FROM {0})",
    "julian day": "CAST(julian(CAST({0} AS DATE)) AS BIGINT)",
    "half": "CASE WHEN extract(hour FROM {0}) < 12 THEN 1 ELSE 2 END",
    "hour": "extract(hour FROM {0})",
    "hour of half": "CASE WHEN extract(hour FROM {0}) % 12 = 0 THEN 12 ELSE extract(hour FROM {0}) % 12 END",
    "minute": "extract(minute FROM {0})",
    "second": "extract(second FROM {0})",
    "second of day": "date_diff('second', date_trunc('day', {0}), date_trunc('second', {0}))",
    "millisecond": "(extract(millisecond FROM {0}) % 1000)",
    "microsecond": "(extract(microsecond FROM {0}) % 1000000)",
}


def _date_trunc(dialect: Dialect, call: Call) -> str:
    """DuckDB's centuries begin a year too early."""
    unit, moment = call.arguments
    assert isinstance(unit, Literal), "the unit is checked when the query is bound"
    known, text = trunc_unit(str(unit.value)), dialect.sql(moment)
    if known in ("century", "millennium"):
        years = 100 if known == "century" else 1000
        return f"CAST(make_date((extract(year FROM {text}) - 1) // {years} * {years} + 1, 1, 1) AS TIMESTAMP)"
    return f"{dialect.prefix}in_calendar(date_trunc('{known}', {text}))"


def _to_char(dialect: Dialect, call: Call) -> str:
    known = known_texts(call)
    if known is None or not known[0]:
        return _nothing(dialect, call)
    moment = _text(dialect, call)
    nothing = f"CASE WHEN {moment} IS NOT NULL THEN '' END"
    return f"({' || '.join([nothing, *(_shown(dialect, piece, moment) for piece in pieces(known[0]))])})"


def _shown(dialect: Dialect, piece: Piece, moment: str) -> str:
    match piece:
        case Digits(part, width, last):
            number = _PARTS[part].format(moment)
            return f"{dialect.prefix}zeros({f'{number} % {10**last}' if last else number}, {width})"
        case Name(part, names):
            return f"([{', '.join(map(dialect.quote, names))}][{_PARTS[part].format(moment)}])"
    return dialect.quote(piece)


WRITTEN: Final[Mapping[str, Write]] = {
    "+": _exact,
    "-": _exact,
    "*": _exact,
    "array": _array,
    "similar": _similar,
    "regexp_like": _regexp_like,
    "match": _match,
    "regexp_substr": _regexp_substr,
    "regexp_count": _regexp_count,
    "regexp_replace": _regexp_replace,
    "date_trunc": _date_trunc,
    "to_char": _to_char,
}


# ---- macros ----------------------------------------------------------------------------------------------------------

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
    # NULL on overflow; also for operands that overflow at the scale of the sum.
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
    # Case mappings beyond one letter for one letter: DuckDB maps neither ß to SS, nor the final sigma, nor the dotted
    # i. There are some hundred rarer letters of the kind, which it leaves as they are.
    """CREATE OR REPLACE MACRO sl_lower(s) AS lower(regexp_replace(replace(s, 'İ', 'i̇'),
       '(\\p{L})Σ(\\P{L}|$)', '\\1ς\\2', 'g'))""",
    "CREATE OR REPLACE MACRO sl_upper(s) AS upper(replace(s, 'ß', 'SS'))",
    # An escape at the very end is literal.
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

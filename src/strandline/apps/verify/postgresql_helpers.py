"""Functions that PostgreSQL is given: what declarations of functions call with {h}, where it has none that fits.

Most of these catch an error: PostgreSQL raises where the language has NULL or, as IEEE 754, an infinity or 0. A
function is created under its name here in `pg_temp`.
"""

from __future__ import annotations

from typing import Final

_SQL: Final = "LANGUAGE sql IMMUTABLE STRICT AS"
_PLPGSQL: Final = "LANGUAGE plpgsql IMMUTABLE STRICT AS"

_TRUE, _FALSE = "('true','t','yes','y','on','1')", "('false','f','no','n','off','0')"
_BLANKS: Final = r"E' \t\n\r\v\f'"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"

# Every DOUBLE is a whole number times a power of two, and NUMERIC can hold all of them.
POWERS: Final = (
    """CREATE TEMP TABLE sl_powers AS WITH RECURSIVE up(k, v) AS (
         SELECT 0, 1::numeric UNION ALL SELECT k + 1, v * 2 FROM up WHERE k < 971), down(k, v) AS (
         SELECT -1, 0.5::numeric UNION ALL SELECT k - 1, v * 0.5 FROM down WHERE k > -1074)
       SELECT k, v FROM up UNION ALL SELECT k, v FROM down""",
    "CREATE UNIQUE INDEX ON sl_powers (k)",
)

_ARITHMETIC: Final = (
    f"""fit64(x numeric) RETURNS bigint {_SQL}
        $$ SELECT CASE WHEN x BETWEEN -9223372036854775808 AND 9223372036854775807 THEN x::bigint END $$""",
    f"""fit32(x numeric) RETURNS integer {_SQL}
        $$ SELECT CASE WHEN x BETWEEN -2147483648 AND 2147483647 THEN x::integer END $$""",
    f"""fit(x numeric, p integer, s integer) RETURNS numeric {_SQL}
        $$ SELECT CASE WHEN abs(round(x, s)) < 10::numeric ^ (p - s) THEN round(x, s) END $$""",
    f"add(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT pg_temp.fit64(a::numeric + b) $$",
    f"subtract(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT pg_temp.fit64(a::numeric - b) $$",
    f"multiply(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT pg_temp.fit64(a::numeric * b) $$",
    f"""quotient(a bigint, b bigint) RETURNS bigint {_SQL}
        $$ SELECT pg_temp.fit64(div(a::numeric, nullif(b, 0)::numeric)) $$""",
    f"remainder(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT (a::numeric % nullif(b, 0))::bigint $$",
    f"gcd(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT pg_temp.fit64(pg_catalog.gcd(a::numeric, b::numeric)) $$",
    f"lcm(a bigint, b bigint) RETURNS bigint {_SQL} $$ SELECT pg_temp.fit64(pg_catalog.lcm(a::numeric, b::numeric)) $$",
    f"shift_left(a bigint, n integer) RETURNS bigint {_SQL} $$ SELECT CASE WHEN n BETWEEN 0 AND 63 THEN a << n END $$",
    # PostgreSQL raises where IEEE 754 rounds to infinity or to 0.
    f"""add_double(a float8, b float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN a + b;
        EXCEPTION WHEN numeric_value_out_of_range THEN RETURN sign(a) * 'Infinity'::float8; END $$""",
    f"""multiply_double(a float8, b float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN a * b;
        EXCEPTION WHEN numeric_value_out_of_range THEN
        RETURN CASE WHEN abs(a) > 1 THEN sign(a) * sign(b) * 'Infinity'::float8 ELSE 0 END; END $$""",
    f"""divide_double(a float8, b float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN a / b;
        EXCEPTION WHEN numeric_value_out_of_range THEN
        RETURN CASE WHEN abs(b) < 1 THEN sign(a) * sign(b) * 'Infinity'::float8 ELSE 0 END; END $$""",
    f"""half_away(x float8) RETURNS float8 {_SQL} $$ SELECT CASE WHEN abs(x) >= 4503599627370496 THEN x
           ELSE trunc(x) + CASE WHEN abs(x - trunc(x)) >= 0.5 THEN sign(x) ELSE 0 END END $$""",
    f"""scaled_double(x float8, d integer) RETURNS float8 {_SQL}
        $$ SELECT CASE WHEN d >= 0 THEN pg_temp.multiply_double(x, ('1e' || d)::float8)
           ELSE pg_temp.divide_double(x, ('1e' || -d)::float8) END $$""",
    f"""round_double(x float8, d integer) RETURNS float8 {_SQL}
        $$ SELECT CASE WHEN abs(x) >= 'Infinity' OR d > 308 THEN x WHEN d < -308 THEN 0
           WHEN abs(pg_temp.scaled_double(x, d)) >= 4503599627370496 THEN x
           ELSE pg_temp.scaled_double(pg_temp.half_away(pg_temp.scaled_double(x, d)), -d) END $$""",
    """exact(x float8) RETURNS numeric LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN bits < 0 THEN -1 ELSE 1 END * v * (CASE WHEN e = 0 THEN m ELSE m + 4503599627370496 END)
         FROM (SELECT bits, (bits >> 52) & 2047, bits & 4503599627370495
               FROM (SELECT ('x' || encode(float8send(x), 'hex'))::bit(64)::bigint) AS raw(bits)) AS parts(bits, e, m)
         JOIN pg_temp.sl_powers ON k = greatest(e, 1) - 1075 $$""",
    f"""rounded(x numeric) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN x::float8;
        EXCEPTION WHEN numeric_value_out_of_range THEN  -- too large, or too small
          RETURN CASE WHEN abs(x) < 1 THEN 0 ELSE sign(x)::float8 * 'Infinity'::float8 END; END $$""",
    """remainder_double(a float8, b float8) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN a = 'NaN' OR b = 'NaN' OR abs(a) = 'Infinity' THEN 'NaN' WHEN abs(b) = 'Infinity' THEN a
           ELSE pg_temp.rounded(pg_temp.exact(a) % pg_temp.exact(b)) END $$""",
)

_MATHEMATICS: Final = (
    f"isnan(x float8) RETURNS boolean {_SQL} $$ SELECT x = 'NaN' $$",
    f"isinf(x float8) RETURNS boolean {_SQL} $$ SELECT abs(x) = 'Infinity' $$",
    f"""exp(x float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN pg_catalog.exp(x);
        EXCEPTION WHEN numeric_value_out_of_range THEN
        RETURN CASE WHEN x > 0 THEN 'Infinity'::float8 ELSE 0 END; END $$""",
    f"""power(x float8, y float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN pg_catalog.power(x, y);
        EXCEPTION WHEN invalid_argument_for_power_function THEN RETURN NULL;
        WHEN numeric_value_out_of_range THEN RETURN CASE WHEN (abs(x) > 1) <> (y > 0) THEN 0
        WHEN x < 0 AND y::numeric % 2 <> 0 THEN '-Infinity'::float8 ELSE 'Infinity'::float8 END; END $$""",
    f"""degrees(x float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN pg_catalog.degrees(x);
        EXCEPTION WHEN numeric_value_out_of_range THEN RETURN sign(x) * 'Infinity'::float8; END $$""",
    f"""radians(x float8) RETURNS float8 {_PLPGSQL} $$ BEGIN RETURN pg_catalog.radians(x);
        EXCEPTION WHEN numeric_value_out_of_range THEN RETURN 0; END $$""",
    # Before version 16 it counts beyond n near the end of the range, and may overflow far from 0.
    f"""bucket(x float8, low float8, high float8, n integer) RETURNS integer {_PLPGSQL} $$
        DECLARE bucket integer; BEGIN
        BEGIN bucket := width_bucket(x, low, high, n);
        EXCEPTION WHEN invalid_argument_for_width_bucket_function THEN RETURN NULL;
        WHEN numeric_value_out_of_range THEN bucket := NULL; END;
        IF x NOT BETWEEN least(low, high) AND greatest(low, high) OR x = high
          OR (bucket BETWEEN 1 AND n AND greatest(abs(low), abs(high)) < 1e300) THEN RETURN bucket; END IF;
        IF greatest(abs(low), abs(high)) >= 1e300 THEN
          x := pg_temp.divide_double(x, 2); low := pg_temp.divide_double(low, 2);
          high := pg_temp.divide_double(high, 2);
        END IF;
        RETURN least(floor(pg_temp.divide_double(x - low, high - low) * n), n - 1)::integer + 1;
        END $$""",
)

_FIRST, _LAST = "timestamp '0001-01-01'", "timestamp '9999-12-31 23:59:59.999999'"
_TIMES: Final = (
    f"micros(ts timestamp) RETURNS bigint {_SQL} $$ SELECT (extract(epoch FROM ts) * 1000000)::bigint $$",
    f"""later(ts timestamp, n bigint) RETURNS timestamp {_SQL}
        $$ SELECT CASE WHEN m BETWEEN -62135596800000000 AND 253402300799999999 THEN timestamp '1970-01-01'
           + (m / 86400000000) * interval '1 day' + (m % 86400000000) * interval '1 microsecond' END
           FROM (SELECT pg_temp.add(pg_temp.micros(ts), n)) AS given(m) $$""",
    f"""days_later(d date, n bigint) RETURNS date {_SQL}
        $$ SELECT CASE WHEN m BETWEEN -719162 AND 2932896 THEN date '1970-01-01' + m::integer END
           FROM (SELECT pg_temp.add(d - date '1970-01-01', n)) AS given(m) $$""",
    f"""in_calendar(ts timestamp) RETURNS timestamp {_SQL}
        $$ SELECT CASE WHEN ts BETWEEN {_FIRST} AND {_LAST} THEN ts END $$""",
    f"""floor_quotient(a bigint, b bigint) RETURNS bigint {_SQL}
        $$ SELECT a / b - CASE WHEN a % b < 0 THEN 1 ELSE 0 END $$""",
    f"""months(ts timestamp) RETURNS bigint {_SQL}
        $$ SELECT (extract(year FROM ts) * 12 + extract(month FROM ts) - 1)::bigint $$""",
    f"""months_later(ts timestamp, n bigint) RETURNS timestamp {_PLPGSQL} $$ BEGIN
        RETURN CASE WHEN n BETWEEN -120000 AND 120000
          THEN pg_temp.in_calendar(ts + make_interval(months => n::integer)) END;
        EXCEPTION WHEN datetime_field_overflow THEN RETURN NULL; END $$""",
    f"""whole_months(a timestamp, b timestamp) RETURNS bigint {_SQL}
        $$ SELECT CASE WHEN a <= b THEN n - CASE WHEN a + make_interval(months => n::integer) > b THEN 1 ELSE 0 END
           ELSE -(-n - CASE WHEN b + make_interval(months => (-n)::integer) > a THEN 1 ELSE 0 END) END
           FROM (SELECT pg_temp.months(b) - pg_temp.months(a)) AS given(n) $$""",
    f"""bin(n bigint, ts timestamp, origin timestamp) RETURNS timestamp {_PLPGSQL} $$ BEGIN
        RETURN pg_temp.in_calendar(date_bin((n || ' microseconds')::interval, ts, origin));
        EXCEPTION WHEN datetime_field_overflow OR numeric_value_out_of_range OR interval_field_overflow
        THEN RETURN NULL; END $$""",
    f"""date_of(y integer, m integer, d integer) RETURNS date {_PLPGSQL} $$ BEGIN
        RETURN CASE WHEN y BETWEEN 1 AND 9999 THEN make_date(y, m, d) END;
        EXCEPTION WHEN datetime_field_overflow THEN RETURN NULL; END $$""",
    f"""moment_of(y integer, mo integer, d integer, h integer, mi integer, s float8)
        RETURNS timestamp {_PLPGSQL} $$ BEGIN
        RETURN CASE WHEN y BETWEEN 1 AND 9999 THEN pg_temp.in_calendar(make_timestamp(y, mo, d, h, mi, s)) END;
        EXCEPTION WHEN datetime_field_overflow THEN RETURN NULL; END $$""",
    f"""moment_of_seconds(x float8) RETURNS timestamp {_PLPGSQL} $$ BEGIN
        RETURN pg_temp.in_calendar(to_timestamp(x) AT TIME ZONE 'UTC');
        EXCEPTION WHEN datetime_field_overflow THEN RETURN NULL; END $$""",
)

_TEXTS: Final = (
    # An escape at the very end is literal.
    f"""whole_pattern(p text, e text) RETURNS text {_SQL}
        $$ SELECT CASE WHEN (length(p) - length(rtrim(p, e))) % 2 = 1 THEN p || e ELSE p END $$""",
    f"""part(s text, a integer, n integer) RETURNS text {_SQL}
        $$ SELECT CASE WHEN n < 0 THEN NULL WHEN a::bigint + n <= 1 THEN ''
           ELSE substring(s, greatest(a, 1), least(a::bigint + n - greatest(a, 1), 2147483646)::integer) END $$""",
    f"""padded_left(s text, n integer, f text) RETURNS text {_SQL}
        $$ SELECT CASE WHEN n <= 1000000 THEN lpad(s, n, f) END $$""",
    f"""padded_right(s text, n integer, f text) RETURNS text {_SQL}
        $$ SELECT CASE WHEN n <= 1000000 THEN rpad(s, n, f) END $$""",
    f"""overlaid(s text, r text, a integer, n integer) RETURNS text {_SQL}
        $$ SELECT CASE WHEN a > 0 THEN overlay(s PLACING r FROM a FOR least(n, 2147483647 - a)) END $$""",
    f"""nth_part(s text, by text, n integer) RETURNS text {_SQL}
        $$ SELECT CASE WHEN n <> 0 THEN split_part(s, by, n) END $$""",
)

# A text that is no JSON has nothing at any path.
_JSON_AT: Final = (
    "LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RETURN {}; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$"
)
_JSON: Final = tuple(
    f"{head} RETURNS {kind} {_JSON_AT.format(body)}"
    for head, kind, body in (
        ("json_at(j text, path text[])", "text", "(j::json #> path)::text"),
        ("json_text_at(j text, path text[])", "text", "j::json #>> path"),
        (
            "json_value_at(j text, path text[])",
            "text",
            "CASE WHEN json_typeof(j::json #> path) NOT IN ('object', 'array') THEN j::json #>> path END",
        ),
        ("json_length_at(j text, path text[])", "integer", "json_array_length(j::json #> path)"),
        (
            "json_elements_at(j text, path text[])",
            "text[]",
            "CASE WHEN json_typeof(j::json #> path) = 'array' "
            "THEN ARRAY(SELECT e FROM json_array_elements_text(j::json #> path) AS given(e)) END",
        ),
        (
            "json_keys_at(j text, path text[])",
            "text[]",
            "CASE WHEN json_typeof(j::json #> path) = 'object' "
            "THEN ARRAY(SELECT e FROM json_object_keys(j::json #> path) AS given(e)) END",
        ),
    )
)

_CASTS: Final = (
    f"""whole(x float8) RETURNS bigint {_SQL}
        $$ SELECT CASE WHEN x >= -9223372036854775808 AND x < 9223372036854775808 THEN x::bigint END $$""",
    f"""exact_decimal(x float8, p integer, s integer) RETURNS numeric {_SQL} $$ SELECT CASE WHEN abs(x) < 1e38 THEN
           pg_temp.fit(pg_temp.half_away(x * (10::float8 ^ s))::text::numeric / 10::numeric ^ s, p, s) END $$""",
    f"""digits(s text) RETURNS numeric {_SQL}
        $$ SELECT CASE WHEN btrim(s, {_BLANKS}) ~ '^[+-]?[0-9]+$' THEN btrim(s, {_BLANKS})::numeric END $$""",
    f"""number(s text) RETURNS numeric {_SQL}
        $$ SELECT CASE WHEN btrim(s, {_BLANKS}) ~ '{_NUMBER}' THEN btrim(s, {_BLANKS})::numeric END $$""",
    f"""read_double(s text) RETURNS float8 {_PLPGSQL} $$ BEGIN
        IF lower(btrim(s, {_BLANKS})) ~ '^[+-]?(inf|infinity|nan)$' THEN RETURN replace(s, '+', '')::float8; END IF;
        RETURN pg_temp.number(s)::float8; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$""",
    f"""read_truth(s text) RETURNS boolean {_SQL} $$ SELECT CASE WHEN lower(btrim(s, {_BLANKS})) IN {_TRUE} THEN TRUE
           WHEN lower(btrim(s, {_BLANKS})) IN {_FALSE} THEN FALSE END $$""",
    f"""read_moment(s text) RETURNS timestamp {_PLPGSQL} $$ BEGIN
        IF btrim(s, {_BLANKS}) !~ '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}' THEN RETURN NULL; END IF;
        RETURN s::timestamptz AT TIME ZONE 'UTC'; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$""",
)

_AGGREGATES: Final = (
    """sum_double(v float8[]) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN count(x) FILTER (WHERE abs(x) >= 'Infinity') > 0
           THEN sum(x) FILTER (WHERE abs(x) >= 'Infinity')
           ELSE pg_temp.rounded(sum(pg_temp.exact(x)) FILTER (WHERE abs(x) < 'Infinity')) END
         FROM unnest(v) AS given(x) $$""",
    """dispersion(name text, v float8[]) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN n = 1 AND name LIKE '%samp' THEN NULL WHEN too_large THEN 'NaN'
           WHEN name LIKE 'std%' THEN sqrt(squares / (n * (n - (name LIKE '%samp')::integer)))
           ELSE squares / (n * (n - (name LIKE '%samp')::integer)) END
         FROM (SELECT count(x), bool_or(abs(x) >= 2::float8 ^ 511), pg_temp.rounded(
                 count(x) * sum(e * e) - sum(e) * sum(e))
               FROM (SELECT x, CASE WHEN abs(x) < 2::float8 ^ 511 THEN pg_temp.exact(x) END FROM unnest(v) AS given(x))
                 AS exactly(x, e)) AS sums(n, too_large, squares) $$""",
    # As functions/pair_aggregates.py defines them, by exact sums that are rounded once.
    f"""over(a float8, b float8) RETURNS float8 {_SQL} $$ SELECT CASE WHEN abs(a) = 'Infinity' AND abs(b) = 'Infinity'
           THEN 'NaN' ELSE pg_temp.divide_double(a, b) END $$""",
    """of_pairs(name text, n bigint, sy float8, sx float8, yy float8, xx float8, yx float8)
       RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE name WHEN 'covar_pop' THEN yx / (n * n)
           WHEN 'covar_samp' THEN CASE WHEN n > 1 THEN yx / (n * (n - 1)) END
           WHEN 'regr_sxx' THEN xx / n WHEN 'regr_syy' THEN yy / n WHEN 'regr_sxy' THEN yx / n
           WHEN 'corr' THEN CASE WHEN xx <> 0 AND yy <> 0
             THEN CASE WHEN pg_temp.over(yx, pg_temp.multiply_double(sqrt(xx), sqrt(yy))) = 'NaN' THEN 'NaN'
                  ELSE least(greatest(pg_temp.over(yx, pg_temp.multiply_double(sqrt(xx), sqrt(yy))), -1), 1) END END
           WHEN 'regr_slope' THEN CASE WHEN xx <> 0 THEN pg_temp.over(yx, xx) END
           WHEN 'regr_intercept' THEN CASE WHEN xx <> 0 THEN pg_temp.divide_double(pg_temp.add_double(
             sy, -pg_temp.multiply_double(pg_temp.over(yx, xx), sx)), n) END
           WHEN 'regr_r2' THEN CASE WHEN xx = 0 THEN NULL WHEN yy = 0 THEN 1
             ELSE pg_temp.multiply_double(pg_temp.over(yx, xx), pg_temp.over(yx, yy)) END END $$""",
    """multiplied(x float8) RETURNS numeric LANGUAGE sql STABLE STRICT AS $$ SELECT CASE WHEN abs(x) < 2::float8 ^ -485
         THEN 0 WHEN abs(x) < 2::float8 ^ 511 THEN pg_temp.exact(x) END $$""",
    """regression(name text, ys float8[], xs float8[]) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN name = 'covar_samp' AND n = 1 THEN NULL WHEN odd THEN 'NaN'
           ELSE pg_temp.of_pairs(name, n, pg_temp.rounded(sy), pg_temp.rounded(sx), pg_temp.rounded(n * yy - sy * sy),
                                 pg_temp.rounded(n * xx - sx * sx), pg_temp.rounded(n * yx - sy * sx)) END
         FROM (SELECT count(*), bool_or(y IS NULL OR x IS NULL), sum(y), sum(x), sum(y * y), sum(x * x), sum(y * x)
               FROM (SELECT pg_temp.multiplied(y), pg_temp.multiplied(x) FROM unnest(ys, xs) AS given(y, x))
                 AS exactly(y, x)) AS sums(n, odd, sy, sx, yy, xx, yx) $$""",
    """between(v float8[], f numeric) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS $$
         SELECT CASE WHEN v[floor(place)::integer + 1] = v[ceil(place)::integer + 1] THEN v[floor(place)::integer + 1]
           ELSE pg_temp.add_double(v[floor(place)::integer + 1], pg_temp.multiply_double((place - floor(place))::float8,
                pg_temp.add_double(v[ceil(place)::integer + 1], -v[floor(place)::integer + 1]))) END
         FROM (SELECT f * (cardinality(v) - 1)) AS given(place) $$""",
    """kept(v anyarray, w anycompatiblearray) RETURNS anycompatiblearray LANGUAGE sql IMMUTABLE
       AS $$ SELECT CASE WHEN v IS NOT NULL THEN w END $$""",
    "last_of(v anyarray) RETURNS anyelement LANGUAGE sql IMMUTABLE AS $$ SELECT v[cardinality(v)] $$",
)

FUNCTIONS: Final = (*_ARITHMETIC, *_MATHEMATICS, *_TIMES, *_TEXTS, *_JSON, *_CASTS, *_AGGREGATES)


def collated(any_case: str, words: str) -> list[str]:
    """Functions that depend on collations: one for the cases of all letters, and one for the classes of letters."""
    cases = [
        f'{name}(s text) RETURNS text {_SQL} $$ SELECT pg_catalog.{name}(s COLLATE "{rule}") COLLATE "C" $$'
        for name, rule in (("lower", any_case), ("upper", any_case), ("initcap", words))
    ]
    return [*cases, *_patterns("", "C"), *_patterns("any_case_", any_case)]


def _patterns(prefix: str, rule: str) -> list[str]:
    bodies = {
        "matches(s text, p text, f text) RETURNS boolean": "regexp_like(s, p, f)",
        "group_of(s text, p text, f text) RETURNS text": "(regexp_match(s, p, f))[1]",
        "match_of(s text, p text, f text) RETURNS text": "regexp_substr(s, p, 1, 1, f)",
        "matches_of(s text, p text, f text) RETURNS integer": "regexp_count(s, p, 1, f)",
        "replaced(s text, p text, r text, f text) RETURNS text": "regexp_replace(s, p, r, f)",
    }
    return [
        f"{prefix}{head} {_SQL} $$ SELECT {body} $$".replace("(s, ", f'(s COLLATE "{rule}", ')
        for head, body in bodies.items()
    ]

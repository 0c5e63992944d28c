"""The words of random queries: columns by type, literals, functions, operators.

Columns have one letter by type, so that a query reads well when it fails. Types that can stand for each other make a
*family*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from strandline.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, Type
from support import MONEY

LETTERS: dict[str, Type] = {
    "i": INT,
    "b": BIGINT,
    "d": DOUBLE,
    "m": MONEY,
    "s": VARCHAR,
    "o": BOOLEAN,
    "y": DATE,
    "u": TIMESTAMP,
}
FAMILY = {"i": "int", "b": "int", "d": "double", "m": "decimal", "s": "text", "o": "bool", "y": "date", "u": "time"}
FAMILY |= {"since": "time", "till": "time", "since_us": "int", "till_us": "int"}

# Columns with the periods of the rows of temporal tables. Queries do not see those that are named like intervals.
PERIODS: tuple[tuple[tuple[str, str], Type], ...] = (
    (("since", "till"), TIMESTAMP),
    (("since_us", "till_us"), BIGINT),
    (("valid_from", "valid_until"), TIMESTAMP),
)
SET_OPERATORS = ("UNION", "UNION MAX", "EXCEPT", "EXCEPT ALL", "EXCEPT STRICT", "INTERSECT", "INTERSECT ALL")
PATTERNS = ("'a%'", "'_'", "'%'", "''", "'%ä_'")
NUMBERS = ("int", "double", "decimal")
LITERALS = {
    "int": ("0", "1", "2", "-3"),
    "double": ("0e0", "1e0", "1.5e0", "-1e308"),
    "decimal": ("1.00", "-2.5", "0.01"),
    "text": ("'a'", "'b'", "''", "'ä😀'"),
    "bool": ("TRUE", "FALSE"),
    "date": ("DATE '2024-02-29'", "DATE '1970-01-01'"),
    "time": ("TIMESTAMP '1970-01-01 00:00:00'", "TIMESTAMP '1970-01-01 00:00:00.000009'"),
}


# Functions and casts by the family of their result, with the families of their arguments.
CALLS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "int": (
        ("abs({})", ("int",)),
        ("sign({})", ("decimal",)),
        ("({} / {})", ("int", "int")),
        ("(- {})", ("int",)),
        ("length({})", ("text",)),
        ("CAST({} AS BIGINT)", ("double",)),
        ("CAST({} AS INT)", ("decimal",)),
        ("CAST({} AS INT)", ("text",)),
        ("CAST({} AS INT)", ("bool",)),
        ("TRY_CAST({} AS BIGINT)", ("text",)),
        ("greatest({}, {})", ("int", "int")),
        ("nullif({}, {})", ("int", "int")),
        ("year({})", ("date",)),
        ("({} - {})", ("date", "date")),
        ("({} & {})", ("int", "int")),
        ("({} # {})", ("int", "int")),
        ("({} << {})", ("int", "int")),
        ("({} >> 1)", ("int",)),
        ("div({}, {})", ("int", "int")),
        ("gcd({}, {})", ("int", "int")),
        ("lcm({}, {})", ("int", "int")),
        ("trunc({}, -1)", ("int",)),
        ("round({}, -1)", ("int",)),
        ("octet_length({})", ("text",)),
        ("ascii({})", ("text",)),
        ("strpos({}, {})", ("text", "text")),
        ("regexp_count({}, '[a-z]+')", ("text",)),
        ("width_bucket({}, {}, 10, 4)", ("double", "int")),
        ("cardinality(ARRAY({}, {}))", ("int", "int")),
        ("ARRAY({}, {})[{}]", ("int", "int", "int")),
        ("microseconds({})", ("time",)),
        ("isoyear({})", ("date",)),
        ("week({})", ("time",)),
        ("decade({})", ("date",)),
        ("century({})", ("time",)),
        ("millennium({})", ("date",)),
        ("date_diff('month', {}, {})", ("time", "date")),
        ("date_diff('week', {}, {})", ("date", "time")),
        ("timestampdiff('month', {}, {})", ("date", "time")),
        ("datediff('hour', {}, {})", ("time", "time")),
        ("epoch_ms({})", ("time",)),
        ("len({})", ("text",)),
        ("length(split({}, {}))", ("text", "text")),
        ("if({}, {}, {})", ("bool", "int", "int")),
        ("({} // {})", ("int", "int")),
        ("json_array_length('[' || {} || ']')", ("int",)),
    ),
    "double": (
        ("floor({})", ("double",)),
        ("ceil({})", ("double",)),
        ("round({})", ("double",)),
        ("sqrt({})", ("double",)),
        ("abs({})", ("double",)),
        ("least({}, {})", ("double", "double")),
        ("({} / {})", ("decimal", "int")),
        ("CAST({} AS DOUBLE)", ("int",)),
        ("CAST({} AS DOUBLE)", ("text",)),
        ("second({})", ("time",)),
        ("milliseconds({})", ("time",)),
        ("trunc({})", ("double",)),
        ("round({}, 1)", ("double",)),
        ("cbrt({})", ("double",)),
        ("exp({})", ("double",)),
        ("ln({})", ("double",)),
        ("log({}, {})", ("int", "double")),
        ("log10({})", ("decimal",)),
        ("log2({})", ("int",)),
        ("sin({})", ("int",)),
        ("cos({})", ("int",)),
        ("atan2({}, {})", ("double", "double")),
        ("asin({})", ("double",)),
        ("tanh({})", ("double",)),
        ("cosh({})", ("double",)),
        ("degrees({})", ("double",)),
        ("radians({})", ("double",)),
        ("power({}, {})", ("double", "int")),
    ),
    "decimal": (
        ("CAST({} AS DECIMAL(12, 2))", ("int",)),
        ("round({})", ("decimal",)),
        ("floor({})", ("decimal",)),
        ("abs({})", ("decimal",)),
        ("(- {})", ("decimal",)),
        ("greatest({}, {})", ("decimal", "decimal")),
        ("CAST({} AS DECIMAL(5, 1))", ("decimal",)),
        ("trunc({})", ("decimal",)),
        ("trunc({}, 1)", ("decimal",)),
        ("round({}, 1)", ("decimal",)),
    ),
    "text": (
        ("lower({})", ("text",)),
        ("trim({})", ("text",)),
        ("substring({}, 1, 1)", ("text",)),
        ("substring({}, {})", ("text", "int")),
        ("replace({}, 'a', {})", ("text", "text")),
        ("concat({}, {})", ("text", "int")),
        ("CAST({} AS VARCHAR)", ("int",)),
        ("CAST({} AS VARCHAR)", ("date",)),
        ("CAST({} AS VARCHAR)", ("time",)),
        ("CAST({} AS VARCHAR)", ("bool",)),
        ("concat_ws('-', {}, {})", ("text", "date")),
        ("initcap({})", ("text",)),
        ("left({}, {})", ("text", "int")),
        ("right({}, {})", ("text", "int")),
        ("lpad({}, 3, {})", ("text", "text")),
        ("rpad({}, {})", ("text", "int")),
        ("repeat({}, {})", ("text", "int")),
        ("reverse({})", ("text",)),
        ("translate({}, 'ab', 'x')", ("text",)),
        ("overlay({}, {}, {})", ("text", "text", "int")),
        ("split_part({}, {}, {})", ("text", "text", "int")),
        ("chr({})", ("int",)),
        ("md5({})", ("text",)),
        ("trim({}, {})", ("text", "text")),
        ("substring({} FROM '[a-z]')", ("text",)),
        ("regexp_substr({}, '[^a]+')", ("text",)),
        ("regexp_replace({}, '[ab]', '<\\&>', 'g')", ("text",)),
        ("to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')", ("time",)),
        ("to_char({}, 'FMDay IYYY-IW J')", ("date",)),
        ("array_to_string(ARRAY({}, {}), ',')", ("text", "text")),
        ("sha256({})", ("text",)),
        ("split({}, {})[{}]", ("text", "text", "int")),
        ("element_at(string_to_array({}, 'a'), {})", ("text", "int")),
        ("strftime({}, '%Y/%m/%d %H')", ("time",)),
        ("('{{\"a\": [' || {} || ', \"x\"]}}' #>> '{{a,0}}')", ("int",)),
        ("('{{\"a\": ' || {} || '}}' ->> 'a')", ("bool",)),
        ("json_value({}, '$.a')", ("text",)),
    ),
    "bool": (
        ("({} LIKE 'a%')", ("text",)),
        ("({} ILIKE '_')", ("text",)),
        ("starts_with({}, {})", ("text", "text")),
        ("({} IS DISTINCT FROM {})", ("int", "decimal")),
        ("({} IS NOT DISTINCT FROM {})", ("text", "text")),
        ("({} IS NOT TRUE)", ("bool",)),
        ("({} IS UNKNOWN)", ("bool",)),
        ("CAST({} AS BOOLEAN)", ("int",)),
        ("contains({}, {})", ("text", "text")),
        ("ends_with({}, {})", ("text", "text")),
        ("({} ~ '^[a-z]$')", ("text",)),
        ("({} ~* 'Ä|b')", ("text",)),
        ("({} SIMILAR TO '(a|b)%')", ("text",)),
        ("isnan({})", ("double",)),
        ("isfinite({})", ("double",)),
        ("array_contains(ARRAY({}, {}), {})", ("int", "int", "int")),
        ("({} = ANY(ARRAY[{}, {}]))", ("text", "text", "text")),
        ("({} <> ALL(ARRAY[{}, {}]))", ("int", "int", "int")),
        ("({} RLIKE '^a')", ("text",)),
    ),
    "date": (
        ("CAST({} AS DATE)", ("time",)),
        ("({} - {})", ("date", "int")),
        ("least({}, {})", ("date", "date")),
        ("make_date(year({}), 2, {})", ("date", "int")),
    ),
    "time": (
        ("date_trunc('day', {})", ("time",)),
        ("date_trunc('month', {})", ("date",)),
        ("CAST({} AS TIMESTAMP)", ("date",)),
        ("({} + ({} - {}))", ("time", "time", "time")),
        ("date_bin(INTERVAL '7' MICROSECONDS, {}, {})", ("time", "time")),
        ("date_trunc('century', {})", ("time",)),
        ("make_timestamp(1970, 1, {}, 0, 0, {})", ("int", "double")),
        ("to_timestamp({})", ("double",)),
        ("date_add('month', {}, {})", ("int", "time")),
        ("dateadd(day, {}, {})", ("int", "date")),
        ("({} + INTERVAL '1' MONTH)", ("date",)),
        ("({} AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin')", ("time",)),
        ("to_utc_timestamp({}, 'America/New_York')", ("time",)),
        ("epoch_us({})", ("int",)),
    ),
}


@dataclass(frozen=True)
class Field:
    """Something that an expression may read: its text and its family of types."""

    text: str
    family: str


Fields: TypeAlias = Sequence[Field]

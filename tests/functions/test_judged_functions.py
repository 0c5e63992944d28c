"""Every function of the language over values at which something may go wrong, as we compute it and as two databases do.

`strandline verify` is worth what its translations are: each is held here against our own function, and both must say
the same. What a database cannot say is listed with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from random import Random

import polars as pl
import pytest

from runtime.expressions.test_expressions import COLUMNS, Rows, call, calls_of, edges, frame_of, grid
from strandline.apps.verify.compare import differences
from strandline.apps.verify.oracle import OracleDatabase
from strandline.core.types import BIGINT, INT, Column, Type
from strandline.functions.evaluate import evaluate
from strandline.functions.oracles import Untranslatable
from strandline.functions.registry import FUNCTIONS
from strandline.logical.expressions import ColumnRef, Expression, Literal, Value, columns_of
from strandline.runtime.expressions.compile import evaluate_columns
from strandline.sql import ast
from strandline.sql.binder.expressions import Scalars
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.parser.statements import parse
from support import LONG, examples

JUDGES = ("duckdb", "postgresql")

# What a database cannot judge, and why. A function that is not here is judged in all that it can be given.
NOT_JUDGED = {
    # Its regular expressions have no way to tell a group that matched nothing from one that took no part.
    ("DuckDB", "match"): {"a group that may be empty or missing, which are the same to DuckDB"},
    # Its regular expressions take the longest of several ways, those of the language the first one written.
    **{
        ("PostgreSQL", function): {"a pattern with a choice, of which PostgreSQL takes the longest way"}
        for function in ("match", "regexp_substr")
    },
    # It knows the cases of letters beyond ASCII only under rules by which these are parts of words, too.
    ("PostgreSQL", "regexp_like"): {"case-insensitive word classes, which PostgreSQL defines differently"},
    # It also finds the empty match that touches the end of the match before it.
    **{
        ("PostgreSQL", function): {
            "a pattern with a choice, of which PostgreSQL takes the longest way",
            "case-insensitive word classes, which PostgreSQL defines differently",
            "a pattern that may be empty, which PostgreSQL also finds right after a match",
        }
        for function in ("regexp_count", "regexp_replace")
    },
}


def compared(database: OracleDatabase, expression: Expression, rows: Rows) -> str | None:
    """Why the database cannot say; else it has said the same for every row."""
    ids = sorted(columns_of(expression))
    frame = frame_of(rows) if ids else pl.DataFrame(height=len(rows))
    ours = evaluate_columns(frame, [("result", expression)])["result"]
    number = pl.Series("t", range(len(ours)), dtype=pl.Int64)
    columns = tuple(Column(column_id, column_id, COLUMNS[column_id]) for column_id in ids)
    places = (Column("t", "t", BIGINT), Column("c1", "c1", expression.type))
    try:
        database.load("edges", (*columns, places[0]), frame.with_columns(number))
        answer = database.ask(f"SELECT t, {database.dialect.sql(expression)} AS c1 FROM edges", places)
    except Untranslatable as error:
        return str(error)
    found = differences(pl.DataFrame([number, ours.alias("c1")]), answer)
    shown = [f"{rows[each.instant]}: {each.only_here}, and there {each.only_there}" for each in found[:5]]
    assert not found, f"{expression} in {len(found)} of {len(ours)} rows\n" + "\n".join(shown)
    return None


def agree(database: OracleDatabase, function: str, asked: Iterator[tuple[Expression, Rows]]) -> None:
    reasons = [compared(database, expression, rows) for expression, rows in asked]
    assert reasons, "there is something to compare"
    assert {reason for reason in reasons if reason is not None} <= NOT_JUDGED.get(
        (database.dialect.name, function), set()
    )
    assert None in reasons, "something was compared"


def some(calls: list[Expression], most: int) -> list[Expression]:
    return calls[:: max(1, -(-len(calls) // most))]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", JUDGES if LONG else JUDGES[:1])
def test_at_the_edges_of_types(name: str, function: str, request: pytest.FixtureRequest) -> None:
    calls = some(calls_of(function), examples(24))
    agree(request.getfixturevalue(name), function, ((each, grid(sorted(columns_of(each)))) for each in calls))


# ---- values that functions treat in a special way --------------------------------------------------------------------

TEXTS = (
    "", " ", "a", "e\u0301x", "ß", "ßa", "o'neil mc-x", "ÄB ÖC", "👩\u200d👩\u200d👧 x", "a\nb", "x\r\n",
    "a,b,,c", ",", "$1", r"\1", "^a$", "x" * 300, "\u212a", "ſ", "ıiI", "ΑΣ ΑΣΑ Σ", "a\u00a0b", "١٢",
    "\uffff", "\U0010ffff", "aXbxc", "12.5-7", "%", "10%", "_", "日本語", "ab ab", "aaa", "-", "A_b", "Zz",
    "/path?x=1", "GET /a 200",
)  # fmt: skip
NUMBERS = (
    -60, -1, 0, 1, 2, 3, 4, 6, 12, 13, 23, 24, 28, 29, 30, 31, 32, 59, 60, 61, 63, 64, 97, 366, 1900, 2000,
    2023, 2024, 9999, 10000, 55295, 55296, 57343, 57344, 128512, 1_000_000, 1_000_001, 1_114_111, 1_114_112,
)  # fmt: skip
SPANS = (0, 1, -1, 6, 4, -12, 18, 2**40, -(2**62), 2**62, 3_600_000_000, 7 * 86_400_000_000, 999, 10**18)
REALS = (
    0.0, 1.0, -1.0, 2.0, 8.0, 10.0, -8.0, 27.0, 100.0, 1000.0, 60.0, 24.0, 59.9999999, 59.9999995, 59.5,
    -1e-9, 1e-7, 5e-7, 1.5e-6, 0.9999999, 1704067199.9999995, 253402300799.0, 253402300800.0, -62135596800.0,
    -62135596801.0, 709.5, 710.0, -745.0, -746.0, 1e300, -1e300, 1e-300, math.pi, -math.pi / 2, 1e22, 0.999,
    1.001, 4.35, 1.005, -2.5, math.nan, math.inf, -math.inf,
)  # fmt: skip
DAYS = [
    day + timedelta(days=shift)
    for year in (
        1,
        4,
        10,
        99,
        100,
        101,
        1582,
        1900,
        1969,
        1970,
        1999,
        2000,
        2001,
        2004,
        2015,
        2020,
        2021,
        2024,
        2026,
        9999,
    )
    for day in (date(year, 1, 4), date(year, 2, 27), date(year, 6, 30), date(year, 12, 28))
    for shift in (-3, -1, 0, 1, 2, 3)
]
CLOCKS = [timedelta(), timedelta(microseconds=1), timedelta(hours=11, minutes=59, seconds=59, microseconds=999_999),
          timedelta(hours=12), timedelta(hours=23, minutes=59, seconds=59, microseconds=999_500)]  # fmt: skip


def special(kind: Type) -> list[Value]:
    match kind.name:
        case "VARCHAR":
            return [*TEXTS]
        case "INT":
            return [*NUMBERS]
        case "BIGINT" | "INTERVAL":
            return [*NUMBERS, *SPANS]
        case "DOUBLE":
            return [*REALS]
        case "DATE":
            return [*DAYS]
        case "TIMESTAMP":
            return [datetime.combine(day, datetime.min.time()) + clock for day in DAYS for clock in CLOCKS]
    return edges(kind)


def chosen(ids: list[str], height: int = 200) -> Rows:
    """Some combinations of special values; all of a single column."""
    choices = {column_id: [None, *special(COLUMNS[column_id])] for column_id in ids}
    if len(ids) == 1:
        return [{ids[0]: value} for value in choices[ids[0]]]
    dice = Random(7)
    return [{column_id: dice.choice(some) for column_id, some in choices.items()} for _ in range(height)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", JUDGES if LONG else JUDGES[:1])
def test_at_special_values(name: str, function: str, request: pytest.FixtureRequest) -> None:
    calls = some(calls_of(function), examples(9))
    agree(request.getfixturevalue(name), function, ((each, chosen(sorted(columns_of(each)))) for each in calls))


# ---- written out -----------------------------------------------------------------------------------------------------

PATTERNS = (
    "a", "ab", "a+", "[a-z]+", "[^a-z]+", r"\d+", r"\D+", r"\w+", r"\W", r"\s", r"\S+", r"([a-z]+)-?",
    r"(\d+)\.(\d+)", "^a", "b$", "^$", "^.$", r"\ya", r"b\y", "[[:alpha:]]+", "[[:upper:]]", "[[:punct:]]",
    "[[:space:]]", r"[\d.]+", r"[^\w]", "(?i)AB", "(?i)ä", "(?i)[x-z]", "(?n)^b", "(?n)a$", "(?n)[^a]+",
    "(?n).+", "a{2}", "a{1,2}", "x{2,}", r"\.", r"\$", r"\\", "[]a]", "[^]a]", "[a-]", "日.", "👩", r"\u0061",
    "{", "a|b", "(a|ab)(c|b)?", "a*?b", "(?:ab )+", "x*", "(a)?b", "a??", "",
)  # fmt: skip
SIMILAR = (
    "a%",
    "%a",
    "_",
    "%",
    "(a|b)%",
    "[a-z]+",
    "[^a-z]%",
    "a+",
    "a{3}",
    "%[0-9]%",
    "$1",
    "^a$",
    r"\%",
    "%.5-_",
    "",
)
FORMS = (
    "YYYY-MM-DD HH24:MI:SS.US", "YYY YY Y", "IYYY-IW-ID", "CC Q MM Mon MON mon", "Month|MONTH|month|FMMonth",
    "WW W DDD DD D", "Day DAY day FMDay", "Dy DY dy", "J", "HH12 HH HH24 MI SS SSSS SSSSS", "MS US",
    "AM am A.M. a.m. PM pm P.M. p.m.", "FMMM FMDD FMHH12 FMMI FMSS FMMS FMUS FMDDD", '"YYYY" "T"',
    "yyyy/mm/dd", "äöü 日 😀", "FMYYYY FMYY FMY FMCC FMWW FMIW FMIYYY", "DD.MM.YYYY, HH24", "-:/.,; ()",
    "FMYYY FMJ FMQ FMD",
)  # fmt: skip

# What was computed otherwise before PostgreSQL was asked.
MENDED = {
    "make_timestamp(2024, 2, 29, 24, 0, 0)": datetime(2024, 3, 1),
    "make_timestamp(2023, 12, 31, 23, 59, 60)": datetime(2024, 1, 1),
    "make_timestamp(2024, 1, 1, 0, 0, -1e-9)": datetime(2024, 1, 1),
    "make_timestamp(2024, 1, 1, 24, 0, 1e-6)": None,
    "make_timestamp(2024, 1, 1, 0, 0, 60.000001)": None,
    "make_timestamp(9999, 12, 31, 24, 0, 0)": None,
    "to_char(TIMESTAMP '2024-01-01', '')": None,
    "regexp_replace('sSkKiI!', '[^a-z]', '', 'gi')": "sSkKiI",
    "'S' ~* '[^s]'": False,
    "'S' ~* '[\\W]'": False,
    "initcap('ßa e\u0301x')": "ßa E\u0301X",
}


def bound(text: str) -> Expression:
    """A scalar expression over columns of the tests above."""
    (query,) = parse(f"SELECT {text} FROM r")
    assert isinstance(query, ast.Select)
    columns = tuple(
        Column(column_id, column_id, kind) for column_id, kind in COLUMNS.items() if kind.name != "INTERVAL"
    )
    item = query.items[0]
    assert isinstance(item, ast.Item) and not isinstance(item.value, ast.Star)
    return Scalars(Scope((Relation("r", columns, None, query.span),)), "SELECT").bind(item.value)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


WRITTEN = {
    "regexp_like": [f"text ~ {quoted(p)}" for p in PATTERNS] + [f"text ~* {quoted(p)}" for p in PATTERNS],
    "match": [f"substring(text FROM {quoted(p)})" for p in PATTERNS],
    "regexp_substr": [f"regexp_substr(text, {quoted(p)})" for p in PATTERNS],
    "regexp_count": [f"regexp_count(text, {quoted(p)})" for p in PATTERNS],
    "regexp_replace": [
        f"regexp_replace(text, {quoted(p)}, '{new}', '{flags}')"
        for p in PATTERNS
        for new, flags in ((r"<\1>", "g"), (r"\&\\", ""), ("", "gi"))
    ],
    "similar": [f"text SIMILAR TO {quoted(p)}" for p in SIMILAR],
    "to_char": [f"to_char(ts, {quoted(form)})" for form in FORMS],
    "array_contains": [
        "array_contains(ARRAY(small, small2), small3)",
        "array_contains(ARRAY(double, 1), double2)",
        "array_contains(ARRAY(text), NULL)",
    ],
    "array_to_string": [
        "array_to_string(ARRAY(small, large2), text)",
        "array_to_string(ARRAY(text, text2), ',', text3)",
    ],
    "make_timestamp": list(MENDED)[:6],
}


@pytest.mark.parametrize("function", WRITTEN)
@pytest.mark.parametrize("name", JUDGES)
def test_written_out(name: str, function: str, request: pytest.FixtureRequest) -> None:
    asked = ((each, chosen(sorted(columns_of(each)))) for each in map(bound, WRITTEN[function]))
    agree(request.getfixturevalue(name), function, asked)


@pytest.mark.parametrize("text", MENDED)
def test_what_was_wrong_once(text: str) -> None:
    assert evaluate(bound(text), {}) == MENDED[text]


def test_an_array_without_elements_does_not_hold_what_is_unknown() -> None:
    asked = call("array_contains", ColumnRef("ints", COLUMNS["ints"]), Literal(None, INT))
    assert [evaluate(asked, {"ints": array}) for array in ((), (1,), None)] == [False, None, None]


# ---- as DuckDB writes it, judged by DuckDB's own functions -----------------------------------------------------------

NATIVE = (
    "if(small > 0, small, small2)", "ifnull(small, 3)", "len(text)", "instr(text, 'a')", "regexp_matches(text, 'a')",
    "strftime(ts, '%Y-%m-%d %H:%M:%S')", "strftime(ts, 'at %H h, %j, %y')", "epoch_ms(date_trunc('second', ts))",
    "epoch_us(ts)", "startswith(text, 'a')", "starts_with(text, substr(text, 2))", "datediff('day', ts, ts2)",
    "date_diff('month', ts, ts2)",
    "date_diff('quarter', ts, ts2)", "date_diff('year', ts, ts2)", "date_diff('hour', ts, ts2)",
    "timestampdiff('month', ts, ts2)", "timestampdiff('year', ts, ts2)", "timestampdiff('hour', ts, ts2)",
    "list_extract(words, -1)", "len(words)", "split(text, ',')", "str_split(text, '')",
    "time_bucket(INTERVAL 5 MINUTES, ts)", "small // 3", "text == 'a'", "TRY_CAST(text AS DOUBLE) IS NULL",
    "year(ts + INTERVAL '1' MONTH)", "ts - INTERVAL 2 YEARS < ts", "sha256(text)",
    "(ts AT TIME ZONE 'UTC') AT TIME ZONE 'Europe/Berlin'", "ts AT TIME ZONE 'America/New_York' AT TIME ZONE 'UTC'",
    "text SIMILAR TO 'a.*' IS NULL", "small IS DISTINCT FROM small2",
)  # fmt: skip


# Spellings of Spark, and what DuckDB calls the same.
OTHERS = {"timestampdiff(": "date_sub(", "startswith(": "starts_with("}


@pytest.mark.parametrize("text", NATIVE)
def test_what_duckdb_says_itself(text: str, duckdb: OracleDatabase) -> None:
    expression = bound(text)
    ids = sorted(columns_of(expression))
    rows = [row for row in chosen(ids, 400) if all(_is_modern(value) for value in row.values())]
    frame = frame_of(rows)
    ours = evaluate_columns(frame, [("result", expression)])["result"]
    number = pl.Series("t", range(len(ours)), dtype=pl.Int64)
    columns = tuple(Column(column_id, column_id, COLUMNS[column_id]) for column_id in ids)
    duckdb.load("edges", (*columns, Column("t", "t", BIGINT)), frame.with_columns(number))
    name = text.partition("(")[0] + "("
    native = text.replace(name, OTHERS.get(name, name))
    kind = duckdb.dialect.type_name(expression.type)
    places = (Column("t", "t", BIGINT), Column("c1", "c1", expression.type))
    answer = duckdb.ask(f"SELECT t, CAST({native} AS {kind}) AS c1 FROM edges", places)
    assert differences(pl.DataFrame([number, ours.alias("c1")]), answer) == []


def _is_modern(value: Value) -> bool:
    """Beyond the calendar there is NULL here, and an error there."""
    return not isinstance(value, date) or 1 < value.year < 9999

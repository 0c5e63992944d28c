"""Every function of the language over values at which something may go wrong, as we compute it and as two databases do.

`strandline verify` is worth what its translations are: each is held here against our own function, and both must say
the same. What a database cannot say is listed with its reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from random import Random

import polars as pl
import pytest

from execution.test_expressions import COLUMNS, Rows, call, calls_of, edges, frame_of, grid
from strandline.algebra.expressions import ColumnRef, Expression, Literal, Value, columns_of
from strandline.algebra.functions import FUNCTIONS
from strandline.execution.expressions import evaluate_columns
from strandline.types import BIGINT, INT, VARCHAR, Column, Type
from strandline.verify import script as scripts
from strandline.verify.compare import differences
from strandline.verify.dialect import Untranslatable
from strandline.verify.judge import Database
from strandline.verify.server import installed

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
    # It also finds the empty match that touches the end of the match before it.
    **{
        ("PostgreSQL", function): {
            "a pattern with a choice, of which PostgreSQL takes the longest way",
            "a pattern that may be empty, which PostgreSQL also finds right after a match",
        }
        for function in ("regexp_count", "regexp_replace")
    },
}


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Database]:
    with scripts.judge("duckdb", None) as database:
        yield database


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Database]:
    if installed() is None:
        pytest.skip("no PostgreSQL server is installed here (Debian: apt install postgresql)")
    with scripts.judge("postgresql", None) as database:
        yield database


def compared(database: Database, expression: Expression, rows: Rows) -> str | None:
    """Why the database cannot say; else it has said the same for every row."""
    ids = sorted(columns_of(expression))
    frame = frame_of(rows) if ids else pl.DataFrame(height=len(rows))
    ours = evaluate_columns(frame, [("result", expression)])["result"]
    number = pl.Series("t", range(len(ours)), dtype=pl.Int64)
    columns = tuple(Column(id, id, COLUMNS[id]) for id in ids)
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


def agree(database: Database, function: str, asked: Iterator[tuple[Expression, Rows]]) -> None:
    reasons = [compared(database, expression, rows) for expression, rows in asked]
    assert reasons, "there is something to compare"
    assert {reason for reason in reasons if reason is not None} <= NOT_JUDGED.get(
        (database.dialect.name, function), set()
    )
    assert None in reasons, "something was compared"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", JUDGES)
def test_at_the_edges_of_types(name: str, function: str, request: pytest.FixtureRequest) -> None:
    calls = calls_of(function)
    agree(request.getfixturevalue(name), function, ((each, grid(sorted(columns_of(each)))) for each in calls))


# ---- values that functions treat in a special way --------------------------------------------------------------------

TEXTS = (
    "", " ", "a", "e\u0301x", "ß", "ßa", "o'neil mc-x", "ÄB ÖC", "👩\u200d👩\u200d👧 x", "a\nb", "x\r\n", "a,b,,c", ",", "$1", r"\1", "^a$",
    "x" * 300, "\u212a", "ſ", "ıiI", "ΑΣ ΑΣΑ Σ", "a\u00a0b", "١٢", "\uffff", "\U0010ffff", "aXbxc", "12.5-7", "%", "10%", "_", "日本語",
    "ab ab", "aaa", "-", "A_b", "Zz", "/path?x=1", "GET /a 200",
)  # fmt: skip
NUMBERS = (-60, -1, 0, 1, 2, 3, 4, 6, 12, 13, 23, 24, 28, 29, 30, 31, 32, 59, 60, 61, 63, 64, 97, 366, 1900, 2000, 2023, 2024,
           9999, 10000, 55295, 55296, 57343, 57344, 128512, 1_000_000, 1_000_001, 1_114_111, 1_114_112)  # fmt: skip
SPANS = (0, 1, -1, 6, 4, -12, 18, 2**40, -(2**62), 2**62, 3_600_000_000, 7 * 86_400_000_000, 999, 10**18)
REALS = (
    0.0, 1.0, -1.0, 2.0, 8.0, 10.0, -8.0, 27.0, 100.0, 1000.0, 60.0, 24.0, 59.9999999, 59.9999995, 59.5, -1e-9, 1e-7, 5e-7, 1.5e-6, 0.9999999,
    1704067199.9999995, 253402300799.0, 253402300800.0, -62135596800.0, -62135596801.0, 709.5, 710.0, -745.0, -746.0, 1e300, -1e300, 1e-300,
    math.pi, -math.pi / 2, 1e22, 0.999, 1.001, 4.35, 1.005, -2.5, math.nan, math.inf, -math.inf,
)  # fmt: skip
DAYS = [
    day + timedelta(days=shift)
    for year in (1, 4, 10, 99, 100, 101, 1582, 1900, 1969, 1970, 1999, 2000, 2001, 2004, 2015, 2020, 2021, 2024, 2026, 9999)
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
    choices = {id: [None, *special(COLUMNS[id])] for id in ids}
    if len(ids) == 1:
        return [{ids[0]: value} for value in choices[ids[0]]]
    dice = Random(7)
    return [{id: dice.choice(some) for id, some in choices.items()} for _ in range(height)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", JUDGES)
def test_at_special_values(name: str, function: str, request: pytest.FixtureRequest) -> None:
    calls = calls_of(function)
    calls = calls[:: -(-len(calls) // 12)]
    agree(request.getfixturevalue(name), function, ((each, chosen(sorted(columns_of(each)))) for each in calls))

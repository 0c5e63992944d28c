"""Every function of the language over values at which something may go wrong, as we compute it and as two databases do.

`strandline verify` is worth what its translations are: each is held here against our own function, and both must say
the same. A translation that is missing or cannot be is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from execution.test_expressions import COLUMNS, calls_of, frame_of, grid
from strandline.algebra.expressions import Expression, columns_of
from strandline.algebra.functions import FUNCTIONS
from strandline.execution.expressions import evaluate_columns
from strandline.types import BIGINT, Column
from strandline.verify import script as scripts
from strandline.verify.compare import differences
from strandline.verify.dialect import Untranslatable
from strandline.verify.judge import Database
from strandline.verify.server import installed


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


def compared(database: Database, expression: Expression) -> str | None:
    """Why the database cannot say; else it has said the same for every row."""
    ids = sorted(columns_of(expression))
    rows = grid(ids)
    frame = frame_of(rows) if ids else pl.DataFrame(height=1)
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
    shown = [f"{rows[each.instant] if ids else ''}: {each.only_here} is {each.only_there}" for each in found[:5]]
    assert not found, f"{expression} in {len(found)} of {len(ours)} rows\n" + "\n".join(shown)
    return None


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["duckdb", "postgresql"])
def test_a_function_at_the_edges_is_what_a_database_says(
    name: str, function: str, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue(name)
    reasons = [compared(database, expression) for expression in calls_of(function)]
    assert [reason for reason in reasons if reason is not None] == []

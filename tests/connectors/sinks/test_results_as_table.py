"""Results in Parquet read back as a temporal table: nothing is lost, whatever the types, duplicates and batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import strandline as sl
import vocabulary
from strandline.core.temporal import EARLIEST, FOREVER, Instant, instant
from strandline.core.types import Type
from strandline.database.database import Database
from strandline.logical.expressions import Value
from strandline.runtime.result import VALID_FROM, VALID_UNTIL
from support import DOMAIN, Arrivals, arrange

LETTERS = "ibmsodyu"  # a column of each type
QUERIES = (
    "SELECT {all} FROM s0 WINDOW(RANGE 4 MICROSECONDS)",
    "SELECT {all} FROM s0",
    "SELECT {some} FROM s0 WINDOW(ROWS 3)",
    "SELECT DISTINCT {some} FROM s0 WINDOW(RANGE UNBOUNDED)",
    "SELECT {some}, COUNT(*) AS n FROM s0 WINDOW(RANGE 5 MICROSECONDS SLIDE 2 MICROSECONDS) GROUP BY {some}",
    "SELECT {some} FROM s0 WINDOW(RANGE 6 MICROSECONDS) UNION ALL SELECT {some} FROM s0 WINDOW(RANGE 3 MICROSECONDS)",
    "SELECT a.i, a.s FROM s0 WINDOW(RANGE UNBOUNDED) a WHERE NOT EXISTS"
    " (SELECT 1 FROM s0 WINDOW(RANGE 2 MICROSECONDS) b WHERE b.i = a.i AND b.b <> a.b)",
)


def draw_rows(dice: Random) -> Arrivals:
    """Rows with common values, so that some are equal, and with extreme ones."""

    def value(kind: Type) -> Value:
        common = DOMAIN[kind.name][:2]
        return dice.choice((*common, common[1], dice.choice(DOMAIN[kind.name]), None))

    columns = {letter: vocabulary.LETTERS[letter] for letter in LETTERS}
    rows = [(dice.randint(-5, 25), dice.randint(0, 6), tuple(map(value, columns.values()))) for _ in range(30)]
    return arrange("s0", columns, rows, dice.choice((0, 1, 6)))


def declare(database: Database, arrivals: Arrivals) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in arrivals.columns)
    order = f"ORDERED BY ts WITHIN {arrivals.declared.disorder_us} MICROSECONDS"
    database.sql(f"CREATE STREAM s0 ({columns}) SOURCE events() {order}")
    names = [name for name, _ in arrivals.columns]
    database.append("s0", [{name: element.values[name] for name in names} for element in arrivals.elements])
    database.end("s0")


def texts(rows: pl.DataFrame) -> list[str]:
    """Rows as texts, which are equal where the rows are: NaN is, and 0.0 and -0.0 are."""
    return [repr([value + 0.0 if isinstance(value, float) else value for value in row]) for row in rows.rows()]


def elements(result: pl.DataFrame) -> list[tuple[str, Instant, Instant]]:
    """Rows as texts with their intervals in microseconds."""
    payload = texts(result.drop(VALID_FROM, VALID_UNTIL))
    starts, ends = (result[name].dt.epoch("us").to_list() for name in (VALID_FROM, VALID_UNTIL))
    return [
        (row, EARLIEST if start is None else start, FOREVER if end is None else end)
        for row, start, end in zip(payload, starts, ends, strict=True)
    ]


def at(found: list[tuple[str, Instant, Instant]], moment: Instant) -> Counter[str]:
    return Counter(row for row, start, end in found if start <= moment < end)


@pytest.mark.parametrize("number", range(len(QUERIES)))
@pytest.mark.parametrize("seed", range(2))
def test_results_in_parquet_are_a_temporal_table(tmp_path: Path, number: int, seed: int) -> None:
    dice = Random(100 * number + seed)
    arrivals = draw_rows(dice)
    text = QUERIES[number].format(all=", ".join(LETTERS), some=", ".join(sorted(dice.sample(LETTERS, 2))))
    with sl.connect(engine="local", batch_rows=dice.choice((2, 7, 1000))) as database:
        declare(database, arrivals)
        kept = database.sql(text, name="kept")
        written = database.sql(text, name="written", sink=sl.Parquet(tmp_path / "written"))
        assert kept.await_end(60) and written.await_end(60)
        expected: Any = kept.results("polars")
    with sl.connect(engine="local") as database:
        source = f"SOURCE file('{tmp_path}/written/*.parquet') VALID FROM valid_from UNTIL valid_until"
        database.sql(f"CREATE TABLE again {source}")
        assert database.tables.feeders()["again"].feed.position.rejected == 0
        query = database.sql("SELECT * FROM again", name="over")
        assert query.await_end(60)
        results: Any = query.results("polars")
        table = database.table("again")
        history: Any = table.history("polars")
        some = instant(dice.choice(history[VALID_FROM].drop_nulls().to_list()))
        snapshot: Any = table.snapshot(some, "polars").drop(VALID_FROM, VALID_UNTIL)
    assert results.schema == expected.schema
    ours, again = elements(expected), elements(results)
    assert ours, "an empty result shows nothing"
    moments = {moment + step for _, start, end in ours for moment in (start, end) for step in (-1, 0, 1)}
    for moment in moments:
        assert at(again, moment) == at(ours, moment), moment
    # The rows themselves, and those that are valid at an instant.
    assert Counter(elements(history)) == Counter(elements(pl.read_parquet(tmp_path / "written" / "*.parquet")))
    assert Counter(texts(snapshot)) == at(ours, some)

"""Results stored as temporal tables (17.4.3 of the thesis): their snapshots, as far as the table keeps them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.sinks import SinkBatch, TableSink
from strandline.connectors.sinks.base import ResumePoint
from strandline.connectors.tables.store import find_open_table
from strandline.core.errors import StrandlineError
from strandline.core.temporal import BEFORE_ALL, instant
from strandline.core.types import INT, Column
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.logical.catalog import Table
from strandline.runtime.result import result_schema

QUERIES = {
    "windowed": "SELECT k, v FROM s WINDOW(RANGE 40 MICROSECONDS)",
    "grouped": "SELECT k, MAX(v) AS v FROM s WINDOW(RANGE 40 MICROSECONDS) GROUP BY k",
    "last": "SELECT k, v FROM s WINDOW(PARTITION BY k ROWS 1)",
}


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k INT, v INT, ts BIGINT) SOURCE events() ORDERED BY ts")
        yield database


def until(query: Query, progress: int) -> None:
    deadline = time.monotonic() + 60
    while query.progress < progress and time.monotonic() < deadline:
        query.check()
        time.sleep(0.002)
    assert query.progress >= progress


def snapshot(query: Query, at: int) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in query.snapshot(at).to_pylist())


def read(database: Database, at: int) -> list[tuple[object, ...]]:
    text = f"SELECT k, v FROM h AT TIMESTAMP '1970-01-01 00:00:00.{at:06d}'"
    return sorted(tuple(row.values()) for row in database.sql(text).results().to_pylist())


@pytest.mark.parametrize("name", QUERIES)
def test_the_table_has_every_snapshot_of_the_time_that_it_keeps(database: Database, name: str) -> None:
    draw, t = random.Random(name), 0
    table = "CREATE TABLE h (a TIMESTAMP, k INT, b TIMESTAMP, v INT) VALID FROM a UNTIL b"
    database.sql(f"{table} KEEP 100 MICROSECONDS")
    sink = database.sql(f"CREATE SINK keeper INTO table('h') AS {QUERIES[name]}")
    query = database.sql(QUERIES[name])
    for _ in range(60):
        rows = [(draw.randint(0, 3), draw.randint(0, 9), (t := t + draw.randint(0, 3))) for _ in range(8)]
        database.append("s", rows)
        until(sink, t)
    database.end("s")
    assert sink.await_end(60) and query.await_end(60)
    # The same at once, and by a query over the table.
    over = database.sql("SELECT k, v FROM h", name="over")
    assert over.await_end(60)
    for moment in range(t - 100, t + 50):
        assert read(database, moment) == snapshot(query, moment) == snapshot(over, moment), moment
    store = find_open_table(Path(_table(database).directory))
    ends = store.content().get_column("b").drop_nulls()
    assert instant(ends.min()) > t - 100 - 100 / 8 - 40  # type: ignore[arg-type]


def _table(database: Database) -> Table:
    table = database.catalog.get("h")
    assert isinstance(table, Table)
    return table


def test_a_batch_is_in_the_table_once(database: Database) -> None:
    database.sql("CREATE TABLE h (k INT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b")
    columns = (Column("k", "k", INT),)
    rows = [{"k": 1, "valid_from": 0, "valid_until": 5}, {"k": 2, "valid_from": 1, "valid_until": None}]
    sink, result = TableSink("h", _table(database)), pa.Table.from_pylist(rows, schema=result_schema(columns))
    for resumed in (-1, 0):  # the crash came before the batch was recorded, and then after it
        writer = sink.open("q", columns)
        point = ResumePoint("owner", resumed < 0, resumed, resumed)
        writer.validate(point)
        writer.prepare(point)
        for _ in range(2):
            writer.write(SinkBatch(0, result, 10, BEFORE_ALL))
        assert len(database.table("h")) == 2
    with pytest.raises(StrandlineError) as other:
        sink.open("q", columns).validate(ResumePoint("another", True, -1, -1))
    assert other.value.code == "results-exist"
    with pytest.raises(StrandlineError) as behind:
        sink.open("q", columns).validate(ResumePoint("owner", False, 3, 3))
    assert behind.value.code == "results-missing"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE SINK x INTO table('nothing') AS SELECT k, v FROM s", "unknown-stream"),
        ("CREATE SINK x INTO table('s') AS SELECT k, v FROM s", "sink-argument"),
        ("CREATE SINK x INTO table('plain') AS SELECT k, v FROM s", "sink-argument"),
        ("CREATE SINK x INTO table('h') AS SELECT k FROM s", "sink-columns"),
        ("CREATE SINK x INTO table('h') AS SELECT k, 'a' AS v FROM s", "sink-columns"),
        ("CREATE SINK x INTO table() AS SELECT k, v FROM s", "sink-argument"),
    ],
)
def test_what_does_not_fit_is_refused(database: Database, statement: str, code: str) -> None:
    database.sql("CREATE TABLE plain (k INT, v INT)")
    database.sql("CREATE TABLE h (k INT, v INT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b")
    with pytest.raises(StrandlineError) as caught:
        database.sql(statement)
    assert caught.value.code == code


def test_a_table_is_not_dropped_below_its_sink(database: Database) -> None:
    database.sql("CREATE TABLE h (k INT, v INT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b")
    database.sql("CREATE SINK keeper INTO table('h') AS SELECT k, v FROM s")
    with pytest.raises(StrandlineError) as caught:
        database.sql("DROP TABLE h")
    assert caught.value.code == "stream-in-use"
    database.sql("DROP SINK keeper; DROP TABLE h")

"""Answers in tables of real databases: after every batch, repeated batches and restarts; and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Self

import polars as pl
import pyarrow as pa
import pytest
from sink_databases import File, Place, Server

import strandline as sl
from strandline.connectors.sinks import ResumePoint, Sink, SinkBatch, SinkWriter
from strandline.connectors.sinks.base import SinkArguments
from strandline.connectors.traits import Traits
from strandline.core.errors import SinkError, StrandlineError
from strandline.core.temporal import BEFORE_ALL, FOREVER, instant, to_datetime
from strandline.core.types import BIGINT, DOUBLE, VARCHAR, Column, Schema
from strandline.database.statements import BoundQuery
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import coalesce
from strandline.runtime.result_buffer import ResultChunks
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one

STREAM = """
CREATE STREAM s (k VARCHAR, v INT, ts TIMESTAMP)
  SOURCE rows(
    ('a', 1, '2024-01-01 00:00:00'), ('b', 2, '2024-01-01 00:00:02'), ('a', 5, '2024-01-01 00:00:04'),
    (NULL, 5, '2024-01-01 00:00:05'), ('a', 5, '2024-01-01 00:00:07'), ('c', 5, '2024-01-01 00:00:09'),
    ('c', 5, '2024-01-01 00:00:09'), ('', NULL, '2024-01-01 00:00:20'), ('c', 5, '2024-01-01 00:00:29'))
  ORDERED BY ts
"""
QUERIES = {
    "aggregate": "SELECT k, SUM(v) AS total FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k",
    "bag": "SELECT k, v FROM s WINDOW(RANGE 5 SECONDS)",
    "later": "SELECT k FROM s WINDOW(RANGE 8 SECONDS SLIDE 4 SECONDS)",
    "for ever": "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k",
}


@dataclass(frozen=True)
class Watching(Sink):
    """A sink of a test: looks, after every batch, whether a table shows the snapshot of all elements so far."""

    kind: ClassVar[str] = "watching"
    traits: ClassVar[Traits] = Traits(False, True, False, "for tests")
    place_of_table: Place
    table: str
    seen: list[int] = field(default_factory=list)

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        raise NotImplementedError

    @property
    def takes_changes(self) -> bool:
        return True

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _Watching(self, columns)


class _Watching(SinkWriter):
    def __init__(self, sink: Watching, columns: Schema) -> None:
        self.sink, self.columns = sink, columns
        self.tables: list[pa.Table] = []
        self.begins: list[int] = []

    def write(self, sink_batch: SinkBatch) -> None:
        self.tables.append(sink_batch.table)
        self.begins.append(sink_batch.begin)
        at = sink_batch.complete_until - 1
        sent = ResultChunks(self.tables, self.begins, at, 0, BEFORE_ALL, reset=False)
        valid = sent.frame(self.columns).filter((pl.col(FROM) <= at) & (pl.col(UNTIL) > at)).drop(FROM, UNTIL)
        display_location = [row[:-1] for row in self.sink.place_of_table.rows(f"SELECT * FROM {self.sink.table}")]
        assert Counter(display_location) == Counter(valid.rows())
        self.sink.seen.append(len(display_location))


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
def test_the_table_shows_the_snapshot_after_every_batch(location: Place, text: str) -> None:
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql(STREAM)
        plan = bind_query(parse_one(text), database.catalog)  # type: ignore[arg-type]
        watching = Watching(location, "t")
        queries = [BoundQuery("q", plan, sink=location.sink("t", "snapshot")), BoundQuery("w", plan, sink=watching)]
        query, _ = database.start(queries, None)
        assert query.await_end(60)
    assert len(watching.seen) == 9 and max(watching.seen) > 0
    ((batch, until),) = location.rows("SELECT batch, complete_until::text FROM strandline_batches"
                                   if isinstance(location, Server) else
                                   "SELECT batch, complete_until FROM strandline_batches")  # fmt: skip
    assert (batch, until) == (8, "infinity" if isinstance(location, Server) else "forever")


def test_all_elements_are_appended(location: Place) -> None:
    with sl.connect(engine="local", batch_rows=2) as database:
        database.sql(STREAM)
        kept = database.sql(QUERIES["aggregate"])
        database.sql(QUERIES["aggregate"], name="q", sink=location.sink("t")).await_end(60)
        kept.await_end(60)
        frame = kept._frame(kept._kept())
        ids = [column.id for column in kept.columns]
    rows = [(*row[:2], _instant(row[2]), _instant(row[3])) for row in location.rows("SELECT * FROM t")]
    appended = coalesce(pl.DataFrame(rows, schema=frame.schema, orient="row"), ids).select(frame.columns)
    assert Counter(appended.rows()) == Counter(coalesce(frame, ids).select(frame.columns).rows())


def _instant(value: object) -> int:
    return FOREVER if value is None else instant(value if isinstance(value, datetime) else str(value))


def test_time_that_goes_on_without_rows_takes_rows_away(location: Place) -> None:
    """The rows of one key only move time on for the other: its row goes in a batch that brings nothing for it."""
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql("""CREATE STREAM s (k VARCHAR, ts TIMESTAMP) SOURCE rows(('a', '2024-01-01 00:00:00'),
            ('b', '2024-01-01 00:00:01'), ('b', '2024-01-01 00:00:09')) ORDERED BY ts""")
        sink = location.sink("t", "snapshot")
        plan = bind_query(parse_one("SELECT k FROM s [RANGE 5 SECONDS] WHERE k = 'a'"), database.catalog)  # type: ignore[arg-type]
        watching = Watching(location, "t")
        queries = [BoundQuery("q", plan, sink=sink), BoundQuery("w", plan, sink=watching)]
        database.start(queries, None)[0].await_end(60)
    # Complete up to the time of the last row, exclusively: 00, 01, 09, for ever.
    assert watching.seen == [0, 1, 0]


TYPES = """
CREATE STREAM s (b BOOLEAN, i INT, n BIGINT, d DOUBLE, m DECIMAL(20, 4), v VARCHAR, day DATE, at TIMESTAMP, ts BIGINT)
  SOURCE rows((TRUE, -1, 9007199254740993, 0.1, '1234567890123456.7891', 'x "y", \\N
z', '2024-02-29', '2024-02-29 12:34:56.789012', 0), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1),
(FALSE, 0, 0, 'Infinity', 0, '', '1900-01-01', '1900-01-01 00:00:00', 2)) ORDERED BY ts
"""


@pytest.mark.parametrize("shows", ["elements", "snapshot"])
def test_values_of_every_type_arrive_whole(location: Place, shows: str) -> None:
    with sl.connect(engine="local") as database:
        database.sql(TYPES)
        text = "SELECT b, i, n, d, m, v, day, at, NULL AS nothing FROM s WINDOW(RANGE UNBOUNDED)"
        database.sql(text, name="q", sink=location.sink("t", shows)).await_end(60)
    one, two, three = (row[:9] for row in sorted(location.rows("SELECT * FROM t"), key=lambda row: str(row[1])))
    text = 'x "y", \\N\nz'
    if isinstance(location, Server):
        assert one == (True, -1, 9007199254740993, 0.1, Decimal("1234567890123456.7891"), text, date(2024, 2, 29),
                       datetime(2024, 2, 29, 12, 34, 56, 789012), None)  # fmt: skip
        assert two == (False, 0, 0, math.inf, 0, "", date(1900, 1, 1), datetime(1900, 1, 1), None)
    else:
        assert one == (1, -1, 9007199254740993, 0.1, "1234567890123456.7891", text, "2024-02-29",
                       "2024-02-29 12:34:56.789012", None)  # fmt: skip
        assert two == (0, 0, 0, math.inf, "0.0000", "", "1900-01-01", "1900-01-01 00:00:00.000000", None)
    assert three == (None,) * 9


def test_arrays_arrive_whole(location: Place) -> None:
    with sl.connect(engine="local") as database:
        database.sql("""CREATE STREAM s (k INT, v VARCHAR, ts BIGINT) SOURCE rows((1, 'a,"}', 0), (2, NULL, 0),
            (3, '\\', 0)) ORDERED BY ts""")
        text = "SELECT ARRAY_AGG(k ORDER BY k) AS k, ARRAY_AGG(v ORDER BY k) AS v FROM s WINDOW(RANGE UNBOUNDED)"
        database.sql(text, name="q", sink=location.sink("t", "snapshot")).await_end(60)
    rows = location.rows("SELECT k, v FROM t")
    if isinstance(location, Server):
        assert rows == [([1, 2, 3], ['a,"}', None, "\\"])]
    else:
        assert rows == [("[1,2,3]", '["a,\\"}",null,"\\\\"]')]


# ---- batches that come again, outlets that are opened again ----------------------------------------------------------

COLUMNS = (Column("k", "k", VARCHAR), Column("n", "n", BIGINT), Column("x", "x", DOUBLE))
KINDS = pa.schema(
    [("k", pa.large_string()), ("n", pa.int64()), ("x", pa.float64())]
    + [(name, pa.timestamp("us", tz="UTC")) for name in ("valid_from", "valid_until")]
)


def batch(number: int, until: int, *rows: tuple[Any, ...]) -> SinkBatch:
    values = [(*row[:3], *(to_datetime(at) for at in row[3:])) for row in rows]
    columns = list(zip(*values, strict=True)) if values else [()] * 5
    return SinkBatch(
        number, pa.table([pa.array(c, f.type) for c, f in zip(columns, KINDS, strict=True)], schema=KINDS), until
    )


def opened(location: Place, shows: str, last: int = -1, owner: str = "me", *, restarted: bool = False) -> SinkWriter:
    writer = location.sink("t", shows).open("q", COLUMNS)
    resume_point = ResumePoint(owner, last < 0 and not restarted, last, last)
    writer.validate(resume_point)
    writer.prepare(resume_point)
    return writer


BATCHES = [
    batch(0, 10, ("a", 1, 0.5, 0, 10), ("a", 1, 0.5, 2, 15), (None, None, None, 3, 30), ("z", 9, math.nan, 40, 60)),
    batch(1, 20, ("a", 1, 0.5, 10, 20), ("b", 2, -0.0, 15, 20)),
    batch(2, 20),
    batch(3, 50, ("b", 2, 0.0, 20, 99)),
    batch(4, FOREVER),
]
SNAPSHOTS: list[Any] = [
    [("a", 1, 0.5), ("a", 1, 0.5), (None, None, None)],
    [("a", 1, 0.5), ("b", 2, 0.0), (None, None, None)],
    [("a", 1, 0.5), ("b", 2, 0.0), (None, None, None)],
    [("b", 2, 0.0), ("z", 9, "nan")],
    [],
]


def snapshot(location: Place) -> Counter[tuple[Any, ...]]:
    rows = location.rows("SELECT k, n, x FROM t")
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def wanted(location: Place, number: int) -> Counter[tuple[Any, ...]]:
    # SQLite knows no NaN: it makes it NULL.
    lost = isinstance(location, File)
    return Counter(tuple(None if lost and value == "nan" else value for value in row) for row in SNAPSHOTS[number])


def test_a_query_that_had_failed_goes_on_after_a_gap(location: Place) -> None:
    writer = opened(location, "elements")
    writer.write(BATCHES[0])
    writer.close()
    again = location.sink("t", "elements").open("q", COLUMNS)
    point = ResumePoint("me", True, -1, -1, replayed_until=3, first=3, replaces=True)
    for _ in range(2):  # it may be prepared again after a crash
        again.validate(point)
        again.prepare(point)
    again.write(BATCHES[3])
    again.write(BATCHES[3])
    assert len(location.rows("SELECT k FROM t")) == 5
    with pytest.raises(SinkError, match="missing or outdated"):
        again.write(replace(BATCHES[3], batch=5))


@pytest.mark.parametrize("again", [False, True], ids=["one outlet", "opened for every batch"])
def test_a_batch_that_comes_twice_has_the_effect_of_one(location: Place, again: bool) -> None:
    writer = opened(location, "snapshot")
    for number, sink_batch in enumerate(BATCHES):
        writer.write(sink_batch)
        if again:
            writer.close()
            # A crash before the checkpoint knew of the batch: it knows the one before, and the batch comes again.
            writer = opened(location, "snapshot", number - 1, restarted=True)
        writer.write(sink_batch)
        assert snapshot(location) == wanted(location, number)
        assert location.rows("SELECT batch FROM strandline_batches") == [(number,)]
    writer.close()
    for table in ("t", "t__ends", "t__waiting"):
        assert location.rows(f"SELECT * FROM {table}") == []


def test_elements_that_come_twice_are_there_once(location: Place) -> None:
    for number, sink_batch in enumerate(BATCHES):
        for last in (number - 1, number):
            writer = opened(location, "elements", last)
            writer.write(sink_batch)
            writer.close()
    assert len(location.rows("SELECT * FROM t")) == sum(each.table.num_rows for each in BATCHES)


def test_rows_that_stay_are_not_touched(postgresql: Server) -> None:
    """The system column that names the transaction which wrote a row tells."""
    writer = opened(postgresql, "snapshot")
    writer.write(BATCHES[0])
    before = postgresql.rows("SELECT row_id, xmin::text FROM t WHERE k = 'a'")
    writer.write(BATCHES[1])
    after = postgresql.rows("SELECT row_id, xmin::text FROM t WHERE k = 'a'")
    assert len(after) == 1 and after[0] in before


def test_a_process_that_was_thought_dead_changes_nothing(postgresql: Server) -> None:
    """Two outlets of one query: the older one has the batch before in its memory, and is too late."""
    older = opened(postgresql, "snapshot")
    older.write(BATCHES[0])
    newer = opened(postgresql, "snapshot", 0)
    newer.write(BATCHES[1])
    older.write(BATCHES[1])
    older.write(BATCHES[2])
    assert snapshot(postgresql) == wanted(postgresql, 2)
    newer.write(BATCHES[2])
    newer.write(BATCHES[3])
    older.write(BATCHES[3])
    assert snapshot(postgresql) == wanted(postgresql, 3)


def test_a_lost_connection_is_made_again(postgresql: Server) -> None:
    writer = opened(postgresql, "snapshot")
    writer.write(BATCHES[0])
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    postgresql.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    writer.write(BATCHES[1])
    assert snapshot(postgresql) == wanted(postgresql, 1)


def test_a_table_in_a_schema(postgresql: Server) -> None:
    postgresql.run('CREATE SCHEMA "Mine"')
    with sl.connect(engine="local") as database:
        database.sql(STREAM)
        text = "SELECT k FROM s WINDOW(RANGE UNBOUNDED)"
        database.sql(text, sink=sl.PostgreSQL(postgresql.dsn, "Mine.t", "snapshot")).await_end(60)
    assert len(postgresql.rows('SELECT * FROM "Mine".t')) == 9
    assert postgresql.rows('SELECT sink, batch FROM "Mine".strandline_batches') == [("Mine.t", 0)]


# ---- what is refused -------------------------------------------------------------------------------------------------


def refusal(location: Place, shows: str, last: int = -1, owner: str = "me") -> StrandlineError:
    with pytest.raises(SinkError) as caught:
        opened(location, shows, last, owner)
    return caught.value


def test_the_checkpoint_must_fit_the_table(location: Place) -> None:
    assert refusal(location, "elements", last=3).code == "results-missing"
    writer = opened(location, "elements")
    for sink_batch in BATCHES[:3]:
        writer.write(sink_batch)
    writer.close()
    assert refusal(location, "elements", owner="another").code == "results-exist"
    assert refusal(location, "elements", last=0).code == "results-ahead"
    assert refusal(location, "elements", last=3).code == "results-missing"
    assert refusal(location, "snapshot", last=2).code == "sink-columns"
    for last in (1, 2):
        opened(location, "elements", last).close()
    location.run("DROP TABLE t")
    assert refusal(location, "elements", last=2).code == "results-missing"


def test_a_table_of_somebody_else_is_left_alone(location: Place) -> None:
    location.run("CREATE TABLE t (k TEXT)")
    assert refusal(location, "elements").code == "sink-columns"
    location.run("INSERT INTO t VALUES ('mine')")
    assert refusal(location, "elements").code == "results-exist"
    assert location.rows("SELECT * FROM t") == [("mine",)]


def test_rows_taken_away_by_somebody_else_are_noticed(location: Place) -> None:
    writer = opened(location, "snapshot")
    writer.write(BATCHES[0])
    writer.close()
    location.run("DELETE FROM t WHERE k = 'a'")
    writer = opened(location, "snapshot", 0)
    with pytest.raises(SinkError, match="modified externally"):
        writer.write(BATCHES[1])
    writer.close()


def test_what_the_database_refuses_ends_the_query_by_name(postgresql: Server) -> None:
    postgresql.run("CREATE TABLE t (k text CHECK (k <> 'c'), valid_from timestamptz, valid_until timestamptz)")
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql(STREAM)
        query = database.sql("SELECT k FROM s", sink=postgresql.sink("t"))
        with pytest.raises(SinkError) as caught:
            query.await_end(60)
        assert caught.value.code == "sink-failed" and "t_k_check" in (caught.value.detail or "")
        assert query.state == "failed"
    assert [row[0] for row in postgresql.rows("SELECT k FROM t")] == ["a", "b", "a", None, "a"]


def test_places_that_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("this is not a database, but a text that is long enough to be one" * 20)
    for sink in (sl.SQLite(tmp_path / "no.db", "t"), sl.PostgreSQL("host=/nowhere/at/all", "t")):
        with sl.connect(engine="local") as database:
            database.sql(STREAM)
            with pytest.raises(SinkError) as caught:
                database.sql("SELECT k FROM s", sink=sink)
            assert caught.value.code == "sink-unwritable"


def test_columns_that_the_sink_adds_must_be_free(tmp_path: Path) -> None:
    with sl.connect(engine="local") as database:
        database.sql(STREAM)
        with pytest.raises(SinkError, match="rename yours with AS"):
            database.sql("SELECT v AS Row_Id FROM s", sink=sl.SQLite(tmp_path / "a.db", "t", "snapshot"))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with sl.connect(engine="local") as database:
        database.sql(STREAM)
        with pytest.raises(StrandlineError) as caught:
            database.sql("SELECT k FROM s", sink=sl.PostgreSQL("", "t"))
        assert caught.value.code == "extra-missing"
        assert caught.value.hint == "Run `pip install 'strandline[postgresql]'`."

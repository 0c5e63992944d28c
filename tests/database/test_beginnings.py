"""Queries that are added from the beginning of streams that others read already."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.connectors.sinks import Callback
from strandline.core.errors import QueryError, SinkError
from strandline.database import database as database_module
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.runtime import catch_up
from strandline.runtime.catch_up import CatchUpPace

DAY = "2024-01-01 00:00:"
COUNTS = "SELECT k, count(*) AS n FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        declare(database)
        yield database


def declare(database: Database) -> None:
    database.sql("CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    database.sql("CREATE STREAM t (k VARCHAR, w BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def give(db: Database, *rows: tuple[str, int, int], to: str = "s") -> None:
    db.append(to, [(k, v, f"{DAY}{second:02d}") for k, v, second in rows])


def values(query: Query) -> list[tuple[Any, ...]]:
    table = query.results()
    names = [name for name in table.column_names if not name.startswith("valid_")]
    return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=repr)


def first_query(db: Database) -> Query:
    """A query over s that has read some rows."""
    first = db.sql("SELECT k, v FROM s", name="first")
    give(db, ("a", 1, 0), ("b", 2, 5), ("a", 3, 7))
    wait_for(lambda: first.results().num_rows == 3)
    return first


def in_one_pipeline(*queries: Query) -> bool:
    return len({id(query._pipeline) for query in queries}) == 1


@pytest.mark.parametrize("words", ["", " STARTING EARLIEST"])
def test_a_query_reads_again_what_others_have_read(db: Database, words: str) -> None:
    first = first_query(db)
    second = db.sql(f"{COUNTS}{words}", name="second")
    assert in_one_pipeline(first, second) and second.start == "beginning"
    give(db, ("b", 4, 8))
    db.end("s")
    assert first.await_end(20) and second.await_end(20)
    with sl.connect(engine="local") as other:
        declare(other)
        alone = other.sql(COUNTS)
        give(other, ("a", 1, 0), ("b", 2, 5), ("a", 3, 7), ("b", 4, 8))
        other.end("s")
        assert alone.await_end(20)
        assert second.results().equals(alone.results())
    assert values(first) == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]


def test_a_stream_that_nothing_reads_is_read_by_its_own_name(db: Database) -> None:
    first = first_query(db)
    give(db, ("a", 5, 2), to="t")
    text = "SELECT s.k, v, w FROM s WINDOW(RANGE 9 SECONDS), t WINDOW(RANGE 9 SECONDS) WHERE s.k = t.k"
    second = db.sql(text, name="second")
    names = {stream.name for stream in second.pipeline.streams}
    assert in_one_pipeline(first, second) and names == {"s", "t", "s (from the beginning, for second)"}
    db.end("s")
    db.end("t")
    assert second.await_end(20)
    assert values(second) == [("a", 1, 5), ("a", 3, 5)]


def test_what_is_shown_has_the_name_of_the_stream(db: Database) -> None:
    db.sql("DROP STREAM s")
    db.sql("CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts IDLE AFTER 1 HOUR")
    first_query(db)
    give(db, ("c", 0, 1))  # late
    second = db.sql("SELECT k, v FROM s WHERE v > 1", name="second")
    wait_for(lambda: second.metrics()["rows_in"] == {"s": 3})
    assert second.heartbeats().keys() == {"s"} and second.heartbeats()["s"].stream == "s"
    wait_for(lambda: second.late("s").num_rows == 1)
    assert second.late("s").to_pylist()[0]["k"] == "c"
    assert "Read s (from the beginning, for second)" in second.explain()
    sources = db.sql("SELECT name FROM sys.streams").results()["name"].to_pylist()
    assert sorted(sources) == ["s", "t"]


def test_how_a_query_began_is_told(db: Database) -> None:
    first_query(db)
    second = db.sql(COUNTS, name="second")
    db.sql(f"{COUNTS} STARTING NOW", name="third")
    wait_for(lambda: second.rows_behind == 0)
    rows = db.sql("SELECT name, start, rows_behind FROM sys.queries").results().to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("first", "together", None),
        ("second", "beginning", 0),
        ("third", "now", None),
    ]
    view = db.sql("CREATE MATERIALIZED VIEW counts AS " + COUNTS)
    wait_for(lambda: view.rows_behind == 0)
    described = {row["property"]: row["value"] for row in db.sql("DESCRIBE counts").results().to_pylist()}
    assert described["begins"] == "from the beginning"


def test_it_catches_up_in_bounded_parts(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "FIRST_ROWS", 2)
    monkeypatch.setattr(catch_up, "LEAST_ROWS", 2)
    monkeypatch.setattr(CatchUpPace, "observe", lambda *_: None)
    first = db.sql("SELECT k, v FROM s", name="first")
    give(db, *(("a", number, number) for number in range(20)))
    wait_for(lambda: first.results().num_rows == 20)
    before = first.metrics()["batches"]
    second = db.sql("SELECT sum(v) AS t FROM s WINDOW(RANGE 5 SECONDS)", name="second")
    wait_for(lambda: second.rows_behind == 0)
    assert first.metrics()["batches"] >= before + 9
    wait_for(lambda: second.heartbeats()["s"].rows == 20)
    assert second.progress == first.progress


def has_caught_up(query: Query) -> bool:
    return not any(stream.reader_of for stream in query.pipeline.streams)


def test_a_query_that_has_caught_up_goes_on_with_its_states(db: Database) -> None:
    first = first_query(db)
    second = db.sql(COUNTS, name="second")
    wait_for(lambda: has_caught_up(second))
    assert {query.name: query.streams for query in second.pipeline.queries}["second"] == {"s"}
    version = first._pipeline.graph.version
    moved = {version.since[operator] for operator in version.moved}
    assert version.number == 2 and moved == {1}  # they began with the version before
    give(db, ("b", 4, 8), ("a", 5, 12))
    db.end("s")
    assert first.await_end(20) and second.await_end(20)
    # The rows from before and after are counted together.
    assert values(second) == [*[("a", 1)] * 3, *[("a", 2)] * 2, *[("b", 1)] * 2, ("b", 2)]


def test_a_query_that_has_caught_up_shares_what_has_run_since_the_beginning(db: Database) -> None:
    first = db.sql(COUNTS, name="first")
    give(db, ("a", 1, 0), ("b", 2, 5), ("a", 3, 7))
    wait_for(lambda: first.heartbeats()["s"].rows == 3)
    second = db.sql(COUNTS.replace("AS n", "AS other") + " HAVING count(*) > 1", name="second")
    third = db.sql(COUNTS, name="third")
    wait_for(lambda: has_caught_up(third))
    counting = "SELECT queries, since_version FROM sys.graph WHERE kind = 'IncrementalAggregate'"
    rows = [tuple(row.values()) for row in db.sql(counting).results().to_pylist()]
    assert rows == [("first, second, third", 0)]
    give(db, ("b", 4, 8))
    db.end("s")
    assert all(query.await_end(20) for query in (first, second, third))
    assert values(third) == values(first)
    assert values(second) == [row for row in values(first) if row[1] > 1]
    assert third.results().column_names[:2] == ["k", "n"] and second.results().column_names[:2] == ["k", "other"]


def test_a_stream_that_may_be_idle_keeps_the_reader_of_the_query(db: Database) -> None:
    db.sql("CREATE STREAM u (v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts IDLE AFTER 1 HOUR")
    first = db.sql("SELECT v FROM u", name="first")
    db.append("u", [(1, f"{DAY}01")])
    wait_for(lambda: first.results().num_rows == 1)
    second = db.sql("SELECT v FROM u WHERE v > 0", name="second")
    wait_for(lambda: second.results().num_rows == 1)
    db.append("u", [(2, f"{DAY}02")])
    wait_for(lambda: second.results().num_rows == first.results().num_rows == 2)
    assert not has_caught_up(second)


def test_a_query_ends_when_its_own_streams_have_ended(db: Database) -> None:
    first = first_query(db)
    second = db.sql("SELECT s.k, w FROM s WINDOW(RANGE 1 MINUTE), t WINDOW(RANGE 1 MINUTE) WHERE s.k = t.k")
    assert in_one_pipeline(first, second)
    db.end("s")
    assert first.await_end(20) and first.state == "ended" and second.state == "running"
    assert values(first) == [("a", 1), ("a", 3), ("b", 2)]
    again = db.sql("SELECT v FROM s", name="first")  # its name is free
    give(db, ("b", 9, 6), to="t")
    db.end("t")
    assert second.await_end(20) and again.await_end(20)
    assert values(second) == [("b", 9)] and values(again) == [(1,), (2,), (3,)]


def test_the_reader_before_may_go(db: Database) -> None:
    first = first_query(db)
    second = db.sql(COUNTS, name="second")
    first.stop()
    give(db, ("b", 4, 8))
    db.end("s")
    assert second.await_end(20)
    assert values(second)[-1] == ("b", 2)


def test_a_query_that_is_stopped_while_it_catches_up_leaves_nothing(db: Database) -> None:
    first = first_query(db)
    second = db.sql(COUNTS, name="second")
    second.stop()
    assert {stream.name for stream in first.pipeline.streams} == {"s"}
    third = db.sql(COUNTS, name="second")
    give(db, ("b", 4, 8))
    db.end("s")
    assert first.await_end(20) and third.await_end(20)
    assert values(third)[-1] == ("b", 2)


def test_rows_that_are_generated_are_the_same_again(db: Database) -> None:
    db.sql(
        "CREATE STREAM r (value BIGINT, key BIGINT, ts TIMESTAMP) "
        "SOURCE rate(rows_per_second => 200, total => 150) ORDERED BY ts"
    )
    first = db.sql("SELECT value, key FROM r", name="first")
    wait_for(lambda: first.results().num_rows > 20)
    second = db.sql("SELECT value, key FROM r", name="second")
    assert in_one_pipeline(first, second)
    assert first.await_end(20) and second.await_end(20)
    assert first.results().num_rows == 150 and first.results().equals(second.results())


@pytest.mark.parametrize("words", ["STARTING NOW", "STARTING EARLIEST"])
@pytest.mark.parametrize("shows", ["elements", "snapshot"])
def test_a_table_of_another_database_takes_a_query_that_was_added(
    db: Database, tmp_path: Path, words: str, shows: str
) -> None:
    first_query(db)
    text = (
        f"CREATE SINK into_table INTO sqlite('{tmp_path}/x.db', table => 'r', shows => '{shows}') AS SELECT k, v FROM s"
    )
    query = db.sql(f"{text} {words}")
    give(db, ("b", 4, 8))
    db.end("s")
    assert query.await_end(20)
    with sqlite3.connect(tmp_path / "x.db") as answers:
        rows = answers.execute("SELECT k, v FROM r ORDER BY v").fetchall()
    whole = [("a", 1), ("b", 2), ("a", 3), ("b", 4)]
    assert rows == {"snapshot": [], "elements": whole if words == "STARTING EARLIEST" else whole[3:]}[shows]


def test_a_table_with_rows_of_a_query_that_was_dropped_is_refused(db: Database, tmp_path: Path) -> None:
    first_query(db)
    text = f"INTO sqlite('{tmp_path}/x.db', table => 'r') AS SELECT k, v FROM s STARTING EARLIEST"
    query = db.sql(f"CREATE SINK one {text}")
    wait_for(lambda: query.metrics()["rows_out"] == 3)
    query.stop()
    with pytest.raises(SinkError, match="belongs to the query one") as refused:
        db.sql(f"CREATE SINK two {text}")
    assert refused.value.code == "results-exist"


# ---- who gets a pipeline of its own ----------------------------------------------------------------------------------


def test_a_checkpoint_that_stays_takes_those_that_say_so(tmp_path: Path) -> None:
    with sl.connect(engine="local", checkpoint=tmp_path) as db:
        declare(db)
        first = first_query(db)
        second = db.sql(COUNTS, name="second")
        third = db.sql(f"{COUNTS} STARTING EARLIEST", name="third")
        assert not in_one_pipeline(first, second) and third._pipeline in (first._pipeline, second._pipeline)
        assert second.start == "together" and third.start == "beginning"
        db.end("s")
        assert second.await_end(20) and third.await_end(20)
        assert values(second) == values(third)


def test_a_pipeline_that_waits_for_a_sink_takes_no_query(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "JOIN_SECONDS", 0.2)
    is_over = threading.Event()

    def hold_up(*_: Any) -> None:
        is_over.wait(20)

    first = db.sql("SELECT k, v FROM s", name="first", sink=Callback(hold_up))
    give(db, ("a", 1, 0))
    wait_for(lambda: first._pipeline.graph.runs_batch)
    second = db.sql("SELECT k, v FROM s", name="second")
    assert not in_one_pipeline(first, second)
    wait_for(lambda: second.results().num_rows == 1)
    is_over.set()
    db.end("s")
    assert first.await_end(20) and second.await_end(20)


def test_queries_over_arrivals_have_their_own(db: Database) -> None:
    first = first_query(db)
    db.sql("CREATE STREAM now (v BIGINT) SOURCE events()")
    one, two = db.sql("SELECT v FROM now"), db.sql("SELECT v FROM now")
    assert len({id(query._pipeline) for query in (first, one, two)}) == 3


def test_what_cannot_be_read_again_does_not_start_at_the_beginning(db: Database) -> None:
    db.sql("CREATE STREAM r (k VARCHAR, ts TIMESTAMP) SOURCE http('127.0.0.1:0') ORDERED BY ts")
    with pytest.raises(QueryError, match='stream "r" cannot be read again') as refused:
        db.sql("SELECT k FROM r STARTING EARLIEST")
    assert refused.value.code == "starting-earliest-live"

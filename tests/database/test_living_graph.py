"""Queries that are added to a pipeline that runs, and dropped from it."""

from __future__ import annotations

import functools
import json
import socket
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.connectors.sinks import Callback
from strandline.core.errors import QueryError, StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script, start_script
from strandline.planner.physical import plan as physical

DAY = "2024-01-01 00:00:"
COUNTS = "SELECT k, count(*) AS n FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        database.sql("CREATE STREAM t (k VARCHAR, w BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        yield database


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


def has_rows(query: Query, count: int) -> bool:
    return bool(query.results().num_rows == count)


def in_one_pipeline(*queries: Query) -> bool:
    return len({id(query._pipeline) for query in queries}) == 1


def test_a_query_that_starts_now_joins_the_pipeline_that_reads_its_stream(db: Database) -> None:
    first = db.sql("SELECT k, v FROM s", name="first")
    give(db, ("a", 1, 0), ("b", 2, 5))
    wait_for(lambda: first.results().num_rows == 2)
    second = db.sql("SELECT k, v FROM s STARTING NOW", name="second")
    give(db, ("a", 3, 5), ("c", 4, 6))
    db.end("s")
    assert first.await_end(20) and second.await_end(20)
    assert in_one_pipeline(first, second)
    assert values(first) == [("a", 1), ("a", 3), ("b", 2), ("c", 4)]
    assert values(second) == [("c", 4)]  # that of instant 5 is not after everything that was read


JOIN = "SELECT s.k, v, w FROM s WINDOW(RANGE {0} SECONDS) JOIN t WINDOW(RANGE {0} SECONDS) ON s.k = t.k"


def test_queries_that_come_are_uses_of_the_join_that_runs(db: Database) -> None:
    """The join of one query is shared from then on; its rows stay for the largest window, as long as that has a use."""
    first = db.sql(JOIN.format(2), name="first")
    give(db, ("a", 1, 0))
    give(db, ("a", 10, 0), to="t")
    wait_for(lambda: has_read(first, 0))
    large = db.sql(f"{JOIN.format(9)} WHERE w > 5 STARTING NOW", name="large")
    some = db.sql(f"{JOIN.format(4)} WHERE v > 2 STARTING NOW", name="some")
    give(db, ("a", 2, 1))
    give(db, ("a", 11, 1), to="t")
    wait_for(lambda: has_read(first, 1))
    (join,) = [line for line in first.explain().splitlines() if "shared by" in line]
    assert "SharedWindowJoin" in join and "3 windows" in join and "shared by first, large, some" in join
    shown = db.sql("SHOW GRAPH").results().to_pylist()
    assert [row["queries"] for row in shown if "Join" in row["operator"]] == ["first, large, some"]
    give(db, ("b", 0, 2))
    give(db, ("c", 0, 2), to="t")
    wait_for(lambda: has_read(first, 2))
    large.stop()
    give(db, ("a", 3, 4))
    give(db, ("a", 4, 4), to="t")
    db.end("s")
    db.end("t")
    assert first.await_end(20) and some.await_end(20)
    (join,) = [line for line in first.explain().splitlines() if "shared by" in line]
    assert "2 windows" in join and "shared by first, some" in join
    assert values(first) == [("a", 1, 10), ("a", 1, 11), ("a", 2, 10), ("a", 2, 11), ("a", 3, 4)]
    assert values(some) == [("a", 3, 11), ("a", 3, 4)]
    assert values(large) == [("a", 2, 11)]


def has_read(query: Query, second: int) -> bool:
    """Whether it has read both streams up to a second of the day."""
    ends = [status.high for status in query._pipeline.metrics.statuses.values()]
    return len(ends) == 2 and min(ends) == 1_704_067_200_000_000 + second * 1_000_000


def state_of_joins(query: Query) -> tuple[int, int]:
    """How many joins the graph has, and how many rows are in the state."""
    kinds = physical.HashJoin, physical.SharedWindowJoin
    fragments = query.pipeline.fragments
    joins = {node for fragment in fragments for node in physical.numbered(fragment.root) if isinstance(node, kinds)}
    return len(joins), sum(sum(counted.rows) for counted in query._pipeline.metrics.operators.values())


def test_queries_that_come_one_by_one_keep_no_more_than_the_largest(db: Database) -> None:
    def run(*windows: int) -> tuple[int, int]:
        with sl.connect(engine="local") as database:
            for name, value in (("s", "v"), ("t", "w")):
                database.sql(
                    f"CREATE STREAM {name} (k VARCHAR, {value} BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
                )
            query = database.sql(JOIN.format(windows[0]), name="first")
            for number, window in enumerate(windows[1:]):
                database.sql(f"{JOIN.format(window)} STARTING NOW", name=f"q{number}")
            for name in ("s", "t"):  # what comes at once leaves by row, else by segment
                give(database, *((key, second, second) for second in range(50) for key in "abcd"), to=name)
            wait_for(lambda: has_read(query, 49))
            return state_of_joins(query)

    alone, together = run(30), run(*range(1, 31))
    assert together[0] == 1
    assert together[1] <= 1.1 * alone[1] > 200


def test_equal_queries_of_one_instant_are_one_operator(db: Database) -> None:
    first = db.sql("SELECT k FROM s", name="first")
    give(db, ("a", 1, 0))
    wait_for(lambda: first.results().num_rows)
    db.sql(f"{COUNTS} STARTING NOW", name="one")
    before = len(first.pipeline.fragments)
    two = db.sql(f"{COUNTS.replace('AS n', 'AS other')} STARTING NOW", name="two")
    assert len(first.pipeline.fragments) == before + 1  # the result; nothing is computed again
    assert two.columns[1].name == "other"


def test_the_graph_lists_each_operator_once_with_the_queries_that_share_it(db: Database) -> None:
    first = db.sql("SELECT k FROM s", name="first")
    give(db, ("a", 1, 0))
    wait_for(lambda: first.results().num_rows)
    db.sql(f"{COUNTS} STARTING NOW", name="one")
    two = db.sql(f"{COUNTS.replace('AS n', 'AS other')} STARTING NOW", name="two")
    give(db, ("b", 2, 4))
    wait_for(lambda: two.progress > 0)
    counting = "SELECT queries, since_version, state FROM sys.graph WHERE kind = 'IncrementalAggregate'"
    assert [tuple(row.values()) for row in db.sql(counting).results().to_pylist()] == [("one, two", 1, "keyed + queue")]
    ids = [row["id"] for row in db.sql("SELECT id FROM sys.graph").results().to_pylist()]
    assert len(ids) == len(set(ids)) > 3
    shown = db.sql("SHOW GRAPH").results().to_pylist()
    assert [row["queries"] for row in shown if row["operator"].startswith("IncrementalAggregate")] == ["one, two"]
    first.stop()
    graph = "SELECT version, queries, current FROM sys.graph_versions ORDER BY version"
    assert [tuple(row.values()) for row in db.sql(graph).results().to_pylist()] == [
        (0, "first", False),
        (1, "first, one", False),
        (2, "first, one, two", False),
        (3, "one, two", True),
    ]
    begins = {
        row["name"]: row["begins"] for row in db.sql("SELECT name, begins FROM sys.queries").results().to_pylist()
    }
    assert begins["first"] is None and begins["one"] == begins["two"]
    assert begins["one"].isoformat() == "2024-01-01T00:00:00.000001"


def test_a_query_over_another_stream_brings_it_in(db: Database) -> None:
    first = db.sql("SELECT k, v FROM s", name="first")
    give(db, ("a", 1, 0))
    give(db, ("a", 5, 2), to="t")
    wait_for(lambda: first.results().num_rows)
    joined = "SELECT s.k, v, w FROM s WINDOW(RANGE 9 SECONDS), t WINDOW(RANGE 9 SECONDS) WHERE s.k = t.k STARTING NOW"
    second = db.sql(joined, name="second")
    give(db, ("a", 7, 3))
    db.end("s")
    db.end("t")
    assert second.await_end(20)
    assert in_one_pipeline(first, second) and values(second) == [("a", 7, 5)]


def test_a_dropped_query_keeps_its_result_and_the_others_go_on(db: Database) -> None:
    script = read_script(db, "CREATE STREAM one AS SELECT k, v FROM s; CREATE STREAM two AS SELECT v, k FROM s")
    one, two = start_script(db, script, None, None)
    give(db, ("a", 1, 0))
    wait_for(lambda: one.results().num_rows == two.results().num_rows == 1)
    one.stop()
    assert (one.state, two.state) == ("stopped", "running")
    give(db, ("b", 2, 1))
    db.end("s")
    assert two.await_end(20)
    assert values(one) == [("a", 1)] and values(two) == [(1, "a"), (2, "b")]
    assert one.metrics()["rows_out"] == 1
    one.stop()  # once more changes nothing


def test_stopping_the_last_query_ends_the_pipeline(db: Database) -> None:
    script = read_script(db, "CREATE STREAM one AS SELECT k FROM s; CREATE STREAM two AS SELECT v FROM s")
    one, two = start_script(db, script, None, None)
    one.stop()
    two.stop()
    assert (one.state, two.state) == ("stopped", "stopped")
    assert two._pipeline.is_over


def test_a_name_is_used_again(db: Database) -> None:
    other = db.sql("SELECT v FROM s", name="other")
    give(db, ("a", 1, 0))
    wait_for(lambda: other.results().num_rows)
    first = db.sql("SELECT k, v FROM s STARTING NOW", name="again")
    give(db, ("b", 2, 1))
    wait_for(lambda: first.results().num_rows)
    first.stop()
    second = db.sql("SELECT v FROM s STARTING NOW", name="again")
    give(db, ("c", 3, 2))
    db.end("s")
    assert second.await_end(20)
    assert values(first) == [("b", 2)] and values(second) == [(3,)]
    assert first.state == "stopped"


def test_a_query_may_be_stopped_by_its_own_sink(db: Database) -> None:
    seen: list[int] = []
    other = db.sql("SELECT v FROM s", name="other")

    def take(batch: int, table: pa.Table) -> None:
        seen.append(table.num_rows)
        if sum(seen):
            query.stop()

    give(db, ("a", 1, 0))
    wait_for(lambda: other.results().num_rows)
    query = db.sql("SELECT k FROM s STARTING NOW", name="query", sink=Callback(take))
    give(db, ("b", 2, 1))
    wait_for(lambda: query.state == "stopped")
    give(db, ("c", 3, 2))
    db.end("s")
    assert other.await_end(20)
    assert sum(seen) == 1 and values(other) == [(1,), (2,), (3,)]


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["SELECT k, picky(v) AS v FROM s", "SELECT k, picky(max(v)) AS v FROM s GROUP BY k"])
def test_a_failing_function_ends_its_query_only(db: Database, text: str) -> None:
    def picky(values: pa.Array) -> pa.Array:
        if pc.any(pc.greater(values, 5)).as_py():
            raise ValueError("too much")
        return values

    db.function("picky", picky, arguments=["BIGINT"], returns="BIGINT")
    text = text.replace("FROM s", "FROM s WINDOW(RANGE 5 SECONDS)")
    script = read_script(db, f"CREATE STREAM bad AS {text}; CREATE STREAM good AS {COUNTS}")
    bad, good = start_script(db, script, None, None)
    give(db, ("a", 1, 0))
    wait_for(lambda: bad.progress > 0)
    give(db, ("a", 9, 1))
    give(db, ("b", 1, 20))
    wait_for(lambda: bad.state == "failed")
    assert good.state == "running"
    db.end("s")
    assert good.await_end(20)
    assert values(good) == [("a", 1), ("a", 1), ("a", 2), ("b", 1)]
    with pytest.raises(StrandlineError, match="too much"):
        bad.results()


def test_an_error_of_a_shared_operator_fails_its_readers(db: Database) -> None:
    def picky(values: pa.Array) -> pa.Array:
        raise ValueError("never")

    db.function("picky", picky, arguments=["BIGINT"], returns="BIGINT")
    shared = "SELECT picky(v) AS p, count(*) AS {} FROM s WINDOW(RANGE 5 SECONDS) GROUP BY picky(v)"
    script = read_script(
        db,
        f"CREATE STREAM x AS {shared.format('n')}; CREATE STREAM y AS {shared.format('m')}; "
        "CREATE STREAM good AS SELECT v FROM s",
    )
    x, y, good = start_script(db, script, None, None)
    give(db, ("a", 1, 0))
    db.end("s")
    assert good.await_end(20)
    assert (x.state, y.state, good.state) == ("failed", "failed", "ended")
    assert values(good) == [(1,)]


def test_a_failing_sink_ends_its_query_only(db: Database) -> None:
    def refuse(batch: int, table: pa.Table) -> None:
        if table.num_rows:
            raise RuntimeError("no more")

    good = db.sql("SELECT v FROM s", name="good")
    give(db, ("a", 1, 0))
    wait_for(lambda: good.results().num_rows)
    bad = db.sql("SELECT k FROM s STARTING NOW", name="bad", sink=Callback(refuse))
    give(db, ("b", 2, 1))
    wait_for(lambda: bad.state == "failed")
    give(db, ("c", 3, 2))
    db.end("s")
    assert good.await_end(20) and values(good) == [(1,), (2,), (3,)]
    with pytest.raises(StrandlineError, match="no more"):
        bad.check()


# ---- streams that cannot be read again -------------------------------------------------------------------------------


def test_a_second_query_over_a_received_stream_begins_now() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def post(*rows: dict[str, object]) -> None:
        body = "\n".join(map(json.dumps, rows)).encode()
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", body), timeout=10).read()

    with sl.connect(engine="local") as db:
        db.sql(f"CREATE STREAM r (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE http('127.0.0.1:{port}') ORDERED BY ts")
        one = db.sql("SELECT k, v FROM r", name="one")
        post({"k": "a", "v": 1, "ts": f"{DAY}01"})
        wait_for(lambda: one.results().num_rows)
        two = db.sql("SELECT sum(v) AS t FROM r WINDOW(RANGE 10 SECONDS)", name="two")
        post({"k": "b", "v": 2, "ts": f"{DAY}02"}, {"k": "b", "v": 3, "ts": f"{DAY}20"})
        wait_for(lambda: two.progress > two._running.metrics.plan_of("two").since + 10_000_000)
        assert in_one_pipeline(one, two)
        assert (2,) in values(two) and (1,) not in values(two)
        two.stop()
        post({"k": "c", "v": 4, "ts": f"{DAY}30"})
        wait_for(lambda: one.results().num_rows == 4)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_query_over_tables_alone_does_not_start_now(db: Database) -> None:
    db.sql("CREATE TABLE names (k VARCHAR, name VARCHAR, PRIMARY KEY (k))")
    with pytest.raises(QueryError, match="tables alone") as refused:
        db.sql("SELECT k, name FROM names STARTING NOW")
    assert refused.value.code == "starting-now-table"


def test_an_addition_that_fails_leaves_everything_as_it_was(db: Database) -> None:
    first = db.sql("SELECT v FROM s", name="first")
    give(db, ("a", 1, 0))
    wait_for(lambda: first.results().num_rows)
    before = first._pipeline.graph.version
    with pytest.raises(StrandlineError):
        db.sql("CREATE SINK broken INTO parquet('/proc/nowhere') AS SELECT k FROM s STARTING NOW")
    assert [query.name for query in first._pipeline.graph.version.queries] == ["first"]
    assert first.state == "running" and before.number <= first._pipeline.graph.version.number
    give(db, ("b", 2, 1))
    db.end("s")
    assert first.await_end(20) and values(first) == [(1,), (2,)]


def test_queries_come_and_go_from_several_threads(db: Database) -> None:
    first = db.sql("SELECT v FROM s", name="first")
    give(db, ("a", 0, 0))
    wait_for(lambda: first.results().num_rows)

    def work(number: int) -> None:
        for turn in range(3):
            db.sql("SELECT k, v FROM s STARTING NOW", name=f"w{number}_{turn}").stop()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for second in range(1, 20):
        give(db, ("a", second, second))
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    db.end("s")
    assert first.await_end(20)
    assert {value for (value,) in values(first)} == set(range(20)) and first.results().num_rows == 20
    assert len(first.pipeline.queries) == 1


def test_a_table_of_a_database_takes_a_query_that_is_added(db: Database, tmp_path: Path) -> None:
    first = db.sql("SELECT v FROM s", name="first")
    for second in range(3):  # several batches
        give(db, ("a", second, second))
        wait_for(functools.partial(has_rows, first, second + 1))
    sink = db.sql(f"CREATE SINK added INTO sqlite('{tmp_path}/x.db', 't') AS SELECT v FROM s STARTING NOW")
    give(db, ("b", 7, 5))
    db.end("s")
    assert sink.await_end(20) and first.await_end(20)
    with sqlite3.connect(tmp_path / "x.db") as rows:
        assert rows.execute("SELECT v FROM t").fetchall() == [(7,)]

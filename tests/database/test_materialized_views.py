"""Materialized views: read at once, now and in the retained past, through restarts, until they are dropped."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.core.temporal import SECOND, instant
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script, start_script

STREAM = "CREATE STREAM s (k INT, v INT, ts BIGINT) SOURCE events() ORDERED BY ts"
VIEWS = {
    "windowed": "SELECT k, v FROM s WINDOW(RANGE 40 MICROSECONDS)",
    "grouped": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s WINDOW(RANGE 40 MICROSECONDS) GROUP BY k",
    "growing": "SELECT k, MAX(v) AS most FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k",
    "last": "SELECT k, v FROM s WINDOW(PARTITION BY k ROWS 1)",
    "distinct_keys": "SELECT DISTINCT k FROM s WINDOW(RANGE 25 MICROSECONDS)",
}


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(STREAM)
        yield database


def until(query: Query, progress: int) -> None:
    deadline = time.monotonic() + 60
    while query.progress < progress and time.monotonic() < deadline:
        query.check()
        time.sleep(0.005)
    assert query.progress >= progress


def rows(database: Database, text: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in database.sql(text).results().to_pylist())


def snapshot(query: Query, at: int | None = None) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in query.snapshot(at).to_pylist())


def slow_snapshot(query: Query, at: int) -> list[tuple[object, ...]]:
    """By the definition: of all elements those whose interval has the instant."""
    table = query.results().to_pylist()
    valid = [row for row in table if instant(row.pop("valid_from")) <= at < _end(row.pop("valid_until"))]
    return sorted(tuple(row.values()) for row in valid)


def _end(moment: object) -> int:
    return 2**62 if moment is None else instant(moment)  # type: ignore[arg-type]


def at(t: int) -> str:
    return f"AT TIMESTAMP '1970-01-01 00:00:00.{t:06d}'"


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_at_random_instants_is_the_snapshot_of_its_query(database: Database, name: str) -> None:
    draw = random.Random(name)
    query = database.sql(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    assert isinstance(query, Query)
    t = 0
    for _ in range(12):
        batch = [(draw.randint(0, 5), draw.randint(0, 9), (t := t + draw.choice((0, 0, 1, 3)))) for _ in range(60)]
        database.append("s", batch)
        until(query, t)
        now = draw.randint(0, query.progress - 1)  # in between, so that the index grows from several sides
        assert snapshot(query, now) == slow_snapshot(query, now)
    for _ in range(200):
        moment = draw.randint(0, query.progress - 1)
        assert rows(database, f"SELECT * FROM v {at(moment)}") == slow_snapshot(query, moment), moment
    assert rows(database, "SELECT * FROM v") == snapshot(query)


def test_a_view_is_named_described_and_dropped(database: Database) -> None:
    database.sql("CREATE MATERIALIZED VIEW v (key, n) AS SELECT k, SUM(v) FROM s WINDOW(RANGE 9 SECONDS) GROUP BY k")
    database.append("s", [(1, 2, 0), (1, 3, 1), (2, 4, 5)])
    (query,) = database.queries
    until(query, 5)
    assert rows(database, "SELECT n, key FROM v WHERE key = 1") == [(5, 1)]
    assert rows(database, "SELECT COUNT(*) AS n FROM v") == [(1,)]
    facts = {row["property"]: row["value"] for row in database.sql("DESCRIBE v").results().to_pylist()}
    assert (facts["kind"], facts["state"]) == ("materialized view", "running")
    assert facts["complete up to"] == "1970-01-01 00:00:00.000005"
    assert database.sql("SHOW VIEWS").results().to_pylist()[0]["kind"] == "materialized view"
    assert database.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT k FROM s") is None
    with pytest.raises(StrandlineError) as caught:
        database.sql("DROP STREAM s")
    assert caught.value.message == 'cannot drop stream "s": it is read by materialized view "v"'
    database.sql("DROP MATERIALIZED VIEW v")
    assert not query.is_running and database.queries == [] and "v" not in database.catalog
    database.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM s; DROP STREAM s CASCADE")
    assert database.queries == []


def test_a_view_that_cannot_start_is_not_declared(database: Database) -> None:
    database.sql("SELECT k FROM s", name="v")
    with pytest.raises(StrandlineError) as caught:
        database.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM s")
    assert caught.value.code == "query-exists"
    assert "v" not in database.catalog


def test_a_continuous_query_reads_the_query_of_a_view(database: Database) -> None:
    database.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 5 MICROSECONDS) GROUP BY k")
    query = database.sql("SELECT v.n FROM v JOIN s WINDOW(RANGE 5 MICROSECONDS) AS s ON v.k = s.k")
    database.append("s", [(1, 1, 0), (2, 1, 3)])
    database.end("s")
    assert query.await_end(30)
    assert snapshot(query, 4) == [(1,), (1,)]


def test_a_view_without_a_result_is_not_complete(database: Database) -> None:
    database.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM s WINDOW(RANGE 5 SECONDS)")
    with pytest.raises(StrandlineError) as caught:
        database.sql("SELECT * FROM v")
    assert caught.value.code == "not-complete"


def test_the_past_is_kept_as_long_as_declared(database: Database) -> None:
    query = database.sql("CREATE MATERIALIZED VIEW v AS SELECT k, v FROM s KEEP 10 SECONDS")
    for second in range(60):
        database.append("s", [(second, i, second * SECOND + i) for i in range(700)])
        until(query, second * SECOND + 699)
    now = query.progress
    assert rows(database, f"SELECT k FROM v {at_second(50)}") == [(50,)]
    assert instant("1970-01-01 00:00:20") < query.kept_since <= now - 10 * SECOND
    with pytest.raises(StrandlineError) as caught:
        database.sql(f"SELECT k FROM v {at_second(5)}")
    assert caught.value.code == "no-longer-kept"


def at_second(second: int) -> str:
    return f"AT TIMESTAMP '1970-01-01 00:00:{second:02d}'"


@pytest.mark.spark
def test_views_go_on_after_a_restart(spark_database: Database, tmp_path: Path) -> None:
    draw, t, moment = random.Random(7), 40, 0
    expected: dict[str, list[tuple[object, ...]]] = {}
    for run in range(3):
        with sl.connect(spark=spark_database.spark, checkpoint=tmp_path, shards=1) as database:
            database.sql(STREAM)
            for name, text in VIEWS.items():
                database.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
            if run:
                assert {name: rows(database, f"SELECT * FROM {name} {at(moment)}") for name in VIEWS} == expected
            for _ in range(2):
                t += 4
                database.append("s", [(draw.randint(0, 3), draw.randint(0, 9), t - i) for i in (3, 2, 2, 1, 0)])
                for query in database.queries:
                    until(query, t)
            moment = draw.randint(t - 6, t - 1)
            expected = {name: rows(database, f"SELECT * FROM {name} {at(moment)}") for name in VIEWS}
            assert all(expected.values())


def test_a_view_of_a_script_is_one_of_its_queries(tmp_path: Path) -> None:
    script = """
      CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 0), (2, 3)) ORDERED BY ts;
      CREATE MATERIALIZED VIEW v AS SELECT k FROM s WINDOW(RANGE 5 MICROSECONDS) KEEP 1 DAY;
      SELECT COUNT(*) AS n FROM v;
    """
    with sl.connect(engine="local") as database:
        queries = start_script(database, read_script(database, script), tmp_path / "out", None)
        assert [query.name for query in queries] == ["v", "q1"]
        assert all(query.await_end(30) for query in queries)
        assert snapshot(queries[0], 4) == [(1,), (2,)]
        assert snapshot(queries[1], 4) == [(2,)]

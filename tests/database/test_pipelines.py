"""SET PIPELINE: queries in graphs of their own, and what SHOW, DESCRIBE and the system tables say of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.core.errors import CheckpointError, ParseError, QueryError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import place_script, read_script, start_script

DAY = "2024-01-01 00:00:"
STREAMS = """CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM t (k VARCHAR, w BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
"""


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        yield database


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def give(db: Database, *rows: tuple[str, int, int], to: str = "s") -> None:
    db.append(to, [(k, v, f"{DAY}{second:02d}") for k, v, second in rows])


def values(query: Query) -> list[Any]:
    return sorted(row["v"] for row in query.results().to_pylist())


def groups(queries: list[Query]) -> set[frozenset[str]]:
    """The names of queries by what they run in."""
    by_pipeline: dict[int, set[str]] = {}
    for query in queries:
        by_pipeline.setdefault(id(query.runs_in), set()).add(query.name)
    return {frozenset(names) for names in by_pipeline.values()}


def test_queries_of_a_script_run_in_the_pipelines_that_it_sets(db: Database) -> None:
    script = """
        CREATE STREAM a AS SELECT v FROM s; SET PIPELINE "slow one";
        CREATE STREAM b AS SELECT v FROM s; CREATE STREAM c AS SELECT w FROM t;
        SET PIPELINE DEFAULT; CREATE STREAM d AS SELECT k FROM s;
        CREATE STREAM e AS SELECT k FROM t"""
    queries = start_script(db, read_script(db, script), None, None)
    assert groups(queries) == {frozenset("ad"), frozenset("bc"), frozenset("e")}
    shown = {row["name"]: row["pipeline"] for row in db.sql("SHOW QUERIES").results().to_pylist()}
    assert shown == {"a": "a", "b": "slow one", "c": "slow one", "d": "a", "e": "e"}
    told = db.sql("SELECT name, pipeline FROM sys.queries").results().to_pylist()
    assert {row["name"]: row["pipeline"] for row in told} == shown
    graph = db.sql("SELECT DISTINCT pipeline FROM sys.graph").results()["pipeline"].to_pylist()
    assert sorted(graph) == ["a", "e", "slow one"]
    give(db, ("a", 1, 0))
    give(db, ("a", 2, 0), to="t")
    db.end("s")
    db.end("t")
    by_name = {query.name: query for query in queries}
    assert all(query.await_end(20) for query in queries)
    assert values(by_name["a"]) == values(by_name["b"]) == [1]  # the stream was read twice


def test_a_query_begins_now_in_the_pipeline_of_its_name_only(db: Database) -> None:
    first = db.sql("SELECT v FROM s", name="first")
    give(db, ("a", 1, 0))
    wait_for(lambda: first.results().num_rows)
    db.sql("SET PIPELINE apart")
    second = db.sql("SELECT v FROM s STARTING NOW", name="second")
    wait_for(lambda: second.results().num_rows)  # nothing runs there yet: it reads the stream from its beginning
    third = db.sql("SELECT v FROM s STARTING NOW", name="third")
    db.sql("SET PIPELINE DEFAULT")
    fourth = db.sql("SELECT v FROM s STARTING NOW", name="fourth")
    assert groups([first, second, third, fourth]) == {frozenset(("first", "fourth")), frozenset(("second", "third"))}
    give(db, ("b", 2, 1))
    db.end("s")
    assert all(query.await_end(20) for query in db.queries)
    assert [values(query) for query in (first, second, third, fourth)] == [[1, 2], [1, 2], [2], [2]]


def test_a_failing_pipeline_leaves_the_others_running(db: Database) -> None:
    def refuse(values: Any) -> Any:
        raise ValueError("never")

    db.function("refuse", refuse, arguments=["BIGINT"], returns="BIGINT")
    db.sql("SET PIPELINE apart")
    bad = db.sql("SELECT refuse(v) AS v FROM s", name="bad")
    db.sql("SET PIPELINE DEFAULT")
    good = db.sql("SELECT v FROM s", name="good")
    give(db, ("a", 1, 0))
    wait_for(lambda: bad.state == "failed")
    db.end("s")
    assert good.await_end(20) and values(good) == [1]


def test_names_of_pipelines_are_no_paths(tmp_path: Path) -> None:
    stream = "CREATE STREAM r (v INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01 00:00:00')) ORDERED BY ts;"
    for name in ("../../away", "/etc/passwd", "..", "a/b", "x" * 300):
        with sl.connect(engine="local", checkpoint=tmp_path / "c") as db:
            db.sql(stream)
            db.sql(f'SET PIPELINE "{name}"')
            query = db.sql("SELECT v FROM r", name=f"q{len(name)}")
            assert query.checkpoint.parent.parent == tmp_path / "c" / "pipelines"
            assert query.await_end(20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]
    with sl.connect(engine="local", checkpoint=tmp_path / "c") as db:
        assert db.sql(f"{stream} SELECT v FROM r", name="pipelines").checkpoint.name == "%70ipelines"


def test_recovered_queries_are_in_their_pipelines(tmp_path: Path) -> None:
    stream = "CREATE STREAM r (v INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01 00:00:00')) ORDERED BY ts;"
    for _ in range(2):
        with sl.connect(engine="local", checkpoint=tmp_path) as db:
            db.sql(stream)
            running = db.recover()
            if not running:
                db.sql("SELECT v FROM r", name="one")
                db.sql("SET PIPELINE apart")
                db.sql("SELECT v FROM r", name="two")
            assert all(query.await_end(20) for query in db.queries)
            labels = {query.name: query.runs_in.label for query in db.queries}
            assert labels == {"one": "one", "two": "apart"}
    assert len(running) == 2


def test_a_script_finds_its_pipelines_again_and_moves_no_query(tmp_path: Path) -> None:
    stream = "CREATE STREAM r (v INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01 00:00:00')) ORDERED BY ts;\n"
    one, two = "CREATE STREAM one AS SELECT v FROM r;\n", "CREATE STREAM two AS SELECT v FROM r;\n"
    text = f"{stream}{one}SET PIPELINE apart;\n{two}"

    def run(text: str, *, update: bool = False) -> list[Query]:
        with sl.connect(engine="local") as db:
            queries = start_script(db, read_script(db, text), tmp_path, None, update=update)
            assert all(query.await_end(20) for query in queries)
            return queries

    assert len(groups(run(text))) == 2
    assert (tmp_path / ".strandline/checkpoint/pipelines/apart/two/queries.json").exists()
    assert len(run(text)) == 2
    assert b"complete_until" in sl.read(tmp_path, "two").schema.metadata
    moved = f"{stream}{one}{two}"
    with sl.connect(engine="local") as db:
        (change,) = place_script(db, read_script(db, moved), tmp_path, None).changes
    assert (change.name, change.change, change.remark) == ("two", "changed", "its pipeline")
    with pytest.raises(CheckpointError, match="two cannot be updated: a query is not moved to another pipeline"):
        run(moved, update=True)


@pytest.mark.parametrize("text", ["SET PIPELINE", "SET PIPELINE 3", "SET PIPELINE a b"])
def test_what_is_no_name_of_a_pipeline_is_refused(db: Database, text: str) -> None:
    with pytest.raises(ParseError):
        db.sql(text)
    db.sql('SET PIPELINE "DEFAULT"')
    assert db.pipeline == "DEFAULT"
    db.sql("SET PIPELINE default")
    assert db.pipeline == ""


def described(db: Database, name: str) -> dict[str, str]:
    rows = db.sql(f"DESCRIBE {name}").results().to_pylist()
    return {row["property"]: row["value"] for row in rows if row["property"] != "column"}


def test_describe_says_where_a_query_runs_and_how_it_began(db: Database) -> None:
    start_script(
        db, read_script(db, "CREATE STREAM a AS SELECT v FROM s; CREATE STREAM b AS SELECT k FROM s"), None, None
    )
    give(db, ("a", 1, 1))
    wait_for(lambda: db.queries[0].results().num_rows)
    db.sql("SELECT v, k FROM s STARTING NOW", name="c")
    a, c = described(db, "a"), described(db, "c")
    assert a["kind"] == "stream from a query" and a["query"] == "SELECT v FROM s"
    assert (a["pipeline"], a["number"], a["since version"], a["begins"]) == ("a", "0", "0", "together with b")
    assert c["kind"] == "query" and c["reads"] == "s" and c["state"] == "running"
    assert c["query"] == "SELECT v, k FROM s STARTING NOW"
    assert (c["pipeline"], c["number"], c["since version"]) == ("a", "2", "1")
    assert c["begins"] == "now, with rows from 2024-01-01 00:00:01.000001 on"
    db.queries[1].stop()
    assert described(db, "b")["state"] == "stopped" and described(db, "b")["number"] == "1"
    db.sql("CREATE SINK d INTO console() AS SELECT w FROM t")
    d = described(db, "d")
    assert (d["kind"], d["sink"], d["begins"]) == ("sink", "console", "with its pipeline")


def test_a_stream_from_a_query_starts_now(db: Database) -> None:
    first = db.sql("SELECT v FROM s", name="first")
    give(db, ("a", 1, 0))
    wait_for(lambda: first.results().num_rows)
    db.sql("CREATE STREAM later AS SELECT v FROM s STARTING NOW")
    later = db.query("later")
    give(db, ("b", 2, 1))
    db.end("s")
    assert later.await_end(20) and groups([first, later]) == {frozenset(("first", "later"))}
    assert values(later) == [2] and described(db, "later")["begins"].startswith("now, with rows from 2024-01-01")


def test_a_stream_over_tables_alone_does_not_start_now(db: Database) -> None:
    db.sql("CREATE TABLE names (k VARCHAR PRIMARY KEY, name VARCHAR)")
    with pytest.raises(QueryError, match="tables alone") as refused:
        db.sql("CREATE STREAM named AS SELECT name FROM names STARTING NOW")
    assert refused.value.code == "starting-now-table" and "named" not in db.catalog

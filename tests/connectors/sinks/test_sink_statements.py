"""CREATE SINK, DROP SINK and SHOW SINKS, in a database and in a script."""

from __future__ import annotations

import importlib.metadata
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.apps.doctor import Report, render
from strandline.connectors import registry as connectors
from strandline.connectors import traits as plugins
from strandline.connectors.sinks import Memory, SinkBatch, SinkWriter, known_sinks
from strandline.core.errors import StrandlineError
from strandline.core.types import Schema
from strandline.database.database import Database
from strandline.database.script import read_script, start_script

STREAMS = """
CREATE STREAM s (k VARCHAR, v INT, ts BIGINT) SOURCE rows(('a', 1, 0), ('b', 2, 3)) ORDERED BY ts;
CREATE STREAM endless (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 50) ORDERED BY ts;
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        yield database


def error_of(database: Database, text: str) -> StrandlineError:
    with pytest.raises(StrandlineError) as caught:
        database.sql(text)
    return caught.value


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def test_a_sink_runs_under_its_name_until_it_is_dropped(database: Database, tmp_path: Path) -> None:
    into = f"sqlite('{tmp_path}/a.db', table => 't')"
    query = database.sql(f"CREATE SINK out INTO {into} AS SELECT value FROM endless")
    assert query.name == "out" and query.is_running
    assert error_of(database, f"CREATE SINK out INTO {into} AS SELECT k FROM s").code == "sink-exists"
    assert error_of(database, "DROP STREAM endless").code == "stream-in-use"
    database.sql("SELECT k FROM s")
    listed = database.sql("SHOW SINKS").results().to_pylist()
    assert listed == [
        {
            "name": "out",
            "kind": "sqlite",
            "place": f"{tmp_path}/a.db, table t",
            "traits": "replayable, ordered, idempotent",
            "state": "running",
        }
    ]
    assert database.sql("DROP SINK OUT") is None
    assert not query.is_running
    assert database.sql("SHOW SINKS").results().num_rows == 0
    assert error_of(database, "DROP SINK out").code == "unknown-sink"
    database.sql("DROP SINK IF EXISTS out; DROP STREAM endless")


def test_refusals_stand_below_the_users_words(database: Database, tmp_path: Path) -> None:
    assert error_of(database, "CREATE SINK x INTO oracle('db') AS SELECT k FROM s").render().splitlines()[1:3] == [
        "  CREATE SINK x INTO oracle('db') AS SELECT k FROM s",
        "                     ^^^^^^",
    ]
    for call, problem in (
        ("sqlite('f')", "sqlite() needs table"),
        ("sqlite('f', 3)", "table of sqlite() must be a text, not 3"),
        ("sqlite('f', 't', 'u')", "sqlite() takes at most 2 positional arguments"),
        ("sqlite('f', 't', colour => 'red')", "sqlite() has no option colour"),
        (
            "sqlite('f', 't', shows => 'nothing')",
            "option shows of sqlite() must be 'elements' or 'snapshot', not 'nothing'",
        ),
        ("parquet()", "parquet() needs directory"),
        ("kafka('h', 't', transactional => 'yes')", "invalid value of option transactional of kafka(): 'yes'"),
        ("kafka('h', 't', settings => ('a'))", "option settings has texts of the form 'name= value', not 'a'"),
        ("webhook('ftp://x')", "invalid url of webhook(): it begins with neither http:// nor https://"),
        (
            "webhook('http://x', rows => 0)",
            "rows, attempts and timeout of webhook() must be at least 1, redirects at least 0",
        ),
        ("callback()", "callback() needs a Python function: db.sql(…, sink=sl.Callback(function))"),
    ):
        error = error_of(database, f"CREATE SINK x INTO {call} AS SELECT k FROM s")
        assert (error.code, error.message) == ("sink-argument", problem)
        assert error.span is not None and error.span.text[error.span.start : error.span.end] == call
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "x.parquet").touch()
    error = error_of(database, f"CREATE SINK x INTO parquet('{tmp_path}/part') AS SELECT k FROM s")
    assert error.code == "results-exist" and error.span is not None
    assert error_of(database, "CREATE SINK s INTO console() AS SELECT k FROM s").code == "sink-exists"


def test_a_refused_start_leaves_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "x.parquet").touch()
    for _ in range(2):  # the second time, too: nothing was claimed
        with sl.connect(engine="local", checkpoint=tmp_path / "checkpoint") as database:
            database.sql(STREAMS)
            assert error_of(database, f"CREATE SINK x INTO parquet('{tmp_path}/part') AS SELECT k FROM s").code == (
                "results-exist"
            )


def test_results_that_the_checkpoint_does_not_know_are_refused(tmp_path: Path) -> None:
    def start() -> None:
        with sl.connect(engine="local", checkpoint=tmp_path / "checkpoint") as database:
            database.sql(STREAMS)
            database.sql(f"CREATE SINK x INTO parquet('{tmp_path}/part') AS SELECT k FROM s").await_end(30)

    start()
    start()
    (file,) = (tmp_path / "part").glob("*.parquet")
    ahead = file.with_name(file.name.replace("000000000", "000000007"))
    ahead.write_bytes(file.read_bytes())
    with pytest.raises(StrandlineError) as caught:
        start()
    assert caught.value.code == "results-ahead"
    ahead.unlink()
    file.unlink()
    with pytest.raises(StrandlineError) as caught:
        start()
    assert caught.value.code == "results-missing"


def test_explain_shows_the_plan_of_a_sink(database: Database) -> None:
    assert database.sql("EXPLAIN CREATE SINK x INTO console() AS SELECT k FROM s") == database.sql(
        "EXPLAIN CREATE VIEW x AS SELECT k FROM s"
    )


# ---- scripts ---------------------------------------------------------------------------------------------------------


def test_a_script_of_sinks_and_streams_is_one_pipeline(database: Database, tmp_path: Path) -> None:
    into = f"sqlite('{tmp_path}/a.db', table => 't')"
    text = f"""
        CREATE STREAM d AS SELECT k, v FROM s;
        CREATE SINK gone INTO console() AS SELECT * FROM d;
        CREATE SINK x INTO {into} AS SELECT * FROM d;
        CREATE SINK y INTO parquet('{tmp_path}/elsewhere') AS SELECT v FROM s;
        SHOW SINKS;
        DROP SINK gone; DROP SINK IF EXISTS nobody
    """
    script = read_script(database, text)
    assert [query.name for query in script.queries] == ["d", "x", "y"]
    listed = [line.split() for line in script.outputs[0].splitlines()[1:]]
    assert [(words[0], words[1], words[-1]) for words in listed] == [
        ("gone", "console", "waiting"),
        ("x", "sqlite", "waiting"),
        ("y", "parquet", "waiting"),
    ]
    queries = start_script(database, script, tmp_path / "out", None)
    assert all(query.await_end(30) for query in queries)
    assert len({id(query.pipeline) for query in queries}) == 1
    assert [row[:2] for row in rows(tmp_path / "a.db", "t")] == [("a", 1), ("b", 2)]
    assert pq.read_table(tmp_path / "out" / "d").num_rows == 2
    assert pq.read_table(tmp_path / "elsewhere").num_rows == 2
    assert not (tmp_path / "out" / "x").exists()


def test_a_script_with_only_a_sink(database: Database, tmp_path: Path) -> None:
    script = read_script(database, f"CREATE SINK x INTO sqlite('{tmp_path}/a.db', 't') AS SELECT k FROM s")
    (query,) = start_script(database, script, tmp_path / "out", None)
    assert query.await_end(30)
    assert len(rows(tmp_path / "a.db", "t")) == 2
    assert not list((tmp_path / "out").glob("*/*.parquet"))


def test_rows_move_former_lie_in_the_output_directory_also_without_parquet(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE STREAM l (k INT, ts BIGINT) SOURCE rows((1, 10), (2, 3)) ORDERED BY ts")
    script = read_script(database, f"CREATE SINK x INTO sqlite('{tmp_path}/a.db', 't') AS SELECT k FROM l")
    (query,) = start_script(database, script, tmp_path / "out", None)
    assert query.await_end(30)
    assert pq.read_table(tmp_path / "out" / "_late" / "l").num_rows == 1


def test_names_in_a_script_are_taken_once(database: Database) -> None:
    for text in (
        "CREATE SINK x INTO console() AS SELECT k FROM s; CREATE SINK X INTO console() AS SELECT k FROM s",
        "CREATE STREAM x AS SELECT k FROM s; CREATE SINK x INTO console() AS SELECT k FROM s",
    ):
        with sl.connect(engine="local") as fresh, pytest.raises(StrandlineError) as caught:
            fresh.sql(STREAMS)
            read_script(fresh, text)
        assert caught.value.code == "sink-exists"
    with pytest.raises(StrandlineError, match='sink "x" does not exist'):
        read_script(database, "DROP SINK x")
    with pytest.raises(StrandlineError, match='it is read by running query "y"'):
        read_script(database, "CREATE SINK y INTO console() AS SELECT k FROM s; DROP STREAM s")


# ---- sinks of other packages -----------------------------------------------------------------------------------------


class Loud(Memory):
    """A sink of another package: what comes is also heard."""

    kind: ClassVar[str] = "loud"
    heard: ClassVar[list[int]] = []

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _Loud()


class _Loud(SinkWriter):
    def write(self, sink_batch: SinkBatch) -> None:
        Loud.heard.append(sink_batch.table.num_rows)


def test_a_package_brings_a_sink_along(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("loud", f"{__name__}:Loud", "strandline.sinks")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == point.group else [])
    plugins.load_plugins.cache_clear()
    try:
        assert known_sinks()["loud"] is Loud
        assert database.sql("CREATE SINK x INTO loud() AS SELECT k FROM s").await_end(30)
        assert Loud.heard == [2]
        assert error_of(database, "CREATE SINK y INTO loud(1) AS SELECT k FROM s").code == "sink-argument"
    finally:
        plugins.load_plugins.cache_clear()


def test_every_sink_says_what_it_promises_and_doctor_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, sink in known_sinks().items():
        assert sink.kind == name and sink.traits.note
    lines = render(Report(())).plain.splitlines()
    assert len([line for line in lines if line.startswith("  sink ")]) == len(known_sinks())
    assert "  source rows        replayable ordered idempotent  the rows are in the statement" in lines
    (hook,) = (line for line in lines if line.startswith("  sink   webhook "))
    assert hook.split()[2:5] == ["–", "ordered", "–"]
    monkeypatch.setattr(connectors, "find_spec", lambda _: None)
    assert "→ Run `pip install 'strandline[delta]'` to use it." in render(Report(())).plain

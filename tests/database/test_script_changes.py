"""What `run` makes of a script that has changed since its checkpoint was written; `--update` itself is tested on Spark
(tests/engines/spark/test_updates.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.connectors.sinks import Parquet
from strandline.core.errors import CheckpointError, StrandlineError
from strandline.database.database import Database
from strandline.database.replacement import Replacement
from strandline.database.script import place_script, read_script, start_script
from strandline.database.script_changes import Placement

READINGS = """CREATE STREAM readings (sensor VARCHAR, celsius INT, at TIMESTAMP)
  SOURCE rows(('hall', 19, '2024-01-02 09:00:00'), ('roof', 4, '2024-01-02 09:01:00')) ORDERED BY at;
"""
OTHERS = READINGS.replace("STREAM readings", "STREAM others")
WARM = "CREATE STREAM warm AS SELECT sensor FROM readings WHERE celsius > 10;\n"
COLD = "CREATE STREAM cold AS SELECT sensor FROM readings WHERE celsius < 10;\n"
BAD = "CREATE STREAM bad AS SELECT picky(celsius) AS c FROM readings;\n"


@contextmanager
def database(checkpoint: Path | None = None) -> Iterator[Database]:
    def picky(values: pa.Array) -> pa.Array:
        if pc.any(pc.greater(values, 5)).as_py():
            raise ValueError("too warm")
        return values

    with sl.connect(engine="local", checkpoint=checkpoint) as db:
        db.function("picky", picky, arguments=["INT"], returns="INT")
        yield db


def run(out: Path, text: str, *, update: bool = False) -> dict[str, str]:
    """The states of the queries of a script after a run."""
    with database() as db:
        queries = start_script(db, read_script(db, text), out, None, update=update)
        for query in queries:
            try:
                query.await_end(20)
            except StrandlineError:
                assert query.state == "failed"
        return {query.name: query.state for query in queries}


def place(out: Path, text: str) -> Placement:
    with database() as db:
        return place_script(db, read_script(db, text), out, None)


def listed(out: Path, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in place(out, text).table().results().to_pylist()]


def test_a_script_as_it_was_has_no_changes(tmp_path: Path) -> None:
    assert run(tmp_path, READINGS + WARM + COLD) == {"warm": "ended", "cold": "ended"}
    placement = place(tmp_path, f"-- a remark\n{READINGS}\n\n{COLD}{WARM}")
    assert placement.changes == [] and placement.unchanged == 2
    assert run(tmp_path, READINGS + COLD + WARM) == {"cold": "ended", "warm": "ended"}


def test_new_changed_and_gone_queries_are_listed_with_their_places(tmp_path: Path) -> None:
    run(tmp_path, READINGS + WARM + COLD)
    changed = WARM.replace("> 10", "> 15")
    text = READINGS + changed + "CREATE STREAM every AS SELECT celsius FROM readings;\n"
    assert listed(tmp_path, text) == [
        ("warm", "changed", "line 3", "from the beginning", "its statement"),
        ("every", "new", "line 4", "from the beginning", ""),
        ("cold", "gone", "", "", "what it has written stays"),
    ]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="1 new, 1 changed, 1 gone") as refused:
        run(tmp_path, text)
    assert refused.value.code == "script-changed" and "--update" in str(refused.value.hint)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("old", "new", "remark"),
    [
        ("ORDERED BY at", "ORDERED BY at WITHIN 2 SECONDS", "the time of readings"),
        ("celsius INT", "celsius BIGINT", "the columns of readings"),
        ("'hall', 19", "'hall', 20", "the source of readings"),
    ],
)
def test_a_stream_that_is_declared_differently_changes_its_queries(
    tmp_path: Path, old: str, new: str, remark: str
) -> None:
    other = "CREATE STREAM apart AS SELECT sensor FROM others;\n"
    run(tmp_path, READINGS + OTHERS + WARM + other)
    rows = listed(tmp_path, READINGS.replace(old, new) + OTHERS + WARM + other)
    assert rows == [("warm", "changed", "line 5", "from the beginning", remark)]


def test_a_sink_and_a_view_below_change_their_query(tmp_path: Path) -> None:
    view = "CREATE VIEW v AS SELECT sensor, celsius FROM readings WHERE celsius > 1;\n"
    sink = f"CREATE SINK s INTO parquet('{tmp_path}/s') AS SELECT sensor FROM v;\n"
    run(tmp_path, READINGS + view + sink)
    assert listed(tmp_path, READINGS + view.replace("> 1", "> 2") + sink)[0][-1] == "a view that it reads"
    other = sink.replace(f"parquet('{tmp_path}/s')", f"sqlite('{tmp_path}/s.db', 't')")
    assert listed(tmp_path, READINGS + view + other)[0][-1] == "its statement, the sink of s"
    assert listed(tmp_path, READINGS + view + sink.replace("/s')", "/elsewhere')")) == []  # results may be moved


def test_a_query_that_has_failed_is_listed_and_the_others_go_on(tmp_path: Path) -> None:
    text = READINGS + WARM + BAD
    assert run(tmp_path, text) == {"warm": "ended", "bad": "failed"}
    ((name, change, line, begins, remark),) = listed(tmp_path, text)
    assert (name, change, line) == ("bad", "failed", "line 4") and "too warm" in remark
    assert run(tmp_path, text) == {"warm": "ended"}
    assert begins == "from the beginning"
    assert run(tmp_path, text) == {"warm": "ended"}
    assert listed(tmp_path, text.replace("picky(celsius) AS", "picky(celsius + 1) AS"))[0][1] == "changed"
    assert place(tmp_path, READINGS + WARM).changes == []


def test_a_table_that_a_dropped_query_reads_must_be_declared(tmp_path: Path) -> None:
    names = "CREATE TABLE names (sensor VARCHAR PRIMARY KEY, room VARCHAR);\n"
    named = "CREATE STREAM named AS SELECT room FROM readings r JOIN names n ON r.sensor = n.sensor;\n"
    run(tmp_path, READINGS + names + WARM + named)
    with pytest.raises(CheckpointError, match='table "names" is not declared') as refused:
        run(tmp_path, READINGS + WARM, update=True)
    assert refused.value.code == "table-missing"


def test_a_query_over_a_table_is_added_to_the_graph(tmp_path: Path) -> None:
    names = "CREATE TABLE names (sensor VARCHAR PRIMARY KEY, room VARCHAR);\n"
    run(tmp_path, READINGS + names + WARM)
    named = "CREATE STREAM named AS SELECT room FROM readings r JOIN names n ON r.sensor = n.sensor;\n"
    (row,) = listed(tmp_path, READINGS + names + WARM + named)
    assert (row[0], row[1], row[3], row[4]) == ("named", "new", "from the beginning", "")


def test_a_query_that_no_graph_can_take_gets_a_pipeline_of_its_own(tmp_path: Path) -> None:
    run(tmp_path, READINGS + WARM)
    ended = "CREATE STREAM later AS SELECT celsius FROM readings STARTING NOW;\n"
    (row,) = listed(tmp_path, READINGS + WARM + ended)
    assert (row[0], row[1], row[3], row[4]) == ("later", "new", "from the beginning", "in a pipeline of its own")
    run(tmp_path, READINGS + WARM + ended, update=True)
    assert sl.read(tmp_path, "later").num_rows == 2 and sl.read(tmp_path, "warm").num_rows == 1
    assert place(tmp_path, READINGS + WARM + ended).changes == []


def test_where_an_added_query_begins(tmp_path: Path) -> None:
    arriving = READINGS.replace("STREAM readings", "STREAM arriving").replace(" ORDERED BY at", "")
    kept = "CREATE STREAM kept AS SELECT celsius FROM arriving;\n"
    run(tmp_path, READINGS + arriving + WARM + kept)
    bad = BAD.replace(";", " STARTING NOW;")
    added = [COLD, COLD.replace("cold", "now").replace(";", " STARTING NOW;"), kept.replace("kept", "again")]
    rows = listed(tmp_path, READINGS + arriving + WARM + kept + "".join(added))
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("cold", "from the beginning", ""),
        ("now", "from the beginning", "in a pipeline of its own"),  # nothing comes any more of what it would read
        ("again", "from the beginning", "in a pipeline of its own"),
    ]
    failing = tmp_path / "failing"
    run(failing, READINGS + WARM + bad)
    ((_, change, _, begins, remark),) = listed(failing, READINGS + WARM + bad)
    assert (change, begins) == ("failed", "")
    assert "too warm" in remark and "it cannot be added again: readings ended before it would begin" in remark
    assert run(failing, READINGS + WARM + bad, update=True) == {"warm": "ended"}
    with pytest.raises(CheckpointError, match="bad cannot be updated: readings ended") as refused:
        run(failing, READINGS + WARM + bad.replace("(celsius)", "(celsius + 1)"), update=True)
    assert refused.value.code == "update-refused"


def test_queries_of_another_script_are_left_alone(tmp_path: Path) -> None:
    run(tmp_path, READINGS + WARM)
    assert place(tmp_path, READINGS + COLD).changes == []
    assert run(tmp_path, READINGS + COLD) == {"cold": "ended"}
    assert place(tmp_path, READINGS + WARM + COLD).changes == []  # both go on where they are
    assert run(tmp_path, READINGS + WARM + COLD) == {"warm": "ended", "cold": "ended"}


def test_a_changed_query_whose_rows_stay_in_its_sink_is_refused_by_name(tmp_path: Path) -> None:
    sink = f"CREATE SINK s INTO sqlite('{tmp_path}/s.db', 't') AS SELECT sensor FROM readings WHERE celsius > 1;\n"
    run(tmp_path, READINGS + sink)
    with pytest.raises(CheckpointError, match=r"s cannot be updated: .*s\.db, table t has results of it as it was"):
        run(tmp_path, READINGS + sink.replace("> 1", "> 2"), update=True)


def test_the_local_engine_updates_nothing_that_has_run(tmp_path: Path) -> None:
    run(tmp_path, READINGS + WARM + COLD)
    with pytest.raises(CheckpointError) as refused:
        run(tmp_path, READINGS + WARM, update=True)
    assert refused.value.code == "local-restart"
    assert place(tmp_path, READINGS + WARM + COLD).changes == []


def test_recover_says_which_query_had_failed(tmp_path: Path) -> None:
    with database(tmp_path) as db:
        good, bad = start_script(db, read_script(db, READINGS + WARM + BAD), None, tmp_path)
        assert good.await_end(20) and bad.state == "failed"
    with database(tmp_path) as db:
        read_script(db, READINGS + WARM + BAD)
        assert [query.name for query in db.recover()] == ["warm"]
        (notice,) = [notice for notice in db.notices() if notice.code == "failed-earlier"]
        assert "bad had failed, and is not started: function picky failed" in notice.text


def test_a_batch_that_was_interrupted_needs_the_sinks_that_it_had() -> None:
    assert Replacement({"gone": Parquet("out/gone")}, ()).former_sinks().keys() == {"gone"}
    with pytest.raises(CheckpointError, match="the sink of gone is not there") as refused:
        Replacement({"gone": None}, ()).former_sinks()
    assert refused.value.code == "update-interrupted"


def test_a_literal_secret_of_a_sink_is_in_no_checkpoint(tmp_path: Path) -> None:
    stream = "CREATE STREAM s (v INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
    sink = "webhook('http://127.0.0.1:1/?token=hunter2')"
    with sl.connect(engine="local", checkpoint=tmp_path) as db:
        db.sql(stream)
        db.sql(f"CREATE SINK hook INTO {sink} AS SELECT v FROM s WHERE 'token=x' <> 'y'")
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"hunter2" in content for content in contents)
    assert any(b"token=***" in content and b"'token=x'" in content for content in contents)
    with sl.connect(engine="local", checkpoint=tmp_path) as db:
        db.sql(stream)
        with pytest.raises(StrandlineError, match="the sink of hook has a literal secret") as refused:
            db.recover()
        assert refused.value.code == "secret-not-stored"
        (hook,) = db.recover(sinks={"hook": sl.Webhook("http://127.0.0.1:1/?token=hunter2")})
        assert hook.sink.kind == "webhook"

"""Why an answer is empty: each cause is named, with the place where it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.apps.cli import app
from strandline.database.database import Database
from strandline.database.query import Query

CREATE = """CREATE STREAM a (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM b (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITHIN 5 SECONDS"""
JOIN = "SELECT a.k FROM a WINDOW(RANGE 5 SECONDS) JOIN b WINDOW(RANGE 5 SECONDS) ON a.k = b.k"


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        database.sql(CREATE)
        yield database


def give(database: Database, query: Query, **streams: list[tuple[object, int]]) -> str:
    """Append rows (key, second), wait until they are seen, and ask."""
    for stream, rows in streams.items():
        database.append(stream, [(k, f"2024-01-01 00:{second // 60:02d}:{second % 60:02d}") for k, second in rows])
        deadline = time.monotonic() + 30
        while (status := query.heartbeats()[stream]).rows + status.late + status.rejected < len(rows):
            assert time.monotonic() < deadline
            query.check()
            time.sleep(0.01)
    return query.why()


def marked(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "← here" in line]


def test_nothing_has_arrived(database: Database) -> None:
    assert database.sql(JOIN).why().startswith("q1 has no result: no row has arrived yet\n")


def test_a_silent_stream_holds_the_others(database: Database) -> None:
    text = give(database, database.sql(JOIN), a=[(1, 0), (2, 1)])
    assert text.startswith("q1 has no result: b has sent no row and has no watermark\n")
    assert marked(text) == ["b  no row   ← here"]
    assert text.endswith("hint: If it may stay idle, declare b with IDLE AFTER n SECONDS.")


def test_time_that_stands_names_who_holds_it(database: Database) -> None:
    text = give(database, database.sql(JOIN), b=[(1, 0)], a=[(1, 3), (1, 20)])
    assert text.startswith("q1 has no result: the watermark is held at 2023-12-31 23:59:55 by b\n")


def test_a_filter_that_passes_nothing(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a WINDOW(RANGE 1 SECOND) WHERE k > 100"), a=[(1, 0), (2, 1)])
    assert text.startswith('q1 has no result: the filter "a.k > 100" lets nothing through\n')
    assert marked(text) == ["Filter a.k > 100            0   ← here"]
    assert "Read a                    2" in text


def test_a_join_without_a_pair(database: Database) -> None:
    query = database.sql(JOIN)
    text = give(database, query, a=[(1, 0), (1, 30)], b=[(2, 0), (2, 35)])
    assert text.startswith('q1 has no result: "HashJoin on a.k = b.k" has found no match\n')
    assert "Compare the spelling of the keys on both sides." in text


def test_streams_that_do_not_overlap_in_time(database: Database) -> None:
    text = give(database, database.sql(JOIN), a=[(1, 0), (1, 1)], b=[(1, 30), (1, 60)])
    assert "the watermark is held at 2024-01-01 00:00:01 by a" in text
    database.end("a")
    query = database.queries[0]
    while not query.heartbeats()["a"].ended or not query.metrics()["progress"]:
        time.sleep(0.01)
    assert "a ends at 2024-01-01 00:00:01, b begins at 2024-01-01 00:00:30" in query.why()


def test_rows_that_are_all_malformed(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a"), a=[("x", 0), ("y", 1)])
    assert text.startswith("q1 has no result: every row of a was rejected\n")
    assert 'query.rejected("a")' in text


def test_a_query_with_results_says_so(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a"), a=[(1, 0), (2, 1)])
    assert text.startswith("q1 has 2 results\n")
    assert "← here" not in text


def test_another_process_can_ask(tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(
        "CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01'), (2, '2024-01-02')) ORDERED BY ts;"
        "CREATE STREAM big AS SELECT k FROM s WHERE k > 2;"
    )
    runner = CliRunner()
    assert runner.invoke(app, ["run", str(script), "--out", str(tmp_path / "out"), "--engine", "local"]).exit_code == 0
    result = runner.invoke(app, ["why", "big", "--out", str(tmp_path / "out")])
    assert result.output.startswith('big has no result: the filter "s.k > 2" lets nothing through\n')
    with pytest.raises(sl.StrandlineError, match='unknown query "small"') as caught:
        runner.invoke(app, ["why", "small", "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert caught.value.hint == "There are big."

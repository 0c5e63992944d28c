"""Changes of a table as a stream, ISTREAM(t) and DSTREAM(t) in FROM (17.4.1 of the thesis), and tables in scripts."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from typer.testing import CliRunner

import strandline as sl
from strandline.apps.cli import app
from strandline.core.temporal import instant
from strandline.database.database import Database
from strandline.database.query import Query

SECOND = 1_000_000


def elements(query: Query) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in query.results().to_pylist())


def end_of(query: Query) -> list[tuple[object, ...]]:
    assert query.await_end(60)
    return elements(query)


def test_new_users_of_the_thesis(tmp_path: Path) -> None:
    """Example 17.7: people who put something up for sale within 12 seconds of registering, from a table of people; the
    same as from a stream of them."""
    draw = random.Random(17)
    people = [(number, f"name {number}", 10 * SECOND + number * SECOND) for number in range(60)]
    auctions = sorted((draw.randint(10, 90) * SECOND + 1, draw.randint(0, 70)) for _ in range(150))
    with sl.connect(engine="local") as database:
        database.sql("CREATE TABLE person (id INT, name VARCHAR, PRIMARY KEY (id))")
        for number, name, at in people:
            database.insert("person", [(number, name)], at=at)
        _auctions(database, auctions)
        listed = ", ".join(f"({number}, '{name}', {at})" for number, name, at in people)
        database.sql(
            f"CREATE STREAM person_stream (id INT, name VARCHAR, ts BIGINT) SOURCE rows({listed}) ORDERED BY ts;"
            "CREATE STREAM new_people AS SELECT p.id, p.name FROM ISTREAM(person) p"
        )
        text = "SELECT DISTINCT p.id, p.name FROM {} WINDOW(RANGE 12 SECONDS) p, auction o WHERE p.id = o.seller"
        found = end_of(database.sql(text.format("new_people")))
        assert found == end_of(database.sql(text.format("person_stream")))
    assert len(found) > 10


def _auctions(database: Database, auctions: list[tuple[int, int]]) -> None:
    listed = ", ".join(f"({seller}, {at})" for at, seller in auctions)
    database.sql(f"CREATE STREAM auction (seller INT, ts BIGINT) SOURCE rows({listed}) ORDERED BY ts")


def test_changes_of_a_table_while_it_is_changed() -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (2, 2)")
        inserted, deleted = (database.sql(f"SELECT k, v FROM {word}(t) x") for word in ("ISTREAM", "DSTREAM"))
        all_rows = database.sql("SELECT k, v FROM RSTREAM(t) x", name="all_rows")
        changes = [
            database.sql("INSERT INTO t VALUES (3, 3)"),
            database.sql("UPDATE t SET v = 20 WHERE k = 2"),
            database.sql("UPDATE t SET v = 1 WHERE k = 1"),  # no change
            database.sql("DELETE FROM t WHERE k IN (1, 2)"),
            database.sql("INSERT INTO t VALUES (1, 1)"),
        ]
        last = changes[-1].at
        deadline = time.monotonic() + 30
        while min(query.progress for query in (inserted, deleted, all_rows)) <= last and time.monotonic() < deadline:
            database.insert("t", [(int(time.monotonic() * 1e6) % 10**9 + 10, 0)])  # time goes on with changes
            time.sleep(0.05)
        shown = [(k, v, instant(start)) for k, v, start, _ in elements(inserted) if instant(start) >= changes[0].at]
        expected = [(1, 1, last), (2, 20, changes[1].at), (3, 3, changes[0].at)]
        assert [row for row in shown if row[0] < 10] == expected
        gone = sorted((k, v, instant(start)) for k, v, start, _ in elements(deleted))
        assert gone == [(1, 1, changes[3].at), (2, 2, changes[1].at), (2, 20, changes[3].at)]
        rows = all_rows.snapshot(last).to_pylist()
        assert sorted((row["k"], row["v"]) for row in rows) == [(1, 1), (3, 3)]


SCRIPT = """
CREATE TABLE t (k INT, w VARCHAR);
INSERT INTO t VALUES (1, 'a');
INSERT INTO t VALUES (1, 'a');
INSERT INTO t SELECT k + 1, w FROM t;
CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 0), (2, 3)) ORDERED BY ts;
CREATE STREAM joined AS SELECT s.k, t.w FROM s JOIN t ON s.k = t.k;
SELECT k, w FROM t ORDER BY k;
"""


def test_a_script_that_runs_again_does_not_insert_twice(tmp_path: Path) -> None:
    file, out, runner = tmp_path / "script.sql", tmp_path / "out", CliRunner()
    command = ["run", str(file), "--out", str(out), "--engine", "local"]
    file.write_text(SCRIPT)
    first = runner.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert first.output.count("1 row inserted at ") == 2
    assert first.output.count("2 rows inserted at ") == 1
    # A statement more, in front of the others: those have had their effect, and it has one.
    file.write_text(SCRIPT.replace("INSERT", "UPDATE t SET w = 'b' WHERE k = 2;\nINSERT", 1))
    again = runner.invoke(app, command)
    assert again.exit_code == 0, again.output
    assert again.output.count("nothing changed: the statement was executed before") == 3
    assert again.output.count("2 rows replaced at ") == 1
    lines = [line.split() for line in again.output.splitlines() if line[:1].isdigit() and len(line.split()) == 2]
    assert lines == [["1", "a"], ["1", "a"], ["2", "b"], ["2", "b"]]
    joined = pq.read_table(out / "joined", columns=["k", "w"]).to_pylist()
    assert sorted(tuple(row.values()) for row in joined) == [(1, "a"), (1, "a"), (2, "a"), (2, "a")]
    third = runner.invoke(app, command)
    assert third.output.count("nothing changed: the statement was executed before") == 4


def test_tables_of_a_script_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    file, runner = tmp_path / "script.sql", CliRunner()
    file.write_text("CREATE TABLE t (k INT); INSERT INTO t VALUES (1); SELECT COUNT(*) AS n FROM t;")
    for _ in range(2):
        for place in ("a", "b"):
            options = ["--out", str(tmp_path / place), "--checkpoint", str(tmp_path / f"checkpoint-{place}")]
            done = runner.invoke(app, ["run", str(file), *options, "--engine", "local"])
            assert done.exit_code == 0, done.output
            assert done.output.splitlines()[-2:] == ["n", "1"] or "n\n1" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"script.sql", "checkpoint-a", "checkpoint-b"}

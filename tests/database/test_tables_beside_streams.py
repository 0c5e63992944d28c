"""Tables by the clock beside streams whose time is another: nothing waits, nothing is revised, and the gap is named."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.core.temporal import instant
from strandline.database.database import Database
from strandline.database.query import Query

DAY = timedelta(days=1)


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        database.sql("CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        yield database


def wait(query: Query, until: Any) -> None:
    deadline = time.monotonic() + 30
    while not until():
        query.check()
        assert time.monotonic() < deadline, query.why()
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["RETROACTIVE", "NON RETROACTIVE"])
@pytest.mark.parametrize("ahead", [timedelta(hours=1), -DAY, -32 * 365 * DAY], ids=["ahead", "behind", "1994"])
def test_a_table_by_the_clock_neither_holds_a_stream_back_nor_revises_its_result(
    database: Database, kind: str, ahead: timedelta
) -> None:
    begin = datetime.now(UTC) + ahead
    database.sql(f"CREATE TABLE t (k INT, p INT, PRIMARY KEY (k)) {kind}; INSERT INTO t VALUES (1, 0)")
    query = database.sql("SELECT s.k, t.p FROM s [RANGE 10 SECONDS] JOIN t ON s.k = t.k")
    final: list[tuple[Any, int]] = []  # snapshots that were complete, each with its instant
    for number in range(1, 6):
        at = begin + timedelta(seconds=number)
        database.append("s", [(1, at)])
        wait(query, lambda at=at: query.progress >= instant(at))
        complete = query.progress - 1
        final.append((query.snapshot(complete).to_pylist(), complete))
        changed = database.sql(f"UPDATE t SET p = {number} WHERE k = 1")
        assert changed.at > complete, "what has a result does not change any more"
    database.end("s")
    assert query.await_end(30)
    for rows, complete in final:
        assert sorted(query.snapshot(complete).to_pylist(), key=str) == sorted(rows, key=str)


def test_the_gap_between_changes_by_the_clock_and_old_rows_is_named(database: Database) -> None:
    database.sql("CREATE TABLE t (k INT, p INT, PRIMARY KEY (k))")
    query = database.sql("SELECT s.k, t.p FROM s [RANGE 10 SECONDS] JOIN t ON s.k = t.k")
    database.append("s", [(1, "1994-01-01 00:00:00"), (1, "1994-01-01 00:00:05")])
    wait(query, lambda: query.heartbeats()["s"].rows == 2)
    database.sql("INSERT INTO t VALUES (1, 0)")
    wait(query, lambda: query.heartbeats()["t"].rows == 1)
    text = query.why()
    today = datetime.now(UTC).date()
    assert text.startswith(f"q1 has no result: changes of table t are at {today} ")
    assert ", stream s is at 1994-01-01 00:00:05\n" in text
    assert "no change before the query began, 1 since then, the last at" in text
    assert [line.split()[0] for line in text.splitlines() if "← here" in line] == ["t"]
    assert text.endswith("use AT TIMESTAMP.")


def test_changes_beside_rows_of_now_are_no_gap(database: Database) -> None:
    database.sql("CREATE TABLE t (k INT, p INT, PRIMARY KEY (k)); INSERT INTO t VALUES (2, 0)")
    query = database.sql("SELECT s.k, t.p FROM s [RANGE 10 SECONDS] JOIN t ON s.k = t.k")
    database.append("s", [(1, datetime.now(UTC)), (1, datetime.now(UTC) + timedelta(seconds=1))])
    wait(query, lambda: query.heartbeats()["s"].rows == 2)
    database.sql("INSERT INTO t VALUES (3, 0)")
    wait(query, lambda: query.heartbeats()["t"].rows == 2)
    text = query.why()
    assert "has found no match" in text and "AT TIMESTAMP" not in text
    assert "1 change before the query began, 1 since then" in text


@pytest.mark.spark
def test_a_query_does_not_go_on_with_a_table_that_was_created_again(spark_database: Database, tmp_path: Path) -> None:
    """Its state has rows of the table that was there before, and its position counts the changes of that one."""

    def start(rows: str) -> Database:
        database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path, shards=1)
        database.sql("CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        database.sql(f"CREATE TABLE t (k INT, p INT, PRIMARY KEY (k)); {rows}")
        return database

    text = "SELECT s.k, t.p FROM s [RANGE 10 SECONDS] JOIN t ON s.k = t.k"
    with start("INSERT INTO t VALUES (1, 1)") as database:
        query = database.sql(text, name="q")
        wait(query, lambda: query.heartbeats()["t"].rows == 1)
    shutil.rmtree(tmp_path / "tables")
    with start("INSERT INTO t VALUES (1, 2), (2, 3)") as database, pytest.raises(sl.StrandlineError) as caught:
        database.sql(text, name="q")
    assert caught.value.code == "table-replaced" and str(tmp_path) in caught.value.message

"""Sinks that only append get an element when it ends; what is open they show as it was at the last announcement."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from open_results import CUT, KEYS, QUERIES, START, STREAMS, advance, rows

import strandline as sl
from strandline.connectors.sinks.parquet_results import open_file, read_stored
from strandline.core.temporal import FOREVER, Instant, instant
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.runtime import announcements
from strandline.runtime.announcements import Announcements
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.result import VALID_FROM, VALID_UNTIL
from strandline.runtime.watermark import SourceStatus

ALL = QUERIES | CUT


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announcements as soon as they pay, so that there are many."""
    monkeypatch.setattr(announcements, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(announcements, "MAX_SECONDS", 0.05)


def feed(db: Database, number: int) -> None:
    db.append("s", rows(number, (number % 3, number), (number % 2, number)))
    if number % 4 == 1:
        db.append("o", rows(number, (number % 3, 0)))


def valid_at(frame: pl.DataFrame, at: Instant) -> Counter[str]:
    """The rows of elements that are valid at an instant."""
    begun = pl.col(VALID_FROM).cast(pl.Int64) <= at
    ends = pl.col(VALID_UNTIL).cast(pl.Int64)
    return count_rows(frame.filter(begun & (ends.is_null() | (ends > at))).drop(VALID_FROM, VALID_UNTIL))


def count_rows(frame: pl.DataFrame) -> Counter[str]:
    return Counter(" ".join(map(str, row)) for row in frame.rows())


def expected_at(query: Query, at: Instant) -> Counter[str]:
    return count_rows(query.snapshot(at, "polars"))


def wait_until_announced(query: Query) -> None:
    end = time.monotonic() + 30
    while not query._running.announcements.is_current(query.name):
        assert time.monotonic() < end
        query.check()
        time.sleep(0.01)


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("name", ALL)
def test_files_and_open_elements_are_the_result_at_every_instant(name: str, tmp_path: Path) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        kept = db.sql(ALL[name], name="kept")
        query = db.sql(ALL[name], name="q", sink=sl.Parquet(tmp_path / "q"))
        for number in range(12):
            feed(db, number)
            advance(db, query, number + 0.9)
            advance(db, kept, number + 0.9)
            wait_until_announced(query)
            result = sl.read(tmp_path / "q")
            until = int((result.schema.metadata or {})[b"complete_until"])
            frame = pl.DataFrame(result)
            for at in (START + timedelta(seconds=number * share) for share in (0.25, 0.7, 1)):
                # Where nothing has changed since, it is also complete later; the query knows that.
                assert valid_at(frame, instant(at)) == expected_at(kept, instant(at))
                assert expected_at(query, instant(at)) == expected_at(kept, instant(at))
            assert count_rows(query.snapshot(form="polars")) == valid_at(frame, until - 1)
        for stream in ("s", "o"):
            db.end(stream)
        assert query.await_end(30) and kept.await_end(30)
        assert read_stored(tmp_path / "q").complete_until in (FOREVER, None)
        assert not open_file(tmp_path / "q").exists() or not pq.read_table(open_file(tmp_path / "q")).num_rows
        assert count_rows(query.results("polars")) == count_rows(kept.results("polars"))


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("name", ALL)
def test_open_elements_are_cut_where_they_were_announced(name: str, tmp_path: Path) -> None:
    """In a table of elements: what is there is exact up to the last announcement, and never overlaps."""
    database = tmp_path / "results.db"
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        kept = db.sql(ALL[name], name="kept")
        query = db.sql(ALL[name], name="q", sink=sl.SQLite(str(database), "t"))
        for number in range(12):
            feed(db, number)
            advance(db, query, number + 0.9)
            advance(db, kept, number + 0.9)
            wait_until_announced(query)
            frame = read_table(database)
            at = instant(START + timedelta(seconds=number * 0.7))
            assert valid_at(frame, at) == expected_at(kept, at)
        for stream in ("s", "o"):
            db.end(stream)
        assert query.await_end(30) and kept.await_end(30)
        frame = read_table(database)
        for tenths in range(0, 130, 7):
            at = instant(START + timedelta(seconds=tenths / 10))
            assert valid_at(frame, at) == expected_at(kept, at)


def read_table(database: Path) -> pl.DataFrame:
    with sqlite3.connect(database) as connection:
        cursor = connection.execute("SELECT * FROM t")
        names = [column[0] for column in cursor.description]
        frame = pl.DataFrame(cursor.fetchall(), names, orient="row", infer_schema_length=None)
    times = [
        pl.col(name).cast(pl.String).str.to_datetime(time_zone="UTC", time_unit="us", strict=True)
        for name in (VALID_FROM, VALID_UNTIL)
    ]
    return frame.with_columns(times)


@pytest.mark.usefixtures("prompt")
def test_where_nothing_changes_nothing_is_written(tmp_path: Path) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q", sink=sl.Parquet(tmp_path / "q"))
        db.append("s", rows(0, *((k, 1) for k in range(KEYS))))
        advance(db, query, 1)
        wait_until_announced(query)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
        assert set(before) == {open_file(tmp_path / "q")}, "nothing has ended"
        for number in range(10):
            advance(db, query, 2 + number)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
        assert query.snapshot().num_rows == KEYS, "what is open goes on"


def test_a_large_open_result_is_announced_once_a_minute() -> None:
    seconds = 0.0
    policy = Announcements(["q"], clock=lambda: seconds)

    def batch(opened: int, *, announced: bool = False) -> None:
        status = SourceStatus("s", announced=("q",) if announced else ())
        policy.add(BatchReport(0, {"s": status}, opened={"q": opened}))

    assert policy.due() == ()
    batch(1_000)
    assert policy.due() == (), "a second must pass"
    seconds = 1.0
    assert policy.due() == ("q",)
    batch(1_000, announced=True)
    assert policy.is_current("q") and policy.due() == ()
    batch(2)
    seconds = 60.0
    assert policy.due() == (), "1,000 elements are not sent again for two"
    seconds = 61.0
    assert policy.due() == ("q",)
    batch(1_000, announced=True)
    seconds = 1_000.0
    assert policy.due() == (), "nothing has changed"


@pytest.mark.usefixtures("prompt")
def test_the_present_can_be_asked_with_sql(tmp_path: Path) -> None:
    """The query of docs/connectors.md."""
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["last row"], name="q", sink=sl.Parquet(tmp_path / "q"))
        for number in range(6):
            feed(db, number)
            advance(db, query, number + 0.9)
        wait_until_announced(query)
        present = duckdb.execute(f"SELECT k, v FROM '{tmp_path}/_open/q.parquet' ORDER BY k").fetchall()
        assert present == sorted(query.snapshot(form="polars").rows())


@pytest.mark.spark
def test_a_restart_goes_on_with_what_is_open(spark_database: Database, tmp_path: Path) -> None:
    def start() -> tuple[Database, Query]:
        db = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "checkpoint")
        db.sql(STREAMS)
        return db, db.sql(QUERIES["unbounded"], name="q", sink=sl.Parquet(tmp_path / "q"))

    for part in range(3):
        db, query = start()
        with db:
            for number in range(4 * part, 4 * part + 4):
                feed(db, number)
                advance(db, query, number + 0.9)
            if part == 2:
                for stream in ("s", "o"):
                    db.end(stream)
                assert query.await_end(60)
                frame = pl.DataFrame(sl.read(tmp_path / "q"))
    sums: dict[int, int] = {}
    for number in range(12):
        sums[number % 3] = sums.get(number % 3, 0) + number
        sums[number % 2] = sums.get(number % 2, 0) + number
        at = instant((START + timedelta(seconds=number, milliseconds=500)).replace(tzinfo=UTC))
        assert valid_at(frame, at) == Counter(f"{key} {value}" for key, value in sums.items())


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sl.StrandlineError, match="is not a directory of results"):
        sl.read(tmp_path / "nothing")


def test_times_of_tests_are_in_utc() -> None:
    assert instant(START) == instant(datetime(2024, 1, 1, tzinfo=UTC))

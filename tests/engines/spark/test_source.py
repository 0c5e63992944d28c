"""What Spark's planning process is asked to load, and pieces of one source that several tasks read."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from strandline.database.database import Database


def test_the_planning_process_stays_light() -> None:
    """Polars and our own modules cost half a second at every start of a query."""
    code = "import sys, strandline.engines.spark.source; print(*({'polars', 'strandline.types'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def files(directory: Path) -> Path:
    """Four files of 60,000 rows, in order but for a few rows that come half a second too late."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = 240_000
    time = pl.Series("ts", [start + timedelta(milliseconds=n - (1_500 if n % 9_973 == 7 else 0)) for n in range(rows)])
    frame = pl.DataFrame({"ts": time, "k": pl.int_range(rows, eager=True) % 7})
    for number in range(4):
        frame.slice(number * 60_000, 60_000).write_parquet(directory / f"{number}.parquet")
    return directory


@pytest.mark.spark
def test_a_batch_that_two_tasks_read_is_the_batch_that_one_reads(spark_database: Database, tmp_path: Path) -> None:
    place = files(tmp_path)
    answers = []
    for database in (spark_database, Database(engine="local")):
        database.sql("DROP STREAM IF EXISTS pieces")
        database.sql(
            f"CREATE STREAM pieces (ts TIMESTAMP, k BIGINT) SOURCE file('{place}/*.parquet') ORDERED BY ts"
            " WITHIN 1 SECOND"
        )
        query = database.sql("SELECT k, COUNT(*) AS n FROM pieces WINDOW(RANGE 5 SECONDS SLIDE 5 SECONDS) GROUP BY k")
        query.await_end()
        metrics = query.metrics()
        answers.append((pl.DataFrame(query.results()), metrics["late"], metrics["rows_in"]))
        query.stop()
    (ours, late, rows_in), (wanted, late_wanted, rows_in_wanted) = answers
    assert (late, rows_in) == (late_wanted, rows_in_wanted) and sum(late.values()) == 25
    order = ["k", "valid_from"]
    assert ours.sort(order).equals(wanted.sort(order))

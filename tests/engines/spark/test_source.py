"""What Spark's planning process is asked to load, and pieces of one source that several tasks read."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from strandline.database.database import Database
from strandline.database.query import Query


def test_the_planning_process_stays_light() -> None:
    """Polars and our own modules cost half a second at every start of a query."""
    code = "import sys, strandline.engines.spark.source; print(*({'polars', 'strandline.types'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def files(directory: Path, kind: str) -> Path:
    """Four Parquet files of 60,000 rows, or one CSV file, in order but for rows that come half a second too late."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = 240_000
    time = pl.Series("ts", [start + timedelta(milliseconds=n - (1_500 if n % 9_973 == 7 else 0)) for n in range(rows)])
    frame = pl.DataFrame({"ts": time, "k": pl.int_range(rows, eager=True) % 7})
    if kind == "csv":
        frame.with_columns(pl.col("ts").dt.strftime("%FT%T%.6f")).write_csv(directory / "all.csv")
        return directory
    for number in range(4):
        frame.slice(number * 60_000, 60_000).write_parquet(directory / f"{number}.parquet")
    return directory


COUNTS = "SELECT k, COUNT(*) AS n FROM pieces WINDOW(RANGE 5 SECONDS SLIDE 5 SECONDS) GROUP BY k"


def declaration(place: Path, kind: str) -> str:
    columns = "(ts TIMESTAMP, k BIGINT)"
    return f"CREATE STREAM pieces {columns} SOURCE file('{place}/*.{kind}') ORDERED BY ts WITHIN 1 SECOND"


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_batch_that_two_tasks_read_is_the_batch_that_one_reads(
    spark_database: Database, tmp_path: Path, kind: str
) -> None:
    place = files(tmp_path, kind)
    answers = []
    for database in (spark_database, Database(engine="local")):
        database.sql("DROP STREAM IF EXISTS pieces")
        database.sql(declaration(place, kind))
        query = database.sql(COUNTS)
        query.await_end()
        metrics = query.metrics()
        answers.append((pl.DataFrame(query.results()), metrics["late"], metrics["rows_in"]))
        query.stop()
    (ours, late, rows_in), (wanted, late_wanted, rows_in_wanted) = answers
    assert (late, rows_in) == (late_wanted, rows_in_wanted) and sum(late.values()) == 25
    order = ["k", "valid_from"]
    assert ours.sort(order).equals(wanted.sort(order))


@pytest.mark.spark
def test_a_batch_of_text_that_several_tasks_read_is_the_same_when_it_runs_again(
    spark_database: Database, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    place = files(tmp_path / "in", "csv")
    log, out = tmp_path / "c" / "q" / "spark", tmp_path / "out" / "q"

    def run(checkpoint: Path, answer: Path, **options: object) -> Query:
        database = sl.connect(checkpoint=checkpoint, **options)  # type: ignore[arg-type]
        database.sql(declaration(place, "csv"))
        query: Query = database.sql(COUNTS, name="q", sink=sl.Parquet(answer))
        assert query.await_end(120)
        return query

    query = run(tmp_path / "c", out, spark=spark_database.spark)
    reported = sorted(path.name for path in (tmp_path / "c").rglob("latest/*"))
    assert len(reported) > 1 and reported[:2] == ["0-0", "0-1"], "two tasks have read the batch"
    before = pl.DataFrame(query.results()).sort("k", "valid_from")
    assert query.metrics()["late"] == {"pieces": 25}
    query.stop()
    # Spark forgets that the batch was over, as if it had been killed, and the order of the tasks is another: what they
    # reported each other is gone.
    for path in [*(log / "commits").glob("*[0-9]*"), *(tmp_path / "c").rglob("latest/*")]:
        path.unlink()
    again = run(tmp_path / "c", out, spark=spark_database.spark)
    assert pl.DataFrame(again.results()).sort("k", "valid_from").equals(before)
    assert again.metrics()["late"] == {"pieces": 25}
    assert sorted(path.name for path in (tmp_path / "c").rglob("latest/*")) == reported
    again.stop()

"""Streams whose rows a program gives: whatever Python has for rows, and nothing is lost or taken twice."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.sources.journal import Journal
from strandline.core.errors import CheckpointError
from strandline.database.database import Database

CREATE = "CREATE STREAM s (k VARCHAR, x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
COUNT = "SELECT k, SUM(x) AS x FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k"
AT = datetime(2024, 1, 1, 0, 0, 1)
ROW = ("a", 1, AT)


@pytest.mark.parametrize(
    "rows",
    [
        [ROW],
        ({"k": "a", "x": 1, "ts": AT},),
        {"k": "a", "x": 1, "ts": AT},
        pa.table({"x": [1], "k": ["a"], "ts": [AT]}),
        pl.DataFrame({"k": ["a"], "x": [1], "ts": [AT]}),
        pd.DataFrame({"k": ["a"], "x": [1], "ts": [AT]}),
        [("a", "1", "2024-01-01 00:00:01")],
    ],
    ids=["tuples", "dicts", "one dict", "arrow", "polars", "pandas", "texts"],
)
def test_rows_of_any_make(rows: object) -> None:
    with sl.connect(engine="local") as database:
        database.sql(CREATE)
        query = database.sql(COUNT)
        assert database.append("s", rows) == 1
        database.end("s")
        assert query.await_end(30)
        assert query.snapshot("2024-01-01 00:00:01").to_pylist() == [{"k": "a", "x": 1}]


def test_rows_that_do_not_fit_are_refused_whole_or_kept_aside() -> None:
    with sl.connect(engine="local") as database:
        database.sql(CREATE)
        query = database.sql(COUNT)
        for wrong, why in [
            ([("a", 1)], "row 1 is not a tuple of 3 values"),
            ([{"k": "a", "y": 1}], "unknown columns: y"),
            (pa.table({"k": ["a"]}), "missing columns: x, ts"),
            (7, "a value of type int is not a table"),
        ]:
            with pytest.raises(sl.StrandlineError, match=why):
                database.append("s", wrong)
        # Values of several kinds in one column: each row is judged alone.
        database.append("s", [("a", 1, AT), ("a", "many", AT), ("a", 2, AT)])
        database.end("s")
        assert query.await_end(30)
        assert query.snapshot(AT).to_pylist() == [{"k": "a", "x": 3}]
        assert [row["reason"] for row in query.rejected("s").to_pylist()] == ["x: 'many' is not INT"]


def test_time_advances_by_promise_and_what_comes_after_it_is_late() -> None:
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql(CREATE)
        query = database.sql(COUNT)
        database.append("s", [ROW])
        database.advance("s", "2024-01-01 00:00:10")
        database.append("s", [("b", 1, datetime(2024, 1, 1, 0, 0, 9)), ("c", 1, datetime(2024, 1, 1, 0, 0, 10))])
        database.end("s")
        assert query.await_end(30)
        assert [row["k"] for row in query.late("s").to_pylist()] == ["b"]
        with pytest.raises(sl.StrandlineError, match="has ended"):
            database.append("s", [ROW])


def test_streams_of_other_kinds_take_no_rows() -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM r (ts TIMESTAMP) SOURCE rows() ORDERED BY ts")
        with pytest.raises(sl.StrandlineError, match="cannot append rows"):
            database.append("r", [(AT,)])


def test_a_journal_is_read_alike_by_all_and_refused_where_it_has_a_hole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for number in range(4):
        journal.append(pa.table({"x": list(range(3 * number, 3 * number + 3))}))
        journal.promise(number)
    reader = Journal(tmp_path / "j")
    reader.refresh()
    assert reader.reach == 16
    for cut in range(17):
        found = [*reader.between(0, cut), *Journal(tmp_path / "j").between(cut, 16)]
        rows = [x for _, part in found if isinstance(part, pa.Table) for x in part["x"].to_pylist()]
        assert rows == list(range(12))
        assert [part for _, part in found if isinstance(part, int)] == [0, 1, 2, 3]
    next((tmp_path / "j").glob("*4-*.rows.*")).unlink()
    with pytest.raises(CheckpointError):
        Journal(tmp_path / "j").refresh()


@pytest.mark.spark
def test_a_restart_goes_on_where_it_was(spark_database: Database, tmp_path: Path) -> None:
    def day(number: int) -> datetime:
        return datetime(2024, 1, number)

    out = sl.Parquet(tmp_path / "out")
    with sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "checkpoint") as database:
        database.sql(CREATE)
        query = database.sql(COUNT, name="q", sink=out)
        database.append("s", [("a", 1, day(1)), ("b", 1, day(2))])
        while query.metrics()["rows_in"].get("s", 0) < 2:
            query.check()
    with sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "checkpoint") as database:
        database.sql(CREATE)
        database.append("s", [("a", 1, day(3))])  # before the query runs again
        query = database.sql(COUNT, name="q", sink=out)
        database.end("s")
        assert query.await_end(60)
        assert query.snapshot(day(3)).sort_by("k").to_pylist() == [{"k": "a", "x": 2}, {"k": "b", "x": 1}]
        assert query.metrics()["rows_in"] == {"s": 3}


def test_a_second_process_on_one_directory_is_refused_with_stream_and_directory(tmp_path: Path) -> None:
    script = f"""
import strandline as sl
with sl.connect(engine="local") as db:
    db.sql("CREATE STREAM s (v INT, ts TIMESTAMP) SOURCE events('{tmp_path}/rows') ORDERED BY ts")
    db.append("s", [(1, "2026-01-01")])
"""
    with sl.connect(engine="local") as db:
        db.sql(f"CREATE STREAM s (v INT, ts TIMESTAMP) SOURCE events('{tmp_path}/rows') ORDERED BY ts")
        db.append("s", [(1, "2026-01-01")])
        second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert second.returncode and "error[checkpoint-busy]" in second.stderr
        assert f'another process is writing to stream "s" in {tmp_path}/rows' in second.stderr
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).returncode == 0

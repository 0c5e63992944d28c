"""Queries over tables that are added and dropped on Spark, with kill -9 at each moment (docs/decisions/0030)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from killed_table import NAMED, NAMES, ROWS
from test_graph_changes import answer, write_input

import strandline as sl

PROGRAM = Path(__file__).with_name("killed_table.py")
MOMENTS = [pytest.param(moment, marks=pytest.mark.slow) for moment in ("first batch", "rewiring", "drop")]


def run(directory: Path, *moment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(directory), *moment]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)


def alone(directory: Path, rows: pa.Table, since: int) -> pl.DataFrame:
    """The result of the query that was added, over the rows from an instant on and the table as it was then."""
    times = np.asarray(rows["ts"].cast(pa.int64()))
    with sl.connect(engine="local") as db:
        db.sql("CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        db.sql(NAMES)
        db.sql(ROWS)
        query = db.sql(f"CREATE SINK two INTO parquet('{directory}/alone') AS {NAMED}")
        db.append("s", rows.filter(pa.array(times >= since)))
        db.end("s")
        assert query.await_end(60)
    return answer(directory / "alone")


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["version", *MOMENTS])
def test_killed_while_a_query_over_a_table_is_added(tmp_path: Path, moment: str) -> None:
    rows = write_input(tmp_path)
    killed = run(tmp_path, moment)
    assert killed.returncode == -9, killed.stderr
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    since = int(done.stdout.split()[-1])
    assert since > 1_700_000_000_000_000
    two = answer(tmp_path / "two")
    assert two.height and two.equals(alone(tmp_path, rows, since))

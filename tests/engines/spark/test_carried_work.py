"""Work of a shared join, and input of fragments, put off on Spark: kill -9 while it waits (docs/decisions/0030)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.apps.cli import app
from strandline.runtime.kernels.changes import coalesce
from support import LONG

PROGRAM = Path(__file__).with_name("killed_budget.py")
FILES, ROWS, SECOND = 6, 50, 1_000_000
WINDOWS = {"small": 200_000, "middle": 900_000, "large": 4_000_000}
SCRIPT = """
CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE file('{directory}/s/*.parquet') ORDERED BY ts;
CREATE STREAM t (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE file('{directory}/t/*.parquet') ORDERED BY ts;
"""
QUERY = """
CREATE STREAM {name} AS SELECT a.k, a.v, b.v AS w
FROM s WINDOW(RANGE {window} MICROSECONDS) a JOIN t WINDOW(RANGE {window} MICROSECONDS) b ON a.k = b.k;
"""


# No two of them share a join.
FRAGMENTS = """
CREATE STREAM joined AS SELECT a.k, a.v, b.v AS w
FROM s WINDOW(RANGE 900000 MICROSECONDS) a JOIN t WINDOW(RANGE 900000 MICROSECONDS) b ON a.k = b.k;
CREATE STREAM counted AS SELECT k, v, COUNT(*) AS w FROM s WINDOW(RANGE 2 SECONDS) GROUP BY k, v;
CREATE STREAM grouped AS SELECT a.k, a.v, COUNT(*) AS w
FROM s WINDOW(RANGE 1 SECOND) a JOIN t WINDOW(RANGE 1 SECOND) b ON a.v = b.v GROUP BY a.k, a.v;
"""


def write_input(directory: Path) -> dict[str, list[tuple[int, int, int]]]:
    draw, rows = np.random.default_rng(5), dict[str, list[tuple[int, int, int]]]()
    for stream in ("s", "t"):
        (directory / stream).mkdir()
        for number in range(FILES):
            times = 1_700_000_000 * SECOND + number * SECOND + np.sort(draw.integers(0, SECOND, ROWS))
            columns = {"k": draw.integers(0, 4, ROWS), "v": draw.integers(0, 100, ROWS)}
            table = pa.table({**columns, "ts": pa.array(times).cast(pa.timestamp("us"))})
            pq.write_table(table, directory / stream / f"{number:04d}.parquet")
            own = columns["k"].tolist(), columns["v"].tolist(), times.tolist()
            rows.setdefault(stream, []).extend(zip(*own, strict=True))
    return rows


def write_script(directory: Path, *queries: str) -> None:
    (directory / "script.sql").write_text(SCRIPT.format(directory=directory) + "".join(queries))


def run(directory: Path, strategy: str, *moment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(directory), strategy, *moment]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)


def results(directory: Path) -> pl.DataFrame:
    """The results of a query, each file of the delivered ones once."""
    frame = pl.from_arrow(pq.read_table(directory))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us"))
    return coalesce(frame, ["k", "v", "w"]).sort(["k", "v", "w", "@from", "@until"])


def expected(rows: dict[str, list[tuple[int, int, int]]], window: int) -> pl.DataFrame:
    """The definition of a join of two windows."""
    pairs = [
        (k, v, w, max(t, u), min(t, u) + window)
        for k, v, t in rows["s"]
        for other, w, u in rows["t"]
        if k == other and abs(t - u) < window
    ]
    frame = pl.DataFrame(pairs, ["k", "v", "w", "@from", "@until"], orient="row")
    return coalesce(frame, ["k", "v", "w"]).sort(["k", "v", "w", "@from", "@until"])


def offsets(directory: Path) -> list[dict[str, Any]]:
    """The offsets in Spark's log, those of our source."""
    (log,) = directory.glob("out/**/spark/offsets")
    names = sorted((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in names]


def run_with_kills(directory: Path, kills: list[tuple[int, str]], strategy: str = "-") -> None:
    for batch, moment in kills:
        killed = run(directory, strategy, str(batch), moment)
        assert killed.returncode == -9, killed.stdout + killed.stderr
    done = run(directory, strategy)
    assert done.returncode == 0, done.stderr


def check(directory: Path, kills: list[tuple[int, str]]) -> None:
    rows = write_input(directory)
    write_script(directory, *(QUERY.format(name=name, window=window) for name, window in WINDOWS.items()))
    run_with_kills(directory, kills)
    for name, window in WINDOWS.items():
        found = results(directory / "out" / name)
        assert found.height > 100
        assert found.equals(expected(rows, window)), name
    budgets = [offset.get("budget") for offset in offsets(directory)]
    assert sum(budget is not None for budget in budgets) > 3, "budgets are in the log"


def check_fragments(directory: Path, kills: list[tuple[int, str]], strategy: str) -> None:
    """The results are those of a run that puts off nothing."""
    rows = write_input(directory)
    write_script(directory, FRAGMENTS)
    app(
        ["run", str(directory / "script.sql"), "--engine", "local", "--out", str(directory / "whole")],
        standalone_mode=False,
    )
    run_with_kills(directory, kills, strategy)
    for name in ("joined", "counted", "grouped"):
        found = results(directory / "out" / name)
        assert found.height > 100
        assert found.equals(results(directory / "whole" / name)), name
    assert results(directory / "out" / "joined").equals(expected(rows, 900_000))
    limits = [offset.get("budget", {}).get("fragments") for offset in offsets(directory)]
    assert any(limits), "instants are in the log"


@pytest.mark.spark
def test_killed_while_input_of_fragments_waits(tmp_path: Path) -> None:
    check_fragments(tmp_path, [(3, "before")], "round-robin")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a campaign")
@pytest.mark.parametrize("strategy", ["fifo", "round-robin", "chain"])
def test_killed_again_and_again_while_input_of_fragments_waits(tmp_path: Path, strategy: str) -> None:
    check_fragments(tmp_path, [(batch, ("before", "after")[batch % 2]) for batch in range(1, 5)], strategy)


@pytest.mark.spark
def test_killed_with_carried_over_work(tmp_path: Path) -> None:
    check(tmp_path, [(3, "before")])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a campaign")
def test_killed_again_and_again_with_carried_over_work(tmp_path: Path) -> None:
    check(tmp_path, [(batch, ("before", "after")[batch % 2]) for batch in range(1, 13)])

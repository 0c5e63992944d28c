"""Real processes, killed with kill -9 at random moments, started again with the same command."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.runtime.kernels.changes import coalesce
from support import LONG, heed_interrupts, kill_tree

# The joined pairs grow with the square of the rows: few of them cross as many batches as many do.
FILES, ROWS, BATCH = (40, 400, 1500) if LONG else (20, 80, 160)
QUERIES = ("per_key", "total", "pairs", "cheap", "beside")


def script(directory: Path) -> str:
    return f"""
CREATE STREAM t (k BIGINT, v DOUBLE, s VARCHAR, ts TIMESTAMP)
  SOURCE file('{directory}/*.parquet', follow => true) ORDERED BY ts WITHIN 2 SECONDS;
CREATE STREAM per_key AS
  SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(s) AS last FROM t WINDOW(RANGE 3 SECONDS) GROUP BY k;
CREATE STREAM total AS SELECT SUM(n) AS n, COUNT(*) AS groups FROM per_key;
CREATE STREAM pairs AS
  SELECT a.k, a.v AS one, b.v AS two FROM t WINDOW(RANGE 1 SECOND) a, t WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) b
   WHERE a.k = b.k AND a.v < b.v;
CREATE STREAM cheap AS SELECT s, v FROM t WHERE v < 0.2;
CREATE STREAM u (k BIGINT, v DOUBLE, ts TIMESTAMP)
  SOURCE file('{directory}/*.parquet', follow => true) ORDERED BY ts WITHIN 4 SECONDS;
CREATE STREAM beside AS SELECT p.k, p.n, u.v FROM per_key p JOIN u WINDOW(RANGE 100 MILLISECONDS) u ON p.k = u.k;
"""


def write_files(directory: Path, pause: float, struck: threading.Event) -> None:
    """Files appear one after the other, each by a rename, then the end marker. The second half waits for the blow that
    the test strikes: it never comes after the end."""
    draw = np.random.default_rng(7)
    directory.mkdir(exist_ok=True)
    for number in range(FILES):
        if number == FILES // 2:
            struck.wait()
        time_of = 1_700_000_000_000_000 + number * 500_000 + draw.integers(0, 1_500_000, ROWS)
        time_of = np.sort(time_of) - draw.integers(0, 400_000, ROWS)
        table = pa.table(
            {
                "k": draw.integers(0, 12, ROWS),
                "v": draw.random(ROWS),
                "s": pa.array([f"s{i}" for i in draw.integers(0, 99, ROWS)]),
                "ts": pa.array(time_of).cast(pa.timestamp("us")),
            }
        )
        temporary = directory / f".{number:04d}"
        pq.write_table(table, temporary)
        os.replace(temporary, directory / f"{number:04d}.parquet")
        time.sleep(pause)
    (directory / "_END").touch()


def command(file: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "strandline", "run", str(file), "--out", str(out), "--batch-rows", str(BATCH), *more]


def answer(out: Path, query: str) -> pl.DataFrame:
    """What a plain Parquet reader sees, with the cuts taken out."""
    frame = pl.from_arrow(pq.read_table(out / query))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us")).with_columns(
        pl.col("@until").fill_null(2**63 - 1)
    )
    payload = [c for c in frame.columns if not c.startswith("@")]
    return coalesce(frame, payload).sort([*payload, "@from", "@until"])


def batch_records(out: Path) -> list[Path]:
    return list(out.glob(".strandline/checkpoint/*/batches/*.json"))


def wait_for(condition: object, process: subprocess.Popen[bytes], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None:  # type: ignore[operator]
        assert time.monotonic() < end, "the query did not come to life"
        time.sleep(0.02)


def expected(tmp_path: Path, file: Path) -> Path:
    out = tmp_path / "expected"
    subprocess.run(command(file, out, "--engine", "local"), check=True, timeout=120)
    return out


def check_same(out: Path, wanted: Path) -> None:
    for query in QUERIES:
        one, two = answer(out, query), answer(wanted, query)
        assert one.height > 0
        assert one.equals(two), f"{query} differs after recovery"


@pytest.mark.spark
@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_and_restarted_runs_give_the_same_answer(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("STRANDLINE_SEED", random.randrange(1_000_000)))
    print("seed", seed)
    dice = random.Random(seed)
    directory, out, file = tmp_path / "in", tmp_path / "out", tmp_path / "script.sql"
    directory.mkdir()
    file.write_text(script(directory))
    struck = threading.Event()
    writer = threading.Thread(target=write_files, args=(directory, 0.05 if kills < 10 else 8.0, struck), daemon=True)
    writer.start()
    if kills > 1:
        struck.set()  # among so many, some come in the midst
    for _ in range(kills):
        process = subprocess.Popen(command(file, out), start_new_session=True)
        before = set(batch_records(out))
        if dice.random() < 0.8:  # most kills in the midst of work, some while starting
            wait_for(lambda before=before: set(batch_records(out)) - before, process)
        time.sleep(dice.random() * 1.5)
        assert process.poll() is None or kills > 1, "it ended before it was killed"
        kill_tree(process)
    struck.set()
    writer.join()
    done = subprocess.run(command(file, out), timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "at org.apache" not in done.stderr
    check_same(out, expected(tmp_path, file))
    again = subprocess.run(command(file, out), timeout=120, capture_output=True, text=True)
    assert again.returncode == 0, "a finished run, run again, has nothing to do"
    check_same(out, tmp_path / "expected")


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_executor_is_replaced(tmp_path: Path) -> None:
    directory, out, file = tmp_path / "in", tmp_path / "out", tmp_path / "script.sql"
    directory.mkdir()
    file.write_text(script(directory))
    struck = threading.Event()
    threading.Thread(target=write_files, args=(directory, 0.05, struck), daemon=True).start()
    process = subprocess.Popen(command(file, out, "--master", "local-cluster[2,1,1024]"), start_new_session=True)
    try:
        wait_for(lambda: batch_records(out), process)
        time.sleep(1)
        executors = [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
        ]
        assert len(executors) == 2
        executors[0].send_signal(signal.SIGKILL)
        struck.set()
        assert process.wait(240) == 0
    finally:
        kill_tree(process)
    check_same(out, expected(tmp_path, file))


@pytest.mark.spark
def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    directory, out, file = tmp_path / "in", tmp_path / "out", tmp_path / "script.sql"
    directory.mkdir()
    file.write_text(script(directory))
    struck = threading.Event()
    threading.Thread(target=write_files, args=(directory, 0.05, struck), daemon=True).start()
    process = subprocess.Popen(
        command(file, out), start_new_session=True, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    wait_for(lambda: batch_records(out), process)  # type: ignore[arg-type]
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    struck.set()
    assert process.returncode == 130
    assert errors.splitlines() == ["stopped; run the same command again to resume"]
    done = subprocess.run(command(file, out), timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_same(out, expected(tmp_path, file))

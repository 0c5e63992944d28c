"""kill -9 in the midst of writes: after the restart every sink that promises it has each result once.

All sinks hang on one pipeline, so a kill leaves some of them with a batch that others do not have.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from self_killing_run import MOMENTS
from sink_databases import File, Place, Server

import strandline as sl
from strandline.core.temporal import FOREVER, instant
from strandline.runtime.kernels.changes import coalesce
from support import LONG

FILES, ROWS = 8, 60
PAYLOAD = ["k", "n", "total"]


def script(directory: Path, out: Path, server: Server) -> str:
    query = "SELECT * FROM per_key"
    file = File(out / "answers.db")
    return f"""
CREATE STREAM t (k VARCHAR, v DOUBLE, ts TIMESTAMP)
  SOURCE file('{directory}/*.parquet') ORDERED BY ts WITHIN 1 SECOND;
CREATE STREAM per_key AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t WINDOW(RANGE 3 SECONDS) GROUP BY k;
CREATE SINK to_delta INTO delta('{out}/delta') AS {query};
CREATE SINK pg_all INTO {server.call("pg_all")} AS {query};
CREATE SINK pg_now INTO {server.call("pg_now", "snapshot")} AS {query};
CREATE SINK lite_all INTO {file.call("lite_all")} AS {query};
CREATE SINK lite_now INTO {file.call("lite_now", "snapshot")} AS {query};
"""


def write_files(directory: Path, files: int) -> None:
    draw = np.random.default_rng(11)
    directory.mkdir()
    for number in range(files):
        times = np.sort(1_700_000_000_000_000 + number * 700_000 + draw.integers(0, 1_000_000, ROWS))
        keys = [None if key == 7 else f"k{key}" for key in draw.integers(0, 8, ROWS).tolist()]
        columns = {"k": keys, "v": draw.random(ROWS), "ts": pa.array(times).cast(pa.timestamp("us"))}
        pq.write_table(pa.table(columns), directory / f"{number:04d}.parquet")


def run(file: Path, out: Path, *more: str, before: tuple[str, ...] = ("-m", "strandline")) -> int:
    command = [sys.executable, *before, "run", str(file), "--out", str(out), "--batch-rows", str(ROWS)]
    command += ["--buckets", "2", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


Element = tuple[Any, ...]


def elements(rows: list[Element]) -> list[Element]:
    """Payload and the interval in microseconds."""
    return [(*row[:3], _microseconds(row[3]), _microseconds(row[4])) for row in rows]


def _microseconds(value: Any) -> int:
    return FOREVER if value is None else instant(value)


def joined(rows: list[Element]) -> pl.DataFrame:
    """Elements without the cuts of announcements."""
    kinds = {"k": pl.String(), "n": pl.Int64(), "total": pl.Float64(), "@from": pl.Int64(), "@until": pl.Int64()}
    frame = coalesce(pl.DataFrame(rows, schema=kinds, orient="row"), PAYLOAD)
    return frame.sort([*PAYLOAD, "@from", "@until"])


def everywhere(out: Path, server: Server) -> dict[str, list[Element]]:
    """All elements as each sink has them."""
    file = File(out / "answers.db")
    delta = deltalake.DeltaTable(out / "delta").to_pyarrow_table()
    return {
        "parquet": elements([tuple(row.values()) for row in pq.read_table(out / "per_key").to_pylist()]),
        "delta": elements([tuple(row.values()) for row in delta.to_pylist()]),
        "postgresql": elements(server.rows("SELECT * FROM pg_all")),
        "sqlite": elements(file.rows("SELECT * FROM lite_all")),
    }


def check_snapshot(location: Place, now: str, all_of_it: str) -> int:
    """The table is the snapshot at the instant that it says, seen from the elements in the table of elements, which has
    those that have ended, and all of them in the end."""
    statement = f"SELECT batch, complete_until FROM strandline_batches WHERE sink = '{now}'"
    if isinstance(location, Server):
        statement = statement.replace("complete_until", "complete_until::text")
    ((batch, until),) = location.rows(statement)
    if batch < 0:
        return 0
    at = FOREVER - 1 if until in ("infinity", "forever") else _microseconds(until) - 1
    known = elements(location.rows(f"SELECT * FROM {all_of_it}"))
    valid = [row[:3] for row in known if row[3] <= at < row[4]]
    display_location = [row[:3] for row in location.rows(f"SELECT * FROM {now}")]
    if at == FOREVER - 1:
        assert Counter(display_location) == Counter(valid)
    else:
        assert Counter(valid) <= Counter(display_location)
    return len(display_location)


@pytest.mark.spark
@pytest.mark.parametrize("kills", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 100 if LONG else 40))])
def test_killed_sinks_have_each_result_once(tmp_path: Path, postgresql: Server, kills: int) -> None:
    seed = int(os.environ.get("STRANDLINE_SEED", random.randrange(1_000_000)))
    print("seed", seed)
    dice = random.Random(seed)
    directory, out, file = tmp_path / "in", tmp_path / "out", tmp_path / "script.sql"
    write_files(directory, FILES if kills < 10 else 20 * FILES)
    file.write_text(script(directory, out, postgresql))
    # Files and Delta have the batch then, PostgreSQL is in the midst of it, SQLite has not heard; or all have it.
    moments = ["postgresql, before the commit", "the checkpoint, before it knows"][:kills]
    if kills > len(moments):
        moments = [dice.choice(list(MOMENTS)) for _ in range(kills)]
    display_location = 0
    for moment in moments:
        delay = dice.choice([0.0, dice.random() * 0.05]) if kills > 2 else 0.0
        # PostgreSQL comes there twice in a batch. A single kill comes when there is something to see from before it.
        time = dice.randrange(5, 7) if kills == 1 else dice.randrange(2, 4)
        dying = (str(Path(__file__).with_name("self_killing_run.py")), moment, str(time), str(delay))
        assert run(file, out, before=dying) == -signal.SIGKILL, f"{moment} did not come"
        display_location += check_snapshot(postgresql, "pg_now", "pg_all")
        display_location += check_snapshot(File(out / "answers.db"), "lite_now", "lite_all")
    assert display_location, "there was something to see between the kills"
    assert run(file, out) == 0
    with sl.connect(engine="local") as database:
        database.sql(file.read_text().split("CREATE SINK")[0])
        query = database.query("per_key")
        assert query.await_end(60)
        expected = joined(query._frame(query._kept()).rows())
    found = everywhere(out, postgresql)
    for name, rows in found.items():
        assert joined(rows).equals(expected), f"{name} differs after recovery"
    check_snapshot(postgresql, "pg_now", "pg_all")
    check_snapshot(File(out / "answers.db"), "lite_now", "lite_all")

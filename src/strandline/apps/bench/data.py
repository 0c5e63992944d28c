"""Generated input of the benchmarks: the same rows in every run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.core.temporal import SECOND, instant

START = instant("2024-01-01 00:00:00")


def stream(directory: Path, seed: int, rows: int, rows_per_second: int, keys: int, files: int = 10) -> Path:
    """A stream as Parquet files: time t, key k, value v; in order of time."""
    directory.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    time = START + np.arange(rows, dtype=np.int64) * (SECOND // rows_per_second)
    table = pa.table(
        {
            "t": pa.array(time).cast(pa.timestamp("us", tz="UTC")),
            "k": draw.integers(0, keys, rows),
            "v": draw.random(rows),
        }
    )
    for number in range(files):
        first, last = rows * number // files, rows * (number + 1) // files
        pq.write_table(table.slice(first, last - first), directory / f"{number:03d}.parquet")
    return directory


def declare(name: str, directory: Path) -> str:
    """The statement that declares such a stream."""
    return f"CREATE STREAM {name} (t TIMESTAMP, k BIGINT, v DOUBLE) SOURCE file('{directory}/*.parquet') ORDERED BY t;"

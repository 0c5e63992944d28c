"""Shedding on Spark: what is dropped is written in the log of offsets, and a killed run drops the same rows again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_recovery import batch_records, kill_tree, wait_for

from strandline.connectors.sources.base import open_source
from strandline.core.types import BIGINT, TIMESTAMP
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.shedding.sampler import drop

RATE, TOTAL, START = 20_000, 240_000, "2026-01-01"
SCRIPT = f"""
SET CAPACITY 1 PERCENT;
CREATE STREAM s (key BIGINT, value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => {RATE}, total => {TOTAL},
  keys => 50, start => '{START}') ORDERED BY ts;
CREATE STREAM kept AS SELECT key, value FROM s ALLOW SHEDDING;
CREATE STREAM counted AS SELECT COUNT(*) AS n, SUM(value) AS total, SCALED_COUNT(*) AS about, COUNT_ERROR(*) AS error
  FROM s [RANGE UNBOUNDED] ALLOW SHEDDING UP TO 80 PERCENT;
CREATE STREAM whole AS SELECT key, value FROM s WHERE key = 7;
"""


def batches(checkpoint: Path) -> list[tuple[int, int, dict[str, float]]]:
    """From where to where each batch read the stream, and what was kept by which query, by the log of offsets."""
    files = sorted(
        (p for p in (checkpoint / "spark" / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )
    positions = [json.loads(p.read_text().splitlines()[-1])["sources"]["s"] for p in files]
    begins = [0, *(each["at"] for each in positions)]
    return [(begin, each["at"], dict(each["shares"])) for begin, each in zip(begins, positions, strict=False)]


def rows_of(checkpoint: Path, start: int, end: int) -> pl.DataFrame:
    options: dict[str, Any] = {"rows_per_second": RATE, "total": TOTAL, "keys": 50, "start": START}
    columns = (("key", BIGINT), ("value", BIGINT), ("ts", TIMESTAMP))
    stream = BaseStream("s", columns, ConnectorCall("rate", (), options), "ts")
    source = open_source(stream, checkpoint / "sources" / "s")
    return pl.concat([chunk.rows for chunk in source.read(start, end, frozenset({"key", "value"}))])


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_run_drops_the_same_rows(tmp_path: Path) -> None:
    file, out = tmp_path / "script.sql", tmp_path / "out"
    file.write_text(SCRIPT)
    command = [sys.executable, "-m", "strandline", "run", str(file), "--out", str(out)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def dropping() -> bool:
        found = [json.loads(path.read_text().splitlines()[1]) for path in batch_records(out)]
        return any(sum(status["dropped"].values()) > 0 for data in found for status in data["heartbeats"].values())

    wait_for(dropping, process, 120)
    time.sleep(0.7)
    assert process.poll() is None, "it ended before it was killed"
    kill_tree(process)
    done = subprocess.run(command, timeout=180, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (checkpoint,) = {path.parent.parent for path in batch_records(out)}
    found = batches(checkpoint)
    assert found[-1][1] == TOTAL and any(0 < sampling_rates.get("kept", 1.0) < 1.0 for _, _, sampling_rates in found)
    left: dict[str, list[pl.DataFrame]] = {"kept": [], "counted": []}
    for start, end, sampling_rates in found:
        if start < end:
            rows = rows_of(checkpoint, start, end)
            dropped = drop(rows, "s", sampling_rates)[0]
            for name, frames in left.items():
                frames.append(dropped.get(name, rows))
    expected = pl.concat(left["kept"])
    kept = pl.read_parquet(out / "kept" / "*.parquet")
    assert sorted(kept["value"].to_list()) == sorted(expected["value"].to_list())
    assert 0 < kept.height < TOTAL and kept["kept_share"].min() < 1.0  # type: ignore[operator]
    counted = pl.read_parquet(out / "counted" / "*.parquet").filter(pl.col("valid_until").is_null())
    seen = pl.concat(left["counted"])
    assert counted["n"].item() == seen.height and int(counted["total"].item()) == seen["value"].sum()
    assert seen.height >= 0.19 * TOTAL
    assert abs(counted["about"].item() - TOTAL) <= 2 * counted["error"].item() < 0.1 * TOTAL
    whole = pl.read_parquet(out / "whole" / "*.parquet")
    assert whole.height == rows_of(checkpoint, 0, TOTAL).filter(pl.col("key") == 7).height
    assert "kept_share" not in whole.columns

"""Queries that come and go on Spark, with kill -9 at each moment of a change (docs/decisions/0030)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_graph import QUERIES

import strandline as sl
from strandline.runtime.kernels.changes import coalesce

PROGRAM = Path(__file__).with_name("killed_graph.py")
MOMENTS = ("version", "first batch", "rewiring", "last batch", "drop")
KILLS = 10  # at each moment, in all tests together
FILES, ROWS = 24, 20


def write_input(directory: Path) -> pa.Table:
    draw = np.random.default_rng(3)
    (directory / "in").mkdir()
    tables = []
    for number in range(FILES):
        time_of = 1_700_000_000_000_000 + number * 1_000_000 + np.sort(draw.integers(0, 1_000_000, ROWS))
        columns = {"k": draw.integers(0, 4, ROWS), "v": draw.integers(0, 100, ROWS)}
        tables.append(pa.table({**columns, "ts": pa.array(time_of).cast(pa.timestamp("us"))}))
        pq.write_table(tables[-1], directory / "in" / f"{number:04d}.parquet")
    return pa.concat_tables(tables)


def run(directory: Path, *moment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(directory), *moment]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)


def answer(directory: Path) -> pl.DataFrame:
    frame = pl.from_arrow(pq.read_table(directory))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us"))
    payload = [c for c in frame.columns if not c.startswith("@")]
    return coalesce(frame, payload).sort([*payload, "@from", "@until"])


def pairs(directory: Path) -> Iterator[tuple[object, ...]]:
    table = pq.read_table(directory)
    return zip(*(table[name].to_pylist() for name in ("k", "v", "w", "valid_from")), strict=True)


def alone(directory: Path, text: str, rows: pa.Table, since: int) -> pl.DataFrame:
    """The result of a query over the rows from an instant on."""
    times = np.asarray(rows["ts"].cast(pa.int64()))
    with sl.connect(engine="local") as db:
        for stream in ("s", "t"):
            db.sql(f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        query = db.sql(f"CREATE SINK alone INTO parquet('{directory}/alone {since}') AS {text}")
        for stream in ("s", "t") if "t." in text else ("s",):
            db.append(stream, rows.filter(pa.array(times >= since)))
            db.end(stream)
        assert query.await_end(60)
    return answer(directory / f"alone {since}")


@pytest.mark.spark
def test_killed_in_the_first_batch_of_a_version(tmp_path: Path) -> None:
    is_exact_after_a_kill(tmp_path, "apart", "first batch")


@pytest.mark.spark
def test_killed_in_the_first_batch_with_another_use_of_a_join(tmp_path: Path) -> None:
    is_exact_after_a_kill(tmp_path, "join", "first batch")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_while_the_graph_changes(tmp_path: Path, queries: str, moment: str, kill: int) -> None:
    if (queries, moment) == ("join", "rewiring"):
        pytest.skip("a use that comes needs no more stages")
    is_exact_after_a_kill(tmp_path, queries, moment)


def is_exact_after_a_kill(tmp_path: Path, queries: str, moment: str) -> None:
    rows, (first, added) = write_input(tmp_path), QUERIES[queries]
    killed = run(tmp_path, queries, moment)
    assert killed.returncode == -9, killed.stderr
    done = run(tmp_path, queries)
    assert done.returncode == 0, done.stderr
    since = int(done.stdout.split()[-1])
    assert since > 1_700_000_000_000_000
    two = answer(tmp_path / "two")
    assert two.height and two.equals(alone(tmp_path, added, rows, since))
    if queries == "join":
        alone(tmp_path, first, rows, 0)
        one, whole = (Counter(pairs(tmp_path / name)) for name in ("one", "alone 0"))
        assert one and one < whole
        return
    # The query that was dropped has each of its rows once, up to some batch.
    one = pq.read_table(tmp_path / "one")
    brought = list(zip(*(one[name].to_pylist() for name in ("k", "v", "valid_from")), strict=True))
    given = [
        (k, v, ts.replace(tzinfo=brought[0][2].tzinfo)) for k, v, ts in zip(*rows.to_pydict().values(), strict=True)
    ]
    assert 0 < len(brought) < len(given)
    assert Counter(brought) == Counter(given[: len(brought)])

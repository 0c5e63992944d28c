"""Queries that are added from the beginning on Spark, with kill -9 at each moment (docs/decisions/0030)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from killed_beginning import RECORDED, WRITTEN
from killed_graph import PAIRS
from test_graph_changes import FILES, alone, answer, write_input

PROGRAM = Path(__file__).with_name("killed_beginning.py")


def run(directory: Path, *moment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(directory), *moment]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)


ALWAYS = ("catching up", "first batch after")
MOMENTS = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in (*WRITTEN, *RECORDED)]


@pytest.mark.spark
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_a_query_catches_up(tmp_path: Path, moment: str) -> None:
    rows = write_input(tmp_path)
    (tmp_path / "later").mkdir()
    for number in range(FILES // 2, FILES):
        (tmp_path / "in" / f"{number:04d}.parquet").rename(tmp_path / "later" / f"{number:04d}.parquet")
    killed = run(tmp_path, moment)
    assert killed.returncode == -9, killed.stderr
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ended beginning 4" in done.stdout
    two, three = answer(tmp_path / "two"), answer(tmp_path / "three")
    assert two.height and two.equals(alone(tmp_path, PAIRS, rows, 0)) and three.equals(two)
    # The query that ran before has each of its rows once.
    one = pq.read_table(tmp_path / "one")
    brought = list(zip(one["k"].to_pylist(), one["v"].to_pylist(), strict=True))
    assert Counter(brought) == Counter(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))

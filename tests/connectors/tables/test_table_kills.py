"""A writer that is killed in the middle of concurrent commits: what returned is there once, the rest all or nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import polars as pl
import pytest
from killed_writer import THREADS
from table_model import Hand, frame, table_in

from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.statements import InsertRows
from strandline.connectors.tables.store import TableStore, open_table
from strandline.core.temporal import OPEN
from support import LONG, kill_tree

HERE = Path(__file__).resolve().parent
KILLS = 200 if LONG else 12


def run_and_kill(directory: Path, values: list[int], seconds: float) -> list[list[str]]:
    """What the writer said before it was killed, the last line of it perhaps half."""
    command = [sys.executable, str(HERE / "killed_writer.py"), str(directory), *map(str, values)]
    said = directory.with_name("said")  # a file: a pipe would be full at some time, and the writer would wait
    with open(said, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True, cwd=HERE)
    while "done" not in said.read_text() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    assert process.stderr is not None
    assert process.poll() is None, process.stderr.read()
    kill_tree(process)
    process.wait()
    process.stderr.close()
    return [line.split() for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]


def check_after_kill(store: TableStore, values: list[int], said: list[list[str]]) -> list[int]:
    """The values that the table has, after those that it had before and what was said since."""
    rows = dict(store.content().select("k", "v").rows())
    history = store.history()
    promises = [(int(line[1]), int(line[2])) for line in said if line[0] == "promise"]
    for reach, promised in promises[-1:]:
        for later in store.read(reach, store.reach):
            time_of_change = pl.when(pl.col("@until") < OPEN).then("@until").otherwise("@from")
            assert later.select(time_of_change).to_series().min() >= promised  # type: ignore[operator]
    after = []
    for counter, before in enumerate(values):
        tried = max([before, *(int(line[2]) for line in said if line[:2] == ["try", str(counter)])])
        returned = max([before, *(int(line[2]) for line in said if line[:2] == ["done", str(counter)])])
        value = rows.get(2 * counter, 0)
        assert rows.get(2 * counter + 1, 0) == value, "a statement is there as a whole"
        assert returned <= value <= tried
        of_counter = history.filter(pl.col("k") == 2 * counter).sort("@from")
        assert of_counter.get_column("v").to_list() == list(range(1, value + 1)), "each statement is there once"
        assert of_counter.get_column("@until").to_list()[:-1] == of_counter.get_column("@from").to_list()[1:]
        after.append(value)
    return after


@pytest.mark.slow
def test_statements_survive_kills_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 40_000)
    draw, values, last_promise = Random(1), [0] * THREADS, 0
    for _ in range(KILLS):
        said = run_and_kill(tmp_path / "t", values, draw.uniform(0, 0.3))
        clock = Hand(0)  # set back: what was promised holds all the same
        store = open_table(table_in(tmp_path / "t"), clock)
        values = check_after_kill(store, values, said)
        last_promise = max([last_promise, *(int(line[2]) for line in said if line[0] == "promise")])
        committed = store.commit(InsertRows(frame((1_000_000, 0, None)), "update"))
        assert committed.at >= last_promise
        for counter, value in enumerate(values):
            marked = value - value % 5
            if marked:
                row = frame((2 * counter, -1, None))
                assert store.commit(InsertRows(row, "update"), mark=f"{counter} {marked}").repeated
        store.close()
    assert min(values) > KILLS, "the writer was killed while it worked"

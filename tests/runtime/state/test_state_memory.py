"""State may be larger than the memory of the process that works on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, sys
from pathlib import Path

import numpy as np, polars as pl
from strandline.logical.expressions import ColumnRef
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.state.store import StateStore
from strandline.core.types import BIGINT, Column

def own_megabytes():
    # Memory that only this process can give back. Mapped files do not count: the system drops them when it needs room.
    line = next(l for l in open("/proc/self/status") if l.startswith("RssAnon"))
    return int(line.split()[1]) / 1024

batches, rows = 60, 200_000
left, right = ((Column(s + ".k", "k", BIGINT), Column(s + ".v", "v", BIGINT)) for s in "lr")
store = StateStore(Path(sys.argv[1]), 1, 0)
found, memory = 0, []
for batch in range(batches):
    join = HashJoinOperator([ColumnRef("l.k", BIGINT)], [ColumnRef("r.k", BIGINT)], None, left, right)
    if batch:
        join.restore(store.read(version.manifest, version.digest)["f"])
    time = np.arange(batch * rows, (batch + 1) * rows)
    # Every key of the left comes once; the right asks for the key of 10 batches ago, so old state must be found.
    mine = pl.DataFrame({"l.k": time, "l.v": time, "@from": time, "@until": time + 10**9})
    theirs = pl.DataFrame({"r.k": time - 10 * rows, "r.v": time, "@from": time, "@until": time + 1})
    found += len(join.step([Batch(mine), Batch(theirs)], Watermark(int(time[-1]) + 1)))
    version = store.write(batch, {"f": join.save()})
    gc.collect()
    memory.append(own_megabytes())
size = join.save().size() / 2**20
print(found, round(size), round(max(memory)))
assert found == (batches - 10) * rows, found
assert max(memory) < 0.75 * size, (max(memory), size)
"""


@pytest.mark.slow
def test_a_join_finds_old_state_that_it_does_not_hold_in_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        env={"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""Spilling: state that no checkpoint keeps, in mapped files instead of anonymous memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from strandline.core.mapped import copy_table, map_table
from strandline.runtime.exchange import to_table
from strandline.runtime.state.segments import StateRows, States

SPILL_BYTES: Final = 4 * 2**20  # smaller segments stay in memory: there are few, since they are merged


def spill(states: States, arrived: int, directory: Path) -> None:
    """Move the large segments of states that were just computed into mapped files in a directory. What is small is
    copied after a batch with many bytes: it may be a few rows of it, and would keep all of them in memory."""
    for stored in _new_rows(states):
        if stored.size >= SPILL_BYTES:
            table = map_table(to_table(stored.frame), directory)
        elif arrived >= SPILL_BYTES:
            table = copy_table(to_table(stored.frame))
        else:
            continue
        frame = pl.DataFrame(table)
        stored.release(lambda frame=frame: frame)  # type: ignore[misc]


def _new_rows(states: States) -> Iterator[StateRows]:
    for state in states.values():
        for segments in state.segments.values():
            yield from (segment.stored for segment in segments if segment.stored.is_new)

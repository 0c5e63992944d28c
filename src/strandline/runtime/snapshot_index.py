"""Index of a result by validity: what is valid at an instant, without reading what has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.temporal import OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Mask, Times, gather, times
from strandline.runtime.kernels.changes import drop_replaced, match_replaced
from strandline.runtime.result import from_result, result_schema


@dataclass(frozen=True, slots=True)
class _Run:
    """Elements by descending end. `again` are those that were sent before without their end, in an earlier run."""

    frame: pl.DataFrame
    start: Times
    end: Times  # negated, so that it ascends
    again: Mask
    again_rows: Index

    @staticmethod
    def of(frame: pl.DataFrame, again: Mask) -> _Run:
        order = np.argsort(-times(frame, UNTIL), kind="stable")
        frame, again = gather(frame, order), again[order]
        return _Run(frame, times(frame, FROM), -times(frame, UNTIL), again, np.flatnonzero(again))

    def rows_at(self, at: Instant) -> Index:
        """The rows that are valid at an instant, and those that end there what was sent before without an end."""
        later = int(np.searchsorted(self.end, -at, side="left"))  # these end after it
        ended = self.again_rows[np.searchsorted(self.again_rows, later) :]
        return np.concatenate([np.flatnonzero(self.start[:later] <= at), ended[self.start[ended] <= at]])


class SnapshotIndex:
    """The elements of a result in runs, newest last, each at least twice as long as the next.

    Law    at(t) = the elements that were added and are valid at t, each once
    Cost   adding: rows × log(rows), over all; at(t): what ends after t, and what ended lately

    An element that is sent without an end, and later again with it, is in the index twice until their runs are merged.
    """

    def __init__(self, columns: Schema) -> None:
        self._columns = columns
        self._ids = [column.id for column in columns]
        self._runs: list[_Run] = []
        self.chunks = 0  # that were added

    def add(self, tables: Sequence[pa.Table], begins: Sequence[Instant]) -> None:
        """Add chunks of a result; `begins` are the watermarks before them."""
        for table, begin in zip(tables, begins, strict=True):
            self.chunks += 1
            if table.num_rows:
                frame = from_result(table, self._columns)
                again = (times(frame, FROM) < begin) & (times(frame, UNTIL) != OPEN)
                self._runs.append(_Run.of(frame, again))
                self._merge()

    def _merge(self) -> None:
        while len(self._runs) > 1 and self._runs[-2].frame.height < 2 * self._runs[-1].frame.height:
            newer, older = self._runs.pop(), self._runs.pop()
            frame = pl.concat([older.frame, newer.frame], rechunk=True)
            again = np.concatenate([older.again, newer.again])
            if again.any():
                replaced, replacing = match_replaced(frame, self._ids, again)
                frame, again = frame.filter(pl.Series(~replaced)), (again & ~replacing)[~replaced]
            self._runs.append(_Run.of(frame, again))

    def at(self, instant: Instant) -> pl.DataFrame:
        """The elements that are valid at an instant."""
        frames: list[pl.DataFrame] = []
        again: list[Mask] = []
        for run in self._runs:
            rows = run.rows_at(instant)
            frames.append(gather(run.frame, rows))
            again.append(run.again[rows])
        if not frames:
            return from_result(result_schema(self._columns).empty_table(), self._columns)
        frame = drop_replaced(pl.concat(frames), self._ids, np.concatenate(again))
        return frame.filter(pl.col(UNTIL) > instant)

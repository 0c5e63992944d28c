"""Disorder buffer of a feed: changes in the order of their times.

    W = latest − disorder, the slowest partition decides

A change waits until W has passed its time; then it takes effect there, with all others of that instant. One that comes
after W is late: it takes effect at W as it was when the change came, and is counted. So the instants of changes follow
from the order in which they come, and from nothing else.

Rows that wait are on disk, a file for each step that brought some, which the position of the step names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.tables.feeds.base import FeedPosition
from strandline.connectors.tables.rows import payload_schema
from strandline.core.durable import sync_directory, sync_file
from strandline.core.errors import damaged
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import FROM, Mask, Times, gather

DIRECTORY: Final = "waiting"
_IS_INSERTION: Final = "@insertion"


@dataclass(frozen=True, slots=True)
class DatedRows:
    """Changes with their times: rows of the table, and whether each is inserted."""

    rows: pl.DataFrame
    is_insertion: Mask
    times: Times


class DisorderBuffer:
    """Rows that wait for the watermark of their feed."""

    def __init__(self, table: Table, position: FeedPosition) -> None:
        self.highs = dict(position.highs)
        self.bound = position.bound
        self.late = position.late
        self._disorder = table.disorder_us
        self._directory = Path(table.directory) / DIRECTORY
        self._schema = {**payload_schema(table), _IS_INSERTION: pl.Boolean(), FROM: pl.Int64()}
        self._next = max(position.segments, default=-1) + 1
        self._saved = {number: self._load(number) for number in position.segments}
        self._new: list[pl.DataFrame] = []
        self.forget(position.segments)

    @property
    def has_rows(self) -> bool:
        return bool(self._saved or self._new)

    def take(self, dated: DatedRows, partition: str, floor: Instant, promise: Instant) -> None:
        """Add rows of a partition, in the order in which they came; none takes effect before `floor`. After them no
        time before `promise` follows."""
        high = self.highs.get(partition, BEFORE_ALL)
        if len(dated.times):
            latest = np.maximum.accumulate(np.concatenate(([high], dated.times)))
            before = latest[:-1]
            bounds = np.where(before == BEFORE_ALL, BEFORE_ALL, before - self._disorder)
            effective = np.maximum(dated.times, np.maximum(bounds, floor))
            self.late += int(np.count_nonzero(effective > dated.times))
            self.highs[partition] = int(latest[-1])
            columns = (pl.Series(_IS_INSERTION, dated.is_insertion), pl.Series(FROM, effective))
            self._new.append(dated.rows.select(list(self._schema)[:-2]).with_columns(columns))
        self.bound = max(self.bound, promise)

    def release(self, partitions: Mapping[str, bool] | None) -> DatedRows:
        """The rows before the watermark, after all were taken that came. `partitions` says which of them are idle; None
        if there are none."""
        if partitions is None:
            active = list(self.highs.values())
        else:
            active = [self.highs.get(name, BEFORE_ALL) for name, is_idle in partitions.items() if not is_idle]
        slowest = min(active, default=BEFORE_ALL)
        if slowest != BEFORE_ALL:
            self.bound = max(self.bound, slowest - self._disorder)
        return self._cut(self.bound)

    def release_all(self) -> DatedRows:
        """All rows: nothing follows for a while. What comes after all is not before them."""
        waiting = [*self._saved.values(), *self._new]
        latest = max((int(frame.get_column(FROM).max()) for frame in waiting), default=BEFORE_ALL)  # type: ignore[arg-type]
        self.bound = max(self.bound, latest + 1)
        return self._cut(self.bound)

    def _cut(self, bound: Instant) -> DatedRows:
        is_due = pl.col(FROM) < bound
        due = [frame.filter(is_due) for frame in (*self._saved.values(), *self._new)]
        left = {number: frame.filter(~is_due) for number, frame in self._saved.items()}
        self._saved = {number: frame for number, frame in left.items() if frame.height}
        self._new = [rest for frame in self._new if (rest := frame.filter(~is_due)).height]
        rows = pl.concat([pl.DataFrame(schema=self._schema), *due], rechunk=True)
        times = rows.get_column(FROM).to_numpy()
        order = np.argsort(times, kind="stable")
        if not bool((order[1:] > order[:-1]).all()):
            rows, times = gather(rows, order), times[order]
        is_insertion: Mask = rows.get_column(_IS_INSERTION).to_numpy()
        return DatedRows(rows.drop(_IS_INSERTION, FROM), is_insertion, times)

    # Files

    def save(self) -> tuple[int, ...]:
        """Write the rows that came and wait; returns the numbers of all files that have some."""
        if self._new:
            frame = pl.concat(self._new, rechunk=True)
            self._directory.mkdir(exist_ok=True)
            path = self._path(self._next)
            frame.write_ipc(path)
            sync_file(path)
            sync_directory(self._directory)
            self._saved[self._next], self._new = frame, []
            self._next += 1
        return tuple(self._saved)

    def forget(self, segments: tuple[int, ...]) -> None:
        """Remove all files but these."""
        if self._directory.is_dir():
            for path in self._directory.glob("*.arrow"):
                if int(path.stem) not in segments:
                    path.unlink(missing_ok=True)

    def _load(self, number: int) -> pl.DataFrame:
        """The rows of a file, those that were released since included: they are before the bound."""
        path = self._path(number)
        try:
            frame = pl.read_ipc(path)
        except (OSError, pl.exceptions.PolarsError, pa.ArrowInvalid):
            raise damaged(path) from None
        return frame.filter(pl.col(FROM) >= self.bound)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:015d}.arrow"

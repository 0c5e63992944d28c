"""A stream as its source has it now, read once from beginning to end: rows, times, order and numbers of values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from strandline.connectors.sources.base import Chunk, Source
from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant
from strandline.runtime.kernels.batch import FROM, times

BATCH_ROWS = 1_000_000
MOST_VALUES = 1_000  # distinct values of a column that are counted; one with more is not of low cardinality


@dataclass
class SourceProfile:
    """Rows and rejected rows, the first and the last time, and by how much a row comes after a later one at most."""

    rows: int = 0
    rejected: int = 0
    low: Instant = FOREVER
    high: Instant = BEFORE_ALL
    disorder_us: int = 0
    disordered: int = 0  # rows that come after a later one
    values: dict[str, set[object] | None] = field(default_factory=dict)  # None for more than MOST_VALUES
    reason: str = ""  # why the first rejected row is one

    @property
    def rate(self) -> float | None:
        """Rows per second of stream time."""
        return self.rows * SECOND / (self.high - self.low) if self.high > self.low else None

    def add(self, chunk: Chunk) -> None:
        self.rows += chunk.rows.height
        self.rejected += chunk.rejected.height
        if chunk.rejected.height and not self.reason:
            self.reason = str(chunk.rejected["reason"][0])
        if chunk.rows.height and FROM in chunk.rows.columns:
            self._add_times(times(chunk.rows, FROM))
        for name, known in self.values.items():
            if known is not None and chunk.rows.height:
                values = chunk.rows.get_column(name).drop_nulls().unique()
                known = known.union(values.to_list()) if len(values) <= MOST_VALUES else None
                self.values[name] = None if known is None or len(known) > MOST_VALUES else known

    def _add_times(self, instants: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        latest = np.maximum(np.maximum.accumulate(instants), self.high)
        behind = latest - instants
        self.disorder_us = max(self.disorder_us, int(behind.max()))
        self.disordered += int(np.count_nonzero(behind))
        self.low, self.high = min(self.low, int(instants.min())), int(latest[-1])


def read_profile(source: Source, count_values: bool = False) -> SourceProfile:
    """Read what a finite source has now."""
    profile = SourceProfile()
    columns = frozenset(name for name, _ in source.stream.columns)
    if count_values:
        profile.values = {name: set() for name, _ in source.stream.columns if name not in source.stream.time_columns}
    for chunk in read_all(source, columns):
        profile.add(chunk)
    return profile


def read_all(source: Source, columns: frozenset[str]) -> Iterator[Chunk]:
    """All chunks of a finite source, from its beginning."""
    position, ended = 0, False
    source.open()
    try:
        while not ended:
            end, ended = source.advance(position, BATCH_ROWS)
            if end > position:
                yield from source.read(position, end, columns)
            position = end
    finally:
        source.close()

"""Chunks of a table's content: rows with ascending ids, in memory or mapped, and which of them are in the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.tables.blocks import ID
from strandline.core.mapped import map_table
from strandline.runtime.kernels.batch import Index, Mask, gather, pick

CHUNK_ROWS: Final = 2**18
MAPPED_BYTES: Final = 4 * 2**20  # chunks of so many bytes are mapped from a file
MERGED_AT_ONCE: Final = 16  # chunks of about the same size that become one
_TOP_LEVEL: Final = 4
# A chunk is written again without what has ended when so much of it has: one that is mapped takes no memory.
_SPARSE, _SPARSE_MAPPED = 2, 8


class RowChunk:
    """Rows with ascending ids, and which of them are in the table.

    The rows are a frame, or Arrow columns of a mapped file: of these only what is looked at becomes a frame, and goes
    again. `ids` is None where they follow one another.
    """

    __slots__ = ("_frame", "_ids", "_mapped", "first", "height", "level", "live", "live_rows")

    def __init__(self, rows: pl.DataFrame | pa.RecordBatch, live: Mask | None = None, ids: Index | None = None) -> None:
        self._frame: pl.DataFrame | None = None
        self._mapped: pa.RecordBatch | None = None
        if isinstance(rows, pl.DataFrame):
            self._frame, self.height = rows, rows.height
        else:
            self._mapped, self.height = rows, int(rows.num_rows)
        self._set_ids(self.columns([ID]).get_column(ID).to_numpy() if ids is None else ids)
        self.live: Mask = np.ones(self.height, np.bool_) if live is None else live
        self.live_rows = int(np.count_nonzero(self.live))
        self.level = self._level()

    def _set_ids(self, ids: Index) -> None:
        self.first = int(ids[0])
        follow = int(ids[-1]) - self.first + 1 == self.height
        self._ids: Index | None = None if follow else ids

    @property
    def ids(self) -> Index:
        return np.arange(self.first, self.first + self.height) if self._ids is None else self._ids

    @property
    def is_mapped(self) -> bool:
        return self._mapped is not None

    @property
    def frame(self) -> pl.DataFrame:
        """All rows, also those that have ended."""
        return _decode(self._mapped) if self._frame is None else self._frame

    @property
    def is_sparse(self) -> bool:
        """True if so much has ended that the rest is better written again."""
        share = _SPARSE_MAPPED if self.is_mapped else _SPARSE
        return share * self.live_rows <= self.height

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of all rows."""
        return _decode(self._mapped.select(list(names))) if self._mapped is not None else pick(self.frame, names)

    def take(self, ids: Index) -> pl.DataFrame:
        """The rows with these ids, in this order."""
        places = self._places(ids)
        if self._mapped is None:
            return gather(self.frame, places)
        # Not `pa.array`, which imports pandas when it gets an array of numpy.
        buffers = [None, pa.py_buffer(np.ascontiguousarray(places, np.int64))]
        return _decode(self._mapped.take(pa.Array.from_buffers(pa.int64(), len(places), buffers)))

    def mark(self, ids: Index, live: bool) -> None:
        self.live[self._places(ids)] = live
        self.live_rows += len(ids) if live else -len(ids)

    def live_ids(self) -> Index:
        return self.ids if self.live_rows == self.height else self.ids[self.live]

    def live_frame(self) -> pl.DataFrame:
        return self.frame if self.live_rows == self.height else self.frame.filter(pl.Series(self.live))

    def live_columns(self, names: Sequence[str]) -> pl.DataFrame:
        rows = self.columns(names)
        return rows if self.live_rows == self.height else rows.filter(pl.Series(self.live))

    def map_to(self, log: pa.RecordBatch, start: int) -> None:
        """Take the rows from a mapped block of the log that has them; its first row has the position `start`."""
        if self._ids is None and self._frame is not None:
            self._mapped = log.slice(self.first - start, self.height).select(self._frame.columns)
            self._frame = None
            self.level = self._level()

    def spill(self, directory: Path) -> RowChunk:
        """The chunk with its rows in a mapped file without a name, if they are many and in memory."""
        if self._frame is not None and self._frame.estimated_size() >= MAPPED_BYTES:
            # Texts as Arrow can take some of them, which it cannot of views.
            rows = self._frame.to_arrow(compat_level=pl.CompatLevel.oldest())
            table = map_table(rows, directory, text_views=False)
            self._mapped, self._frame = table.to_batches()[0], None
            self._set_ids(self._mapped.column(ID).to_numpy())
            self.level = self._level()
        return self

    def _places(self, ids: Index) -> Index:
        places: Index = ids - self.first if self._ids is None else np.searchsorted(self._ids, ids)
        return places

    def _level(self) -> int:
        """Size class: sixteen chunks of one are one of the next, up to those of which each is large enough."""
        size = self.frame.estimated_size() if self._mapped is None else self._mapped.get_total_buffer_size()
        return _TOP_LEVEL if size >= MAPPED_BYTES else row_level(self.height)


def row_level(rows: int) -> int:
    level = 0
    while rows >= MERGED_AT_ONCE and level < _TOP_LEVEL:
        rows //= MERGED_AT_ONCE
        level += 1
    return level


def _decode(rows: pa.RecordBatch | None) -> pl.DataFrame:
    frame = pl.from_arrow(pa.Table.from_batches([rows]))
    assert isinstance(frame, pl.DataFrame), "a table becomes a frame"
    return frame

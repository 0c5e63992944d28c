"""Current content of a table: rows in chunks that are never copied to change one, found by id and by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from strandline.connectors.tables.blocks import ID, SINCE
from strandline.connectors.tables.key_index import KeyIndex
from strandline.logical.expressions import Expression, columns_of
from strandline.runtime.expressions.compile import filter_frame
from strandline.runtime.kernels.batch import FROM, Index, Mask, gather, pick
from strandline.runtime.kernels.hashing import hash_rows, same_payloads

CHUNK_ROWS: Final = 2**18  # a chunk is written again as a whole when half of it has ended
_MERGED_AT_ONCE: Final = 16  # chunks of about the same size that become one
_ROW: Final = "@row"


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Effect of a statement: rows that begin, and rows that end, which have `@id` and `@from`."""

    inserted: pl.DataFrame
    deleted: pl.DataFrame
    replaced_by: Index | None = None  # the inserted row that replaces each deleted one, where that is how they belong


class RowChunk:
    """Rows with ascending ids, and which of them are in the table."""

    __slots__ = ("first", "frame", "ids", "level", "live", "live_rows")

    def __init__(self, frame: pl.DataFrame, live: Mask | None = None, level: int = 0, ids: Index | None = None) -> None:
        self.frame = frame
        self.ids: Index = frame.get_column(ID).to_numpy() if ids is None else ids
        self.first = int(self.ids[0])
        self.live: Mask = np.ones(frame.height, np.bool_) if live is None else live
        self.live_rows = int(np.count_nonzero(self.live))
        self.level = level

    def mark(self, ids: Index, live: bool) -> None:
        self.live[np.searchsorted(self.ids, ids)] = live
        self.live_rows += len(ids) if live else -len(ids)

    def live_frame(self) -> pl.DataFrame:
        return self.frame if self.live_rows == self.frame.height else self.frame.filter(pl.Series(self.live))

    def without_dead(self) -> RowChunk:
        return RowChunk(self.live_frame(), level=self.level)


class TableContent:
    """The rows of a table: each once, as columns, with a mark of those that have ended.

    Law    after `apply(c)` the rows are those before, without `c.deleted`, with `c.inserted`; `revert(c)` undoes it

    A chunk is written again without what has ended when that is half of it, and small chunks are merged sixteen at a
    time, so that a change costs a constant number of copies of its rows. Chunks of a log that was opened are views of
    the mapped file.
    """

    def __init__(self, schema: dict[str, pl.DataType], key: Sequence[str]) -> None:
        self.schema = {**schema, ID: pl.Int64(), FROM: pl.Int64(), SINCE: pl.Int64()}
        self.key = list(key)
        self.columns = list(schema)
        self._chunks: list[RowChunk] = []
        self._starts: Index = np.zeros(0, np.int64)
        self._index = KeyIndex() if key else None
        self.row_count = 0

    # Reading

    def snapshot(self) -> list[tuple[pl.DataFrame, Mask | None]]:
        """The chunks, and which of their rows count; later changes do not reach them."""
        return [(c.frame, None if c.live_rows == c.frame.height else c.live.copy()) for c in self._chunks]

    def live_ids(self) -> Index:
        """The ids of all rows, ascending."""
        parts = [c.ids if c.live_rows == c.frame.height else c.ids[c.live] for c in self._chunks]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def frame(self) -> pl.DataFrame:
        """All rows."""
        return stack_rows([c.live_frame() for c in self._chunks if c.live_rows], self.schema)

    def scan(self, predicate: Expression) -> pl.DataFrame:
        """The rows for which a predicate is true, found by looking at all of them."""
        return stack_rows(list(self._matching(predicate)), self.schema)

    def _matching(self, predicate: Expression) -> Iterator[pl.DataFrame]:
        names = sorted(columns_of(predicate))
        for chunk in self._chunks:
            rows = chunk.frame.select(names or ID).with_row_index(_ROW)
            found = filter_frame(rows, predicate).get_column(_ROW).to_numpy().astype(np.int64)
            found = found[chunk.live[found]]
            if len(found):
                yield gather(chunk.frame, found)

    def find(self, keys: pl.DataFrame) -> tuple[Index, pl.DataFrame]:
        """The rows of primary keys: the number of the key of each, and the rows. Columns of `keys` are those of the
        primary key, under its names."""
        assert self._index is not None, "only rows with a key are found by it"
        numbers, ids = self._index.find(hash_rows(keys, self.key))
        rows = self.gather(ids)
        if not len(ids):
            return numbers, rows
        same = same_payloads(gather(pick(keys, self.key), numbers), pick(rows, self.key))
        return (numbers, rows) if same.all() else (numbers[same], rows.filter(pl.Series(same)))

    def gather(self, ids: Index) -> pl.DataFrame:
        """The rows with these ids, in this order."""
        if not len(ids):
            return pl.DataFrame(schema=self.schema)
        chunk_numbers = np.searchsorted(self._starts, ids, side="right") - 1
        first = int(chunk_numbers[0])
        if (chunk_numbers == first).all():
            chunk = self._chunks[first]
            return gather(chunk.frame, np.searchsorted(chunk.ids, ids))
        order = np.argsort(chunk_numbers, kind="stable")
        bounds = np.flatnonzero(np.diff(chunk_numbers[order])) + 1
        parts = [
            gather(chunk.frame, np.searchsorted(chunk.ids, ids[places]))
            for places in np.split(order, bounds)
            for chunk in (self._chunks[int(chunk_numbers[places[0]])],)
        ]
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        return gather(stack_rows(parts, self.schema), back)

    # Changing

    def load(self, frame: pl.DataFrame, live: Mask, ids: Index) -> None:
        """Add rows with later ids than all others, as far as they are live, in chunks. `ids` ascends, and is that of
        the live rows; rows of the log that end others are among the rest."""
        for begin in range(0, frame.height, CHUNK_ROWS):
            part = live[begin : begin + CHUNK_ROWS]
            if part.any():
                rows = pick(frame.slice(begin, CHUNK_ROWS), list(self.schema))
                chunk = RowChunk(rows, part.copy(), _level(len(part)), ids[begin : begin + CHUNK_ROWS])
                if 2 * chunk.live_rows <= chunk.frame.height:
                    chunk = chunk.without_dead()
                self._chunks.append(chunk)
                self.row_count += chunk.live_rows
                if self._index is not None:
                    keys = chunk.live_frame().select(*self.key, ID)
                    self._index.add(hash_rows(keys, self.key), keys.get_column(ID).to_numpy())
        self._restart()

    def apply(self, changes: RowChanges) -> None:
        """Insert and delete; the inserted rows have `@id` and `@from`, and ids later than all others."""
        if changes.deleted.height:
            self._mark(changes.deleted, False)
        if changes.inserted.height:
            frame = changes.inserted
            assert frame.columns == list(self.schema), "inserted rows have their ids and instants"
            for begin in range(0, frame.height, CHUNK_ROWS):
                part = frame.slice(begin, CHUNK_ROWS)
                self._chunks.append(RowChunk(part, level=_level(part.height)))
            self._restart()
            self.row_count += frame.height
            if self._index is not None:
                self._index.add(hash_rows(frame, self.key), frame.get_column(ID).to_numpy())

    def revert(self, changes: RowChanges) -> None:
        """Undo `apply`, in the opposite order of several, before `tidy`."""
        left = changes.inserted.height
        if left:
            ids = changes.inserted.get_column(ID).to_numpy()
            if self._index is not None:
                self._index.remove(hash_rows(changes.inserted, self.key), ids)
            while left > 0:
                left -= self._chunks.pop().frame.height
            assert left == 0, "inserted rows are chunks of their own until they are merged"
            self._restart()
            self.row_count -= len(ids)
        if changes.deleted.height:
            self._mark(changes.deleted, True)

    def tidy(self, ended: Index) -> None:
        """Write chunks again of which half has ended, among them rows with the given ids; merge small ones at the
        end."""
        for number in np.unique(np.searchsorted(self._starts, ended, side="right") - 1)[::-1]:
            chunk = self._chunks[number]
            if not chunk.live_rows:
                del self._chunks[number]
            elif chunk.level and 2 * chunk.live_rows <= chunk.frame.height:
                self._chunks[number] = chunk.without_dead()
        while len(self._chunks) >= _MERGED_AT_ONCE:
            last = self._chunks[-_MERGED_AT_ONCE:]
            level = last[-1].level
            if level >= _level(CHUNK_ROWS) or any(chunk.level > level for chunk in last):
                break
            frame = stack_rows([chunk.live_frame() for chunk in last if chunk.live_rows], self.schema)
            self._chunks[-_MERGED_AT_ONCE:] = [RowChunk(frame, level=level + 1)] if frame.height else []
        self._restart()

    def _mark(self, rows: pl.DataFrame, live: bool) -> None:
        ids = rows.get_column(ID).to_numpy()
        order = np.argsort(ids)
        in_order = ids[order]
        chunk_numbers = np.searchsorted(self._starts, in_order, side="right") - 1
        for part in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(chunk_numbers)) + 1):
            self._chunks[int(chunk_numbers[part[0]])].mark(in_order[part], live)
        self.row_count += len(ids) if live else -len(ids)
        if self._index is not None:
            change = self._index.add if live else self._index.remove
            change(hash_rows(rows, self.key), ids)

    def _restart(self) -> None:
        self._starts = np.array([chunk.first for chunk in self._chunks], np.int64)


def _level(rows: int) -> int:
    """Size class of a chunk: sixteen of one are one of the next."""
    level = 0
    while rows >= _MERGED_AT_ONCE and level < 5:
        rows //= _MERGED_AT_ONCE
        level += 1
    return level


def stack_rows(frames: Sequence[pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Rows of several frames; none have the schema."""
    if not frames:
        return pl.DataFrame(schema=schema)
    stacked = frames[0]
    for frame in frames[1:]:
        stacked = stacked.vstack(frame)  # which takes a fiftieth of the time of `pl.concat`
    return stacked if len(frames) == 1 else stacked.rechunk()

"""Streams as feeds: every source of streams can feed a table."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, open_source
from strandline.connectors.sources.kafka import MESSAGE_OP
from strandline.connectors.tables.change_batch import ChangeBatch
from strandline.connectors.tables.feeds.base import Change, FeedPosition, FeedStep, TableFeed
from strandline.connectors.tables.feeds.disorder import DatedRows, DisorderBuffer
from strandline.connectors.tables.feeds.rejections import reject_nulls, reject_overlaps
from strandline.connectors.tables.rows import payload_schema
from strandline.connectors.tables.statements import InsertRows
from strandline.connectors.tables.store import TableStore
from strandline.core.errors import Span, at_place
from strandline.core.temporal import SECOND
from strandline.core.types import VARCHAR
from strandline.logical.catalog import BaseStream, Table
from strandline.logical.change_feed import DELETIONS, ChangeFeed
from strandline.runtime.kernels.batch import FROM, Mask

DIRECTORY: Final = "feed"  # of the source's own log, in that of the table
_ALL_ROWS: Final = 2**62


def source_stream(table: Table) -> BaseStream:
    """The stream that a table is fed from. Messages of a topic say by their content whether a row ends."""
    stream = table.origin
    if stream.source.function.lower() != "kafka" or not table.unique_key or stream.changes is not None:
        return stream
    columns = (*stream.columns, (MESSAGE_OP, VARCHAR))
    return replace(stream, columns=columns, changes=ChangeFeed(MESSAGE_OP, table.unique_key))


class SourceFeed(TableFeed):
    """The rows of a source, in its order: insertions, upserts where the table has a key, or what an operation column
    says. Where changes have times of their own, they are sorted within the disorder bound."""

    pause_seconds: ClassVar[float] = 0.05

    def __init__(self, table: Table, store: TableStore) -> None:
        super().__init__(table, store)
        self.stream = source_stream(table)
        directory = Path(table.directory) / DIRECTORY
        directory.mkdir(exist_ok=True)
        self.source = open_source(self.stream, directory)
        self._columns = frozenset(name for name, _ in self.stream.columns)
        self._payload = payload_schema(table)
        self._last_row = time.monotonic()
        self._is_silent = False
        has_times = table.kind == "changing" and table.time_column is not None
        self._buffer = DisorderBuffer(table, self.position) if has_times else None

    @classmethod
    def check(cls, table: Table, span: Span | None) -> None:
        with at_place(span):
            open_source(source_stream(table)).check(span)

    def identity(self) -> dict[str, object]:
        return self.source.identity()

    def open(self) -> None:
        if self.position.ended:
            return  # also if the source is gone: the table has all of it
        self.source.verify(self.position.at, self.position.seal)
        self.source.resume(self.position.at)
        if self._buffer is not None:
            self.store.hold(self.position.bound)
        self.source.open()

    def close(self) -> None:
        self.source.close()

    def poll(self, limit_rows: int) -> FeedStep | None:
        if self.position.ended:
            return None
        # Rows of a key must not overlap, in whatever order they come: all are looked at together.
        is_whole = self.table.kind == "temporal" and bool(self.table.key)
        start = self.position.at
        end, ended = self.source.advance(start, _ALL_ROWS if is_whole else limit_rows)
        if end == start and not ended:
            return self._rest()
        chunks = list(self.source.read(start, end, self._columns)) if end > start else []
        self._last_row = time.monotonic()
        sound = [reject_nulls(chunk, self.table, self._insertions(chunk.rows)) for chunk in chunks]
        rejected = [chunk.rejected for chunk in sound]
        after = replace(
            self.position,
            at=end,
            seal=self.source.seal(end),
            ended=ended,
            read=self.position.read + sum(chunk.count for chunk in chunks),
        )
        if self._buffer is None:
            rows = self._stack([chunk.rows for chunk in sound])
            if is_whole and rows.height:
                rows, overlaps = reject_overlaps(rows, self.table)
                rejected.append(overlaps)
            change = self._change(rows)
        else:
            change, after = self._sort(sound, after, ended)
        bad = pl.concat([pl.DataFrame(schema=REJECT_SCHEMA), *rejected])
        self.position = replace(after, rejected=after.rejected + bad.height)
        return FeedStep(change, self.position, bad, sum(chunk.rows.height for chunk in sound))

    def settle(self) -> None:
        if self._buffer is None:
            return
        self._buffer.forget(self.position.segments)
        if self.position.ended or self._is_silent:
            self.store.follow()
        else:
            self.store.hold(self.position.bound)

    # Times of changes

    def _sort(self, chunks: Iterable[Chunk], after: FeedPosition, ended: bool) -> tuple[Change, FeedPosition]:
        assert self._buffer is not None
        self._is_silent = False
        floor = self.store.hold(self.position.bound)
        for chunk in chunks:
            rows = self._dated(chunk)
            self._buffer.take(rows, chunk.partition or "", max(floor, self._buffer.bound), chunk.promise)
        buffer = self._buffer
        released = buffer.release_all() if ended else buffer.release(self.source.partitions(after.at))
        segments = buffer.save()
        after = replace(after, highs=dict(buffer.highs), bound=buffer.bound, late=buffer.late, segments=segments)
        return self._batch(released), after

    def _rest(self) -> FeedStep | None:
        """Nothing new. After a silence the queries do not wait for the feed: what waits for it takes effect."""
        idle_us = self.table.idle_after_us
        if self._buffer is None or self._is_silent or idle_us is None:
            return None
        if time.monotonic() - self._last_row < idle_us / SECOND:
            return None
        self._is_silent = True
        if not self._buffer.has_rows:
            self.store.follow()
            return None
        released = self._buffer.release_all()
        self.position = replace(self.position, bound=self._buffer.bound, segments=())
        return FeedStep(self._batch(released), self.position)

    def _batch(self, released: DatedRows) -> Change:
        if not released.rows.height:
            return InsertRows(released.rows)
        return ChangeBatch(released.rows, released.is_insertion, released.times)

    def _dated(self, chunk: Chunk) -> DatedRows:
        rows = self._stack([chunk.rows])
        times = chunk.rows.get_column(FROM).to_numpy() if chunk.rows.height else np.zeros(0, np.int64)
        return DatedRows(rows, self._insertions(chunk.rows), times)

    # Rows

    def _change(self, rows: pl.DataFrame) -> Change:
        payload = rows.select(list(self._payload))
        if self.stream.changes is not None:
            is_insertion = self._insertions(rows)
            if not is_insertion.all():
                return ChangeBatch(payload, is_insertion)
        return InsertRows(payload, "update" if self.table.unique_key else "error")

    def _insertions(self, rows: pl.DataFrame) -> Mask:
        changes = self.stream.changes
        if changes is None or not rows.height:
            return np.ones(rows.height, np.bool_)
        is_deletion: Mask = rows.get_column(changes.op_column).str.to_lowercase().is_in(DELETIONS).to_numpy()
        return ~is_deletion

    def _stack(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Rows with the columns of the table, and the operation."""
        names = list(self._payload)
        operation = [] if self.stream.changes is None else [self.stream.changes.op_column]
        chosen = [frame.select([*names, *operation]) for frame in frames if frame.height]
        if not chosen:
            return pl.DataFrame(schema={**self._payload, **dict.fromkeys(operation, pl.String())})
        return pl.concat(chosen, rechunk=True)

"""Bounded in-memory result buffer with retention by end time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, Times, times
from strandline.runtime.kernels.changes import coalesce, drop_replaced
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.result import VALID_FROM, VALID_UNTIL, from_result, result_schema, to_result
from strandline.runtime.snapshot_index import SnapshotIndex

DEFAULT_LIMIT: Final = 1_000_000  # elements, by default
_LEAST_TRIMMED: Final = 10_000  # elements, where the past is retained for some time
_TRIM_TO: Final = 0.75  # of the limit is left after forgetting: that costs something, so it is done now and then


@dataclass(frozen=True, slots=True)
class ResultChunks:
    """Result chunks since the last read, and the watermark with them.

    `begins` has for each chunk the watermark before it: what begins earlier is an element that was open, with its end.
    `number` is the next chunk to read. With `reset` these are all retained chunks, because new and old ones were
    merged; a reader then starts again with the changes from `since` on.
    """

    tables: list[pa.Table]
    begins: list[Instant]
    watermark: Instant
    number: int
    since: Instant
    reset: bool

    def frame(self, columns: Schema) -> pl.DataFrame:
        """All elements, each once; those whose end is not known have the end `OPEN`."""
        frame, again = self.sent(columns)
        return drop_replaced(frame, [column.id for column in columns], again)

    def sent(self, columns: Schema) -> tuple[pl.DataFrame, Mask]:
        """The elements as they were sent, and which of them were sent before, without their end."""
        frame = from_result(concat_results(self.tables, columns), columns)
        begin = np.repeat(np.array(self.begins, np.int64), [table.num_rows for table in self.tables])
        return frame, (times(frame, FROM) < begin) & (times(frame, UNTIL) != OPEN)


class ResultBuffer:
    """The elements of a result, in chunks as they were delivered, and at most about `limit` of them.

    Law  snapshot(kept, t) = snapshot(delivered, t) for every instant t from `since` on
    Law  what is valid at `since` begins where it began, also if its first chunks are older

        since           |
        a   [=====)     |            forgotten
        b   [=====)[====|==)         kept, from its beginning
        c               | [====)     kept
    """

    def __init__(
        self,
        columns: Schema,
        limit: int | None = DEFAULT_LIMIT,
        *,
        in_fragments: bool = True,
        keep_us: int | None = None,
    ) -> None:
        self.columns = columns
        self.limit = limit
        self.keep_us = keep_us  # how much of the past is retained at least; it replaces the limit
        self.index = SnapshotIndex(columns)
        self.in_fragments = in_fragments  # else every element is delivered whole, and equal ones that touch are two
        self.since: Instant = BEFORE_ALL
        self.evicted = 0  # elements
        self.rows = 0
        self.tables: list[pa.Table] = []
        self.begins: list[Instant] = []
        self._joined = 0  # chunks that were merged into the first table
        self._rows_after_trim = 0  # rows that were left when it was last shortened

    def add(self, tables: Iterable[pa.Table], begin: Instant = BEFORE_ALL) -> None:
        """Add chunks; `begin` is the watermark before them."""
        for table in tables:
            self.tables.append(table)
            self.begins.append(begin)
            self.rows += table.num_rows

    def chunks(self, after: int, watermark: Instant) -> ResultChunks:
        """The chunks from number `after` on."""
        head = 1 if self._joined else 0
        number = self._joined + len(self.tables) - head
        reset = after < self._joined
        new = slice(0 if reset else after - self._joined + head, None)
        return ResultChunks(self.tables[new], self.begins[new], watermark, number, self.since, reset)

    @property
    def exceeds_limit(self) -> bool:
        """True if eviction pays; where nearly everything is valid, the next attempt comes when there is more."""
        least = _LEAST_TRIMMED if self.keep_us is not None else self.limit
        return least is not None and self.rows > max(least, self._rows_after_trim / _TRIM_TO)

    def trim(self, now: Instant) -> ResultBuffer:
        """Evict the surplus elements that ended first; those valid at `now` stay."""
        whole = to_result(self.chunks(0, now).frame(self.columns), self.columns)
        ends = _instants(whole, VALID_UNTIL)
        trimmed = ResultBuffer(self.columns, self.limit, in_fragments=self.in_fragments, keep_us=self.keep_us)
        trimmed.since, trimmed.evicted = self.since, self.evicted
        trimmed._joined = self.chunks(0, now).number
        since = self._trim_point(ends, now)
        if since is not None:
            trimmed.since = since
            old = ends <= since
            trimmed.evicted += int(old.sum())
            retained, evicted = whole.filter(pa.array(~old)), whole.filter(pa.array(old))
            whole = _restore_starts(retained, evicted, trimmed.since, self.columns) if self.in_fragments else retained
        trimmed.add([whole.combine_chunks()])
        trimmed._rows_after_trim = trimmed.rows
        return trimmed

    def _trim_point(self, ends: Times, now: Instant) -> Instant | None:
        """The instant up to which elements are evicted that have ended; None if all of them stay."""
        if self.keep_us is not None:
            over = ends[ends <= now - self.keep_us]
            return int(over.max()) if len(over) else None
        assert self.limit is not None, "what has no limit is not trimmed"
        over = ends[ends <= now]
        surplus = min(len(over), len(ends) - int(_TRIM_TO * self.limit))
        return int(np.partition(over, surplus - 1)[surplus - 1]) if surplus > 0 else None


def concat_results(tables: Iterable[pa.Table], columns: Schema) -> pa.Table:
    schema = result_schema(columns)
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


def _restore_starts(retained: pa.Table, old: pa.Table, since: Instant, columns: Schema) -> pa.Table:
    """`retained` with the elements valid at `since` from their start on, of which `old` may have fragments."""
    starts = _instants(retained, VALID_FROM)
    # One without an end is not in fragments, and is found by its start when it ends.
    valid = (starts <= since) & (_instants(retained, VALID_UNTIL) != OPEN)
    near = from_result(pa.concat_tables([retained.filter(pa.array(valid)), old]), columns)
    ids = [column.id for column in columns]
    continues = _continues(near, int(valid.sum()), ids)
    if not continues.any():
        return retained
    codes, _ = group_codes(near, ids)
    concerned = np.isin(codes, codes[: len(continues)][continues])
    whole = coalesce(near.filter(pl.Series(concerned)), ids).filter(pl.col(UNTIL) > since)
    others = ~concerned[: len(continues)]
    return pa.concat_tables(
        [
            to_result(whole, columns),
            retained.filter(pa.array(valid)).filter(pa.array(others)),
            retained.filter(pa.array(~valid)),
        ]
    )


def _continues(frame: pl.DataFrame, count: int, ids: list[str]) -> Mask:
    """Which of the first `count` elements continue a later one of the frame: it is equal and ends where they begin."""
    first, older = frame.head(count), frame.slice(count)
    touching = older.filter(older.get_column(UNTIL).is_in(first.get_column(FROM).unique().implode()))
    if not touching.height:
        return np.zeros(count, np.bool_)
    touching = touching.with_columns(pl.col(UNTIL).alias(FROM))
    codes, _ = group_codes(pl.concat([first, touching]), [*ids, FROM])
    continues: Mask = np.isin(codes[:count], codes[count:])
    return continues


def _instants(table: pa.Table, column: str) -> Times:
    instants: Times = table.column(column).cast(pa.int64()).fill_null(FOREVER).to_numpy()
    return instants

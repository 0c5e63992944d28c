"""Window functions by the order of rows: LAG and LEAD, numbers and ranks, values and aggregates of frames by rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import AFTER_ALL, BEFORE_ALL, FOREVER, Instant
from strandline.core.types import Schema
from strandline.logical.expressions import ColumnRef, SortKey
from strandline.logical.plan import WindowCalls
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    frame_schema,
    gather,
    is_sorted,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.frames import Partitions
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.kernels.ranking import order_levels, order_ranks
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.totals import Arguments
from strandline.runtime.operators.window_values import INDEX, SUM, PartitionedRows, extreme_column
from strandline.runtime.state.keyed_log import KeyedLog


class OverRowsOperator(Operator):
    """Window functions that go by the order of rows: each row with the values of functions over its partition.

    Law    value of row i of a partition = f(rows from i + start to i + end), by time, `order`, `ties` and arrival
    State  per partition its last rows, as many as the functions look back, with their numbers and the sums up to them;
           the first rows and the last ones with a value, as far as functions read them; rows that wait
    Emits  every row, at its instant and in its order, with the values; one that `waits` for rows at that of the last of
           them, or when the stream has ended

        in        a....b..c        LAG            LEAD
        a         |                a NULL              a b
        b              |                b a               b c
        c                 |                c b               c NULL, when the stream has ended
    """

    def __init__(
        self,
        partition: tuple[str, ...],
        order: tuple[SortKey, ...],
        ties: tuple[str, ...],
        calls: WindowCalls,
        waits: int,
        per_instant: bool,
        schema: Schema,
    ) -> None:
        self.partition, self.order, self.calls = list(partition), order, calls
        self.waits, self.per_instant = waits, per_instant
        self.types = {column.id: column.type for column in schema}
        self.ties = tuple(SortKey(ColumnRef(column, self.types[column])) for column in ties)
        self.schema = (*schema, *(column for column, _ in calls))
        self.shape = frame_schema(schema)
        unbounded = [call.call for _, call in calls if call.call and call.frame.start is None]
        self.summed = Arguments.of(unbounded)
        self.in_frames = Arguments.of(call.call for _, call in calls if call.call and call.frame.start is not None)
        extremes = {(c.function, c.argument.id) for c in unbounded if c.argument and c.function in ("min", "max")}
        self.extremes = sorted(extremes)
        self.numbers_peers = any(call.function == "dense_rank" for _, call in calls)
        self.back, self.front, self.back_us = _reach(calls)
        read = [*partition, *(column.id for _, call in calls for column in call.columns)]
        kept = self.shape if waits else {name: self.shape[name] for name in dict.fromkeys([*read, FROM, UNTIL])}
        kept = {**kept, **{extreme_column(side): self.shape[side[1]] for side in self.extremes}}
        numbered = unbounded or self.front or any(call.function in ("row_number", "rank") for _, call in calls)
        kept = {**kept, INDEX: pl.Int64()} if numbered else kept
        self.watermark: Instant = BEFORE_ALL
        self.kept = frozenset(kept)
        self.held = KeyedLog(partition, kept, self.back + waits)
        if not per_instant:
            self.logs = {"held": self.held}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        batch = inputs[0]
        arrival = self._in_order(batch)
        arrived = batch.frame if arrival is None else gather(batch.frame, arrival)
        held = self._look_up(arrived, watermark.time == FOREVER)
        if not arrived.height and not held.height:
            return Batch.empty(self.schema)
        part = self._laid_out(held, arrived)
        rows, known = self._due(part, before)
        values = [part.values(call, rows).cast(polars_type(c.type)).alias(c.id) for c, call in self.calls]
        self._keep(part, held)
        if self.waits:
            payload = gather(pick(part.frame, list(self.shape)), part.order[rows])
            payload = with_series(payload, pl.Series(FROM, known), pl.Series(UNTIL, known + 1), *values)
            return Batch(pick(payload, list(frame_schema(self.schema))))
        # Back to the order of the input: a window function above may go by it.
        place = np.empty(arrived.height, np.int64)
        from_frame = part.order[rows] - held.height
        place[from_frame if arrival is None else arrival[from_frame]] = np.arange(len(rows))
        chosen = pl.Series(place.astype(np.uint32))
        frame = with_series(batch.frame, *(value.gather(chosen) for value in values))
        return Batch(pick(frame, list(frame_schema(self.schema))))

    def _in_order(self, batch: Batch) -> Index | None:
        """The order of the rows by time, and within an instant; None if they have it."""
        if self.order or self.ties:
            ranks = order_ranks(batch.frame, (*self.order, *self.ties))
            return np.lexsort([batch.start, *ranks][::-1])
        return None if is_sorted(batch.start) else np.argsort(batch.start, kind="stable")

    def _look_up(self, arrived: pl.DataFrame, ended: bool) -> pl.DataFrame:
        """The rows in state, in order, of the partitions that the slice concerns."""
        if self.per_instant:
            return pl.DataFrame(schema={INDEX: pl.Int64()})
        keys = arrived.select(self.partition)
        if (self.waits and ended) or (arrived.height and (not self.partition or self.held.has_mostly(keys))):
            return self.held.all()
        return self.held.find(keys)

    def _laid_out(self, held: pl.DataFrame, arrived: pl.DataFrame) -> PartitionedRows:
        """All rows by partition and in their order: those in state come first, and are older than the arrivals."""
        frame = stack([held, arrived]) if held.height else arrived
        codes, _ = group_codes(frame, [*self.partition, FROM] if self.per_instant else self.partition)
        order = group_order(codes)
        codes, time = codes[order], times(frame, FROM)[order]
        begins = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        levels = None
        if self.order:
            levels = np.zeros(len(codes), np.int64)
            is_new = order >= held.height
            levels[is_new] = order_levels(arrived, self.order)[order[is_new] - held.height]
        lines = Partitions(begins, time, levels)
        return PartitionedRows(frame, order, lines, held.height, self.summed, self.in_frames, self.numbers_peers)

    def _due(self, part: PartitionedRows, before: Instant) -> tuple[Index, Index]:
        """The rows that are emitted now, in order, and at which instant."""
        if not self.waits:
            rows = np.flatnonzero(part.is_new)
            return rows, part.lines.time[rows]
        places = np.arange(len(part.order))
        awaited = places + self.waits
        has_come = awaited < part.lines.last
        known = np.where(has_come, part.lines.time[np.where(has_come, awaited, 0)], AFTER_ALL)
        rows = np.flatnonzero((known >= before) & (known < self.watermark))
        return rows, known[rows]

    def _keep(self, part: PartitionedRows, held: pl.DataFrame) -> None:
        """Replace the rows in state by those that later rows will look at."""
        if self.per_instant:
            return
        rows = part.lines.ends(self.back + self.waits)
        more = [part.index <= self.front] if self.front else []
        if self.back_us is not None:
            in_time = part.lines.time >= self.watermark - self.back_us
            more.append(in_time)
            # And the last one before.
            more.append(np.append(in_time[1:] & (part.lines.first[1:] == part.lines.first[:-1]), False))
        more += [part.read_later(call, self.waits) for _, call in self.calls if call.ignores_nulls]
        if more:
            kept = np.logical_or.reduce(more)
            kept[rows] = True
            rows = np.flatnonzero(kept)
        frame = gather(part.frame, part.order[rows])
        added = [pl.Series(INDEX, part.index[rows])] if INDEX in self.kept else []
        added += [pl.Series(SUM + name, values[rows]) for name, values in part.sums.items()]
        for side in self.extremes:
            added.append(part.running_extremes(side)[pl.Series(rows.astype(np.uint32))].alias(extreme_column(side)))
        frame = with_series(frame, *added)
        names = [name for name in frame.columns if name in self.kept or name.startswith(SUM)]
        self.held.replace(held, pick(frame, names))


def _reach(calls: WindowCalls) -> tuple[int, int, int | None]:
    """How many of the last rows of a partition functions read, how many of the first, and how far back in time."""
    back, front, back_us = 1, 0, None
    for _, call in calls:
        if call.function == "lag" and not call.ignores_nulls:
            back = max(back, call.offset)
        if call.function in ("lag", "lead", "row_number", "rank", "dense_rank"):
            continue
        start, end = call.frame.start, call.frame.end or 0
        earliest = max(-(end if start is None else start), 0)
        if call.frame.unit == "rows":
            back = max(back, earliest)
        elif earliest:
            back_us = max(back_us or 0, earliest)
        if start is None and call.function in ("first_value", "nth_value") and not call.ignores_nulls:
            front = max(front, call.offset)
    return back, front, back_us

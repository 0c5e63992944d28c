"""Count windows: the last rows of a stream, or of each of its partitions."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.logical.expressions import ColumnRef, SortKey
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.kernels.batch import FROM, Batch, Index, Mask, Times, frame_schema, gather, times
from strandline.runtime.kernels.grouping import in_groups
from strandline.runtime.kernels.ranking import order_ranks
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import HeldRows

INDEX = "@index"  # 1-based number of a row in its partition


class CountWindowOperator(Operator):
    """Count window: keep the last `rows` rows of each partition; the window moves with every `slide`th row.

    Law    snapshot(out, t) = of the first c rows of a partition up to t, those with T - rows < index <= T,
           T = floor(c / slide) * slide
    State  the rows that are in the window or will be
    Emits  rows of the window up to the watermark: the end of a row is known when a later one arrives. In the form of
           changes, rows without an end when they come, and with it when they leave

        rows=2           a..b.c...
        a                [====)
        b                   [=…
        c                     […
    """

    def __init__(
        self,
        partition: tuple[str, ...],
        rows: int,
        slide: int,
        by_value: bool,
        schema: Schema,
        form: StreamForm = "intervals",
    ) -> None:
        self.partition = list(partition)
        self.rows, self.slide = rows, slide
        self.ties = tuple(SortKey(ColumnRef(c.id, c.type)) for c in schema) if by_value else ()
        self.watermark: Instant = BEFORE_ALL
        columns = {**frame_schema(schema), INDEX: pl.Int64()}
        self.held = HeldRows(columns) if form == "intervals" else KeyedLog(partition, columns, rows)
        self.logs = {"held": self.held}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        arrived = self._ordered(inputs[0])
        # After the end of its own streams others may go on: then everything was sent.
        everything = watermark.announces or before < watermark.time == FOREVER
        held = self._look_up(arrived, everything)
        rows = pl.concat(
            [held, arrived.with_columns(pl.lit(0, pl.Int64).alias(INDEX)).select(held.columns)], rechunk=True
        )
        if not rows.height:
            return Batch(rows.drop(INDEX))
        # Rows of a partition are contiguous, in order: those in state come first, and are older than the arrivals.
        rows, codes = in_groups(rows, self.partition)
        index, first, count = self._numbered(rows, codes)
        time = times(rows, FROM)
        start, seen = _time_of(_up(index, self.slide), index, first, count, time)
        end, over = _time_of(_up(index + self.rows, self.slide), index, first, count, time)
        left = rows.with_columns(pl.Series(INDEX, index)).filter(pl.Series(~over))
        if isinstance(self.held, KeyedLog):
            self.held.replace(held, left)
            end = np.where(over, end, FOREVER if self.watermark == FOREVER else OPEN)
            visible = seen & (start < end) & (over | everything | (start >= before))
        else:
            self.held.frame = left
            start, end = np.maximum(start, before), np.where(over, end, self.watermark)
            visible = seen & (start < end)
        return Batch(rows.drop(INDEX)).with_times(start, end).keep(visible)

    def _look_up(self, arrived: pl.DataFrame, everything: bool) -> pl.DataFrame:
        """The rows, in order, of the partitions that the slice concerns."""
        if isinstance(self.held, HeldRows):
            return self.held.frame
        keys = arrived.select(self.partition)
        if everything or (arrived.height and (not self.partition or self.held.has_mostly(keys))):
            return self.held.all()
        return self.held.find(keys)

    def _ordered(self, batch: Batch) -> pl.DataFrame:
        if not self.ties:
            return batch.ordered().frame
        order = np.lexsort([batch.start, *order_ranks(batch.frame, self.ties)][::-1])
        return gather(batch.frame, order)

    def _numbered(self, rows: pl.DataFrame, codes: Index) -> tuple[Index, Index, Index]:
        """The index of each row, and for its partition where it begins here and how many rows it has here."""
        begins = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        sizes = np.diff(np.append(begins, len(codes)))
        first, count = np.repeat(begins, sizes), np.repeat(sizes, sizes)
        held = rows.get_column(INDEX).to_numpy()
        base = np.repeat(np.maximum(held[begins], 1), sizes)  # the first row is held, or it is the first ever
        index: Index = base + np.arange(len(codes)) - first
        return index, first, count


def _up(index: Index, slide: int) -> Index:
    """The next multiple of the slide."""
    return index if slide == 1 else -(-index // slide) * slide


def _time_of(target: Index, index: Index, first: Index, count: Index, time: Times) -> tuple[Times, Mask]:
    """Arrival time of the row with the `target` index of the same partition, and whether it has arrived."""
    if target is index:  # without a slide a row is seen when it comes
        return time, np.ones(len(index), dtype=np.bool_)
    position = np.arange(len(index)) + target - index
    has_arrived = position < first + count
    return time[np.where(has_arrived, position, 0)], has_arrived

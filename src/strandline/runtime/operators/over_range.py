"""Window functions over frames by time: the sliding aggregate of a partition, at each of its rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.core.types import Column, Schema
from strandline.logical.expressions import AggregateCall
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Mask,
    frame_schema,
    gather,
    is_sorted,
    pick,
    stack,
    times,
    with_series,
    without,
)
from strandline.runtime.kernels.frames import frame_totals
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.operators.aggregate import SINCE, Fold, IncrementalAggregateOperator, Slice, replace_rows
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.group_events import GroupEvents, Timeline
from strandline.runtime.operators.totals import ROWS, is_total, total_column
from strandline.runtime.state.segments import SortedLog


class OverRangeOperator(IncrementalAggregateOperator):
    """Aggregates over frames by time: each row with the aggregates over the rows of its partition that lie from
    `start_us` before it, or from the first one on, to `end_us` before it.

    Law    value of a row at t = γ(rows of the partition at s, t - start <= s <= t - end)
    State  that of the sliding aggregate over the elements [s + end, s + start]: per partition the totals, and the rows
           that will still leave the frame; those that have not entered it yet
    Emits  every row, at its instant and in its order, with the aggregates

        start=4          a....b..c        COUNT
        frame of a       [===]            a 1
        frame of b            [===]       b 1
        frame of c               [===]    c 2
    """

    def __init__(
        self,
        partition: tuple[str, ...],
        start_us: int | None,
        end_us: int,
        aggregates: tuple[tuple[Column, AggregateCall], ...],
        source: Schema,
    ) -> None:
        # The type of a user-defined state may change from batch to batch, so that states cannot be kept apart.
        super().__init__(
            partition, aggregates, source, "intervals" if any(c.user for _, c in aggregates) else "changes"
        )
        self.start_us, self.end_us = start_us, end_us
        self.schema = (*source, *(column for column, _ in aggregates))
        self.columns = list(frame_schema(self.schema))
        self.rows = Batch.empty(source).frame
        self.runs = np.zeros(0, np.int64)  # of the rows of a slice
        self.entering = SortedLog(FROM)
        if end_us:
            self.logs = {**self.logs, "entering": self.entering}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        self.rows = inputs[0].frame
        if watermark.time <= self.watermark or (self.watermark < FOREVER == watermark.time and not self.rows.height):
            self.watermark = max(self.watermark, watermark.time)
            return self._nothing()
        before, self.watermark = self.watermark, watermark.time
        start = times(self.rows, FROM) + self.end_us
        end = np.full(len(start), FOREVER) if self.start_us is None else start - self.end_us + (self.start_us + 1)
        moved = (pl.Series(FROM, start), pl.Series(UNTIL, end))
        arrived = with_series(pick(self.rows, [*self.stored, FROM, UNTIL]), *moved)
        if self.end_us:
            self.entering.append(arrived)
            due = self.entering.take_before(watermark.time)
            arrived = stack(due) if due else arrived.head(0)
        leaving = self.valid.take_before(self.watermark)
        ended = stack(leaving) if leaving else without(arrived.head(0), (FROM,))
        return self._advance(arrived, ended, before, watermark)

    def _sweep(
        self,
        carried: pl.DataFrame,
        held: dict[tuple[str, str], pl.DataFrame],
        arrived: pl.DataFrame,
        ended: pl.DataFrame,
        staying: pl.DataFrame,
        probes: pl.DataFrame | None,
        before: Instant,
        watermark: Watermark,
    ) -> Batch:
        in_order = all(map(is_sorted, (times(self.rows, FROM), times(arrived, FROM), times(ended, UNTIL))))
        if not in_order or not all(is_total(call) for _, call in self.aggregates):
            return super()._sweep(carried, held, arrived, ended, staying, probes, before, watermark)
        return self._pass(carried, arrived, ended, arrived if probes is None else probes)

    def _pass(self, carried: pl.DataFrame, arrived: pl.DataFrame, ended: pl.DataFrame, asked: pl.DataFrame) -> Batch:
        """Totals alone: one pass over what enters, what leaves and what is asked for, each in order of time."""
        parts = [carried, ended, arrived, asked][: 4 if self.end_us else 3]
        groups, representative = carried.select(self.keys), np.zeros(1, np.int64)
        codes = np.zeros(sum(part.height for part in parts), np.int64)
        if self.keys:
            groups = stack([pick(part, self.keys) for part in parts])
            codes, representative = group_codes(groups, self.keys)
        sizes = np.cumsum([part.height for part in parts])
        at_carried, at_ended, at_arrived, *at_asked = np.split(codes, sizes[:-1])
        entering, time = self._deltas(arrived), times(asked, FROM)
        over = int(np.searchsorted(times(arrived, UNTIL), self.watermark))  # so many also leave
        self._keep_valid(arrived, entering, (np.arange(arrived.height) >= over) & (times(arrived, UNTIL) < OPEN))
        leaving = np.concatenate([at_ended, at_arrived[:over]])
        leaves_at = np.concatenate([times(ended, UNTIL), times(arrived, UNTIL)[:over]])
        rows = at_asked[0] if at_asked else at_arrived

        def accumulate(start: Index, came: Index, went: Index) -> Index:
            totals = np.zeros(len(representative), np.int64)
            totals[at_carried] = start
            removed = np.concatenate([went, came[:over]])
            enters_at = times(arrived, FROM)
            return frame_totals(at_arrived, enters_at, came, leaving, leaves_at, removed, rows, time, totals)

        sums = self._totals(accumulate, carried, entering, self._deltas(ended))
        self._carry_totals(
            {name: values[len(rows) :] for name, values in sums.items()}, carried, groups, representative
        )
        here = {name: values[: len(rows)] for name, values in sums.items()}
        columns = (total_column(column, call, here, self.stored) for column, call in self.aggregates)
        return Batch(pick(with_series(self.rows, *columns), self.columns))

    def _carry_totals(
        self, totals: dict[str, Index], carried: pl.DataFrame, groups: pl.DataFrame, representative: Index
    ) -> None:
        """Keep the totals of the groups that have rows."""
        left = np.flatnonzero(totals[ROWS] > 0)
        keys = gather(groups, representative[left]).get_columns() if self.keys else []
        sums = [pl.Series(name, values[left]) for name, values in totals.items()]
        replace_rows(
            self.totals, carried, pl.DataFrame([*keys, *sums, pl.Series(SINCE, np.zeros(len(left), np.int64))])
        )

    def _probes(self) -> pl.DataFrame | None:
        """Where rows enter the frame later than they come, nothing else happens at their instants."""
        return pick(self.rows, [*self.keys, FROM]) if self.end_us else None

    def _shown_runs(self, line: Timeline, events: GroupEvents, sums: dict[str, Index], watermark: Watermark) -> Mask:
        self.runs = self._runs(line, events)
        shown = np.zeros(len(line.code), np.bool_)
        shown[self.runs] = True
        shown[line.last] = True  # the states of user-defined aggregates that are carried on are those of shown runs
        return shown

    def _runs(self, line: Timeline, events: GroupEvents) -> Index:
        """The run of each row."""
        runs = np.empty(len(line.by_time), np.int64)
        runs[line.by_time] = line.run_of
        first = len(line.by_time) - len(events.origin[0]) if self.end_us else events.first_entering
        return runs[first : first + self.rows.height]

    def _emit(
        self,
        here: Slice,
        columns: list[pl.Series],
        folds: dict[str, Fold],
        groups: pl.DataFrame,
        representative: Index | None,
        at_carried: Index,
        before: Instant,
        watermark: Watermark,
    ) -> Batch:
        self._carry(here, here.line.time, folds, groups, representative)
        places = (np.cumsum(here.exists) - 1)[self.runs]
        chosen = pl.Series(places.astype(np.uint32))
        frame = with_series(self.rows, *(column.gather(chosen) for column in columns))
        return Batch(pick(frame, self.columns))

    def _nothing(self) -> Batch:
        return Batch.empty(self.schema)

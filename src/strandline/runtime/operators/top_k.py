"""The first rows in an order, at every instant, and the places of rows in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Column, Schema
from strandline.logical.expressions import SortKey
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Mask,
    Times,
    frame_schema,
    gather,
    is_sorted,
    stack,
    times,
)
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.kernels.intervals import window
from strandline.runtime.kernels.ranking import order_levels
from strandline.runtime.kernels.top_k import among_first, running_top
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog

NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements with their order: the number of their group, their level in it, and when they count."""

    frame: pl.DataFrame
    group: Index
    level: Index
    start: Times
    end: Times

    def take(self, rows: Index) -> _Elements:
        taken = (array[rows] for array in (self.group, self.level, self.start, self.end))
        return _Elements(gather(self.frame, rows), *taken)


class TopKOperator(Operator):
    """Top-k with ties: keep the first `limit` rows in an order, or of each partition, and the ties of the last of them;
    with a `rank_column`, also their rank.

    Law    snapshot(out, t) = the rows of snapshot(in, t) that fewer than `limit` rows precede
    State  the elements that may still enter the top k: those preceded by fewer than `limit` that end no earlier; and
           some older ones, until it pays to drop them
    Emits  for each the intervals in which it is in the top k, cut at the watermark

        limit=1, smallest first     3 [========)          3 [==)   [==)
                                    2    [==)        out  2    [==)
    """

    def __init__(
        self,
        partition: tuple[str, ...],
        order: tuple[SortKey, ...],
        limit: int | None,
        schema: Schema,
        rank_column: Column | None = None,
    ) -> None:
        self.partition, self.order, self.rank_column = partition, order, rank_column
        self.limit = NO_LIMIT if limit is None else limit
        self.shape = frame_schema(schema)
        self.named = list(frame_schema(schema if rank_column is None else (*schema, rank_column)))
        self.watermark: Instant = BEFORE_ALL
        self.valid = SortedLog(UNTIL)
        self.logs = {"valid": self.valid}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        arrived = inputs[0].frame.select(list(self.shape))
        held = pl.concat([arrived.head(0), *self.valid.take_before(self.watermark), *self.valid.rows()])
        frame = stack([held, arrived])
        group, _ = group_codes(frame, self.partition)
        start = np.concatenate([np.full(held.height, before), times(arrived, FROM)])
        elements = _Elements(frame, group, order_levels(frame, self.order), start, times(frame, UNTIL))
        self._keep(elements, held.height)
        return self._fragments(elements)

    def _keep(self, elements: _Elements, held: int) -> None:
        """Retain the elements that may still enter the top k."""
        goes_on = np.flatnonzero(elements.end >= self.watermark)
        by_end = goes_on[np.argsort(elements.end[goes_on], kind="stable")[::-1]]  # the last to end first
        useful = np.zeros(len(elements.end), np.bool_)
        useful[by_end] = self._among_first(elements, by_end, -elements.end[by_end], np.ones(len(by_end), np.bool_))
        old = int(np.searchsorted(goes_on, held))
        if old > 2 * int(useful[:held].sum()):
            self.valid.segments, held = [], 0
        self.valid.append(elements.frame.slice(held).filter(pl.Series(useful[held:])))

    def _fragments(self, elements: _Elements) -> Batch:
        """Intervals in which elements are in the top k, up to the watermark."""
        stays = elements.end >= self.watermark
        by_start = np.arange(len(stays)) if is_sorted(elements.start) else np.argsort(elements.start, kind="stable")
        seen = self._among_first(elements, by_start, elements.start[by_start], stays[by_start])
        rows = np.sort(by_start[seen])
        group, start = elements.group[rows], elements.start[rows]
        # Without arrivals and departures, the members stay in the top k all the time.
        updates = np.zeros(int(group.max(initial=-1)) + 1, np.bool_)
        updates[group[(start > elements.start.min(initial=self.watermark)) | ~stays[rows]]] = True
        is_unchanged = ~updates[group] if self.rank_column is None else np.zeros(len(rows), np.bool_)
        changing = elements.take(rows[~is_unchanged])
        element_of, rank, begin, end = (np.ascontiguousarray(column) for column in self._swept(changing).T)
        unchanged = is_unchanged & (start < self.watermark)
        kept = Batch(gather(elements.frame, rows[unchanged])).with_times(
            start[unchanged], np.full(unchanged.sum(), self.watermark)
        )
        swept = Batch(gather(changing.frame, element_of)).with_times(begin, end).frame
        if self.rank_column is not None:
            return Batch(swept.with_columns(pl.Series(self.rank_column.id, rank)).select(self.named))
        return Batch(pl.concat([kept.frame, swept]))

    def _swept(self, elements: _Elements) -> npt.NDArray[np.int64]:
        leaves = np.flatnonzero(elements.end < self.watermark)
        element = np.concatenate([np.arange(len(elements.start)), leaves])
        time = np.concatenate([elements.start, elements.end[leaves]])
        change = np.concatenate([np.ones(len(elements.start), np.int64), np.full(len(leaves), -1)])
        by_time = _by_group(elements.group[element], time)
        order = _by_group(elements.group, elements.level)
        group, level = elements.group[order], elements.level[order]
        place_of = np.empty(len(order), np.int64)
        place_of[order] = np.arange(len(order))
        differs = group[1:] != group[:-1]
        places = np.flatnonzero(np.concatenate([[True], differs, [True]])) if len(order) else np.zeros(1, np.int64)
        events = np.searchsorted(elements.group[element][by_time], group[places[:-1]])
        heads, tails = _same_level(differs | (level[1:] != level[:-1]))
        return running_top(
            time[by_time],
            element[by_time],
            change[by_time],
            np.append(events, len(time)),
            place_of,
            tails,
            heads,
            places,
            self.limit,
            self.rank_column is not None,
            self.watermark,
        )

    def _among_first(self, elements: _Elements, rows: Index, order_time: Times, is_retained: Mask) -> Mask:
        if self.limit == NO_LIMIT:
            return np.ones(len(rows), np.bool_)
        return among_first(elements.group[rows], elements.level[rows], order_time, is_retained, self.limit)


class TopKPrefilterOperator(Operator):
    """Before an exchange: drop the rows that can never be among the first, seen from those that were read with them.

    Law    top(window(out)) = top(window(in)), for every input that is added to both
    Emits  the rows that fewer than `limit` others precede that the window holds whenever it holds them
    """

    def __init__(
        self,
        partition: tuple[str, ...],
        order: tuple[SortKey, ...],
        limit: int,
        range_us: int | None,
        slide_us: int,
        offset_us: int = 0,
    ) -> None:
        self.partition, self.order, self.limit = partition, order, limit
        self.range_us, self.slide_us, self.offset_us = range_us, slide_us, offset_us

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        batch = inputs[0]
        start, end = window(batch.start, self.range_us, self.slide_us, self.offset_us)
        group, _ = group_codes(batch.frame, self.partition)
        if self.range_us is not None:
            # Earlier elements expire earlier, so only those that expire together are always present together.
            _, leaving = np.unique(end, return_inverse=True)
            _, group = np.unique(group * (int(leaving.max(initial=0)) + 1) + leaving, return_inverse=True)
        rows = np.arange(len(start)) if is_sorted(start) else np.argsort(start, kind="stable")
        level = order_levels(batch.frame, self.order)
        is_retained = np.ones(len(rows), np.bool_)
        first = np.empty(len(rows), np.bool_)
        first[rows] = among_first(group[rows], level[rows], start[rows], is_retained, self.limit)
        return batch.keep(first)


def _by_group(group: Index, values: Times | Index) -> Index:
    """The order of rows by group, and within a group by value."""
    if is_sorted(values):
        return group_order(group)
    by_value = np.argsort(values, kind="stable")
    return by_value[group_order(group[by_value])]


def _same_level(differs: Mask) -> tuple[Index, Index]:
    """First and last position of the ties of each position, from where a position differs from its predecessor."""
    if not len(differs):
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    tails = np.flatnonzero(np.append(differs, True))
    sizes = np.diff(tails, prepend=-1)
    return np.repeat(tails - sizes + 1, sizes), np.repeat(tails, sizes)

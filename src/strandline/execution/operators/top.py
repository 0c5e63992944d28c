"""The first rows in an order, at every instant."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.algebra.expressions import SortKey
from strandline.execution.batch import FROM, UNTIL, Batch, Index, frame_schema, gather, times
from strandline.execution.kernels.ranking import order_ranks
from strandline.execution.kernels.top import running_top
from strandline.execution.operators.base import Operator, Progress
from strandline.execution.state import SortedLog, State
from strandline.temporal import BEFORE_ALL, Instant
from strandline.types import Schema


class TopOperator(Operator):
    """Keep the first `limit` rows in an order, and all that are level with the last of them.

    Law    snapshot(out, t) = the rows of snapshot(in, t) that fewer than `limit` rows precede
    State  the elements that have not ended: any of them may be among the first when others have gone
    Emits  for each the pieces of time in which it is among the first, cut at the progress

        limit=1, smallest first     3 [========)          3 [==)   [==)
                                    2    [==)        out  2    [==)
    """

    def __init__(self, order: tuple[SortKey, ...], limit: int, schema: Schema) -> None:
        self.order, self.limit = order, limit
        self.shape = frame_schema(schema)
        self.progress: Instant = BEFORE_ALL
        self.valid = SortedLog(UNTIL)

    def step(self, inputs: list[Batch], progress: Progress) -> Batch:
        before, self.progress = self.progress, max(progress.until, self.progress)
        arrived = inputs[0].frame.select(list(self.shape))
        ended = self.valid.take_before(self.progress)
        held = pl.concat([arrived.head(0), *ended, *self.valid.rows()])
        elements = pl.concat([held, arrived], rechunk=True)
        ends = times(elements, UNTIL)
        self.valid.append(arrived.filter(pl.Series(times(arrived, UNTIL) >= self.progress)))
        start = np.concatenate([np.full(held.height, before), times(arrived, FROM)])
        leaves = np.flatnonzero(ends < self.progress)
        time = np.concatenate([start, ends[leaves]])
        element = np.concatenate([np.arange(len(start)), leaves])
        change = np.concatenate([np.ones(len(start), np.int64), np.full(len(leaves), -1)])
        by_time = np.argsort(time, kind="stable")
        ranks = order_ranks(elements, self.order)
        order = np.lexsort(ranks[::-1])
        place_of = np.empty(len(order), np.int64)
        place_of[order] = np.arange(len(order))
        events = (time[by_time], element[by_time], change[by_time])
        who, begin, end = running_top(*events, place_of, _last_level(ranks, order), self.limit, self.progress)
        return Batch(gather(elements, who)).with_times(begin, end)

    def restore(self, state: State) -> None:
        self.progress = state.numbers.get("progress", BEFORE_ALL)
        self.valid = SortedLog(UNTIL, state.segments.get("valid", ()))

    def save(self) -> State:
        return State({"progress": self.progress}, {"valid": self.valid.segments})


def _last_level(ranks: list[Index], order: Index) -> Index:
    """For each place the last place whose element is level with that at this one."""
    differs = np.zeros(max(len(order) - 1, 0), np.bool_)
    for rank in ranks:
        ordered = rank[order]
        differs |= ordered[1:] != ordered[:-1]
    ends = np.flatnonzero(np.append(differs, True)) if len(order) else np.zeros(0, np.int64)
    return np.repeat(ends, np.diff(ends, prepend=-1))

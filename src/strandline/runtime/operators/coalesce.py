"""Coalesce: adjacent elements of equal payload as one, within a slice or over any number of slices."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.kernels.adjacent import join_adjacent
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, frame_schema, keep, pick, stack, times
from strandline.runtime.kernels.changes import coalesce
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import HeldRows


class CoalesceOperator(Operator):
    """Coalesce elements that were cut, at the watermark or between two equal values.

    Law    snapshot(out, t) = snapshot(in, t)
    State  the elements that end at the watermark and may go on there; none for intervals without `longest_us`
    Emits  as changes, an element without an end when it begins, and with it when it does not go on; as intervals, what
           can be joined within the slice. With `longest_us` an element comes when it does not go on or is that long
           (ζ of algorithm 17). It may start before the slice then, so such an operator is the last one of a plan

        in    a  [====)[====)[==)         out   a  [===========)
    """

    def __init__(self, schema: Schema, form: StreamForm = "intervals", longest_us: int | None = None) -> None:
        self.columns = [column.id for column in schema]
        self.form, self.longest_us = form, longest_us
        self.watermark: Instant = BEFORE_ALL
        self.open = HeldRows(frame_schema(schema))
        self.logs = {"open": self.open}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        arrived = pick(inputs[0].frame, self.open.frame.columns)
        if self.form == "intervals":
            if self.longest_us is None:
                return Batch(join_adjacent(arrived, self.columns))
            return Batch(self._join_up_to(self.longest_us, arrived))
        if self.watermark == before and not watermark.announces:
            return Batch(self.open.frame.head(0))
        frame = pick(coalesce(stack([self.open.frame, arrived]), self.columns), arrived.columns)
        start, end = times(frame, FROM), times(frame, UNTIL)
        is_open = (end == self.watermark) & (end < FOREVER)
        self.open.frame = keep(frame, is_open)
        shown = ~is_open | (start >= before) | watermark.announces
        return Batch(frame).with_times(start, np.where(is_open, OPEN, end)).keep(shown)

    def _join_up_to(self, longest_us: int, arrived: pl.DataFrame) -> pl.DataFrame:
        """The elements that do not go on; those that may, and are not long enough, are held."""
        frame = join_adjacent(stack([self.open.frame, arrived]), self.columns, longest_us)
        start, end = times(frame, FROM), times(frame, UNTIL)
        may_go_on = (end == self.watermark) & (end < FOREVER) & (end - start < longest_us)
        self.open.frame = keep(frame, may_go_on)
        return keep(frame, ~may_go_on)

"""Coalesce: adjacent elements of equal payload as one, over any number of slices."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, frame_schema, times
from strandline.runtime.kernels.changes import coalesce
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import HeldRows


class CoalesceOperator(Operator):
    """Coalesce elements that were cut at the watermark, and send the result in the form of changes.

    Law    snapshot(out, t) = snapshot(in, t)
    State  the elements that end at the watermark: they may go on there
    Emits  an element without an end when it begins, and with it when it does not go on

        in    a  [====)[====)[==)         out   a  [===========)
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        self.open = HeldRows(frame_schema(schema))
        self.logs = {"open": self.open}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        if self.watermark == before and not watermark.announces:
            return Batch(self.open.frame.head(0))
        arrived = inputs[0].frame.select(self.open.frame.columns)
        frame = coalesce(pl.concat([self.open.frame, arrived], rechunk=True), self.columns).select(arrived.columns)
        start, end = times(frame, FROM), times(frame, UNTIL)
        is_open = (end == self.watermark) & (end < FOREVER)
        self.open.frame = frame.filter(pl.Series(is_open))
        shown = ~is_open | (start >= before) | watermark.announces
        return Batch(frame).with_times(start, np.where(is_open, OPEN, end)).keep(shown)

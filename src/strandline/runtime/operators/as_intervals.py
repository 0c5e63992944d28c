"""From the form of changes to intervals."""

from __future__ import annotations

import numpy as np

from strandline.core.temporal import BEFORE_ALL, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, frame_schema, keep, pick, stack, times
from strandline.runtime.kernels.changes import begun_and_ended, drop_replaced
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import HeldRows


class AsIntervalsOperator(Operator):
    """Cut the elements whose end is not known at the watermark.

    Law    snapshot(out, t) = snapshot(in, t)
    State  the elements without an end
    Emits  an interval of each of them up to the watermark, in every slice

        in    a  [==…    [=========)          out   a  [==)[====)[=)
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        self.open = HeldRows(frame_schema(schema))
        self.logs = {"open": self.open}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark = until
        if until == before:
            return Batch(self.open.frame.head(0))
        arrived = pick(inputs[0].frame, self.open.frame.columns)
        begun, ended = begun_and_ended(arrived, before)
        frame = stack([self.open.frame, begun, ended])
        again = np.arange(frame.height) >= frame.height - ended.height
        frame = drop_replaced(frame, self.columns, again)
        start, end = times(frame, FROM), times(frame, UNTIL)
        is_open = end == OPEN
        self.open.frame = keep(frame, is_open)
        start, end = np.maximum(start, before), np.where(is_open, until, end)
        return Batch(frame).with_times(start, end).keep(start < end)

"""From intervals to the form of changes."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, keep, stack, times, with_series
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog


class AsChangesOperator(Operator):
    """Send an element when it begins, and again when it ends, although its end is known.

    Law    snapshot(out, t) = snapshot(in, t)
    State  the elements that outlast the watermark, by their end
    Emits  an element that outlasts the watermark without its end; with it in the slice in which it ends

        in    a  [=========)          out   a  [==…    [=========)
    """

    def __init__(self) -> None:
        self.watermark: Instant = BEFORE_ALL
        self.lasting = SortedLog(UNTIL)
        self.logs = {"lasting": self.lasting}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark = until
        arrived = inputs[0].frame
        outlasts = times(arrived, UNTIL) > until
        sent = [keep(arrived, ~outlasts), *self._ended(until)]
        begun = keep(arrived, outlasts)
        self.lasting.append(begun)
        if watermark.announces:
            begun = stack([begun, *(keep(frame, times(frame, FROM) < before) for frame in self.lasting.rows())])
        return Batch(stack([with_series(begun, pl.Series(UNTIL, np.full(begun.height, OPEN))), *sent]))

    def _ended(self, until: Instant) -> list[pl.DataFrame]:
        """The elements that end by the watermark; at the end of time, those that never do, too."""
        if until < FOREVER:
            return self.lasting.take_before(until + 1)
        rows = self.lasting.rows()
        self.lasting.segments = []
        return rows

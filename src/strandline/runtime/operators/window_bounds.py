"""Window bounds: elements with the bounds of the time window that was finished last."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.core.types import Column
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Times, frame_schema, gather
from strandline.runtime.kernels.intervals import expand
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog


class WindowBoundsOperator(Operator):
    """Add the bounds [T - range, T) of the window that was finished last; cut elements where a window ends.

    Law    snapshot(out, t) = the elements of in with start and end of the window of T = floor((t + 1) / slide) * slide
    State  what is left of elements that reach beyond the slice
    Emits  the intervals that begin in the slice

        range=8 slide=4   a    [=======)        out   a,-4,4    [===)
                          -----3---7---11             a,0,8         [===)

    Windows change at the instants k * slide - 1, and so do the elements of a window with this slide: those are cut into
    whole slides. Cumulative windows begin at the last multiple of the range before T. An offset is subtracted from all
    times, and added to the results.
    """

    def __init__(
        self, range_us: int, slide_us: int, cumulative: bool, start: Column, end: Column, offset_us: int = 0
    ) -> None:
        self.range_us, self.slide_us, self.cumulative, self.offset_us = range_us, slide_us, cumulative, offset_us
        self.columns = [(name, frame_schema((name,))[name.id]) for name in (start, end)]
        self.rest = SortedLog(FROM)
        self.logs = {"rest": self.rest}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        batch = Batch.concat([*(Batch(f) for f in self.rest.take_before(watermark.time)), inputs[0]])
        start, end, slide, moved = batch.start, batch.end, self.slide_us, self.offset_us
        assert not len(end) or end.max() < FOREVER, "the elements of a finite window end"
        number = (start + 1 - moved) // slide  # of the window at the start of an element
        reach = np.minimum(end, watermark.time)
        last = -((-((reach if watermark.time < FOREVER else end) + 1 - moved)) // slide)
        count = np.maximum(last - number, 1)  # windows that are finished before the slice or the element ends
        rows, window = expand(number, count)
        begin = np.maximum(start[rows], window * slide + moved - 1)
        until = np.minimum(end[rows], (window + 1) * slide + moved - 1)
        fragments = Batch(gather(batch.frame, rows)).with_times(begin, until)
        next_start = (number + count) * slide + moved - 1
        goes_on = next_start < end
        self.rest.append(batch.keep(goes_on).frame.with_columns(pl.Series(FROM, next_start[goes_on])))
        return Batch(self._with_bounds(fragments.frame, window * slide + moved))

    def _with_bounds(self, frame: pl.DataFrame, end: Times) -> pl.DataFrame:
        start = end - self.range_us
        if self.cumulative:
            start = (end - 1 - self.offset_us) // self.range_us * self.range_us + self.offset_us
        added = [pl.Series(c.id, at).cast(kind) for (c, kind), at in zip(self.columns, (start, end), strict=True)]
        return frame.select(pl.exclude(FROM, UNTIL), *added, FROM, UNTIL)

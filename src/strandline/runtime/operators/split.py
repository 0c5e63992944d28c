"""Split: the same snapshots with more cuts."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.runtime.kernels.batch import FROM, Batch, gather
from strandline.runtime.kernels.intervals import expand
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog


class SplitOperator(Operator):
    """Split elements into intervals of at most `length_us`; with length 1 the output is a chronon stream.

    Law    snapshot(out, t) = snapshot(in, t)
    State  what is left of elements that reach beyond the slice
    Emits  the intervals that begin in the slice

        length=3   a [=======)     out   a [==)[==)[=)

    An unbounded element has ever more intervals. For a window that holds `repeats` of them the first `repeats` are
    enough, if these are unbounded, too: an expiring one would be replaced by an equal one. A window that counts rows
    holds the same from interval to interval once `repeats` of them have begun after the last change of any element;
    all elements of a partition are in the same shard then.
    """

    def __init__(self, length_us: int, repeats: int | None = None, by_rows: bool = False) -> None:
        self.length_us, self.repeats, self.by_rows = length_us, repeats, by_rows
        self.rest = SortedLog(FROM)
        self.logs = {"rest": self.rest}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        batch = Batch.concat([*(Batch(f) for f in self.rest.take_before(watermark.time)), inputs[0]])
        start, end = batch.start, batch.end
        reach = np.minimum(end, watermark.time)
        count = -((start - reach) // self.length_us)  # intervals that begin before the slice or the element ends
        endless = reach == FOREVER
        if endless.any():
            assert self.repeats is not None, "unbounded elements are split for a window only"
            count[endless] = self.repeats
            if self.by_rows:
                last_change = max(int(start.max()), int(end[~endless].max(initial=start.min())))
                count[endless] += (last_change - start[endless]) // self.length_us
        rows, number = expand(np.zeros(len(batch), dtype=np.int64), count)
        begin = start[rows] + number * self.length_us
        # Unsigned, because from before 1970 to the end of time is further than 63 bits. Near the end of time the sum
        # would overflow; the element ends first.
        left_over = end[rows].view(np.uint64) - begin.view(np.uint64)
        until = np.where(left_over <= np.uint64(self.length_us), end[rows], begin + self.length_us)
        until = np.where(endless[rows], FOREVER, until)
        fragments = Batch(gather(batch.frame, rows)).with_times(begin, until)
        goes_on = (end > watermark.time) & (start + count * self.length_us < end)
        left = batch.keep(goes_on)
        moved = start[goes_on] + count[goes_on] * self.length_us
        self.rest.append(left.frame.with_columns(pl.Series(FROM, moved)))
        return fragments

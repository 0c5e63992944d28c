"""The reorder buffer: from arrivals to complete, ordered slices."""

from __future__ import annotations

import numpy as np

from strandline.runtime.kernels.batch import FROM, Batch
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog


class ReorderOperator(Operator):
    """Reorder buffer: hold back the elements that start at or after the watermark; release the rest in order of start.

    Law    snapshot(out, t) = snapshot(in, t) for every t before the watermark
    State  the elements beyond the watermark, in runs sorted by start
    Emits  elements in order of start, those that start together in order of arrival

    This is the one operator whose input need not be a slice: any elements may come, as long as none of them starts
    before an earlier watermark.
    """

    def __init__(self) -> None:
        self.waiting = SortedLog(FROM)
        self.logs = {"waiting": self.waiting}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        released = self.waiting.take_before(watermark.time)
        arrived = inputs[0].ordered()
        due = int(np.searchsorted(arrived.start, watermark.time))
        self.waiting.append(arrived.frame.slice(due))
        return Batch.concat([Batch(frame) for frame in (*released, arrived.frame.head(due))]).ordered()

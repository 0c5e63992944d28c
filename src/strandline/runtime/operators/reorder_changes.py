"""The reorder buffer of changes: from a log of changes to complete slices."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import ALWAYS, BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, is_sorted, keep, pick, stack, times, with_series
from strandline.runtime.kernels.changes import drop_replaced
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog

CHANGED = "@changed"  # when a change takes effect: at the start of an element, or at its end


class ReorderChangesOperator(Operator):
    """Hold back the changes that take effect at or after the watermark; release the rest as a slice.

    Law    snapshot(out, t) = snapshot(in, t) for every t before the watermark
    State  the changes beyond the watermark, in runs sorted by when they take effect
    Emits  an element without an end when it begins, and with it when it ends; once, if it does both in one slice;
           nothing of one that ends when it begins

        in    +a(1)  +b(2)  -a(3)            up to 3    a [1, …   b [2, …      up to 4    a [1, 3)

    An element that has not ended when everything ends comes from the source with the end `FOREVER`.

    What a table had before the query began is there `ALWAYS`, before everything else. A join takes it as it comes
    (`releases_early`), whatever the watermark: it may be more than fits in memory as one slice. What ends one of these
    elements is a change of its own then, also in the same slice.
    """

    def __init__(self, schema: Schema) -> None:
        self.releases_early = False
        self.columns = [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        self.waiting = SortedLog(CHANGED)
        self.logs = {"waiting": self.waiting}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        frame = inputs[0].frame
        start, end = times(frame, FROM), times(frame, UNTIL)
        changed = np.where(end == OPEN, start, end)
        arrived = with_series(frame, pl.Series(CHANGED, changed))
        if not is_sorted(changed):
            arrived = arrived.sort(CHANGED, maintain_order=True)
        due_before = max(self.watermark, ALWAYS + 1) if self.releases_early else self.watermark
        due = arrived.height if self.watermark == FOREVER else int((changed < due_before).sum())
        released = [*self.waiting.take_before(self.watermark), arrived.head(due)]
        self.waiting.append(arrived.slice(due))
        out = stack([pick(part, frame.columns) for part in released if part.height] or [frame.head(0)])
        # What begins and ends within the slice comes once, and not at all if both are at one instant. An element that
        # began earlier is not among the open ones.
        first = max(before, ALWAYS + 1) if self.releases_early else before
        ended = (times(out, UNTIL) != OPEN) & (times(out, FROM) >= first)
        whole = drop_replaced(out, self.columns, ended)
        start, end = times(whole, FROM), times(whole, UNTIL)
        return Batch(keep(whole, (start < end) | (start < first)))

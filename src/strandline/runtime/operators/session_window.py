"""Session windows: the rows of a stream, or of each of its partitions, for as long as they keep coming."""

from __future__ import annotations

import numpy as np

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, Batch, frame_schema, keep, stack, times
from strandline.runtime.kernels.grouping import in_groups
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import HeldRows


class SessionWindowOperator(Operator):
    """Session window: keep each row until no other row of its partition has come for `gap_us`.

    Law    snapshot(out, t) = the rows up to t that a chain of rows, each less than the gap after the one before, joins
           to t
    State  the rows of open sessions
    Emits  their rows up to the watermark: the end of a session is known after the gap

        gap=4            a..b.......c
        a                [======)
        b                   [===)
        c                           [===)
    """

    def __init__(self, partition: tuple[str, ...], gap_us: int, schema: Schema) -> None:
        self.partition, self.gap_us = list(partition), gap_us
        self.shape = frame_schema(schema)
        self.watermark: Instant = BEFORE_ALL
        self.held = HeldRows(self.shape)
        self.logs = {"held": self.held}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        rows = stack([self.held.frame, inputs[0].ordered().frame.select(list(self.shape))])
        if not rows.height:
            return Batch(rows)
        # Rows of a partition are contiguous, in order of time: those in state are older than the arrivals.
        rows, codes = in_groups(rows, self.partition)
        time = times(rows, FROM)
        begins = np.concatenate(([True], (codes[1:] != codes[:-1]) | (time[1:] - time[:-1] >= self.gap_us)))
        session = np.cumsum(begins) - 1
        last = np.append(np.flatnonzero(begins)[1:], len(time)) - 1
        end = (time[last] + self.gap_us)[session]
        fragments = Batch(rows).with_times(np.maximum(time, before), np.minimum(end, self.watermark))
        self.held.frame = keep(rows, end > self.watermark)
        return fragments.keep(fragments.start < fragments.end)

"""Change streams of a result: insertions and deletions."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.logical.plan import ChangeKind
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, frame_schema, gather, keep, stack, times
from strandline.runtime.kernels.changes import CHANGE, TIME, begun_and_ended, has_ended, sum_changes
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import SortedLog


class ChangeStreamOperator(Operator):
    """Each element for the one instant at which it is inserted, or at which it is deleted.

    Law    snapshot(out, t) = snapshot(in, t) - snapshot(in, t - 1), or the other way round
    State  the elements whose end is known and not reached, in order of their end
    Emits  the net of all that begins and ends at an instant: an interval that continues an equal one is no change

        in       a [===)[==)     insert   a [)
                                 delete            a [)

    In the form of changes an element comes when it begins and, if its end was not known, again when it ends: nothing is
    kept of it in between.
    """

    def __init__(self, kind: ChangeKind, schema: Schema, input_form: StreamForm = "intervals") -> None:
        self.sign = 1 if kind == "insert" else -1
        self.shape = frame_schema(schema)
        self.columns = [column.id for column in schema]
        self.takes_changes = input_form == "changes"
        self.watermark: Instant = BEFORE_ALL
        self.ends = SortedLog(UNTIL)
        self.logs = {"ends": self.ends}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        arrived = inputs[0].frame.select(list(self.shape))
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        begun, again = begun_and_ended(arrived, before) if self.takes_changes else (arrived, arrived.head(0))
        ended = self.ends.take_before(watermark.time)
        ending = pl.concat([begun, again]) if again.height else begun
        ends = times(ending, UNTIL)
        over = has_ended(ends, watermark.time)
        self.ends.append(keep(ending, ~over & (ends < FOREVER) & (ends != OPEN)))
        leaving = pl.concat([*ended, keep(ending, over)])
        events = stack([begun, leaving])
        time = np.concatenate([times(begun, FROM), times(leaving, UNTIL)])
        change = np.concatenate([np.ones(begun.height, np.int64), np.full(leaving.height, -1)])
        codes, representative = group_codes(events, self.columns)
        net = sum_changes(codes, time, change * self.sign).filter(pl.col(CHANGE) > 0)
        rows = np.repeat(np.arange(net.height), net.get_column(CHANGE).to_numpy())
        payload = gather(events, representative[net.get_column("code").to_numpy()[rows]])
        at = times(net, TIME)[rows]
        return Batch(payload).with_times(at, at + 1)

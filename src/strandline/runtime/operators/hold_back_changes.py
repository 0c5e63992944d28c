"""The buffer above a part of a plan that runs ahead of what reads it, in the form of changes."""

from __future__ import annotations

import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, keep, pick, times
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.reorder_changes import ReorderChangesOperator
from strandline.runtime.state.segments import State

_BELOW = "below"  # how far the input had come, in a saved state


class HoldBackChangesOperator(Operator):
    """Hold back the slices of an input whose watermark is ahead; release them by the own one.

    Law    snapshot(out, t) = snapshot(in, t) for every t before the watermark
    State  the changes beyond the watermark, in runs sorted by when they take effect
    Emits  what `ReorderChangesOperator` does

    The input comes in slices up to `Watermark.below`: an element whose end is known comes once, if it begins and ends
    in one slice. For a reader that sees less of time it has two changes, as in a log. What is announced again, since a
    sink has lost it, came before: it waits here, or is known to those above.
    """

    def __init__(self, schema: Schema) -> None:
        self.below: Instant = BEFORE_ALL
        self.reorder = ReorderChangesOperator(schema)
        self.logs = self.reorder.logs

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        frame = inputs[0].frame
        start, end = times(frame, FROM), times(frame, UNTIL)
        begins = start >= self.below
        self.below = max(self.below, watermark.below)
        begun = keep(frame, begins).with_columns(pl.lit(OPEN, pl.Int64).alias(UNTIL))
        changes = pl.concat([begun, keep(frame, end != OPEN)])
        if watermark.time == FOREVER:  # what ends then has waited since the end of the streams below
            held = [pick(part, frame.columns) for part in self.reorder.waiting.rows()]
            self.reorder.waiting.segments = []
            changes = pl.concat([*held, changes])
        return self.reorder.step([Batch(changes)], watermark)

    def restore(self, state: State) -> None:
        self.reorder.restore(state)
        self.below = state.numbers.get(_BELOW, BEFORE_ALL)

    def save(self) -> State:
        saved = self.reorder.save()
        return State({**saved.numbers, _BELOW: self.below}, saved.segments)

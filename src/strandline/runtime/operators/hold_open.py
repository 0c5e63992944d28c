"""Open elements of a stream of changes, for sinks that lose them with their process."""

from __future__ import annotations

import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import UNTIL, Batch
from strandline.runtime.kernels.changes import begun_and_ended
from strandline.runtime.kernels.hashing import hash_rows
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.hash_join import by_hash
from strandline.runtime.state.cancelling_log import CancellingLog, signed
from strandline.runtime.state.segments import HASH


class HoldOpenOperator(Operator):
    """Pass changes on, and keep the elements without an end: what a table has is in no other state of the plan.

    Law    out = in
    State  the elements without an end
    Emits  the input; where open elements are announced again, all of them

        in    a  [==…        [=====)          out   a  [==…        [=====)
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        self.open = CancellingLog(self.columns)
        self.logs = {"open": self.open}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        begun, ended = begun_and_ended(inputs[0].frame, before)
        self._keep(begun.filter(pl.col(UNTIL) == OPEN), ended)
        if not watermark.announces or self.watermark == FOREVER:
            return Batch(pl.concat([begun, ended], rechunk=True))
        held = self.open.all()
        ends_known = begun.filter(pl.col(UNTIL) != OPEN)
        parts = [ends_known, ended] if held is None else [ends_known, ended, held.select(begun.columns)]
        return Batch(pl.concat(parts, rechunk=True))

    def _keep(self, begun: pl.DataFrame, ended: pl.DataFrame) -> None:
        """Add the elements that begin, and cancel those that have ended: by their identity, which has no end."""
        rows = pl.concat([signed(begun, 1), signed(ended, -1)])
        if not rows.height or self.watermark == FOREVER:
            return
        rows = by_hash(rows.with_columns(pl.Series(HASH, hash_rows(rows, self.columns))))
        self.open.append(rows.drop(HASH), rows.get_column(HASH).to_numpy(), self.watermark)

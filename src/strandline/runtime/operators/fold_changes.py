"""Change feeds: from rows that insert and delete to elements."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.logical.change_feed import SIGNS
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.kernels.batch import FROM, Batch, frame_schema, gather, keep, stack, times
from strandline.runtime.kernels.folding import LIVE, fold_equal_rows, fold_keys
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.keyed_log import KeyedLog


class FoldChangesOperator(Operator):
    """The elements of a change feed.

    Law    snapshot(out, t) = the rows inserted up to t minus those deleted up to t; with a key, of each key the row of
           its last change up to t, if that is no deletion
    State  the elements that are not deleted, by their values or by their key
    Emits  an element without an end when it is inserted, and with it when it is deleted; as intervals, every live
           element up to the watermark in every slice

        in    +a    +b  -a    +a         out   a  [=====)     [====
                                               b        [==========

    All rows of an instant count together, so they must have come: the input is complete up to the watermark. Deletions
    of what is not there are in `unmatched` after a step.
    """

    def __init__(self, stream: str, op_column: str, key: tuple[str, ...], schema: Schema, form: StreamForm) -> None:
        self.stream, self.op_column, self.form = stream, op_column, form
        shape = frame_schema(tuple(column for column in schema if column.id != op_column))
        self.payload = [name for name in shape if not name.startswith("@")]
        self.key, self.has_key = list(key) or self.payload, bool(key)
        self.watermark: Instant = BEFORE_ALL
        self.live = KeyedLog(self.key, {name: shape[name] for name in (*self.payload, FROM)})
        self.logs = {"live": self.live}
        self.names = {column.id: column.name for column in schema}
        self.unmatched = pl.DataFrame()

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, self.watermark = self.watermark, max(watermark.time, self.watermark)
        arrived = inputs[0].frame
        everything = self.form == "intervals" or watermark.announces or self.watermark == FOREVER
        if everything or (arrived.height and self.live.has_mostly(arrived.select(self.key))):
            held = self.live.all()
        else:
            held = self.live.find(arrived.select(self.key))
        columns = [*self.payload, FROM]
        rows = stack([held.select(columns), arrived.select(columns)])
        changes = arrived.get_column(self.op_column).str.to_lowercase().replace_strict(SIGNS, return_dtype=pl.Int64)
        sign = np.concatenate([np.ones(held.height, np.int64), changes.to_numpy()])
        codes, _ = group_codes(rows, self.key)
        if self.has_key:
            payload, _ = group_codes(rows, self.payload)
            folded = fold_keys(codes, times(rows, FROM), sign, payload, held.height)
        else:
            folded = fold_equal_rows(codes, times(rows, FROM), sign, held.height)
        self.unmatched = gather(arrived, np.sort(folded.unmatched) - held.height).rename(self.names)
        elements = gather(rows, folded.rows).with_columns(pl.Series(FROM, folded.start))
        is_live = folded.end == LIVE
        self.live.replace(held, keep(elements, is_live))
        start, end = folded.start, folded.end
        if self.form == "intervals":
            start, end = np.maximum(start, before), np.where(is_live, self.watermark, end)
            return Batch(elements).with_times(start, end).keep(start < end)
        end = np.where(is_live, OPEN if self.watermark < FOREVER else FOREVER, end)
        return Batch(elements).with_times(start, end).keep((start >= before) | ~is_live | (end == FOREVER) | everything)

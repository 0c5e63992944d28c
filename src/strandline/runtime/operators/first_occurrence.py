"""First values: which element of a group brings a value that the group did not have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.core.types import Column, Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Index, Mask, gather, keep
from strandline.runtime.kernels.grouping import group_codes, identities, pair_codes
from strandline.runtime.kernels.hashing import hash_rows
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import HashedLog


class FirstOccurrenceOperator(Operator):
    """Each element with copies of some values, NULL unless they come for the first time; no element ever ends.

    Law    the non-NULL copies in snapshot(out, t) = the different non-NULL values in snapshot(in, t), group by group
    State  for each value what its groups have had
    Emits  each element once, with its interval

        in       a..a..b...
        copy     a  –  b
    """

    def __init__(self, keys: Sequence[str], values: Sequence[tuple[Column, str]], source: Schema) -> None:
        self.keys = list(keys)
        self.columns = [column.id for column in source]
        self.values = [(copy.id, column_id) for copy, column_id in values]
        self.logs = self.seen = {column_id: HashedLog() for _, column_id in self.values}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        frame = inputs[0].ordered().frame
        groups, _ = group_codes(frame, self.keys)
        copies = []
        for name, column_id in self.values:
            value = frame.get_column(column_id)
            present: Mask = value.is_not_null().to_numpy()
            _, first = pair_codes(groups, identities(value), present)
            first = self._not_seen(column_id, frame, first, watermark)
            is_first = np.zeros(frame.height, dtype=np.bool_)
            is_first[first] = True
            copies.append(pl.when(pl.Series(is_first)).then(pl.col(column_id)).alias(name))
        return Batch(frame.with_columns(copies).select(*self.columns, *(name for name, _ in self.values), FROM, UNTIL))

    def _not_seen(self, column_id: str, frame: pl.DataFrame, rows: Index, watermark: Watermark) -> Index:
        """Rows whose values did not occur in earlier slices; adds them to the state."""
        seen = self.seen[column_id]
        if not seen.segments and watermark.time == FOREVER:
            return rows  # nothing was and nothing will be
        columns = list(dict.fromkeys([*self.keys, column_id]))
        payload = gather(frame.select(columns), rows)
        hashes = hash_rows(payload, columns)
        order = np.argsort(hashes)
        rows, payload, hashes = rows[order], gather(payload, order), hashes[order]
        fresh = np.ones(len(rows), dtype=np.bool_)
        for _, new_rows, _ in seen.find(payload, hashes):
            fresh[new_rows] = False
        ever = keep(payload, fresh).with_columns(pl.lit(FOREVER, pl.Int64).alias(UNTIL))
        seen.append(ever, hashes[fresh], watermark.time)
        return rows[fresh]

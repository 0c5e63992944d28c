"""Duplicate elimination over elements whose end may be unknown."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    frame_schema,
    gather,
    keep,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.changes import begun_and_ended, has_ended
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.group_events import presence, timeline
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import SortedLog

COPIES, SINCE = "@copies", "@since"


class CountingDistinctOperator(Operator):
    """Duplicate elimination by counting: a payload is there while it has copies. Input and output have the form of
    changes.

    Law    snapshot(out, t) = δ(snapshot(in, t))
    State  counts   per payload that is there: how many copies it has, and since when
           valid    the elements whose end is known, by their end
    Emits  a payload when its first copy comes, without an end, and with it when the last copy has ended

        in    a  [=====…  [=====)
              a    [=====…  [=======)
        out      [=====…  [=========)
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        payload = {name: kind for name, kind in frame_schema(schema).items() if name in self.columns}
        self.counts = KeyedLog(self.columns, {**payload, COPIES: pl.Int64(), SINCE: pl.Int64()})
        self.valid = SortedLog(UNTIL)
        self.logs = {"counts": self.counts, "valid": self.valid}
        self.empty = Batch.empty(schema)

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark = until
        frame = pick(inputs[0].frame, [*self.columns, FROM, UNTIL])
        begun, ended = begun_and_ended(frame, before)
        over = has_ended(times(begun, UNTIL), until)
        leaving = self._leaving(keep(begun, ~over), ended, until)
        changed = stack([begun, leaving])
        everything = watermark.announces or until == FOREVER
        carried = self._look_up(changed, everything=everything)
        if not carried.height and not begun.height:
            return self.empty
        rows = stack([pick(part, self.columns) for part in (carried, begun, leaving)])
        codes, first = group_codes(rows, self.columns)
        at_carried, at_begun, at_leaving = np.split(codes, np.cumsum([carried.height, begun.height]))
        line = timeline(
            np.concatenate([at_carried, at_begun, at_leaving, at_begun[over]]),
            np.concatenate(
                [
                    np.full(carried.height, max(before - 1, BEFORE_ALL)),
                    times(begun, FROM),
                    times(leaving, UNTIL),
                    times(begun, UNTIL)[over],
                ]
            ),
            len(first),
            until,
        )
        ones = [np.full(count, sign) for count, sign in ((begun.height, 1), (leaving.height + int(over.sum()), -1))]
        copies = line.totals(np.concatenate([carried.get_column(COPIES).to_numpy(), *ones]))
        since = np.empty(len(first), np.int64)
        since[at_carried] = times(carried, SINCE)
        began = np.where(line.time < before, since[line.code], line.time)
        runs, start, end = presence(line, copies > 0, began)
        payload = gather(rows, first[line.code[runs]])
        self._remember(carried, payload, start, copies[line.last[line.code[runs]]], end)
        end = np.where((end == OPEN) & (until == FOREVER), FOREVER, end)
        shown = (start >= before) | (end != OPEN) | watermark.announces
        return Batch(payload).with_times(start, end).keep(shown)

    def _leaving(self, lasting: pl.DataFrame, ended: pl.DataFrame, until: Instant) -> pl.DataFrame:
        """The elements of earlier slices that end in this one; keeps those whose end comes later."""
        is_over = times(ended, UNTIL) < until
        due = self.valid.take_before(until)
        self.valid.append(stack([keep(lasting, times(lasting, UNTIL) < OPEN), keep(ended, ~is_over)]))
        return stack([keep(ended, is_over), *due])

    def _look_up(self, changed: pl.DataFrame, *, everything: bool) -> pl.DataFrame:
        keys = pick(changed, self.columns)
        if everything or (keys.height and self.counts.has_mostly(keys)):
            return self.counts.all()
        return self.counts.find(keys)

    def _remember(self, carried: pl.DataFrame, payload: pl.DataFrame, since: Index, copies: Index, end: Index) -> None:
        """Keep the counts of the payloads that are there at the end of the slice."""
        now = with_series(payload, pl.Series(COPIES, copies), pl.Series(SINCE, since))
        self.counts.replace(carried, keep(now, end == OPEN))

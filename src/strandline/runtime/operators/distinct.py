"""Duplicate elimination over interval streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Mask,
    Times,
    gather,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.kernels.hashing import Hashes, hash_rows, same_payloads
from strandline.runtime.kernels.sweep import cover
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.segments import FoldedLog, SortedLog, column

SENT = "@sent"


class DistinctOperator(Operator):
    """Duplicate elimination: each payload at most once per instant (δ* of Golab and Özsu, in array form).

    Law    snapshot(out, t) = δ(snapshot(in, t))
    State  cover   per payload: how far its elements reach, and until when it has been sent
           due     payloads that reach further than they have been sent, by the instant at which more must be sent
    Emits  an element where a payload appears, and where its last one ends while duplicates are valid: as far as the
           duplicates reach that have started by then

        in    a  [=====)
              a    [=====)
              a      [=====)
        out      [=====)[==)

    The elements that were seen are not stored: all have started, so beyond the slice only their latest end counts.
    """

    def __init__(self, schema: Schema, identity: Sequence[str] = ()) -> None:
        """`identity` are columns that identify a payload, if fewer than all."""
        self.columns = list(identity) or [column.id for column in schema]
        self.watermark: Instant = BEFORE_ALL
        self.cover = FoldedLog(self.columns, (UNTIL, SENT))
        self.due = SortedLog(UNTIL)
        self.logs = {"cover": self.cover, "due": self.due}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        until = watermark.time
        frame, hashes, begins_group = self._by_payload(self._with_due(inputs[0].frame, until))
        sent, reach = self._look_up(frame, hashes)
        start, end = times(frame, FROM), times(frame, UNTIL)
        rows, begins, ends, sent_after, reach_after = cover(begins_group, start, end, sent, reach, until)
        first = np.flatnonzero(begins_group)
        self._remember(frame, hashes, first, (sent[first], reach[first]), (sent_after, reach_after), until)
        self.watermark = until
        return Batch(gather(frame, rows)).with_times(begins, ends)

    def _with_due(self, frame: pl.DataFrame, until: Instant) -> pl.DataFrame:
        """The slice, with an empty interval for each payload of which more must be sent in it."""
        due = self.due.take_before(until)
        return Batch(stack([frame, *due]) if due else frame).ordered().frame

    def _by_payload(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Hashes, Mask]:
        """Rows by hash, then by payload, then by start; and where a payload begins."""
        hashes = hash_rows(frame, self.columns)
        order = np.argsort(hashes, kind="stable")
        frame, hashes = gather(frame, order), hashes[order]
        begins_group = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
        again = np.flatnonzero(~begins_group)
        payload = pick(frame, self.columns)
        if same_payloads(gather(payload, again), gather(payload, again - 1)).all():
            return frame, hashes, begins_group
        codes, _ = group_codes(frame, self.columns)  # different payloads have one hash
        order = np.lexsort((codes, hashes))  # stable: equal payloads keep their order
        codes = codes[order]
        return gather(frame, order), hashes[order], np.append(True, codes[1:] != codes[:-1])

    def _look_up(self, frame: pl.DataFrame, hashes: Hashes) -> tuple[Times, Times]:
        """Until when the payload of each row was sent, and how far it reached, before this slice."""
        sent, reach = np.full(frame.height, BEFORE_ALL), np.full(frame.height, BEFORE_ALL)
        for segment, rows, stored_rows in self.cover.find(pick(frame, self.columns), hashes):
            np.maximum.at(sent, rows, column(segment, SENT)[stored_rows])
            np.maximum.at(reach, rows, column(segment, UNTIL)[stored_rows])
        expired = reach <= self.watermark
        sent[expired] = reach[expired] = BEFORE_ALL
        return sent, reach

    def _remember(
        self,
        frame: pl.DataFrame,
        hashes: Hashes,
        first: Index,
        before: tuple[Times, Times],
        after: tuple[Times, Times],
        until: Instant,
    ) -> None:
        """Store what changed of the payloads whose first rows are given and that reach beyond the slice."""
        (sent_before, reach_before), (sent, reach) = before, after
        changed = np.flatnonzero((reach > until) & ((sent > sent_before) | (reach > reach_before)))
        rows = first[changed]
        payload = gather(pick(frame, self.columns), rows)
        entries = with_series(payload, pl.Series(UNTIL, reach[changed]), pl.Series(SENT, sent[changed]))
        self.cover.expire(until)
        self.cover.append(entries, hashes[rows], until, replaced=int((reach_before[changed] > BEFORE_ALL).sum()))
        waits = (sent_before == sent) & (reach_before > sent_before)
        due = np.flatnonzero((reach > sent) & (reach > until) & ~waits)
        at = [pl.Series(name, sent[due]) for name in (FROM, UNTIL)]
        self.due.append(with_series(gather(frame, first[due]), *at))

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
    Times,
    gather,
    pick,
    stack,
    times,
    with_series,
)
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.kernels.hashing import Hashes, hash_rows
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
        frame, payload, hashes, first = self._by_payload(self._with_due(inputs[0].frame, until))
        before = self._look_up(payload, hashes)
        begins_group = np.zeros(frame.height, np.bool_)
        begins_group[first] = True
        rows, begins, ends, *after = cover(begins_group, times(frame, FROM), times(frame, UNTIL), *before, until)
        self._remember(payload, hashes, before, after, until)
        self._wait(frame, first, before, after, until)
        self.watermark = until
        return Batch(gather(frame, rows)).with_times(begins, ends)

    def _with_due(self, frame: pl.DataFrame, until: Instant) -> pl.DataFrame:
        """The slice, with an empty interval for each payload of which more must be sent in it."""
        due = self.due.take_before(until)
        return Batch(stack([frame, *due]) if due else frame).ordered().frame

    def _by_payload(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, Hashes, Index]:
        """Rows by the hash of their payload, then by payload, then by start; the payloads in this order, their hashes,
        and the first row of each. Rows are counted into their groups, and only payloads are sorted: there are fewer."""
        codes, first = group_codes(frame, self.columns)
        payload = gather(pick(frame, self.columns), first)
        hashes = hash_rows(payload, self.columns)
        order = np.argsort(hashes)
        places = np.empty(len(first), np.int64)
        places[order] = np.arange(len(first))
        codes = places[codes]
        sizes = np.bincount(codes, minlength=len(first))
        return gather(frame, group_order(codes)), gather(payload, order), hashes[order], np.cumsum(sizes) - sizes

    def _look_up(self, payload: pl.DataFrame, hashes: Hashes) -> tuple[Times, Times]:
        """Until when each payload was sent, and how far it reached, before this slice."""
        sent, reach = np.full(payload.height, BEFORE_ALL), np.full(payload.height, BEFORE_ALL)
        for segment, rows, stored_rows in self.cover.find(payload, hashes):
            np.maximum.at(sent, rows, column(segment, SENT)[stored_rows])
            np.maximum.at(reach, rows, column(segment, UNTIL)[stored_rows])
        expired = reach <= self.watermark
        sent[expired] = reach[expired] = BEFORE_ALL
        return sent, reach

    def _remember(
        self, payload: pl.DataFrame, hashes: Hashes, before: Sequence[Times], after: Sequence[Times], until: Instant
    ) -> None:
        """Store what changed of the payloads that reach beyond the slice."""
        (sent_before, reach_before), (sent, reach) = before, after
        changed = np.flatnonzero((reach > until) & ((sent > sent_before) | (reach > reach_before)))
        entry = pl.Series(UNTIL, reach[changed]), pl.Series(SENT, sent[changed])
        self.cover.expire(until)
        self.cover.append(
            with_series(gather(payload, changed), *entry),
            hashes[changed],
            until,
            replaced=int((reach_before[changed] > BEFORE_ALL).sum()),
        )

    def _wait(
        self, frame: pl.DataFrame, first: Index, before: Sequence[Times], after: Sequence[Times], until: Instant
    ) -> None:
        """Keep a row of each payload of which more must be sent, unless one waits already."""
        (sent_before, reach_before), (sent, reach) = before, after
        waits = (sent_before == sent) & (reach_before > sent_before)
        due = np.flatnonzero((reach > sent) & (reach > until) & ~waits)
        if not len(due):
            return
        at = [pl.Series(name, sent[due]) for name in (FROM, UNTIL)]
        self.due.append(with_series(gather(frame, first[due]), *at))

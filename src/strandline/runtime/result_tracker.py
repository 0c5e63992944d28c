"""A result batch after batch, as its readers want it: elements once, when they have ended, and net changes in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, frame_schema, gather, keep, times
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, drop_replaced, net_changes, rank_in_group
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.result_buffer import ResultChunks


@dataclass(frozen=True, slots=True)
class NewResults:
    """What a step has made final: elements that have ended, with FROM and UNTIL, and changes, with TIME and CHANGE."""

    ended: pl.DataFrame
    changes: pl.DataFrame


class ResultTracker:
    """The part of a result that is still open, and what each batch makes final.

    Law  the elements that were returned, and those that are open, have the snapshots of the result
    Law  an element is returned once, also if it was delivered in fragments; a change never cancels an earlier one

        watermark          |        |
        a    [=====)       |        |      ended in the first step
        b         [========|==)     |      ended in the second
        c       [==)[======|=)      |      two fragments of one element, ended in the second

    It relies on the watermark: once it is at w, no further interval begins before w. Memory and work go with what is
    open and what is new.
    """

    def __init__(self, columns: Schema, in_fragments: bool) -> None:
        self.columns = columns
        self.watermark: Instant = BEFORE_ALL
        self._ids = [column.id for column in columns]
        self._in_fragments = in_fragments
        self._open = pl.DataFrame(schema=frame_schema(columns))  # elements and fragments that may go on

    def step(self, chunks: ResultChunks) -> NewResults:
        """Take the chunks of a result since the last step, and the watermark with them."""
        new, again = chunks.sent(self.columns)
        before, self.watermark = self.watermark, chunks.watermark
        frame = pl.concat([self._open, new.select(self._open.columns)])
        frame = drop_replaced(frame, self._ids, np.concatenate([np.zeros(self._open.height, np.bool_), again]))
        changes = self._changes_since(frame, before)
        if self._in_fragments:
            is_open = pl.col(UNTIL) == OPEN
            whole = coalesce(frame.filter(~is_open), self._ids).select(frame.columns)
            frame = pl.concat([whole, frame.filter(is_open)])
        over = times(frame, UNTIL) < self.watermark
        if self.watermark == FOREVER:
            over = np.ones(frame.height, np.bool_)
        elif self._in_fragments:
            over &= ~self._goes_on(frame)
        self._open = keep(frame, ~over)
        return NewResults(keep(frame, over).sort(FROM, maintain_order=True), changes)

    def _changes_since(self, frame: pl.DataFrame, before: Instant) -> pl.DataFrame:
        """The changes between two watermarks."""
        near = (pl.col(FROM) >= before) | pl.col(UNTIL).is_between(before, self.watermark)
        net = net_changes(frame.filter(near), self._ids).filter(pl.col(TIME) >= before)
        if self.watermark < FOREVER:
            net = net.filter(pl.col(TIME) < self.watermark)
        return net.filter(pl.col(TIME) < OPEN).select(*self._ids, TIME, CHANGE)

    def _goes_on(self, frame: pl.DataFrame) -> Mask:
        """Which elements are followed at once by an equal one that is open: both are one, whose end is not known."""
        starts, ends = times(frame, FROM), times(frame, UNTIL)
        is_open = ends == OPEN
        touches = ~is_open & np.isin(ends, starts[is_open])
        rows = np.flatnonzero(is_open | touches)
        at = np.where(is_open[rows], starts[rows], ends[rows])
        codes, first = group_codes(gather(frame, rows).with_columns(pl.Series(TIME, at)), [*self._ids, TIME])
        opened = np.bincount(codes[is_open[rows]], minlength=len(first))
        side = np.flatnonzero(touches[rows])
        side = side[np.argsort(codes[side], kind="stable")]
        goes_on = np.zeros(frame.height, np.bool_)
        goes_on[rows[side[rank_in_group(codes[side]) < opened[codes[side]]]]] = True
        return goes_on

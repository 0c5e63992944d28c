"""Incremental follower of a result: the current snapshot, and the latest changes and rows."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.database.query import Query
from strandline.runtime.kernels.batch import FROM, UNTIL, Mask, frame_schema, times
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, drop_replaced, net_changes

KEPT: Final = 1_000  # changes and rows; more do not fit any terminal
CLOSE_LOOK: Final = 5_000  # chunks between two polls; of more, only the latest are processed in full


class ResultFollower:
    """Each poll costs as much as the new chunks, and the current snapshot.

    It relies on the watermark: once it is at p, no further interval begins before p. So changes between two polls show
    in the new chunks and in those that were valid at the first.

    The display is exact. Where rows come faster than a reader can follow, older changes and rows are skipped, and no
    longer counted: `passed_over`.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.ids = [column.id for column in query.columns]
        self.passed_over = False
        self._begin(BEFORE_ALL)

    def _begin(self, since: Instant) -> None:
        """Reset; only changes after `since` are noted, because the ends at that instant were evicted."""
        self.progress: Instant = BEFORE_ALL
        self._noted = since + 1  # changes and rows up to here are noted
        self._pieces = 0
        self._open = self._empty()  # whatever reaches up to the progress or beyond
        self._live = self._open  # the same, but each row from where it really began
        self._rows = self._open  # rows that have ended
        self._rows_gone = 0
        self._changes = self._net_changes(self._open)
        self._changes_gone = 0

    def look(self) -> None:
        """Process the new chunks."""
        chunks = self.query.pieces(self._pieces)
        if not chunks.tables and chunks.watermark == self.progress:
            return
        if chunks.reset:
            self.passed_over = True
            self._begin(chunks.since)
        self._pieces = chunks.number
        new, again = chunks.sent(self.query.columns)
        before, progress = self._noted, chunks.watermark
        self.progress = self._noted = progress
        self._open = self._with_ends(self._open, new, again)
        since = self._close_look_since(new, before)
        self._note_changes(self._open, since)
        self._open = self._open.filter(pl.col(UNTIL) >= progress)
        if since > before:
            new, again = self._worth_joining(new, again, since)
        self._note_rows(new, again)

    def _with_ends(self, kept: pl.DataFrame, new: pl.DataFrame, again: Mask) -> pl.DataFrame:
        """Elements and new ones; those that are sent `again` have their end now."""
        before = np.zeros(kept.height, np.bool_)
        return drop_replaced(pl.concat([kept, new]), self.ids, np.concatenate([before, again]))

    def snapshot(self) -> pl.DataFrame:
        """The snapshot at the last complete instant."""
        at = self.progress - 1
        valid = self._open.filter((pl.col(FROM) <= at) & (pl.col(UNTIL) > at))
        return valid.select(self.ids)

    def changes(self, max_rows: int) -> tuple[pl.DataFrame, int]:
        """The latest changes, oldest first, with TIME and CHANGE; and how many there were before them."""
        shown = self._changes.tail(max_rows)
        return shown, self._changes_gone + self._changes.height - shown.height

    def rows(self, max_rows: int) -> tuple[pl.DataFrame, int]:
        """The latest rows with FROM and UNTIL in the order in which they began; and how many there were before."""
        # What is open was valid up to the watermark; that is all that is known.
        until = pl.when(pl.col(UNTIL) == OPEN).then(self.progress).otherwise(pl.col(UNTIL))
        live = self._live.with_columns(until.alias(UNTIL))
        all_rows = pl.concat([self._rows, live]).sort(FROM, maintain_order=True)
        shown = all_rows.tail(max_rows)
        return shown, self._rows_gone + all_rows.height - shown.height

    @property
    def rows_seen(self) -> int:
        return self._rows_gone + self._rows.height + self._live.height

    def _close_look_since(self, new: pl.DataFrame, before: Instant) -> Instant:
        """Start of the changes and rows to show: the last poll, unless that would be too many."""
        if new.height <= CLOSE_LOOK:
            return before
        self.passed_over = True
        latest = new.get_column(FROM).top_k(CLOSE_LOOK).min()
        assert isinstance(latest, int)
        return max(before, latest)

    def _worth_joining(self, new: pl.DataFrame, again: Mask, since: Instant) -> tuple[pl.DataFrame, Mask]:
        """Chunks of the rows worth showing: the late ones, ends of others, and all of rows that are still valid."""
        worth = (times(new, FROM) >= since) | again
        if not any(column.type.element is not None for column in self.query.columns):
            # Arrays do not join; rows may then seem to begin later.
            numbered = new.with_row_index("@number")
            valid = numbered.join(self._open.select(self.ids), on=self.ids, how="semi", nulls_equal=True)
            worth[valid.get_column("@number").to_numpy()] = True
        return new.filter(pl.Series(worth)), again[worth]

    def _note_changes(self, frame: pl.DataFrame, since: Instant) -> None:
        at_hand = (pl.col(FROM) >= since) | pl.col(UNTIL).is_between(since, self.progress)
        net = self._net_changes(frame.filter(at_hand)).filter(pl.col(TIME) >= since)
        if self.progress < FOREVER:
            net = net.filter(pl.col(TIME) < self.progress)
        changes = pl.concat([self._changes, net])
        self._changes = changes.tail(KEPT)
        self._changes_gone += changes.height - self._changes.height

    def _net_changes(self, frame: pl.DataFrame) -> pl.DataFrame:
        return net_changes(frame, self.ids).select(*self.ids, TIME, CHANGE)

    def _note_rows(self, new: pl.DataFrame, again: Mask) -> None:
        joined = self._with_ends(self._live, new, again)
        if not self.query.has_whole_elements:
            is_open = pl.col(UNTIL) == OPEN  # it is found again by its start
            coalesced = coalesce(joined.filter(~is_open), self.ids).select(joined.columns)
            joined = pl.concat([coalesced, joined.filter(is_open)])
        # A row that ends at the watermark may continue there; one that ends earlier has ended.
        ended = pl.col(UNTIL) < self.progress
        self._live = joined.filter(~ended)
        over = pl.concat([self._rows, joined.filter(ended)]).sort(FROM, maintain_order=True)
        self._rows = over.tail(KEPT)
        self._rows_gone += over.height - self._rows.height

    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=frame_schema(self.query.columns))

"""Follows the answer of a query without reading all of it again: what is valid now, and the latest changes and rows."""

from __future__ import annotations

from typing import Final

import polars as pl
import pyarrow as pa

from strandline.execution.answers import answer_schema, from_answer
from strandline.execution.batch import FROM, UNTIL
from strandline.execution.kernels.changes import CHANGE, TIME, coalesce, net_changes
from strandline.query import Query
from strandline.temporal import BEFORE_ALL, FOREVER, Instant

KEPT: Final = 1_000  # changes and rows; more do not fit any terminal


class Feed:
    """Each look costs as much as what has come since the last one, and what is valid.

    It relies on what an answer promises: after the progress has come to p, no piece of it begins before p. So what
    happened between two looks shows in the pieces that came in between and in those that were valid at the first.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.ids = [column.id for column in query.columns]
        self.progress: Instant = BEFORE_ALL
        self.changes_seen = 0
        self._pieces = 0
        self._open = self._frame([])  # whatever reaches up to the progress or beyond
        self._unjoined = self._open  # the same, but each row from where it really began
        self._rows = self._open  # rows that have ended
        self._rows_gone = 0
        self._changes: pl.DataFrame | None = None

    def look(self) -> None:
        """Take in what has come."""
        tables, progress = self.query.pieces(self._pieces)
        if not tables and progress == self.progress:
            return
        self._pieces += len(tables)
        new = self._frame(tables)
        before, self.progress = self.progress, progress
        self._note_changes(pl.concat([self._open, new]), before)
        self._note_rows(new)
        self._open = pl.concat([self._open, new]).filter(pl.col(UNTIL) >= progress)

    def snapshot(self) -> pl.DataFrame:
        """What is valid at the last instant that is complete."""
        at = self.progress - 1
        valid = self._open.filter((pl.col(FROM) <= at) & (pl.col(UNTIL) > at))
        return valid.select(self.ids)

    def changes(self, most: int) -> tuple[pl.DataFrame, int]:
        """The latest changes, oldest first, with TIME and CHANGE; and how many there were before them."""
        if self._changes is None:
            return pl.DataFrame(), 0
        shown = self._changes.tail(most)
        return shown, self.changes_seen - shown.height

    def rows(self, most: int) -> tuple[pl.DataFrame, int]:
        """The latest rows with FROM and UNTIL in the order in which they began; and how many there were before."""
        known = pl.concat([self._rows, self._unjoined]).sort(FROM, maintain_order=True)
        shown = known.tail(most)
        return shown, self._rows_gone + known.height - shown.height

    @property
    def rows_seen(self) -> int:
        return self._rows_gone + self._rows.height + self._unjoined.height

    def _note_changes(self, frame: pl.DataFrame, before: Instant) -> None:
        net = net_changes(frame, self.ids).filter(pl.col(TIME) >= before).select(*self.ids, TIME, CHANGE)
        if self.progress < FOREVER:
            net = net.filter(pl.col(TIME) < self.progress)
        self.changes_seen += net.height
        self._changes = (net if self._changes is None else pl.concat([self._changes, net])).tail(KEPT)

    def _note_rows(self, new: pl.DataFrame) -> None:
        joined = coalesce(pl.concat([self._unjoined, new]), self.ids).select(self._open.columns)
        # A row that ends at the progress may go on there; one that ends earlier has ended.
        ended = pl.col(UNTIL) < self.progress
        self._unjoined = joined.filter(~ended)
        over = pl.concat([self._rows, joined.filter(ended)]).sort(FROM, maintain_order=True)
        self._rows = over.tail(KEPT)
        self._rows_gone += over.height - self._rows.height

    def _frame(self, tables: list[pa.Table]) -> pl.DataFrame:
        schema = answer_schema(self.query.columns)
        whole = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
        return from_answer(whole, self.query.columns)

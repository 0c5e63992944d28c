"""The past of a table: its content at an instant, and its history, as far as they are retained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from strandline.connectors.tables import bases, errors, images
from strandline.connectors.tables.blocks import ID
from strandline.connectors.tables.content import stack_rows
from strandline.connectors.tables.log import LogReader
from strandline.connectors.tables.retention import RetainedLog
from strandline.core.temporal import OPEN, Instant
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Times, gather, times


@dataclass(frozen=True, slots=True)
class _Changes:
    """The ids of rows that began, ascending; those of rows that ended, and when."""

    begun: Index
    ended: Index
    ends: Times

    @staticmethod
    def of(frame: pl.DataFrame) -> _Changes:
        ids, until = frame.get_column(ID).to_numpy(), times(frame, UNTIL)
        is_end = until != OPEN
        return _Changes(ids[~is_end], ids[is_end], until[is_end])


class TablePast:
    """Reads the retained past.

    Law    content_at(t) = the rows of history() that are valid at t
           history(a, b) = the rows of history() that are valid at some instant of [a, b), where one that ends at b or
                           later goes on

    A read begins with the last image before its first instant, or the base, and looks at the changes from there to its
    last instant; of the rows it reads those that were there.
    """

    def __init__(self, table: Table, directory: Path, reader: LogReader) -> None:
        self._table, self._directory, self._reader = table, directory, reader
        self._retained = RetainedLog(directory, reader)

    @property
    def since(self) -> Instant:
        """The instant from which on the past is kept."""
        return self._current().since

    def content_at(self, at: Instant, end: int) -> pl.DataFrame:
        """The rows that were there at an instant, by a log up to a position: the payload, in the order of their ids."""
        retained = self._current()
        if at < retained.since:
            raise errors.no_longer_kept(self._table, at, retained.since)
        ids = self._live_ids(retained, self._reader.position_at(retained.first, end, at))
        return self._gather(retained, ids, [name for name, _ in self._table.columns])

    def history(self, end: int, since: Instant | None = None, until: Instant | None = None) -> pl.DataFrame:
        """The elements of the retained past from `since` on and before `until`: payload, `@from`, and `@until`, which
        is OPEN for rows that go on then."""
        retained = self._current()
        for instant in (since, None if until is None else until - 1):
            if instant is not None and instant < retained.since:
                raise errors.no_longer_kept(self._table, instant, retained.since)
        start = retained.first if since is None else self._reader.position_at(retained.first, end, since)
        stop = end if until is None else max(start, self._reader.position_at(retained.first, end, until - 1))
        changes = self._changes(start, stop)
        ids = np.concatenate([self._live_ids(retained, start), changes.begun])
        ends = np.full(len(ids), OPEN)
        ends[np.searchsorted(ids, changes.ended)] = changes.ends
        rows = self._gather(retained, ids, [*(name for name, _ in self._table.columns), FROM])
        was_valid = (pl.col(FROM) < pl.col(UNTIL)) & (pl.col(UNTIL) > retained.since)
        return rows.with_columns(pl.Series(UNTIL, ends)).filter(was_valid)

    def _current(self) -> RetainedLog:
        """What is retained, after its beginning may have been folded."""
        if not self._retained.is_current():
            self._retained = RetainedLog(self._directory, self._reader)
        return self._retained

    def _live_ids(self, retained: RetainedLog, position: int) -> Index:
        """The ids of the rows at a position, ascending."""
        image = self._last_image(retained, position)
        start, ids = (retained.first, retained.base_ids) if image is None else (image.position, image.ids)
        changes = self._changes(start, position)
        begun = np.concatenate([ids, changes.begun])
        stays = np.ones(len(begun), np.bool_)
        stays[np.searchsorted(begun, np.sort(changes.ended))] = False
        live: Index = begun[stays]
        return live

    def _changes(self, start: int, end: int) -> _Changes:
        """What began and ended between two positions of the log."""
        parts = [_Changes.of(frame) for frame in self._reader.read(start, end, [ID, UNTIL])]
        none = np.zeros(0, np.int64)
        return _Changes(
            np.concatenate([none, *(part.begun for part in parts)]),
            np.concatenate([none, *(part.ended for part in parts)]),
            np.concatenate([none, *(part.ends for part in parts)]),
        )

    def _last_image(self, retained: RetainedLog, position: int) -> images.ContentImage | None:
        for at in reversed(images.image_positions(self._directory)):
            if retained.first < at <= position:
                image = images.read_image(self._directory, at, self._reader.chain_at(at))
                if image is not None:
                    return image
        return None

    def _gather(self, retained: RetainedLog, ids: Index, columns: Sequence[str]) -> pl.DataFrame:
        """The rows with these ids, which ascend."""
        in_base = int(np.searchsorted(ids, retained.first))
        parts: list[pl.DataFrame] = []
        if in_base:
            assert retained.base is not None, "what comes before the log is in a base"
            places = np.searchsorted(retained.base_ids, ids[:in_base])
            parts.append(gather(retained.base.rows.select(columns), places))
        parts += self._reader.gather(ids[in_base:], columns)
        return stack_rows(parts, {}) if parts else bases.empty_rows(self._reader.schema).select(columns)

"""The past of a table: its content at an instant, and its history, as far as they are retained."""

from __future__ import annotations

from collections.abc import Sequence
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
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, gather, times


class TablePast:
    """Reads the retained past.

    Law    content_at(t) = the rows of history() that are valid at t

    A read at an instant begins with the last image before it, or the base, and looks at the changes from there on; of
    the rows it reads those that were there.
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

    def history(self, end: int) -> pl.DataFrame:
        """The elements of the retained past: payload, `@from`, and `@until`, which is OPEN for rows that are there."""
        retained = self._current()
        rows = retained.elements(end)
        was_valid = (pl.col(FROM) < pl.col(UNTIL)) & (pl.col(UNTIL) > retained.since)
        return rows.filter(was_valid).select(*(name for name, _ in self._table.columns), FROM, UNTIL)

    def _current(self) -> RetainedLog:
        """What is retained, after its beginning may have been folded."""
        if not self._retained.is_current():
            self._retained = RetainedLog(self._directory, self._reader)
        return self._retained

    def _live_ids(self, retained: RetainedLog, position: int) -> Index:
        """The ids of the rows at a position, ascending."""
        image = self._last_image(retained, position)
        start, ids = (retained.first, retained.base_ids) if image is None else (image.position, image.ids)
        parts, ended = [ids], [np.zeros(0, np.int64)]
        for frame in self._reader.read(start, position, [ID, UNTIL]):
            changed = frame.get_column(ID).to_numpy()
            ends = times(frame, UNTIL) != OPEN
            parts.append(changed[~ends])
            ended.append(changed[ends])
        begun = np.concatenate(parts)
        stays = np.ones(len(begun), np.bool_)
        stays[np.searchsorted(begun, np.sort(np.concatenate(ended)))] = False
        live: Index = begun[stays]
        return live

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

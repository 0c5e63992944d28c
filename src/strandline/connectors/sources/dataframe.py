"""Rows of a Spark DataFrame that a program has registered: `Database.register`.

The engine writes the micro-batches of the DataFrame into a journal beside the checkpoint of the query. This module only
reads, and is independent of Spark.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from strandline.connectors.sources.journal import Journal, JournalSource
from strandline.connectors.traits import Traits
from strandline.core.errors import SourceError, Span
from strandline.logical.catalog import BaseStream, Feeding

ROWS = "rows"  # the journal in the directory of the source
BATCHES_KEPT = 3  # Spark repeats at most the current batch; the others are a reserve


class DataFrameSource(JournalSource):
    """`db.register("name", frame, ordered_by="ts")`: what the query over the DataFrame has written so far. Ends with
    that query, if its trigger lets it end, and with the rows of a DataFrame that is not streaming."""

    traits = Traits(True, True, True, "a micro-batch and its number are one file; one that Spark repeats is skipped")
    rows_name = "rows"

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        journal = Journal(directory / ROWS, may_be_truncated=True) if directory is not None else None
        super().__init__(stream, directory, journal)
        self._feeding: Feeding | None = None
        self._recent_positions: deque[int] = deque(maxlen=BATCHES_KEPT)

    def check(self, span: Span | None) -> None:
        raise SourceError(
            "cannot name a DataFrame in SQL",
            code="dataframe-in-sql",
            hint=f'Declare the stream from Python: db.register("{self.stream.name}", frame, ordered_by="column").',
            span=span,
        )

    def open(self) -> None:
        if self.stream.feed is not None and self.directory is not None:
            self._feeding = self.stream.feed.start(self.directory)

    def close(self) -> None:
        if self._feeding is not None:
            self._feeding.stop()

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        reached, ended = super().advance(position, limit_rows)
        if self._feeding is not None:
            self._acknowledge(position, self._feeding)
            if reached == position and not ended:  # rows written before a failure count
                self._feeding.check()
        return reached, ended

    def _acknowledge(self, position: int, feeding: Feeding) -> None:
        """Acknowledge the position to the writer, and remove the input before it."""
        feeding.acknowledge(position)
        if position not in self._recent_positions:
            self._recent_positions.append(position)
        if len(self._recent_positions) == BATCHES_KEPT:
            self.journal.forget(min(self._recent_positions))

    def rows_left(self, position: int) -> int | None:
        return self.journal.reach - position

"""Offsets of tables: how far a batch reads the log of a table, and what is promised of the rest of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.connectors.tables.source import TableSource
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant

if TYPE_CHECKING:
    from strandline.runtime.offsets import SourceOffset

BATCH_BYTES: Final = 64 * 2**20  # of the log: a batch of wide rows, of which there are several copies, is not too large


@dataclass(frozen=True, slots=True)
class TableOffsets:
    """Plans the reading of one table."""

    source: TableSource

    @property
    def is_static(self) -> bool:
        """Whether the table is what it was when the query began."""
        return self.source.stream.table != "changing"

    def next(self, before: SourceOffset, reached: Instant, max_rows: int) -> tuple[SourceOffset, bool]:
        """The offset after the next batch, and whether it has the whole log: else about so many rows of it. Its promise
        is not before `reached`, and is given only with all changes before it."""
        if before.ended:
            return before, True
        promised = before.arrived if before.base >= 0 else BEFORE_ALL
        base = max(before.base, self.source.stream.base)
        if self.is_static:
            base = reach = base if base >= 0 else self.source.log_end()
            promise = FOREVER
        else:
            reach, promise = self.source.promise(max(promised, reached))
            base = base if base >= 0 else reach
        max_rows = min(max_rows, max(1, int(BATCH_BYTES / self.source.bytes_per_row())))
        at = max(before.at, min(reach, before.at + max_rows))
        whole = at >= reach
        seal = before.seal or self.source.seal(at)
        return replace(before, at=at, base=base, arrived=promise if whole else promised, seal=seal), whole

    def last_change(self) -> Instant:
        """When the last change takes effect; those of a static table are before everything."""
        return BEFORE_ALL if self.is_static else self.source.last_change()

    def has_news(self, before: SourceOffset, after: SourceOffset, reached: Instant) -> bool:
        """Whether an offset is worth a batch: it brings changes, or without its promise the streams would wait."""
        return (after.at, after.base) != (before.at, before.base) or before.arrived < min(reached, after.arrived)

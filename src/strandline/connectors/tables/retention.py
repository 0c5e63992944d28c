"""Retention: the past of a table as far as it is kept, and the folding of what is older into a base."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from strandline.connectors.tables import bases
from strandline.connectors.tables.bases import TableBase
from strandline.connectors.tables.blocks import ID, BlockFacts
from strandline.connectors.tables.log import LogReader, join_facts, read_head, segment_starts
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.runtime.kernels.batch import Index


@dataclass(frozen=True, slots=True)
class FoldPoint:
    """A position before which a log can be folded: the facts up to it, and the digest of the chain there."""

    position: int
    facts: BlockFacts
    chain: str


class RetainedLog:
    """The retained past: a base, if the log has lost its beginning, and the log after it, up to a position."""

    def __init__(self, directory: Path, reader: LogReader) -> None:
        self.directory, self.schema = directory, reader.schema
        self.first = _first(directory)
        self.base: TableBase | None = bases.read_base(directory, self.first, self.schema) if self.first else None
        self._reader = reader

    def is_current(self) -> bool:
        """False if more of the past was folded since."""
        return _first(self.directory) == self.first

    @cached_property
    def base_ids(self) -> Index:
        """The ids of the base, which ascend."""
        return np.zeros(0, np.int64) if self.base is None else self.base.rows.get_column(ID).to_numpy()

    @property
    def since(self) -> Instant:
        """The instant from which on the past is kept."""
        return BEFORE_ALL if self.base is None else self.base.block.facts.last

    def content(self, position: int) -> pl.DataFrame:
        """The content at a position, as the rows of the log that insert it."""
        return bases.live_rows(self.base, self._reader.read(self.first, position), self.schema)

    def fold_point(self, before: Instant, end: int) -> FoldPoint | None:
        """The last begin of a file before which all changes are older than an instant; None if there is none, or if a
        base there would replace fewer changes than half its rows: so that what is folded pays for the rows that are
        written again."""
        starts = set(segment_starts(self.directory))
        point: FoldPoint | None = None
        past = [] if self.base is None else [self.base.block.facts]
        for block in self._reader.blocks(self.first, end):
            if block.facts.last >= before:
                break
            past.append(block.facts)
            if block.end in starts and block.end > self.first:
                point = FoldPoint(block.end, join_facts(past), block.digest)
        rows = 0 if self.base is None else self.base.rows.height
        return point if point is not None and 2 * (point.position - self.first) >= rows else None

    def fold(self, point: FoldPoint) -> None:
        """Write the base of a position. The log is as before until its head names the base."""
        rows = self.content(point.position)
        bases.write_base(self.directory, point.position, rows, point.facts, point.chain, self.schema)


def _first(directory: Path) -> int:
    head = read_head(directory)
    return 0 if head is None else head.first

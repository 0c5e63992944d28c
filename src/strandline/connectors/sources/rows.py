"""Rows written in the statement itself: for tests, documentation and trying things out."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from strandline.connectors.arguments import text_of
from strandline.connectors.sources.base import Chunk, Source, SourceArguments
from strandline.connectors.sources.conversion import conform
from strandline.connectors.sources.sampled_values import LEAST_ROWS, estimate_statistics
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import BEFORE_ALL, FOREVER
from strandline.logical.catalog import StreamStatistics
from strandline.runtime.kernels.batch import FROM, times


class RowsSource(Source):
    """`rows((1, 'a', TIMESTAMP '2024-01-01 00:00:00'), …)`; ends after the last row."""

    traits = Traits(True, True, True, "the rows are in the statement")
    shares_log = True

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        arguments.done(most=len(self.stream.source.arguments))
        width = len(self.stream.columns)
        for number, row in enumerate(self.stream.source.arguments, 1):
            if not isinstance(row, list) or len(row) != width:
                raise arguments.error(f"row {number} of rows() must have {width} values in parentheses")

    def statistics(self) -> StreamStatistics:
        count = len(self.stream.source.arguments)
        if count < LEAST_ROWS:
            return StreamStatistics()
        (chunk,) = self.read(0, count, frozenset())
        low, high = FOREVER, BEFORE_ALL
        if self.stream.time_column is not None and chunk.rows.height:
            instants = times(chunk.rows, FROM)
            low, high = int(instants.min()), int(instants.max())
        names = [name for name, _ in self.stream.columns if name not in self.stream.time_columns]
        return estimate_statistics(chunk.rows.select(names), count, low, high)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        count = len(self.stream.source.arguments)
        end = min(position + limit_rows, count)
        return end, end == count

    def rows_left(self, position: int) -> int | None:
        return len(self.stream.source.arguments) - position

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        rows = [row for row in self.stream.source.arguments[start:end] if isinstance(row, list)]
        texts = {
            name: pl.Series(name, [None if row[i] is None else str(text_of(row[i])) for row in rows], dtype=pl.String)
            for i, (name, _) in enumerate(self.stream.columns)
        }
        yield conform(pl.DataFrame(texts), self.stream, f"rows of {self.stream.name}", start + 1)

"""The changes of a table as the input of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk, Source
from strandline.connectors.tables.blocks import CEASED, ID, SINCE, log_schema
from strandline.connectors.tables.log import LogReader
from strandline.connectors.tables.periods import with_periods
from strandline.connectors.tables.store import find_open_table
from strandline.connectors.traits import Traits
from strandline.core.errors import Span, damaged
from strandline.core.temporal import ALWAYS, FOREVER, OPEN, Instant
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.runtime.kernels.batch import FROM, UNTIL, Times, times


class TableSource(Source):
    """The log of a table. Positions count changes; a replay reads what was read before."""

    traits = Traits(True, True, True, "every change is in the log of the table before it is used")

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        self.path = Path(str(stream.source.arguments[0]))
        self._nothing = pl.DataFrame(log_schema(stream.columns).empty_table())
        self.reader = LogReader(self.path, log_schema(stream.columns))

    def check(self, span: Span | None) -> None:
        return

    def identity(self) -> dict[str, object]:
        return {"function": "table", "kind": self.stream.table}

    def statistics(self) -> StreamStatistics:
        return find_open_table(self.path).statistics()

    def promise(self, at_least: Instant) -> tuple[int, Instant]:
        """The end of the log, and an instant before which no later change takes effect. In the driver's process."""
        return find_open_table(self.path).promise(at_least)

    def log_end(self) -> int:
        return find_open_table(self.path).reach

    def last_change(self) -> Instant:
        """When the last change takes effect."""
        return find_open_table(self.path).last_change

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        raise AssertionError("the offsets of tables come with promises")

    def rows_left(self, position: int) -> int | None:
        return self.log_end() - position

    def verify(self, position: int, seal: str) -> None:
        if self.log_end() < position:
            raise damaged(self.path)

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        raise AssertionError("the changes of a table are read with the end of its log when the query began")

    def read_changes(self, start: int, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """Elements as changes: those that begin or end between two positions. Of what was changed before `base`, the
        end of the log when the query began, see `_read_base`. A static table has what is there then."""
        if self.stream.table != "changing":
            return self._read_static(start, min(end, base), base, columns)
        parts = [self._read_base(start, min(end, base), base, columns)] if start < base else []
        if end > base or not parts:
            parts.append(_elements(self._read(max(start, base), end, columns), base))
        return pl.concat(parts, rechunk=True)

    def _read_static(self, start: int, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """The rows among those inserted between two positions that are there at `base`: always, or in their periods."""
        changes = self._read(start, base, frozenset())
        ids, is_end = _ids(changes), times(changes, UNTIL) != OPEN
        is_live = ~is_end
        is_live[ids[is_end & (ids >= start)] - start] = False
        rows = self._read(start, end, columns | frozenset(self.stream.time_columns))
        rows = rows.filter(pl.Series(is_live[: end - start])).drop(ID, SINCE, CEASED)
        if self.stream.table == "temporal":
            return with_periods(rows, self.stream)
        return rows.with_columns(pl.lit(ALWAYS, pl.Int64).alias(FROM), pl.lit(FOREVER, pl.Int64).alias(UNTIL))

    def read_live(self, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """The elements that have not ended at a position, with the end `FOREVER`, for a query that comes to its end."""
        rows = self._read(0, end, columns)
        is_end = times(rows, UNTIL) != OPEN
        is_live = ~is_end
        is_live[_ids(rows)[is_end]] = False
        live = _elements(rows, base).with_columns(pl.lit(FOREVER, pl.Int64).alias(UNTIL))
        return live.filter(pl.Series(is_live))

    def _read(self, start: int, end: int, columns: frozenset[str]) -> pl.DataFrame:
        """The changes between two positions: some columns of the payload, and what the log says of each."""
        names = [*sorted(columns), ID, FROM, UNTIL, SINCE, CEASED]
        parts = [part.select(names) for part in self.reader.read(start, end)]
        return pl.concat(parts, rechunk=True) if parts else self._nothing.select(names)

    def _read_base(self, start: int, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """The elements that were inserted between two positions before `base`, and ends of those that had ended there.

        Changes by the clock count as if they had been made when the last given time before them was, or always: what
        they have ended was never there.
        """
        changes = self._read(start, base, frozenset())
        ids, is_end = _ids(changes), times(changes, UNTIL) != OPEN
        until = np.full(base - start, OPEN, np.int64)
        mine = is_end & (ids >= start)
        until[ids[mine] - start] = times(changes, CEASED)[mine]
        until = until[: end - start]
        rows = _elements(self._read(start, end, columns), base)
        is_element = ~is_end[: end - start] & (times(rows, FROM) < until)
        has_ended = is_element & (until != OPEN)
        ended = rows.with_columns(pl.Series(UNTIL, until)).filter(pl.Series(has_ended))
        return pl.concat([rows.filter(pl.Series(is_element)), ended])


def _ids(rows: pl.DataFrame) -> Times:
    ids: Times = rows.get_column(ID).to_numpy()
    return ids


def _elements(rows: pl.DataFrame, base: int) -> pl.DataFrame:
    """Changes of the log as elements. One that was inserted before a query began has the start that counts for it."""
    since = pl.when(pl.col(ID) < base).then(pl.col(SINCE)).otherwise(pl.col(FROM))
    return rows.with_columns(since.alias(FROM)).drop(ID, SINCE, CEASED)

"""The changes of a table as the input of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk, Source
from strandline.connectors.tables.bases import read_base
from strandline.connectors.tables.blocks import CEASED, ID, SINCE, log_schema
from strandline.connectors.tables.errors import table_missing, table_replaced
from strandline.connectors.tables.log import LogReader, read_head
from strandline.connectors.tables.periods import with_periods
from strandline.connectors.tables.store import find_open_table, is_table_open
from strandline.connectors.traits import Traits
from strandline.core.errors import Span, damaged
from strandline.core.temporal import ALWAYS, FOREVER, OPEN, Instant
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.runtime.kernels.batch import FROM, UNTIL, Times, keep, stack, times


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

    def bytes_per_row(self) -> float:
        """About how many bytes of the log a change takes."""
        return find_open_table(self.path).bytes_per_row

    def last_change(self) -> Instant:
        """When the last change takes effect."""
        return find_open_table(self.path).last_change

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        raise AssertionError("the offsets of tables come with promises")

    def rows_left(self, position: int) -> int | None:
        return self.log_end() - position

    def seal(self, position: int) -> str:
        """The identity of the table; each position of its log is protected by the log itself."""
        return find_open_table(self.path).identity

    def verify(self, position: int, seal: str) -> None:
        if not is_table_open(self.path):
            raise table_missing(self.stream.declared_name)
        if seal and seal != self.seal(position):
            raise table_replaced(self.path, position)
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
        inserted, until = self._inserted(start, end, base, columns | frozenset(self.stream.time_columns))
        rows = inserted.filter(pl.Series(until == OPEN)).drop(ID, SINCE, CEASED)
        if self.stream.table == "temporal":
            return with_periods(rows, self.stream)
        return rows.with_columns(pl.lit(ALWAYS, pl.Int64).alias(FROM), pl.lit(FOREVER, pl.Int64).alias(UNTIL))

    def read_live(self, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """The elements that have not ended at a position, with the end `FOREVER`, for a query that comes to its end."""
        inserted, until = self._inserted(0, end, end, columns)
        live = _elements(inserted, base).with_columns(pl.lit(FOREVER, pl.Int64).alias(UNTIL))
        return live.filter(pl.Series(until == OPEN))

    def _read_base(self, start: int, end: int, base: int, columns: frozenset[str]) -> pl.DataFrame:
        """The elements that were inserted between two positions before `base`, and ends of those that had ended there.

        Changes by the clock count as if they had been made when the last given time before them was, or always: what
        they have ended was never there.
        """
        inserted, until = self._inserted(start, end, base, columns)
        rows = _elements(inserted, base)
        is_element = times(rows, FROM) < until
        ended = rows.with_columns(pl.Series(UNTIL, until)).filter(pl.Series(is_element & (until != OPEN)))
        return pl.concat([rows.filter(pl.Series(is_element)), ended])

    def _inserted(self, start: int, end: int, until: int, columns: frozenset[str]) -> tuple[pl.DataFrame, Times]:
        """The insertions between two positions, and when each has ended up to a later position, for a query that begins
        there; `OPEN` if it has not."""
        inserted = self._read(start, end, columns)
        inserted = keep(inserted, times(inserted, UNTIL) == OPEN)
        ids = _ids(inserted)
        ended = np.full(inserted.height, OPEN, np.int64)
        # Part by part: the log up to the later position may be much longer than what is asked for.
        for part in self._parts(start, until if len(ids) else start, [ID, UNTIL, CEASED]):
            ends = keep(part, times(part, UNTIL) != OPEN)
            ended_ids = _ids(ends)
            places = np.minimum(np.searchsorted(ids, ended_ids), len(ids) - 1)
            mine = ids[places] == ended_ids
            ended[places[mine]] = times(ends, CEASED)[mine]
        return inserted, ended

    def _read(self, start: int, end: int, columns: frozenset[str]) -> pl.DataFrame:
        """The changes between two positions: some columns of the payload, and what the log says of each."""
        names = [*sorted(columns), ID, FROM, UNTIL, SINCE, CEASED]
        return stack(list(self._parts(start, end, names)) or [self._nothing.select(names)])

    def _parts(self, start: int, end: int, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Columns of the changes between two positions, file by file. Where the log has lost its beginning, its base
        stands for it, each position for a share of the rows."""
        if start < self._first:
            assert self._base is not None, "what comes before the log is in a base"
            height = self._base.height
            begin, stop = height * start // self._first, height * min(end, self._first) // self._first
            yield self._base.slice(begin, stop - begin).select(names)
        yield from self.reader.read(max(start, self._first), end, names)

    @cached_property
    def _first(self) -> int:
        """Where the log begins; what came before is in a base."""
        head = read_head(self.path)
        return 0 if head is None else head.first

    @cached_property
    def _base(self) -> pl.DataFrame | None:
        schema = log_schema(self.stream.columns)
        return read_base(self.path, self._first, schema).rows if self._first else None


def _ids(rows: pl.DataFrame) -> Times:
    ids: Times = rows.get_column(ID).to_numpy()
    return ids


def _elements(rows: pl.DataFrame, base: int) -> pl.DataFrame:
    """Changes of the log as elements. One that was inserted before a query began has the start that counts for it."""
    since = pl.when(pl.col(ID) < base).then(pl.col(SINCE)).otherwise(pl.col(FROM))
    return rows.with_columns(since.alias(FROM)).drop(ID, SINCE, CEASED)

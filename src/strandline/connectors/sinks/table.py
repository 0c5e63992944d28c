"""Table sink: a result stored as a temporal table, whose rows have the periods in which they were valid."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

import polars as pl
import pyarrow as pa

from strandline.connectors.sinks.base import ResumePoint, Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.tables.statements import DeleteRows, InsertRows
from strandline.connectors.tables.store import TableStore, find_open_table
from strandline.connectors.traits import Traits
from strandline.core.errors import SinkError
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, to_datetime
from strandline.core.types import BOOLEAN, TIMESTAMP, Schema
from strandline.logical.catalog import Table
from strandline.logical.expressions import Call, ColumnRef, Literal

# Rows that are older than KEEP are deleted whenever so much of it has passed: to find them, all rows are looked at.
_FORGETS_EVERY: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class TableSink(Sink):
    """Append the elements of a result to a temporal table of the same database, for as long as its KEEP says."""

    kind: ClassVar[str] = "table"
    traits: ClassVar[Traits] = Traits(True, True, True, "in a temporal table, exactly once")

    name: str
    table: Table | None = None  # which a database finds by the name

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        name = arguments.required(0, "the name of a table")
        arguments.done(most=1)
        return cls(name)

    @property
    def location(self) -> str | None:
        return f"table {self.name}"

    def open(self, query: str, columns: Schema) -> SinkWriter:
        if self.table is None or self.table.kind != "temporal":
            raise SinkError(
                f'"{self.name}" is not a temporal table of this database',
                code="sink-argument",
                hint="Declare it first: CREATE TABLE name (…, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b.",
            )
        _check_columns(self.table, columns)
        return _TableWriter(self.table)


def _check_columns(table: Table, columns: Schema) -> None:
    """The columns of the query are those of the table in their order, without the two of the period."""
    expected = [kind for name, kind in table.columns if name not in (table.time_column, table.end_column)]
    if table.source is not None or table.key or [column.type for column in columns] != expected:
        raise SinkError(
            f'the result does not fit table "{table.name}"',
            code="sink-columns",
            hint=f"Select columns of the types {', '.join(map(str, expected))}. "
            "The table must have neither a SOURCE nor a PRIMARY KEY.",
        )


class _TableWriter(SinkWriter):
    """Commits each batch once: the log of the table has the last batch beside its rows."""

    def __init__(self, table: Table) -> None:
        self._table, self._owner = table, ""
        self._forgotten: Instant = BEFORE_ALL

    @property
    def _store(self) -> TableStore:
        return find_open_table(Path(self._table.directory))

    def validate(self, resume_point: ResumePoint) -> None:
        owner, batch = _read_position(self._store.feed_position)
        if owner not in ("", resume_point.owner):
            raise SinkError(
                f'table "{self._table.name}" belongs to a query of another checkpoint',
                code="results-exist",
                hint="Choose another table, or continue that query.",
            )
        resume_point.check(f'table "{self._table.name}"', batch, expected=resume_point.last_result_batch)

    def prepare(self, resume_point: ResumePoint) -> None:
        self._owner = resume_point.owner

    def write(self, sink_batch: SinkBatch) -> None:
        if sink_batch.table.num_rows and _read_position(self._store.feed_position)[1] < sink_batch.batch:
            position = f"{self._owner} {sink_batch.batch}"
            self._store.commit(InsertRows(self._rows(sink_batch.table)), feed=position)
        self._forget(sink_batch.complete_until)

    def _rows(self, result: pa.Table) -> pl.DataFrame:
        """Elements as rows of the table."""
        payload = [name for name, _ in self._table.columns if name not in self._period]
        frame = pl.DataFrame(result.rename_columns([*payload, *self._period]))
        times = [pl.col(name).dt.replace_time_zone(None) for name in self._period]
        return frame.with_columns(times).select([name for name, _ in self._table.columns])

    def _forget(self, now: Instant) -> None:
        """Delete the rows that ended before the time that the table keeps."""
        keep_us = self._table.keep_us
        if keep_us is None or not BEFORE_ALL < now < FOREVER:
            return
        until = now - keep_us
        if until - self._forgotten < keep_us * _FORGETS_EVERY:
            return
        end, moment = ColumnRef(self._period[1], TIMESTAMP), Literal(to_datetime(until).replace(tzinfo=None), TIMESTAMP)
        self._store.commit(DeleteRows(Call("<=", (end, moment), BOOLEAN)))
        self._forgotten = until

    @property
    def _period(self) -> tuple[str, str]:
        start, end = self._table.time_column, self._table.end_column
        assert start is not None and end is not None, "a temporal table has both"
        return start, end


def _read_position(feed: str | None) -> tuple[str, int]:
    """The owner of a table's content, and the last batch that is in it."""
    if feed is None:
        return "", -1
    owner, _, batch = feed.rpartition(" ")
    return owner, int(batch)

"""Databases as feeds: a consistent snapshot, then polling.

By comparison the whole table is read each time, and the difference is what changed: deletions are seen, whatever the
other system does, and reading once more changes nothing. By a version column only rows with the last version or a later
one are read: their versions must grow in the order of commits, and deletions are not seen.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Final, TypeAlias

import polars as pl

from strandline.connectors.sources.base import REJECT_SCHEMA, SourceArguments
from strandline.connectors.sources.conversion import conform
from strandline.connectors.tables.feeds.base import Change, FeedStep, TableFeed
from strandline.connectors.tables.feeds.rejections import reject_nulls
from strandline.connectors.tables.rows import payload_schema
from strandline.connectors.tables.statements import InsertRows, ReplaceContent
from strandline.connectors.tables.store import TableStore
from strandline.core.errors import SourceError, Span, StrandlineError
from strandline.core.temporal import SECOND, unit_size
from strandline.logical.catalog import Table

Version: TypeAlias = str | int | float
_DURATION: Final = re.compile(r"\s*(\d+)\s*([a-zµ]+)\s*", re.IGNORECASE)


def polling_interval(arguments: SourceArguments) -> float:
    """`every => '1 second'`, in seconds."""
    text = arguments.option("every", str, "1 second")
    match = _DURATION.fullmatch(text)
    size = None if match is None else unit_size(match[2])
    if match is None or size is None or not int(match[1]):
        raise arguments.error(
            f"every of {arguments.call.function}() must be a duration such as '1 second', not '{text}'"
        )
    return int(match[1]) * size / SECOND


def refuse_clauses(table: Table, span: Span | None) -> None:
    """The rows of another database are what they are now: they say nothing of times and operations."""
    assert table.source is not None, "it has a source"
    if table.kind == "changing" and table.time_column is not None:
        raise _unsupported(table, "ORDERED BY", "Leave it out: changes take effect when they are seen.", span)
    if table.changes is not None:
        raise _unsupported(table, "CHANGES IN", "Leave it out: changes are found by comparison.", span)


def _unsupported(table: Table, clause: str, hint: str, span: Span | None) -> SourceError:
    assert table.source is not None, "it has a source"
    message = f"{clause} is not supported with {table.source.function}()"
    return SourceError(message, code="not-supported", hint=hint, span=span)


class DatabaseFeed(TableFeed):
    """A table of another database. `version` is None where rows are compared."""

    pause_seconds: ClassVar[float] = 0.05

    def __init__(self, table: Table, store: TableStore) -> None:
        super().__init__(table, store)
        assert table.source is not None, "it has a source"
        self.arguments = SourceArguments(table.source)
        self.origin = self.origin_table = ""
        self.version: str | None = None
        self.interval = 1.0
        self._next_poll = 0.0
        self._schema = payload_schema(table)
        self._last_rejected = pl.DataFrame(schema=REJECT_SCHEMA)

    def identity(self) -> dict[str, object]:
        return {"function": self.arguments.call.function.lower(), "table": self.origin_table, "version": self.version}

    @abstractmethod
    def read(self, since: Version | None) -> tuple[pl.DataFrame, Version | None]:
        """The rows of the table, as texts, in one transaction: all, or those of a version or a later one; and the
        latest version."""

    def has_news(self) -> bool:
        """False if nothing can have changed since the last reading."""
        return True

    def poll(self, limit_rows: int) -> FeedStep | None:
        now = time.monotonic()
        if self.position.ended or now < self._next_poll:
            return None
        self._next_poll = now + self.interval
        is_first = self.position.read == 0 and self.position.version is None
        if not is_first and not self.has_news():
            return None
        raw, version = self.read(self.position.version)
        chunk = reject_nulls(conform(raw, self.table.input, self.origin, 1), self.table)
        # A row that cannot be read is rejected in each reading, and counts once.
        rejected = chunk.rejected.clear() if chunk.rejected.equals(self._last_rejected) else chunk.rejected
        self._last_rejected = chunk.rejected
        change = self._change(chunk.rows.select(list(self._schema)))
        # The difference of two readings is nothing where nothing has changed: then the log keeps no position either.
        is_news = is_first or rejected.height > 0 or version != self.position.version
        self.position = replace(
            self.position,
            ended=self.table.kind != "changing",
            read=self.position.read + max(chunk.count, 1),
            rejected=self.position.rejected + rejected.height,
            version=version,
        )
        return FeedStep(change, self.position, rejected, chunk.rows.height, is_news)

    def _change(self, rows: pl.DataFrame) -> Change:
        key = self.table.unique_key
        if key:
            rows = rows.unique(key, keep="last", maintain_order=True)
        if self.version is None or self.position.version is None:
            return ReplaceContent(rows)
        return InsertRows(drop_unchanged(rows, self.store), "update")


def drop_unchanged(rows: pl.DataFrame, store: TableStore) -> pl.DataFrame:
    """The rows of an upsert without those that the table has as they are."""
    if not rows.height:
        return rows
    there = store.find(rows.select(store.table.unique_key)).select(rows.columns)
    return rows.join(there, on=rows.columns, how="anti", nulls_equal=True, maintain_order="left")


def check_version(table: Table, version: str | None, span: Span | None) -> None:
    if version is not None and not table.unique_key:
        raise SourceError(
            f'table "{table.name}" needs a PRIMARY KEY: rows with a later version replace those that are there',
            code="no-key",
            hint="Declare it, or leave version out: then rows are compared.",
            span=span,
        )


def unreachable(where: str, error: Exception) -> SourceError:
    """The system does not respond at present."""
    return SourceError(
        f"cannot reach {where}",
        code="database-unreachable",
        detail=" ".join(str(error).split())[:500],
        hint="Check the address, and that the server is running.",
    )


def unreadable(where: str, error: Exception) -> SourceError:
    """The system responds, but not with the table."""
    return SourceError(
        f"cannot read {where}",
        code="table-unreadable",
        detail=" ".join(str(error).split())[:500],
        hint="Check the names of the table and its columns, and the permissions.",
    )


def missing_columns(table: Table, present: list[str], where: str, span: Span | None) -> SourceError | None:
    """The error for a declared column that the origin lacks; None if there is none."""
    for name, _ in table.columns:
        if name not in present:
            return SourceError(
                f'column "{name}" of table "{table.name}" is not in {where}',
                code="missing-column",
                hint=f"Its columns are {', '.join(present)}.",
                span=span,
            )
    return None


@contextmanager
def named_errors(where: str, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except StrandlineError:
        raise
    except errors as error:
        raise unreadable(where, error) from None


def text_frame(rows: list[tuple[object, ...]], names: list[str]) -> pl.DataFrame:
    """Rows of texts as columns."""
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")

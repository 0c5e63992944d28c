"""Streams of events that the program itself gives, row by row or table by table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from strandline.connectors.sources.journal import Journal
from strandline.core.durable import encode_name
from strandline.core.errors import SourceError
from strandline.core.lease import Lease
from strandline.core.temporal import Instant
from strandline.core.temporary import temporary_directory
from strandline.logical.catalog import BaseStream, ConnectorCall, Stream


class PushStreams:
    """Journals of the streams of `events()`: in `directory`, where they outlive the program, or in a temporary one."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._is_temporary = directory is None
        self._journals: dict[str, Journal] = {}
        self._leases: dict[str, Lease] = {}  # one program writes to a journal

    def with_directory(self, stream: BaseStream) -> BaseStream:
        """The stream with a directory for its events, if it needs one and has none."""
        if stream.source.function != "events" or stream.source.arguments:
            return stream
        if self._directory is None:
            self._directory = temporary_directory("events")
        return replace(stream, source=ConnectorCall("events", (str(self._directory / encode_name(stream.name)),)))

    def append(self, stream: Stream, rows: Any) -> int:
        """Append rows to a stream; they are on disk when this returns. Returns their number."""
        journal = self._journal(stream)
        assert isinstance(stream, BaseStream)
        table = _table(rows, stream)
        journal.append(table)
        return int(table.num_rows)

    def advance(self, stream: Stream, until: Instant) -> None:
        self._journal(stream).promise(until)

    def end(self, stream: Stream) -> None:
        self._journal(stream).close()

    def _journal(self, stream: Stream) -> Journal:
        if not isinstance(stream, BaseStream) or stream.source.function != "events":
            raise SourceError(
                f'cannot append rows to stream "{stream.name}"',
                code="not-events",
                hint="Declare it with SOURCE events().",
            )
        if stream.name not in self._journals:
            directory = Path(str(stream.source.arguments[0])).absolute()
            lease = Lease.acquire(directory)
            journal = Journal(directory)
            try:
                journal.refresh()
            except BaseException:
                lease.release()
                raise
            self._journals[stream.name], self._leases[stream.name] = journal, lease
        journal = self._journals[stream.name]
        self._leases[stream.name].check()
        if journal.ended:
            raise SourceError(
                f'stream "{stream.name}" has ended',
                code="stream-ended",
                hint="Queries have emitted their final results; no rows can follow.",
            )
        return journal

    def close(self) -> None:
        for lease in self._leases.values():
            lease.release()
        self._leases, self._journals = {}, {}
        if self._is_temporary and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _table(rows: Any, stream: BaseStream) -> pa.Table:
    """Convert Python rows to a table with all columns of the stream.

    Types are not checked here: the source checks every row, and rejects those that do not fit.
    """
    names = [name for name, _ in stream.columns]
    match rows:
        case pa.Table():
            table = rows
        case pl.DataFrame():
            table = rows.to_arrow()
        case Mapping():
            return _table([rows], stream)
        case [Mapping(), *_] if all(isinstance(row, Mapping) for row in rows):
            if others := {name for row in rows for name in row} - set(names):
                raise _unfit(stream, f"unknown columns: {', '.join(sorted(others))}")
            table = _of_columns({name: [row.get(name) for row in rows] for name in names})
        case _ if hasattr(rows, "__dataframe__"):  # pandas and its relatives
            table = pa.Table.from_pandas(rows, preserve_index=False)
        case [*_]:
            for number, row in enumerate(rows, 1):
                if not isinstance(row, list | tuple) or len(row) != len(names):
                    raise _unfit(stream, f"row {number} is not a tuple of {len(names)} values")
            table = _of_columns({name: [row[index] for row in rows] for index, name in enumerate(names)})
        case _:
            raise _unfit(stream, f"a {type(rows).__name__} is not a table")
    missing = [name for name in names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in names]
    if missing or unknown:
        raise _unfit(stream, f"{'missing' if missing else 'unknown'} columns: {', '.join(missing or unknown)}")
    return table.select(names)


def _of_columns(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    try:
        return pa.table({name: pa.array(values) for name, values in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Values of several kinds in one column: as texts, each is converted alone.
        return pa.table({n: pa.array([None if v is None else str(v) for v in vs]) for n, vs in columns.items()})


def _unfit(stream: BaseStream, what: str) -> SourceError:
    columns = ", ".join(f"{name} {kind}" for name, kind in stream.columns)
    return SourceError(
        f'rows do not match stream "{stream.name}": {what}',
        code="unfit-rows",
        hint=f"It has the columns {columns}. Rows are tables of Arrow, Polars or pandas, or lists of tuples or dicts.",
    )

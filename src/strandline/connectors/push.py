"""Streams of events that the program itself gives, row by row or table by table."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from strandline.connectors.rows import to_table
from strandline.connectors.sources.journal import Journal
from strandline.core.durable import encode_name
from strandline.core.errors import CheckpointError, SourceError
from strandline.core.lease import Lease
from strandline.core.temporal import Instant
from strandline.core.temporary import temporary_directory
from strandline.logical.catalog import BaseStream, ConnectorCall, Stream, Table


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
        """Append rows to a stream, or to the source of a table; they are on disk when this returns. Returns their
        number."""
        stream = _with_events(stream)
        journal = self._journal(stream)
        assert isinstance(stream, BaseStream)
        table = to_table(rows, [name for name, _ in stream.columns], lambda what: _unfit(stream, what))
        journal.append(table)
        return int(table.num_rows)

    def advance(self, stream: Stream, until: Instant) -> None:
        self._journal(_with_events(stream)).promise(until)

    def end(self, stream: Stream) -> None:
        self._journal(_with_events(stream)).close()

    def _journal(self, stream: Stream) -> Journal:
        if not isinstance(stream, BaseStream) or stream.source.function != "events":
            raise SourceError(
                f'cannot append rows to stream "{stream.name}"',
                code="not-events",
                hint="Declare it with SOURCE events().",
            )
        if stream.name not in self._journals:
            directory = Path(str(stream.source.arguments[0])).absolute()
            lease = _acquire(stream, directory)
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


def _with_events(stream: Stream) -> Stream:
    return stream.origin if isinstance(stream, Table) and stream.source is not None else stream


def _acquire(stream: BaseStream, directory: Path) -> Lease:
    try:
        return Lease.acquire(directory)
    except CheckpointError as error:
        if error.code != "checkpoint-busy":
            raise
        raise CheckpointError(
            f'another process is writing to stream "{stream.name}" in {directory}',
            code="checkpoint-busy",
            detail=error.detail,
            hint="Stop it first, or declare the stream with a directory of its own: events('…'). Nothing was changed.",
        ) from None


def _unfit(stream: BaseStream, what: str) -> SourceError:
    columns = ", ".join(f"{name} {kind}" for name, kind in stream.columns)
    return SourceError(
        f'rows do not match stream "{stream.name}": {what}',
        code="unfit-rows",
        hint=f"It has the columns {columns}. Rows are tables of Arrow, Polars or pandas, or lists of tuples or dicts.",
    )

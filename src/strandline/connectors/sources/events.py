"""Rows that a program gives: `Database.append`, scenario files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa

from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source, SourceArguments
from strandline.connectors.sources.conversion import conform
from strandline.connectors.sources.journal import Journal
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.security.allow import FilePath, Reach
from strandline.logical.catalog import BaseStream, SourceCall


class EventsSource(Source):
    """`events('directory')`: rows of `Database.append`, by default in a directory of the database. Ends with
    `Database.end`."""

    traits = Traits(True, True, True, "every append is on disk before it returns")

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        location = stream.source.arguments[0] if stream.source.arguments else None
        self.journal = Journal(Path(str(location))) if location is not None else None

    @classmethod
    def reaches(cls, call: SourceCall) -> list[Reach]:
        return [FilePath(str(directory)) for directory in call.arguments]

    def identity(self) -> dict[str, object]:
        return {"function": "events"}

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        arguments.done(most=1)
        if self.stream.source.arguments and not isinstance(self.stream.source.arguments[0], str):
            raise arguments.error("events() needs the name of a directory")

    def verify(self, position: int, seal: str) -> None:
        if self.journal is not None:
            self.journal.verify(position)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        assert self.journal is not None, "the database gives every stream of events a directory"
        ended = self.journal.ended  # checked first: rows appended before the end are not missed
        self.journal.look()
        reached = min(position + limit_rows, self.journal.reach)
        return reached, ended and reached == self.journal.reach

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        assert self.journal is not None, "the database gives every stream of events a directory"
        for position, entry in self.journal.between(start, end):
            if isinstance(entry, pa.Table):
                rows = pl.from_arrow(entry)
                assert isinstance(rows, pl.DataFrame)
                yield conform(rows, self.stream, f"events of {self.stream.name}", position + 1)
            else:
                yield Chunk(pl.DataFrame(), pl.DataFrame(schema=REJECT_SCHEMA), promise=entry)

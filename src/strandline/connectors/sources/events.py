"""Rows that a program gives: `Database.append`, scenario files."""

from __future__ import annotations

from pathlib import Path

from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.sources.journal import Journal, JournalSource
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.security.allow import FilePath, Reach
from strandline.logical.catalog import BaseStream, ConnectorCall


class EventsSource(JournalSource):
    """`events('directory')`: rows of `Database.append`, by default in a directory of the database. Ends with
    `Database.end`."""

    traits = Traits(True, True, True, "every append is on disk before it returns")
    shares_log = True
    rows_name = "events"

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        location = stream.source.arguments[0] if stream.source.arguments else None
        super().__init__(stream, directory, None if location is None else Journal(Path(str(location))))

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        return [FilePath(str(directory)) for directory in call.arguments]

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        arguments.done(most=1)
        if self.stream.source.arguments and not isinstance(self.stream.source.arguments[0], str):
            raise arguments.error("events() needs the name of a directory")

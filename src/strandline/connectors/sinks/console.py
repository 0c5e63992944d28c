"""Console sink: results as lines of text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, Self, TextIO

from strandline.connectors.sinks.base import Sink, SinkArguments, SinkBatch, SinkWriter
from strandline.connectors.traits import Traits
from strandline.core.errors import one_line
from strandline.core.types import Schema
from strandline.runtime.result import VALID_FROM, VALID_UNTIL, with_open_ends


@dataclass(frozen=True, slots=True)
class Console(Sink):
    """Print each element as it becomes known."""

    kind: ClassVar[str] = "console"
    traits: ClassVar[Traits] = Traits(False, True, False, "at least once; printed to standard output")

    stream: TextIO | None = None

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        arguments.done(most=0)
        return cls()

    @property
    def takes_changes(self) -> bool:
        return True

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _ConsoleWriter(query, self.stream)


class _ConsoleWriter(SinkWriter):
    def __init__(self, query: str, stream: TextIO | None) -> None:
        self._query, self._stream = query, stream

    def write(self, sink_batch: SinkBatch) -> None:
        out = self._stream or sys.stdout
        for row in with_open_ends(sink_batch.table, sink_batch.begin).to_pylist():
            start, end = row.pop(VALID_FROM), row.pop(VALID_UNTIL)
            values = "  ".join(f"{name}={value}" for name, value in row.items())
            until = "…" if end is None else f"{end:%Y-%m-%d %H:%M:%S.%f}"
            # Data must neither control a terminal nor imitate a line of another element.
            print(one_line(f"{self._query}  [{start:%Y-%m-%d %H:%M:%S.%f} – {until})  {values}"), file=out)
        out.flush()

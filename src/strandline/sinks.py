"""Where the answer of a query goes, as the user says it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeAlias

import pyarrow as pa

from strandline.errors import SinkError
from strandline.execution.answers import VALID_FROM, VALID_UNTIL
from strandline.execution.delivery import BatchReport, Listener
from strandline.execution.sinks import ParquetTarget


@dataclass(frozen=True, slots=True)
class Memory:
    """Keep the answer in this process; `Query.results()` and the like read it."""


@dataclass(frozen=True, slots=True)
class Parquet:
    """Write the answer to a directory of Parquet files, each result exactly once, also after a crash.

    A plain Parquet reader that opens the directory sees what has been committed and nothing else.
    """

    directory: str | os.PathLike[str]

    def target(self, query: str) -> ParquetTarget:
        """The place of a query's files; made here so that a problem shows before anything starts."""
        directory = Path(self.directory).absolute()
        staging = directory.parent / ".strandline" / "staging"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            staging.mkdir(parents=True, exist_ok=True)
            probe = directory / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SinkError(
                f"the directory {directory} of query {query} cannot be written",
                code="sink-unwritable",
                detail=str(error),
                hint="Choose another directory or mend its permissions.",
            ) from None
        return ParquetTarget(str(directory), str(staging))

    def files(self) -> list[Path]:
        return sorted(Path(self.directory).glob("*.parquet"))


@dataclass(frozen=True, slots=True)
class Callback:
    """Call `function(batch_id, table)` for every batch that brings results, in the driver's process.

    Delivery is at least once: after a crash the last batch may come again, with the same `batch_id` and the same rows.
    """

    function: Callable[[int, pa.Table], None]


@dataclass(frozen=True, slots=True)
class Console:
    """Print each element as it becomes known."""

    stream: TextIO | None = None

    def show(self, query: str, table: pa.Table) -> None:
        out = self.stream or sys.stdout
        for row in table.to_pylist():
            start, end = row.pop(VALID_FROM), row.pop(VALID_UNTIL)
            values = "  ".join(f"{name}={value}" for name, value in row.items())
            until = "…" if end is None else f"{end:%Y-%m-%d %H:%M:%S.%f}"
            print(f"{query}  [{start:%Y-%m-%d %H:%M:%S.%f} – {until})  {values}", file=out)
        out.flush()


Sink: TypeAlias = Memory | Parquet | Callback | Console


def listener(sink: Sink, query: str) -> Listener | None:
    """What the driver does with the rows of a batch; nothing for Parquet, which the tasks write themselves."""
    match sink:
        case Callback(function):

            def call(report: BatchReport) -> None:
                table = report.answer(query)
                if table is not None:
                    function(report.batch, table)

            return call
        case Console():

            def show(report: BatchReport) -> None:
                table = report.answer(query)
                if table is not None:
                    sink.show(query, table)

            return show
        case Memory() | Parquet():
            return None

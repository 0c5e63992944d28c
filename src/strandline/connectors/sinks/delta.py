"""Delta Lake sink."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from strandline.connectors.sinks.base import (
    KeptResults,
    ResumePoint,
    Sink,
    SinkArguments,
    SinkBatch,
    SinkWriter,
    refuse_duplicates,
)
from strandline.connectors.traits import Needs, Traits
from strandline.core.errors import SinkError
from strandline.core.security.allow import Reach, url_reaches
from strandline.core.security.redaction import redact
from strandline.core.temporal import show_instant
from strandline.core.types import Schema
from strandline.runtime.result import result_schema


@dataclass(frozen=True, slots=True)
class Delta(Sink):
    """Append the elements of the result to a Delta table, exactly once, also after a crash.

    A batch is one version of the table, and its number is part of that version. `directory` may be a URL of an object
    store.
    """

    kind: ClassVar[str] = "delta"
    traits: ClassVar[Traits] = Traits(True, True, True, "a batch is one version of the table, with its number in it")
    needs: ClassVar[Needs] = Needs("deltalake", "delta")

    directory: str | os.PathLike[str]

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        directory = arguments.required(0, "directory")
        arguments.done(most=1)
        return cls(directory)

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return _DeltaWriter(self.needs.load(), self.location, query, columns)

    @property
    def location(self) -> str:
        where = str(self.directory)
        return where if "://" in where else str(Path(where).absolute())

    def reaches(self) -> list[Reach]:
        return [url_reaches(self.location)]

    @property
    def identity(self) -> str:
        return self.kind

    @property
    def display_location(self) -> str:
        return redact(str(self.directory))


class _DeltaWriter(SinkWriter):
    def __init__(self, library: Any, location: str, query: str, columns: Schema) -> None:
        self._library = library
        self._location, self._query = location, query
        self._schema = pa.schema([_field(field) for field in result_schema(columns)])
        self._owner = ""
        self._opened: Any = None
        refuse_duplicates(self._schema.names)

    @property
    def _table(self) -> Any:
        """The table in its newest version, or None."""
        if self._opened is not None:
            self._opened.update_incremental()
        elif self._library.DeltaTable.is_deltatable(self._location):
            self._opened = self._library.DeltaTable(self._location)
        return self._opened

    def _last_batch(self) -> int:
        """The last batch of ours in the table; -1 without one."""
        table = self._table
        version = None if table is None else table.transaction_version(self._owner)
        return -1 if version is None else int(version)

    def validate(self, resume_point: ResumePoint) -> None:
        self._owner = f"strandline {resume_point.owner} {self._query}"
        try:
            table, last_batch = self._table, self._last_batch()
        except Exception as error:  # each object store has errors of its own
            raise self._unusable("cannot be read", error) from None
        # Only batches with rows are versions of the table.
        if table is not None and last_batch < 0 and resume_point.last_result_batch < 0:
            raise SinkError(
                f"{self._location} is a Delta table of another query",
                code="results-exist",
                hint="Choose another directory, or remove the table.",
            )
        if table is None and "://" not in self._location and any(Path(self._location).glob("*")):
            raise SinkError(
                f"{self._location} is not empty and not a Delta table",
                code="results-exist",
                hint="Choose another directory.",
            )
        resume_point.check(self._location, last_batch, expected=resume_point.last_result_batch)
        if table is not None and (present := [field.name for field in table.schema().fields]) != self._schema.names:
            raise SinkError(
                f"{self._location} has the columns {', '.join(present)}",
                code="sink-columns",
                detail=f"The query {self._query} needs {', '.join(self._schema.names)}, in this order.",
            )

    def write(self, sink_batch: SinkBatch) -> None:
        if not sink_batch.table.num_rows:
            return
        try:
            if self._last_batch() >= sink_batch.batch:
                return  # it was written before a crash
            properties = self._library.CommitProperties(
                custom_metadata={
                    "strandline.query": self._query,
                    "strandline.batch": str(sink_batch.batch),
                    "strandline.complete_until": show_instant(sink_batch.complete_until),
                },
                app_transactions=[self._library.Transaction(self._owner, sink_batch.batch)],
            )
            target = self._opened if self._opened is not None else self._location
            rows = sink_batch.table.cast(self._schema)
            self._library.write_deltalake(target, rows, mode="append", commit_properties=properties)
        except Exception as error:  # each object store has errors of its own
            raise self._unusable("cannot be written", error) from None

    def kept(self) -> KeptResults:
        table = self._table
        return KeptResults([] if table is None else [table.to_pyarrow_table()])

    def _unusable(self, what: str, error: Exception) -> SinkError:
        return SinkError(
            f"the Delta table {self._location} {what}",
            code="sink-failed",
            detail=" ".join(str(error).split())[:500],
            hint="Fix the cause and restart the query; it resumes from this batch.",
        )


def _field(field: pa.Field) -> pa.Field:
    """Delta has no type for a column with only NULLs."""
    return pa.field(field.name, pa.string()) if pa.types.is_null(field.type) else field

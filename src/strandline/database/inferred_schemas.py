"""Schemas that were read from data: kept for the queries that have a checkpoint, so that a restart has the same columns
though the data has grown, and shown in a notice."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from strandline.core.durable import write_file
from strandline.core.notices import Notice
from strandline.core.temporal import show_duration
from strandline.core.types import Type
from strandline.logical.catalog import BaseStream, ConnectorCall, SourceSchema, Table
from strandline.sql.binder.create_stream import written

FILE: Final = "schemas.json"
KEPT: Final = "as a checkpoint here has them"


class InferredSchemas:
    """Schemas by the name of their stream or table; in a file where a database has a directory."""

    def __init__(self, directory: Path | None) -> None:
        self._file = directory / FILE if directory is not None else None
        self._pinned = _read(self._file)
        self._read: dict[str, dict[str, Any]] = {}  # since this database was opened
        self._ready: dict[str, SourceSchema] = {}

    def find(self, name: str, call: ConnectorCall, infer: Callable[[], SourceSchema | None]) -> SourceSchema | None:
        """The schema of a stream as its checkpoint has it, else as its source has it now."""
        kept = self._pinned.get(name.lower())
        if kept is not None and kept["source"] == _identity(call):
            return _from_json(kept)
        schema = self._ready.pop(name.lower(), None) or infer()
        if schema is not None and schema.place:
            self._read[name.lower()] = {"source": _identity(call), **_to_json(schema)}
        return schema

    def keep_for_declaration(self, name: str, schema: SourceSchema) -> None:
        """Have the next `find` of a name return a schema that was read right before."""
        self._ready[name.lower()] = schema

    def pin(self, names: Iterable[str]) -> None:
        """Keep the schemas of streams that a checkpoint is begun with."""
        fresh = {name.lower(): self._read[name.lower()] for name in names if name.lower() in self._read}
        if self._file is None or all(self._pinned.get(name) == schema for name, schema in fresh.items()):
            return
        self._pinned |= fresh
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._file, json.dumps(self._pinned, indent=1).encode())

    def forget(self, name: str) -> None:
        """Read the schema of a stream again when it is declared again."""
        self._read.pop(name.lower(), None)
        if self._pinned.pop(name.lower(), None) is not None and self._file is not None:
            write_file(self._file, json.dumps(self._pinned, indent=1).encode())


def schema_notices(schema: SourceSchema, stream: BaseStream | Table) -> list[Notice]:
    """What was read from the data, in one line; nothing where the source declares it."""
    if not schema.place:
        return []
    columns = ", ".join(_show_column(name, kind, stream) for name, kind in schema.columns)
    options = "".join(f", {name} => '{value}'" for name, value in schema.options.items()).replace("\t", "\\t")
    text = f"columns of {schema.place}: {columns}; {schema.basis}{options}"
    notices = [Notice("inferred-columns", text)]
    for remark in schema.remarks:
        notices.append(Notice("inferred-columns", f"{schema.place}: {remark}"))
    return notices


def _show_column(name: str, kind: Type, stream: BaseStream | Table) -> str:
    if name != stream.time_column:
        return f"{written(name)} {kind}"
    within = f", out of order within {show_duration(stream.disorder_us)}" if stream.disorder_us else ""
    return f"{written(name)} {kind} (time{within})"


def _identity(call: ConnectorCall) -> str:
    """A source as it is declared, as a hash, since sources have passwords."""
    declared = repr((call.function, call.arguments, sorted(call.options.items())))
    return hashlib.sha256(declared.encode()).hexdigest()


def _to_json(schema: SourceSchema) -> dict[str, Any]:
    return {
        "columns": [[name, kind.name, kind.precision, kind.scale] for name, kind in schema.columns],
        "time": schema.time_column,
        "disorder_us": schema.disorder_us,
        "place": schema.place,
        "times": list(schema.times),
        "options": dict(schema.options),
    }


def _from_json(data: dict[str, Any]) -> SourceSchema:
    return SourceSchema(
        tuple((name, Type(kind, precision, scale)) for name, kind, precision, scale in data["columns"]),
        data["time"],
        data["disorder_us"],
        place=data["place"],
        basis=KEPT,
        times=tuple(data["times"]),
        options=data["options"],
    )


def _read(file: Path | None) -> dict[str, dict[str, Any]]:
    """Content of the file; one that cannot be read has nothing, and a checkpoint with other columns is refused."""
    if file is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fields = {"source", "columns", "time", "disorder_us", "place", "times", "options"}
            return {name: data for name, data in json.loads(file.read_text()).items() if fields <= set(data)}
    return {}

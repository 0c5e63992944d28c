"""SQLite sink."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import polars as pl

from strandline.connectors.sinks.base import SinkArguments
from strandline.connectors.sinks.sql_table import ROW_ID, Shows, Store, StoreBusy, TableSink, TableSpec, form_of
from strandline.connectors.traits import Traits
from strandline.core.errors import SinkError
from strandline.core.security.allow import FilePath, Reach
from strandline.core.types import Type

_BUSY_SECONDS: Final = 60.0  # for which others may keep the file locked
_STEP_SECONDS: Final = 0.2  # for which one attempt waits: nothing can interrupt it
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Types without a SQLite equivalent are texts: DECIMALs stay exact, times sort.
_TYPES: Final = {"BOOLEAN": "BOOLEAN", "INT": "INTEGER", "BIGINT": "INTEGER", "INTERVAL": "INTEGER", "DOUBLE": "REAL"}
_ERRORS: Final = (sqlite3.Error, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class SQLite(TableSink):
    """Write the result to a table of a SQLite file, exactly once, also after a crash.

    `shows="elements"` appends all elements; `shows="snapshot"` keeps the table at the current snapshot.
    """

    kind: ClassVar[str] = "sqlite"
    traits: ClassVar[Traits] = Traits(True, True, True, "a batch and its number are one transaction")

    path: str | os.PathLike[str]
    table: str
    shows: Shows = "elements"

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        path, table = arguments.required(0, "path"), arguments.required(1, "table")
        shows = cls.shows_of(arguments)
        arguments.done(most=2)
        return cls(path, table, shows)

    def store(self) -> Store:
        return _SQLiteStore(Path(self.path).absolute())

    def reaches(self) -> list[Reach]:
        return [FilePath(str(Path(self.path).absolute()))]

    @property
    def display_location(self) -> str:
        return f"{self.path}, table {self.table}"


class _SQLiteStore(Store):
    unreachable = "Choose another file, or correct its permissions."
    busy_seconds = _BUSY_SECONDS
    parameter = "?"
    forever = "forever"

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._path = path

    @property
    def _open(self) -> Any:
        if self._connection is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(
                    self._path, timeout=_STEP_SECONDS, isolation_level=None, check_same_thread=False
                )
                connection.execute("PRAGMA schema_version")  # a file of another kind shows itself here
            except (OSError, sqlite3.Error) as error:
                if _is_busy(error):
                    raise StoreBusy(str(error)) from None
                raise SinkError(
                    f"cannot open the SQLite file {self._path}",
                    code="sink-unwritable",
                    detail=str(error),
                    hint=self.unreachable,
                ) from None
            self._connection = connection
        return self._connection

    def exists(self) -> bool:
        return self._path.exists()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        connection = self._open
        with self.failures(_ERRORS):
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.OperationalError as error:
                if _is_busy(error):
                    raise StoreBusy(str(error)) from None
                raise

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        return self._open.execute(statement, values)

    def type_of(self, kind: Type) -> str:
        return _TYPES.get(kind.name, "TEXT")

    def columns(self, table: str) -> list[str] | None:
        names = [row[1] for row in self.execute(f"PRAGMA table_info({self.quote(table)})")]
        return names or None

    def append(self, table: TableSpec, frame: pl.DataFrame) -> None:
        placeholders = ", ".join("?" * len(table.columns))
        self._open.executemany(f"INSERT INTO {self.quote(table.name)} VALUES ({placeholders})", frame.iter_rows())

    def delete(self, table: TableSpec, rows: pl.Series) -> None:
        statement = f"DELETE FROM {self.quote(table.name)} WHERE {ROW_ID} = ?"
        self._open.executemany(statement, rows.to_frame().iter_rows())

    def read(self, table: TableSpec) -> pl.DataFrame:
        rows = self.execute(f"SELECT * FROM {self.quote(table.name)}").fetchall()
        # A truth value comes back as a number.
        storage_schema = {
            name: pl.Int64() if form_of(kind) == pl.Boolean() else form_of(kind) for name, kind in table.columns
        }
        truths = [pl.col(name).cast(pl.Boolean) for name, kind in table.columns if form_of(kind) == pl.Boolean()]
        return pl.DataFrame(rows, schema=storage_schema, orient="row").with_columns(truths)

    def array_text(self, column: pl.Expr, kind: Type) -> pl.Expr:
        encoded = pl.struct(column.alias("a")).struct.json_encode()
        return pl.when(column.is_not_null()).then(encoded.str.strip_prefix('{"a":').str.strip_suffix("}"))

    def cancel(self, insistent: bool) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(sqlite3.Error):  # it was closed meanwhile
                connection.interrupt()


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY

"""Tables of SQLite files as sources of tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.tables.feeds import polling
from strandline.connectors.tables.feeds.polling import DatabaseFeed, Version
from strandline.connectors.tables.store import TableStore
from strandline.core import types
from strandline.core.errors import SourceError, Span
from strandline.core.security.allow import FilePath, Reach
from strandline.core.types import Type
from strandline.logical.catalog import ConnectorCall, SourceSchema, Table

_BUSY_SECONDS: Final = 10.0  # for which a writer may keep the file
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Types by what their declaration contains, as SQLite itself takes them.
_TYPES: Final = (
    ("BOOL", types.BOOLEAN),
    ("INT", types.BIGINT),
    ("REAL", types.DOUBLE),
    ("FLOA", types.DOUBLE),
    ("DOUB", types.DOUBLE),
    ("TIMESTAMP", types.TIMESTAMP),
    ("DATETIME", types.TIMESTAMP),
    ("DATE", types.DATE),
)


class SQLiteFeed(DatabaseFeed):
    """`sqlite('file.db', table => 'customers', version => NULL, every => '1 second')`."""

    def __init__(self, table: Table, store: TableStore) -> None:
        super().__init__(table, store)
        self.path, self.origin_table, self.version, self.interval = _options(self.arguments)
        self.origin = f"{self.path}, table {self.origin_table}"
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        return [FilePath(str(_options(SourceArguments(call))[0]))]

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        path, name, _, _ = _options(SourceArguments(call))
        return SourceSchema(tuple((column, _type(kind)) for column, kind in _columns(path, name)), None)

    @classmethod
    def check(cls, table: Table, span: Span | None) -> None:
        assert table.source is not None, "it has a source"
        path, name, version, _ = _options(SourceArguments(table.source, span))
        polling.refuse_clauses(table, span)
        polling.check_version(table, version, span)
        present = [column for column, _ in _columns(path, name)]
        if (error := polling.missing_columns(table, present, f"{path}, table {name}", span)) is not None:
            raise error

    def has_news(self) -> bool:
        """Each commit of another connection changes the version of the data."""
        with polling.named_errors(self.origin, sqlite3.Error):
            (seen,) = self._open().execute("PRAGMA data_version").fetchone()
        changed, self._seen = bool(seen != self._seen), seen
        return changed

    def read(self, since: Version | None) -> tuple[pl.DataFrame, Version | None]:
        names = [name for name, _ in self.table.columns]
        values = ", ".join(_as_text(name, kind) for name, kind in self.table.columns)
        statement = f"SELECT {values} FROM {quote(self.origin_table)}"
        try:
            connection = self._open()
            connection.execute("BEGIN")
            try:
                latest = None
                if self.version is not None:
                    column = quote(self.version)
                    (latest,) = connection.execute(f"SELECT MAX({column}) FROM {quote(self.origin_table)}").fetchone()
                    statement += f" WHERE {column} >= ?" if since is not None else ""
                arguments = () if since is None else (since,)
                rows = connection.execute(statement, arguments).fetchall()
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
                raise polling.unreachable(self.origin, error) from None
            raise polling.unreadable(self.origin, error) from None
        return polling.text_frame(rows, names), since if latest is None else latest

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self.path)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _options(arguments: SourceArguments) -> tuple[Path, str, str | None, float]:
    path, name = arguments.required(0, "path"), arguments.required(1, "table")
    version = arguments.option("version", str, None)
    interval = polling.polling_interval(arguments)
    arguments.done(most=2)
    return Path(path).absolute(), name, version, interval


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that reads only, and does not make a file that is not there."""
    uri = f"{path.as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _columns(path: Path, table: str) -> Sequence[tuple[str, str]]:
    """The columns of a table with their declared types."""
    try:
        connection = _connect(path)
        try:
            rows = connection.execute(f"PRAGMA table_info({quote(table)})").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise polling.unreadable(f"{path}", error) from None
    if not rows:
        hint = "Create it first, or correct the name."
        raise SourceError(f'there is no table "{table}" in {path}', code="missing-table", hint=hint)
    return [(row[1], row[2]) for row in rows]


def _type(declared: str) -> Type:
    return next((kind for word, kind in _TYPES if word in declared.upper()), types.VARCHAR)


def _as_text(name: str, kind: Type) -> str:
    """A value as a text that converts back to the same value."""
    column = quote(name)
    if kind.name == "BOOLEAN":
        return f"CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE CAST({column} AS TEXT) END"
    if kind.name == "DOUBLE":
        return f"CASE typeof({column}) WHEN 'real' THEN printf('%!.17g', {column}) ELSE CAST({column} AS TEXT) END"
    return f"CAST({column} AS TEXT)"

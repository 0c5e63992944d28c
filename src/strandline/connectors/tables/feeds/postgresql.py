"""Tables of PostgreSQL as sources of tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import polars as pl

from strandline.connectors.sinks.postgresql import dsn_reaches
from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.tables.feeds import polling
from strandline.connectors.tables.feeds.polling import DatabaseFeed, Version
from strandline.connectors.tables.feeds.sqlite import quote
from strandline.connectors.tables.store import TableStore
from strandline.connectors.traits import Needs
from strandline.core import types
from strandline.core.errors import SourceError, Span
from strandline.core.security.allow import Reach
from strandline.core.security.secret import Secret, reveal
from strandline.core.types import Type
from strandline.logical.catalog import ConnectorCall, SourceSchema, Table

NEEDS: Final = Needs("psycopg", "postgresql")
_CONNECTION: Final = {"connect_timeout": "5", "keepalives_idle": "10", "tcp_user_timeout": "30000"}
# Texts of times and numbers mean the same whatever the server's defaults are.
_SETTINGS: Final = "SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET extra_float_digits = 1"
_TRANSIENT: Final = ("08", "40", "53300", "57P01", "57P02", "57P03")
_SIMPLE: Final = {
    "int2": types.INT,
    "int4": types.INT,
    "int8": types.BIGINT,
    "float4": types.DOUBLE,
    "float8": types.DOUBLE,
    "bool": types.BOOLEAN,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP,
    "timestamptz": types.TIMESTAMP,
}
_MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class _Options:
    """What `postgresql(…)` says."""

    dsn: str | Secret
    table: str
    version: str | None
    password: Secret | None
    interval: float

    @staticmethod
    def of(call: ConnectorCall, span: Span | None = None) -> _Options:
        arguments = SourceArguments(call, span)
        dsn, table = arguments.required_or_secret(0, "dsn"), arguments.required(1, "table")
        version = arguments.option("version", str, None)
        password = arguments.secret(arguments.option("password", (str, Secret), None), "password")
        interval = polling.polling_interval(arguments)
        arguments.done(most=2)
        return _Options(dsn, table, version, password, interval)

    @property
    def quoted(self) -> str:
        return ".".join(map(quote, self.table.split(".", 1)))

    def parsed(self) -> dict[str, Any]:
        """Parameters of the DSN. libpq quotes parts of an invalid one, perhaps a password, in its message."""
        psycopg = NEEDS.load()
        try:
            return dict(psycopg.conninfo.conninfo_to_dict(reveal(self.dsn)))
        except psycopg.Error:
            hint = "Write 'postgresql://user@host:5432/database' or 'host=… dbname=…', special characters escaped."
            message = "invalid connection string of postgresql()"
            raise SourceError(message, code="source-argument", hint=hint) from None

    def connect(self) -> Any:
        psycopg = NEEDS.load()
        parameters = {**_CONNECTION, **self.parsed()}
        if self.password is not None:
            parameters["password"] = reveal(self.password)
        try:
            connection = psycopg.connect(autocommit=True, **parameters)
            connection.execute(_SETTINGS)
        except psycopg.Error as error:
            raise polling.unreachable("the PostgreSQL server", error) from None
        return connection


class PostgreSQLFeed(DatabaseFeed):
    """`postgresql('dsn', table => 'customers', version => NULL, every => '1 second', password => NULL)`."""

    needs: ClassVar[Needs] = NEEDS

    def __init__(self, table: Table, store: TableStore) -> None:
        super().__init__(table, store)
        assert table.source is not None, "it has a source"
        self.options = _Options.of(table.source)
        self.version, self.interval = self.options.version, self.options.interval
        self.origin_table = self.options.table
        self.origin = f"postgresql, table {self.options.table}"
        self._connection: Any = None
        self._kinds: dict[str, str] = {}

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        return dsn_reaches(_Options.of(call).parsed())

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        options = _Options.of(call)
        with options.connect() as connection:
            return SourceSchema(tuple((c, _type(kind, mod)) for c, kind, mod in _columns(connection, options)), None)

    @classmethod
    def check(cls, table: Table, span: Span | None) -> None:
        assert table.source is not None, "it has a source"
        options = _Options.of(table.source, span)
        polling.refuse_clauses(table, span)
        polling.check_version(table, options.version, span)
        with options.connect() as connection:
            present = [column for column, _, _ in _columns(connection, options)]
        where = f"postgresql, table {options.table}"
        if (error := polling.missing_columns(table, present, where, span)) is not None:
            raise error

    def read(self, since: Version | None) -> tuple[pl.DataFrame, Version | None]:
        psycopg = NEEDS.load()
        if self._connection is None or self._connection.closed:
            self._connection = self.options.connect()
        connection = self._connection
        try:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return self._read(connection, psycopg, since)
        except psycopg.Error as error:
            if connection.closed or (error.sqlstate or "08000").startswith(_TRANSIENT):
                self.close()
                raise polling.unreachable("the PostgreSQL server", error) from None
            raise polling.unreadable(self.origin, error) from None

    def _read(self, connection: Any, psycopg: Any, since: Version | None) -> tuple[pl.DataFrame, Version | None]:
        if not self._kinds:
            self._kinds = {column: kind for column, kind, _ in _columns(connection, self.options)}
        latest: Version | None = None
        condition = ""
        if self.version is not None:
            column = quote(self.version)
            (latest,) = connection.execute(f"SELECT MAX({column})::text FROM {self.options.quoted}").fetchone()
            if since is not None:
                condition = f" WHERE {column} >= {psycopg.sql.Literal(str(since)).as_string(connection)}"
        values = ", ".join(_as_text(name, self._kinds.get(name, "text")) for name, _ in self.table.columns)
        # Texts in quotes and NULLs without, so that an empty text is none.
        statement = (
            f"COPY (SELECT {values} FROM {self.options.quoted}{condition}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        )
        with connection.cursor().copy(statement) as copy:
            data = b"".join(bytes(part) for part in copy)
        names = [name for name, _ in self.table.columns]
        schema = dict.fromkeys(names, pl.String())
        frame = pl.read_csv(io.BytesIO(data), has_header=False, schema=schema) if data else pl.DataFrame(schema=schema)
        return frame, since if latest is None else latest

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the server may be gone
                self._connection.close()
            self._connection = None


def _columns(connection: Any, options: _Options) -> Sequence[tuple[str, str, int]]:
    """The columns of a table: name, type, and its modifier."""
    rows = connection.execute(
        "SELECT a.attname, t.typname, a.atttypmod FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        (options.quoted,),
    ).fetchall()
    if not rows:
        message, hint = f'there is no table "{options.table}" in the database', "Create it first, or correct the name."
        raise SourceError(message, code="missing-table", hint=hint)
    return [tuple(row) for row in rows]


def _type(name: str, modifier: int) -> Type:
    if name == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if precision <= _MOST_DIGITS and scale <= precision:
            return types.decimal(precision, scale)
    return _SIMPLE.get(name, types.VARCHAR)


def _as_text(name: str, kind: str) -> str:
    """A value as a text that converts back to the same value."""
    column = quote(name)
    if kind == "timestamptz":
        return f"timezone('UTC', {column})::text"
    return f"{column}::text"

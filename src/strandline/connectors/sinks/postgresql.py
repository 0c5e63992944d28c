"""PostgreSQL sink."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import polars as pl

from strandline.connectors.sinks.base import SinkArguments, SinkWriter
from strandline.connectors.sinks.sql_table import (
    BATCHES,
    ROW_ID,
    SIDE_TABLES,
    Shows,
    Store,
    StoreBusy,
    StoreLost,
    TableSink,
    TableSpec,
    form_of,
)
from strandline.connectors.traits import Needs, Traits
from strandline.core.errors import SinkError
from strandline.core.security.allow import FilePath, Host, Reach, Unconfined
from strandline.core.security.secret import Secret, reveal
from strandline.core.types import Schema, Type

_TYPES: Final = {
    "INT": "integer",
    "BIGINT": "bigint",
    "INTERVAL": "bigint",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "INSTANT": "timestamptz",
}
# Texts of times and numbers mean the same whatever the server's defaults are.
_SETTINGS: Final = "SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET extra_float_digits = 1"
# A foreign lock is waited for in steps, so that the wait can be logged. A dead server is noticed in half a minute.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '5s'"
_CONNECTION: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_CANCEL_SECONDS: Final = 1.0
# SQLSTATEs of transient errors: lost connections, too many of them, deadlocks, a server that restarts.
_TRANSIENT: Final = ("08", "40", "53300", "57P01", "57P02", "57P03")
_DELETE_ROWS: Final = 50_000  # rows to delete in one statement
_LONGEST_NAME: Final = 63  # bytes; more are cut off
_FILES: Final = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir", "sslkeylogfile")


@dataclass(frozen=True, slots=True)
class PostgreSQL(TableSink):
    """Write the result to a table of PostgreSQL, exactly once, also after a crash.

    `shows="elements"` appends all elements; `shows="snapshot"` keeps the table at the current snapshot. `table` may be
    `schema.table`.
    """

    kind: ClassVar[str] = "postgresql"
    traits: ClassVar[Traits] = Traits(True, True, True, "a batch and its number are one transaction")
    needs: ClassVar[Needs] = Needs("psycopg", "postgresql")

    dsn: str | Secret = field(repr=False)
    table: str
    shows: Shows = "elements"
    password: str | Secret | None = field(default=None, repr=False)  # in the place of one in the DSN

    @classmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        dsn, table = arguments.required_or_secret(0, "dsn"), arguments.required(1, "table")
        shows = cls.shows_of(arguments)
        password = arguments.secret(arguments.option("password", (str, Secret), None), "password")
        arguments.done(most=2)
        return cls(dsn, table, shows, password)

    def store(self) -> Store:
        return _PostgreSQLStore(self._connection_string, self.needs.load(), self.table.rpartition(".")[0])

    def open(self, query: str, columns: Schema) -> SinkWriter:
        _refuse_long_names(self.table, self.shows, columns)
        return TableSink.open(self, query, columns)

    def reaches(self) -> list[Reach]:
        return dsn_reaches(self._parsed())

    def _connection_string(self) -> str:
        """Connection string for libpq, built per connection."""
        parameters = self._parsed()
        if self.password is not None:
            parameters["password"] = reveal(self.password)
        return str(self.needs.load().conninfo.make_conninfo(**parameters))

    def _parsed(self) -> dict[str, Any]:
        """Parameters of the DSN. libpq quotes parts of an invalid one, perhaps a password, in its message."""
        psycopg = self.needs.load()
        try:
            return dict(psycopg.conninfo.conninfo_to_dict(reveal(self.dsn)))
        except psycopg.Error:
            raise SinkError(
                "invalid connection string of postgresql()",
                code="sink-argument",
                hint="Write 'postgresql://user@host:5432/database' or 'host=… dbname=…', special characters escaped.",
            ) from None

    @property
    def display_location(self) -> str:
        return f"postgresql, table {self.table}"


class _PostgreSQLStore(Store):
    """A connection that is opened when it is needed, and again after it was lost between two batches."""

    location = "the PostgreSQL server"
    unreachable = "Check the connection string and that the server is running."
    parameter = "%s"
    row_lock = " FOR UPDATE"
    forever = "infinity"

    def __init__(self, dsn: Callable[[], str], psycopg: Any, schema: str) -> None:
        self._dsn, self._psycopg = dsn, psycopg
        self.batches = self.quote_table(f"{schema}.{BATCHES}" if schema else BATCHES)
        self._cancelled = False

    @property
    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            if self._cancelled:
                raise StoreLost("the query is being stopped")
            try:
                dsn = self._dsn()
                given = self._psycopg.conninfo.conninfo_to_dict(dsn)
                defaults = {name: value for name, value in _CONNECTION.items() if name not in given}
                self._connection = self._psycopg.connect(dsn, autocommit=True, **defaults)
                self._connection.execute(f"{_SETTINGS}; {_LOCK_TIMEOUT}")
            except self._psycopg.Error as error:
                raise StoreLost(" ".join(str(error).split())) from None
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        connection = self._open
        with self.failures((self._psycopg.Error, UnicodeError)):
            try:
                try:
                    connection.execute("SELECT 1")
                except self._psycopg.OperationalError:  # the server went and may be back: nothing has begun yet
                    connection.close()
                    connection = self._open
                with connection.transaction():
                    yield
            except self._psycopg.errors.LockNotAvailable as error:
                raise StoreBusy(" ".join(str(error).split())) from None
            except self._psycopg.OperationalError as error:
                if connection.closed or (error.sqlstate or "08000").startswith(_TRANSIENT):
                    connection.close()
                    raise StoreLost(" ".join(str(error).split())) from None
                raise

    def cancel(self, insistent: bool) -> None:
        self._cancelled = True
        connection = self._connection
        if connection is None or connection.closed:
            return
        with suppress(Exception):  # the server may be gone, or the connection closed meanwhile
            if not insistent:
                connection.cancel_safe(timeout=_CANCEL_SECONDS)
                return
            # An unresponsive server is not waited for: pending reads fail with a closed connection.
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        return self._open.execute(statement, values or None)

    def quote(self, name: str) -> str:
        if "%" in name:  # it would be taken for the place of a parameter
            raise SinkError(f'invalid name "{name}"', code="sink-columns", hint="Remove the %.")
        return super().quote(name)

    def quote_table(self, name: str) -> str:
        return ".".join(map(self.quote, name.split(".", 1)))  # perhaps with the schema

    def type_of(self, kind: Type) -> str:
        if kind.element is not None:
            return f"{self.type_of(kind.element)}[]"
        if kind.name == "DECIMAL":
            return f"numeric({kind.precision}, {kind.scale})"
        return _TYPES.get(kind.name, "text")

    def make_batches_table(self) -> None:
        # Two sinks that begin at the same moment would both make it.
        self.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (BATCHES,))
        super().make_batches_table()

    def columns(self, table: str) -> list[str] | None:
        table_name = self.batches if table == BATCHES else self.quote_table(table)
        statement = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        rows = self.execute(f"{statement} AND NOT attisdropped ORDER BY attnum", (table_name,)).fetchall()
        return [row[0] for row in rows] or None

    def append(self, table: TableSpec, frame: pl.DataFrame) -> None:
        # Texts in quotes, so that no text can be mistaken for the sign of a NULL, nor a line \. for the end.
        data = frame.write_csv(include_header=False, quote_style="non_numeric", null_value="")
        names = ", ".join(map(self.quote, table.names))
        statement = f"COPY {self.quote_table(table.name)} ({names}) FROM STDIN (FORMAT csv)"
        with self._open.cursor().copy(statement) as copy:
            copy.write(data)

    def delete(self, table: TableSpec, rows: pl.Series) -> None:
        statement = f"DELETE FROM {self.quote_table(table.name)} WHERE {ROW_ID} = ANY(%s)"
        for part in rows.to_frame().iter_slices(_DELETE_ROWS):
            self.execute(statement, (part.to_series().to_list(),))

    def read(self, table: TableSpec) -> pl.DataFrame:
        values = ", ".join(self._as_written(name, kind) for name, kind in table.columns)
        rows = self.execute(f"SELECT {values} FROM {self.quote_table(table.name)}").fetchall()
        return pl.DataFrame(rows, schema={name: form_of(kind) for name, kind in table.columns}, orient="row")

    def _as_written(self, name: str, kind: Type) -> str:
        """A value in the form in which it was written, so that it is found equal to those to come."""
        if kind.name == "TIMESTAMP":
            return f"to_char({self.quote(name)}, 'YYYY-MM-DD HH24:MI:SS.US')"
        return self.quote(name) if form_of(kind) != pl.String() else f"{self.quote(name)}::text"

    def array_text(self, column: pl.Expr, kind: Type) -> pl.Expr:
        assert kind.element is not None
        value = pl.element().cast(pl.String)
        if kind.element.name in ("VARCHAR", "TIMESTAMP"):
            escaped = value.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
            value = pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))
        texts = column.list.eval(value.fill_null("NULL")).list.join(",")
        return pl.when(column.is_not_null()).then(pl.concat_str(pl.lit("{"), texts, pl.lit("}")))


def _refuse_long_names(table: str, shows: Shows, columns: Schema) -> None:
    """PostgreSQL cuts names off without an error: two tables or columns could become one."""
    tables = table.split(".", 1)
    if shows == "snapshot":
        tables += [f"{tables[-1]}{suffix}" for suffix in SIDE_TABLES]
    for name in [*tables, *(column.name for column in columns)]:
        if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME:
            raise SinkError(
                f'the name "{name}" is too long for PostgreSQL',
                code="name-too-long",
                detail=f"It has {len(name.encode(errors='surrogatepass'))} bytes; the maximum is {_LONGEST_NAME}.",
                hint="Choose a shorter name; a snapshot table needs 9 more bytes for its side tables.",
            )


def dsn_reaches(parameters: Mapping[str, Any]) -> list[Reach]:
    """The hosts, sockets and files that a connection string names; those of the environment are the operator's."""
    reaches: list[Reach] = []
    if parameters.get("service") or parameters.get("servicefile"):
        reaches.append(Unconfined("a service of PostgreSQL, which may lead anywhere,"))
    ports = [port.strip() for port in str(parameters.get("port") or "").split(",")]
    named = [str(parameters[key]) for key in ("host", "hostaddr") if parameters.get(key)]
    for hosts in named or [os.environ.get("PGHOST") or "localhost"]:
        for number, host in enumerate(hosts.split(",")):
            port = ports[number] if number < len(ports) and len(ports) > 1 else ports[0]
            if host.startswith("/"):
                reaches.append(FilePath(host))
            elif host.startswith("@"):
                reaches.append(Unconfined(f"the abstract socket {host}"))
            else:
                reaches.append(Host(host.strip() or "localhost", int(port) if port.isdigit() else 5432))
    reaches += [FilePath(str(parameters[key])) for key in _FILES if parameters.get(key)]
    return reaches

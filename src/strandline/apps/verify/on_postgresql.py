"""PostgreSQL as the oracle: its dialect, and a connection that leaves nothing behind.

All tables and helpers are temporary: they live as long as the connection.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import polars as pl

from strandline.apps.verify import postgresql_helpers
from strandline.apps.verify.dialect import SHARED_TYPES, Dialect, cast_table
from strandline.apps.verify.oracle import OracleDatabase, not_installed
from strandline.core.errors import SetupError
from strandline.core.types import Schema
from strandline.functions.oracles import Untranslatable
from strandline.runtime.kernels.columns import polars_type

_CASTS: Final = cast_table(
    ("INT", "BIGINT", "CAST({0} AS {t})"),
    ("BIGINT", "INT", "{h}fit32({0})"),
    ("DECIMAL", "INT", "{h}fit32(round({0}, 0))"),
    ("DECIMAL", "BIGINT", "{h}fit64(round({0}, 0))"),
    ("DOUBLE", "INT", "{h}fit32({h}whole({0}))"),
    ("DOUBLE", "BIGINT", "{h}whole({0})"),
    ("BOOLEAN", "INT BIGINT", "CAST(CAST({0} AS INTEGER) AS {t})"),
    ("INT BIGINT", "DECIMAL", "{h}fit(CAST({0} AS NUMERIC), {p}, {s})"),
    ("DECIMAL", "DECIMAL", "{h}fit({0}, {p}, {s})"),
    ("DOUBLE", "DECIMAL", "{h}exact_decimal({0}, {p}, {s})"),
    ("INT BIGINT DECIMAL", "DOUBLE", "CAST({0} AS {t})"),
    ("INT BIGINT", "BOOLEAN", "({0} <> 0)"),
    ("DATE TIMESTAMP", "DATE TIMESTAMP", "CAST({0} AS {t})"),
    ("*", "VARCHAR", '(CAST({0} AS TEXT) COLLATE "C")'),
    ("VARCHAR", "INT", "{h}fit32({h}fit64({h}digits({0})))"),
    ("VARCHAR", "BIGINT", "{h}fit64({h}digits({0}))"),
    ("VARCHAR", "DECIMAL", "{h}fit({h}number({0}), {p}, {s})"),
    ("VARCHAR", "DOUBLE", "{h}read_double({0})"),
    ("VARCHAR", "BOOLEAN", "{h}read_truth({0})"),
    ("VARCHAR", "DATE TIMESTAMP", "CAST({h}read_moment({0}) AS {t})"),
)


def _quote(text: str) -> str:
    if "\0" in text:
        raise Untranslatable("a text with a NUL character, which PostgreSQL cannot hold")
    return "('" + text.replace("'", "''") + '\'::text COLLATE "C")'


DIALECT: Final = Dialect(
    name="PostgreSQL",
    prefix="pg_temp.",
    types={**SHARED_TYPES, "DOUBLE": "DOUBLE PRECISION", "VARCHAR": "TEXT", "NULL": "TEXT"},
    own=attrgetter("postgresql"),
    casts=_CASTS,
    array="ARRAY[{}]",
    unnest="unnest({0}) WITH ORDINALITY",
    array_cast="pg_temp.kept({0}, CAST(ARRAY(SELECT {1} FROM unnest({0}) WITH ORDINALITY AS given(element, n) "
    "ORDER BY n) AS {2}))",
    row_id="ctid",
    quote=_quote,
    ignores_nulls=False,
    has_full_join=False,  # only for conditions that it can hash or sort by
)


class PostgreSQLOracle(OracleDatabase):
    """A connection to a server; `where` is a connection string of libpq."""

    dialect = DIALECT

    def __init__(self, where: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise not_installed("psycopg, the driver for PostgreSQL,") from None
        try:
            super().__init__(psycopg.connect(where, autocommit=True), psycopg.Error)
        except psycopg.Error as error:
            raise SetupError(
                "cannot connect to PostgreSQL",
                code="no-judge",
                detail=str(error).strip(),
                hint="Start the server, or give its address with --dsn.",
            ) from None
        for setting in ("TimeZone = 'UTC'", "extra_float_digits = 1", "jit = off", "DateStyle = 'ISO'"):
            self.connection.execute(f"SET {setting}")
        for statement in postgresql_helpers.POWERS:
            self.connection.execute(statement)
        for function in (*postgresql_helpers.FUNCTIONS, *self._collated_functions()):
            self.connection.execute(f"CREATE FUNCTION {self.dialect.prefix}{function}")

    def _collated_functions(self) -> list[str]:
        """Letters beyond ASCII have cases, and are letters at all, only under a suitable collation."""
        cursor = self.connection.execute("SELECT collname FROM pg_collation WHERE collencoding IN (-1, 6)")
        collations = {name for (name,) in cursor.fetchall()}

        def first(*names: str) -> str:
            return next((name for name in names if name in collations), "default")

        return postgresql_helpers.collated(first("und-x-icu", "C.utf8"), first("C.utf8", "en_US.utf8", "und-x-icu"))

    def load(self, table: str, columns: Schema, rows: pl.DataFrame) -> None:
        kinds = (self.dialect.type_name(c.type) + (' COLLATE "C"' if c.type.name == "VARCHAR" else "") for c in columns)
        listed = ", ".join(f"{c.id} {kind}" for c, kind in zip(columns, kinds, strict=True))
        texts = [c.id for c in columns if c.type.name == "VARCHAR"]
        if texts and rows.select(pl.any_horizontal(pl.col(texts).str.contains("\0", literal=True).any())).item():
            raise Untranslatable("a text with a NUL character, which PostgreSQL cannot hold")
        self.run(f"DROP TABLE IF EXISTS pg_temp.{table}")
        self.run(f"CREATE TEMP TABLE {table} ({listed})")
        with self.connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows.select([c.id for c in columns]).rows():
                copy.write_row(row)
        self.run(f"ANALYZE {table}")

    def fetch(self, statement: str, columns: Schema) -> pl.DataFrame:
        cursor = self.connection.execute(statement)
        if not columns:
            return pl.DataFrame()
        return pl.DataFrame(cursor.fetchall(), schema={c.id: polars_type(c.type) for c in columns}, orient="row")

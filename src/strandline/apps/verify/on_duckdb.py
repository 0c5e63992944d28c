"""DuckDB as the oracle: its dialect, and a connection in this process."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.apps.verify import duckdb_helpers
from strandline.apps.verify.dialect import SHARED_TYPES, Dialect, cast_table
from strandline.apps.verify.oracle import OracleDatabase, not_installed
from strandline.core.types import Schema, array_of, arrow_type
from strandline.logical.udf import Definition, UserAggregate, UserFunction

_CASTS: Final = cast_table(
    ("INT BOOLEAN", "INT BIGINT", "CAST({0} AS {t})"),
    ("BIGINT DECIMAL DOUBLE", "INT BIGINT", "TRY_CAST({0} AS {t})"),
    ("INT BIGINT DECIMAL", "DECIMAL", "TRY_CAST({0} AS {t})"),
    ("DOUBLE", "DECIMAL", "TRY_CAST({h}half_away({0} * 1e{s}) / 1e{s} AS {t})"),
    ("INT BIGINT DECIMAL", "DOUBLE", "CAST({0} AS {t})"),
    ("INT BIGINT", "BOOLEAN", "({0} <> 0)"),
    ("DATE TIMESTAMP", "DATE TIMESTAMP", "CAST({0} AS {t})"),
    ("INT BIGINT DECIMAL BOOLEAN DATE", "VARCHAR", "CAST({0} AS {t})"),
    ("DOUBLE", "VARCHAR", "{h}double_text({0})"),
    ("TIMESTAMP", "VARCHAR", "{h}moment_text({0})"),
    ("VARCHAR", "INT BIGINT", "TRY_CAST({h}digits({0}) AS {t})"),
    ("VARCHAR", "DECIMAL", "TRY_CAST({h}number({0}) AS {t})"),
    ("VARCHAR", "DOUBLE", "{h}read_double({0})"),
    ("VARCHAR", "BOOLEAN", "{h}read_truth({0})"),
    ("VARCHAR", "DATE TIMESTAMP", "TRY_CAST({h}day({0}) AS {t})"),
)

DIALECT: Final = Dialect(
    name="DuckDB",
    prefix="sl_",
    types={**SHARED_TYPES, "DOUBLE": "DOUBLE", "VARCHAR": "VARCHAR", "NULL": "VARCHAR"},
    own=attrgetter("duckdb"),
    casts=_CASTS,
    array="[{}]",
    array_cast="CAST(list_transform({0}, lambda element: {1}) AS {2})",
    runs_python=True,
    quote=lambda text: "(" + " || chr(0) || ".join(f"'{part}'" for part in text.replace("'", "''").split("\0")) + ")",
)


class DuckDBOracle(OracleDatabase):
    """A DuckDB of its own, in memory."""

    dialect = DIALECT

    def __init__(self, threads: int | None = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise not_installed("DuckDB") from None
        super().__init__(duckdb.connect(), duckdb.Error)
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET order_by_non_integer_literal = true")  # an aggregate may be ordered by anything
        if threads is not None:
            self.connection.execute(f"SET threads = {threads}")
        for macro in duckdb_helpers.MACROS:
            self.connection.execute(f"CREATE OR REPLACE MACRO {self.dialect.prefix}{macro}")
        self._users: dict[str, Definition] = {}

    def bring(self, user: Definition) -> None:
        registered = self._users.get(user.name)
        if registered is user:
            return
        name = f"{self.dialect.prefix}user_{user.name}"
        if registered is not None:
            self.connection.remove_function(name)
        if isinstance(user, UserAggregate):
            body, arguments = _over_lists(user), tuple(map(array_of, user.arguments))
        else:
            body, arguments = _over_columns(user), user.arguments
        takes, gives = list(map(self.dialect.type_name, arguments)), self.dialect.type_name(user.returns)
        self.connection.create_function(name, body, takes, gives, type="arrow", null_handling="special")
        self._users[user.name] = user

    def load(self, table: str, columns: Schema, rows: pl.DataFrame) -> None:
        listed = ", ".join(f'CAST("{c.id}" AS {self.dialect.type_name(c.type)}) AS {c.id}' for c in columns)
        self.connection.register("sl_rows", rows.to_arrow())
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {listed} FROM sl_rows")
        self.connection.unregister("sl_rows")

    def fetch(self, statement: str, columns: Schema) -> pl.DataFrame:
        if not columns:
            self.connection.execute(statement)
            return pl.DataFrame()
        return pl.DataFrame(self.connection.sql(statement).to_arrow_table())


# ---- Python of the user's --------------------------------------------------------------------------------------------


def _over_columns(user: UserFunction) -> Callable[..., pa.Array]:
    def body(*columns: pa.ChunkedArray) -> pa.Array:
        pairs = zip(columns, user.arguments, strict=True)
        return user.over([column.combine_chunks().cast(arrow_type(kind)) for column, kind in pairs])

    return body


def _over_lists(user: UserAggregate) -> Callable[[pa.ChunkedArray], pa.Array]:
    def body(lists: pa.ChunkedArray) -> pa.Array:
        # Value by value, which is slow: the oracle shares no code with the merging of the engine.
        aggregates = [None if values is None else user.over_values(values) for values in lists.to_pylist()]
        return pa.array(aggregates, arrow_type(user.returns))

    return body

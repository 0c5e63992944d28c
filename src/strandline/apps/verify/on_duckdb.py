"""DuckDB as the oracle: its dialect, and a connection in this process."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from operator import attrgetter
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.apps.verify import duckdb_helpers
from strandline.apps.verify.dialect import SHARED_TYPES, Dialect, cast_table
from strandline.apps.verify.oracle import OracleDatabase, not_installed
from strandline.core.interrupts import call_interruptibly
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
    unnest="(SELECT unnest({0}), generate_subscripts({0}, 1))",
    array_cast="CAST(list_transform({0}, lambda element: {1}) AS {2})",
    row_id="rowid",
    runs_python=True,
    correlates_grouping_sets=False,  # where there are no rows, GROUPING is NULL for the group of all
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
        name, takes = f"{self.dialect.prefix}regression", ["VARCHAR", "DOUBLE[]", "DOUBLE[]"]
        # Of Arrow: for a single value DuckDB takes NaN for NULL.
        self.connection.create_function(name, _regressions, takes, "DOUBLE", type="arrow", null_handling="special")
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
        return call_interruptibly(lambda: self._fetch(statement, columns), self.connection.interrupt)

    def _fetch(self, statement: str, columns: Schema) -> pl.DataFrame:
        if not columns:
            self.connection.execute(statement)
            return pl.DataFrame()
        return pl.DataFrame(self.connection.sql(statement).to_arrow_table())


# ---- Python of its own -----------------------------------------------------------------------------------------------


def _regressions(names: pa.ChunkedArray, ys: pa.ChunkedArray, xs: pa.ChunkedArray) -> pa.Array:
    rows = zip(names.to_pylist(), ys.to_pylist(), xs.to_pylist(), strict=True)
    return pa.array([regression(*row) for row in rows], pa.float64())


def regression(name: str, ys: list[float] | None, xs: list[float] | None) -> float | None:
    """Aggregates of pairs of numbers, in exact fractions of the deviations from the means. DuckDB's own round."""
    if not ys or not xs or (name == "covar_samp" and len(ys) == 1):
        return None
    if any(not abs(value) < 2.0**511 for value in (*ys, *xs)):
        return math.nan
    n = len(ys)
    y, x = ([Fraction(v) if abs(v) >= 2.0**-485 else Fraction() for v in side] for side in (ys, xs))
    from_y, from_x = ([v - sum(side) / n for v in side] for side in (y, x))
    xx, yy = sum(v * v for v in from_x), sum(v * v for v in from_y)
    yx = sum(one * two for one, two in zip(from_y, from_x, strict=True))
    try:
        sums = {"covar_pop": yx / n, "regr_sxx": xx, "regr_syy": yy, "regr_sxy": yx}
        if name in sums:
            return float(sums[name])
        if name == "covar_samp":
            return float(yx / (n - 1))
        if xx == 0 or (name == "corr" and yy == 0):
            return None
        match name:
            case "corr":
                return math.copysign(math.sqrt(yx * yx / (xx * yy)), yx)
            case "regr_slope":
                return float(yx / xx)
            case "regr_intercept":  # a difference of rounded numbers, and so these are part of its definition
                slope = float(yx * n) / float(xx * n)
                return (float(sum(y)) - slope * float(sum(x))) / n
        return 1.0 if yy == 0 else float(yx * yx / (xx * yy))
    except OverflowError:
        return math.inf


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

"""DuckDB as the oracle: its dialect, and a connection in this process."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import polars as pl
import pyarrow as pa

from strandline.apps.verify import duckdb_helpers
from strandline.apps.verify.dialect import Dialect, Templates
from strandline.core.errors import SetupError
from strandline.core.types import Schema, array_of, arrow_type
from strandline.functions.oracles import Untranslatable
from strandline.logical.udf import Definition, UserAggregate, UserFunction

_NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_TRUE, _FALSE = "('true','t','yes','y','on','1')", "('false','f','no','n','off','0')"
_BLANKS: Final = r"' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"

_CASTS: Final[Templates] = {
    ("INT", "BIGINT"): "CAST({0} AS BIGINT)",
    ("BIGINT", "INT"): "TRY_CAST({0} AS INTEGER)",
    ("DECIMAL", "INT"): "TRY_CAST({0} AS INTEGER)",
    ("DECIMAL", "BIGINT"): "TRY_CAST({0} AS BIGINT)",
    ("DOUBLE", "INT"): "TRY_CAST({0} AS INTEGER)",
    ("DOUBLE", "BIGINT"): "TRY_CAST({0} AS BIGINT)",
    ("BOOLEAN", "INT"): "CAST({0} AS INTEGER)",
    ("BOOLEAN", "BIGINT"): "CAST({0} AS BIGINT)",
    ("INT", "DECIMAL"): "TRY_CAST({0} AS DECIMAL({p},{s}))",
    ("BIGINT", "DECIMAL"): "TRY_CAST({0} AS DECIMAL({p},{s}))",
    ("DECIMAL", "DECIMAL"): "TRY_CAST({0} AS DECIMAL({p},{s}))",
    ("DOUBLE", "DECIMAL"): "TRY_CAST({h}half_away({0} * 1e{s}) / 1e{s} AS DECIMAL({p},{s}))",
    ("INT", "DOUBLE"): "CAST({0} AS DOUBLE)",
    ("BIGINT", "DOUBLE"): "CAST({0} AS DOUBLE)",
    ("DECIMAL", "DOUBLE"): "CAST({0} AS DOUBLE)",
    ("INT", "BOOLEAN"): "({0} <> 0)",
    ("BIGINT", "BOOLEAN"): "({0} <> 0)",
    ("DATE", "TIMESTAMP"): "CAST({0} AS TIMESTAMP)",
    ("TIMESTAMP", "DATE"): "CAST({0} AS DATE)",
    ("INT", "VARCHAR"): "CAST({0} AS VARCHAR)",
    ("BIGINT", "VARCHAR"): "CAST({0} AS VARCHAR)",
    ("DECIMAL", "VARCHAR"): "CAST({0} AS VARCHAR)",
    ("BOOLEAN", "VARCHAR"): "CAST({0} AS VARCHAR)",
    ("DOUBLE", "VARCHAR"): "{h}double_text({0})",
    ("DATE", "VARCHAR"): "CAST({0} AS VARCHAR)",
    ("TIMESTAMP", "VARCHAR"): "{h}moment_text({0})",
    ("VARCHAR", "INT"): "TRY_CAST({h}digits({0}) AS INTEGER)",
    ("VARCHAR", "BIGINT"): "TRY_CAST({h}digits({0}) AS BIGINT)",
    ("VARCHAR", "DECIMAL"): "TRY_CAST({h}number({0}) AS DECIMAL({p},{s}))",
    ("VARCHAR", "DOUBLE"): "{h}read_double({0})",
    ("VARCHAR", "BOOLEAN"): "{h}read_truth({0})",
    ("VARCHAR", "DATE"): "TRY_CAST({h}day({0}) AS DATE)",
    ("VARCHAR", "TIMESTAMP"): "TRY_CAST({h}day({0}) AS TIMESTAMP)",
}

# The exact sum of doubles, in fixed point where the digits fit: values near 1, near 1e308 and near 0 apart, since
# the largest of these that is not 0 decides alone. What lies between is added with compensation.
_SUM: Final = """
CREATE OR REPLACE MACRO sl_sum_double(v) AS
CASE WHEN v IS NULL OR len(v) = 0 THEN NULL
     WHEN len(list_filter(v, lambda x: NOT isfinite(x))) > 0 THEN list_sum(list_filter(v, lambda x: NOT isfinite(x)))
     WHEN len(list_filter(v, lambda x: x <> 0 AND abs(x) > 1e-300 AND NOT abs(x) BETWEEN pow(2, -8) AND pow(2, 54)
                                       AND abs(x) < pow(2, 1014))) > 0 THEN list_aggregate(v, 'fsum')
     WHEN coalesce(list_sum(list_transform(v, lambda x: sl_huge(x))), 0) <> 0
     THEN CAST(list_sum(list_transform(v, lambda x: sl_huge(x))) AS DOUBLE) * pow(2, 960)
     WHEN coalesce(list_sum(list_transform(v, lambda x: sl_fixed(x))), 0) <> 0
     THEN CAST(list_sum(list_transform(v, lambda x: sl_fixed(x))) AS DOUBLE) / pow(2, 60)
     ELSE coalesce(list_sum(list_filter(v, lambda x: abs(x) <= 1e-300)), 0) END"""

_HELPERS: Final = (
    *duckdb_helpers.HELPERS,
    f"CREATE OR REPLACE MACRO sl_bare(s) AS trim(s, {_BLANKS})",
    """CREATE OR REPLACE MACRO sl_digits(s) AS
       CASE WHEN regexp_full_match(sl_bare(s), '[+-]?[0-9]+') THEN sl_bare(s) END""",
    f"CREATE OR REPLACE MACRO sl_number(s) AS CASE WHEN regexp_full_match(sl_bare(s), '{_NUMBER}') THEN sl_bare(s) END",
    """CREATE OR REPLACE MACRO sl_read_double(s) AS
       CASE WHEN regexp_full_match(lower(sl_bare(s)), '[+-]?(inf|infinity|nan)') THEN TRY_CAST(sl_bare(s) AS DOUBLE)
       WHEN isfinite(TRY_CAST(sl_number(s) AS DOUBLE)) THEN TRY_CAST(sl_number(s) AS DOUBLE) END""",
    f"""CREATE OR REPLACE MACRO sl_read_truth(s) AS CASE WHEN lower(sl_bare(s)) IN {_TRUE} THEN TRUE
        WHEN lower(sl_bare(s)) IN {_FALSE} THEN FALSE END""",
    r"""CREATE OR REPLACE MACRO sl_day(s) AS
        CASE WHEN regexp_matches(sl_bare(s), '^[0-9]{4}-[0-9]{2}-[0-9]{2}') THEN sl_bare(s) END""",
    # PostgreSQL writes an exponent from 1e15 on, DuckDB from 1e16 on.
    """CREATE OR REPLACE MACRO sl_with_exponent(digits, e) AS
       left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' ELSE '' END || substring(digits, 2) || e""",
    """CREATE OR REPLACE MACRO sl_double_text(x) AS CASE WHEN isnan(x) THEN 'NaN'
       WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END
       WHEN abs(x) >= 1e15 AND abs(x) < 1e16 THEN CASE WHEN x < 0 THEN '-' ELSE '' END
            || sl_with_exponent(rtrim(replace(CAST(abs(x) AS VARCHAR), '.', ''), '0'), 'e+15')
       ELSE regexp_replace(CAST(x AS VARCHAR), '\\.0$', '') END""",
    """CREATE OR REPLACE MACRO sl_moment_text(ts) AS
       CASE WHEN epoch_us(ts) % 1000000 = 0 THEN strftime(ts, '%Y-%m-%d %H:%M:%S')
       ELSE rtrim(strftime(ts, '%Y-%m-%d %H:%M:%S.%f'), '0') END""",
    """CREATE OR REPLACE MACRO sl_huge(x) AS
       CASE WHEN abs(x) >= pow(2, 1014) THEN TRY_CAST(x / pow(2, 960) AS HUGEINT) END""",
    """CREATE OR REPLACE MACRO sl_fixed(x) AS
       CASE WHEN abs(x) BETWEEN pow(2, -8) AND pow(2, 54) THEN TRY_CAST(x * pow(2, 60) AS HUGEINT) END""",
    _SUM,
    "CREATE OR REPLACE MACRO sl_squarable(x) AS CASE WHEN abs(x) < pow(2, 511) THEN x END",
    """CREATE OR REPLACE MACRO sl_dispersion(name, v) AS
       CASE WHEN v IS NULL OR (len(v) = 1 AND name LIKE '%samp') THEN NULL
       WHEN len(list_filter(v, lambda x: sl_squarable(x) IS NULL)) > 0 THEN 'nan'::DOUBLE
       ELSE list_aggregate(list_transform(v, lambda x: sl_squarable(x)), name) END""",
    """CREATE OR REPLACE MACRO sl_between(v, f) AS
       CASE WHEN v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1] = v[CAST(ceil(f * (len(v) - 1)) AS BIGINT) + 1]
       THEN v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1]
       ELSE v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1] + (f * (len(v) - 1) - floor(f * (len(v) - 1)))
            * (v[CAST(ceil(f * (len(v) - 1)) AS BIGINT) + 1] - v[CAST(floor(f * (len(v) - 1)) AS BIGINT) + 1]) END""",
    "CREATE OR REPLACE MACRO sl_copies(v) AS list_transform(v, lambda x: len(list_filter(v, lambda y: y = x)))",
    "CREATE OR REPLACE MACRO sl_most_frequent(v) AS v[list_position(sl_copies(v), list_max(sl_copies(v)))]",
)

DIALECT: Final = Dialect(
    name="DuckDB",
    prefix="sl_",
    types={
        "BOOLEAN": "BOOLEAN",
        "INT": "INTEGER",
        "BIGINT": "BIGINT",
        "INTERVAL": "BIGINT",
        "DOUBLE": "DOUBLE",
        "VARCHAR": "VARCHAR",
        "NULL": "VARCHAR",
        "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP",
    },
    own=attrgetter("duckdb"),
    casts=_CASTS,
    array="[{}]",
    array_cast="CAST(list_transform({0}, lambda element: {1}) AS {2})",
    helpers=_HELPERS,
    runs_python=True,
    quote=lambda text: "(" + " || chr(0) || ".join(f"'{part}'" for part in text.replace("'", "''").split("\0")) + ")",
)


class DuckDBOracle:
    """A DuckDB of its own, in memory."""

    dialect = DIALECT

    def __init__(self, threads: int | None = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise SetupError(
                "DuckDB is not installed",
                code="no-judge",
                hint="Install it: pip install 'strandline[verify]'.",
            ) from None
        self._error: type[Exception] = duckdb.Error
        self._connection: Any = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET order_by_non_integer_literal = true")  # an aggregate may be ordered by anything
        if threads is not None:
            self._connection.execute(f"SET threads = {threads}")
        for helper in self.dialect.helpers:
            self._connection.execute(helper)
        self._users: dict[str, Definition] = {}

    def bring(self, user: Definition) -> None:
        """Make a function of the user's known, or an aggregate as a function over lists of values."""
        registered = self._users.get(user.name)
        if registered is user:
            return
        name = f"{self.dialect.prefix}user_{user.name}"
        if registered is not None:
            self._connection.remove_function(name)
        whole = isinstance(user, UserAggregate)
        takes = [self.dialect.type_name(array_of(kind) if whole else kind) for kind in user.arguments]
        body = _over_lists(user) if isinstance(user, UserAggregate) else _over_columns(user)
        gives = self.dialect.type_name(user.returns)
        self._connection.create_function(name, body, takes, gives, type="arrow", null_handling="special")
        self._users[user.name] = user

    def load(self, table: str, columns: Schema, rows: pl.DataFrame) -> None:
        """Create a table of rows whose columns are named by id."""
        listed = ", ".join(f'CAST("{c.id}" AS {self.dialect.type_name(c.type)}) AS {c.id}' for c in columns)
        self._connection.register("sl_rows", rows.to_arrow())
        self._connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {listed} FROM sl_rows")
        self._connection.unregister("sl_rows")

    def run(self, statement: str) -> None:
        self.ask(statement, ())

    def ask(self, statement: str, columns: Schema) -> pl.DataFrame:
        """The rows of a query, with columns of these types."""
        try:
            if not columns:
                self._connection.execute(statement)
                return pl.DataFrame()
            return pl.DataFrame(self._connection.sql(statement).to_arrow_table())
        except self._error as error:
            raise Untranslatable(f"DuckDB says: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        self._connection.close()


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

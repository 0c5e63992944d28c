"""PostgreSQL as the oracle: its dialect, and a connection that leaves nothing behind.

All tables and helpers are temporary: they live as long as the connection.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import polars as pl

from strandline.apps.verify import postgresql_helpers
from strandline.apps.verify.dialect import Dialect, Templates
from strandline.apps.verify.postgresql_helpers import PLPGSQL, SQL
from strandline.core.errors import SetupError
from strandline.core.types import Schema
from strandline.functions.oracles import Untranslatable
from strandline.logical.udf import Definition
from strandline.runtime.kernels.columns import polars_type

_CASTS: Final[Templates] = {
    ("INT", "BIGINT"): "CAST({0} AS BIGINT)",
    ("BIGINT", "INT"): "{h}fit32({0})",
    ("DECIMAL", "INT"): "{h}fit32(round({0}, 0))",
    ("DECIMAL", "BIGINT"): "{h}fit64(round({0}, 0))",
    ("DOUBLE", "INT"): "{h}fit32({h}whole({0}))",
    ("DOUBLE", "BIGINT"): "{h}whole({0})",
    ("BOOLEAN", "INT"): "CAST({0} AS INTEGER)",
    ("BOOLEAN", "BIGINT"): "CAST(CAST({0} AS INTEGER) AS BIGINT)",
    ("INT", "DECIMAL"): "{h}fit(CAST({0} AS NUMERIC), {p}, {s})",
    ("BIGINT", "DECIMAL"): "{h}fit(CAST({0} AS NUMERIC), {p}, {s})",
    ("DECIMAL", "DECIMAL"): "{h}fit({0}, {p}, {s})",
    ("DOUBLE", "DECIMAL"): "{h}exact_decimal({0}, {p}, {s})",
    ("INT", "DOUBLE"): "CAST({0} AS DOUBLE PRECISION)",
    ("BIGINT", "DOUBLE"): "CAST({0} AS DOUBLE PRECISION)",
    ("DECIMAL", "DOUBLE"): "CAST({0} AS DOUBLE PRECISION)",
    ("INT", "BOOLEAN"): "({0} <> 0)",
    ("BIGINT", "BOOLEAN"): "({0} <> 0)",
    ("DATE", "TIMESTAMP"): "CAST({0} AS TIMESTAMP)",
    ("TIMESTAMP", "DATE"): "CAST({0} AS DATE)",
    ("*", "VARCHAR"): '(CAST({0} AS TEXT) COLLATE "C")',
    ("VARCHAR", "INT"): "{h}fit32({h}fit64({h}digits({0})))",
    ("VARCHAR", "BIGINT"): "{h}fit64({h}digits({0}))",
    ("VARCHAR", "DECIMAL"): "{h}fit({h}number({0}), {p}, {s})",
    ("VARCHAR", "DOUBLE"): "{h}read_double({0})",
    ("VARCHAR", "BOOLEAN"): "{h}read_truth({0})",
    ("VARCHAR", "DATE"): "CAST({h}read_moment({0}) AS DATE)",
    ("VARCHAR", "TIMESTAMP"): "{h}read_moment({0})",
}

_TRUE, _FALSE = "('true','t','yes','y','on','1')", "('false','f','no','n','off','0')"
_BLANKS: Final = r"E' \t\n\r\v\f'"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"

_HELPERS: Final = (
    *postgresql_helpers.HELPERS,
    f"""CREATE FUNCTION pg_temp.whole(x float8) RETURNS bigint {SQL}
        $$ SELECT CASE WHEN x >= -9223372036854775808 AND x < 9223372036854775808 THEN x::bigint END $$""",
    f"""CREATE FUNCTION pg_temp.exact_decimal(x float8, p integer, s integer) RETURNS numeric {SQL}
        $$ SELECT CASE WHEN abs(x) < 1e38 THEN
           pg_temp.fit(pg_temp.half_away(x * (10::float8 ^ s))::text::numeric / 10::numeric ^ s, p, s) END $$""",
    f"""CREATE FUNCTION pg_temp.digits(s text) RETURNS numeric {SQL}
        $$ SELECT CASE WHEN btrim(s, {_BLANKS}) ~ '^[+-]?[0-9]+$' THEN btrim(s, {_BLANKS})::numeric END $$""",
    f"""CREATE FUNCTION pg_temp.number(s text) RETURNS numeric {SQL}
        $$ SELECT CASE WHEN btrim(s, {_BLANKS}) ~ '{_NUMBER}' THEN btrim(s, {_BLANKS})::numeric END $$""",
    f"""CREATE FUNCTION pg_temp.read_double(s text) RETURNS float8 {PLPGSQL} $$ BEGIN
        IF lower(btrim(s, {_BLANKS})) ~ '^[+-]?(inf|infinity|nan)$' THEN RETURN replace(s, '+', '')::float8; END IF;
        RETURN pg_temp.number(s)::float8; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$""",
    f"""CREATE FUNCTION pg_temp.read_truth(s text) RETURNS boolean {SQL}
        $$ SELECT CASE WHEN lower(btrim(s, {_BLANKS})) IN {_TRUE} THEN TRUE
           WHEN lower(btrim(s, {_BLANKS})) IN {_FALSE} THEN FALSE END $$""",
    f"""CREATE FUNCTION pg_temp.read_moment(s text) RETURNS timestamp {PLPGSQL} $$ BEGIN
        IF btrim(s, {_BLANKS}) !~ '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}' THEN RETURN NULL; END IF;
        RETURN s::timestamptz AT TIME ZONE 'UTC'; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$""",
    """CREATE FUNCTION pg_temp.sum_double(v float8[]) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN count(x) FILTER (WHERE abs(x) >= 'Infinity') > 0
           THEN sum(x) FILTER (WHERE abs(x) >= 'Infinity')
           ELSE pg_temp.rounded(sum(pg_temp.exact(x)) FILTER (WHERE abs(x) < 'Infinity')) END
         FROM unnest(v) AS given(x) $$""",
    """CREATE FUNCTION pg_temp.dispersion(name text, v float8[]) RETURNS float8 LANGUAGE sql STABLE STRICT AS $$
         SELECT CASE WHEN n = 1 AND name LIKE '%samp' THEN NULL WHEN too_large THEN 'NaN'
           WHEN name LIKE 'std%' THEN sqrt(squares / (n * (n - (name LIKE '%samp')::integer)))
           ELSE squares / (n * (n - (name LIKE '%samp')::integer)) END
         FROM (SELECT count(x), bool_or(abs(x) >= 2::float8 ^ 511), pg_temp.rounded(
                 count(x) * sum(e * e) - sum(e) * sum(e))
               FROM (SELECT x, CASE WHEN abs(x) < 2::float8 ^ 511 THEN pg_temp.exact(x) END FROM unnest(v) AS given(x))
                 AS exactly(x, e)) AS sums(n, too_large, squares) $$""",
    """CREATE FUNCTION pg_temp.between(v float8[], f numeric) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS $$
         SELECT CASE WHEN v[floor(place)::integer + 1] = v[ceil(place)::integer + 1]
           THEN v[floor(place)::integer + 1]
           ELSE pg_temp.add_double(v[floor(place)::integer + 1], pg_temp.multiply_double((place - floor(place))::float8,
                pg_temp.add_double(v[ceil(place)::integer + 1], -v[floor(place)::integer + 1]))) END
         FROM (SELECT f * (cardinality(v) - 1)) AS given(place) $$""",
    """CREATE FUNCTION pg_temp.kept(v anyarray, w anycompatiblearray) RETURNS anycompatiblearray LANGUAGE sql IMMUTABLE
       AS $$ SELECT CASE WHEN v IS NOT NULL THEN w END $$""",
    "CREATE FUNCTION pg_temp.last_of(v anyarray) RETURNS anyelement LANGUAGE sql IMMUTABLE AS "
    "$$ SELECT v[cardinality(v)] $$",
)


def _quote(text: str) -> str:
    if "\0" in text:
        raise Untranslatable("a text with a NUL character, which PostgreSQL cannot hold")
    return "('" + text.replace("'", "''") + '\'::text COLLATE "C")'


DIALECT: Final = Dialect(
    name="PostgreSQL",
    prefix="pg_temp.",
    types={
        "BOOLEAN": "BOOLEAN",
        "INT": "INTEGER",
        "BIGINT": "BIGINT",
        "INTERVAL": "BIGINT",
        "DOUBLE": "DOUBLE PRECISION",
        "VARCHAR": "TEXT",
        "NULL": "TEXT",
        "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP",
    },
    own=attrgetter("postgresql"),
    casts=_CASTS,
    array="ARRAY[{}]",
    array_cast="pg_temp.kept({0}, CAST(ARRAY(SELECT {1} FROM unnest({0}) WITH ORDINALITY AS given(element, n) "
    "ORDER BY n) AS {2}))",
    helpers=_HELPERS,
    quote=_quote,
    has_full_join=False,  # only for conditions that it can hash or sort by
)


class PostgreSQLOracle:
    """A connection to a server; `where` is a connection string of libpq."""

    dialect = DIALECT

    def __init__(self, where: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise SetupError(
                "psycopg, the driver for PostgreSQL, is not installed",
                code="no-judge",
                hint="Install it: pip install 'strandline[verify]'.",
            ) from None
        self._error: type[Exception] = psycopg.Error
        try:
            self._connection: Any = psycopg.connect(where, autocommit=True)
        except psycopg.Error as error:
            raise SetupError(
                "cannot connect to PostgreSQL",
                code="no-judge",
                detail=str(error).strip(),
                hint="Start the server, or give its address with --dsn.",
            ) from None
        settings = ("TimeZone = 'UTC'", "extra_float_digits = 1", "jit = off", "DateStyle = 'ISO'")
        for statement in (*(f"SET {setting}" for setting in settings), *DIALECT.helpers, *self._collated_helpers()):
            self._connection.execute(statement)

    def _collated_helpers(self) -> list[str]:
        """Letters beyond ASCII have cases, and are letters at all, only under a suitable collation."""

        def first(*names: str) -> str:
            cursor = self._connection.execute("SELECT collname FROM pg_collation WHERE collencoding IN (-1, 6)")
            collations = {name for (name,) in cursor.fetchall()}
            return next((name for name in names if name in collations), "default")

        return postgresql_helpers.collated(first("und-x-icu", "C.utf8"), first("C.utf8", "en_US.utf8", "und-x-icu"))

    def bring(self, user: Definition) -> None:
        """No user-defined functions: Python in a server cannot be assumed."""

    def load(self, table: str, columns: Schema, rows: pl.DataFrame) -> None:
        """Create a table of rows whose columns are named by id."""
        kinds = (self.dialect.type_name(c.type) + (' COLLATE "C"' if c.type.name == "VARCHAR" else "") for c in columns)
        listed = ", ".join(f"{c.id} {kind}" for c, kind in zip(columns, kinds, strict=True))
        texts = [c.id for c in columns if c.type.name == "VARCHAR"]
        if texts and rows.select(pl.any_horizontal(pl.col(texts).str.contains("\0", literal=True).any())).item():
            raise Untranslatable("a text with a NUL character, which PostgreSQL cannot hold")
        self.run(f"DROP TABLE IF EXISTS pg_temp.{table}")
        self.run(f"CREATE TEMP TABLE {table} ({listed})")
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows.select([c.id for c in columns]).rows():
                copy.write_row(row)
        self.run(f"ANALYZE {table}")

    def run(self, statement: str) -> None:
        self.ask(statement, ())

    def ask(self, statement: str, columns: Schema) -> pl.DataFrame:
        """The rows of a query, with columns of these types."""
        try:
            cursor = self._connection.execute(statement)
            if not columns:
                return pl.DataFrame()
            shape = {c.id: polars_type(c.type) for c in columns}
            return pl.DataFrame(cursor.fetchall(), schema=shape, orient="row")
        except self._error as error:
            raise Untranslatable(f"PostgreSQL says: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        self._connection.close()

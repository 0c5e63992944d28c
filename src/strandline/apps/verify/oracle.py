"""Evaluation of a query by an oracle at many instants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from strandline.apps.verify.compare import AT
from strandline.apps.verify.dataset import BaseTable, Dataset, QueryUnderTest, Times
from strandline.apps.verify.dialect import Dialect
from strandline.apps.verify.record import Recorded
from strandline.apps.verify.sql_text import SqlText
from strandline.apps.verify.translate import INSTANT, TranslatedStage, Translation
from strandline.core.errors import SetupError
from strandline.core.types import BIGINT, Column, Schema
from strandline.functions.oracles import Untranslatable
from strandline.logical.schema import schema
from strandline.logical.udf import Definition
from strandline.runtime.kernels.columns import polars_type

# Instants per statement: a database that pairs instants with rows needs memory for all pairs.
INSTANTS_AT_ONCE: Final = 2_000

_NUMBER = Column("n", "n", BIGINT)
_TIME = Column(AT, AT, BIGINT)


class OracleDatabase(ABC):
    """A connection to another database, with the SQL that it understands; `error` is what its driver raises."""

    dialect: ClassVar[Dialect]

    def __init__(self, connection: Any, error: type[Exception]) -> None:
        self.connection = connection
        self._error = error

    def bring(self, user: Definition) -> None:
        """Make a function of the user's known, or an aggregate as a function over lists of values.

        By default none is: Python in a server cannot be assumed.
        """
        return

    @abstractmethod
    def load(self, table: str, columns: Schema, rows: pl.DataFrame) -> None:
        """Create a table of rows whose columns are named by id."""

    @abstractmethod
    def fetch(self, statement: str, columns: Schema) -> pl.DataFrame:
        """Run a statement as the driver has it."""

    def ask(self, statement: str, columns: Schema) -> pl.DataFrame:
        """The rows of a query, with columns of these types."""
        try:
            return self.fetch(statement, columns)
        except self._error as error:
            raise Untranslatable(f"{self.dialect.name} says: {str(error).splitlines()[0]}") from error

    def run(self, statement: str) -> None:
        self.ask(statement, ())

    def close(self) -> None:
        self.connection.close()


def not_installed(library: str) -> SetupError:
    return SetupError(
        f"{library} is not installed", code="no-judge", hint="Install it: pip install 'strandline[verify]'."
    )


def load_streams(database: OracleDatabase, streams: Iterable[Recorded]) -> dict[str, BaseTable]:
    """Load the rows of streams, in order of arrival, into tables; returns the relations by lower-case name."""
    tables: dict[str, BaseTable] = {}
    for number, recorded in enumerate(streams, 1):
        table = f"stream{number}"
        named = enumerate(recorded.stream.queried_columns, 1)
        columns = tuple(Column(f"c{n}", name, kind) for n, (name, kind) in named)
        frame = recorded.rows.select(
            *(pl.col(c.name).alias(c.id) for c in columns),
            pl.Series("at_us", recorded.times, dtype=pl.Int64),
            pl.Series("until_us", recorded.ends, dtype=pl.Int64),
            pl.int_range(pl.len()).alias("seq"),
        )
        more = tuple(Column(column_id, column_id, BIGINT) for column_id in ("at_us", "until_us", "seq"))
        database.load(table, (*columns, *more), frame)
        tables[recorded.stream.name.lower()] = BaseTable(
            table, recorded.times, recorded.ends, is_stream=recorded.stream.table is None
        )
    return tables


def results(
    database: OracleDatabase,
    dataset: Dataset,
    tested_query: QueryUnderTest,
    instants: Times,
    note: Callable[[str], None] = lambda _: None,
    *,
    apart: bool = False,
) -> pl.DataFrame:
    """The oracle's result at each instant: the instant, then the columns of the query.

    One statement covers many instants, or, if `apart`, one: that is slower, but leaves the database nothing to
    rearrange between instants.
    """
    for user in tested_query.name_scope.catalog.functions.values():
        database.bring(user)
    translation = Translation(dataset, tested_query.name_scope, database.dialect)
    output_columns = tuple(Column(f"c{n}", c.name, c.type) for n, c in enumerate(schema(tested_query.plan), 1))
    body = translation.retyped(translation.query(tested_query.query), output_columns)
    for stage in translation.stages:
        _make(database, stage, apart)
    shape = (_TIME, *output_columns)
    parts = [pl.DataFrame(schema={c.id: polars_type(c.type) for c in shape})]
    if not apart:
        database.load("instants", (_NUMBER, _TIME), _numbered(instants))
    for first in range(0, len(instants), INSTANTS_AT_ONCE):
        note(f"{tested_query.name} on {database.dialect.name}: {first:,} of {len(instants):,} instants")
        chosen = instants[first : first + INSTANTS_AT_ONCE]
        parts += [_apart(database, body, chosen, shape)] if apart else [_together(database, body, first, chosen, shape)]
    return pl.concat([part for part in parts if part.height] or parts[:1])


def _numbered(instants: Times) -> pl.DataFrame:
    return pl.DataFrame({"n": np.arange(len(instants)), AT: instants}, schema={"n": pl.Int64, AT: pl.Int64})


def _together(database: OracleDatabase, body: SqlText, first: int, instants: Times, shape: Schema) -> pl.DataFrame:
    which = f"WHERE moment.n >= {first} AND moment.n < {first + len(instants)}"
    listed = ", ".join(c.id for c in body.columns)
    lateral = f"instants AS moment CROSS JOIN LATERAL ({body.sql}) AS q({listed})"
    try:
        return database.ask(f"SELECT moment.t, q.* FROM {lateral} {which}", shape)
    except Untranslatable:
        # Not every database can decorrelate every query over instants; it may still run each of them.
        return _apart(database, body, instants, shape)


def _apart(database: OracleDatabase, body: SqlText, instants: Times, shape: Schema) -> pl.DataFrame:
    listed = ", ".join(c.id for c in body.columns)
    frames = []
    for t in instants.tolist():
        at = f"CAST({t} AS BIGINT)"
        text = body.sql.replace(INSTANT, at)
        frames.append(database.ask(f"SELECT {at} AS t, q.* FROM ({text}) AS q({listed})", shape))
    return pl.concat([part for part in frames if part.height] or frames[:1])


def _make(database: OracleDatabase, stage: TranslatedStage, apart: bool) -> None:
    """The table of a stage, all instants together or one by one. Its rows are valid for one instant each."""
    listed = ", ".join((*(c.id for c in stage.body.columns), *(("seq",) if stage.ordered else ())))
    database.run(f"DROP TABLE IF EXISTS {stage.table}")
    database.load(f"{stage.table}_at", (_NUMBER, _TIME), _numbered(stage.instants))
    lateral = f"{stage.table}_at AS moment CROSS JOIN LATERAL ({stage.body.sql}) AS q({listed})"
    which = " WHERE FALSE" if apart else ""
    columns = f"{INSTANT} AS at_us, {INSTANT} + 1 AS until_us, q.*"
    database.run(f"CREATE TEMP TABLE {stage.table} AS SELECT {columns} FROM {lateral}{which}")
    for t in stage.instants.tolist() if apart else ():
        at = f"CAST({t} AS BIGINT)"
        text = stage.body.sql.replace(INSTANT, at)
        database.run(f"INSERT INTO {stage.table} SELECT {at}, {at} + 1, q.* FROM ({text}) AS q({listed})")

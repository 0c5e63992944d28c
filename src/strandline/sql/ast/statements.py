"""Statements of the syntax tree, with the sources and sinks that they declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from strandline.logical.catalog import Argument
from strandline.sql.ast.nodes import Duration, Identifier, Node, TypeName
from strandline.sql.ast.queries import Query


@dataclass(frozen=True, slots=True)
class Shedding(Node):
    """`ALLOW SHEDDING [UP TO n PERCENT]`: which share of a stream's rows may be dropped where not all can be read."""

    most: float


@dataclass(frozen=True, slots=True)
class QueryWithShedding(Node):
    """A query that may lose rows when it cannot keep up."""

    query: Query
    shedding: Shedding


@dataclass(frozen=True, slots=True)
class SourceValue(Node):
    """An argument of a source or sink as a plain value; a parenthesised row is a list."""

    value: Argument


@dataclass(frozen=True, slots=True)
class Connector(Node):
    """`fn(value, …, name => value, …)`: a source, or a sink."""

    function: Identifier
    arguments: tuple[SourceValue, ...]
    options: tuple[tuple[Identifier, SourceValue], ...]


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    name: Identifier
    type: TypeName


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """`rate = 5000`, `length = 60` or `distinct(column) = 100` in `WITH (…)`: a statistic for the planner."""

    name: Identifier
    column: Identifier | None
    value: float

    @property
    def about(self) -> tuple[str, str | None]:
        return self.name.name.lower(), None if self.column is None else self.column.name.lower()


@dataclass(frozen=True, slots=True)
class BadInput(Node):
    """`ON BAD INPUT SKIP`, `STOP`, `STOP AFTER n [ROWS]` or `STOP AFTER n PERCENT`: a share, then."""

    stops: bool
    most_rows: int | None = None
    most_share: float | None = None


@dataclass(frozen=True, slots=True)
class ChangesIn(Node):
    """`CHANGES IN column [PRIMARY KEY (column, …)]`."""

    op_column: Identifier
    key: tuple[Identifier, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateStream(Node):
    """`CREATE STREAM name (columns) SOURCE … ORDERED BY column [WITHIN …] [IDLE AFTER …] [CHANGES IN …]
    [ON BAD INPUT …] [WITH (…)]`; in place of ORDERED BY stands `VALID FROM column UNTIL column` where rows have
    intervals, and nothing where the time of arrival counts. Without columns, the source declares them and the time."""

    name: Identifier
    columns: tuple[ColumnDefinition, ...]
    source: Connector
    time_column: Identifier | None
    within: Duration | None
    idle_after: Duration | None
    end_column: Identifier | None = None
    hints: tuple[Hint, ...] = ()
    bad_input: BadInput | None = None
    changes: ChangesIn | None = None


@dataclass(frozen=True, slots=True)
class CreateStreamAs(Node):
    """`CREATE STREAM name AS query [ALLOW SHEDDING …]`."""

    name: Identifier
    query: Query
    shedding: Shedding | None = None


@dataclass(frozen=True, slots=True)
class CreateView(Node):
    """`CREATE [OR REPLACE] VIEW name [(columns)] AS query`; without a list the columns keep their names."""

    name: Identifier
    columns: tuple[Identifier, ...]
    query: Query
    replace: bool


@dataclass(frozen=True, slots=True)
class Drop(Node):
    """`DROP kind [IF EXISTS] name [CASCADE]`, with the kind STREAM or VIEW."""

    kind: str
    name: Identifier
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class CreateSink(Node):
    """`CREATE SINK name INTO fn(…) AS query [ALLOW SHEDDING …]`: a query that runs under this name, and its target."""

    name: Identifier
    target: Connector
    query: Query
    shedding: Shedding | None = None


@dataclass(frozen=True, slots=True)
class DropSink(Node):
    """`DROP SINK [IF EXISTS] name`."""

    name: Identifier
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """`EXPLAIN query`, or with `why` also the plans that were rejected."""

    statement: Query | QueryWithShedding | CreateStreamAs | CreateView | CreateSink
    why: bool = False


@dataclass(frozen=True, slots=True)
class ExplainAnalyze(Node):
    """`EXPLAIN ANALYZE name`, of a query that runs."""

    name: Identifier


@dataclass(frozen=True, slots=True)
class Show(Node):
    """`SHOW what`, with what one of STREAMS, VIEWS, QUERIES, SINKS, SHEDDING."""

    what: str


@dataclass(frozen=True, slots=True)
class Set(Node):
    """`SET CAPACITY n PERCENT` or `MEASURED`, and `SET SHEDDING UP TO n PERCENT`, `ON` or `OFF`: for the queries that
    start after it. The value is a share, None for MEASURED and OFF."""

    what: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """`DESCRIBE name`."""

    name: Identifier


Declaration: TypeAlias = CreateStream | CreateStreamAs | CreateView | Drop
Statement: TypeAlias = (
    Declaration | CreateSink | DropSink | Explain | ExplainAnalyze | Show | Set | Describe | Query | QueryWithShedding
)

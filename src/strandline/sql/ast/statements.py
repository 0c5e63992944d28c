"""Statements of the syntax tree; those about tables are in `tables.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from strandline.sql.ast.connectors import BadInput, ChangesIn, ColumnDefinition, Connector, Hint
from strandline.sql.ast.nodes import Duration, Identifier, Node
from strandline.sql.ast.queries import Query, StreamTable
from strandline.sql.ast.tables import CreateMaterializedView, CreateTable, CreateTableAs, TableChange

Start: TypeAlias = Literal["now", "earliest"]  # where a query begins in streams that others read


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
class QueryWithStart(Node):
    """`query STARTING NOW`: over the rows that come from now on; `query STARTING EARLIEST`: over all rows, also those
    that others have read."""

    query: Query
    start: Start


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
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateStreamAs(Node):
    """`CREATE STREAM name AS query [ALLOW SHEDDING … | STARTING { NOW | EARLIEST }]`."""

    name: Identifier
    query: Query
    shedding: Shedding | None = None
    replace: bool = False
    if_not_exists: bool = False
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class CreateView(Node):
    """`CREATE [OR REPLACE] VIEW name [(columns)] AS query`; without a list the columns keep their names."""

    name: Identifier
    columns: tuple[Identifier, ...]
    query: Query
    replace: bool
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Node):
    """`DROP kind [IF EXISTS] name [CASCADE]`, with the kind STREAM, VIEW, TABLE or MATERIALIZED VIEW."""

    kind: str
    name: Identifier
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class CreateSink(Node):
    """`CREATE SINK name INTO fn(…) AS query [ALLOW SHEDDING … | STARTING { NOW | EARLIEST }]`: a query that runs under
    this name, and its target."""

    name: Identifier
    target: Connector
    query: Query
    shedding: Shedding | None = None
    replace: bool = False
    if_not_exists: bool = False
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class DropSink(Node):
    """`DROP SINK [IF EXISTS] name`."""

    name: Identifier
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """`EXPLAIN query`, or with `why` also the plans that were rejected."""

    statement: (
        Query | QueryWithShedding | QueryWithStart | CreateStreamAs | CreateView | CreateMaterializedView | CreateSink
    )
    why: bool = False


@dataclass(frozen=True, slots=True)
class ExplainAnalyze(Node):
    """`EXPLAIN ANALYZE name`, of a query that runs."""

    name: Identifier


@dataclass(frozen=True, slots=True)
class Show(Node):
    """`SHOW what`, with what one of STREAMS, TABLES, VIEWS, QUERIES, SINKS, SHEDDING, FUNCTIONS, GRAPH."""

    what: str


@dataclass(frozen=True, slots=True)
class ShowColumns(Node):
    """`SHOW COLUMNS FROM name`, or `DESCRIBE query`: names and types of columns."""

    of: Identifier | Query


@dataclass(frozen=True, slots=True)
class Set(Node):
    """`SET CAPACITY n PERCENT` or `MEASURED`, and `SET SHEDDING UP TO n PERCENT`, `ON` or `OFF`: for the queries that
    start after it. The value is a share, None for MEASURED and OFF."""

    what: str
    value: float | None


@dataclass(frozen=True, slots=True)
class SetPipeline(Node):
    """`SET PIPELINE name` or `SET PIPELINE DEFAULT`: where the queries go that start after it. No name is the
    default."""

    name: Identifier | None


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """`DESCRIBE name`, or that of a file: `DESCRIBE 'trades.csv'`."""

    name: Identifier
    file: StreamTable | None = None


Creation: TypeAlias = (
    CreateStream | CreateStreamAs | CreateView | CreateTable | CreateTableAs | CreateMaterializedView | CreateSink
)
Declaration: TypeAlias = (
    CreateStream | CreateStreamAs | CreateView | CreateTable | CreateTableAs | CreateMaterializedView | Drop
)
Listing: TypeAlias = Explain | ExplainAnalyze | Show | ShowColumns | Describe
Statement: TypeAlias = (
    Declaration
    | TableChange
    | CreateSink
    | DropSink
    | Listing
    | Set
    | SetPipeline
    | Query
    | QueryWithShedding
    | QueryWithStart
)

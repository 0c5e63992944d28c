"""Syntax tree, before names and types are resolved.

Every node has its span in the text, which is not part of its identity: nodes with the same content are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from strandline.core.errors import Span
from strandline.core.types import Type
from strandline.logical.catalog import SYSTEM, Argument
from strandline.logical.udf import Definition


@dataclass(frozen=True, slots=True)
class Node:
    """Syntax node with its span."""

    span: Span = field(kw_only=True, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The user's own words."""
        return self.span.text[self.span.start : self.span.end]


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A name. Quoted, it means exactly this spelling; unquoted, any mixture of upper and lower case."""

    name: str
    quoted: bool = False

    def matches(self, declared: str) -> bool:
        return self.name == declared if self.quoted else self.name.lower() == declared.lower()


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type as written, resolved: `DOUBLE PRECISION` and `REAL` are DOUBLE, the length of a VARCHAR is dropped."""

    type: Type


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """`10 SECONDS`, `INTERVAL '10' SECOND` or `'10 seconds'` in microseconds."""

    microseconds: int


# ---- expressions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A number without its sign; `digits` is the source text, so that 1.50 keeps its scale."""

    digits: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A text in quotes. Compared with a value of another type it is read as that type, as in PostgreSQL."""

    value: str


@dataclass(frozen=True, slots=True)
class Truth(Node):
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class Null(Node):
    """NULL."""


@dataclass(frozen=True, slots=True)
class TypedText(Node):
    """`TIMESTAMP '…'` or `DATE '…'`."""

    type: Type
    value: str


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """`INTERVAL …` as a value."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class ColumnName(Node):
    """`column` or `qualifier.column`."""

    qualifier: Identifier | None
    column: Identifier


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A prefix operator: `-`, `+`, `~` or `NOT`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An operator of arithmetic, bits or texts, or a comparison; `!=` is stored as `<>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """`AND` or `OR` over two or more operands. A chain is one flat node, so a long one is not a deep tree."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class IsTest(Node):
    """`operand IS [NOT] what`, with what one of NULL, TRUE, FALSE, UNKNOWN."""

    operand: Expression
    what: str
    negated: bool


@dataclass(frozen=True, slots=True)
class DistinctTest(Node):
    """`left IS [NOT] DISTINCT FROM right`: as <> and =, with NULL as a value like any other."""

    left: Expression
    right: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Between(Node):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool
    symmetric: bool = False  # whether the bounds may be in either order


@dataclass(frozen=True, slots=True)
class InList(Node):
    operand: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """`EXISTS (query)`."""

    query: Query


@dataclass(frozen=True, slots=True)
class Quantified(Node):
    """`operand operator ANY (query)` or `… ALL (query)`; IN is = ANY, NOT IN is <> ALL."""

    operator: str
    quantifier: str
    operand: Expression
    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Node):
    """`(query)` as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Like(Node):
    """LIKE, or SIMILAR TO."""

    operand: Expression
    pattern: Expression
    negated: bool
    escape: Expression | None = None
    similar: bool = False


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`CASE [operand] WHEN … THEN … [ELSE …] END`."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """`CAST(operand AS type)` or `operand::type`."""

    operand: Expression
    type: TypeName


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `qualifier.*`: a SELECT item, or the argument of COUNT."""

    qualifier: Identifier | None = None


@dataclass(frozen=True, slots=True)
class SortItem(Node):
    """An element of ORDER BY; `nulls` is FIRST, LAST or, by default, None."""

    value: Expression
    descending: bool
    nulls: str | None

    @property
    def nulls_first(self) -> bool:
        """As in PostgreSQL, NULL is greater than every value by default."""
        return self.descending if self.nulls is None else self.nulls == "FIRST"


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A call of a function or an aggregate; the binder distinguishes them."""

    name: Identifier
    arguments: tuple[Expression, ...] | Star
    filter: Expression | None = None  # of an aggregate: FILTER (WHERE …)
    distinct: bool = False  # of an aggregate: name(DISTINCT x)
    order: tuple[SortItem, ...] = ()  # of an aggregate: name(x ORDER BY …)
    within: tuple[SortItem, ...] = ()  # of an aggregate: WITHIN GROUP (ORDER BY …)
    definition: Definition | None = None  # if it is one of the user's; `definitions` sets it


@dataclass(frozen=True, slots=True)
class Ranking(Node):
    """`RANK() OVER ([PARTITION BY …] ORDER BY …)`."""

    partition: tuple[Expression, ...]
    order: tuple[SortItem, ...]


Expression: TypeAlias = (
    Number
    | Text
    | Truth
    | Null
    | TypedText
    | Interval
    | ColumnName
    | Unary
    | Binary
    | Logical
    | IsTest
    | DistinctTest
    | Between
    | InList
    | Exists
    | Quantified
    | ScalarQuery
    | Like
    | Case
    | Cast
    | Function
    | Ranking
)


# ---- queries -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeWindow(Node):
    """`[PARTITION BY column, …] RANGE n unit [SLIDE n unit]`; without SLIDE the window moves with every instant.

    No range is UNBOUNDED, also for `ROWS UNBOUNDED`. The partition changes nothing: rows leave by their own times.
    """

    range: Duration | None
    slide: Duration | None
    partition: tuple[ColumnName, ...] = ()


@dataclass(frozen=True, slots=True)
class NowWindow(Node):
    """`NOW`: each element counts for its own instant only, as without a window."""


@dataclass(frozen=True, slots=True)
class RowsWindow(Node):
    """`[PARTITION BY column, …] ROWS n [SLIDE m]`; without SLIDE the window moves with every row."""

    partition: tuple[ColumnName, ...]
    rows: int
    slide: int = 1


@dataclass(frozen=True, slots=True)
class SessionWindow(Node):
    """`[PARTITION BY column, …] SESSION n unit`; a session ends when nothing has come for that long."""

    partition: tuple[ColumnName, ...]
    gap: Duration


Window: TypeAlias = RangeWindow | NowWindow | RowsWindow | SessionWindow


@dataclass(frozen=True, slots=True)
class StreamTable(Node):
    """A declared stream in FROM; `weighted` if its rows carry their weights (`scaled`)."""

    name: Identifier
    window: Window | None
    alias: Identifier | None
    granularity: Duration | None = None
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class QueryTable(Node):
    """A subquery in FROM."""

    query: Query
    window: Window | None
    alias: Identifier
    granularity: Duration | None = None


@dataclass(frozen=True, slots=True)
class Join(Node):
    """`left JOIN right ON condition`; `kind` is LEFT, RIGHT, FULL, SEMI, ANTI or, for inner, None.

    `using` are the columns after USING; NATURAL means all common columns. Without any of these: CROSS JOIN.
    """

    condition: Expression | None
    left: Table
    right: Table
    kind: str | None = None
    using: tuple[Identifier, ...] = ()
    natural: bool = False


Table: TypeAlias = StreamTable | QueryTable | Join


@dataclass(frozen=True, slots=True)
class Item(Node):
    """A SELECT item."""

    value: Expression | Star
    alias: Identifier | None


@dataclass(frozen=True, slots=True)
class GroupingList(Node):
    """`(a, b)` or `()` in GROUP BY: expressions that group together, or everything in one group."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupingSets(Node):
    """`GROUPING SETS (…)`, `ROLLUP (…)` or `CUBE (…)`; `kind` is the first word."""

    kind: str
    elements: tuple[Grouping, ...]


Grouping: TypeAlias = Expression | GroupingList | GroupingSets


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`SELECT … FROM … [WHERE …] [GROUP BY …] [HAVING …] [QUALIFY …]`.

    An empty `group_by` means that there is no GROUP BY.
    """

    distinct: bool
    items: tuple[Item, ...]
    tables: tuple[Table, ...]
    where: Expression | None
    group_by: tuple[Grouping, ...]
    having: Expression | None
    qualify: Expression | None = None


@dataclass(frozen=True, slots=True)
class UnionAll(Node):
    """Two or more queries joined by UNION ALL, in order."""

    branches: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """`left UNION right` and other set operations; `operator` is as in SQL, without the default DISTINCT."""

    operator: str
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Changes(Node):
    """`ISTREAM(query)`, `DSTREAM(query)` or `RSTREAM(query)`, and `SELECT ISTREAM(…) FROM …`.

    `SELECT ISTREAM a FROM …` may also be a column with an alias: then `column` is its name.
    """

    kind: str
    query: Query
    column: Identifier | None = None


@dataclass(frozen=True, slots=True)
class Ordered(Node):
    """`query ORDER BY … LIMIT n`: the first n rows at every instant, and those that are level with the last of them."""

    query: Query
    order: tuple[SortItem, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class CommonTable(Node):
    """`name [(columns)] AS (query)` in WITH; without a list the columns keep their names."""

    name: Identifier
    columns: tuple[Identifier, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class With(Node):
    """`WITH name AS (query), … query`."""

    tables: tuple[CommonTable, ...]
    body: Query


Query: TypeAlias = Select | UnionAll | SetOperation | Changes | Ordered | With


# ---- statements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shedding(Node):
    """`ALLOW SHEDDING [UP TO n PERCENT]`: which share of a stream's rows may be dropped where not all can be read."""

    most: float


@dataclass(frozen=True, slots=True)
class Allowing(Node):
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
    """`rate = 5000` or `distinct(column) = 100` in `WITH (…)`: declared statistics for the planner."""

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
class CreateStream(Node):
    """`CREATE STREAM name (columns) SOURCE … ORDERED BY column [WITHIN …] [IDLE AFTER …] [ON BAD INPUT …] [WITH (…)]`;
    instead of ORDERED BY, `VALID FROM column UNTIL column` for rows with intervals, and nothing for arrival time.
    Omitted columns and time are those that the source provides."""

    name: Identifier
    columns: tuple[ColumnDefinition, ...]
    source: Connector
    time_column: Identifier | None
    within: Duration | None
    idle_after: Duration | None
    end_column: Identifier | None = None
    hints: tuple[Hint, ...] = ()
    bad_input: BadInput | None = None


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
    """`CREATE SINK name INTO fn(…) AS query [ALLOW SHEDDING …]`: a named query, and the target of its result."""

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

    statement: Query | Allowing | CreateStreamAs | CreateView | CreateSink
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
    Declaration | CreateSink | DropSink | Explain | ExplainAnalyze | Show | Set | Describe | Query | Allowing
)


def reads_system(*nodes: Node) -> bool:
    """True if a system table is read anywhere below. Not by recursion: the text may be deeper than the stack."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, StreamTable) and node.name.name.lower().startswith(SYSTEM):
            return True
        pending.extend(children(node))
    return False


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in the order of the text."""
    for each in fields(node):
        yield from _nodes(getattr(node, each.name))


def _nodes(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _nodes(part)

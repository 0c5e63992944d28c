"""Queries of the syntax tree: SELECT, set operations, what stands in FROM, and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias, TypeVar

from strandline.core.errors import Span
from strandline.logical.catalog import SYSTEM
from strandline.sql.ast.connectors import Connector
from strandline.sql.ast.expressions import ColumnName, Expression, SortItem, Star, TypedText, WindowDefinition
from strandline.sql.ast.nodes import Duration, Identifier, Node, children


@dataclass(frozen=True, slots=True)
class RangeWindow(Node):
    """`[PARTITION BY column, …] RANGE n unit [SLIDE n unit [OFFSET n unit]]`; without SLIDE the window moves with every
    instant. `offset` are microseconds, less than the slide.

    No range is UNBOUNDED, also for `ROWS UNBOUNDED`. The partition changes nothing: rows leave by their own times.
    """

    range: Duration | None
    slide: Duration | None
    partition: tuple[ColumnName, ...] = ()
    offset: int = 0


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
    """A declared stream, view or table in FROM; `weighted` if its rows carry the weights of load shedding.

    `as_of` is the instant at which a table is read, `AT TIMESTAMP '…'` or `FOR SYSTEM_TIME AS OF '…'`, or for
    `FOR SYSTEM_TIME AS OF s.ts` the time column of a stream: each of its rows with the table as it was then.
    """

    name: Identifier
    window: Window | None
    alias: Identifier | None
    granularity: Duration | None = None
    weighted: bool = False
    as_of: TypedText | ColumnName | None = None
    source: Connector | None = None  # of a file that is named by its path


@dataclass(frozen=True, slots=True)
class QueryTable(Node):
    """A subquery in FROM; `lateral` if it may read columns of what stands to its left."""

    query: Query
    window: Window | None
    alias: Identifier
    granularity: Duration | None = None
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class WindowTable(Node):
    """`TUMBLE(source, time, size)`, HOP, CUMULATE or SESSION in FROM: the rows of finished windows, with window_start,
    window_end and window_time. `step` is the slide of HOP; the `size` of SESSION is its gap. Windows begin `offset`
    microseconds after multiples of their step, or of their size if they are cumulative."""

    kind: str
    source: StreamTable | QueryTable
    time: ColumnName
    size: Duration
    step: Duration
    partition: tuple[ColumnName, ...] = ()
    alias: Identifier | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Join(Node):
    """`left JOIN right ON condition`; `kind` is LEFT, RIGHT, FULL, SEMI, ANTI or, for inner, None.

    `using` are the columns after USING; NATURAL stands for all that both sides have. Without any of these: CROSS JOIN.
    `asof` if each row of the left meets the last row of the right only: ASOF JOIN.
    """

    condition: Expression | None
    left: TableReference
    right: TableReference
    kind: str | None = None
    using: tuple[Identifier, ...] = ()
    natural: bool = False
    asof: bool = False


@dataclass(frozen=True, slots=True)
class UnnestTable(Node):
    """`UNNEST(array) [WITH ORDINALITY] [AS alias(element, position)]`: elements of an array of the row left of it."""

    array: Expression
    alias: Identifier | None
    columns: tuple[Identifier, ...] = ()
    ordinality: bool = False


TableReference: TypeAlias = StreamTable | QueryTable | WindowTable | UnnestTable | Join


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
class NamedWindow(Node):
    """`name AS (…)` in WINDOW."""

    name: Identifier
    definition: WindowDefinition


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`SELECT … FROM … [WHERE …] [GROUP BY …] [HAVING …] [WINDOW …] [QUALIFY …]`.

    An empty `group_by` means that there is no GROUP BY. Where a window function names one of the `windows`, it has
    what that says.
    """

    distinct: bool
    items: tuple[Item, ...]
    tables: tuple[TableReference, ...]
    where: Expression | None
    group_by: tuple[Grouping, ...]
    having: Expression | None
    qualify: Expression | None = None
    windows: tuple[NamedWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class UnionAll(Node):
    """Two or more queries joined by UNION ALL, in order."""

    branches: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """`left UNION right` and the like; `operator` is as in SQL, without the DISTINCT that is the default."""

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


ORDER_HINT: Final = (
    "A continuous result is unordered and unbounded. ORDER BY x LIMIT n gives the first n rows at every instant, "
    "with ties."
)


@dataclass(frozen=True, slots=True)
class Ordered(Node):
    """`query ORDER BY … LIMIT n`: the first n rows at every instant, with those that tie with the last.

    Where a statement is executed at once, either may be missing: all rows in an order, or any n rows. `clause` is the
    place of both.
    """

    query: Query
    order: tuple[SortItem, ...]
    limit: int | None
    clause: Span = field(compare=False, repr=False)

    @property
    def is_top(self) -> bool:
        """Whether it means something at every instant."""
        return bool(self.order) and self.limit is not None

    @property
    def lacking(self) -> str:
        return "ORDER BY without LIMIT" if self.order else "LIMIT without ORDER BY"


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


def looked_at(query: Node) -> tuple[Query, int] | None:
    """The query and the number of rows of `SELECT … LIMIT n` without ORDER BY: the first rows that come."""
    match query:
        case Ordered(inner, (), int() as limit):
            return inner, limit
        case With(tables, Ordered(inner, (), int() as limit)):
            return With(tables, inner, span=query.span), limit
    return None


# ---- walks over the syntax tree --------------------------------------------------------------------------------------

Tree = TypeVar("Tree")


def reads_system(*nodes: Node) -> bool:
    """Whether a table of the system is read anywhere below; without recursion, which could exhaust the stack."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, StreamTable) and node.name.name.lower().startswith(SYSTEM):
            return True
        pending.extend(children(node))
    return False


def own_nodes(tree: object) -> Iterator[Node]:
    """The nodes of a tree, or of several; those of a query inside belong to that query."""
    pending = [tree]  # no recursion: the height of a tree is checked when all of it is parsed
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending.extend(reversed(part))
        elif isinstance(part, Node) and not isinstance(part, Query):
            yield part
            pending.extend(reversed(children(part)))


def rewrite(tree: Tree, change: Callable[[Node], Node], into_queries: bool = True) -> Tree:
    """The tree with every node changed, from the bottom up."""
    changed: Any = tree
    if isinstance(tree, tuple):
        changed = tuple(rewrite(part, change, into_queries) for part in tree)
    elif isinstance(tree, Node) and (into_queries or not isinstance(tree, Query)):
        parts = {field.name: getattr(tree, field.name) for field in fields(tree) if field.name != "span"}
        changed = change(replace(tree, **{name: rewrite(part, change, into_queries) for name, part in parts.items()}))
    return changed  # type: ignore[no-any-return]

"""Name resolution in FROM: a query of a WITH around it, else a stream or view of the catalog.

A query of WITH is bound once, where it stands, so that one that is never read is checked as well; each use gets a copy
under ids of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from strandline.core.errors import BindError
from strandline.core.temporal import SECOND, show_duration
from strandline.core.types import Column
from strandline.logical import plan as logical
from strandline.logical.catalog import Catalog, DerivedStream, Stream
from strandline.logical.expressions import AggregateCall, ColumnRef, Expression, SortKey, WindowCall, substitute
from strandline.logical.plan import Plan
from strandline.logical.schema import Ids, rename, schema
from strandline.logical.tree import map_expressions, transform_up
from strandline.sql import ast
from strandline.sql.binder.scope import VALIDITY
from strandline.sql.dialects.names import RELATIONS


@dataclass(frozen=True, slots=True)
class DerivedWindow:
    """A stream in FROM, and for how long its rows are kept; `slide` where these are the rows of windows. It is due
    to its `origin`. If it `is_delay`, it is how much later the rows are read. It `is_open` if
    its rows may come after those that they keep out of the result."""

    name: str
    microseconds: int
    slide: str = ""
    origin: str = "the condition"
    is_delay: bool = False
    is_open: bool = False

    def __str__(self) -> str:
        if self.is_delay:
            return f"{self.name} {show_duration(self.microseconds)} after its time"
        if self.microseconds == 1:
            return f"{self.name} WINDOW(NOW)"
        whole, more = divmod(self.microseconds, SECOND)
        length = f"{whole}.{more:06} SECONDS" if whole and more == 1 else show_duration(self.microseconds)
        return f"{self.name} WINDOW(RANGE {length}{self.slide})"


@dataclass(frozen=True)
class Names:
    """The names that FROM may use at one place of a statement. As in the catalog, upper and lower case are one."""

    catalog: Catalog
    reads: set[str] = field(default_factory=set)  # the streams and views named in FROM, anywhere in the statement
    queries: dict[str, DerivedStream] = field(default_factory=dict)  # those of WITH
    unreadable: dict[str, str] = field(default_factory=dict)  # queries of WITH that cannot be read here, and why not
    # Whether a statement is executed at once: it reads tables and materialized views as they are stored.
    stored: bool = False
    windows: list[DerivedWindow] = field(default_factory=list)  # those that follow from conditions, in all queries
    bound: dict[int, tuple[ast.Node, Plan]] = field(default_factory=dict)  # entries of FROM by identity, for conditions

    def get(self, name: ast.Identifier) -> Stream:
        """What the name means; a query of WITH hides a stream."""
        query = self.queries.get(name.name.lower())
        if query is not None:
            return query
        reason = self.unreadable.get(name.name.lower())
        if reason is not None and name.name not in self.catalog:
            hint = "Refer only to earlier queries of WITH."
            raise name.error(f'query "{name.name}" {reason}', "recursive-query", hint)
        if (foreign := RELATIONS.get(name.name.lower())) is not None and name.name not in self.catalog:
            raise name.error(f'"{name.name}" is not supported', "not-supported", foreign)
        stream = self.catalog.get(name.name, name.span)
        self.reads.add(stream.name)
        return stream

    def is_local(self, stream: Stream) -> bool:
        """Whether the name comes from a WITH."""
        return self.queries.get(stream.name.lower()) is stream

    def inside(self, tables: tuple[ast.CommonTable, ...], number: int) -> Names:
        """The names within one query of a WITH: those after it are not defined yet."""
        table = tables[number].name
        if any(table.name.lower() == other.name.name.lower() for other in tables[:number]):
            raise table.error(f'WITH query name "{table.name}" specified more than once', "duplicate-alias")
        later = {other.name.name.lower(): "is defined later" for other in tables[number + 1 :]}
        return replace(self, unreadable={**self.unreadable, **later, table.name.lower(): "refers to itself"})

    def with_query(self, table: ast.CommonTable, plan: Plan) -> Names:
        """The names after a query of WITH, whose plan is given."""
        name = table.name.name
        plan = with_names(plan, table.columns, f'query "{name}"')
        query = DerivedStream(name, plan, table.query.text, frozenset())
        return replace(self, queries={**self.queries, name.lower(): query})


def with_names(plan: Plan, names: tuple[ast.Identifier, ...], what: str) -> Plan:
    """The plan with its columns called `names`; none means that they keep theirs."""
    if not names:
        return plan
    columns = schema(plan)
    if len(names) != len(columns):
        message = f"{what} has {len(columns)} column{'' if len(columns) == 1 else 's'}, not {len(names)}"
        span = names[-1].span if len(names) > len(columns) else names[0].span.to(names[-1].span)
        raise BindError(message, code="column-count", hint="Name all columns, or none.", span=span)
    taken: set[str] = set()
    for name in names:
        if name.name.lower() in taken:
            raise name.error(f'duplicate column "{name.name}"', "duplicate-column")
        if name.name.lower() in VALIDITY:
            hint = "Every result has valid_from and valid_until; give the column another name."
            raise name.error(f'the output name "{name.name}" is reserved', "reserved-name", hint)
        taken.add(name.name.lower())
    ids = Ids()
    ids.used = {column.id.split("#")[0]: 1 for column in columns}
    renamed = (Column(ids.fresh(name.name), name.name, c.type) for name, c in zip(names, columns, strict=True))
    return logical.Map(rename(columns, tuple(renamed)), plan)


def freshened(plan: Plan, fresh: Callable[[str], str]) -> Plan:
    """The same plan under other ids, so that both can be in one plan."""
    names: dict[str, str] = {}
    refs: dict[str, Expression] = {}

    def define(column: Column) -> Column:
        # A Map below an Aggregate passes columns on under their ids: the same id is the same column.
        if column.id not in names:
            names[column.id] = fresh(column.id)
        refs[column.id] = ColumnRef(names[column.id], column.type)
        return replace(column, id=names[column.id])

    def renamed(column: ColumnRef) -> ColumnRef:
        return replace(column, id=names[column.id])

    def sorted_by(order: tuple[SortKey, ...]) -> tuple[SortKey, ...]:
        return tuple(replace(key, column=renamed(key.column)) for key in order)

    def aggregate(call: AggregateCall) -> AggregateCall:
        argument = None if call.argument is None else renamed(call.argument)
        return replace(call, argument=argument, order=sorted_by(call.order))

    def window_call(call: WindowCall) -> WindowCall:
        argument, default = (None if c is None else renamed(c) for c in (call.argument, call.default))
        inner = None if call.call is None else aggregate(call.call)
        return replace(call, argument=argument, default=default, call=inner)

    def change(node: Plan) -> Plan:
        node = map_expressions(node, lambda value: substitute(value, refs))
        match node:
            case logical.Scan():
                columns = tuple(map(define, node.columns))
                return replace(node, columns=columns, key=tuple(names[column] for column in node.key))
            case logical.Union() | logical.SetOperation():
                return replace(node, columns=tuple(map(define, node.columns)))
            case logical.Map(outputs, source):
                return logical.Map(tuple((define(column), value) for column, value in outputs), source)
            case logical.Unnest(element, array, ordinal):
                number = None if ordinal is None else define(ordinal)
                return replace(node, element=define(element), array=names[array], ordinal=number)
            case logical.MarkJoin(mark):
                return replace(node, mark=define(mark))
            case logical.Lookup(_, mark):
                return node if mark is None else replace(node, mark=define(mark))
            case logical.Apply(_, column):
                return replace(node, column=None if column is None else define(column))
            case logical.Aggregate(keys, aggregates, source):
                calls = tuple((define(column), aggregate(call)) for column, call in aggregates)
                return logical.Aggregate(tuple(names[key] for key in keys), calls, source)
            case logical.CountWindow(partition) | logical.SessionWindow(partition):
                return replace(node, partition=tuple(names[key] for key in partition))
            case logical.TopRows(partition, order):
                return replace(node, partition=tuple(names[key] for key in partition), order=sorted_by(order))
            case logical.Rank(rank_column, partition, order):
                partition, order = tuple(names[key] for key in partition), sorted_by(order)
                return replace(node, rank_column=define(rank_column), partition=partition, order=order)
            case logical.Over(partition, order, ties, calls):
                return replace(
                    node,
                    partition=tuple(names[key] for key in partition),
                    order=sorted_by(order),
                    ties=tuple(names[column] for column in ties),
                    calls=tuple((define(column), window_call(call)) for column, call in calls),
                )
            case logical.WindowBounds(start=start, end=end):
                return replace(node, start=define(start), end=define(end))
            case logical.Filter() | logical.Join() | logical.OuterJoin() | logical.SemiJoin():
                return node
            case logical.TimeWindow() | logical.Distinct() | logical.Granularity() | logical.Changes():
                return node
            case _:
                assert_never(node)

    return transform_up(plan, change)

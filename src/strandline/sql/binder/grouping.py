"""GROUP BY: the keys and aggregates of a SELECT, and its other expressions in terms of them.

A room of the binder. It builds the Map of keys and arguments and the Aggregate above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Final

from strandline.core.errors import BindError, Span
from strandline.core.types import BIGINT, NULL, VARCHAR, Column
from strandline.functions.aggregates import find_aggregate
from strandline.logical.expressions import (
    AggregateCall,
    Call,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    conjunction,
    rebuilt,
    substitute,
)
from strandline.logical.plan import Aggregate, Map, OuterJoin, Plan, Union
from strandline.logical.schema import schema
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.aggregates import BoundAggregate
from strandline.sql.binder.decorrelate import Reach, passed_on, same
from strandline.sql.binder.expressions import Ask, Places, Scalars
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Ids, Scope
from strandline.sql.binder.select_list import Output, output_name
from strandline.sql.binder.window_functions import Ranks

MOST_SETS: Final = 64


def is_aggregate(node: ast.Function) -> bool:
    return find_aggregate(node.name.name) is not None or isinstance(node.definition, UserAggregate)


def has_aggregate(node: ast.Expression) -> bool:
    """Whether an aggregate stands anywhere in the expression, which makes its SELECT a grouping one.

    What stands in a subquery belongs to that.
    """
    pending: list[ast.Node] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Function) and is_aggregate(each):
            return True
        pending.extend(child for child in ast.children(each) if not isinstance(child, ast.Query))
    return False


def is_grouping(select: ast.Select) -> bool:
    """Whether a SELECT groups: by its clauses, or because it lists an aggregate."""
    listed = (item.value for item in select.items if not isinstance(item.value, ast.Star))
    asked = () if select.qualify is None else (select.qualify,)
    return bool(select.group_by) or select.having is not None or any(map(has_aggregate, (*listed, *asked)))


def grouping_key(node: ast.Expression, outputs: list[Output], scope: Scope) -> tuple[ast.Expression, str]:
    """The expression that an element of GROUP BY means, and a name for it.

    As in PostgreSQL a name is a column of the input if there is one, else an output; a whole number is a position.
    """
    match node:
        case ast.Number(digits) if digits.isdecimal():
            if len(digits) > 9 or not 1 <= int(digits) <= len(outputs):
                raise BindError(
                    f"GROUP BY position {digits} is not in the SELECT list",
                    code="group-by-position",
                    hint=f"Positions go from 1 to {len(outputs)}.",
                    span=node.span,
                )
            output = outputs[int(digits) - 1]
            return output.node, output.name
        case ast.ColumnName(None, column) if not scope.matches(column):
            for output in outputs:
                if column.matches(output.name):
                    return output.node, output.name
        case ast.Number() | ast.Text() | ast.Truth() | ast.Null() | ast.TypedText() | ast.Interval():
            raise BindError(
                "cannot GROUP BY a constant",
                code="group-by-constant",
                hint="Name a column, an output or the position of an output.",
                span=node.span,
            )
    return node, output_name(node, scope) or "key"


def grouping_sets(elements: tuple[ast.Grouping, ...]) -> list[tuple[ast.Expression, ...]]:
    """The sets of expressions by which a GROUP BY groups: one, or with GROUPING SETS, ROLLUP and CUBE several.

    Elements side by side combine: each set of one with each of the other.
    """
    sets: list[tuple[ast.Expression, ...]] = [()]
    for element in elements:
        sets = [(*one, *two) for one in sets for two in _sets_of(element)]
        if len(sets) > MOST_SETS:
            raise _too_many(element.span)
    return [tuple(dict.fromkeys(each)) for each in sets]


def _sets_of(element: ast.Grouping) -> list[tuple[ast.Expression, ...]]:
    match element:
        case ast.GroupingList(items):
            return [items]
        case ast.GroupingSets("GROUPING", elements):
            return [each for inner in elements for each in _sets_of(inner)]
        case ast.GroupingSets(kind, elements):
            parts = [_sets_of(inner)[0] for inner in elements]
            if kind == "ROLLUP":
                chosen = [parts[:count] for count in range(len(parts), -1, -1)]
            elif len(parts) > MOST_SETS.bit_length():
                raise _too_many(element.span)
            else:
                chosen = [list(some) for count in range(len(parts), -1, -1) for some in combinations(parts, count)]
            return [tuple(item for part in some for item in part) for some in chosen]
        case _:
            return [(element,)]


def _too_many(span: Span) -> BindError:
    hint = "List only the needed ones in GROUPING SETS."
    return BindError(f"too many grouping sets (maximum {MOST_SETS})", code="too-many-groupings", hint=hint, span=span)


class Groups:
    """The keys and aggregates of one SELECT.

    Expressions above the Aggregate are bound over its input first; then what equals a key becomes the key, and a
    column that is left over is not grouped.
    """

    def __init__(self, ids: Ids, scope: Scope) -> None:
        self.ids = ids
        self.scope = scope
        self.inputs: dict[Expression, Column] = {}  # what the Map below computes, by meaning
        self.keys: dict[Expression, Column] = {}
        self.calls: dict[AggregateCall, Column] = {}
        self.sets: list[tuple[Expression, ...]] = []  # more than one way to group; each a part of the keys
        self.flags: dict[Expression, Column] = {}  # whether a key is left out, where somebody asks
        self.named = {column.id: column for relation in scope.relations for column in relation.columns}
        self.domain: tuple[
            Column, ...
        ] = ()  # what a subquery is computed for each combination of: keys, like the others

    def add_key(self, value: Expression, name: str) -> Expression:
        value = cast_to(value, VARCHAR) if value.type == NULL else value
        self.keys[value] = self.input(value, name)
        return value

    def input(self, value: Expression, name: str) -> Column:
        """The column of the Map below that has this value."""
        if value not in self.inputs:
            # A column of the query around has its place in that.
            column = self.named.get(value.id) if isinstance(value, ColumnRef) else None
            self.inputs[value] = column or Column(self.ids.fresh(name), name, value.type)
        return self.inputs[value]

    def aggregate(self, bound: BoundAggregate) -> ColumnRef:
        """The column of the Aggregate with this aggregate; equal ones are computed once."""
        argument, label = None, "all"
        if bound.value is not None:
            column = self.input(bound.value, "argument")
            argument, label = ColumnRef(column.id, column.type), column.name
        order = tuple(SortKey(self.reference(s.value), s.descending, s.nulls_first) for s in bound.order)
        call = AggregateCall(bound.function, argument, bound.type, bound.distinct, order, bound.parameter, bound.user)
        if call not in self.calls:
            name = f"{bound.function}_{label}"
            self.calls[call] = Column(self.ids.fresh(name), name, bound.type)
        return ColumnRef(self.calls[call].id, bound.type)

    def reference(self, value: Expression) -> ColumnRef:
        column = self.input(value, "order")
        return ColumnRef(column.id, column.type)

    def bind(
        self, node: ast.Expression, clause: str, subquery: Ask | None = None, ranks: Ranks | None = None
    ) -> Expression:
        scalars = self.scalars(clause, subquery, ranks)
        return self.regrouped(scalars.bind(node), scalars.places)

    def condition(
        self, node: ast.Expression, clause: str, subquery: Ask | None = None, ranks: Ranks | None = None
    ) -> Expression:
        scalars = self.scalars(clause, subquery, ranks)
        return self.regrouped(scalars.condition(node), scalars.places)

    def scalars(self, clause: str, subquery: Ask | None, ranks: Ranks | None) -> Scalars:
        """The binder of expressions of a clause; groups have places only where somebody keeps the `ranks`."""

        def place(node: ast.Ranking, scalars: Scalars) -> Expression:
            assert ranks is not None, "only who keeps ranks is asked for a place"
            return ranks.place(node, lambda key: self.regrouped(scalars.bind(key), scalars.places, key.span))

        rank = None if ranks is None else place
        return Scalars(self.scope, clause, self.aggregate, subquery, self.grouping, rank)

    def regrouped(self, value: Expression, places: Places, around: Span | None = None) -> Expression:
        """The value in terms of keys and aggregates; `around` is where it stands if nothing closer is known."""
        if value in self.keys:
            key = self.keys[value]
            return ColumnRef(key.id, key.type)
        if isinstance(value, ColumnRef) and value.id in self.named:
            raise self.ungrouped(value.id, places.span(value) or around)
        return rebuilt(value, lambda each: self.regrouped(each, places, around))

    def ungrouped(self, id: str, span: Span | None) -> BindError:
        name = self.named[id].name
        grouped = "Add it to GROUP BY" if self.keys else f"Add GROUP BY {name}"
        return BindError(
            f'column "{name}" must appear in GROUP BY or be used in an aggregate',
            code="ungrouped-column",
            hint=f"{grouped}, or aggregate it, as in MAX({name}).",
            span=span,
        )

    def grouping(self, node: ast.Function) -> Expression:
        """`GROUPING(a, b)`: a bit for each key, 1 where it is left out."""
        scalars = Scalars(self.scope, "GROUPING")
        value: Expression | None = None
        for argument in () if isinstance(node.arguments, ast.Star) else node.arguments:
            key = scalars.bind(argument)
            if key not in self.keys:
                raise BindError(
                    "arguments to GROUPING must be grouping expressions",
                    code="ungrouped-column",
                    hint="Use expressions of GROUP BY.",
                    span=argument.span,
                )
            if key not in self.flags:
                self.flags[key] = Column(self.ids.fresh("grouping"), "grouping", BIGINT)
            flag = ColumnRef(self.flags[key].id, BIGINT)
            doubled = None if value is None else Call("*", (value, Literal(2, BIGINT)), BIGINT)
            value = flag if doubled is None else Call("+", (doubled, flag), BIGINT)
        if value is None:
            hint = "Write GROUPING(key)."
            raise BindError("GROUPING must have at least one argument", code="type-mismatch", hint=hint, span=node.span)
        return value

    def per_combination(self, reach: Reach) -> None:
        """Group by what the rows bring along from the queries around them, too."""
        self.domain = tuple(copy for copy, _ in reach.copies.values())
        self.inputs = {substitute(value, reach.refs()): column for value, column in self.inputs.items()}

    def plan(self, source: Plan, domain: Plan | None = None) -> Plan:
        """The groups; with a domain, a group of everything is there for each of its combinations."""
        if not self.keys and not self.calls:
            # HAVING alone groups too. A count gives the one element of the answer a column.
            self.aggregate(BoundAggregate("count", None, BIGINT))
        if self.inputs:
            # COUNT(*) alone needs no column at all; then the columns of the source stay rather than none.
            outputs = ((column, value) for value, column in self.inputs.items())
            source = Map((*outputs, *passed_on(self.domain)), source)
        calls = tuple((column, call) for call, column in self.calls.items())
        if len(self.sets) <= 1 and not self.flags:
            return self.aggregated(tuple(self.keys), calls, source, domain)
        columns = (*self.keys.values(), *self.calls.values(), *self.flags.values(), *self.domain)
        return Union(columns, tuple(self.one_way(keys, calls, columns, source, domain) for keys in self.sets))

    def one_way(
        self,
        keys: tuple[Expression, ...],
        calls: tuple[tuple[Column, AggregateCall], ...],
        columns: tuple[Column, ...],
        source: Plan,
        domain: Plan | None,
    ) -> Plan:
        """One of several ways to group: the keys that are left out are NULL."""
        kept = {self.keys[key].id for key in keys}
        by_id = {column.id: column for column in (*self.keys.values(), *self.domain)}
        values: dict[str, Expression] = {id: ColumnRef(id, by_id[id].type) for id in self.key_ids(keys)}
        values |= {column.id: ColumnRef(column.id, column.type) for column, _ in calls}
        values |= {flag.id: Literal(int(self.keys[key].id not in kept), BIGINT) for key, flag in self.flags.items()}
        outputs = tuple(
            (replace(column, id=self.ids.fresh(column.id)), values.get(column.id, Literal(None, column.type)))
            for column in columns
        )
        return Map(outputs, self.aggregated(keys, calls, source, domain))

    def aggregated(
        self,
        keys: tuple[Expression, ...],
        calls: tuple[tuple[Column, AggregateCall], ...],
        source: Plan,
        domain: Plan | None,
    ) -> Plan:
        grouped = Aggregate(self.key_ids(keys), calls, source)
        return grouped if keys or domain is None else self.for_all(domain, grouped)

    def key_ids(self, keys: Iterable[Expression]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(self.keys[key].id for key in keys), *(column.id for column in self.domain))))

    def for_all(self, domain: Plan, grouped: Plan) -> Plan:
        """One group of everything for each combination of the domain: of nothing, where `grouped` has none."""
        inner = {c.id: Column(self.ids.fresh(c.id), c.name, c.type) for c in schema(grouped)}
        refs = {id: ColumnRef(column.id, column.type) for id, column in inner.items()}
        renamed = Map(tuple((inner[c.id], ColumnRef(c.id, c.type)) for c in schema(grouped)), grouped)
        equal = conjunction(tuple(p for c in self.domain for p in same(ColumnRef(c.id, c.type), refs[c.id])))
        assert equal is not None, "a domain has columns"
        calls: list[tuple[Column, Expression]] = []
        for call, column in self.calls.items():
            counted = (refs[column.id], Literal(0, column.type))
            value = Call("coalesce", counted, column.type) if call.function == "count" else refs[column.id]
            calls.append((column, value))
        return Map((*passed_on(self.domain), *calls), OuterJoin(False, equal, domain, renamed))

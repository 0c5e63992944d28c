"""GROUP BY: the keys and aggregates of a SELECT, and its other expressions in terms of them.

The groups are a Map of keys and arguments and an Aggregate above it; of several grouping sets a Union.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from strandline.core.errors import BindError, Span
from strandline.core.types import BIGINT, NULL, VARCHAR, Column
from strandline.functions.aggregates import AggregateFunction, find_aggregate
from strandline.logical.expressions import (
    AggregateCall,
    Call,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    columns_of,
    rebuilt,
)
from strandline.logical.plan import Aggregate, ApplyKind, Map, Plan, Union
from strandline.logical.schema import Ids
from strandline.logical.tree import map_expressions, transform_up
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.aggregates import BoundAggregate, bind_aggregate
from strandline.sql.binder.expressions import Places, Scalars
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.select_list import Output, output_name
from strandline.sql.binder.subqueries import ClauseScalars
from strandline.sql.binder.window_functions import WindowFunctions

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

MAX_GROUPING_SETS: Final = 64


def has_aggregate(node: ast.Expression) -> bool:
    """Whether an aggregate stands anywhere in the expression, which makes its SELECT a grouping one."""
    nodes = list(ast.own_nodes(node))
    windowed = {id(part.call) for part in nodes if isinstance(part, ast.WindowCall)}  # its arguments may be aggregates
    calls = (part for part in nodes if isinstance(part, ast.FunctionCall) and id(part) not in windowed)
    return any(find_aggregate(call.name.name) or isinstance(call.definition, UserAggregate) for call in calls)


def is_grouping(select: ast.Select) -> bool:
    """Whether a SELECT groups: by its clauses, or because it lists an aggregate."""
    listed = (item.value for item in select.items if not isinstance(item.value, ast.Star))
    conditions = () if select.qualify is None else (select.qualify,)
    return bool(select.group_by) or select.having is not None or any(map(has_aggregate, (*listed, *conditions)))


def grouping_key(node: ast.Expression, outputs: list[Output], scope: Scope) -> tuple[ast.Expression, str]:
    """The expression that an element of GROUP BY means, and a name for it.

    As in PostgreSQL a name is a column of the input if there is one, else an output; a whole number is a position.
    """
    match node:
        case ast.Number(digits) if digits.isdecimal():
            if len(digits) > 9 or not 1 <= int(digits) <= len(outputs):
                hint = f"Positions go from 1 to {len(outputs)}."
                raise node.error(f"GROUP BY position {digits} is not in the SELECT list", "group-by-position", hint)
            output = outputs[int(digits) - 1]
            return output.node, output.name
        case ast.ColumnName(None, column) if not scope.matches(column):
            for output in outputs:
                if column.matches(output.name):
                    return output.node, output.name
        case ast.Number() | ast.Text() | ast.Truth() | ast.Null() | ast.TypedText() | ast.Interval():
            hint = "Name a column, an output or the position of an output."
            raise node.error("cannot GROUP BY a constant", "group-by-constant", hint)
    return node, output_name(node, scope) or "key"


def grouping_sets(elements: tuple[ast.Grouping, ...]) -> list[tuple[ast.Expression, ...]]:
    """The sets of expressions by which a GROUP BY groups: one, or with GROUPING SETS, ROLLUP and CUBE several.

    Elements side by side combine: each set of one with each of the other.
    """
    sets: list[tuple[ast.Expression, ...]] = [()]
    for element in elements:
        sets = [(*one, *two) for one in sets for two in _sets_of(element)]
        if len(sets) > MAX_GROUPING_SETS:
            raise _too_many(element)
    return [tuple(dict.fromkeys(keys)) for keys in sets]


def _sets_of(element: ast.Grouping) -> list[tuple[ast.Expression, ...]]:
    match element:
        case ast.GroupingList(items):
            return [items]
        case ast.GroupingSets("GROUPING", elements):
            return [keys for inner in elements for keys in _sets_of(inner)]
        case ast.GroupingSets(kind, elements):
            parts = [_sets_of(inner)[0] for inner in elements]
            if kind == "ROLLUP":
                chosen = [parts[:count] for count in range(len(parts), -1, -1)]
            elif len(parts) > MAX_GROUPING_SETS.bit_length():
                raise _too_many(element)
            else:
                chosen = [list(some) for count in range(len(parts), -1, -1) for some in combinations(parts, count)]
            return [tuple(item for part in some for item in part) for some in chosen]
        case _:
            return [(element,)]


def _too_many(element: ast.Grouping) -> BindError:
    hint = "List only the needed ones in GROUPING SETS."
    return element.error(f"too many grouping sets (maximum {MAX_GROUPING_SETS})", "too-many-groupings", hint)


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
        self.flags: dict[Expression, Column] = {}  # flags of left-out keys, where GROUPING is used
        self.named = {column.id: column for relation in scope.relations for column in relation.columns}

    def add_key(self, node: ast.Expression, outputs: list[Output]) -> Expression:
        """Group by an element of GROUP BY, too."""
        node, name = grouping_key(node, outputs, self.scope)
        value = Scalars(self.scope, "GROUP BY").bind(node)
        value = cast_to(value, VARCHAR) if value.type == NULL else value
        self.keys[value] = self.input(value, name)
        return value

    def input(self, value: Expression, name: str) -> Column:
        """The column of the Map below that has this value."""
        if value not in self.inputs:
            # An outer reference gets a column of its own here.
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

    def regroup(self, value: Expression, places: Places, clause: Span | None = None) -> Expression:
        """The value in terms of keys and aggregates; `clause` is where it stands if no column in it has a place."""
        if value in self.keys:
            key = self.keys[value]
            return ColumnRef(key.id, key.type)
        if isinstance(value, ColumnRef) and value.id in self.named:
            raise self.ungrouped(value.id, places.span(value) or clause)
        return rebuilt(value, lambda part: self.regroup(part, places, clause))

    def ungrouped(self, column_id: str, span: Span | None) -> BindError:
        name = self.named[column_id].name
        grouped = "Add it to GROUP BY" if self.keys else f"Add GROUP BY {name}"
        message = f'column "{name}" must appear in GROUP BY or be used in an aggregate'
        hint = f"{grouped}, or aggregate it, as in MAX({name})."
        return BindError(message, code="ungrouped-column", hint=hint, span=span)

    def grouping(self, node: ast.FunctionCall) -> Expression:
        """`GROUPING(a, b)`: a bit for each key, 1 where it is left out."""
        scalars = Scalars(self.scope, "GROUPING")
        value: Expression | None = None
        for argument in () if isinstance(node.arguments, ast.Star) else node.arguments:
            key = scalars.bind(argument)
            if key not in self.keys:
                hint = "Use expressions of GROUP BY."
                raise argument.error("arguments to GROUPING must be grouping expressions", "ungrouped-column", hint)
            if key not in self.flags:
                self.flags[key] = Column(self.ids.fresh("grouping"), "grouping", BIGINT)
            flag = ColumnRef(self.flags[key].id, BIGINT)
            doubled = None if value is None else Call("*", (value, Literal(2, BIGINT)), BIGINT)
            value = flag if doubled is None else Call("+", (doubled, flag), BIGINT)
        if value is None:
            hint = "Write GROUPING(key)."
            raise node.error("GROUPING must have at least one argument", "type-mismatch", hint)
        return value

    def plan(self, source: Plan) -> Plan:
        """The groups of the source."""
        if not self.keys and not self.calls:
            # HAVING alone groups too. A count gives the one element of the result a column.
            self.aggregate(BoundAggregate("count", None, BIGINT))
        if self.inputs:
            # COUNT(*) alone needs no column at all; then the columns of the source stay rather than none.
            source = Map(tuple((column, value) for value, column in self.inputs.items()), source)
        if len(self.sets) <= 1 and not self.flags:
            return self.grouped_by(tuple(self.keys), source)
        columns = (*self.keys.values(), *self.calls.values(), *self.flags.values())
        return Union(columns, tuple(self.grouping_set(keys, columns, source) for keys in self.sets))

    def grouping_set(self, keys: tuple[Expression, ...], columns: tuple[Column, ...], source: Plan) -> Plan:
        """One of several ways to group: the keys that are left out are NULL."""
        kept = [self.keys[key] for key in keys]
        values: dict[str, Expression] = {c.id: ColumnRef(c.id, c.type) for c in (*kept, *self.calls.values())}
        values |= {flag.id: Literal(int(self.keys[key] not in kept), BIGINT) for key, flag in self.flags.items()}
        outputs = tuple(
            (replace(column, id=self.ids.fresh(column.id)), values.get(column.id, Literal(None, column.type)))
            for column in columns
        )
        return Map(outputs, self.grouped_by(keys, source))

    def grouped_by(self, keys: tuple[Expression, ...], source: Plan) -> Plan:
        ids = tuple(dict.fromkeys(self.keys[key].id for key in keys))
        return Aggregate(ids, tuple((column, call) for call, column in self.calls.items()), source)


class GroupScalars(ClauseScalars):
    """Binds the expressions of a clause above GROUP BY, in terms of keys and aggregates."""

    def __init__(self, binder: Binder, groups: Groups, clause: str, functions: WindowFunctions | None = None) -> None:
        super().__init__(binder, groups.scope, clause, functions)
        self.groups = groups

    def value(self, node: ast.Expression) -> Expression:
        return self.groups.regroup(self.bind(node), self.places)

    def truth(self, node: ast.Expression) -> Expression:
        return self.groups.regroup(self.condition(node), self.places)

    def key(self, node: ast.Expression) -> Expression:
        return self.groups.regroup(self.bind(node), self.places, node.span)

    def key_condition(self, node: ast.Expression) -> Expression:
        return self.groups.regroup(self.condition(node, "FILTER"), self.places, node.span)

    def grouping(self, node: ast.FunctionCall) -> Expression:
        return self.groups.grouping(node)

    def aggregate(self, function: AggregateFunction, node: ast.FunctionCall) -> Expression:
        inside = Scalars(self.scope, "an aggregate")
        condition = Scalars(self.scope, "FILTER").condition
        column = self.scope.time()
        time = None if column is None else ColumnRef(column.id, column.type)
        return self.groups.aggregate(bind_aggregate(function, node, inside.bind, condition, time))

    def add(self, kind: ApplyKind, column: Column | None, value: Expression | None, right: Plan, span: Span) -> None:
        """A subquery above the groups: its outer references are keys."""

        def regroup(value: Expression) -> Expression:
            grouped = columns_of(value) & self.groups.named.keys()
            return self.groups.regroup(value, self.places, span) if grouped else value

        right = transform_up(right, lambda node: map_expressions(node, regroup))
        super().add(kind, column, None if value is None else regroup(value), right, span)

"""Subqueries in expressions: EXISTS, IN, ANY and ALL as joins that ask for a partner, values as joins with a value.

A room of the binder. The first four are the same question: is there a row of the subquery for which a condition holds?
The condition consists of what ties the subquery to the query around it and of the comparison, if there is one.

    EXISTS (q)        TRUE if there is a row
    x θ ANY (q)       TRUE if x θ y for a row y; else unknown if that is unknown for a row; else FALSE
    x θ ALL (q)       FALSE if not x θ y for a row y; else unknown if that is unknown for a row; else TRUE

Where a subquery alone decides whether a row of WHERE stays, it becomes a semi or an anti join. Elsewhere each question
becomes a column of the source that holds the answer, a mark.

A subquery that is a value is an aggregate over all its rows. Tied to the query around it by equalities, it is grouped
by them once for all; tied in any other way, it is computed for each combination of what it reads from around. A row
that finds no group has the value of an aggregate over nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final, Protocol, TypeAlias

from strandline.algebra.expressions import (
    Call,
    Case,
    ColumnRef,
    Expression,
    Literal,
    Value,
    children,
    columns_of,
    conjunction,
    substitute,
)
from strandline.algebra.operators import Distinct, Join, Map, MarkJoin, OuterJoin, Plan, SemiJoin
from strandline.algebra.schema import schema
from strandline.errors import BindError, Span
from strandline.lang import ast
from strandline.lang.groups import Groups, is_grouping
from strandline.lang.outputs import output_columns
from strandline.lang.scalars import Operand, Places, Scalars, Subquery, call
from strandline.lang.scope import Ids, Scope
from strandline.types import BOOLEAN, Column

# What an expression over the source of a clause becomes where the subqueries join: after GROUP BY, keys and aggregates.
Settle: TypeAlias = Callable[[Expression, Places, Span], Expression]


class Binder(Protocol):
    """What is asked of the binder of the whole statement."""

    ids: Ids

    def inner(self, query: ast.Query, around: Scope) -> tuple[Plan, Callable[[], list[Operand]], list[Expression]]: ...

    def below(self, select: ast.Select, around: Scope) -> tuple[Plan, Scope, list[Expression]]: ...

    def named(self, tables: tuple[ast.CommonTable, ...]) -> AbstractContextManager[None]: ...


def is_partner_test(node: ast.Expression) -> bool:
    """Whether a part of WHERE is a subquery and nothing else, or its negation."""
    return isinstance(node, ast.Exists | ast.Quantified) or (
        isinstance(node, ast.Unary) and node.operator == "NOT" and isinstance(node.operand, ast.Exists)
    )


class Subqueries:
    """The subqueries of one clause; `joined` is the source of the clause with all of them, in order."""

    def __init__(self, binder: Binder, settle: Settle | None = None) -> None:
        self.binder = binder
        self.settle: Settle = settle or (lambda value, _, __: value)
        # Each takes the source of the clause with what was joined to it so far, and as it was before.
        self.joins: list[Callable[[Plan, Plan], Plan]] = []
        self.added: set[str] = set()  # ids of the columns that the joins bring

    def joined(self, source: Plan) -> Plan:
        plan = source
        for join in self.joins:
            plan = join(plan, source)
        return plan

    # ---- questions ---------------------------------------------------------------------------------------------------

    def keep(self, node: ast.Expression, scalars: Scalars) -> None:
        """Keep the rows of the source for which a partner test is true."""
        negated = isinstance(node, ast.Unary)
        test = node.operand if isinstance(node, ast.Unary) else node
        assert isinstance(test, ast.Exists | ast.Quantified), "a partner test is one of these"
        # x θ ALL is true if there is no row for which x θ y is false or unknown.
        wanted = "untrue" if _is_all(test) else "true"
        right, predicate = self.question(test, scalars, wanted)
        self.joins.append(lambda plan, _: SemiJoin(negated or _is_all(test), predicate, plan, right))

    def value(self, node: Subquery, scalars: Scalars) -> Expression:
        """The value of a subquery anywhere in an expression."""
        if isinstance(node, ast.ScalarQuery):
            return self.scalar(node, scalars)
        if isinstance(node, ast.Exists):
            return self.mark(node, scalars, "true")
        decided = Literal(not _is_all(node), BOOLEAN)
        decides = self.mark(node, scalars, "false" if _is_all(node) else "true")
        unknown = self.mark(node, scalars, "unknown")
        otherwise = Literal(_is_all(node), BOOLEAN)
        return Case(((decides, decided), (unknown, Literal(None, BOOLEAN))), otherwise, BOOLEAN)

    def mark(self, node: ast.Exists | ast.Quantified, scalars: Scalars, wanted: str) -> Expression:
        right, predicate = self.question(node, scalars, wanted)
        column = Column(self.binder.ids.fresh("found"), "found", BOOLEAN)
        self.added.add(column.id)
        self.joins.append(lambda plan, _: MarkJoin(column, predicate, plan, right))
        return ColumnRef(column.id, BOOLEAN)

    def question(
        self, node: ast.Exists | ast.Quantified, scalars: Scalars, wanted: str
    ) -> tuple[Plan, Expression | None]:
        """The rows of a subquery, and when one of them is a partner: when its comparison is what is `wanted`."""
        # The operand first: a subquery inside of it joins the source, and this one joins what comes out.
        operand = scalars.operand(node.operand) if isinstance(node, ast.Quantified) else None
        right, outputs, conditions = self.binder.inner(node.query, scalars.scope)
        if isinstance(node, ast.Quantified):
            listed = outputs()
            if len(listed) != 1:
                raise BindError(
                    f"the subquery has {len(listed)} columns",
                    code="subquery-columns",
                    hint="A subquery that is compared with a value has one column.",
                    span=node.query.span,
                )
            assert operand is not None
            conditions = [*conditions, _asked(call(node.operator, [operand, listed[0]], node.span), wanted)]
        else:
            outputs()  # for its complaints only
        predicate = conjunction(tuple(conditions))
        if predicate is not None:
            self.check_reach(predicate, right, scalars, node)
            predicate = self.settle(predicate, scalars.places, node.span)
        return right, predicate

    # ---- values ------------------------------------------------------------------------------------------------------

    def scalar(self, node: ast.ScalarQuery, scalars: Scalars) -> Expression:
        """The value of a subquery that has one column and always one row."""
        if isinstance(node.query, ast.With):
            with self.binder.named(node.query.tables):
                return self.scalar(replace(node, query=node.query.body), scalars)
        select = _single_row(node.query)
        source, scope, ties = self.binder.below(select, scalars.scope)
        outputs = output_columns(select.items, scope)
        if len(outputs) != 1:
            raise BindError(
                f"the subquery has {len(outputs)} columns",
                code="subquery-columns",
                hint="A subquery that is a value has one column.",
                span=node.query.span,
            )
        groups = Groups(self.binder.ids, scope)
        value = groups.bind(outputs[0].node, "SELECT")
        if select.having is not None:
            kept = groups.condition(select.having, "HAVING")
            value = Case(((kept, value),), Literal(None, value.type), value.type)
        for each in (*ties, *groups.inputs, value):
            self.check_reach(each, source, scalars, node, groups)
        outer = _outer_columns((*ties, *groups.inputs), scope.outer_ids())
        value = self.settle(value, scalars.places, node.span)
        if not outer:
            alone = groups.plan(source)
            self.joins.append(lambda plan, _: Join(None, plan, alone))
            return value
        pairs = [_equality(tie, frozenset(outer)) for tie in ties]
        keys = [pair for pair in pairs if pair is not None]
        if len(keys) == len(ties) and not _outer_columns(groups.inputs, scope.outer_ids()):
            found = self.by_equalities(groups, source, keys, scalars, node)
        else:
            found = self.by_combinations(groups, source, ties, outer, scalars, node)
        nothing: dict[str, Expression] = {
            column.id: Literal(0 if call.function == "count" else None, column.type)
            for call, column in groups.calls.items()
        }
        return Case(((found, value),), substitute(value, nothing), value.type)

    def by_equalities(
        self,
        groups: Groups,
        source: Plan,
        keys: list[tuple[Expression, Expression]],
        scalars: Scalars,
        node: ast.ScalarQuery,
    ) -> Expression:
        """Group the subquery by its sides of the equalities; gives whether a row of the source has found its group."""
        conditions: list[Expression] = []
        for outer, inner in keys:
            groups.add_key(inner, "key")
            key = groups.keys[inner]
            equal = (self.settle(outer, scalars.places, node.span), ColumnRef(key.id, key.type))
            conditions.append(Call("=", equal, BOOLEAN))
        grouped = groups.plan(source)
        return self.left_join(lambda _: grouped, conditions)

    def by_combinations(
        self,
        groups: Groups,
        source: Plan,
        ties: list[Expression],
        outer: dict[str, ColumnRef],
        scalars: Scalars,
        node: ast.ScalarQuery,
    ) -> Expression:
        """Compute the subquery for each combination of the values that it reads from the query around it."""
        copies: list[tuple[Column, Expression]] = []
        refs: dict[str, Expression] = {}
        for id, column in outer.items():
            if column.type.element is not None:
                raise BindError(
                    "a subquery that reads an array from the query around it",
                    code="not-supported",
                    hint="Take the elements that it needs in a subquery in FROM, and read those.",
                    span=node.span,
                )
            copy = Column(self.binder.ids.fresh(f"outer.{id}"), id, column.type)
            copies.append((copy, self.settle(column, scalars.places, node.span)))
            refs[id] = ColumnRef(copy.id, copy.type)
            groups.named[copy.id] = copy
            groups.add_key(refs[id], copy.name)
        groups.inputs = {substitute(value, refs): column for value, column in groups.inputs.items()}
        tie = conjunction(tuple(substitute(each, refs) for each in ties))

        def grouped(around: Plan) -> Plan:
            return groups.plan(Join(tie, Distinct(Map(tuple(copies), around)), source))

        same = [part for (_, value), ref in zip(copies, refs.values(), strict=True) for part in _same(value, ref)]
        return self.left_join(grouped, same)

    def left_join(self, right: Callable[[Plan], Plan], conditions: list[Expression]) -> Expression:
        """Join what `right` makes of the source; gives whether a row of the source has found a partner."""
        found = Column(self.binder.ids.fresh("found"), "found", BOOLEAN)
        predicate = conjunction(tuple(conditions))
        assert predicate is not None, "a subquery that is tied to the query around it says how"

        def join(plan: Plan, source: Plan) -> Plan:
            grouped = right(source)
            kept = tuple((column, ColumnRef(column.id, column.type)) for column in schema(grouped))
            return OuterJoin(False, predicate, plan, Map((*kept, (found, Literal(True, BOOLEAN))), grouped))

        self.added.add(found.id)
        self.joins.append(join)
        return Call("not", (Call("is_null", (ColumnRef(found.id, BOOLEAN),), BOOLEAN),), BOOLEAN)

    # ---- limits ------------------------------------------------------------------------------------------------------

    def check_reach(
        self, value: Expression, right: Plan, scalars: Scalars, node: Subquery, groups: Groups | None = None
    ) -> None:
        near = {column.id for relation in scalars.scope.relations for column in relation.columns}
        near |= {column.id for column in schema(right)} | self.added
        near |= {column.id for column in groups.calls.values()} if groups is not None else set()
        if not columns_of(value) <= near:
            raise BindError(
                "a subquery that reads columns from further out than the query around it",
                code="not-supported",
                hint="Join the streams in FROM.",
                span=node.span,
            )


def _single_row(query: ast.Query) -> ast.Select:
    """A subquery that always has one row: an aggregate over everything."""
    if isinstance(query, ast.Select) and is_grouping(query) and not query.group_by:
        return query
    raise BindError(
        "a subquery that is a value may have several rows",
        code="subquery-rows",
        hint="Aggregate it, as in (SELECT MAX(x) FROM …), or ask with IN, ANY, ALL or EXISTS.",
        span=query.span,
    )


def _outer_columns(values: Iterable[Expression], around: frozenset[str]) -> dict[str, ColumnRef]:
    """The columns of the query around a subquery that are read in it, by id."""
    found: dict[str, ColumnRef] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, ColumnRef) and value.id in around:
            found[value.id] = value
        pending.extend(children(value))
    return dict(sorted(found.items()))


def _equality(tie: Expression, outer: frozenset[str]) -> tuple[Expression, Expression] | None:
    """The outer and the inner side of a condition, if it is an equality between the two."""
    match tie:
        case Call("=", (one, two), _):
            for outside, inside in ((one, two), (two, one)):
                read = columns_of(inside)
                if columns_of(outside) and columns_of(outside) <= outer and read and not read & outer:
                    return outside, inside
    return None


def _same(one: Expression, two: Expression) -> tuple[Expression, Expression]:
    """That two values of a type are equal or both NULL, as two equalities, which a join can look up."""
    some = Literal(_SOME_VALUE[one.type.name], one.type)
    return (
        Call("=", tuple(Call("coalesce", (value, some), value.type) for value in (one, two)), BOOLEAN),
        Call("=", tuple(Call("is_null", (value,), BOOLEAN) for value in (one, two)), BOOLEAN),
    )


_SOME_VALUE: Final[dict[str, Value]] = {
    "BOOLEAN": False,
    "INT": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "DECIMAL": Decimal(0),
    "VARCHAR": "",
    "DATE": date(1970, 1, 1),
    "TIMESTAMP": datetime(1970, 1, 1),
}


def _is_all(node: ast.Exists | ast.Quantified) -> bool:
    return isinstance(node, ast.Quantified) and node.quantifier == "ALL"


def _asked(comparison: Expression, wanted: str) -> Expression:
    match wanted:
        case "true":
            return comparison
        case "false":
            return Call("not", (comparison,), BOOLEAN)
        case "unknown":
            return Call("is_null", (comparison,), BOOLEAN)
    unknown = Call("is_null", (comparison,), BOOLEAN)
    return Call("or", (Call("not", (comparison,), BOOLEAN), unknown), BOOLEAN)

"""Subqueries in expressions: EXISTS, IN, ANY and ALL as joins that ask for a partner, values as joins with a value.

A room of the binder. The first four are the same question: is there a row of the subquery for which a condition holds?
The condition consists of what ties the subquery to the query around it and of the comparison, if there is one.

    EXISTS (q)        TRUE if there is a row
    x θ ANY (q)       TRUE if x θ y for a row y; else unknown if that is unknown for a row; else FALSE
    x θ ALL (q)       FALSE if not x θ y for a row y; else unknown if that is unknown for a row; else TRUE

Where a subquery alone decides whether a row of WHERE stays, it becomes a semi or an anti join. Elsewhere each question
becomes a column of the source that holds the answer, a mark.

A subquery that is a value is an aggregate over all its rows, or has at most one row, as shown by windows of one row,
keys or order; that row is joined, and the value is NULL where there is none. An aggregate that is tied to the query
around it by equalities is grouped by them once for all; tied in any other way, it is computed for each combination of
what it reads from around. A row that finds no group has the value of an aggregate over nothing. How a subquery reads a
query further out is told in `reach`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, TypeAlias

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, Column
from strandline.logical.expressions import (
    Call,
    Case,
    ColumnRef,
    Expression,
    Literal,
    columns_of,
    conjunction,
    substitute,
)
from strandline.logical.plan import Distinct, Join, Map, MarkJoin, OuterJoin, Plan, SemiJoin, TopRows
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.decorrelate import Reach, Rows, passed_on
from strandline.sql.binder.expressions import Operand, Places, Scalars, Subquery, call
from strandline.sql.binder.grouping import Groups, is_grouping
from strandline.sql.binder.scope import Ids, Scope
from strandline.sql.binder.select_list import output_columns

# What an expression over the source of a clause becomes where the subqueries join: after GROUP BY, keys and aggregates.
Settle: TypeAlias = Callable[[Expression, Places, Span], Expression]
Partners: TypeAlias = Callable[[Plan], Plan]  # the rows of a subquery, given the source of the clause


class Binder(Protocol):
    """What is asked of the binder of the whole statement."""

    ids: Ids

    def inner(self, query: ast.Query, around: Scope) -> tuple[Rows, list[Operand]]: ...

    def below(self, select: ast.Select, around: Scope) -> tuple[Rows, Scope]: ...

    def named(self, tables: tuple[ast.CommonTable, ...]) -> AbstractContextManager[None]: ...


def is_partner_test(node: ast.Expression) -> bool:
    """Whether a part of WHERE is a subquery and nothing else, or its negation."""
    return isinstance(node, ast.Exists | ast.Quantified) or (
        isinstance(node, ast.Unary) and node.operator == "NOT" and isinstance(node.operand, ast.Exists)
    )


class Subqueries:
    """The subqueries of one clause; `joined` is the source of the clause with all of them, in order."""

    def __init__(self, binder: Binder, reach: Reach, settle: Settle | None = None) -> None:
        self.binder = binder
        self.reach = reach  # what the query of the clause brings along for them from around it
        self.settle: Settle = settle or (lambda value, _, __: value)
        # Each takes the source of the clause with what was joined to it so far, and as it was before.
        self.joins: list[Callable[[Plan, Plan], Plan]] = []

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
        self.joins.append(lambda plan, source: SemiJoin(negated or _is_all(test), predicate, plan, right(source)))

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
        self.joins.append(lambda plan, source: MarkJoin(column, predicate, plan, right(source)))
        return ColumnRef(column.id, BOOLEAN)

    def question(
        self, node: ast.Exists | ast.Quantified, scalars: Scalars, wanted: str
    ) -> tuple[Partners, Expression | None]:
        """The rows of a subquery, and when one of them is a partner: when its comparison is what is `wanted`."""
        # The operand first: a subquery inside of it joins the source, and this one joins what comes out.
        operand = scalars.operand(node.operand) if isinstance(node, ast.Quantified) else None
        rows, outputs = self.binder.inner(node.query, scalars.scope)
        if rows.needs_domain():
            rows.pair_with_domain((), node.span)
        conditions = rows.conditions()
        if isinstance(node, ast.Quantified):
            if len(outputs) != 1:
                raise BindError(
                    f"subquery must return one column, found {len(outputs)}",
                    code="subquery-columns",
                    hint="Select only the column to compare with.",
                    span=node.query.span,
                )
            assert operand is not None
            conditions = [*conditions, _asked(call(node.operator, [operand, outputs[0]], node.span), wanted)]
        predicate = conjunction(tuple(conditions))
        if predicate is not None:
            predicate = self.over_source(predicate, scalars, node)
        return self.partners(rows, scalars, node), predicate

    def partners(self, rows: Rows, scalars: Scalars, node: Subquery) -> Partners:
        """The rows of a subquery, given the source of the clause, whose values are their domain if they want one."""
        domain = tuple((copy, self.over_source(column, scalars, node)) for copy, column in rows.wanted())
        if not domain:
            alone = rows.plan(None)
            return lambda _: alone
        return lambda source: rows.plan(Distinct(Map(domain, source)))

    def over_source(self, value: Expression, scalars: Scalars, node: Subquery) -> Expression:
        """A value of a subquery that reads the query around it, where the two join."""
        return self.settle(self.reach.here(value, node.span), scalars.places, node.span)

    # ---- values ------------------------------------------------------------------------------------------------------

    def scalar(self, node: ast.ScalarQuery, scalars: Scalars) -> Expression:
        """The value of a subquery that has one column and at most one row."""
        if isinstance(node.query, ast.With):
            with self.binder.named(node.query.tables):
                return self.scalar(replace(node, query=node.query.body), scalars)
        select = node.query
        if not (isinstance(select, ast.Select) and is_grouping(select) and not select.group_by):
            return self.by_single_row(node, scalars)
        if _asks_above_groups(select):
            return self.by_rows(*self.binder.inner(select, scalars.scope), scalars, node)
        rows, scope = self.binder.below(select, scalars.scope)
        outputs = output_columns(select.items, scope)
        if len(outputs) != 1:
            raise _several_columns(len(outputs), node)
        groups = Groups(self.binder.ids, scope)
        value = groups.bind(outputs[0].node, "SELECT")
        if select.having is not None:
            kept = groups.condition(select.having, "HAVING")
            value = Case(((kept, value),), Literal(None, value.type), value.type)
        value = self.over_source(value, scalars, node)
        keys = [_equality(tie, rows.reach.around) for tie in rows.ties]
        if rows.needs_domain() or rows.reach.read(groups.inputs) or None in keys:
            found = self.by_combinations(groups, rows, scalars, node)
        elif keys:
            found = self.by_equalities(groups, rows, [key for key in keys if key is not None], scalars, node)
        else:
            alone = groups.plan(rows.plan(None))
            self.joins.append(lambda plan, _: Join(None, plan, alone))
            return value
        nothing: dict[str, Expression] = {
            column.id: Literal(0 if call.function == "count" else None, column.type)
            for call, column in groups.calls.items()
        }
        return Case(((found, value),), substitute(value, nothing), value.type)

    def by_equalities(
        self,
        groups: Groups,
        rows: Rows,
        keys: list[tuple[Expression, Expression]],
        scalars: Scalars,
        node: ast.ScalarQuery,
    ) -> Expression:
        """Group the subquery by its sides of the equalities; gives whether a row of the source has found its group."""
        conditions: list[Expression] = []
        for outer, inner in keys:
            groups.add_key(inner, "key")
            key = groups.keys[inner]
            equal = (self.over_source(outer, scalars, node), ColumnRef(key.id, key.type))
            conditions.append(Call("=", equal, BOOLEAN))
        grouped = groups.plan(rows.plan(None))
        return self.left_join(lambda _: grouped, conditions)

    def by_combinations(self, groups: Groups, rows: Rows, scalars: Scalars, node: ast.ScalarQuery) -> Expression:
        """Compute the subquery for each combination of the values that it reads from the queries around it."""
        rows.pair_with_domain(groups.inputs, node.span)
        groups.per_combination(rows.reach)
        conditions = [self.over_source(each, scalars, node) for each in rows.conditions()]
        partners = self.partners(rows, scalars, node)
        return self.left_join(lambda source: groups.plan(partners(source)), conditions)

    def by_single_row(self, node: ast.ScalarQuery, scalars: Scalars) -> Expression:
        """A subquery that is no aggregate, but whose window, keys or order show that it has at most one row."""
        rows, outputs = self.binder.inner(node.query, scalars.scope)
        if isinstance(node.query, ast.Select) and node.query.group_by:
            raise _several_rows(node.query)
        if _is_first_value(rows.source):
            rows.source = Distinct(rows.source)  # rows that are level have the same value
        elif not rows.has_one_row():
            raise _several_rows(node.query)
        return self.by_rows(rows, outputs, scalars, node)

    def by_rows(self, rows: Rows, outputs: list[Operand], scalars: Scalars, node: ast.ScalarQuery) -> Expression:
        """Compute the subquery like any other, and join its row; the value is NULL where there is none."""
        if len(outputs) != 1:
            raise _several_columns(len(outputs), node)
        if rows.needs_domain():
            rows.pair_with_domain((), node.span)
        value = self.over_source(outputs[0].value, scalars, node)
        conditions = [self.over_source(each, scalars, node) for each in rows.conditions()]
        found = self.left_join(self.partners(rows, scalars, node), conditions or [Literal(True, BOOLEAN)])
        return Case(((found, value),), Literal(None, value.type), value.type)

    def left_join(self, right: Callable[[Plan], Plan], conditions: list[Expression]) -> Expression:
        """Join what `right` makes of the source; gives whether a row of the source has found a partner."""
        found = Column(self.binder.ids.fresh("found"), "found", BOOLEAN)
        predicate = conjunction(tuple(conditions))
        assert predicate is not None, "a subquery that is tied to the query around it says how"

        def join(plan: Plan, source: Plan) -> Plan:
            grouped = right(source)
            kept = passed_on(schema(grouped))
            return OuterJoin(False, predicate, plan, Map((*kept, (found, Literal(True, BOOLEAN))), grouped))

        self.joins.append(join)
        return Call("not", (Call("is_null", (ColumnRef(found.id, BOOLEAN),), BOOLEAN),), BOOLEAN)


def _is_first_value(plan: Plan) -> bool:
    """Whether a plan has one column and the first rows in an order that ends only between different values of it."""
    match plan:
        case TopRows((), order, 1, _) | Map(_, TopRows((), order, 1, _)):
            columns = schema(plan)
            return len(columns) == 1 and columns[0].id in [key.column.id for key in order]
    return False


def _several_rows(query: ast.Query) -> BindError:
    hint = "Aggregate it, as in (SELECT MAX(x) FROM …), read it through WINDOW(ROWS 1), or use IN, ANY, ALL or EXISTS."
    if isinstance(query, ast.Ordered) and query.limit == 1:
        hint = "LIMIT 1 keeps ties. Order by the value too: (SELECT x FROM … ORDER BY y, x LIMIT 1)."
    return BindError("a scalar subquery may return more than one row", code="subquery-rows", hint=hint, span=query.span)


def _asks_above_groups(select: ast.Select) -> bool:
    """Whether there are subqueries in the SELECT list or in HAVING."""
    pending: list[ast.Node] = [*select.items, *([] if select.having is None else [select.having])]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Exists | ast.Quantified | ast.ScalarQuery):
            return True
        pending.extend(ast.children(node))
    return False


def _several_columns(count: int, node: ast.ScalarQuery) -> BindError:
    return BindError(
        f"subquery must return one column, found {count}",
        code="subquery-columns",
        hint="Select only the column that is the value.",
        span=node.query.span,
    )


def _equality(tie: Expression, outer: frozenset[str]) -> tuple[Expression, Expression] | None:
    """The outer and the inner side of a condition, if it is an equality between the two."""
    match tie:
        case Call("=", (one, two), _):
            for outside, inside in ((one, two), (two, one)):
                read = columns_of(inside)
                if columns_of(outside) and columns_of(outside) <= outer and read and not read & outer:
                    return outside, inside
    return None


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

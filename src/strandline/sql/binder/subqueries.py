"""Subqueries in expressions: EXISTS, IN, ANY, ALL and values become Apply nodes over the source of their clause.

EXISTS, IN, ANY and ALL ask whether a row of the subquery satisfies a condition, for the last three a comparison:

    EXISTS (q)        TRUE if there is a row
    x θ ANY (q)       TRUE if x θ y for a row y; else unknown if that is unknown for a row; else FALSE
    x θ ALL (q)       FALSE if not x θ y for a row y; else unknown if that is unknown for a row; else TRUE

Where a subquery alone decides whether WHERE keeps a row, it is a semi or an anti Apply. Elsewhere each question is a
mark. A subquery that is a value is a single Apply: an aggregate over all its rows, or a query of at most one row, as
shown by windows of one row, keys or order. What becomes of these nodes is in `logical/decorrelate.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.core.errors import Span
from strandline.core.types import BOOLEAN, Column
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, columns_of, conjuncts
from strandline.logical.plan import Aggregate, Apply, ApplyKind, Distinct, Filter, Map, Plan, TopRows
from strandline.logical.properties.keys import determines
from strandline.logical.query_block import from_clause, with_from_clause
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.expressions import Operand, Scalars, Subquery, call
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.window_functions import WindowFunctions

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

_EXACT_CASTS: Final = {("INT", "BIGINT"), ("INT", "DOUBLE"), ("DATE", "TIMESTAMP")}


def is_match_test(node: ast.Expression) -> bool:
    """Whether a part of WHERE is a subquery and nothing else, or its negation."""
    return isinstance(node, ast.Exists | ast.Quantified) or (
        isinstance(node, ast.Unary) and node.operator == "NOT" and isinstance(node.operand, ast.Exists)
    )


@dataclass(frozen=True, slots=True)
class BoundSubquery:
    """An Apply whose left is not known yet: the source of its clause."""

    kind: ApplyKind
    column: Column | None
    value: Expression | None
    right: Plan
    span: Span

    def over(self, left: Plan) -> Apply:
        return Apply(self.kind, self.column, self.value, left, self.right, self.span)


class ClauseScalars(Scalars):
    """Binds the expressions of a clause that may contain subqueries and, with `functions`, window functions."""

    def __init__(self, binder: Binder, scope: Scope, clause: str, functions: WindowFunctions | None = None) -> None:
        super().__init__(scope, clause)
        self.binder = binder
        self.functions = functions
        self.subqueries: list[BoundSubquery] = []

    def over(self, source: Plan) -> Plan:
        """The source of the clause with the columns of its subqueries."""
        for subquery in self.subqueries:
            source = subquery.over(source)
        return source

    def window_function(self, node: ast.WindowCall) -> Expression:
        return super().window_function(node) if self.functions is None else self.functions.column(node, self)

    def subquery(self, node: Subquery) -> Expression:
        """The value of a subquery anywhere in an expression."""
        if isinstance(node, ast.ScalarQuery):
            return self.single(node)
        if isinstance(node, ast.Exists):
            return self.mark(node, "true")
        matched_value = Literal(not _is_all(node), BOOLEAN)
        has_match = self.mark(node, "false" if _is_all(node) else "true")
        unknown = self.mark(node, "unknown")
        otherwise = Literal(_is_all(node), BOOLEAN)
        return Case(((has_match, matched_value), (unknown, Literal(None, BOOLEAN))), otherwise, BOOLEAN)

    def keep(self, node: ast.Expression) -> None:
        """Keep the rows of the source for which a match test is true."""
        negated = isinstance(node, ast.Unary)
        test = node.operand if isinstance(node, ast.Unary) else node
        assert isinstance(test, ast.Exists | ast.Quantified), "a match test is one of these"
        # x θ ALL is true if there is no row for which x θ y is false or unknown.
        right, condition = self.match(test, "untrue" if _is_all(test) else "true")
        self.add("anti" if negated or _is_all(test) else "semi", None, condition, right, test.span)

    def mark(self, node: ast.Exists | ast.Quantified, truth: str) -> Expression:
        right, condition = self.match(node, truth)
        column = Column(self.binder.ids.fresh("found"), "found", BOOLEAN)
        self.add("mark", column, condition, right, node.span)
        return ColumnRef(column.id, BOOLEAN)

    def match(self, node: ast.Exists | ast.Quantified, truth: str) -> tuple[Plan, Expression | None]:
        """The plan of a subquery, and which of its rows match: those whose comparison has this truth value."""
        if isinstance(node, ast.Exists):
            return self.binder.subquery(node.query, self.scope)[0], None
        # The operand first: a subquery in it is applied to the source before this one.
        operand = self.operand(node.operand)
        right, outputs = self.binder.subquery(node.query, self.scope)
        _check_one_column(outputs, "Select only the column to compare with.", node.query)
        return right, _has_truth(call(node.operator, [operand, outputs[0]], node.span), truth)

    def single(self, node: ast.ScalarQuery) -> Expression:
        """The value of a subquery that has one column and at most one row."""
        right, outputs = self.binder.subquery(node.query, self.scope)
        _check_at_most_one_row(node.query, right, self.scope)
        _check_one_column(outputs, "Select only the column that is the value.", node.query)
        value = outputs[0].value
        match right:
            case Filter(having, Aggregate((), _, _) as groups):
                # A value that HAVING takes away is NULL, like that of a row that is not there.
                right, value = groups, Case(((having, value),), Literal(None, value.type), value.type)
            case _ if _is_first_value(from_clause(right)):
                right = with_from_clause(right, Distinct(from_clause(right)))  # ties have the same value
        column = Column(self.binder.ids.fresh("scalar.value"), "value", value.type)
        self.add("single", column, value, right, node.span)
        return ColumnRef(column.id, column.type)

    def add(self, kind: ApplyKind, column: Column | None, value: Expression | None, right: Plan, span: Span) -> None:
        self.subqueries.append(BoundSubquery(kind, column, value, right, span))


def _check_one_column(outputs: list[Operand], hint: str, query: ast.Query) -> None:
    if len(outputs) != 1:
        raise query.error(f"subquery must return one column, found {len(outputs)}", "subquery-columns", hint)


def _check_at_most_one_row(query: ast.Query, plan: Plan, scope: Scope) -> None:
    while isinstance(query, ast.With):
        query = query.body
    grouped = isinstance(query, ast.Select) and bool(query.group_by)
    if grouped or not (_is_first_value(from_clause(plan)) or _has_one_row(plan, scope)):
        hint = (
            "Aggregate it, as in (SELECT MAX(x) FROM …), read it through WINDOW(ROWS 1), or use IN, ANY, ALL or EXISTS."
        )
        if isinstance(query, ast.Ordered) and query.limit == 1:
            hint = "LIMIT 1 keeps ties. Order by the value too: (SELECT x FROM … ORDER BY y, x LIMIT 1)."
        raise query.error("a scalar subquery may return more than one row", "subquery-rows", hint)


def _is_first_value(plan: Plan) -> bool:
    """Whether a plan has one column and the first rows in an order that ends only between different values of it."""
    match plan:
        case TopRows((), order, 1, _) | Map(_, TopRows((), order, 1, _)):
            columns = schema(plan)
            return len(columns) == 1 and columns[0].id in [key.column.id for key in order]
    return False


def _has_one_row(plan: Plan, scope: Scope) -> bool:
    """Whether at most one row belongs to a row of the outer query: equalities with outer references, or with constants,
    fix a key of what is read."""
    outer = scope.ids()
    fixed: list[str] = []
    while isinstance(plan, Filter | Apply):
        if isinstance(plan, Filter):
            fixed += [column_id for part in conjuncts(plan.predicate) for column_id in _fixed_columns(part, outer)]
        plan = plan.source if isinstance(plan, Filter) else plan.left
    return determines(plan, fixed)


def _fixed_columns(condition: Expression, outer: frozenset[str]) -> list[str]:
    """The column that a condition sets equal to a constant or to outer references, if it does."""
    match condition:
        case Call("=", (one, two), _):
            pairs = [(_exact_column(side), columns_of(other)) for side, other in ((one, two), (two, one))]
            return [column.id for column, read in pairs if column is not None and read <= outer]
    return []


def _exact_column(value: Expression) -> ColumnRef | None:
    """A column, also under a cast that keeps different values different: not so of a BIGINT as a DOUBLE."""
    match value:
        case ColumnRef():
            return value
        case Cast(ColumnRef() as column, kind) if (column.type.name, kind.name) in _EXACT_CASTS:
            return column
    return None


def _is_all(node: ast.Exists | ast.Quantified) -> bool:
    return isinstance(node, ast.Quantified) and node.quantifier == "ALL"


def _has_truth(comparison: Expression, truth: str) -> Expression:
    false, unknown = (Call(test, (comparison,), BOOLEAN) for test in ("not", "is_null"))
    untrue = Call("or", (false, unknown), BOOLEAN)
    return {"true": comparison, "false": false, "unknown": unknown, "untrue": untrue}[truth]

"""Subqueries in expressions: EXISTS, IN, ANY and ALL as joins that ask for a partner.

A room of the binder. All of them are the same question: is there a row of the subquery for which a condition holds? The
condition consists of what ties the subquery to the query around it and of the comparison, if there is one.

    EXISTS (q)        TRUE if there is a row
    x θ ANY (q)       TRUE if x θ y for a row y; else unknown if that is unknown for a row; else FALSE
    x θ ALL (q)       FALSE if not x θ y for a row y; else unknown if that is unknown for a row; else TRUE

Where a subquery alone decides whether a row of WHERE stays, it becomes a semi or an anti join. Elsewhere each question
becomes a column of the source that holds the answer, a mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from strandline.algebra.expressions import Call, Case, ColumnRef, Expression, Literal, columns_of, conjunction
from strandline.algebra.operators import MarkJoin, Plan, SemiJoin
from strandline.algebra.schema import schema
from strandline.errors import BindError
from strandline.lang import ast
from strandline.lang.scalars import Operand, Scalars, compared
from strandline.lang.scope import Ids, Scope
from strandline.types import BOOLEAN, Column


class Binder(Protocol):
    """What is asked of the binder of the whole statement."""

    ids: Ids

    def inner(self, query: ast.Query, around: Scope) -> tuple[Plan, Callable[[], list[Operand]], list[Expression]]: ...


def is_partner_test(node: ast.Expression) -> bool:
    """Whether a part of WHERE is a subquery and nothing else, or its negation."""
    return isinstance(node, ast.Exists | ast.Quantified) or (
        isinstance(node, ast.Unary) and node.operator == "NOT" and isinstance(node.operand, ast.Exists)
    )


class Subqueries:
    """The subqueries of one clause, joined to the source of the clause one after the other."""

    def __init__(self, binder: Binder, source: Plan) -> None:
        self.binder = binder
        self.plan = source

    def keep(self, node: ast.Expression, scalars: Scalars) -> None:
        """Keep the rows of the source for which a partner test is true."""
        negated = isinstance(node, ast.Unary)
        test = node.operand if isinstance(node, ast.Unary) else node
        assert isinstance(test, ast.Exists | ast.Quantified), "a partner test is one of these"
        # x θ ALL is true if there is no row for which x θ y is false or unknown.
        wanted = "untrue" if _is_all(test) else "true"
        right, predicate = self.question(test, scalars, wanted)
        self.plan = SemiJoin(negated or _is_all(test), predicate, self.plan, right)

    def value(self, node: ast.Exists | ast.Quantified, scalars: Scalars) -> Expression:
        """The value of a subquery anywhere in an expression."""
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
        self.plan = MarkJoin(column, predicate, self.plan, right)
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
            conditions = [*conditions, _asked(compared(node.operator, operand, listed[0], node.span), wanted)]
        else:
            outputs()  # for its complaints only
        predicate = conjunction(tuple(conditions))
        known = {column.id for plan in (self.plan, right) for column in schema(plan)}
        if predicate is not None and not columns_of(predicate) <= known:
            raise BindError(
                "a subquery that reads columns from further out than the query around it",
                code="not-supported",
                hint="Join the streams in FROM.",
                span=node.span,
            )
        return right, predicate


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

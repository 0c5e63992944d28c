"""Rules about outer joins: those that are inner or anti joins, and other orders of several.

An outer join is not associative by itself: an unmatched element has NULL where a further condition reads. Where that
condition is not true for NULL, it is. The conditions are those of Moerkotte, Fender and Eich, "On the correct and
complete enumeration of the core search space" (2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.functions.registry import FUNCTIONS
from strandline.logical.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from strandline.logical.plan import Filter, Join, Map, MarkJoin, OuterJoin, Plan, SemiJoin
from strandline.logical.schema import column_ids, filtered, pass_on, schema


def outer_join_as_join(plan: Plan) -> Plan | None:
    """σp(L ⟕ R) = σp(L ⋈ R) where p is not true if all of R is NULL: p rejects unmatched elements.

    A full join may become a left join.
    """
    match plan:
        case Filter(predicate, OuterJoin() as outer):
            reduced = _reduce(outer, predicate)
            return None if reduced is None else Filter(predicate, reduced)
    return None


def outer_join_below_join_as_join(plan: Plan) -> Plan | None:
    """(L ⟕ R) ⋈p S = (L ⋈ R) ⋈p S where p is not true if all of R is NULL, and the same for the left of ⋉ and the right
    of every join but ⟗: no unmatched element is in a pair."""
    match plan:
        case Join() | SemiJoin(False) if isinstance(plan.left, OuterJoin):
            reduced = _reduce(plan.left, plan.predicate)
            if reduced is not None:
                return replace(plan, left=reduced)
    match plan:
        case Join() | SemiJoin() | MarkJoin() | OuterJoin(False) if isinstance(plan.right, OuterJoin):
            reduced = _reduce(plan.right, plan.predicate)
            return None if reduced is None else replace(plan, right=reduced)
    return None


def _reduce(outer: OuterJoin, predicate: Expression | None) -> Plan | None:
    """A join of a lesser kind with the same elements as far as they satisfy a condition."""
    needs_left, needs_right = (rejects_nulls(predicate, side) for side in (outer.left, outer.right))
    if needs_right and (needs_left or not outer.full):
        return Join(outer.predicate, outer.left, outer.right)
    if outer.full and needs_left:
        return replace(outer, full=False)
    if needs_right:
        return Map(pass_on(schema(outer)), OuterJoin(False, outer.predicate, outer.right, outer.left))
    return None


def outer_join_as_anti_join(plan: Plan) -> Plan | None:
    """σ(r IS NULL)(L ⟕p R) = μ(L, NULL)(L ▷p R) where r is a column of R and p is not true if r is NULL: only unmatched
    elements have NULL there."""
    match plan:
        case Filter(predicate, OuterJoin(False, condition, left, right)):
            parts, own = conjuncts(predicate), column_ids(right)
            for part in parts:
                match part:
                    case Call("is_null", (ColumnRef(id, _),), _) if id in own and _is_rejected(
                        condition, frozenset((id,))
                    ):
                        nothing = ((column, Literal(None, column.type)) for column in schema(right))
                        alone = Map((*pass_on(schema(left)), *nothing), SemiJoin(True, condition, left, right))
                        return filtered(alone, conjunction(other for other in parts if other != part))
    return None


def swap_full_join(plan: Plan) -> Plan | None:
    """L ⟗ R = R ⟗ L, with the columns in the order that they had."""
    match plan:
        case OuterJoin(True, condition, left, right):
            return Map(pass_on(schema(plan)), OuterJoin(True, condition, right, left))
    return None


def rotate_outer_join(plan: Plan) -> Iterator[Plan]:
    """(A ⟕p B) ⟕q C = A ⟕p (B ⟕q C), and back, where q is not true if all of B is NULL; (A ⟗p B) ⟕q C = A ⟗p (B ⟕q C)
    likewise, and (A ⟗p B) ⟗q C = A ⟗p (B ⟗q C) where p is not true either."""
    match plan:
        case OuterJoin(second_full, q, OuterJoin(first_full, p, a, b), c):
            if _associate(first_full, p, b, second_full, q) and not columns_of(q) & column_ids(a):
                yield OuterJoin(first_full, p, a, OuterJoin(second_full, q, b, c))
    match plan:
        case OuterJoin(first_full, p, a, OuterJoin(second_full, q, b, c)):
            if _associate(first_full, p, b, second_full, q) and not columns_of(p) & column_ids(c):
                yield OuterJoin(second_full, q, OuterJoin(first_full, p, a, b), c)


def _associate(first_full: bool, p: Expression, middle: Plan, second_full: bool, q: Expression) -> bool:
    if second_full and not (first_full and rejects_nulls(p, middle)):
        return False
    return rejects_nulls(q, middle)


def rejects_nulls(predicate: Expression | None, side: Plan) -> bool:
    """True if a condition is not true where all columns of a side are NULL."""
    return _is_rejected(predicate, column_ids(side))


def _is_rejected(predicate: Expression | None, columns: frozenset[str]) -> bool:
    return any(_is_null_without(part, columns) for part in conjuncts(predicate))


def _is_null_without(expression: Expression, columns: frozenset[str]) -> bool:
    """True if an expression is NULL wherever all of these columns are; a condition then rejects the row."""
    match expression:
        case ColumnRef(id, _):
            return id in columns
        case Call(function, arguments, _):
            return FUNCTIONS[function].strict and any(_is_null_without(argument, columns) for argument in arguments)
        case Cast(operand, _):
            return _is_null_without(operand, columns)
    return False

"""Rules about joins: conditions that move below them, and single steps from one order to another.

`planner/join_order.py` finds the best order of a join graph by a model of its own. The steps are for the beam search
over plans with other operators between joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.logical.expressions import Expression, conjunction, conjuncts, reads_only, split_conjunction
from strandline.logical.plan import Filter, Join, Map, MarkJoin, OuterJoin, Plan, SemiJoin
from strandline.logical.schema import column_ids, filtered, pass_on, schema
from strandline.planner.rules.expressions import connects


def push_condition_below_match(plan: Plan) -> Plan | None:
    """L ⟕(p ∧ q) R = L ⟕p σq(R) where q reads R only, and the same for semi, anti and mark joins.

    A condition on L only stays: a rejected element is not gone but unmatched. A full join keeps both sides.
    """
    match plan:
        case OuterJoin(False, condition, _, right) | SemiJoin(_, condition, _, right):
            columns = column_ids(right)
            pushed, remaining = split_conjunction(condition, lambda part: reads_only(part, columns))
            if pushed is None:
                return None
            below = Filter(pushed, right)
            if isinstance(plan, SemiJoin):
                return replace(plan, predicate=remaining, right=below)
            return None if remaining is None else replace(plan, predicate=remaining, right=below)
    return None


def push_filter_below_match(plan: Plan) -> Plan | None:
    """σp(L ⟕ R) = σp(L) ⟕ R where p reads L only, and the same for semi, anti and mark joins."""
    match plan:
        case Filter(predicate, (OuterJoin(False) | SemiJoin() | MarkJoin()) as join):
            columns = column_ids(join.left)
            pushed, remaining = split_conjunction(predicate, lambda part: reads_only(part, columns))
            if pushed is None:
                return None
            return filtered(replace(join, left=Filter(pushed, join.left)), remaining)
    return None


def push_condition_below_join(plan: Plan) -> Plan | None:
    """L ⋈(p ∧ q) R = σp(L) ⋈q R where p reads L only, and the same for R.

    A part that reads no column at all stays: it is not about either side.
    """
    match plan:
        case Join(condition, left, right):
            l_columns, r_columns = column_ids(left), column_ids(right)
            of_left, others = split_conjunction(condition, lambda part: reads_only(part, l_columns))
            of_right, remaining = split_conjunction(others, lambda part: reads_only(part, r_columns))
            if of_left is None and of_right is None:
                return None
            return Join(remaining, filtered(left, of_left), filtered(right, of_right))
    return None


# ---- joins commute and associate -------------------------------------------------------------------------------------


def swap_join(plan: Plan) -> Plan | None:
    """L ⋈ R = R ⋈ L, with the columns in the order that they had."""
    match plan:
        case Join(condition, left, right):
            return Map(pass_on(schema(plan)), Join(condition, right, left))
    return None


def rotate_join(plan: Plan) -> Iterator[Plan]:
    """(A ⋈ B) ⋈ C = A ⋈ (B ⋈ C), and back, rule (10.4).

    All pairs of B and C are never made while an equality connects A with one of them.
    """
    match plan:
        case Join(outer, Join(inner, a, b) as below, c) if _may_join_first(plan, below, b, c):
            yield _joined((*conjuncts(inner), *conjuncts(outer)), a, (b, c))
    match plan:
        case Join(outer, a, Join(inner, b, c) as below) if _may_join_first(plan, below, a, b):
            yield _joined((*conjuncts(inner), *conjuncts(outer)), (a, b), c)


def exchange_in_join(plan: Plan) -> Plan | None:
    """(A ⋈ B) ⋈ C = (A ⋈ C) ⋈ B, with the columns in the order that they had; not to all pairs of A and C while an
    equality connects B with one of them."""
    match plan:
        case Join(outer, Join(inner, a, b) as below, c) if _may_join_first(plan, below, a, c):
            return Map(pass_on(schema(plan)), _joined((*conjuncts(inner), *conjuncts(outer)), (a, c), b))
    return None


def _may_join_first(outer: Join, inner: Join, one: Plan, two: Plan) -> bool:
    """True if an equality connects two of the inputs of two joins, or none was used before."""
    parts = (*conjuncts(inner.predicate), *conjuncts(outer.predicate))
    was_keyed = any(_has_key(parts, join.left, join.right) for join in (inner, outer))
    return not was_keyed or _has_key(parts, one, two)


def _has_key(parts: tuple[Expression, ...], left: Plan, right: Plan) -> bool:
    return any(connects(part, column_ids(left), column_ids(right)) for part in parts)


def _joined(parts: tuple[Expression, ...], left: Plan | tuple[Plan, Plan], right: Plan | tuple[Plan, Plan]) -> Plan:
    """A join of a plan and a pair of plans that are joined first, every condition as early as it can be."""
    sides: list[Plan] = []
    for side in (left, right):
        if isinstance(side, tuple):
            columns = column_ids(*side)
            early = [part for part in parts if reads_only(part, columns)]
            parts = tuple(part for part in parts if part not in early)
            sides.append(Join(conjunction(early), *side))
        else:
            sides.append(side)
    return Join(conjunction(parts), sides[0], sides[1])

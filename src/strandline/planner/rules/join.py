"""Rules about joins."""

from __future__ import annotations

from dataclasses import replace

from strandline.logical.expressions import columns_of, conjunction, conjuncts
from strandline.logical.plan import Filter, Join, MarkJoin, OuterJoin, Plan, SemiJoin
from strandline.logical.schema import schema


def push_condition_below_match(plan: Plan) -> Plan | None:
    """L ⟕(p ∧ q) R = L ⟕p σq(R) where q reads R only, and the same for semi, anti and mark joins.

    A condition on L only stays: a rejected element is not gone but unmatched. A full join keeps both sides.
    """
    match plan:
        case OuterJoin(False, condition, _, right) | SemiJoin(_, condition, _, right) if condition is not None:
            columns = frozenset(c.id for c in schema(right))
            parts = conjuncts(condition)
            below = tuple(p for p in parts if columns_of(p) and columns_of(p) <= columns)
            remaining, pushed = conjunction(tuple(p for p in parts if p not in below)), conjunction(below)
            if pushed is None or (remaining is None and isinstance(plan, OuterJoin)):
                return None
            if isinstance(plan, OuterJoin):
                assert remaining is not None
                return OuterJoin(False, remaining, plan.left, Filter(pushed, right))
            return replace(plan, predicate=remaining, right=Filter(pushed, right))
    return None


def push_filter_below_match(plan: Plan) -> Plan | None:
    """σp(L ⟕ R) = σp(L) ⟕ R where p reads L only, and the same for semi, anti and mark joins."""
    match plan:
        case Filter(predicate, (OuterJoin(False) | SemiJoin() | MarkJoin()) as join):
            columns = frozenset(c.id for c in schema(join.left))
            parts = conjuncts(predicate)
            below = tuple(p for p in parts if columns_of(p) and columns_of(p) <= columns)
            remaining, pushed = conjunction(tuple(p for p in parts if p not in below)), conjunction(below)
            if pushed is None:
                return None
            filtered = replace(join, left=Filter(pushed, join.left))
            return filtered if remaining is None else Filter(remaining, filtered)
    return None


def push_condition_below_join(plan: Plan) -> Plan | None:
    """L ⋈(p ∧ q) R = σp(L) ⋈q R where p reads L only, and the same for R.

    A part that reads no column at all stays: it is not about either side.
    """
    match plan:
        case Join(condition, left, right) if condition is not None:
            l_columns, r_columns = (frozenset(c.id for c in schema(side)) for side in (left, right))
            parts = conjuncts(condition)
            of_left = tuple(p for p in parts if columns_of(p) and columns_of(p) <= l_columns)
            of_right = tuple(p for p in parts if columns_of(p) and columns_of(p) <= r_columns)
            if not of_left and not of_right:
                return None
            remaining = conjunction(tuple(p for p in parts if p not in of_left and p not in of_right))
            for_left, for_right = conjunction(of_left), conjunction(of_right)
            return Join(
                remaining,
                left if for_left is None else Filter(for_left, left),
                right if for_right is None else Filter(for_right, right),
            )
    return None

"""Joins commute and associate: single steps from one order to another.

`planner/join_order.py` finds the best order of a cluster by a model of its own. These steps are for the beam search
over plans with other operators between joins.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.logical.expressions import ColumnRef, Expression, columns_of, conjunction, conjuncts
from strandline.logical.plan import Join, Map, Plan
from strandline.logical.schema import schema


def swap_join(plan: Plan) -> Plan | None:
    """L ⋈ R = R ⋈ L, with the columns in the order that they had."""
    match plan:
        case Join(condition, left, right):
            return _in_order(Join(condition, right, left), plan)
    return None


def rotate_join(plan: Plan) -> Iterator[Plan]:
    """(A ⋈ B) ⋈ C = A ⋈ (B ⋈ C), and back, rule (10.4)."""
    match plan:
        case Join(outer, Join(inner, a, b), c):
            yield _joined(_parts(inner, outer), a, (b, c))
    match plan:
        case Join(outer, a, Join(inner, b, c)):
            yield _joined(_parts(inner, outer), (a, b), c)


def exchange_in_join(plan: Plan) -> Plan | None:
    """(A ⋈ B) ⋈ C = (A ⋈ C) ⋈ B, with the columns in the order that they had."""
    match plan:
        case Join(outer, Join(inner, a, b), c):
            return _in_order(_joined(_parts(inner, outer), (a, c), b), plan)
    return None


def _joined(parts: tuple[Expression, ...], left: Plan | tuple[Plan, Plan], right: Plan | tuple[Plan, Plan]) -> Plan:
    """A join of a plan and a pair of plans that are joined first, every condition as early as it can be."""
    sides: list[Plan] = []
    for side in (left, right):
        if isinstance(side, tuple):
            there = frozenset(c.id for item in side for c in schema(item))
            early = tuple(part for part in parts if columns_of(part) and columns_of(part) <= there)
            parts = tuple(part for part in parts if part not in early)
            sides.append(Join(conjunction(early), *side))
        else:
            sides.append(side)
    return Join(conjunction(parts), sides[0], sides[1])


def _parts(*conditions: Expression | None) -> tuple[Expression, ...]:
    return tuple(part for condition in conditions if condition is not None for part in conjuncts(condition))


def _in_order(plan: Plan, before: Plan) -> Plan:
    return Map(tuple((c, ColumnRef(c.id, c.type)) for c in schema(before)), plan)

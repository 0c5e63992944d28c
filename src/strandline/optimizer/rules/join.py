"""Rules about joins."""

from __future__ import annotations

from strandline.algebra.expressions import columns_of, conjunction, conjuncts
from strandline.algebra.operators import Filter, Join, Plan
from strandline.algebra.schema import schema


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
            rest = conjunction(tuple(p for p in parts if p not in of_left and p not in of_right))
            for_left, for_right = conjunction(of_left), conjunction(of_right)
            return Join(
                rest,
                left if for_left is None else Filter(for_left, left),
                right if for_right is None else Filter(for_right, right),
            )
    return None

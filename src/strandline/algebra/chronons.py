"""Which plans give chronon streams: every element is valid for a single instant. Only those can take a window."""

from __future__ import annotations

from strandline.algebra.operators import (
    Aggregate,
    CountWindow,
    Distinct,
    Filter,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Scan,
    SemiJoin,
    SetOperation,
    TimeWindow,
    Union,
)


def is_chronon(plan: Plan) -> bool:
    """Whether no element of the plan is valid for longer than one instant."""
    match plan:
        case Scan():
            return not plan.intervals
        case TimeWindow() | CountWindow():
            return False
        case Filter() | Map() | Distinct():
            return is_chronon(plan.source)
        case Join(_, left, right):  # valid while both are
            return is_chronon(left) or is_chronon(right)
        case OuterJoin(full, _, left, right):
            return is_chronon(left) and (not full or is_chronon(right))
        case SemiJoin() | MarkJoin():
            return is_chronon(plan.left)
        case Aggregate(keys, _, source):  # the one group of an aggregation without keys is always there
            return bool(keys) and is_chronon(source)
        case Union(_, inputs):
            return all(map(is_chronon, inputs))
        case SetOperation(kind, _, left, right):
            if kind in ("intersect", "intersect all"):
                return is_chronon(left) or is_chronon(right)
            return is_chronon(left) and (kind != "union max" or is_chronon(right))

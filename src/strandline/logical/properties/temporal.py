"""Temporal properties of a plan, derived without running it.

A window needs a point stream, whose elements are valid for a single instant each, or one with a granularity.
"""

from __future__ import annotations

import math
from typing import assert_never

from strandline.logical.plan import (
    Aggregate,
    Apply,
    Changes,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Rank,
    Scan,
    SemiJoin,
    SessionWindow,
    SetOperation,
    TimeWindow,
    TopRows,
    Union,
)
from strandline.logical.tree import sources, walk


def is_point_stream(plan: Plan) -> bool:
    """True if no element of the plan is valid for longer than one instant."""
    match plan:
        case Scan():
            return not plan.intervals
        case Changes():
            return True
        case TimeWindow() | CountWindow() | SessionWindow() | Granularity():
            return False
        case Filter() | Map() | Distinct() | TopRows() | Rank():
            return is_point_stream(plan.source)
        case Join(_, left, right):  # valid while both are
            return is_point_stream(left) or is_point_stream(right)
        case OuterJoin(full, _, left, right):
            return is_point_stream(left) and (not full or is_point_stream(right))
        case SemiJoin() | MarkJoin() | Apply():
            return is_point_stream(plan.left)
        case Aggregate(keys, _, source):  # the one group of an aggregation without keys is always there
            return bool(keys) and is_point_stream(source)
        case Union(_, inputs):
            return all(map(is_point_stream, inputs))
        case SetOperation(kind, _, left, right):
            if kind in ("intersect", "intersect all"):
                return is_point_stream(left) or is_point_stream(right)
            return is_point_stream(left) and (kind != "union max" or is_point_stream(right))


def lasts(plan: Plan) -> bool:
    """True if no element of the plan ever ends, however it is computed: not even to continue in another interval."""
    match plan:
        case TimeWindow(range_us):
            return range_us is None
        case Filter() | Map() | Distinct() | Granularity():
            return lasts(plan.source)
        case Join(_, left, right):
            return lasts(left) and lasts(right)
        case Union(_, inputs):
            return all(map(lasts, inputs))
        case Scan() | CountWindow() | SessionWindow() | Changes() | TopRows() | Rank() | Aggregate():
            return False
        case OuterJoin() | SemiJoin() | MarkJoin() | Apply() | SetOperation():
            return False
        case _:
            assert_never(plan)


def granule(plan: Plan) -> int | None:
    """Granularity of the plan: its result changes only at multiples of this length, if there is one."""
    match plan:
        case Granularity(granule_us, _):
            return granule_us
        case Scan() | Changes() | CountWindow() | SessionWindow():
            return None
        case TimeWindow(range_us, slide_us, source):
            below = granule(source)
            whole = below is not None and (range_us is None or range_us % below == 0)
            return below if whole and slide_us == 1 else None
        case Aggregate(keys, _, source):  # the one group of an aggregation without keys begins at any instant
            return granule(source) if keys else None
        case _:
            granules = [granule(source) for source in sources(plan)]
            return math.gcd(*(item for item in granules if item is not None)) if None not in granules else None


def keeps_arrival_order(plan: Plan) -> bool:
    """True if elements of one instant still come in the order in which they arrived."""
    return all(isinstance(node, Scan | Filter | Map) for node in walk(plan))

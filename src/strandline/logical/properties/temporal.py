"""Temporal properties of a plan, derived without running it.

A window needs a chronon stream, whose elements are valid for a single instant each, or one with a granularity.
"""

from __future__ import annotations

import math
from typing import assert_never

from strandline.logical import plan as logical
from strandline.logical.plan import Plan
from strandline.logical.tree import sources, walk


def is_chronon_stream(plan: Plan) -> bool:
    """True if no element of the plan is valid for longer than one instant."""
    match plan:
        case logical.Scan():
            return not plan.intervals
        case logical.Changes():
            return True
        case logical.TimeWindow() | logical.CountWindow() | logical.SessionWindow() | logical.Granularity():
            return False
        case logical.WindowBounds() | logical.Unnest():
            return is_chronon_stream(plan.source)
        case logical.Filter() | logical.Map() | logical.Distinct() | logical.TopRows() | logical.Rank():
            return is_chronon_stream(plan.source)
        case logical.Over():
            return is_chronon_stream(plan.source)
        case logical.Join(_, left, right):  # valid while both are
            return is_chronon_stream(left) or is_chronon_stream(right)
        case logical.OuterJoin(full, _, left, right):
            return is_chronon_stream(left) and (not full or is_chronon_stream(right))
        case logical.SemiJoin() | logical.MarkJoin() | logical.Apply():
            return is_chronon_stream(plan.left)
        case logical.Lookup():
            return is_chronon_stream(plan.source)
        case logical.Aggregate(keys, _, source):  # the one group of an aggregation without keys is always there
            return bool(keys) and is_chronon_stream(source)
        case logical.Union(_, inputs):
            return all(map(is_chronon_stream, inputs))
        case logical.SetOperation(kind, _, left, right):
            if kind in ("intersect", "intersect all"):
                return is_chronon_stream(left) or is_chronon_stream(right)
            return is_chronon_stream(left) and (kind != "union max" or is_chronon_stream(right))


def never_expires(plan: Plan) -> bool:
    """True if no element of the plan ever ends, however it is computed: not even to continue in another interval."""
    match plan:
        case logical.TimeWindow(range_us):
            return range_us is None
        case (
            logical.Filter()
            | logical.Map()
            | logical.Unnest()
            | logical.Distinct()
            | logical.Granularity()
            | logical.Lookup()
        ):
            return never_expires(plan.source)
        case logical.Join(_, left, right):
            return never_expires(left) and never_expires(right)
        case logical.Union(_, inputs):
            return all(map(never_expires, inputs))
        case logical.Scan() | logical.CountWindow() | logical.SessionWindow() | logical.Changes():
            return False
        case logical.WindowBounds():
            return False
        case logical.TopRows() | logical.Rank() | logical.Over() | logical.Aggregate():
            return False
        case logical.OuterJoin() | logical.SemiJoin() | logical.MarkJoin() | logical.Apply() | logical.SetOperation():
            return False
        case _:
            assert_never(plan)


def granule(plan: Plan) -> int | None:
    """Granularity of the plan: its result changes only at multiples of this length, if there is one."""
    match plan:
        case logical.Granularity(granule_us, _):
            return granule_us
        case logical.Scan() | logical.Changes() | logical.CountWindow() | logical.SessionWindow():
            return None
        case logical.WindowBounds():
            return None
        case logical.TimeWindow(range_us, slide_us, source):
            below = granule(source)
            whole = below is not None and (range_us is None or range_us % below == 0)
            return below if whole and slide_us == 1 else None
        case logical.Aggregate(keys, _, source):  # the one group of an aggregation without keys begins at any instant
            return granule(source) if keys else None
        case logical.Lookup():  # the table is seen at the times of elements only
            return granule(plan.source)
        case _:
            granules = [granule(source) for source in sources(plan)]
            return math.gcd(*(item for item in granules if item is not None)) if None not in granules else None


def end_together(plan: Plan) -> bool:
    """True if elements end at a few instants only, many together: where a window slides, or where time is rounded."""
    match plan:
        case logical.Granularity() | logical.WindowBounds():
            return True
        case logical.TimeWindow(range_us, slide_us, source):
            return range_us is not None and (slide_us > 1 or granule(source) is not None)
        case (
            logical.Filter() | logical.Map() | logical.Unnest() | logical.Distinct() | logical.Union() | logical.Join()
        ):
            return all(end_together(source) for source in sources(plan))
        case logical.Lookup():
            return end_together(plan.source)
        case _:
            return False


def keeps_arrival_order(plan: Plan) -> bool:
    """True if elements of one instant still come in the order in which they arrived."""
    return all(isinstance(node, logical.Scan | logical.Filter | logical.Map) for node in walk(plan))


def is_per_instant(plan: Plan) -> bool:
    """True if the snapshot of a node is computed from those of its inputs at the same instant and from nothing else. A
    filter is left out: it moves by rules of its own."""
    match plan:
        case logical.Aggregate(keys):
            return bool(keys)
        case logical.Map() | logical.Unnest() | logical.Distinct() | logical.TopRows() | logical.Rank():
            return True
    return isinstance(plan, logical.BinaryPlan | logical.Union) and not isinstance(plan, logical.Apply)

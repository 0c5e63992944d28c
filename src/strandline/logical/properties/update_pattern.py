"""Update patterns: validity durations, the order of ends, and when ends are certain.

`temporal.py` has the first of these facts, for the binder. In which order elements *start* is no fact of a plan: every
operator takes and gives slices of time, whatever the plan (`runtime/operators/base.py`).

A fact is a promise. Where it cannot be seen from the operators alone it is not given, though it may hold by chance.
"""

from __future__ import annotations

from enum import Enum
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
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.tree import walk


class UpdatePattern(Enum):
    """Update pattern of a result, after Golab and Özsu: how its elements expire.

    They call grouping weak, because a new aggregate of a group takes the place of the old one. Here an element has an
    end, and that of an aggregate is when the next one comes: it is strict. So are count windows, which they leave out.
    """

    MONOTONIC = "appended"  # valid at one instant: a row of a log
    WEAKEST = "leaves in order"  # the end is certain from the beginning, first in first out
    WEAK = "leaves at a known time"  # the end is certain from the beginning
    STRICT = "leaves when told"  # rows that come later may end it


def update_pattern(plan: Plan) -> UpdatePattern:
    """The strongest promise about how elements leave."""
    if is_chronon_stream(plan):
        return UpdatePattern.MONOTONIC
    if not has_certain_ends(plan):
        return UpdatePattern.STRICT
    return UpdatePattern.WEAKEST if ends_in_order(plan) else UpdatePattern.WEAK


def constant_duration(plan: Plan) -> int | None:
    """Duration of validity in microseconds, if it is the same for all elements."""
    match plan:
        case TimeWindow(range_us, slide_us, _):
            # Both ends of an element are rounded to the slide: by the same amount if the range is a multiple of it.
            return range_us if range_us is not None and range_us % slide_us == 0 else None
        case Granularity(granule_us, source):
            duration = constant_duration(source)
            return duration if duration is not None and duration % granule_us == 0 else None
        case Filter() | Map():
            return constant_duration(plan.source)
        case Union(_, inputs):
            durations = {constant_duration(source) for source in inputs}
            return durations.pop() if len(durations) == 1 else None
        case Scan() | CountWindow() | SessionWindow() | Changes() | TopRows() | Rank() | Aggregate() | Distinct():
            return 1 if is_chronon_stream(plan) else None
        case Join() | OuterJoin() | SemiJoin() | MarkJoin() | Apply() | SetOperation():
            return 1 if is_chronon_stream(plan) else None
        case _:
            assert_never(plan)


def ends_in_order(plan: Plan) -> bool:
    """True if an element that starts before another never ends after it: expiry needs a queue and no heap.

    Table 12.1 of Krämer's thesis, with the cases added in which all elements are valid equally long.
    """
    if constant_duration(plan) is not None:
        return True
    match plan:
        case TimeWindow():  # windows enforce it: both ends grow with the time of the row
            return True
        case CountWindow() | SessionWindow():  # a partition may become idle while others continue
            return not plan.partition
        case Aggregate(keys, _, _):  # one row at a time, each ends where the next begins
            return not keys
        case Filter() | Map() | Granularity():  # granules round both ends up
            return ends_in_order(plan.source)
        case Join() | OuterJoin() | SemiJoin() | MarkJoin() | Distinct() | Union() | SetOperation():
            return False
        case Scan() | Changes() | TopRows() | Rank() | Apply():  # rows with declared intervals end in any order
            return False
        case _:
            assert_never(plan)


def has_certain_ends(plan: Plan) -> bool:
    """True if the end of an element is certain once it has come.

    Law    for all T ≤ t: the result at t over the rows up to T is contained in the result at t over all rows

    This holds for operators that give more for more: σ, μ, ⋈, ∪, ∩, δ. It does not where a further row takes something
    away: it changes an aggregate, matches an unmatched row, cancels a duplicate or a future change, pushes another row
    out of its window or of the top k.
    """
    if is_chronon_stream(plan) and not any(isinstance(node, Changes) for node in walk(plan)):
        return True  # each instant has its own rows, and nothing is foreseen
    match plan:
        case Scan():
            return True
        case Filter() | Map() | Distinct() | TimeWindow() | Granularity():
            return has_certain_ends(plan.source)
        case Join(_, left, right):
            return has_certain_ends(left) and has_certain_ends(right)
        case SemiJoin(anti, _, left, right):
            return not anti and has_certain_ends(left) and has_certain_ends(right)
        case SetOperation(kind, _, left, right):
            gives_more = kind in ("intersect", "intersect all", "union max")
            return gives_more and has_certain_ends(left) and has_certain_ends(right)
        case Union(_, inputs):
            return all(map(has_certain_ends, inputs))
        case CountWindow() | SessionWindow() | Changes() | TopRows() | Rank() | OuterJoin() | MarkJoin() | Aggregate():
            return False
        case Apply():
            return False
        case _:
            assert_never(plan)

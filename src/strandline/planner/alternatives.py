"""Plan space: equivalent alternatives of a plan, one step apart, and a beam search for a cheaper plan.

The stages of `stages.py` are for rules that always pay. A rule of this module may pay or not: two directions of one law
are both here, and the cost of whole plans decides.

A step replaces one subplan by another with the same snapshots and the same columns. That is enough for every operator
above but a window, which stands on more than snapshots: whether elements are valid for an instant or seen once per
granule, and whether they still come in the order of arrival. These must stay (section 10.4 of Krämer's thesis).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Final, TypeAlias

from strandline.logical.plan import CountWindow, Plan, SessionWindow, TimeWindow
from strandline.logical.properties.temporal import granule, is_point_stream, keeps_arrival_order
from strandline.logical.schema import schema
from strandline.logical.tree import sources, with_sources
from strandline.planner.rewrite import Rule
from strandline.planner.rules.aggregate import group_below_join, group_below_union
from strandline.planner.rules.distinct import (
    leave_copies,
    pull_distinct_above_join,
    push_distinct_below_join,
    push_distinct_below_match,
    remove_copies_early,
    remove_copies_of_partners,
)
from strandline.planner.rules.filter import (
    merge_filters,
    push_filter_below_aggregate,
    push_filter_below_distinct,
    push_filter_below_map,
    push_filter_below_set_operation,
    push_filter_below_time_window,
    push_filter_below_union,
    push_filter_into_join,
)
from strandline.planner.rules.join import (
    push_condition_below_join,
    push_condition_below_match,
    push_filter_below_match,
)
from strandline.planner.rules.project import merge_maps, share_with_filter
from strandline.planner.rules.pull_up import (
    pull_filter_above_aggregate,
    pull_filter_above_distinct,
    pull_filter_above_join,
    pull_filter_above_map,
    pull_map_above_join,
    push_map_below_join,
    split_filter,
    swap_filters,
    take_filter_out_of_join,
)
from strandline.planner.rules.reorder import exchange_in_join, rotate_join, swap_join
from strandline.planner.rules.set_operations import (
    push_map_below_union,
    rotate_set_operations,
    subtract_one_by_one,
    subtract_together,
    swap_set_operation,
)
from strandline.planner.rules.subquery import flatten_semi_join, join_as_semi_join
from strandline.planner.rules.window import (
    pull_filter_above_window,
    pull_granules_up,
    pull_map_above_window,
    pull_window_above_union,
    push_filter_below_partitioned_window,
    push_granules_down,
    push_map_below_window,
    push_window_below_union,
)

# All trees that a law gives for one node; a `Rule` gives one at most.
Ways: TypeAlias = Callable[[Plan], Iterator[Plan]]
Cost: TypeAlias = Callable[[Plan], float]


def ways(rule: Rule) -> Ways:
    """A rule as one that gives all trees."""

    @wraps(rule)
    def found(plan: Plan) -> Iterator[Plan]:
        other = rule(plan)
        if other is not None:
            yield other

    return found


ALTERNATIVES: Final[tuple[Ways, ...]] = (
    # Filter placement: push down to reduce the input of others, or pull up where the predicate itself is expensive.
    *map(ways, (merge_filters, swap_filters)),
    split_filter,
    *map(
        ways,
        (
            push_filter_below_map,
            push_filter_below_time_window,
            push_filter_below_partitioned_window,
            push_filter_into_join,
            push_condition_below_join,
            push_filter_below_match,
            push_condition_below_match,
            push_filter_below_union,
            push_filter_below_set_operation,
            push_filter_below_distinct,
            push_filter_below_aggregate,
            pull_filter_above_map,
            pull_filter_above_window,
            pull_filter_above_distinct,
            pull_filter_above_aggregate,
        ),
    ),
    pull_filter_above_join,
    take_filter_out_of_join,
    # Computations: for all rows, for the remaining ones, or for pairs; results move, or their operands.
    *map(ways, (merge_maps, share_with_filter, push_map_below_window, pull_map_above_window, push_map_below_union)),
    pull_map_above_join,
    push_map_below_join,
    # Joins: which first, and which side is the left one.
    *map(ways, (swap_join, exchange_in_join)),
    rotate_join,
    # Duplicates and groups: fewer elements below, or fewer operators that keep them.
    *map(ways, (push_distinct_below_join, pull_distinct_above_join, push_distinct_below_match)),
    remove_copies_early,
    *map(ways, (remove_copies_of_partners, leave_copies)),
    group_below_join,
    *map(ways, (group_below_union, flatten_semi_join, join_as_semi_join)),
    # Windows, granules and set operations: one for all, or one for each.
    *map(
        ways,
        (
            push_window_below_union,
            pull_window_above_union,
            push_granules_down,
            pull_granules_up,
            rotate_set_operations,
            swap_set_operation,
            subtract_together,
            subtract_one_by_one,
        ),
    ),
)


def neighbours(plan: Plan, rules: Sequence[Ways] = ALTERNATIVES) -> Iterator[tuple[str, Plan]]:
    """Every plan that one rule at one place makes of this one, with the name of the rule."""
    for rule in rules:
        for other in rule(plan):
            if other != plan and schema(other) == schema(plan):
                yield rule.__name__, other
    inputs = sources(plan)
    for position, source in enumerate(inputs):
        for name, other in neighbours(source, rules):
            if _may_stand_below(plan, source, other):
                yield name, with_sources(plan, (*inputs[:position], other, *inputs[position + 1 :]))


def _may_stand_below(above: Plan, before: Plan, after: Plan) -> bool:
    """True if an operator cannot distinguish two inputs with the same snapshots."""
    if not isinstance(above, TimeWindow | CountWindow | SessionWindow):
        return True
    if is_point_stream(before) != is_point_stream(after) or granule(before) != granule(after):
        return False
    return not isinstance(above, CountWindow) or keeps_arrival_order(before) == keeps_arrival_order(after)


# ---- search ----------------------------------------------------------------------------------------------------------

LIMIT: Final = 300  # plans that a search may cost
WIDTH: Final = 4  # beam width: plans of a round that the search continues from
MAX_ROUNDS_WITHOUT_GAIN: Final = 3  # rounds without a better plan
SHOWN: Final = 5  # rejected plans that are reported


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A costed plan, and the rules that led to it from the start of the search."""

    plan: Plan
    cost: float
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search: the best plan, the best of the others, and the number of costed plans."""

    best: PlanCandidate
    rejected: tuple[PlanCandidate, ...]
    examined: int

    @property
    def plan(self) -> Plan:
        return self.best.plan


def improve(plan: Plan, cost: Cost, limit: int = LIMIT) -> SearchResult:
    """Beam search over single steps for the cheapest plan; deterministic.

    It costs no more than `limit` plans, so its time is bounded whatever the plan. A plan of equal cost does not replace
    another: the written order stays where nothing is gained.
    """
    best = PlanCandidate(plan, _finite(cost(plan)))
    seen, looked_at, beam, waited = {plan}, [best], [best], 0
    while beam and waited < MAX_ROUNDS_WITHOUT_GAIN and len(looked_at) < limit:
        fresh: list[PlanCandidate] = []
        for item in beam:
            for name, other in neighbours(item.plan):
                if other in seen or len(looked_at) + len(fresh) >= limit:
                    continue
                seen.add(other)
                fresh.append(PlanCandidate(other, _finite(cost(other)), (*item.rules, name)))
        looked_at += fresh
        beam = sorted(fresh, key=lambda item: item.cost)[:WIDTH]
        better = bool(beam) and beam[0].cost < best.cost
        best, waited = (beam[0], 0) if better else (best, waited + 1)
    others = sorted((item for item in looked_at if item is not best), key=lambda item: item.cost)
    return SearchResult(best, tuple(others[:SHOWN]), len(looked_at))


def separating_rule(chosen: PlanCandidate, other: PlanCandidate) -> str:
    """The first rule that was applied to reach one of two plans and not the other."""
    for one, two in zip(chosen.rules, other.rules, strict=False):
        if one != two:
            return two
    shared = min(len(chosen.rules), len(other.rules))
    longer = chosen.rules if len(chosen.rules) > shared else other.rules
    return longer[shared] if len(longer) > shared else (other.rules or chosen.rules or ("",))[-1]


def _finite(cost: float) -> float:
    """Comparable costs; NaN is worse than all."""
    return math.inf if math.isnan(cost) else cost

"""Plan space: equivalent alternatives of a plan, one step apart, and a beam search for a cheaper plan.

The stages of `stages.py` are for rules that always pay. A rule of this module may pay or not: two directions of one law
are both here, and the cost of whole plans decides.

A step replaces one subplan by another with the same snapshots and the same columns. That is enough for every operator
above but a window, which stands on more than snapshots: whether elements are valid for an instant or seen once per
granule, and whether they still come in the order of arrival. These must stay (section 10.4 of Krämer's thesis). So must
the row time of elements below a look-up, which all operators that have one derive from those of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.logical.plan import CountWindow, Lookup, Plan, SessionWindow, TimeWindow
from strandline.logical.properties.row_time import without_row_time
from strandline.logical.properties.temporal import granule, is_chronon_stream, keeps_arrival_order
from strandline.logical.schema import schema
from strandline.logical.tree import sources, with_sources
from strandline.planner.rules import (
    aggregate,
    distinct,
    join,
    match,
    outer_join,
    project,
    pull_up,
    set_operations,
    subquery,
    window,
)
from strandline.planner.rules import filter as filters
from strandline.planner.stages import PUSH_FILTERS

# A law as a step of the search: it gives at most one tree for a node, as the rules of the stages do, or yields all.
Alternative: TypeAlias = Callable[[Plan], Plan | Iterator[Plan] | None]
Cost: TypeAlias = Callable[[Plan], float]

ALTERNATIVES: Final[tuple[Alternative, ...]] = (
    # Filter placement: push down to reduce the input of others, or pull up where the predicate itself is expensive.
    filters.merge_filters,
    pull_up.swap_filters,
    pull_up.split_filter,
    *PUSH_FILTERS,
    pull_up.pull_filter_above_map,
    window.pull_filter_above_window,
    pull_up.pull_filter_above_distinct,
    pull_up.pull_filter_above_aggregate,
    pull_up.pull_filter_above_join,
    pull_up.take_filter_out_of_join,
    # Computations: for all rows, for the remaining ones, or for pairs; results move, or their operands.
    project.merge_maps,
    project.share_with_filter,
    window.push_map_below_window,
    window.pull_map_above_window,
    set_operations.push_map_below_union,
    pull_up.pull_map_above_join,
    pull_up.push_map_below_join,
    match.push_map_below_match,
    match.pull_map_above_match,
    # Joins: which first, and which side is the left one.
    join.swap_join,
    join.exchange_in_join,
    join.rotate_join,
    outer_join.swap_full_join,
    outer_join.rotate_outer_join,
    # Semi, anti, mark and left joins, and differences: below a join they make its input smaller, above it fewer
    # operators have to follow elements that end early.
    match.push_match_below_join,
    match.pull_match_above_join,
    match.exchange_matches,
    match.push_match_below_set_operation,
    match.push_match_below_aggregate,
    match.pull_match_above_aggregate,
    match.join_below_match_as_semi_join,
    set_operations.push_join_below_set_operation,
    set_operations.pull_join_above_set_operation,
    # Duplicates and groups: fewer elements below, or fewer operators that keep them.
    distinct.push_distinct_below_join,
    distinct.pull_distinct_above_join,
    distinct.push_distinct_below_match,
    match.pull_distinct_above_match,
    distinct.remove_duplicates_early,
    distinct.remove_duplicates_below_semi_join,
    distinct.drop_distinct_below_insensitive,
    aggregate.group_below_join,
    aggregate.group_below_union,
    subquery.flatten_semi_join,
    subquery.join_as_semi_join,
    # Windows, granules and set operations: one for all, or one for each.
    window.push_window_below_union,
    window.pull_window_above_union,
    window.push_granules_down,
    window.pull_granules_up,
    set_operations.rotate_set_operations,
    set_operations.swap_set_operation,
    set_operations.subtract_together,
    set_operations.subtract_one_by_one,
)


PULL_UP: Final[tuple[Alternative, ...]] = (
    # What selects rows goes up, so that what is below is what others have that select other rows.
    pull_up.pull_filter_above_map,
    window.pull_filter_above_window,
    pull_up.pull_filter_above_distinct,
    pull_up.pull_filter_above_aggregate,
    pull_up.pull_filter_above_join,
    pull_up.take_filter_out_of_join,
    match.pull_match_above_join,
    match.pull_match_above_aggregate,
    match.pull_distinct_above_match,
    window.pull_window_above_union,
)


def pull_filters_up(plan: Plan, limit: int) -> dict[Plan, tuple[str, ...]]:
    """Plans in which filters are further up, at most so many; with the rules that lead to them."""
    found: dict[Plan, tuple[str, ...]] = {}
    pending: list[tuple[Plan, tuple[str, ...]]] = [(plan, ())]
    while pending and len(found) < limit:
        before, rules = pending.pop(0)
        for rule, other in neighbours(before, PULL_UP):
            if other not in found and other != plan:
                found[other] = (*rules, rule)
                pending.append((other, found[other]))
    return found


def neighbours(plan: Plan, rules: Sequence[Alternative] = ALTERNATIVES) -> Iterator[tuple[str, Plan]]:
    """Every plan that one rule at one place makes of this one, with the name of the rule."""
    for rule in rules:
        trees = rule(plan)
        for other in trees if isinstance(trees, Iterator) else (trees,):
            if other is not None and other != plan and schema(other) == schema(plan):
                yield rule.__name__, other
    inputs = sources(plan)
    for position, source in enumerate(inputs):
        for name, other in neighbours(source, rules):
            if _may_stand_below(plan, source, other):
                yield name, with_sources(plan, (*inputs[:position], other, *inputs[position + 1 :]))


def _may_stand_below(above: Plan, before: Plan, after: Plan) -> bool:
    """True if an operator cannot distinguish two inputs with the same snapshots."""
    if isinstance(above, Lookup) and before is above.source:
        return without_row_time(after) is None
    if not isinstance(above, TimeWindow | CountWindow | SessionWindow):
        return True
    if is_chronon_stream(before) != is_chronon_stream(after) or granule(before) != granule(after):
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
    """Result of a search: the best plan, and the best of the others."""

    best: PlanCandidate
    rejected: tuple[PlanCandidate, ...]

    @property
    def plan(self) -> Plan:
        return self.best.plan


def improve(plan: Plan, cost: Cost, limit: int = LIMIT) -> SearchResult:
    """Beam search over single steps for the cheapest plan; deterministic.

    It costs no more than `limit` plans, so its time is bounded whatever the plan. A plan of equal cost does not replace
    another: the written order stays where nothing is gained.
    """
    best = PlanCandidate(plan, _finite(cost(plan)))
    seen, costed, beam, rounds_without_gain = {plan}, [best], [best], 0
    while beam and rounds_without_gain < MAX_ROUNDS_WITHOUT_GAIN and len(costed) < limit:
        fresh: list[PlanCandidate] = []
        for candidate in beam:
            for name, other in neighbours(candidate.plan):
                if other in seen or len(costed) + len(fresh) >= limit:
                    continue
                seen.add(other)
                fresh.append(PlanCandidate(other, _finite(cost(other)), (*candidate.rules, name)))
        costed += fresh
        beam = sorted(fresh, key=lambda candidate: candidate.cost)[:WIDTH]
        better = bool(beam) and beam[0].cost < best.cost
        best, rounds_without_gain = (beam[0], 0) if better else (best, rounds_without_gain + 1)
    others = sorted((other for other in costed if other is not best), key=lambda other: other.cost)
    return SearchResult(best, tuple(others[:SHOWN]))


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

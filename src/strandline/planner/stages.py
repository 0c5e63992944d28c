"""The stages of optimization, in order, with the reason for the order; each runs its rules until none applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.core.errors import PlanError
from strandline.logical.plan import Plan, Scan
from strandline.logical.tree import transform_up, walk
from strandline.planner.cardinality import NOTHING_KNOWN, StatisticsByStream
from strandline.planner.join_order import order_joins
from strandline.planner.prices import Prices
from strandline.planner.rules import (
    aggregate,
    distinct,
    join,
    lookup,
    outer_join,
    project,
    set_operations,
    subquery,
    window,
    window_bounds,
)
from strandline.planner.rules import filter as filters
from strandline.planner.rules.prune_columns import prune_columns

# A rule sees one node and returns a better tree for it, or None where its law does not apply.
Rule: TypeAlias = Callable[[Plan], Plan | None]


@dataclass(frozen=True, slots=True)
class RewriteStage:
    """Rules that are applied together, bottom-up, until none applies."""

    name: str
    rules: tuple[Rule, ...]
    max_passes: int = 100


# No-ops go first: later rules match less, and joins become adjacent that they separated.
NEEDLESS = RewriteStage(
    "drop what does nothing",
    (
        window.drop_default_window,
        window.drop_finer_granules,
        set_operations.flatten_unions,
        set_operations.merge_same_sides,
        distinct.drop_needless_distinct,
        aggregate.drop_grouping_by_key,
    ),
)

# Look-ups become joins of instants before filters move: what they leave is below the windows then, as filters will be.
LOOKUPS = RewriteStage("place look-ups", lookup.PLACEMENT)

# They always pay where a filter is cheap; the search may undo them where it is expensive.
PUSH_FILTERS: Final[tuple[Rule, ...]] = (
    filters.push_filter_below_map,
    filters.push_filter_below_unnest,
    filters.push_filter_below_time_window,
    window_bounds.push_filter_below_bounds,
    window.push_filter_below_partitioned_window,
    filters.push_filter_into_join,
    join.push_condition_below_join,
    join.push_filter_below_match,
    join.push_condition_below_match,
    lookup.push_filter_below_lookup,
    lookup.push_filter_into_lookup,
    lookup.push_condition_below_lookup,
    filters.push_filter_below_union,
    filters.push_filter_below_set_operation,
    filters.push_filter_below_distinct,
    filters.push_filter_below_aggregate,
)

# Filters early: every row that does not leave its source is a row that no exchange moves and no state keeps.
FILTERS = RewriteStage(
    "push filters down",
    (
        filters.merge_filters,
        subquery.mark_as_semi_join,
        outer_join.outer_join_as_join,
        outer_join.outer_join_below_join_as_join,
        outer_join.outer_join_as_anti_join,
        *PUSH_FILTERS,
        filters.push_filter_below_first_rows,
        filters.push_filter_below_over,
        filters.limit_rank_by_filter,
    ),
)

# After joins are ordered: a window between two joins would separate their graph.
CONSTANTS = RewriteStage("join constant tables below windows", (lookup.join_constant_below_window,))

# Maps follow the filters, so that an exchange moves results instead of their ingredients, computed once.
MAPS = RewriteStage(
    "merge maps", (project.push_map_below_time_window, project.merge_maps, window_bounds.push_aggregate_below_bounds)
)

# After all others, since it puts a map below a filter: they would undo it. Maps that could not merge may do so now.
SHARING = RewriteStage("compute once", (project.share_with_filter, project.merge_maps))


def optimize(
    plan: Plan,
    statistics: StatisticsByStream = NOTHING_KNOWN,
    capacity: float | None = None,
    prices: Prices | None = None,
) -> Plan:
    """A cheaper plan with the same snapshots, by the rules and the order of joins alone; where rows may be dropped, the
    one that leaves the most results within a capacity, in seconds of work per second."""
    return finish(order_joins(prepare(plan), statistics, capacity, prices))


def prepare(plan: Plan) -> Plan:
    """The stages before joins are ordered: what they cost depends on what the filters leave, and maps would stand
    between them."""
    rewritten = run_to_fixpoint(FILTERS, run_to_fixpoint(LOOKUPS, run_to_fixpoint(NEEDLESS, plan)))
    return rewritten if _ends_as(plan, rewritten) else plan


def finish(plan: Plan) -> Plan:
    """The stages after joins are ordered. Columns last: which ones are needed is known once the filters are where they
    stay."""
    below = run_to_fixpoint(MAPS, run_to_fixpoint(CONSTANTS, plan))
    rewritten = run_to_fixpoint(SHARING, run_to_fixpoint(MAPS, prune_columns(below)))
    return rewritten if _ends_as(plan, rewritten) else plan


def _ends_as(plan: Plan, rewritten: Plan) -> bool:
    """A query ends when its streams end. One that is left with tables that change, and no stream, would not."""
    before, after = ({node.table for node in walk(p) if isinstance(node, Scan)} for p in (plan, rewritten))
    return None in after or None not in before or "changing" not in after


def run_to_fixpoint(stage: RewriteStage, plan: Plan) -> Plan:
    """Apply the rules of `stage` until the plan stays the same."""
    applied: list[str] = []

    def improve(node: Plan) -> Plan:
        for rule in stage.rules:
            better = rule(node)
            if better is not None:
                applied.append(rule.__name__)
                return better
        return node

    for _ in range(stage.max_passes):
        before, plan = plan, transform_up(plan, improve)
        if plan == before:
            return plan
    raise PlanError(
        f'optimizer stage "{stage.name}" did not reach a fixpoint in {stage.max_passes} passes',
        code="optimizer-loop",
        detail=f"The last rules applied were {', '.join(applied[-4:])}.",
    )

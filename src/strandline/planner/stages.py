"""The stages of optimization, in order, with the reason for the order."""

from __future__ import annotations

from strandline.logical.plan import Plan
from strandline.planner.cardinality import NOTHING_KNOWN, StatisticsByStream
from strandline.planner.join_order import order_joins
from strandline.planner.prices import Prices
from strandline.planner.rewrite import RewriteStage, run_to_fixpoint
from strandline.planner.rules.aggregate import drop_grouping_by_key
from strandline.planner.rules.distinct import drop_needless_distinct
from strandline.planner.rules.filter import (
    limit_rank_by_filter,
    merge_filters,
    push_filter_below_aggregate,
    push_filter_below_distinct,
    push_filter_below_first_rows,
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
from strandline.planner.rules.project import merge_maps, push_map_below_time_window, share_with_filter
from strandline.planner.rules.prune_columns import prune_columns
from strandline.planner.rules.set_operations import flatten_unions, merge_same_sides
from strandline.planner.rules.subquery import mark_as_semi_join, outer_join_as_join
from strandline.planner.rules.window import (
    drop_default_window,
    drop_finer_granules,
    push_filter_below_partitioned_window,
)

# No-ops go first: later rules match less, and joins become adjacent that they separated.
NEEDLESS = RewriteStage(
    "drop what does nothing",
    (
        drop_default_window,
        drop_finer_granules,
        flatten_unions,
        merge_same_sides,
        drop_needless_distinct,
        drop_grouping_by_key,
    ),
)

# Filters early: every row that does not leave its source is a row that no exchange moves and no state keeps.
FILTERS = RewriteStage(
    "push filters down",
    (
        merge_filters,
        mark_as_semi_join,
        outer_join_as_join,
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
        push_filter_below_first_rows,
        limit_rank_by_filter,
    ),
)

# Maps follow the filters, so that an exchange moves results instead of their ingredients, computed once.
MAPS = RewriteStage("merge maps", (push_map_below_time_window, merge_maps))

# After all others, since it puts a map below a filter: they would undo it. Maps that could not merge may do so now.
SHARING = RewriteStage("compute once", (share_with_filter, merge_maps))


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
    return run_to_fixpoint(FILTERS, run_to_fixpoint(NEEDLESS, plan))


def finish(plan: Plan) -> Plan:
    """The stages after joins are ordered. Columns last: which ones are needed is known once the filters are where they
    stay."""
    return run_to_fixpoint(SHARING, run_to_fixpoint(MAPS, prune_columns(run_to_fixpoint(MAPS, plan))))

"""Rules about windows and granularities: (10.7) to (10.12) of Krämer's thesis, and their limits.

Which elements a time window holds depends on time alone, so it commutes with everything that looks at elements one by
one: σ, μ and ⊎. Which rows are the last N depends on how many there are: a count window commutes with μ, and with a σ
that takes whole partitions. A session breaks where a filter takes its middle, and one that comes from two streams may
be one session where each alone has a gap. A granularity selects snapshots at certain instants, so it commutes with
every operator that works on snapshots of one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.logical.expressions import ColumnRef
from strandline.logical.plan import CountWindow, Filter, Granularity, Map, Plan, SessionWindow, TimeWindow, Union
from strandline.logical.properties.temporal import granule, is_chronon_stream, is_per_instant, keeps_arrival_order
from strandline.logical.tree import sources, with_sources
from strandline.planner.rules.expressions import takes_whole_groups
from strandline.planner.rules.filter import push_by_groups


def drop_default_window(plan: Plan) -> Plan | None:
    """ω1(S) = S, rule (10.7), for a chronon stream; and ωg(S) = S for one of granularity g."""
    match plan:
        case TimeWindow(1, 1, source) if is_chronon_stream(source):
            return source
        case TimeWindow(int(range_us), 1, source) if not is_chronon_stream(source) and granule(source) == range_us:
            return source
    return None


def drop_finer_granules(plan: Plan) -> Plan | None:
    """Γg(Γh(S)) = Γg(S) where g is a multiple of h: every instant of the outer grid is one of the inner."""
    match plan:
        case Granularity(coarse, Granularity(fine, source)) if coarse % fine == 0:
            return Granularity(coarse, source)
    return None


def push_filter_below_partitioned_window(plan: Plan) -> Plan | None:
    """σp(ω(S)) = ω(σp(S)) for count windows and sessions, for the parts of p that read partition columns only.

    They select whole partitions, and partitions are independent. All other parts stay above.
    """
    match plan:
        case Filter(predicate, CountWindow() | SessionWindow() as window):
            return push_by_groups(predicate, window, window.partition)
    return None


def pull_filter_above_window(plan: Plan) -> Plan | None:
    """ω(σ(S)) = σ(ω(S)), rule (10.8), for time windows and granules; others only if σ takes whole partitions."""
    match plan:
        case TimeWindow() | Granularity() if isinstance(plan.source, Filter):
            return Filter(plan.source.predicate, replace(plan, source=plan.source.source))
        case CountWindow(partition) | SessionWindow(partition) if isinstance(plan.source, Filter):
            if takes_whole_groups(plan.source.predicate, frozenset(partition)):
                return Filter(plan.source.predicate, replace(plan, source=plan.source.source))
    return None


def push_map_below_window(plan: Plan) -> Plan | None:
    """μ(ω(S)) = ω(μ(S)), rules (10.9), (10.11) and (10.12), if the partition columns are passed on.

    A count window without arrival order orders by the values of all columns, so nothing may change them.
    """
    match plan:
        case Map(outputs, TimeWindow() | Granularity() as window):
            return replace(window, source=Map(outputs, window.source))
        case Map(outputs, CountWindow() | SessionWindow() as window):
            names = {e.id: c.id for c, e in reversed(outputs) if isinstance(e, ColumnRef)}
            if not set(window.partition) <= names.keys() or not _has_order(window):
                return None
            by = tuple(names[column] for column in window.partition)
            return replace(window, partition=by, source=Map(outputs, window.source))
    return None


def pull_map_above_window(plan: Plan) -> Plan | None:
    """ω(μ(S)) = μ(ω(S)): the same rules, the other way round."""
    match plan:
        case TimeWindow() | Granularity() if isinstance(plan.source, Map):
            return Map(plan.source.outputs, replace(plan, source=plan.source.source))
        case CountWindow(partition) | SessionWindow(partition) if isinstance(plan.source, Map):
            values = {c.id: e for c, e in plan.source.outputs}
            by = [value.id for column in partition if isinstance(value := values[column], ColumnRef)]
            # Two copies of one column partition the rows as one does.
            if len(by) == len(partition) and _has_order(plan):
                window = replace(plan, partition=tuple(dict.fromkeys(by)), source=plan.source.source)
                return Map(plan.source.outputs, window)
    return None


def _has_order(window: CountWindow | SessionWindow) -> bool:
    return isinstance(window, SessionWindow) or keeps_arrival_order(window.source)


def push_window_below_union(plan: Plan) -> Plan | None:
    """ω(S1 ⊎ S2) = ω(S1) ⊎ ω(S2), rule (10.10), for time windows; and Γ(S1 ⊎ S2) = Γ(S1) ⊎ Γ(S2).

    Not for windows by rows and sessions: the last N rows of both are not the last N of each.
    """
    match plan:
        case TimeWindow(_, _, Union(columns, inputs)) if _have_same_granularity(inputs):
            return Union(columns, tuple(replace(plan, source=source) for source in inputs))
    return None


def pull_window_above_union(plan: Plan) -> Plan | None:
    """ω(S1) ⊎ ω(S2) = ω(S1 ⊎ S2), rule (10.10), where all sides have the same time window, perhaps below a map."""
    match plan:
        case Union(columns, inputs):
            sides = [_under_window(source) for source in inputs]
            windows = {None if side is None else (side.range_us, side.slide_us, side.offset_us) for side in sides}
            below = tuple(side.source for side in sides if side is not None)
            if None in windows or len(windows) != 1 or not _have_same_granularity(below):
                return None
            [(range_us, slide_us, offset_us)] = (window for window in windows if window is not None)
            return TimeWindow(range_us, slide_us, Union(columns, below), offset_us)
    return None


def _under_window(plan: Plan) -> TimeWindow | None:
    """A plan as a time window over something, if it is one or computed from one."""
    match plan:
        case TimeWindow():
            return plan
        case Map(outputs, TimeWindow() as window):
            return replace(window, source=Map(outputs, window.source))
    return None


def _have_same_granularity(inputs: Sequence[Plan]) -> bool:
    """True if the inputs of a window have elements at their own instants, or all at the same granularity."""
    return all(map(is_chronon_stream, inputs)) or (
        not any(map(is_chronon_stream, inputs)) and len({granule(source) for source in inputs}) == 1
    )


def push_granules_down(plan: Plan) -> Plan | None:
    """Γ(op(S1, S2)) = op(Γ(S1), Γ(S2)) for every operator whose snapshot is that of its inputs at the same instant.

    Not for windows and changes, which depend on other instants, nor for an aggregate without keys, which has a value
    from the first element on and not from the first granule on.
    """
    match plan:
        case Granularity(_, source) if is_per_instant(source):
            return with_sources(source, tuple(replace(plan, source=below) for below in sources(source)))
    return None


def pull_granules_up(plan: Plan) -> Plan | None:
    """op(Γ(S1), Γ(S2)) = Γ(op(S1, S2)) under the same condition, if all inputs have the same granules."""
    if not is_per_instant(plan):
        return None
    inputs = sources(plan)
    granules = [source for source in inputs if isinstance(source, Granularity)]
    if len(granules) < len(inputs) or len({source.granule_us for source in granules}) != 1:
        return None
    return replace(granules[0], source=with_sources(plan, tuple(source.source for source in granules)))

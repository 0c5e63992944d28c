"""EXPLAIN and EXPLAIN WHY: the plans of a query as text."""

from __future__ import annotations

from typing import Final

from strandline.logical.explain import show_plan
from strandline.logical.tree import size
from strandline.planner.estimate import how_much_faster
from strandline.planner.explain_costs import short, show_assumed, show_costs, show_needs
from strandline.planner.explain_costs import size as show_size
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.planner import PlannedQuery
from strandline.planner.unbounded_state import growing_state
from strandline.runtime.checkpoint.identity import indent
from strandline.shedding.load_model import SheddingModel, explain_shedding

LARGE: Final = 400  # nodes of a plan and its expressions; the figures of a larger one would take long
SHOWN: Final = 6  # rejected plans


def explain_query(query: PlannedQuery, cores: int, shedding: float | None = None) -> str:
    """The logical plan as written and as optimised, and the physical plan with what it needs; of the rows of its
    streams the share `shedding` may be dropped."""
    parts = ["logical plan", indent(show_plan(query.logical))]
    if query.optimized != query.logical:
        parts += ["optimised plan", indent(show_plan(query.optimized))]
    parts.append("physical plan")
    if size(query.optimized) > LARGE:
        parts.append(indent(show_pipeline(query.physical)))
    else:
        parts += map(indent, _figures(query, cores, shedding))
    if growing := growing_state(query.optimized):
        parts += ["unbounded state", *map(indent, growing)]
    return "\n".join(parts)


def _figures(query: PlannedQuery, cores: int, shedding: float | None) -> list[str]:
    statistics, prices, limit = query.inputs.statistics, query.inputs.prices, query.inputs.limits.get(query.name)
    faster = how_much_faster(query.physical, statistics, cores, prices)
    parts = [show_costs(query.physical, query.estimates), show_needs(query.estimates, cores, faster)]
    if limit is not None and shedding is not None:
        part = limit / query.cost if query.cost > 0 else 1.0
        parts.append(explain_shedding(SheddingModel(query.optimized, statistics, prices), part, 1.0 - shedding))
    return [*parts, *show_assumed(query.physical, statistics)]


def explain_choice(chosen: PlannedQuery) -> str:
    """The plan that runs, and those that were rejected: what they would cost, and what is different in them."""
    how = f", {chosen.difference}" if chosen.difference else ""
    lines = [f"chosen: {_needs(chosen)}{how}", indent(show_plan(chosen.optimized))]
    rejected = chosen.rejected[:SHOWN]
    if not rejected:
        return "\n".join([*lines, "no other plan was considered: one join order, no applicable rule"])
    table = [(_times(other, chosen), _needs(other), other.difference or "after the rules") for other in rejected]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    lines.append("rejected, cheapest first")
    lines += [f"  {times.rjust(widths[0])}  {needs.ljust(widths[1])}  {words}" for times, needs, words in table]
    return "\n".join([*lines, "cheapest", indent(show_plan(rejected[0].optimized))])


def _needs(query: PlannedQuery) -> str:
    grows = any(step.grows for step in query.estimates.steps.values())
    state = "unbounded state" if grows else f"state of {show_size(query.estimates.bytes)}"
    return f"{short(1000 * query.cost)} ms of CPU per second, {state}"


def _times(query: PlannedQuery, chosen: PlannedQuery) -> str:
    ratio = query.cost / chosen.cost if chosen.cost else 1.0
    return f"{ratio:.2f} times" if ratio < 100 else f"{short(ratio)} times"

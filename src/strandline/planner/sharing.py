"""The plan of a query that is added to a graph that runs: the one that adds least to what the graph costs.

An operator that runs already costs nothing more. So a plan that costs more by itself may be the cheaper one beside
others: a filter above an aggregate over all rows that runs, instead of another aggregate over few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from strandline.core.temporal import Instant
from strandline.planner.physical.plan import Pipeline
from strandline.planner.physical.structure import SharedFragments
from strandline.planner.planner import PlannedQuery

MAX_COST_RATIO: Final = 0.95  # another plan must add less than this part of what the first one adds


class Added(NamedTuple):
    """What a plan adds to a graph: CPU seconds per second; and how many of its operators run already."""

    cost: float
    running: int


def choose_beside(plans: Sequence[PlannedQuery], running: Pipeline, scope: str, since: Instant) -> PlannedQuery:
    """The plan of a query that adds least to a graph: the first one, which is the best alone, unless another takes more
    of what runs and saves enough. Operators are shared that have the scope and count rows from the same instant on."""
    first, *others = plans
    if not others or any(stream.table is not None for stream in first.physical.streams):
        return first  # a table is read apart from what runs
    shared = SharedFragments.of(running)
    alone = what_it_adds(first, shared, scope, since)
    added = [(what_it_adds(other, shared, scope, since), other) for other in others]
    cheaper = [
        (each.cost, number)
        for number, (each, _) in enumerate(added)
        if each.running > alone.running and each.cost < MAX_COST_RATIO * alone.cost
    ]
    return added[min(cheaper)[1]][1] if cheaper else first


def what_it_adds(planned: PlannedQuery, shared: SharedFragments, scope: str, since: Instant) -> Added:
    """What a plan adds to fragments that run. Streams are read in any case."""
    fragments = tuple(replace(fragment, since=since) for fragment in planned.physical.fragments)
    cost, running = 0.0, 0
    for fragment, runs, is_sent in shared.find(replace(planned.physical, fragments=fragments), scope):
        steps = (planned.estimates.steps[f"{fragment.id}.{number}"] for number in range(len(runs)))
        cost += sum(step.cost for step, is_running in zip(steps, runs, strict=True) if not is_running)
        cost += 0.0 if is_sent else planned.estimates.sending[fragment.id].cost
        running += sum(runs) if fragment.stage else 0
    return Added(cost, running)

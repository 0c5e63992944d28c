"""A query in several strategies of stream forms: the plan that users get, and plans with one form at every edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from strandline.apps.bench.generated_streams import bind_over
from strandline.logical.catalog import BaseStream
from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.coalescing import place_coalescing
from strandline.planner.physical.forms import ALL_CHANGES, ALL_INTERVALS, FormStrategy
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.planner import PlanningInputs, plan_query
from strandline.planner.prices import load_prices

FIXED: Final[dict[str, FormStrategy]] = {"changes": ALL_CHANGES, "intervals": ALL_INTERVALS}
DEFAULT: Final = "default"
STRATEGIES: Final = (*FIXED, DEFAULT)
TOLERATED: Final = 1.1  # times as long as the best strategy


class Timed(Protocol):
    """The outcome of a run, with the CPU seconds that it took."""

    @property
    def seconds(self) -> float: ...


Outcome = TypeVar("Outcome", bound=Timed)


def plan_strategies(
    query: str, streams: Sequence[BaseStream], statistics: StatisticsByStream, names: Sequence[str] = STRATEGIES
) -> dict[str, Pipeline]:
    """The pipeline of a query in each strategy, by what was measured of its streams. The logical plan is the same, and
    all give their result as changes, as sinks take it."""
    inputs = PlanningInputs(streams, statistics, load_prices(), 1, changes=frozenset({"q"}))
    planned = plan_query("q", bind_over(query, streams), inputs)
    pipelines = {DEFAULT: planned.physical}
    for name, strategy in FIXED.items():
        pipeline = lower("q", planned.optimized, streams, 1, form="changes", strategy=strategy)
        pipelines[name] = place_coalescing(pipeline, statistics, inputs.prices)
    return {name: pipelines[name] for name in names}


def fastest_runs(
    pipelines: Mapping[str, Pipeline], run: Callable[[Pipeline], Outcome], repeat: int
) -> dict[str, Outcome]:
    """The fastest run of each strategy. Strategies with the same pipeline share their runs, and runs of different ones
    take turns: so what else the machine does concerns all alike."""
    distinct: list[Pipeline] = []
    for pipeline in pipelines.values():
        distinct += [] if pipeline in distinct else [pipeline]
    rounds = [[run(pipeline) for pipeline in distinct] for _ in range(repeat)]
    best = [min(runs, key=lambda outcome: outcome.seconds) for runs in zip(*rounds, strict=True)]
    return {name: best[distinct.index(pipeline)] for name, pipeline in pipelines.items()}


def times_best(runs: Mapping[str, Timed]) -> float:
    """How many times as long as the fastest strategy the default takes."""
    return runs[DEFAULT].seconds / min(outcome.seconds for outcome in runs.values())

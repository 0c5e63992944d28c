"""Ayad and Naughton, *Static Optimization of Conjunctive Queries with Sliding Windows over Infinite Streams*, 2004.

Figure 1 and example 1 are small enough for a table. Figure 6 follows the three plans of example 1 as a join becomes
more expensive. Figures 7 to 10 are an experiment: a thousand random queries over five streams, from the resources that
just suffice down to a hundredth of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from strandline.apps.papers.figure import Figure, FigureLine
from strandline.planner.joins.rates import Floats, JoinCosts, JoinInput, JoinLoad, JoinQuery, Tree
from strandline.planner.joins.search import consider, heuristic, trees
from strandline.planner.joins.shedding import knapsack


class Selection(NamedTuple):
    """Seconds of work per row, and the share of rows that pass."""

    cost: float
    selectivity: float


# Figure 1: two selections on a stream of 1000 rows per second.
RATE: Final = 1000.0
FIRST, SECOND = Selection(cost=0.0005, selectivity=0.25), Selection(cost=0.001, selectivity=0.5)

# Example 1: three streams, windows of 10 rows.
PLANS: Final[dict[str, Tree]] = {"AB first": ((0, 1), 2), "BC first": ((1, 2), 0), "AC first": ((0, 2), 1)}

# Table 2: five streams.
NAMES: Final = "ABCDE"
WINDOWS: Final = (100.0, 300.0, 500.0, 400.0, 1000.0)
SELECTIVITY: Final = {"AB": 0.2, "AC": 0.5, "BD": 0.1, "DE": 0.001}
SLOWEST, FASTEST = 10.0, 1000.0
LEVELS: Final = (100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 1)  # percent of the resources that just suffice


def load(rate: float, selections: Sequence[Selection]) -> float:
    """Seconds of work per second of selections in sequence, eq. (12) to (14)."""
    work = 0.0
    for selection in selections:
        work += rate * selection.cost
        rate *= selection.selectivity
    return work


def figure_1() -> dict[str, float]:
    """The utilisation of both orders."""
    return {
        "plan A: σ1, then σ2": load(RATE, (FIRST, SECOND)),
        "plan B: σ2, then σ1": load(RATE, (SECOND, FIRST)),
    }


def example_1(join_cost: float) -> JoinQuery:
    """Three streams, where a join takes `join_cost` seconds per row that arrives."""
    inputs = tuple(JoinInput(name, rate, rows=10) for name, rate in (("A", 10.0), ("B", 70.0), ("C", 20.0)))
    return JoinQuery(inputs, {frozenset((0, 1)): 0.5, frozenset((1, 2)): 0.2}, JoinCosts(join_cost))


def throughput(plan: str, milliseconds: float) -> float:
    """Results per second of a plan of example 1 with optimal sampling."""
    return consider(example_1(milliseconds / 1000), PLANS[plan]).shedding.output


def utilisation(plan: str, milliseconds: float) -> float:
    """Utilisation of a plan of example 1 without drops; 1 is the whole capacity."""
    return consider(example_1(milliseconds / 1000), PLANS[plan]).load


def figure_6(most: float = 100.0, points: int = 200) -> Figure:
    costs = [most * (number + 1) / points for number in range(points)]
    lines = [FigureLine(plan, [(cost, throughput(plan, cost)) for cost in costs]) for plan in PLANS]
    title = f"Figure 6: throughput of example 1, up to {most:g} ms per row"
    return Figure(title, "cost of a join per row, ms", "results per second", lines)


@dataclass(frozen=True, slots=True)
class Level:
    """The experiment at one level of resources, in percent of those that just suffice; shares and gains of 1."""

    percent: int
    better: float  # share of queries for which a plan beats that of the lowest utilisation
    as_good: float  # the same, counting plans that are level with it
    gain: float
    gain_of_better: float
    highest_gain: float
    error: float  # of the heuristic
    highest_error: float


def random_queries(count: int, seed: int) -> list[JoinQuery]:
    """Queries of table 2 with random rates; a join costs 1 per row, so that resources are rows per second."""
    random = np.random.default_rng(seed)
    pairs = {frozenset(map(NAMES.index, pair)): factor for pair, factor in SELECTIVITY.items()}
    return [
        JoinQuery(
            tuple(JoinInput(n, float(rate), rows=w) for n, rate, w in zip(NAMES, rates, WINDOWS, strict=True)),
            pairs,
            JoinCosts(1.0),
        )
        for rates in random.uniform(SLOWEST, FASTEST, (count, len(NAMES)))
    ]


def experiment(
    count: int = 1000, seed: int = 1, progress: Callable[[int], None] = lambda done: None
) -> Sequence[Level]:
    """Figures 7 to 10, over left-deep plans."""
    plans = list(trees(len(NAMES), "left-deep"))
    gains, errors = np.empty((count, len(LEVELS))), np.empty((count, len(LEVELS)))
    rivals = np.empty((count, len(LEVELS)), np.int64)
    for number, query in enumerate(random_queries(count, seed)):
        costs = np.array([JoinLoad.of(query, plan).linear() for plan in plans])
        lowest = int(costs.sum(axis=1).argmin())
        for at, percent in enumerate(LEVELS):
            capacity = float(costs[lowest].sum()) * percent / 100
            outputs = _outputs(query, costs, capacity)
            best = outputs.max()
            gains[number, at] = best / outputs[lowest] - 1
            rivals[number, at] = int((outputs >= outputs[lowest] * (1 - 1e-9)).sum()) - 1
            errors[number, at] = 1 - heuristic(query, capacity).shedding.output / best
        progress(number + 1)
    return [_level(percent, gains[:, at], rivals[:, at], errors[:, at]) for at, percent in enumerate(LEVELS)]


def _outputs(query: JoinQuery, costs: Floats, capacity: float) -> Floats:
    """Output of each plan within a capacity."""
    per_sampling_rate = query.flows.beta[query.everything]
    whole = np.ones(query.size)
    fits = costs.sum(axis=1) <= capacity * (1 + 1e-12)
    sampling_rates = [
        whole if f else knapsack(per_sampling_rate, c, whole, capacity) for f, c in zip(fits, costs, strict=True)
    ]
    outputs: Floats = np.array(sampling_rates) @ per_sampling_rate
    return outputs


def _level(
    percent: int, gains: Floats, rivals: np.ndarray[tuple[int, ...], np.dtype[np.int64]], errors: Floats
) -> Level:
    better = gains > 1e-9
    return Level(
        percent,
        better=float(better.mean()),
        as_good=float((rivals > 0).mean()),
        gain=float(gains.mean()),
        gain_of_better=float(gains[better].mean()) if better.any() else 0.0,
        highest_gain=float(gains.max()),
        error=max(0.0, float(errors.mean())),
        highest_error=max(0.0, float(errors.max())),
    )


def figures(levels: Sequence[Level]) -> dict[str, Figure]:
    def over_levels(title: str, up: str, lines: Mapping[str, Sequence[float]], logarithmic: bool = False) -> Figure:
        """Lines of shares, in percent, from the most resources to the least."""
        percent = [
            FigureLine(name, [(level.percent, 100 * share) for level, share in zip(levels, shares, strict=True)])
            for name, shares in lines.items()
        ]
        across = "resources, % of those that just suffice"
        return Figure(title, across, up, percent, logarithmic, falling=True)

    return {
        "figure-6": figure_6(),
        "figure-6-near": figure_6(most=6.0),
        "figure-7": over_levels(
            "Figure 7: queries that another plan serves better, or as well",
            "% of queries",
            {"as well or better": [x.as_good for x in levels], "better": [x.better for x in levels]},
        ),
        "figure-8": over_levels(
            "Figure 8: what reoptimization gains", "mean gain, %", {"mean": [x.gain for x in levels]}
        ),
        "figure-9": over_levels(
            "Figure 9: the same for the queries that gain",
            "gain, %",
            {"mean": [x.gain_of_better for x in levels], "highest": [x.highest_gain for x in levels]},
            logarithmic=True,
        ),
        "figure-10": over_levels(
            "Figure 10: how far the heuristic is from the best plan",
            "error, %",
            {"mean": [x.error for x in levels], "highest": [x.highest_error for x in levels]},
        ),
    }

"""Join-order search: the plan with the highest R(p) = output / load, sampling included (eq. 21).

As long as a plan keeps up, all plans have the same output and the cheapest wins. If none does, all use the whole
capacity and the one with the most results wins; that is not always the cheapest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from strandline.planner.joins.rates import Floats, JoinLoad, JoinQuery, Mask, Tree, members, output_rate
from strandline.planner.joins.shedding import SheddingPlan, shed

Shape: TypeAlias = Literal["bushy", "left-deep"]
CLOSELY = 3  # plans
EXHAUSTIVE = 6  # streams; with more of them there are too many plans to cost each


@dataclass(frozen=True, slots=True)
class JoinTreeChoice:
    """A plan, its cost with nothing dropped, and its sampling rates and output within the capacity."""

    tree: Tree
    load: float
    shedding: SheddingPlan

    @property
    def feasible(self) -> bool:
        return self.shedding.whole

    @property
    def worth(self) -> float:
        """R(p) of eq. (21)."""
        return self.shedding.output / self.shedding.load if self.shedding.load else float("inf")


def consider(query: JoinQuery, tree: Tree, capacity: float = 1.0, quick: bool = False) -> JoinTreeChoice:
    return JoinTreeChoice(
        tree, JoinLoad.of(query, tree).at(np.ones(query.size)), shed(query, tree, capacity, quick=quick)
    )


def best_plan(query: JoinQuery, capacity: float = 1.0, shape: Shape = "bushy") -> JoinTreeChoice:
    """The best plan: of all if they are few, else the cheapest if it keeps up, else by the heuristic."""
    if query.size <= EXHAUSTIVE:
        return ranked(query, capacity, shape)[0]
    cheapest = consider(query, cheapest_tree(query, shape), capacity, quick=True)
    if cheapest.feasible:
        return cheapest
    return max((cheapest, heuristic(query, capacity)), key=lambda choice: choice.worth)


def ranked(query: JoinQuery, capacity: float = 1.0, shape: Shape = "bushy") -> list[JoinTreeChoice]:
    """All plans, the best first. Where there are many, only those with the best quick estimate are costed exactly."""
    all_trees = list(trees(query.size, shape))
    quick = len(all_trees) > CLOSELY
    choices = sorted((consider(query, t, capacity, quick) for t in all_trees), key=lambda choice: -choice.worth)
    if quick and query.by_time.any() and not query.by_time.all():
        closely = [consider(query, choice.tree, capacity) for choice in choices[:CLOSELY]]
        choices = sorted((*closely, *choices[CLOSELY:]), key=lambda choice: -choice.worth)
    return choices


def trees(size: int, shape: Shape) -> Iterator[Tree]:
    """All plans of some streams, up to the order of the two sides of a join."""

    def bushy(mask: Mask) -> Iterator[Tree]:
        inside = list(members(mask))
        if len(inside) == 1:
            yield inside[0]
            return
        remaining = mask ^ (1 << inside[0])
        part = remaining
        while part:  # the streams that the first one is not joined with below
            for left in bushy(mask ^ part):
                for right in bushy(part):
                    yield left, right
            part = (part - 1) & remaining

    def deep(mask: Mask) -> Iterator[Tree]:
        inside = list(members(mask))
        if len(inside) == 1:
            yield inside[0]
        elif len(inside) == 2:
            yield inside[0], inside[1]
        else:
            for last in inside:
                for left in deep(mask ^ (1 << last)):
                    yield left, last

    every = (1 << size) - 1
    yield from bushy(every) if shape == "bushy" else deep(every)


def cheapest_tree(query: JoinQuery, shape: Shape = "bushy") -> Tree:
    """The plan of the smallest load with nothing dropped."""
    return _cheapest(query, shape)[query.everything][1]


def last_joins(query: JoinQuery) -> list[tuple[float, Tree]]:
    """Cheapest plan for each division of the streams among the two sides of the last join; cheapest first."""
    best = _cheapest(query, "bushy")
    candidates = [
        (best[left][0] + best[right][0] + _own_cost(query, left, right), (best[left][1], best[right][1]))
        for left, right in _halves(query.everything, "bushy")
    ]
    return sorted(candidates, key=lambda item: item[0])


def _own_cost(query: JoinQuery, left: Mask, right: Mask) -> float:
    """Cost of the join of two sets alone."""
    rate, costs = query.flows.rate, query.costs
    cost = costs.arrival * float(rate[left] + rate[right]) + costs.result * float(rate[left | right])
    if costs.pair and not query.has_key(left, right) and (factor := query.factor(left, right)):
        cost += costs.pair / factor * float(rate[left | right])
    return cost


def _cheapest(query: JoinQuery, shape: Shape) -> dict[Mask, tuple[float, Tree]]:
    """Cheapest plan of every set of streams, by dynamic programming: the load is a sum over joins, and the output rate
    of a set does not depend on the plan."""
    best: dict[Mask, tuple[float, Tree]] = {1 << i: (0.0, i) for i in range(query.size)}
    for mask in sorted(range(1, 1 << query.size), key=int.bit_count):
        if mask.bit_count() < 2:
            continue
        cheapest: tuple[float, Tree] | None = None
        for left, right in _halves(mask, shape):
            cost = best[left][0] + best[right][0] + _own_cost(query, left, right)
            if cheapest is None or cost < cheapest[0]:
                cheapest = cost, (best[left][1], best[right][1])
        assert cheapest is not None, "a set of two or more has two halves"
        best[mask] = cheapest
    return best


def _halves(mask: Mask, shape: Shape) -> Iterator[tuple[Mask, Mask]]:
    if shape == "left-deep":
        for last in members(mask):
            yield mask ^ (1 << last), 1 << last
        return
    first = mask & -mask
    remaining = mask ^ first
    part = remaining
    while part:
        yield mask ^ part, part
        part = (part - 1) & remaining


def heuristic(query: JoinQuery, capacity: float = 1.0) -> JoinTreeChoice:
    """A left-deep plan by the dynamic programming of section 5.2.

    The best plan of each set is kept with the sampling rates that make it feasible; they are filters from then on, and
    further sampling of the same stream multiplies. So it drops as late as it can and may miss the best plan.
    """
    best: dict[Mask, tuple[Tree, Floats]] = {1 << i: (i, np.ones(query.size)) for i in range(query.size)}
    for mask in sorted(range(1, 1 << query.size), key=int.bit_count):
        if mask.bit_count() < 2:
            continue
        choice: tuple[float, Tree, Floats] | None = None
        for left, right in _halves(mask, "left-deep"):
            joined = best[left][0], best[right][0]
            settings = shed(query, joined, capacity, most=best[left][1], quick=True)
            worth = settings.output / settings.load if settings.load else float("inf")
            if choice is None or worth > choice[0]:
                choice = worth, joined, settings.sampling_rates
        assert choice is not None, "a set of two or more has a last stream"
        best[mask] = choice[1], choice[2]
    tree, sampling_rates = best[query.everything]
    load = JoinLoad.of(query, tree)
    if query.by_time.any() and not query.by_time.all():
        return consider(query, tree, capacity)  # the quick estimate was used until here
    settled = SheddingPlan(
        sampling_rates, load.at(sampling_rates), output_rate(query, query.everything, sampling_rates)
    )
    return JoinTreeChoice(tree, load.at(np.ones(query.size)), settled)

"""Join-order search: the plan with the highest R(p) = output / load, sampling included (eq. 21).

As long as a plan keeps up, all plans have the same output and the cheapest wins. If none does, all use the whole
capacity and the one with the most results wins; that is not always the cheapest one. Only plans with the fewest
products are compared (`connections.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from strandline.planner.joins.connections import NO_PRODUCTS, Connections, Products, add_products
from strandline.planner.joins.rates import Floats, JoinLoad, JoinQuery, Mask, Tree, members, output_rate
from strandline.planner.joins.shedding import SheddingPlan, shed

Shape: TypeAlias = Literal["bushy", "left-deep"]
MAX_EXACT_PLANS = 3  # plans that are costed exactly
EXHAUSTIVE = 6  # streams; with more of them there are too many plans to cost each
UNCONNECTED = Connections()  # all plans have the same products


@dataclass(frozen=True, slots=True)
class JoinTreeChoice:
    """A plan, its cost with nothing dropped, and its sampling rates and output within the capacity."""

    tree: Tree
    load: float
    shedding: SheddingPlan


def consider(query: JoinQuery, tree: Tree, capacity: float = 1.0, quick: bool = False) -> JoinTreeChoice:
    return JoinTreeChoice(
        tree, JoinLoad.of(query, tree).at(np.ones(query.size)), shed(query, tree, capacity, quick=quick)
    )


def best_plan(query: JoinQuery, capacity: float = 1.0, edges: Connections = UNCONNECTED) -> JoinTreeChoice:
    """The best plan: of all if they are few, else the cheapest if it keeps up, else by the heuristic."""
    if query.size <= EXHAUSTIVE:
        return ranked(query, capacity, edges)[0]
    cheapest = consider(query, cheapest_tree(query, edges), capacity, quick=True)
    if cheapest.shedding.whole:
        return cheapest
    by_heuristic = heuristic(query, capacity, edges)
    if edges.products_of(cheapest.tree) < edges.products_of(by_heuristic.tree):
        return cheapest
    return max((cheapest, by_heuristic), key=lambda choice: choice.shedding.worth)


def ranked(query: JoinQuery, capacity: float = 1.0, edges: Connections = UNCONNECTED) -> list[JoinTreeChoice]:
    """The plans with the fewest products, the best first. Where there are many, only those with the best quick estimate
    are costed exactly."""
    all_trees = list(trees(query.size, "bushy"))
    products = [edges.products_of(tree) for tree in all_trees]
    all_trees = [tree for tree, own in zip(all_trees, products, strict=True) if own == min(products)]
    quick = len(all_trees) > MAX_EXACT_PLANS
    choices = sorted(
        (consider(query, t, capacity, quick) for t in all_trees), key=lambda choice: -choice.shedding.worth
    )
    if quick and query.by_time.any() and not query.by_time.all():
        exact = [consider(query, choice.tree, capacity) for choice in choices[:MAX_EXACT_PLANS]]
        choices = sorted((*exact, *choices[MAX_EXACT_PLANS:]), key=lambda choice: -choice.shedding.worth)
    return choices


def trees(size: int, shape: Shape) -> Iterator[Tree]:
    """All plans of some streams, up to the order of the two sides of a join."""

    def bushy(mask: Mask) -> Iterator[Tree]:
        if mask.bit_count() == 1:
            yield from members(mask)
        for one, two in _halves(mask):
            for left in bushy(one):
                for right in bushy(two):
                    yield left, right

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


def cheapest_tree(query: JoinQuery, edges: Connections = UNCONNECTED) -> Tree:
    """The plan of the smallest load with nothing dropped."""
    return _cheapest(query, edges)[query.everything].tree


def last_joins(query: JoinQuery, edges: Connections = UNCONNECTED) -> list[tuple[float, Tree]]:
    """Cheapest plan for each division of the streams among the two sides of the last join; cheapest first."""
    plans = sorted(_last_joins(query, query.everything, _cheapest(query, edges), edges), key=_Subplan.rank)
    return [(plan.cost, plan.tree) for plan in plans if plan.products == plans[0].products]


@dataclass(frozen=True, slots=True)
class _Subplan:
    """A plan of a set of streams."""

    products: Products
    cost: float
    tree: Tree

    def rank(self) -> tuple[Products, float]:
        return self.products, self.cost


def _last_joins(query: JoinQuery, mask: Mask, best: dict[Mask, _Subplan], edges: Connections) -> Iterator[_Subplan]:
    """The plan of a set for each division of it, given the best plans of its parts."""
    for left, right in _halves(mask):
        one, two = best[left], best[right]
        products = add_products((one.products, two.products, edges.products(left, right)))
        yield _Subplan(products, one.cost + two.cost + _own_cost(query, left, right), (one.tree, two.tree))


def _own_cost(query: JoinQuery, left: Mask, right: Mask) -> float:
    """Cost of the join of two sets alone."""
    rate, costs = query.flows.rate, query.costs
    cost = costs.arrival * float(rate[left] + rate[right]) + costs.result * float(rate[left | right])
    if costs.pair and not query.has_key(left, right) and (factor := query.factor(left, right)):
        cost += costs.pair / factor * float(rate[left | right])
    return cost


def _cheapest(query: JoinQuery, edges: Connections) -> dict[Mask, _Subplan]:
    """Best plan of every set of streams, by dynamic programming: products and load are sums over joins, and the output
    rate of a set does not depend on the plan."""
    best = {1 << i: _Subplan(NO_PRODUCTS, 0.0, i) for i in range(query.size)}
    for mask in sorted(range(1, 1 << query.size), key=int.bit_count):
        if mask.bit_count() > 1:
            best[mask] = min(_last_joins(query, mask, best, edges), key=_Subplan.rank)
    return best


def _halves(mask: Mask) -> Iterator[tuple[Mask, Mask]]:
    """All divisions of a set in two, up to the order of the two."""
    remaining = mask & (mask - 1)  # without the first one, which is always in the first half
    part = remaining
    while part:
        yield mask ^ part, part
        part = (part - 1) & remaining


def heuristic(query: JoinQuery, capacity: float = 1.0, edges: Connections = UNCONNECTED) -> JoinTreeChoice:
    """A left-deep plan by the dynamic programming of section 5.2.

    The best plan of each set is kept with the sampling rates that make it feasible; they are filters from then on, and
    further sampling of the same stream multiplies. So it drops as late as it can and may miss the best plan.
    """
    best: dict[Mask, tuple[Tree, Floats]] = {1 << i: (i, np.ones(query.size)) for i in range(query.size)}
    for mask in sorted(range(1, 1 << query.size), key=int.bit_count):
        if mask.bit_count() < 2:
            continue
        options: list[tuple[Tree, SheddingPlan]] = []
        for last in members(mask):
            left, most = best[mask ^ (1 << last)]
            options.append(((left, last), shed(query, (left, last), capacity, most=most, quick=True)))
        fewest = min(edges.products_of(tree) for tree, _ in options)
        options = [option for option in options if edges.products_of(option[0]) == fewest]
        tree, settings = max(options, key=lambda option: option[1].worth)
        best[mask] = tree, settings.sampling_rates
    tree, sampling_rates = best[query.everything]
    load = JoinLoad.of(query, tree)
    if query.by_time.any() and not query.by_time.all():
        return consider(query, tree, capacity)  # the quick estimate was used until here
    settled = SheddingPlan(
        sampling_rates, load.at(sampling_rates), output_rate(query, query.everything, sampling_rates)
    )
    return JoinTreeChoice(tree, load.at(np.ones(query.size)), settled)

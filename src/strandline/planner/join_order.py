"""Join ordering by rates, windows and selectivities.

A cluster is a tree of joins and nothing else. Joins commute and associate at every instant, so any tree over its inputs
gives the same snapshots, if every condition stands where the columns that it reads have come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from strandline.logical.expressions import Call, Expression, columns_of, conjunction, conjuncts
from strandline.logical.plan import CountWindow, Filter, Join, Map, Plan, Scan
from strandline.logical.schema import column_ids, pass_on, schema
from strandline.logical.tree import sources, walk, with_sources
from strandline.planner.cardinality import StatisticsByStream, StreamProfile, characteristics, selectivity
from strandline.planner.joins.rates import JoinInput, JoinLoad, JoinQuery, Tree
from strandline.planner.joins.search import best_plan, cheapest_tree, last_joins
from strandline.planner.prices import Prices, load_prices

MAX_INPUTS: Final = 10  # inputs; with more of them the search costs more than it gains, and the written order stays
# Seconds per row on its way to a join, in Spark and apart from the operators: `bench shedding`.
EXCHANGE: Final = 0.7e-6
MIN_IMPROVEMENT: Final = 0.95  # a plan that differs from the text must cost less than this part of it


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """The inputs of some joins, their conditions, and the order that the text has."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Expression, ...]
    tree: Tree


def order_joins(
    plan: Plan, statistics: StatisticsByStream, capacity: float | None = None, prices: Prices | None = None
) -> Plan:
    """The same snapshots, with each cluster of joins in its best order: the cheapest, or the one that leaves the most
    results where rows may be dropped to stay within a capacity."""
    if isinstance(plan, Join):
        cluster = cluster_of(plan)
        inputs = tuple(order_joins(source, statistics, capacity, prices) for source in cluster.inputs)
        cluster = replace(cluster, inputs=inputs)
        tree = _best(cluster, statistics, capacity, prices) if 2 < len(inputs) <= MAX_INPUTS else cluster.tree
        return in_order(rebuilt(cluster, tree), plan)
    return with_sources(plan, tuple(order_joins(source, statistics, capacity, prices) for source in sources(plan)))


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """A plan with one of its clusters in another order, described by `words`."""

    words: str
    plan: Plan


def other_orders(
    plan: Plan, statistics: StatisticsByStream, limit: int, prices: Prices | None = None
) -> list[JoinOrder]:
    """The plan with each cluster of joins in its next best orders, the others as they are."""
    orders: list[JoinOrder] = []
    if isinstance(plan, Join):
        cluster = cluster_of(plan)
        if 2 < len(cluster.inputs) <= MAX_INPUTS:
            with np.errstate(all="ignore"):
                ways = last_joins(join_query(cluster, statistics, prices))
            for _, tree in ways[: limit + 1]:
                if tree != cluster.tree:
                    orders.append(JoinOrder(show_order(cluster, tree), in_order(rebuilt(cluster, tree), plan)))
    inputs = cluster_of(plan).inputs if isinstance(plan, Join) else sources(plan)
    for position, source in enumerate(inputs):
        for order in other_orders(source, statistics, limit, prices):
            others = (*inputs[:position], order.plan, *inputs[position + 1 :])
            orders.append(JoinOrder(order.words, _with_inputs(plan, others)))
    return orders


def _with_inputs(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """A node over other inputs, or a cluster of joins in the same order."""
    if not isinstance(plan, Join):
        return with_sources(plan, inputs)
    cluster = cluster_of(plan)
    return in_order(rebuilt(replace(cluster, inputs=inputs), cluster.tree), plan)


def show_order(cluster: JoinGraph, tree: Tree) -> str:
    """The join order as nested names of the text."""
    if isinstance(tree, int):
        scans = [node.alias for node in walk(cluster.inputs[tree]) if isinstance(node, Scan)]
        return scans[0] if len(scans) == 1 else f"[{', '.join(scans)}]"
    shown = [show_order(cluster, side) for side in tree]
    return " ⋈ ".join(text if isinstance(side, int) else f"({text})" for side, text in zip(tree, shown, strict=True))


def cluster_of(plan: Join) -> JoinGraph:
    inputs: list[Plan] = []
    conditions: list[Expression] = []

    def visit(node: Plan) -> Tree:
        if not isinstance(node, Join):
            inputs.append(node)
            return len(inputs) - 1
        conditions.extend(conjuncts(node.predicate))
        return visit(node.left), visit(node.right)

    tree = visit(plan)
    return JoinGraph(tuple(inputs), tuple(conditions), tree)


def _best(cluster: JoinGraph, statistics: StatisticsByStream, capacity: float | None, prices: Prices | None) -> Tree:
    query = join_query(cluster, statistics, prices)
    whole = np.ones(query.size)
    # Unbounded windows multiply: where the estimate overflows, nothing is gained, and the written order stays.
    with np.errstate(all="ignore"):
        best = cheapest_tree(query)
        cost, textual = (JoinLoad.of(query, tree).at(whole) for tree in (best, cluster.tree))
        if capacity is not None and capacity < cost < np.inf:
            return best_plan(query, capacity).tree
    return best if cost < MIN_IMPROVEMENT * textual else cluster.tree


def join_query(cluster: JoinGraph, statistics: StatisticsByStream, prices: Prices | None = None) -> JoinQuery:
    """The cluster as the model sees it, at these prices, or at those of this machine."""
    flows = [characteristics(source, statistics) for source in cluster.inputs]
    owners = [column_ids(source) for source in cluster.inputs]
    selectivities: dict[frozenset[int], float] = {}
    keyed: set[frozenset[int]] = set()
    for part in cluster.conditions:
        sides = frozenset(number for number, own in enumerate(owners) if own & columns_of(part))
        if len(sides) != 2:
            continue
        one, two = (flows[number] for number in sorted(sides))
        both = StreamProfile(1.0, float("inf"), values={**one.values, **two.values})
        selectivities[sides] = selectivities.get(sides, 1.0) * selectivity(part, both)
        if isinstance(part, Call) and part.function == "=" and _divides(part, owners):
            keyed.add(sides)
    inputs = tuple(map(_input, cluster.inputs, flows, map(str, range(len(flows)))))
    costs = (prices or load_prices()).joins
    costs = replace(costs, arrival=costs.arrival + EXCHANGE)
    return JoinQuery(inputs, selectivities, costs, frozenset(keyed))


def _divides(part: Call, owners: Sequence[frozenset[str]]) -> bool:
    """True if each side of an equality reads one input."""
    return all(any(columns_of(side) <= own for own in owners) for side in part.arguments)


def _input(plan: Plan, flow: StreamProfile, name: str) -> JoinInput:
    while isinstance(plan, Filter | Map):
        plan = plan.source
    if isinstance(plan, CountWindow):
        return JoinInput(name, flow.rate, rows=flow.valid)
    return JoinInput(name, flow.rate, seconds=flow.length)


def rebuilt(cluster: JoinGraph, tree: Tree) -> Plan:
    """The cluster joined in the order of a tree, every condition as early as it can be."""
    waiting = list(cluster.conditions)

    def build(node: Tree) -> Plan:
        if isinstance(node, int):
            return cluster.inputs[node]
        left, right = build(node[0]), build(node[1])
        columns = column_ids(left, right)
        ready = [part for part in waiting if columns_of(part) <= columns]
        waiting[:] = [part for part in waiting if part not in ready]
        return Join(conjunction(ready), left, right)

    return build(tree)


def in_order(plan: Plan, before: Plan) -> Plan:
    """The columns in their original order: operators above may refer to positions."""
    return plan if schema(plan) == schema(before) else Map(pass_on(schema(before)), plan)

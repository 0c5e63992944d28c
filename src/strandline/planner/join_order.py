"""Join ordering by rates, windows and selectivities.

A join graph is a tree of joins and nothing else. Joins commute and associate at every instant, so any tree over its
inputs gives the same snapshots, if every condition stands where the columns that it reads have come together.
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
from strandline.planner.cardinality import StatisticsByStream, StreamProfile, estimate_profile, selectivity
from strandline.planner.joins.connections import Connections
from strandline.planner.joins.rates import JoinInput, JoinLoad, JoinQuery, Tree
from strandline.planner.joins.search import best_plan, cheapest_tree, last_joins
from strandline.planner.prices import Prices, load_prices

MAX_INPUTS: Final = (
    10  # inputs; with more of them the search costs more than it gains, and the order is written or connected
)
# Seconds per row on its way to a join, in Spark and apart from the operators: `bench shedding`.
EXCHANGE: Final = 0.7e-6
MAX_COST_RATIO: Final = 0.95  # a plan that differs from the text must cost less than this part of it


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """The inputs of some joins, their conditions, and the order that the text has."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Expression, ...]
    tree: Tree


def order_joins(
    plan: Plan, statistics: StatisticsByStream, capacity: float | None = None, prices: Prices | None = None
) -> Plan:
    """The same snapshots, with each join graph in its best order: the cheapest, or the one that leaves the most
    results where rows may be dropped to stay within a capacity."""
    if isinstance(plan, Join):
        graph = join_graph_of(plan)
        inputs = tuple(order_joins(source, statistics, capacity, prices) for source in graph.inputs)
        graph = replace(graph, inputs=inputs)
        return in_order(rebuilt(graph, _best(graph, statistics, capacity, prices)), plan)
    return with_sources(plan, tuple(order_joins(source, statistics, capacity, prices) for source in sources(plan)))


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """A plan with one of its join graphs in another order, described by `words`."""

    words: str
    plan: Plan


def other_orders(
    plan: Plan, statistics: StatisticsByStream, limit: int, prices: Prices | None = None
) -> list[JoinOrder]:
    """The plan with each join graph in its next best orders, the others as they are."""
    orders: list[JoinOrder] = []
    if isinstance(plan, Join):
        graph = join_graph_of(plan)
        if 2 < len(graph.inputs) <= MAX_INPUTS:
            with np.errstate(all="ignore"):
                ways = last_joins(join_query(graph, statistics, prices), connections(graph))
            for _, tree in ways[: limit + 1]:
                if tree != graph.tree:
                    orders.append(JoinOrder(show_order(graph, tree), in_order(rebuilt(graph, tree), plan)))
    inputs = join_graph_of(plan).inputs if isinstance(plan, Join) else sources(plan)
    for position, source in enumerate(inputs):
        for order in other_orders(source, statistics, limit, prices):
            others = (*inputs[:position], order.plan, *inputs[position + 1 :])
            orders.append(JoinOrder(order.words, _with_inputs(plan, others)))
    return orders


def _with_inputs(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """A node over other inputs, or a join graph in the same order."""
    if not isinstance(plan, Join):
        return with_sources(plan, inputs)
    graph = join_graph_of(plan)
    return in_order(rebuilt(replace(graph, inputs=inputs), graph.tree), plan)


def show_order(graph: JoinGraph, tree: Tree) -> str:
    """The join order as nested names of the text."""
    if isinstance(tree, int):
        scans = [node.alias for node in walk(graph.inputs[tree]) if isinstance(node, Scan)]
        return scans[0] if len(scans) == 1 else f"[{', '.join(scans)}]"
    shown = [show_order(graph, side) for side in tree]
    return " ⋈ ".join(text if isinstance(side, int) else f"({text})" for side, text in zip(tree, shown, strict=True))


def join_graph_of(plan: Join) -> JoinGraph:
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


def _best(graph: JoinGraph, statistics: StatisticsByStream, capacity: float | None, prices: Prices | None) -> Tree:
    if len(graph.inputs) <= 2:
        return graph.tree
    edges = connections(graph)
    if len(graph.inputs) > MAX_INPUTS:
        connected = edges.connected_tree(graph.tree)
        return connected if edges.products_of(connected) < edges.products_of(graph.tree) else graph.tree
    query = join_query(graph, statistics, prices)
    whole = np.ones(query.size)
    # Unbounded windows multiply: where the estimate overflows, nothing is gained, and the written order stays.
    with np.errstate(all="ignore"):
        best = cheapest_tree(query, edges)
        cost, textual = (JoinLoad.of(query, tree).at(whole) for tree in (best, graph.tree))
        if capacity is not None and capacity < cost < np.inf:
            return best_plan(query, capacity, edges).tree
    if edges.products_of(best) < edges.products_of(graph.tree):
        return best
    return best if cost < MAX_COST_RATIO * textual else graph.tree


def connections(graph: JoinGraph) -> Connections:
    """The inputs that conditions connect."""
    owners = [column_ids(source) for source in graph.inputs]

    def mask_of(part: Expression) -> int:
        return sum(1 << number for number, own in enumerate(owners) if own & columns_of(part))

    keys: list[tuple[int, int]] = []
    for part in graph.conditions:
        if isinstance(part, Call) and part.function == "=":
            one, two = map(mask_of, part.arguments)
            if one and two and not one & two:
                keys.append((one, two))
    conditions = {mask for part in graph.conditions if (mask := mask_of(part)).bit_count() > 1}
    return Connections(tuple(keys), tuple(sorted(conditions)))


def join_query(graph: JoinGraph, statistics: StatisticsByStream, prices: Prices | None = None) -> JoinQuery:
    """The join graph as the model sees it, at these prices, or at those of this machine."""
    flows = [estimate_profile(source, statistics) for source in graph.inputs]
    owners = [column_ids(source) for source in graph.inputs]
    selectivities: dict[frozenset[int], float] = {}
    keyed: set[frozenset[int]] = set()
    for part in graph.conditions:
        sides = frozenset(number for number, own in enumerate(owners) if own & columns_of(part))
        if len(sides) != 2:
            continue
        one, two = (flows[number] for number in sorted(sides))
        both = StreamProfile(1.0, float("inf"), values={**one.values, **two.values})
        selectivities[sides] = selectivities.get(sides, 1.0) * selectivity(part, both)
        if isinstance(part, Call) and part.function == "=" and _divides(part, owners):
            keyed.add(sides)
    inputs = tuple(map(_input, graph.inputs, flows, map(str, range(len(flows)))))
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


def rebuilt(graph: JoinGraph, tree: Tree) -> Plan:
    """The inputs joined in the order of a tree, every condition as early as it can be."""
    waiting = list(graph.conditions)

    def build(node: Tree) -> Plan:
        if isinstance(node, int):
            return graph.inputs[node]
        left, right = build(node[0]), build(node[1])
        columns = column_ids(left, right)
        ready = [part for part in waiting if columns_of(part) <= columns]
        waiting[:] = [part for part in waiting if part not in ready]
        return Join(conjunction(ready), left, right)

    return build(tree)


def in_order(plan: Plan, before: Plan) -> Plan:
    """The columns in their original order: operators above may refer to positions."""
    return plan if schema(plan) == schema(before) else Map(pass_on(schema(before)), plan)

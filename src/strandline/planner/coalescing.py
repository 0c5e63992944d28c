"""Placement of coalescing within plans, by cost (sections 11.7.2 and 12.2 of Krämer's thesis).

Coalesce leaves snapshots as they are, so it commutes with every snapshot-reducible operator (lemma 12.1). Windows,
window functions and look-ups are none: they read when elements begin, and two equal rows of neighbouring instants are
two. So any edge may have one, except below these. It pays where many neighbours are equal and the operators above do
much work for an element: above a MIN or MAX, which few rows change, and where the values of an aggregate are left out
after a filter has read them, as in HAVING.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from strandline.logical.expressions import columns_of
from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.estimate import estimate
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, Pipeline, numbered, sources, with_sources
from strandline.planner.physical.structure import operator_ids
from strandline.planner.prices import Prices

# What a sink and its readers do with a result is not part of other estimates, since all plans have the same results
# there. Here they have not. A row of a Parquet file takes about as long, a row of an SQL table many times longer.
DELIVERY_SECONDS: Final = 5e-7


def place_coalescing(pipeline: Pipeline, statistics: StatisticsByStream, prices: Prices) -> Pipeline:
    """The pipeline with coalescing wherever it costs less than the elements that it saves."""
    if not (sites := _all_sites(pipeline)):
        return pipeline
    cost = cost_with_sinks(pipeline, statistics, prices)
    for number, node in sites:
        other = _with_replaced(pipeline, number, node, _coalesced(node))
        other_cost = cost_with_sinks(other, statistics, prices)
        if other_cost < cost:
            pipeline, cost = other, other_cost
    return pipeline


def cost_with_sinks(
    pipeline: Pipeline, statistics: StatisticsByStream, prices: Prices, batch_seconds: float | None = None
) -> float:
    """CPU seconds per second, with those of sinks and readers for the rows of results."""
    estimates = estimate(pipeline, statistics, batch_seconds, prices)
    results = [fragment.id for fragment in pipeline.fragments if isinstance(fragment.route, physical.ResultOf)]
    return estimates.cost + sum(estimates.sending[fragment].rate_out for fragment in results) * DELIVERY_SECONDS


def coalesce_everywhere(pipeline: Pipeline) -> Pipeline:
    """The pipeline with coalescing wherever neighbours may be equal."""
    for number, node in _all_sites(pipeline):
        pipeline = _with_replaced(pipeline, number, node, _coalesced(node))
    return pipeline


def _all_sites(pipeline: Pipeline) -> list[tuple[int, Node]]:
    found: list[list[tuple[int, Node]]] = []
    ports: set[str] = set()  # of fragments whose rows are instants
    for number, fragment in reversed(list(enumerate(pipeline.fragments))):  # those that read others come first
        route = fragment.route
        instants: set[Node] = set()
        _add_instants(fragment.root, isinstance(route, physical.ExchangeTo) and route.port in ports, instants)
        ports |= {node.name for node in instants if isinstance(node, physical.Input)}
        found.append([(number, node) for node in _sites(fragment.root) if node not in instants])
    return [site for sites in reversed(found) for site in sites]


def _add_instants(node: Node, is_read: bool, found: set[Node]) -> None:
    """Find the nodes below one, and with `is_read` itself, of which operators above read when their elements begin."""
    if is_read:
        found.add(node)
    match node:
        case physical.LookupJoin():
            _add_instants(node.left, True, found)
            _add_instants(node.right, False, found)
            return
        case physical.ChangeStream() | physical.InsertStream():
            is_read = False
        case _ if isinstance(node, _READS_INSTANTS):
            is_read = True
    for source in sources(node):
        _add_instants(source, is_read, found)


_READS_INSTANTS: Final = (
    physical.TimeWindow,
    physical.CountWindow,
    physical.SessionWindow,
    physical.OverRange,
    physical.OverRows,
    physical.TopKPrefilter,
)


def _sites(root: Node) -> Iterator[Node]:
    """Where neighbours may be equal, from the top down: a node that is replaced keeps those below it as they are."""
    for node in reversed(numbered(root)):
        match node:
            case physical.IncrementalAggregate(_, aggregates, _, _, _, False) if aggregates:
                if all(call.function in ("min", "max") for _, call in aggregates):
                    yield node
            case physical.Project(_, source) if node != root and _leaves_out_values(node, source):
                yield node


def _leaves_out_values(node: physical.Project, source: Node) -> bool:
    """True if a projection has no column that depends on an aggregate which a filter below it has read."""
    if not isinstance(source, physical.Filter):
        return False
    below = source.source
    if not isinstance(below, physical.IncrementalAggregate) or below.form == "changes" or not below.keys:
        return False
    values = {column.id for column, _ in below.aggregates}
    return not any(values & columns_of(expression) for _, expression in node.outputs)


def _coalesced(node: Node) -> Node:
    return replace(node, coalesces=True) if isinstance(node, physical.IncrementalAggregate) else physical.Coalesce(node)


def _with_replaced(pipeline: Pipeline, number: int, old: Node, new: Node) -> Pipeline:
    fragment = pipeline.fragments[number]
    root = _replaced(fragment.root, old, new)
    changed = replace(fragment, root=root, operators=operator_ids(root, fragment.id))
    fragments = (*pipeline.fragments[:number], changed, *pipeline.fragments[number + 1 :])
    return replace(pipeline, fragments=fragments)


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return new
    inputs = sources(node)
    changed = tuple(_replaced(source, old, new) for source in inputs)
    return node if changed == inputs else with_sources(node, changed)

"""Operator graph of a pipeline in words: small enough for a file of the checkpoint, and readable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from strandline.core.identity_cache import cached_by_identity, cached_by_identity_of_parts
from strandline.planner.physical import plan as physical
from strandline.planner.physical.edges import describe_edges
from strandline.planner.physical.operators import show_node, show_state
from strandline.planner.physical.plan import Fragment, Node, Pipeline, operators_of

SOURCE = "source:"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operator: its kind, its description, and its inputs: other steps, or streams (`source:name`).

    `fragment` and `number` locate its counters. `state` names the structures in which it keeps rows, `match` is the
    kind of a join: inner, left, full, semi, anti or mark.
    """

    fragment: str
    number: int
    kind: str
    text: str
    inputs: tuple[str, ...]
    state: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """What leaves a step or a stream: the form of its elements, and their update pattern."""

    form: str
    pattern: str


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """The steps by name, what leaves each of them and each stream, and for each query the steps that output its result
    and the streams that it reads."""

    steps: Mapping[str, GraphNode]
    edges: Mapping[str, GraphEdge]
    results: Mapping[str, tuple[str, ...]]
    streams: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OperatorGraph:
        steps = {name: GraphNode(**{**step, "inputs": tuple(step["inputs"])}) for name, step in data["steps"].items()}
        edges = {name: GraphEdge(**edge) for name, edge in data.get("edges", {}).items()}
        results = {query: tuple(names) for query, names in data["results"].items()}
        return OperatorGraph(steps, edges, results, {query: tuple(names) for query, names in data["streams"].items()})


@cached_by_identity  # each of a hundred queries asks for it again and again
def build_operator_graph(pipeline: Pipeline) -> OperatorGraph:
    """The graph of a pipeline; exchanges are left out, since nothing is lost in them."""
    feeders = {f.route.port: f for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}

    def name_of(fragment: Fragment, source: physical.Input | int) -> str:
        if isinstance(source, int):
            return f"{fragment.id}.{source}"
        return source.name if source.name.startswith(SOURCE) else sender_of(feeders[source.name])

    def sender_of(fragment: Fragment) -> str:
        root = fragment.root
        return name_of(fragment, root if isinstance(root, physical.Input) else len(operators_of(root)) - 1)

    steps: dict[str, GraphNode] = {}
    results: dict[str, tuple[str, ...]] = {query.name: () for query in pipeline.queries}
    for fragment in pipeline.fragments:
        for number, (node, below) in enumerate(operators_of(fragment.root)):
            inputs = tuple(name_of(fragment, source) for source in below)
            text, state, match = _describe(node)
            steps[f"{fragment.id}.{number}"] = GraphNode(fragment.id, number, node.tag, text, inputs, state, match)
        if isinstance(fragment.route, physical.ResultOf):
            results[fragment.route.query] += (sender_of(fragment),)
    described = describe_edges(pipeline)
    edges = {name: GraphEdge(edge.form, edge.pattern.value) for name, edge in described.items()}
    streams = {query.name: tuple(sorted(query.streams)) for query in pipeline.queries}
    return OperatorGraph(steps, edges, results, streams)


@cached_by_identity_of_parts  # most operators are in the next version of a graph, too
def _describe(node: Node) -> tuple[str, str, str]:
    """An operator in words, its state, and the kind of a join."""
    return show_node(node, {}), show_state(node), _match_kind(node)


def _match_kind(node: Node) -> str:
    if isinstance(node, physical.OuterHashJoin | physical.LookupJoin):
        return node.kind
    return "inner" if isinstance(node, physical.HashJoin | physical.SharedWindowJoin) else ""

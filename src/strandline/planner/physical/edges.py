"""The edges of a physical plan: the form in which each carries elements, and its update pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.logical.catalog import BaseStream
from strandline.planner.physical import plan as physical
from strandline.planner.physical.operators import derive_lifetimes
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, operators_of
from strandline.planner.physical.update_pattern import INSTANTS, KNOWN, UNKNOWN, Lifetimes, UpdatePattern

# They treat every row by itself, so they send the form that they get.
_PASSES_FORM_ON = (
    physical.Filter,
    physical.Project,
    physical.Unnest,
    physical.Repeat,
    physical.UnionAll,
    physical.Exchange,
)


@dataclass(frozen=True, slots=True)
class Edge:
    """What an operator, or a stream, sends."""

    lifetimes: Lifetimes
    form: StreamForm = "intervals"

    @property
    def pattern(self) -> UpdatePattern:
        return self.lifetimes.pattern

    def __str__(self) -> str:
        return self.pattern.value + ("±" if self.form == "changes" else "")


def describe_edges(pipeline: Pipeline) -> dict[str, Edge]:
    """The edges of a plan by where they begin: an operator (`f1.0`), a stream that is read (`source:name`), or a
    fragment that sends its output on (`f1`)."""
    edges = {f"source:{stream.name}": _describe_source(stream) for stream in pipeline.streams}
    by_port = dict(edges)
    for fragment in pipeline.fragments:
        described: list[Edge] = []
        for number, (node, inputs) in enumerate(operators_of(fragment.root)):
            below = [described[source] if isinstance(source, int) else by_port[source.name] for source in inputs]
            lifetimes = derive_lifetimes(node, [edge.lifetimes for edge in below])
            described.append(Edge(lifetimes, _derive_form(node, below)))
            edges[f"{fragment.id}.{number}"] = described[number]
        root = fragment.root
        sent = by_port[root.name] if isinstance(root, physical.Input) else described[-1]
        edges[fragment.id] = sent
        if isinstance(fragment.route, physical.ExchangeTo):
            by_port[fragment.route.port] = sent
    return edges


def _describe_source(stream: BaseStream) -> Edge:
    if stream.table == "changing":
        return Edge(UNKNOWN, "changes")
    return Edge(KNOWN if stream.has_intervals else INSTANTS)


def _derive_form(node: Node, below: Sequence[Edge]) -> StreamForm:
    if isinstance(node, physical.AsChanges | physical.HoldOpen):
        return "changes"
    if isinstance(node, _PASSES_FORM_ON):
        return "changes" if any(edge.form == "changes" for edge in below) else "intervals"
    form: StreamForm = getattr(node, "form", "intervals")
    return form

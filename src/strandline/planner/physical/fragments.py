"""Fragments: a physical plan, cut at its exchanges."""

from __future__ import annotations

from itertools import count

from strandline.planner.physical import plan as physical
from strandline.planner.physical.distribution import LoweredPlan, SourceOrdered
from strandline.planner.physical.plan import Fragment, Node, numbered, schema, sources, with_sources
from strandline.planner.physical.structure import operator_ids


def cut_fragments(built: LoweredPlan, query: str, streams: frozenset[str], first: int) -> list[Fragment]:
    """Cut a physical plan at its exchanges; fragments come in stage order, the one with the result last."""
    root = built.where.applied(built.node) if isinstance(built.where, SourceOrdered) else built.node
    done: list[Fragment] = []
    numbers = count()

    def carve(node: Node, feeders: dict[physical.Exchange, tuple[Node, int, physical.Input]]) -> tuple[Node, int]:
        """The tree with ports in place of exchanges, its stage, and the feeds of the ports.

        An input that a fragment reads twice is sent once.
        """
        if isinstance(node, physical.Input):
            return node, 0
        if isinstance(node, physical.Exchange):
            if node not in feeders:
                port = physical.Input(f"{query}.{next(numbers)}", schema(node.source))
                feeders[node] = (*finish(node.source), port)
            return feeders[node][2], feeders[node][1] + 1
        parts = [carve(source, feeders) for source in sources(node)]
        return with_sources(node, tuple(part for part, _ in parts)), max(stage for _, stage in parts)

    def finish(node: Node) -> tuple[Node, int]:
        """Carve one fragment; its feeders, now that its stage is known, become fragments that route to it."""
        feeders: dict[physical.Exchange, tuple[Node, int, physical.Input]] = {}
        carved, stage = carve(node, feeders)
        for exchange, (below, below_stage, port) in feeders.items():
            add(below, below_stage, physical.ExchangeTo(port.name, stage, exchange.mode, exchange.keys))
        return carved, stage

    def add(root: Node, stage: int, route: physical.ExchangeTo | physical.ResultOf) -> None:
        number = first + len(done) + 1
        everywhere, ids = not _runs_in_one_shard(root), operator_ids(root, f"f{number}")
        done.append(Fragment(f"f{number}", (query,), stage, root, route, streams, everywhere, ids))

    carved, stage = finish(root)
    add(carved, stage, physical.ResultOf(query))
    return sorted(done, key=lambda fragment: fragment.stage)


def _runs_in_one_shard(node: Node) -> bool:
    """True if the fragment aggregates without keys: an empty shard would emit a result, too, and must not."""
    return any(isinstance(each, physical.IncrementalAggregate) and not each.keys for each in numbered(node))

"""Parts of plans that run ahead: shared by queries that wait for different streams.

An operator goes by the watermark of all streams of its query. A part that queries over different sets of streams have
in common would be computed for each set; it goes by the streams below it instead, once for all, and what it has
released early is held back before it is read.

    q1 over s             γ(s)                                          γ goes by s
    q2 over s and t       Reorder(γ(s)) ⋈ t                             so does it here; the join goes by s and t

The rule: a part runs ahead if readers that go by different streams have it, and it has state worth sharing. Everything
else goes by the streams of its reader, as if alone. Only of streams that are never idle: after one was idle, other rows
are late for readers that wait for other streams (`SetStatus`), so that they have not the same input. And only of parts
that depend on their streams alone: the count of no rows begins with the first row of any stream of its query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from strandline.logical.catalog import BaseStream
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content
from strandline.planner.physical.forms import form_of
from strandline.planner.physical.plan import Fragment, Node, Pipeline, schema, sources, with_sources
from strandline.planner.physical.structure import encode_parameters

StreamNames: TypeAlias = frozenset[str]

SOURCE: Final = "source:"
# Operators with nothing to share: a buffer goes by the watermark of the operator above it as well as by its own.
_LIGHT: Final = (
    physical.Input,
    physical.Filter,
    physical.Project,
    physical.Unnest,
    physical.TimeWindow,
    physical.AlignTime,
    physical.Reorder,
    physical.Repeat,
    physical.UnionAll,
    physical.TopKPrefilter,
)
# Elements without an end pass these and are in no state, so that nothing could announce them again.
_PASSES_ON: Final = (physical.Filter, physical.Project, physical.Unnest, physical.Repeat, physical.UnionAll)


def run_ahead(parts: Sequence[Pipeline], streams: Sequence[BaseStream], scopes: Sequence[str]) -> list[Pipeline]:
    """Plans of queries that run together, with parts that run ahead for all of their readers. `scopes` has for each
    plan what must be equal beside the structure."""
    if len({query.streams for part in parts for query in part.queries}) == 1:
        return list(parts)
    steady = frozenset(stream.name for stream in streams if stream.idle_after_us is None and stream.table is None)
    plans = [_Plan(part, scope, steady) for part, scope in zip(parts, scopes, strict=True)]
    sizes = {len(facts.streams) for plan in plans for facts in plan.facts.values() if facts.may_be_ahead}
    ahead: set[str] = set()
    for size in sorted(sizes, reverse=True):  # what is below a part that runs ahead goes by its streams
        readers: dict[str, set[StreamNames]] = {}
        for plan in plans:
            for facts, goes_by in plan.occurrences(ahead):
                if facts.may_be_ahead and len(facts.streams) == size:
                    readers.setdefault(facts.id, set()).add(goes_by)
        ahead |= {part for part, sets in readers.items() if len(sets) > 1}
    return [plan.rebuilt(ahead) for plan in plans] if ahead else list(parts)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts of a part of a plan: its id, whatever its reader goes by; the streams below it; whether it depends on them
    alone, and whether it may run ahead."""

    id: str
    streams: StreamNames
    is_own: bool
    has_state: bool
    may_be_ahead: bool


class _Plan:
    """The plan of one query, over all its fragments."""

    def __init__(self, pipeline: Pipeline, scope: str, steady: StreamNames) -> None:
        self.pipeline = pipeline
        self.feeders = {f.route.port: f for f in pipeline.fragments if isinstance(f.route, physical.ExchangeTo)}
        self.roots = {port: fragment.root for port, fragment in self.feeders.items()}
        (self.query,) = pipeline.queries
        self.result = next(f for f in pipeline.fragments if f.route == physical.ResultOf(self.query.name))
        self.facts: dict[tuple[str, int], _Facts] = {}
        self._scope, self._steady = scope, steady
        self._nodes: list[Node] = []  # those whose identity is known; kept, so that no other takes its place
        for fragment in pipeline.fragments:  # in the order of their stages
            self._learn(fragment, fragment.root)

    def facts_of(self, fragment: Fragment, node: Node) -> _Facts:
        return self.facts[fragment.id, id(node)]

    def _learn(self, fragment: Fragment, node: Node) -> _Facts:
        key = fragment.id, id(node)
        if key not in self.facts:
            self._nodes.append(node)
            inputs = sources(node)
            self.facts[key] = self._describe(fragment, node, inputs, [self._learn(fragment, part) for part in inputs])
        return self.facts[key]

    def _describe(self, fragment: Fragment, node: Node, inputs: Sequence[Node], below: list[_Facts]) -> _Facts:
        content: list[Any] = [self._scope, fragment.everywhere, node.tag]
        if isinstance(node, physical.Input) and node.name in self.feeders:
            feeder = self.feeders[node.name]
            assert isinstance(feeder.route, physical.ExchangeTo), "it feeds a port"
            names = [column.id for column in schema(feeder.root)]
            route = feeder.route.stage, feeder.route.mode, [names.index(key) for key in feeder.route.keys]
            below = [self.facts_of(feeder, feeder.root)]
            content += route
        else:
            content += encode_parameters(node, inputs)
        streams = frozenset(name for part in below for name in part.streams)
        if isinstance(node, physical.Input) and not below:
            streams = frozenset([node.name.removeprefix(SOURCE)])
        # A count without keys has a result from the first row of its query on.
        begins_with_query = isinstance(node, physical.IncrementalAggregate) and not node.keys
        # A shared window join has the uses of the queries over its streams, which are no part of its id.
        is_own = not begins_with_query and not isinstance(node, physical.SamplingRate | physical.SharedWindowJoin)
        is_own = is_own and streams <= self._steady and all(part.is_own for part in below)
        has_state = not isinstance(node, _LIGHT) or any(part.has_state for part in below)
        known = digest_content([*content, [part.id for part in below]])
        return _Facts(known, streams, is_own, has_state, is_own and has_state and fragment.stage > 0)

    def occurrences(self, ahead: Collection[str]) -> Iterator[tuple[_Facts, StreamNames]]:
        """The parts of the plan, each with the streams that its reader goes by; more than once if read so."""
        seen: set[tuple[str, int, StreamNames]] = set()

        def visit(fragment: Fragment, node: Node, goes_by: StreamNames) -> Iterator[tuple[_Facts, StreamNames]]:
            if (key := (fragment.id, id(node), goes_by)) in seen:
                return
            seen.add(key)
            facts = self.facts_of(fragment, node)
            yield facts, goes_by
            own = facts.streams if facts.id in ahead else goes_by
            if isinstance(node, physical.Input) and node.name in self.feeders:
                feeder = self.feeders[node.name]
                yield from visit(feeder, feeder.root, own)
            for source in sources(node):
                yield from visit(fragment, source, own)

        return visit(self.result, self.result.root, self.query.streams)

    def rebuilt(self, ahead: Collection[str]) -> Pipeline:
        """The plan with a buffer above each part that runs ahead of its reader."""
        built = _Rebuilt(self, ahead)
        built.fragment(self.result, self.query.streams, passes_on=True)
        in_order = sorted(built.fragments.values(), key=lambda fragment: fragment.stage)
        return replace(self.pipeline, fragments=tuple(in_order))


class _Rebuilt:
    """The fragments of a plan by the streams that they go by; one that is read in two ways is two."""

    def __init__(self, plan: _Plan, ahead: Collection[str]) -> None:
        self.plan, self.ahead = plan, ahead
        self.fragments: dict[tuple[str, StreamNames], Fragment] = {}
        self.done: dict[tuple[str, int, StreamNames, bool], Node] = {}

    def fragment(self, fragment: Fragment, goes_by: StreamNames, passes_on: bool) -> str:
        """Build a fragment for a reader; returns the port to which it sends."""
        own = self.own_streams(fragment, fragment.root, goes_by)
        route = fragment.route
        if isinstance(route, physical.ExchangeTo):
            # Named by the streams also where the reader goes by others: what runs ahead is one for all readers.
            name = route.port if own == self.plan.query.streams else f"{route.port} {','.join(sorted(own))}"
            route = replace(route, port=name)
        if (fragment.id, own) not in self.fragments:
            root = self.node(fragment, fragment.root, own, passes_on)
            self.fragments[fragment.id, own] = replace(fragment, root=root, route=route, streams=own)
        return route.port if isinstance(route, physical.ExchangeTo) else ""

    def own_streams(self, fragment: Fragment, node: Node, goes_by: StreamNames) -> StreamNames:
        """The streams that a part goes by for a reader that goes by some."""
        facts = self.plan.facts_of(fragment, node)
        return facts.streams if facts.id in self.ahead else goes_by

    def node(self, fragment: Fragment, node: Node, goes_by: StreamNames, passes_on: bool) -> Node:
        """A part for a reader within the fragment. `passes_on`: what it sends is part of the result as it is."""
        own = self.own_streams(fragment, node, goes_by)
        key = fragment.id, id(node), own, passes_on
        if key not in self.done:
            self.done[key] = self._node(fragment, node, own, passes_on)
        made = self.done[key]
        if own == goes_by:
            return made
        return self._held_back(node, made, own, goes_by, passes_on)

    def _node(self, fragment: Fragment, node: Node, goes_by: StreamNames, passes_on: bool) -> Node:
        if isinstance(node, physical.Input):
            if node.name not in self.plan.feeders:
                return node
            feeder = self.plan.feeders[node.name]
            port = replace(node, name=self.fragment(feeder, goes_by, passes_on))
            sent_by = self.own_streams(feeder, feeder.root, goes_by)
            return port if sent_by == goes_by else self._held_back(node, port, sent_by, goes_by, passes_on)
        below = passes_on and isinstance(node, _PASSES_ON)
        return with_sources(node, tuple(self.node(fragment, source, goes_by, below) for source in sources(node)))

    def _held_back(
        self, node: Node, made: Node, below: StreamNames, above: StreamNames, passes_on: bool
    ) -> physical.Reorder | physical.HoldOpen:
        form = form_of(node, self.plan.roots)
        held = physical.Reorder(made, form, tuple(sorted(below)), tuple(sorted(above)))
        return physical.HoldOpen(held) if passes_on and form == "changes" else held

"""Pipelines that change while they run: a query is added to the operators that run, or taken away from them.

    extend    operators of equal structure are taken as they run; fragments keep their ids, ports are named apart
              window joins become uses of those that run (`living_joins.py`)
    shrink    what no other query needs goes
    rename    the same plan over other readers of its streams

Law    shrink(extend(p, q), q) = p, but for the numbers that were given, and for joins that are shared from then on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, cast

from strandline.core.temporal import Instant
from strandline.logical.catalog import BaseStream
from strandline.planner.physical import plan as physical
from strandline.planner.physical.living_joins import drop_uses, join_running
from strandline.planner.physical.plan import ExchangeTo, Fragment, Node, Pipeline, ResultOf, sources, with_sources
from strandline.planner.physical.structure import SharedFragments

_SOURCE: Final = "source:"


def extend(
    running: Pipeline, part: Pipeline, scope: str, *, since: Instant, number: int, first_fragment: int
) -> tuple[Pipeline, Mapping[str, str]]:
    """A pipeline with another query, whose own plan is `part`, over the rows from `since` on; and the ids that
    operators had up to now, by those that they have.

    `scope` is what must be equal beside the structure for an operator to be shared, the beginning included. `number` is
    that of the query, and `first_fragment` the next free number of a fragment.
    """
    taken = {f.route.port for f in running.fragments if isinstance(f.route, ExchangeTo)}
    names = {f.route.port: f"{f.route.port}@{number}" for f in part.fragments if isinstance(f.route, ExchangeTo)}
    assert not taken & set(names.values()), "numbers of queries are given once"
    fragments = [
        replace(_rename_ports(fragment, names), id=f"f{first_fragment + place}", since=since)
        for place, fragment in enumerate(part.fragments)
    ]
    queries = tuple(replace(query, since=since) for query in part.queries)
    given = (f"f{number}" for number in count(first_fragment + len(fragments)))
    joined = join_running(running, replace(part, fragments=tuple(fragments), queries=queries), since, given)
    shared = SharedFragments.of(joined.running)
    added = shared.add(joined.part, scope, joined.known)
    known = {stream.name for stream in running.streams}
    streams = (*running.streams, *(stream for stream in part.streams if stream.name not in known))
    in_order = sorted(shared.fragments, key=lambda fragment: fragment.stage)
    return Pipeline(streams, tuple(in_order), (*running.queries, *added), running.shards), joined.moved


def rename_streams(part: Pipeline, streams: Sequence[BaseStream], names: Mapping[str, str]) -> Pipeline:
    """A pipeline that reads other streams of the same rows: those that `names` has for the names of its own. `streams`
    are those that it reads then."""

    def renamed(read: Iterable[str]) -> frozenset[str]:
        return frozenset(names.get(name, name) for name in read)

    done: dict[int, Node] = {}
    fragments = tuple(
        replace(fragment, root=_rename_sources(fragment.root, names, done), streams=renamed(fragment.streams))
        for fragment in part.fragments
    )
    queries = tuple(replace(query, streams=renamed(query.streams)) for query in part.queries)
    return Pipeline(tuple(streams), fragments, queries, part.shards)


def shrink(running: Pipeline, name: str, first_fragment: int) -> Pipeline:
    """A pipeline without a query. A stream is read as long as a second reader follows it. `first_fragment` is the next
    free number of a fragment."""
    queries = tuple(query for query in running.queries if query.name != name)
    needed = {f.id for query in queries for f in physical.fragments_of(running, query.name)}
    fragments = tuple(
        replace(fragment, queries=tuple(query for query in fragment.queries if query != name))
        for fragment in running.fragments
        if fragment.id in needed
    )
    read = frozenset[str]().union(*(query.streams for query in queries))
    read |= {stream.reader_of for stream in running.streams if stream.name in read and stream.follows}
    streams = tuple(stream for stream in running.streams if stream.name in read)
    given = (f"f{number}" for number in count(first_fragment))
    return drop_uses(Pipeline(streams, fragments, queries, running.shards), given)


def _rename_ports(fragment: Fragment, names: dict[str, str]) -> Fragment:
    route = fragment.route
    if not isinstance(route, ResultOf):
        route = replace(route, port=names[route.port])
    return replace(fragment, root=_rename_inputs(fragment.root, names, {}), route=route)


def _rename_inputs(node: Node, names: dict[str, str], done: dict[int, Node]) -> Node:
    """The tree with other names of its ports; a part that occurs several times stays one."""
    if id(node) not in done:
        if isinstance(node, physical.Input):
            done[id(node)] = cast(Node, replace(node, name=names.get(node.name, node.name)))
        else:
            done[id(node)] = with_sources(node, tuple(_rename_inputs(s, names, done) for s in sources(node)))
    return done[id(node)]


def _rename_sources(node: Node, names: Mapping[str, str], done: dict[int, Node]) -> Node:
    """The tree over other streams; a part that occurs several times stays one."""
    if id(node) not in done:
        inputs = tuple(_rename_sources(source, names, done) for source in sources(node))
        done[id(node)] = with_sources(_over_streams(node, names), inputs)
    return done[id(node)]


def _over_streams(node: Node, names: Mapping[str, str]) -> Node:
    """A node with other names of the streams in its own fields."""
    match node:
        case physical.Input(name) if name.startswith(_SOURCE):
            stream = name.removeprefix(_SOURCE)
            return replace(node, name=f"{_SOURCE}{names.get(stream, stream)}")
        case physical.FoldChanges(stream):
            return replace(node, stream=names.get(stream, stream))
        case physical.Reorder(_, _, below, above) if below or above:
            return replace(node, below=_in_order(below, names), above=_in_order(above, names))
        case physical.SamplingRate(windows=windows):
            return replace(node, windows=tuple((names.get(stream, stream), length) for stream, length in windows))
    return node


def _in_order(streams: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(names.get(stream, stream) for stream in streams))

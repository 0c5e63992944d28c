"""Taking a query over that has caught up: it reads the streams themselves, and no more by readers of its own.

Where the readers are at the positions of the streams, the state of an operator over the one is that over the other. So
the query goes on with operators that the graph has run since the same beginning, if it has all of them, else with its
own, whose states move to new ids.

    before    γ(s, read by q)                  after, where the graph has γ(s)      q reads the result of γ(s)
                                               after, where it has not              γ(s), of q; its state is moved

Law    the results of the query go on as they would have without it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from strandline.planner.physical import plan as physical
from strandline.planner.physical.living import rename_streams
from strandline.planner.physical.plan import Pipeline, fragments_of, numbered
from strandline.planner.physical.structure import SharedFragments, number_operators

# Operators that keep nothing from batch to batch.
_STATELESS: Final = (
    physical.Filter,
    physical.Project,
    physical.Unnest,
    physical.TimeWindow,
    physical.AlignTime,
    physical.InsertStream,
    physical.Repeat,
    physical.UnionAll,
)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A pipeline after a query was taken over; `moved` has for the new ids of its operators those with the states."""

    pipeline: Pipeline
    moved: Mapping[str, str]


def take_over(running: Pipeline, query: str, scope: str, *, number: int, first_fragment: int) -> TakenOver:
    """The pipeline with a query over the streams that it read by readers of its own; those of its tables stay. `scope`
    is that of its operators; `number` is that of the query, and `first_fragment` the next free number of a fragment."""
    (planned,) = (planned for planned in running.queries if planned.name == query)
    names = {s.name: s.reader_of for s in running.streams if s.follows and s.name in planned.streams}
    own = {fragment.id for fragment in fragments_of(running, query)}
    streams = tuple(stream for stream in running.streams if stream.name not in names)
    part = Pipeline(running.streams, tuple(f for f in running.fragments if f.id in own), (planned,), running.shards)
    part = rename_streams(part, streams, names)
    rest = replace(running, streams=streams, fragments=tuple(f for f in running.fragments if f.id not in own))
    merged = _merge(rest, part, scope, first_fragment)
    return merged if merged is not None else _move(rest, part, scope, number)


def _merge(rest: Pipeline, part: Pipeline, scope: str, first_fragment: int) -> TakenOver | None:
    """The pipeline with the operators that run in the place of the query's own; None if one with a state is missing."""
    known = {operator for fragment in rest.fragments for operator in fragment.operators}
    ids = {fragment.id: f"f{first_fragment + place}" for place, fragment in enumerate(part.fragments)}
    renamed = tuple(replace(fragment, id=ids[fragment.id]) for fragment in part.fragments)
    shared = SharedFragments.of(rest)
    (planned,) = shared.add(replace(part, fragments=renamed), scope)
    for fragment in shared.fragments:
        for node, operator in zip(numbered(fragment.root), fragment.operators, strict=True):
            if fragment.stage > 0 and operator not in known and not isinstance(node, _STATELESS):
                return None
    fragments = tuple(sorted(shared.fragments, key=lambda fragment: fragment.stage))
    return TakenOver(replace(rest, fragments=fragments, queries=_with_plan(rest, planned)), {})


def _move(rest: Pipeline, part: Pipeline, scope: str, number: int) -> TakenOver:
    """The pipeline with the query's own operators, over the streams themselves. Others may share them, unless the graph
    has some of them already."""
    known = {operator for fragment in rest.fragments for operator in fragment.operators if fragment.stage > 0}
    renamed = number_operators(part, scope, rest)
    if any(f.stage > 0 and not known.isdisjoint(f.operators) for f in renamed.fragments):
        renamed = number_operators(part, f"{scope} of {number}", rest)
    moved = {
        operator: before
        for old, new in zip(part.fragments, renamed.fragments, strict=True)
        for operator, before in zip(new.operators, old.operators, strict=True)
        if new.stage > 0
    }
    in_order = tuple(sorted((*rest.fragments, *renamed.fragments), key=lambda fragment: fragment.stage))
    return TakenOver(replace(rest, fragments=in_order, queries=_with_plan(rest, part.queries[0])), moved)


def _with_plan(pipeline: Pipeline, planned: physical.QueryPlan) -> tuple[physical.QueryPlan, ...]:
    return tuple(planned if query.name == planned.name else query for query in pipeline.queries)

"""Cardinality of physical operators: the stream profiles of `planner/cardinality.py`, with the cuts at batch ends.

A physical operator emits the same snapshots in more intervals: what is final only up to the watermark is emitted again
in every batch. So rates depend on the length of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from strandline.core.temporal import SECOND
from strandline.core.types import BOOLEAN
from strandline.logical.expressions import Call, Case, ColumnRef, Expression, Literal, conjunction
from strandline.planner.cardinality import (
    StreamProfile,
    aggregated,
    changing,
    filtered,
    first_rows,
    groups_of,
    in_last_rows,
    in_sessions,
    joined,
    mapped,
    matched,
    merged,
    ranked,
    rounded_up,
    unique,
    unmatched_fraction,
    windowed,
)
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, schema, sources

COALESCED_FRACTION = (
    0.5  # the share of intervals that a coalesce merges with the one before, where nothing is known of the values
)


@dataclass(frozen=True, slots=True)
class PhysicalProfile:
    """Stream profile over the shards of a stage.

    `cut` if none of its elements reaches beyond the watermark; `whole` is the share of them that begin where no batch
    does. `early` is by how many seconds rows precede the watermark. It is in `shards` shards, `copies` times.
    """

    stream: StreamProfile
    cut: bool = False
    whole: float = 1.0
    early: float = 0.0
    shards: int = 1
    copies: int = 1

    @property
    def arriving(self) -> float:
        """Rows per second over all shards."""
        return self.stream.rate * self.copies

    @property
    def uncut(self) -> StreamProfile:
        """The stream without the cuts."""
        return replace(self.stream, rate=self.stream.rate * self.whole, length=self.stream.length / self.whole)

    def after(self, stream: StreamProfile) -> PhysicalProfile:
        return replace(self, stream=stream)

    def cut_every(self, seconds: float, stream: StreamProfile) -> PhysicalProfile:
        """The same if every element that is valid at the end of a batch is cut there."""
        rate = stream.rate + stream.valid / seconds
        length = stream.valid / rate if rate else stream.length
        whole = stream.rate / rate if rate else 1.0
        return replace(self, stream=replace(stream, rate=rate, length=length, spread=True), cut=True, whole=whole)


def condition_of(node: physical.HashJoin | physical.OuterHashJoin, keys_only: bool = False) -> Expression | None:
    equal = [Call("=", pair, BOOLEAN) for pair in zip(node.left_keys, node.right_keys, strict=True)]
    conditions = [] if node.condition is None or keys_only else [node.condition]
    return conjunction((*equal, *conditions))


def estimate_output(node: Node, profiles: Mapping[Node, PhysicalProfile], batch: float) -> PhysicalProfile:
    """Profile of the output of an operator in batches of the given length, from those of its inputs."""
    below = tuple(profiles[source] for source in sources(node))
    first = below[0]
    stream = first.stream
    match node:
        case physical.Filter(predicate, _):
            return first.after(filtered(stream, predicate))
        case physical.Project(outputs, _):
            return first.after(mapped(stream, outputs))
        case physical.TimeWindow(range_us, slide_us, _):
            wait = slide_us / SECOND / 2 if slide_us > 1 else 0.0
            return replace(first, stream=windowed(stream, range_us, slide_us), early=first.early + wait, cut=False)
        case physical.AlignTime(granule_us, _):
            return replace(first, stream=rounded_up(stream, granule_us), early=first.early + granule_us / SECOND / 2)
        case physical.Reorder():
            return replace(first, early=0.0)
        case physical.SamplingRate():
            return first
        case physical.CountWindow(partition, rows, _, _, _):
            return first.cut_every(batch, in_last_rows(stream, partition, rows))
        case physical.SessionWindow(partition, gap_us, _):
            return first.cut_every(batch, in_sessions(stream, partition, gap_us))
        case physical.ChangeStream() | physical.InsertStream():
            return replace(first, stream=changing(first.uncut), cut=True, whole=1.0)
        case physical.TopK(partition, _, limit, _):
            return first.cut_every(batch, first_rows(first.uncut, partition, limit))
        case physical.Rank(place, partition, _, limit, _):
            return first.cut_every(batch, ranked(first.uncut, place, partition, limit))
        case physical.TopKPrefilter(partition, _, limit, range_us, slide_us, _):
            together = batch if range_us is None else min(batch, slide_us / SECOND)
            item = stream.rate * together / groups_of(stream, partition)
            return first.after(replace(stream, rate=stream.rate * min(1.0, in_skyband(limit, item) / item)))
        case physical.HashJoin():
            return _joined(node, *_sides(below))
        case physical.OuterHashJoin():
            return _matched(node, *_sides(below), batch)
        case physical.IncrementalAggregate(keys, _, _):
            return first.cut_every(batch, aggregated(first.uncut, keys))
        case physical.Distinct(source):
            return first.after(unique(stream, tuple(c.id for c in schema(source))))
        case physical.FirstOccurrence(_, values, _):
            copied = {copy.id: stream.values[column_id] for copy, column_id in values if column_id in stream.values}
            return first.after(replace(stream, values={**stream.values, **copied}))
        case physical.UnionAll(columns, inputs):
            both = merged(columns, tuple(schema(item) for item in inputs), tuple(item.stream for item in below))
            return replace(first, stream=both, cut=all(item.cut for item in below))
        case physical.Repeat(copies, source):
            return first.after(replace(stream, rate=stream.rate * _mean_copies(copies, source, profiles)))
        case physical.Coalesce():
            rate = stream.rate * (1 - COALESCED_FRACTION)
            return first.after(replace(stream, rate=rate, length=stream.valid / rate if rate else stream.length))
        case physical.Split(length_us, _, _):
            pieces = max(1.0, stream.length * SECOND / length_us)
            return first.after(replace(stream, rate=stream.rate * pieces, length=stream.length / pieces))
        case physical.Input() | physical.Exchange():
            raise AssertionError(f"{type(node).__name__} is not an operator that runs")
        case _:
            assert_never(node)


def _sides(below: tuple[PhysicalProfile, ...]) -> tuple[PhysicalProfile, PhysicalProfile]:
    left, right = below
    return left, right


def _joined(node: physical.HashJoin, left: PhysicalProfile, right: PhysicalProfile) -> PhysicalProfile:
    pairs = joined(condition_of(node), left.stream, right.stream)
    return replace(left, stream=pairs, cut=left.cut or right.cut, copies=min(left.copies, right.copies))


def _matched(
    node: physical.OuterHashJoin, left: PhysicalProfile, right: PhysicalProfile, batch: float
) -> PhysicalProfile:
    profile = matched(node.kind, condition_of(node), left.stream, right.stream)
    pairs = joined(condition_of(node), left.stream, right.stream)
    if node.kind == "semi":
        rate = max(matched_fragments(pairs, left.stream), 1e-9)
        stream = replace(profile, rate=rate, length=profile.valid / rate, spread=True)
        return replace(left, stream=stream, cut=left.cut or right.cut)
    if node.kind == "anti":
        return left.cut_every(batch, profile)
    alone = profile.valid / 2 if node.kind == "mark" else max(profile.valid - pairs.valid, 0.0)
    rate = profile.rate + alone / batch  # an unmatched element is emitted in every batch
    return replace(left, stream=replace(profile, rate=rate, length=profile.valid / rate if rate else 0.0, spread=True))


def matched_fragments(pairs: StreamProfile, left: StreamProfile) -> float:
    """Matched intervals per second: one while earlier matches last, and one from the first later match on."""
    return 2 * left.rate * (1 - unmatched_fraction(pairs, left))


def in_skyband(limit: int, rows: float) -> float:
    """Of some rows in random order, how many fewer than `limit` precede among those that come later."""
    return rows if rows <= limit else limit * (1.0 + math.log(rows / limit))


def _mean_copies(copies: Expression, source: Node, profiles: Mapping[Node, PhysicalProfile]) -> float:
    """Mean multiplicity of a payload after a set operation, over groups whose sides are filled at random."""
    if not (isinstance(source, physical.IncrementalAggregate) and isinstance(source.source, physical.UnionAll)):
        return 1.0
    both = source.source
    groups = groups_of(profiles[both].stream, source.keys)
    chances = [_chances(max(profiles[side].stream.valid / groups, 1e-9)) for side in both.sources]
    columns = [column.id for column, _ in source.aggregates]
    numbers = np.meshgrid(*(number for number, _ in chances), indexing="ij")
    weight = np.outer(*(chance for _, chance in chances))
    there = sum(numbers) > 0
    multiplicities = _values(copies, dict(zip(columns, numbers, strict=True)))
    return float((multiplicities * weight)[there].sum() / max(float(weight[there].sum()), 1e-12))


def _chances(mean: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Poisson probabilities of element counts; about sixty numbers represent all."""
    reach = 6 * math.sqrt(mean) + 6
    numbers = np.unique(np.round(np.linspace(max(0.0, mean - reach), mean + reach, 61)))
    logs = numbers * math.log(mean) - mean - np.array([math.lgamma(n + 1) for n in numbers])
    weights = np.exp(logs)
    return numbers, weights / weights.sum()


Numbers: TypeAlias = NDArray[np.float64]


def _values(expression: Expression, grid: Mapping[str, Numbers]) -> Numbers:
    """Values of the few expressions that determine a multiplicity."""
    match expression:
        case ColumnRef(id, _):
            return grid[id]
        case Literal(value, _):
            return np.full(next(iter(grid.values())).shape, float(value))  # type: ignore[arg-type]
        case Call("greatest", parts, _):
            return reduce(np.maximum, (_values(part, grid) for part in parts))
        case Call("least", parts, _):
            return reduce(np.minimum, (_values(part, grid) for part in parts))
        case Call("-", (one, two), _):
            return _values(one, grid) - _values(two, grid)
        case Call("=", (one, two), _):
            return np.equal(_values(one, grid), _values(two, grid)).astype(np.float64)
        case Case(((condition, choice),), otherwise, _):
            return np.where(_values(condition, grid) > 0, _values(choice, grid), _values(otherwise, grid))
    raise AssertionError("a set operation has no other multiplicity")

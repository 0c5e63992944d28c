"""Cardinality of physical operators: the stream profiles of `planner/cardinality.py`, with the cuts at batch ends.

A physical operator emits the same snapshots in more intervals: what is final only up to the watermark is emitted again
in every batch. So rates depend on the length of a batch. `planner/physical/operators.py` has the operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from strandline.core.temporal import FOREVER, SECOND
from strandline.core.types import BOOLEAN, Column
from strandline.logical.expressions import Call, Case, ColumnRef, Expression, Literal, conjunction
from strandline.planner.cardinality import (
    LONGEST,
    StreamProfile,
    groups_of,
    joined,
    mapped,
    matched,
    unmatched_fraction,
    windowed,
)
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node
from strandline.planner.physical.window_uses import extents_by_bits

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PhysicalProfile:
    """Stream profile over the shards of a stage.

    `cut` if none of its elements reaches beyond the watermark; `whole` is the share of them that begin where no batch
    does. `early` is by how many seconds rows precede the watermark. It is in `shards` shards, `copies` times. In the
    `form` of changes the two rows of an element count as cut: of its length each has a half.
    """

    stream: StreamProfile
    cut: bool = False
    form: physical.StreamForm = "intervals"
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

    def as_sent(self, form: physical.StreamForm, seconds: float, stream: StreamProfile) -> PhysicalProfile:
        """The same if every element that is valid at the end of a batch is cut there or, as changes, sent twice:
        without its end, and with it."""
        cuts = stream.valid / seconds
        rate = stream.rate + (cuts if form == "intervals" else min(cuts, stream.rate))
        length = stream.valid / rate if rate else stream.length
        whole = stream.rate / rate if rate else 1.0
        sent = replace(stream, rate=rate, length=length, spread=True, steady=False)
        return replace(self, stream=sent, cut=True, form=form, whole=whole)


def beginning_share(node: Node, profiles: Mapping[Node, PhysicalProfile]) -> float:
    """The share of the elements that no equal one precedes, where the values of an aggregate are left out that make
    neighbours differ. Values before and after a change are independent: if a filter lets a share p of them pass, an
    element goes on with the chance p, unless its group was empty before."""
    passed, below = profiles[node].uncut.rate, node
    keeps = True
    while isinstance(below, physical.Filter | physical.Project):
        keeps &= isinstance(below, physical.Filter)
        below = below.source
    if keeps or not isinstance(below, physical.IncrementalAggregate) or not profiles[below].uncut.rate:
        return 1.0
    source = profiles[below.source].uncut
    there = source.valid / groups_of(source, below.keys)
    share = min(1.0, passed / profiles[below].uncut.rate)
    return max(1e-6, 1.0 + share * math.expm1(-there))


def condition_of(node: physical.JoinNode | physical.SharedWindowJoin, keys_only: bool = False) -> Expression | None:
    equal = [Call("=", pair, BOOLEAN) for pair in zip(node.left_keys, node.right_keys, strict=True)]
    rest = [] if node.condition is None or keys_only else [node.condition]
    return conjunction((*equal, *rest))


def join_output(node: physical.HashJoin, left: PhysicalProfile, right: PhysicalProfile) -> PhysicalProfile:
    pairs = joined(condition_of(node), left.stream, right.stream)
    cut, copies = left.cut or right.cut, min(left.copies, right.copies)
    return replace(left, stream=pairs, cut=cut, form=node.form, copies=copies)


def held_sides(
    node: physical.SharedWindowJoin, profiles: Mapping[Node, PhysicalProfile]
) -> tuple[PhysicalProfile, PhysicalProfile]:
    """Both sides of a shared window join: rows are kept for the largest window of any use."""
    largest = [max(extents_by_bits(node.uses, side)) for side in (0, 1)]
    extents = [LONGEST if extent == FOREVER else extent / SECOND for extent in largest]
    left, right = (
        side.after(replace(side.stream, length=extent))
        for side, extent in zip((profiles[node.left], profiles[node.right]), extents, strict=True)
    )
    return left, right


def shared_output(node: physical.SharedWindowJoin, left: PhysicalProfile, right: PhysicalProfile) -> PhysicalProfile:
    """The pairs of the largest windows: those of the other uses are among them."""
    sides = held_sides(node, {node.left: left, node.right: right})
    pairs = joined(condition_of(node), sides[0].stream, sides[1].stream)
    return replace(left, stream=pairs, copies=min(left.copies, right.copies))


def route_output(
    use: physical.WindowUse,
    outputs: tuple[tuple[Column, ColumnRef], ...],
    join: Node,
    profiles: Mapping[Node, PhysicalProfile],
) -> PhysicalProfile:
    """The pairs of one use. Of its selections nothing is known here: they count as those of all uses together."""
    assert isinstance(join, physical.SharedWindowJoin), "a route follows a shared window join"
    sides = [
        windowed(profiles[side].stream, range_us, slide_us)
        for side, (range_us, slide_us, _) in ((join.left, use.left), (join.right, use.right))
    ]
    pairs = joined(condition_of(join), sides[0], sides[1])
    early = max(slide_us for _, slide_us, _ in (use.left, use.right)) / SECOND / 2
    return replace(profiles[join], stream=mapped(pairs, outputs), early=early)


def match_output(
    node: physical.OuterHashJoin, left: PhysicalProfile, right: PhysicalProfile, batch: float
) -> PhysicalProfile:
    out = matched(node.kind, condition_of(node), left.stream, right.stream)
    pairs = joined(condition_of(node), left.stream, right.stream)
    if node.kind == "semi":
        rate = max(matched_fragments(pairs, left.stream), 1e-9)
        stream = replace(out, rate=rate, length=out.valid / rate, spread=True)
        return replace(left, stream=stream, cut=left.cut or right.cut)
    if node.kind == "anti":
        return left.as_sent(node.form, batch, out)
    alone = out.valid / 2 if node.kind == "mark" else max(out.valid - pairs.valid, 0.0)
    # An unmatched element is emitted in every batch, or twice.
    rate = out.rate + (alone / batch if node.form == "intervals" else min(alone / batch, out.rate))
    return replace(left, stream=replace(out, rate=rate, length=out.valid / rate if rate else 0.0, spread=True))


def matched_fragments(pairs: StreamProfile, left: StreamProfile) -> float:
    """Matched intervals per second: one while earlier matches last, and one from the first later match on."""
    return 2 * left.rate * (1 - unmatched_fraction(pairs, left))


def in_skyband(limit: int, rows: float) -> float:
    """Of some rows in random order, how many fewer than `limit` precede among those that come later."""
    return rows if rows <= limit else limit * (1.0 + math.log(rows / limit))


def mean_multiplicity(copies: Expression, source: Node, profiles: Mapping[Node, PhysicalProfile]) -> float:
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


def _chances(mean: float) -> tuple[Numbers, Numbers]:
    """Poisson probabilities of element counts; about sixty numbers represent all."""
    reach = 6 * math.sqrt(mean) + 6
    numbers = np.unique(np.round(np.linspace(max(0.0, mean - reach), mean + reach, 61)))
    logs = numbers * math.log(mean) - mean - np.array([math.lgamma(n + 1) for n in numbers])
    weights = np.exp(logs - logs.max())  # of a mean like 1e12 the logarithms are off by more than `exp` can take
    return numbers, weights / weights.sum()


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

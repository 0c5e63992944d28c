"""The symmetric join of two interval streams, on keys or on any condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from strandline.algebra.expressions import ColumnRef, Expression
from strandline.execution.batch import FROM, UNTIL, Batch, Index, gather, times
from strandline.execution.expressions import filter_frame
from strandline.execution.kernels.hashing import Hashes, hash_rows, is_bijective
from strandline.execution.kernels.intervals import intersect
from strandline.execution.operators.base import Operator, Progress
from strandline.execution.state import HASH, HashedLog, Segment, State, probe_segment, transient
from strandline.types import Schema

# Pairs of rows looked at in one go: bounds the memory of a join that multiplies, whatever the state.
PAIRS_AT_ONCE = 2_000_000


class JoinOperator(Operator):
    """Pair the elements that are valid together, agree on the keys and satisfy the condition.

    Law    snapshot(out, t) = snapshot(left, t) ⋈ snapshot(right, t)
    State  for each side the elements that a later one of the other side can still meet, found by key
    Emits  each pair once, when the later of the two comes; valid while both are

        left     a.......        right   ..b.....
        a        [=====)         b         [=====)
        (a,b)      [===)

    Without keys every row has the same hash: the look-up degenerates to all pairs, in bounded chunks.
    """

    def __init__(
        self,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        left: Schema,
        right: Schema,
    ) -> None:
        self.keys = ([k.id for k in left_keys], [k.id for k in right_keys])
        self.condition = condition
        self.output = (*left, *right)
        self.sides = (HashedLog(), HashedLog())

    def step(self, inputs: list[Batch], progress: Progress) -> Batch:
        arrived = [_by_hash(batch.frame, keys) for batch, keys in zip(inputs, self.keys, strict=True)]
        (left, left_hash), (right, right_hash) = arrived
        found: list[pl.DataFrame] = []
        for segment, mine, theirs in self.sides[1].probe(left_hash, PAIRS_AT_ONCE):
            found += self._pairs(left, mine, segment.frame, theirs)
        for segment, mine, theirs in self.sides[0].probe(right_hash, PAIRS_AT_ONCE):
            found += self._pairs(segment.frame, theirs, right, mine)
        for mine, theirs in _among(left, left_hash, right, right_hash):
            found += self._pairs(left, mine, right, theirs)
        for side, (frame, hashes) in zip(self.sides, arrived, strict=True):
            side.expire(progress.until)
            side.append(frame, hashes, progress.until)
        if not found:
            return Batch.empty(self.output)
        return Batch(pl.concat(found, rechunk=True))

    def _pairs(self, left: pl.DataFrame, l_rows: Index, right: pl.DataFrame, r_rows: Index) -> Iterable[pl.DataFrame]:
        start, end, meet = intersect(
            times(left, FROM)[l_rows],
            times(left, UNTIL)[l_rows],
            times(right, FROM)[r_rows],
            times(right, UNTIL)[r_rows],
        )
        if not meet.all():
            start, end, l_rows, r_rows = start[meet], end[meet], l_rows[meet], r_rows[meet]
        if not len(l_rows):
            return
        pairs = pl.concat([_payload(left, l_rows), _payload(right, r_rows)], how="horizontal")
        pairs = pairs.with_columns(pl.Series(FROM, start), pl.Series(UNTIL, end))
        pairs = self._same_keys(pairs)
        if self.condition is not None:
            pairs = filter_frame(pairs, self.condition)
        if pairs.height:
            yield pairs

    def _same_keys(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Equal hashes are equal keys for a single whole-number key; otherwise look at the keys."""
        left, right = self.keys
        if len(left) == 1 and is_bijective(pairs.schema[left[0]]) and is_bijective(pairs.schema[right[0]]):
            return pairs
        if not left:
            return pairs
        return pairs.filter(*(pl.col(one) == pl.col(two) for one, two in zip(left, right, strict=True)))

    def restore(self, state: State) -> None:
        self.sides = (HashedLog(state.segments.get("left", ())), HashedLog(state.segments.get("right", ())))

    def save(self) -> State:
        left, right = self.sides
        return State(segments={"left": left.segments, "right": right.segments})


def _payload(frame: pl.DataFrame, rows: Index) -> pl.DataFrame:
    return gather(frame.drop(FROM, UNTIL, HASH, strict=False), rows)


def _by_hash(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, Hashes]:
    """The elements that can match at all (NULL equals nothing), sorted by the hash of their keys."""
    if any(frame.get_column(key).null_count() for key in keys):
        frame = frame.drop_nulls(list(keys))
    hashes = hash_rows(frame, keys)
    if not keys:
        return frame, hashes
    order = np.argsort(hashes)
    return gather(frame, order), hashes[order]


def _among(
    left: pl.DataFrame, left_hash: Hashes, right: pl.DataFrame, right_hash: Hashes
) -> Iterator[tuple[Index, Index]]:
    """The pairs within the new elements of both sides."""
    segment: Segment = transient(right, right_hash)
    return probe_segment(segment, left_hash, PAIRS_AT_ONCE)

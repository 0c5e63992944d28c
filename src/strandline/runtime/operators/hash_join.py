"""The symmetric join of two interval streams, on keys or on any condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from strandline.core.types import Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.physical.plan import SideStructures
from strandline.runtime.expressions.compile import filter_frame
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Times,
    gather,
    is_sorted,
    stack,
    with_series,
    without,
)
from strandline.runtime.kernels.hashing import Hashes, hash_rows, is_bijective
from strandline.runtime.kernels.intervals import intersect
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.state.cancelling_log import SIGN
from strandline.runtime.state.segments import HASH, PAIRS_AT_ONCE, HashedLog, Segment, column, probe_overlapping

# Segments of this many rows are probed in any order. In a larger one a probe may miss the cache, unless the one before
# it was nearby: then it pays to sort the probes.
WITHIN_CACHE = 2**16


class HashJoinOperator(Operator):
    """Symmetric hash join: pair the elements that are valid together, agree on the keys and satisfy the condition.

    Law    snapshot(out, t) = snapshot(left, t) ⋈ snapshot(right, t)
    State  for each side the elements that a later one of the other side can still meet, found by key: none of a side
           whose elements end by the watermark, so that a stream of instants only probes
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
        structures: SideStructures = ("fifo", "fifo"),
    ) -> None:
        self.keys = ([k.id for k in left_keys], [k.id for k in right_keys])
        self.condition = condition
        self.output = (*left, *right)
        self.sides = self._logs(left, right, structures)
        self.logs = dict(zip(("left", "right"), self.sides, strict=True))

    def _logs(self, left: Schema, right: Schema, structures: SideStructures) -> tuple[HashedLog, HashedLog]:
        return HashedLog(structures[0]), HashedLog(structures[1])

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        arrived = [with_hashes(batch.frame, keys) for batch, keys in zip(inputs, self.keys, strict=True)]
        # The smaller input builds, the larger one probes.
        small = 0 if arrived[0].height < arrived[1].height else 1
        large = 1 - small
        for side, batch in enumerate(inputs):
            others = [segment.rows for segment in self.sides[1 - side].segments] + [arrived[1 - side].height]
            if side == small or max(others) > WITHIN_CACHE or bool((batch.end > watermark.time).any()):
                arrived[side] = by_hash(arrived[side])
        pairs: list[pl.DataFrame] = []
        new = [Segment.of(frame) for frame in arrived]
        pairs += self._meet(new[large], [*self.sides[small].segments, new[small]], mine_is_left=large == 0)
        pairs += self._meet(new[small], self.sides[large].segments, mine_is_left=small == 0)
        for log, frame in zip(self.sides, arrived, strict=True):
            log.expire(watermark.time)
            log.append(without(frame, (HASH,)), frame.get_column(HASH).to_numpy(), watermark.time)
        if not pairs:
            return Batch.empty(self.output)
        return Batch(stack(pairs))

    def _meet(self, mine: Segment, others: Sequence[Segment], mine_is_left: bool) -> Iterator[pl.DataFrame]:
        """The pairs of new rows with the rows of segments, a bounded number at a time."""
        pending: list[tuple[Index, pl.DataFrame, Times, Times]] = []
        size = 0
        for other in others:
            for rows, other_rows in probe_overlapping(mine, other, PAIRS_AT_ONCE):
                start, end, rows, other_rows = self._valid_together(mine, rows, other, other_rows)
                if not len(rows):
                    continue
                pending.append((rows, gather(_payload(other), other_rows), start, end))
                size += len(rows)
                if size >= PAIRS_AT_ONCE:
                    yield from self._pairs(mine, pending, mine_is_left)
                    pending, size = [], 0
        yield from self._pairs(mine, pending, mine_is_left)

    def _valid_together(
        self, mine: Segment, rows: Index, other: Segment, other_rows: Index
    ) -> tuple[Times, Times, Index, Index]:
        """Start and end of the pairs that are valid together, and their rows."""
        start, end, meet = intersect(
            column(mine, FROM)[rows],
            column(mine, UNTIL)[rows],
            column(other, FROM)[other_rows],
            column(other, UNTIL)[other_rows],
        )
        return (start, end, rows, other_rows) if meet.all() else (start[meet], end[meet], rows[meet], other_rows[meet])

    def _pairs(
        self, mine: Segment, pending: list[tuple[Index, pl.DataFrame, Times, Times]], mine_is_left: bool
    ) -> Iterator[pl.DataFrame]:
        """Assemble pairs; the rows of all segments together, since small frames cost as much as large ones."""
        if not pending:
            return
        rows, others, starts, ends = zip(*pending, strict=True)
        sides = [gather(_payload(mine), np.concatenate(rows)), stack(others)]
        columns = [column for side in (sides if mine_is_left else sides[::-1]) for column in side.get_columns()]
        pairs = pl.DataFrame(
            [*columns, pl.Series(FROM, np.concatenate(starts)), pl.Series(UNTIL, np.concatenate(ends))]
        )
        pairs = self._same_keys(pairs)
        if self.condition is not None:
            pairs = filter_frame(pairs, self.condition)
        if pairs.height:
            yield pairs

    def _same_keys(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Equal hashes are equal keys for a single whole-number key; otherwise compare the keys."""
        left, right = self.keys
        if not left:
            return pairs
        if len(left) == 1 and is_bijective(pairs.schema[left[0]]) and is_bijective(pairs.schema[right[0]]):
            return pairs
        return pairs.filter(*(pl.col(one) == pl.col(two) for one, two in zip(left, right, strict=True)))


def _payload(segment: Segment) -> pl.DataFrame:
    """The columns of a segment's rows that are not about its place in time and state."""
    return segment.stored.derive("payload", lambda frame: without(frame, (FROM, UNTIL, HASH, SIGN)))


def with_hashes(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The elements that can match at all (NULL equals nothing), with the hashes of their keys."""
    if any(frame.get_column(key).null_count() for key in keys):
        frame = frame.drop_nulls(list(keys))
    return with_series(frame, pl.Series(HASH, hash_rows(frame, keys)))


def by_hash(frame: pl.DataFrame) -> pl.DataFrame:
    hashes: Hashes = frame.get_column(HASH).to_numpy()
    return frame if is_sorted(hashes) else gather(frame, np.argsort(hashes))

"""The symmetric join where a side, or both, has the form of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from strandline.core.temporal import ALWAYS, BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.physical.plan import InputForms, SideStructures
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Index, Times, keep, stack, times, without
from strandline.runtime.kernels.changes import drop_replaced
from strandline.runtime.kernels.hashing import Hashes
from strandline.runtime.kernels.intervals import intersect
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.hash_join import WITHIN_CACHE, HashJoinOperator, by_hash, with_hashes
from strandline.runtime.state.cancelling_log import CancellingLog, distinct_values, is_among, signed, with_signs
from strandline.runtime.state.segments import HASH, HashedLog, Segment, SortedLog, column

# What is held against what: rows of the slice against each other or against the state, elements that end in the slice
# against the state, or the state against the state.
Encounter: TypeAlias = Literal["new", "stored", "due", "open"]


class ChangesHashJoinOperator(HashJoinOperator):
    """Symmetric hash join of elements whose end may be unknown, of one side or both.

    Law    snapshot(out, t) = snapshot(left, t) ⋈ snapshot(right, t)
    State  for each side the elements that a later one of the other side can still meet, found by key; those that have
           ended are cancelled
           due     of a side, if the other one has the form of changes: the elements whose end is known, by their end
    Emits  a pair when the later of the two comes: with its end if that is known, else without; and again with its end
           when one of the two ends

        left     a [==…          …==)
        right    b   [==…
        (a,b)        [==…        [======)

    A pair changes where one of its two elements begins or ends: of a side in the form of changes that comes with the
    slice, of the other it is found by its end. If each element of a side ends before the watermark (rows without a
    window), all ends are known: this is the look-up join, and nothing of that side is kept.

    The elements of a table that were there `ALWAYS` come before the first slice, in as many parts as their source makes
    (`early` is their side): nothing of the other side has come, and they are stored.
    """

    def __init__(
        self,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        left: Schema,
        right: Schema,
        forms: InputForms,
        structures: SideStructures = ("fifo", "fifo"),
    ) -> None:
        self.forms = forms
        super().__init__(left_keys, right_keys, condition, left, right, structures)
        self.watermark: Instant = BEFORE_ALL
        self.due = (SortedLog(UNTIL), SortedLog(UNTIL))
        self.logs = {**self.logs, "left due": self.due[0], "right due": self.due[1]}
        self.slice = _Slice(BEFORE_ALL, BEFORE_ALL)
        self.early: int | None = None

    def _logs(self, left: Schema, right: Schema, structures: SideStructures) -> tuple[HashedLog, HashedLog]:
        logs = [
            CancellingLog([column.id for column in side]) if form == "changes" else HashedLog(structure)
            for side, form, structure in zip((left, right), self.forms, structures, strict=True)
        ]
        return logs[0], logs[1]

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        if self.early is None or not self.watermark <= ALWAYS < watermark.time:
            return self._step(inputs, watermark)
        # The first slice, as two: that of the elements which are there always, and the rest.
        parts = [self._first_part(side, batch) for side, batch in enumerate(inputs)]
        always = self._step([Batch(first) for first, _ in parts], Watermark(ALWAYS + 1))
        others = self._step([Batch(rest) for _, rest in parts], watermark)
        if not len(always):
            return others
        frame = stack([always.frame, others.frame])
        again = (np.arange(frame.height) >= len(always)) & (times(frame, FROM) <= ALWAYS)
        return Batch(drop_replaced(frame, [column.id for column in self.output], again))

    def _first_part(self, side: int, batch: Batch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The elements of a slice that begin before all times, and the rest: also the ends of elements that came
        early."""
        first = batch.start <= ALWAYS
        if side == self.early:
            first &= batch.end == OPEN
        return keep(batch.frame, first), keep(batch.frame, ~first)

    def _step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark, self.slice = until, _Slice(before, until)
        hashed = [with_hashes(batch.frame, keys) for batch, keys in zip(inputs, self.keys, strict=True)]
        only_probes = [self._only_probes(side, hashed, until) for side in (0, 1)]
        sides = [
            self._arrived(side, frame if only_probes[side] else by_hash(frame)) for side, frame in enumerate(hashed)
        ]
        news = [Segment.of(side.rows) for side in sides]
        prober = 1 if only_probes[1] else 0  # the other side is in the order of its hashes
        pairs = self._encounters("new", news[prober], [news[1 - prober]], mine_is_left=prober == 0)
        for side, other in ((0, 1), (1, 0)):
            pairs += self._meet_state({"stored": news[side], "due": self._due(side, until)}, other, sides[other].ended)
        for side in (0, 1):
            self._keep(side, sides[side], until)
        if watermark.announces:
            pairs += self._open_pairs()
        if not pairs:
            return Batch.empty(self.output)
        return Batch(stack(pairs))

    def _only_probes(self, side: int, hashed: Sequence[pl.DataFrame], until: Instant) -> bool:
        """True if no element of a side is kept, and what it meets is small: then its rows stay in their order, which
        costs less than to sort them by hash."""
        others = [segment.rows for segment in self.sides[1 - side].segments] + [hashed[1 - side].height]
        is_small = self.forms[side] == "intervals" and max(others) <= WITHIN_CACHE
        return is_small and not (times(hashed[side], UNTIL) > until).any()

    def _arrived(self, side: int, frame: pl.DataFrame) -> _Arrived:
        """The elements of a side, by hash unless they only probe."""
        earlier = times(frame, FROM) < self.slice.before
        if self.forms[side] == "intervals" or not earlier.any():
            return _Arrived(frame, None)
        announced = earlier & (times(frame, UNTIL) == OPEN)  # once more, after a restart
        if announced.any():
            frame, earlier = keep(frame, ~announced), earlier[~announced]
        cancels = signed(keep(frame, earlier), -1)
        return _Arrived(frame, Segment.of(cancels, cancels=cancels.height))

    def _due(self, side: int, until: Instant) -> Segment:
        """The elements of a side with a known end that end in the slice, if the other side has the form of changes. The
        end is before the watermark or at it; what never ends is not there."""
        expired = self.due[side].take_before(min(until + 1, FOREVER)) if self.forms[1 - side] == "changes" else []
        return Segment.of(by_hash(with_hashes(stack(expired), self.keys[side])) if expired else pl.DataFrame())

    def _keep(self, side: int, arrived: _Arrived, until: Instant) -> None:
        """Store the elements that begin, and cancel those that have ended."""
        frame, log = arrived.rows, self.sides[side]
        has_ended, end = times(frame, FROM) < self.slice.before, times(frame, UNTIL)
        is_kept = ~has_ended & (end > until)
        if self.forms[1 - side] == "changes":
            self.due[side].append(without(keep(frame, is_kept & (end < OPEN)), (HASH,)))
        if isinstance(log, CancellingLog):
            frame = with_signs(frame, np.where(has_ended, -1, 1))
            is_kept |= has_ended
        kept = frame if is_kept.all() else keep(frame, is_kept)
        log.expire(until)
        log.append(kept, kept.get_column(HASH).to_numpy(), until)

    def _meet_state(
        self, encounters: Mapping[Encounter, Segment], other: int, ended: Segment | None
    ) -> list[pl.DataFrame]:
        """The pairs of some elements with those that a side has in its state."""
        log = self.sides[other]
        mine = {kind: segment for kind, segment in encounters.items() if segment.rows}
        if not mine or not log.segments:
            return []
        self.slice.dead = {}
        if isinstance(log, CancellingLog) and log.has_cancels(ended):
            hashes: Hashes = np.concatenate([segment.frame.get_column(HASH).to_numpy() for segment in mine.values()])
            rows = log.cancelled(distinct_values(hashes), ended)
            self.slice.dead = {id(s): dead for s, dead in zip(log.segments, rows, strict=True) if len(dead)}
        pairs: list[pl.DataFrame] = []
        for kind, segment in mine.items():
            pairs += self._encounters(kind, segment, log.segments, mine_is_left=other == 1)
        return pairs

    def _open_pairs(self) -> list[pl.DataFrame]:
        """All pairs that were sent without an end and have none yet."""
        log = self.sides[0]
        if isinstance(log, CancellingLog):
            frame = log.all()
        else:
            frame = stack([s.frame for s in log.segments]) if log.segments else None
        if frame is None:
            return []
        return self._meet_state({"open": Segment.of(by_hash(frame))}, 1, None)

    def _encounters(
        self, kind: Encounter, mine: Segment, others: Sequence[Segment], *, mine_is_left: bool
    ) -> list[pl.DataFrame]:
        self.slice.kind = kind
        found: Iterator[pl.DataFrame] = self._meet(mine, others, mine_is_left)
        return list(found)

    def _valid_together(
        self, mine: Segment, rows: Index, other: Segment, other_rows: Index
    ) -> tuple[Times, Times, Index, Index]:
        here = self.slice
        my_end, other_end = column(mine, UNTIL)[rows], column(other, UNTIL)[other_rows]
        start, end, meet = intersect(column(mine, FROM)[rows], my_end, column(other, FROM)[other_rows], other_end)
        is_open = (end > here.until) & ((my_end == OPEN) | (other_end == OPEN))
        match here.kind:
            case "new":
                pass  # of two elements that began earlier, both have ended in this slice: so does the pair
            case "stored":  # a pair of elements that began earlier has ended with the first of them
                meet &= (start >= here.before) | (other_end > here.before)
            case "due":
                meet &= other_end == OPEN
            case "open":
                meet &= is_open & (start < here.before)
        if here.kind != "new" and id(other) in here.dead:
            meet &= ~is_among(other_rows, here.dead[id(other)])
        end = np.where(is_open, OPEN, end)
        return (start, end, rows, other_rows) if meet.all() else (start[meet], end[meet], rows[meet], other_rows[meet])


@dataclass(slots=True)
class _Slice:
    """What the pairs of an encounter depend on: where the slice begins and ends, and the rows of each segment of the
    state that do not count."""

    before: Instant
    until: Instant
    kind: Encounter = "new"
    dead: dict[int, Index] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The elements of a side that begin or end in the slice, by hash; and the rows that cancel those that end."""

    rows: pl.DataFrame
    ended: Segment | None

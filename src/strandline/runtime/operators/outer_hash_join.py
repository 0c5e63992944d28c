"""Outer, semi, anti and mark joins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import BIGINT, Column, Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.physical.plan import MatchKind, SideStructures, StreamForm
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Times,
    frame_schema,
    gather,
    keep,
    pick,
    stack,
    times,
    with_series,
    without,
)
from strandline.runtime.kernels.hashing import hash_column
from strandline.runtime.kernels.sweep import gaps
from strandline.runtime.operators.base import Operator, Stateful, Watermark
from strandline.runtime.operators.distinct import DistinctOperator
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import HashedLog, HeldRows, SortedLog, State

# The numbers of the elements of either side; they are columns of the pairs that the join below finds.
LEFT, RIGHT = "@left", "@right"
SINCE = "@since"


class OuterHashJoinOperator(Operator):
    """Join that tracks unmatched elements.

    Law    left   snapshot(out, t) = snapshot(left, t) ⟕ snapshot(right, t), and so on for each kind
    State  what the inner join keeps; for a side whose unmatched elements matter, see `UnmatchedTracker`
    Emits  pairs as the inner join does; an unmatched element up to the watermark or, in the form of changes, without an
           end until it is matched or ends

        left     a.......        right   ..b.....
        a        [=======)       b         [==)
        (a,b)      [==)
        (a,–)    [=)  [==)
    """

    def __init__(
        self,
        kind: MatchKind,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        left: Schema,
        right: Schema,
        mark: Column | None = None,
        form: StreamForm = "intervals",
        structures: SideStructures = ("fifo", "fifo"),
    ) -> None:
        self.kind, self.mark = kind, mark
        numbered = (*left, Column(LEFT, LEFT, BIGINT))
        sides = numbered, (*right, Column(RIGHT, RIGHT, BIGINT))
        self.join = HashJoinOperator(left_keys, right_keys, condition, *sides, structures)
        self.left_columns = [column.id for column in left]
        self.numbers = {LEFT: 0, RIGHT: 0}
        self.unmatched: dict[str, UnmatchedTracker] = {}
        if kind != "semi":
            self.unmatched[LEFT] = UnmatchedTracker(left, LEFT, form)
        if kind == "full":
            self.unmatched[RIGHT] = UnmatchedTracker(right, RIGHT, form)
        self.matched = DistinctOperator(numbered, identity=[LEFT])
        parts: dict[str, Stateful] = {"join": self.join, "matched": self.matched, **self.unmatched}
        self.logs = {f"{part}/{name}": log for part, inner in parts.items() for name, log in inner.logs.items()}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        arrived = {name: self._numbered(batch.frame, name) for name, batch in zip((LEFT, RIGHT), inputs, strict=True)}
        pairs = self.join.step([Batch(frame) for frame in arrived.values()], watermark).frame
        frames: list[pl.DataFrame] = []
        if self.kind in ("left", "full"):
            frames.append(without(pairs, (LEFT, RIGHT)))
        if self.kind in ("semi", "mark"):
            once = self.matched.step([Batch(pick(pairs, [*self.left_columns, LEFT, FROM, UNTIL]))], watermark)
            frames.append(self._marked(without(once.frame, (LEFT,)), True))
        for name, unmatched in self.unmatched.items():
            frames.append(self._marked(unmatched.step(arrived[name], pairs, watermark), False))
        return Batch(stack(frames))  # columns of the other side are NULL

    def _marked(self, frame: pl.DataFrame, has_match: bool) -> pl.DataFrame:
        if self.mark is None:
            return frame
        marked = with_series(frame, pl.Series(self.mark.id, np.full(frame.height, has_match)))
        return pick(marked, [*self.left_columns, self.mark.id, FROM, UNTIL])

    def _numbered(self, frame: pl.DataFrame, name: str) -> pl.DataFrame:
        first = self.numbers[name]
        self.numbers[name] += frame.height
        return with_series(frame, pl.Series(name, np.arange(first, first + frame.height)))

    def restore(self, state: State) -> None:
        super().restore(state)
        self.numbers = {name: state.numbers.get(name, 0) for name in (LEFT, RIGHT)}
        for name, unmatched in self.unmatched.items():
            unmatched.watermark = state.numbers.get(f"{name}/progress", BEFORE_ALL)

    def save(self) -> State:
        watermarks = {f"{name}/progress": unmatched.watermark for name, unmatched in self.unmatched.items()}
        return State({**self.numbers, **watermarks}, super().save().segments)


class UnmatchedTracker(Stateful):
    """Unmatched elements of one side of a join.

    State  open     elements without a match at the watermark. Each batch emits an interval of them; in the form of
                    changes they are found by their number when a match comes
           due      in the form of changes, the numbers of open elements by the instant at which they end
           asleep   matched elements, by the instant at which their last known match ends
           covers   matches that came while their element was asleep, found by its number when it wakes
    """

    def __init__(self, schema: Schema, number: str, form: StreamForm) -> None:
        self.payload = [column.id for column in schema]
        self.number = number
        self.shape = {**frame_schema(schema), number: pl.Int64(), SINCE: pl.Int64()}
        self.shape.pop(FROM)
        self.watermark: Instant = BEFORE_ALL
        self.open = HeldRows(self.shape) if form == "intervals" else KeyedLog([number], self.shape)
        self.due = SortedLog(UNTIL)
        self.asleep = SortedLog(SINCE)
        self.covers = HashedLog("calendar")  # pairs end in any order
        self.logs = {"open": self.open, "due": self.due, "asleep": self.asleep, "covers": self.covers}

    def step(self, arrived: pl.DataFrame, pairs: pl.DataFrame, watermark: Watermark) -> pl.DataFrame:
        """The unmatched intervals up to the watermark, given the pairs that begin before it."""
        until, before = max(watermark.time, self.watermark), self.watermark
        if until == before and not (watermark.announces and before > BEFORE_ALL):
            return pl.DataFrame(schema=self.shape).select(*self.payload, pl.col(SINCE).alias(FROM), UNTIL)
        self.watermark = until
        everything = watermark.announces or until == FOREVER
        woken = self.asleep.take_before(until)
        fresh = pick(with_series(arrived, arrived.get_column(FROM).alias(SINCE)), list(self.shape))
        opened = self._look_up(pairs, until, everything)
        elements = stack([opened, *woken, fresh])
        elements = gather(elements, np.argsort(elements.get_column(self.number).to_numpy(), kind="stable"))
        ids: Index = elements.get_column(self.number).to_numpy()
        ends = times(elements, UNTIL)
        owner, start, end = self._covers(ids, woken, pairs)
        first = np.searchsorted(owner, np.arange(len(ids) + 1))
        limit = np.minimum(ends, until)
        owner_of, begin, stop, reach = gaps(first, start, end, times(elements, SINCE), limit)
        goes_on = (ends > until) & (reach < ends)
        if isinstance(self.open, KeyedLog):
            stays = goes_on[owner_of] & (stop == until)
            shown = ~stays | (begin >= before) | everything
            stop = np.where(stays, OPEN, stop)
            owner_of, begin, stop = owner_of[shown], begin[shown], stop[shown]
            # One that is unmatched from the watermark on is announced in the next slice: until then it is asleep.
            is_open, since = goes_on & (reach < until), reach
        else:
            is_open, since = goes_on & (reach <= until), np.maximum(reach, until)
        unmatched_rows = with_series(gather(elements, owner_of), pl.Series(FROM, begin), pl.Series(UNTIL, stop))
        elements = with_series(elements, pl.Series(SINCE, since))
        self._keep_open(opened, keep(elements, is_open))
        self.asleep.append(keep(elements, goes_on & ~is_open))
        self._store_pairs(ids, pairs, until)
        return pick(unmatched_rows, [*self.payload, FROM, UNTIL])

    def _look_up(self, pairs: pl.DataFrame, until: Instant, everything: bool) -> pl.DataFrame:
        """The open elements that the slice concerns: those with a match, and those that end."""
        if isinstance(self.open, HeldRows):
            return self.open.frame
        due = self.due.take_before(until)
        if everything:
            return self.open.all()
        numbers = stack([pick(frame, [self.number]) for frame in (pairs, *due)])
        return self.open.all() if numbers.height and self.open.has_mostly(numbers) else self.open.find(numbers)

    def _keep_open(self, before: pl.DataFrame, now: pl.DataFrame) -> None:
        if isinstance(self.open, HeldRows):
            self.open.frame = now
            return
        self.open.replace(before, now)
        was_open = np.isin(now.get_column(self.number).to_numpy(), before.get_column(self.number).to_numpy())
        ends_later = keep(pick(now, [self.number, UNTIL]), (times(now, UNTIL) < FOREVER) & ~was_open)
        self.due.append(ends_later)

    def _covers(self, ids: Index, woken: list[pl.DataFrame], pairs: pl.DataFrame) -> tuple[Index, Times, Times]:
        """Matched intervals of the elements with these numbers: position of the element, start and end, in order."""
        intervals = [(pairs.get_column(self.number).to_numpy(), times(pairs, FROM), times(pairs, UNTIL))]
        if woken:
            mine = pl.concat(woken).get_column(self.number)
            hashes = np.sort(hash_column(mine))
            for segment, _, rows in self.covers.probe(hashes):
                part = gather(segment.frame, rows)
                intervals.append((part.get_column(self.number).to_numpy(), times(part, FROM), times(part, UNTIL)))
        number, start, end = (np.concatenate(parts) for parts in zip(*intervals, strict=True))
        order = np.lexsort((start, number))  # before the probe, which is faster in order
        number, start, end = number[order], start[order], end[order]
        owner = np.searchsorted(ids, number)
        is_tracked = owner < len(ids)
        is_tracked[is_tracked] = ids[owner[is_tracked]] == number[is_tracked]
        return owner[is_tracked], start[is_tracked], end[is_tracked]

    def _store_pairs(self, ids: Index, pairs: pl.DataFrame, until: Instant) -> None:
        """Keep the pairs of elements that are asleep; the others are processed."""
        self.covers.expire(until)
        number: Index = pairs.get_column(self.number).to_numpy()
        at = np.minimum(np.searchsorted(ids, number), max(len(ids) - 1, 0))
        asleep = ids[at] != number if len(ids) else np.ones(len(number), dtype=np.bool_)
        later = keep(pick(pairs, [self.number, FROM, UNTIL]), asleep)
        hashes = hash_column(later.get_column(self.number))
        order = np.argsort(hashes)
        self.covers.append(gather(later, order), hashes[order], until)

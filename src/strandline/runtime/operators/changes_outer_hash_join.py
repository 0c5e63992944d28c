"""Outer, semi, anti and mark joins where a side, or both, has the form of changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant
from strandline.core.types import BIGINT, Column, Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.physical.plan import InputForms, MatchKind, SideStructures, StreamForm
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
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
from strandline.runtime.kernels.changes import begun_and_ended, rank_in_group
from strandline.runtime.kernels.grouping import group_codes, group_order
from strandline.runtime.operators.base import Operator, Stateful, Watermark
from strandline.runtime.operators.changes_hash_join import ChangesHashJoinOperator
from strandline.runtime.operators.group_events import presence, timeline
from strandline.runtime.operators.outer_hash_join import LEFT, RIGHT, SINCE
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import SortedLog, State

AT, ELEMENT, MATCHES = "@at", "@element", "@matches"


class ChangesOuterHashJoinOperator(Operator):
    """Join that counts the matches of each element; input and output may have the form of changes.

    Law    left   snapshot(out, t) = snapshot(left, t) ⟕ snapshot(right, t), and so on for each kind
    State  what the inner join keeps; the numbers of the elements without an end; for a side whose matched or unmatched
           elements matter, see `MatchCounter`
    Emits  pairs as the inner join does; an element where its number of matches leaves zero, or reaches it: without an
           end, and with it when that changes again or the element ends

        left     a [======…       [==========)
        right    b    [==…  [====)
        (a,b)         [==…  [====)
        (a,–)      [==)          [==…   [====)
    """

    def __init__(
        self,
        kind: MatchKind,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        left: Schema,
        right: Schema,
        mark: Column | None,
        forms: InputForms,
        structures: SideStructures = ("fifo", "fifo"),
    ) -> None:
        self.kind, self.mark = kind, mark
        self.watermark: Instant = BEFORE_ALL
        sides = (*left, Column(LEFT, LEFT, BIGINT)), (*right, Column(RIGHT, RIGHT, BIGINT))
        self.join = ChangesHashJoinOperator(left_keys, right_keys, condition, *sides, forms, structures)
        self.left_columns = [column.id for column in left]
        self.numbering = {
            name: ElementNumbers(schema, name, form)
            for name, schema, form in zip((LEFT, RIGHT), (left, right), forms, strict=True)
        }
        self.counters = {LEFT: MatchCounter(left, LEFT)}
        if kind == "full":
            self.counters[RIGHT] = MatchCounter(right, RIGHT)
        parts: dict[str, Stateful] = {"join": self.join}
        parts |= {f"numbers {name}": part for name, part in self.numbering.items()} | {**self.counters}
        self.logs = {f"{part}/{name}": log for part, inner in parts.items() for name, log in inner.logs.items()}

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark = until
        arrived = {
            name: numbering.step(batch.frame, before)
            for (name, numbering), batch in zip(self.numbering.items(), inputs, strict=True)
        }
        pairs = self.join.step([Batch(frame) for frame in arrived.values()], watermark).frame
        frames: list[pl.DataFrame] = []
        if self.kind in ("left", "full"):
            frames.append(without(pairs, (LEFT, RIGHT)))
        for name, counter in self.counters.items():
            matched, unmatched = counter.step(arrived[name], pairs, before, until, announces=watermark.announces)
            if self.kind in ("semi", "mark"):
                frames.append(self._marked(matched, True))
            if self.kind != "semi":
                frames.append(self._marked(unmatched, False))
        return Batch(stack(frames))  # columns of the other side are NULL

    def _marked(self, frame: pl.DataFrame, has_match: bool) -> pl.DataFrame:
        if self.mark is None:
            return frame
        marked = with_series(frame, pl.Series(self.mark.id, np.full(frame.height, has_match)))
        return pick(marked, [*self.left_columns, self.mark.id, FROM, UNTIL])

    def restore(self, state: State) -> None:
        super().restore(state)
        self.join.watermark = self.watermark
        for name, numbering in self.numbering.items():
            numbering.next = state.numbers.get(name, 0)

    def save(self) -> State:
        state = super().save()
        return State(
            {**state.numbers, **{n: numbering.next for n, numbering in self.numbering.items()}}, state.segments
        )


class ElementNumbers(Stateful):
    """The number of each element of a side; one that comes again with its end has the number that it had.

    State  open     the numbers of the elements without an end, found by payload and start
    """

    def __init__(self, schema: Schema, number: str, form: StreamForm) -> None:
        self.number, self.form, self.next = number, form, 0
        self.identity = [*(column.id for column in schema), FROM]
        shape = {name: kind for name, kind in frame_schema(schema).items() if name != UNTIL}
        self.open = KeyedLog(self.identity, {**shape, number: pl.Int64()})
        self.logs = {"open": self.open}

    def step(self, frame: pl.DataFrame, before: Instant) -> pl.DataFrame:
        """The elements that begin or end in a slice, with their numbers."""
        if self.form == "intervals":
            return self._numbered(frame)
        begun, ended = begun_and_ended(frame, before)
        begun = self._numbered(begun)
        held = self.open.find(pick(ended, self.identity))
        opened = keep(pick(begun, held.columns), times(begun, UNTIL) == OPEN)
        if not ended.height:
            self.open.replace(held, opened)
            return begun
        codes, _ = group_codes(stack([pick(held, self.identity), pick(ended, self.identity)]), self.identity)
        mine, theirs = codes[: held.height], codes[held.height :]
        # The k-th equal element that has ended takes the k-th number.
        held_order, ended_order = group_order(mine), group_order(theirs)
        places = pl.DataFrame({"code": mine[held_order], "rank": rank_in_group(mine[held_order]), "held": held_order})
        ends = pl.DataFrame(
            {"code": theirs[ended_order], "rank": rank_in_group(theirs[ended_order]), "row": ended_order}
        )
        taken = ends.join(places, on=["code", "rank"], how="inner").sort("row").get_column("held").to_numpy()
        assert len(taken) == ended.height, "an element that ends was sent without an end"
        left = np.ones(held.height, np.bool_)
        left[taken] = False
        self.open.replace(held, stack([keep(held, left), opened]))
        numbers = held.get_column(self.number).gather(taken)
        return stack([begun, pick(with_series(ended, numbers), begun.columns)])

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        first, self.next = self.next, self.next + frame.height
        return with_series(frame, pl.Series(self.number, np.arange(first, self.next)))


class MatchCounter(Stateful):
    """When the elements of one side of a join have a match, and when they have none.

    State  alive    the elements that have not ended, found by number: how many matches each has, and since when it is
                    matched or unmatched
           due      ends of elements and of pairs that are known and come after the slice
    """

    def __init__(self, schema: Schema, number: str) -> None:
        self.payload, self.number = [column.id for column in schema], number
        shape = {name: kind for name, kind in frame_schema(schema).items() if name in self.payload}
        self.alive = KeyedLog([number], {**shape, number: pl.Int64(), MATCHES: pl.Int64(), SINCE: pl.Int64()})
        self.due = SortedLog(AT)
        self.logs = {"alive": self.alive, "due": self.due}

    def step(
        self, elements: pl.DataFrame, pairs: pl.DataFrame, before: Instant, until: Instant, *, announces: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The matched and the unmatched intervals of elements that begin or end in the slice."""
        begun, _ = begun_and_ended(elements, before)
        events = self._events(elements, pairs, before, until)
        everything = announces or until == FOREVER
        numbers = pick(events, [self.number])
        mostly = everything or (numbers.height and self.alive.has_mostly(numbers))
        carried = self.alive.all() if mostly else self.alive.find(numbers)
        rows = stack([pick(part, [*self.payload, self.number]) for part in (carried, begun)])
        ids = rows.get_column(self.number).to_numpy()
        order = np.argsort(ids)
        group_of = np.empty(len(ids), np.int64)
        group_of[order] = np.arange(len(ids))
        at = np.searchsorted(ids[order], events.get_column(self.number).to_numpy())
        mine = group_of[: carried.height]
        line = timeline(
            np.concatenate([mine, at]),
            np.concatenate([np.full(carried.height, max(before - 1, BEFORE_ALL)), times(events, AT)]),
            len(ids),
            until,
        )
        there, matches = (
            line.totals(np.concatenate([start, events.get_column(name).to_numpy()]))
            for name, start in (
                (ELEMENT, np.ones(carried.height, np.int64)),
                (MATCHES, carried.get_column(MATCHES).to_numpy()),
            )
        )
        began = np.empty(len(ids), np.int64)
        began[mine] = times(carried, SINCE)
        since = np.where(line.time < before, began[line.code], line.time)
        rows = gather(rows, order)
        emitted = []
        kept: list[pl.DataFrame] = []
        for is_there in ((there > 0) & (matches > 0), (there > 0) & (matches == 0)):
            runs, start, end = presence(line, is_there, since)
            group = line.code[runs]
            frame = with_series(gather(rows, group), pl.Series(FROM, start), pl.Series(UNTIL, end))
            counts = pl.Series(MATCHES, matches[line.last[group]])
            kept.append(keep(with_series(frame, counts, pl.Series(SINCE, start)), end == OPEN))
            emitted.append(self._shown(frame, start, end, before, until, announces))
        self.alive.replace(carried, pick(stack(kept), carried.columns))
        return emitted[0], emitted[1]

    def _shown(
        self, frame: pl.DataFrame, start: Times, end: Times, before: Instant, until: Instant, announces: bool
    ) -> pl.DataFrame:
        shown = (start >= before) | (end != OPEN) | announces
        if until == FOREVER:
            frame = with_series(frame, pl.Series(UNTIL, np.where(end == OPEN, FOREVER, end)))
            shown = np.ones(len(start), np.bool_)
        return keep(pick(frame, [*self.payload, FROM, UNTIL]), shown)

    def _events(self, elements: pl.DataFrame, pairs: pl.DataFrame, before: Instant, until: Instant) -> pl.DataFrame:
        """What happens to elements in the slice: that they begin or end, or that one of their pairs does."""
        parts: list[pl.DataFrame] = []
        for frame, element, match in ((elements, 1, 0), (pairs, 0, 1)):
            begun, ended = begun_and_ended(frame, before)
            parts.append(self._changes(begun, FROM, element, match))
            ending = stack([begun, ended])
            ending = keep(ending, times(ending, UNTIL) < OPEN)
            parts.append(self._changes(ending, UNTIL, -element, -match))
        events = stack([*parts, *self.due.take_before(min(until + 1, FOREVER))])
        at, number = times(events, AT), events.get_column(self.number).to_numpy()
        # An element that ends with the slice has its end now; what else happens then belongs to the next slice.
        ends = (at == until) & (events.get_column(ELEMENT).to_numpy() < 0)
        is_due = (at < until) | ((at == until) & np.isin(number, number[ends]))
        self.due.append(keep(events, ~is_due))
        return keep(events, is_due)

    def _changes(self, frame: pl.DataFrame, time: str, element: int, match: int) -> pl.DataFrame:
        steps = [pl.Series(name, np.full(frame.height, step)) for name, step in ((ELEMENT, element), (MATCHES, match))]
        return pl.DataFrame([frame.get_column(self.number), frame.get_column(time).alias(AT), *steps])

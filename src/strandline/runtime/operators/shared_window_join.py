"""The window join that several queries share: rows are kept and paired once, and pairs are routed to the queries."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.core.types import Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.compaction import StateStructure
from strandline.planner.physical.plan import WindowUse
from strandline.planner.physical.window_uses import bounds, classes, extents_by_bits, living
from strandline.runtime.kernels.batch import (
    FROM,
    UNTIL,
    Batch,
    Index,
    Mask,
    Times,
    frame_schema,
    gather,
    stack,
    times,
    with_series,
    without,
)
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.hash_join import HashJoinOperator, by_hash, with_hashes
from strandline.runtime.operators.routed_pairs import Bounds, Groups, RoutedBatch, Routing, Span, later
from strandline.runtime.operators.waiting_work import (
    PairRoutes,
    Reaches,
    Task,
    WaitingChunks,
    WaitingPairs,
    time_span,
)
from strandline.runtime.scheduling.bands import Bands
from strandline.runtime.scheduling.budget import CANDIDATE, CHUNK_ROWS, PROBE, RESULT, TASK, WorkBudget
from strandline.runtime.state.segments import HASH, Segment, State, column, hashed_segment

_WAITING: Final = "chunks"  # in a saved state
_FOUND: Final = "pairs"
_REACH: Final = "reach"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """How long the rows of a side are kept: for the largest window of the uses whose selections they satisfy, which
    the word says; without a word for the largest of all."""

    extents: Mapping[int, int]  # with the bits of the classes that need them, the shortest first
    word: str | None

    @property
    def largest(self) -> int:
        return max(self.extents)

    @property
    def structure(self) -> StateStructure:
        return "fifo" if self.word is None or len(self.extents) == 1 else "calendar"

    def until(self, frame: pl.DataFrame) -> pl.Series:
        """When each of some rows leaves."""
        time = times(frame, FROM)
        until = later(time, self.largest)
        if self.word is not None and len(self.extents) > 1:
            word: Index = frame.get_column(self.word).to_numpy()
            needed = np.zeros(len(time), np.bool_)
            for extent, bits in sorted(self.extents.items(), reverse=True)[:-1]:
                needed |= (word & bits) != 0
                shorter = max(other for other in self.extents if other < extent)
                until = np.where(needed, until, later(time, shorter))
        return pl.Series(UNTIL, until)


@dataclass(frozen=True, slots=True)
class Layout:
    """What follows from the uses of a join: the bands over the left and over the right, for each pair of bounds the
    codes of the first band and the last one of its pairs, how long rows of both sides are kept, and the classes of
    selections with their bits. `met` are the bands that chunks of the left meet, and of the right, and `needed` how
    many of them a pair of bounds needs of both."""

    bands: tuple[Bands, Bands]
    routes: PairRoutes
    met: tuple[Bands, Bands]
    needed: dict[tuple[int, int], tuple[int, int]]
    extents: tuple[Mapping[int, int], Mapping[int, int]]
    classes: dict[tuple[str, str], int]


@lru_cache(maxsize=256)  # operators are made again in every batch
def _lay_out(uses: tuple[WindowUse, ...]) -> Layout:
    of_uses = list(dict.fromkeys(map(bounds, living(uses))))
    over_left, over_right = (Bands.of(side) for side in zip(*of_uses, strict=True))
    firsts = len(over_left) - 1 - over_left.band_of_window([left for left, _ in of_uses])
    lasts = len(over_left) + over_right.band_of_window([right for _, right in of_uses])
    places = dict(zip(of_uses, zip(firsts.tolist(), lasts.tolist(), strict=True), strict=True))
    extents = extents_by_bits(uses, 0), extents_by_bits(uses, 1)
    met = over_right.merge_narrow(), over_left.merge_narrow()
    counts = [met[side].band_of_window([of_use[1 - side] for of_use in of_uses]) + 1 for side in (0, 1)]
    needed = dict(zip(of_uses, zip(*(count.tolist() for count in counts), strict=True), strict=True))
    bands = over_left, over_right
    return Layout(bands, PairRoutes(bands, places), met, needed, extents, classes(uses))


class _Range(NamedTuple):
    """The times of the rows that a chunk meets: none of them is later than its own row, and with `ties` as late."""

    begin: Instant
    end: Instant
    ties: bool


class SharedWindowJoinOperator(HashJoinOperator):
    """Symmetric hash join of rows that come with their timestamps, for several windows over them at once.

    Law    the pairs of a use are those of the join of both windows of it, over the rows of its selections
    State  for each side the rows that the largest window of a use holds which selects them, once; found by key
    Emits  each pair once, when the later of its rows comes, in the order of bands, with a slice for each use

        left     ..a...      uses     left 3, right 2    left 9, right 9
        right    b.....               a is the later row, and 2 later:
        (a,b)                         -                  [==========)

    If the left row is the later one, only the window over the right decides whether a pair belongs to a use, and the
    other way round: so the bands of each direction are those of one side, and of all pairs in the order of bands, the
    left row the later one or the right, those of a use are one slice. Nothing is done per use but to find its slice.

    With a budget, new rows wait in chunks and meet one band after the other, in the order of a policy; what is left is
    done in later steps. Then each use is complete up to a reach of its own, and has its pairs in order up to there.
    """

    chunk_rows = CHUNK_ROWS

    def __init__(
        self,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        words: tuple[ColumnRef | None, ColumnRef | None],
        left: Schema,
        right: Schema,
        uses: Sequence[WindowUse],
    ) -> None:
        names = tuple(None if word is None else word.id for word in words)
        self.words = [name for name in names if name is not None]
        self.layout = _lay_out(tuple(uses))
        by_left, by_right = self.layout.extents
        self.kept = KeptRows(by_left, names[0]), KeptRows(by_right, names[1])
        structures = self.kept[0].structure, self.kept[1].structure
        super().__init__(left_keys, right_keys, condition, left, right, structures)
        self.columns = left, right
        self.waiting, self.found = WaitingChunks(self.layout.met, self.layout.needed), WaitingPairs()
        self.reached: Reaches = {}  # up to where uses have their pairs, while something waits
        self.spent = 0  # units of work in this step
        self.in_time: frozenset[Bounds] = frozenset()  # uses that must not wait
        self._range: _Range | None = None  # what the present task meets

    @property
    def has_work(self) -> bool:
        """Whether something waits."""
        return bool(self.waiting.segments)

    def step(self, inputs: list[Batch], watermark: Watermark) -> RoutedBatch:
        frames = [self._fit(batch.frame, columns) for batch, columns in zip(inputs, self.columns, strict=True)]
        rows = [Batch(with_series(frame, side.until(frame))) for frame, side in zip(frames, self.kept, strict=True)]
        if watermark.budget.units is not None or self.has_work:
            return self._step_within(watermark.budget, rows, watermark)
        sizes = [(len(batch), len(log.segments)) for batch, log in zip(rows, self.sides, strict=True)]
        pairs = super().step(rows, watermark).frame
        (left, lefts), (right, rights) = sizes
        self.spent += left * (rights + 1) * PROBE + right * lefts * PROBE + pairs.height * RESULT
        return self._routed(pairs)

    # ---- work that is put off ----------------------------------------------------------------------------------------

    def _step_within(self, budget: WorkBudget, inputs: list[Batch], watermark: Watermark) -> RoutedBatch:
        """Put new rows with what waits, and do as much of it as the budget allows, at least one task."""
        arrived = [by_hash(with_hashes(batch.frame, keys)) for batch, keys in zip(inputs, self.keys, strict=True)]
        before = self.reached or dict.fromkeys(self.layout.needed, BEFORE_ALL)
        self.waiting.add(arrived, self.chunk_rows)
        for side, (log, frame) in enumerate(zip(self.sides, arrived, strict=True)):
            after = min(watermark.time, self.waiting.oldest(1 - side))
            log.expire(after)
            log.append(without(frame, (HASH,)), frame.get_column(HASH).to_numpy(), after)
        self._work(budget)
        self.waiting.forget_done()
        reaches = self.waiting.reaches(watermark.time)
        # A use that is new to what waits begins with it.
        before = {of_use: before.get(of_use, BEFORE_ALL) for of_use in self.layout.needed}
        pairs = self.found.take(before, reaches, self.layout.routes)
        self.reached = reaches if self.has_work else {}
        frame = stack(pairs) if pairs else Batch.empty(self.output).frame
        spans = {of_use: (before[of_use], reach) for of_use, reach in reaches.items()}
        return self._routed(frame, spans)

    def _work(self, budget: WorkBudget) -> None:
        limit = FOREVER if budget.units is None else budget.units
        is_first = True
        while (is_first or self.spent < limit) and (task := self.waiting.next(budget.policy)) is not None:
            self._run(task)
            is_first = False
        most = self.waiting.needed(self.in_time)
        while (task := self.waiting.next(budget.policy, most)) is not None:
            self._run(task)

    def _run(self, task: Task) -> None:
        """Let a chunk meet the rows of its next bands."""
        side, met = task.chunk.facts["side"], task.chunk.facts["met"]
        spans = [(segment, *time_span(segment)) for segment in self.sides[1 - side].segments]
        touched = [segment for segment, first, last in spans if last >= task.until and first < met]
        self._range = _Range(task.until, met, ties=side == 0)
        # Not the segment of the state: what is derived from its rows is kept for as long as that is.
        chunk = Segment.of(task.chunk.frame)
        pairs = list(self._meet(chunk, touched, mine_is_left=side == 0))
        self._range = None
        self.spent += len(touched) * (TASK + chunk.rows * PROBE) + sum(part.height for part in pairs) * RESULT
        self.found.add(pairs)
        self.waiting.record(task, task.until)

    # ---- pairs -------------------------------------------------------------------------------------------------------

    def _valid_together(
        self, mine: Segment, rows: Index, other: Segment, other_rows: Index
    ) -> tuple[Times, Times, Index, Index]:
        """The times of the rows of each pair in place of its interval: those of new rows first."""
        time, other_time = column(mine, FROM)[rows], column(other, FROM)[other_rows]
        self.spent += len(rows) * CANDIDATE
        meet: Mask = (time < column(other, UNTIL)[other_rows]) & (other_time < column(mine, UNTIL)[rows])
        words = [
            column(side, word)[at] for side, at in ((mine, rows), (other, other_rows)) for word in self._words_in(side)
        ]
        if len(words) == 2:
            meet &= (words[0] & words[1]) != 0
        if self._range is not None:
            meet &= (other_time >= self._range.begin) & (other_time < self._range.end)
            meet &= other_time <= time if self._range.ties else other_time < time
        if meet.all():
            return time, other_time, rows, other_rows
        return time[meet], other_time[meet], rows[meet], other_rows[meet]

    def _words_in(self, segment: Segment) -> list[str]:
        return [word for word in self.words if word in segment.frame.columns]

    def _meet(self, mine: Segment, others: Sequence[Segment], mine_is_left: bool) -> Iterator[pl.DataFrame]:
        """The pairs with the times of the left rows and the right rows in place of their intervals."""
        for pairs in super()._meet(mine, others, mine_is_left):
            if mine_is_left:
                yield pairs
            else:
                yield with_series(pairs, pairs.get_column(UNTIL).alias(FROM), pairs.get_column(FROM).alias(UNTIL))

    def _routed(self, pairs: pl.DataFrame, spans: dict[Bounds, Span] | None = None) -> RoutedBatch:
        """Pairs that have times in place of intervals, by band; with `spans` those of a band in groups that
        the same uses take."""
        left, right = pairs.get_column(FROM).to_numpy(), pairs.get_column(UNTIL).to_numpy()
        routes = self.layout.routes
        place, groups = routes.codes_of(pairs), Groups(spans)
        if spans is not None:
            place = place * len(groups) + groups.of(np.maximum(left, right))
        count = routes.codes * len(groups)
        place = place.astype(np.uint16 if count < 2**16 else np.uint32)
        ends = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=count))))
        if count > 2:
            order = np.argsort(place, kind="stable")
            pairs, left, right = gather(pairs, order), left[order], right[order]
        parts = {of_use: groups.parts(of_use, *codes, ends) for of_use, codes in routes.places.items()}
        words = [pairs.get_column(word).to_numpy() for word in self.words]
        word = None if not words else words[0] if len(words) == 1 else words[0] & words[1]
        routing = Routing(left, right, word, parts, self.layout.classes, spans)
        until = np.minimum(later(left, self.kept[0].largest), later(right, self.kept[1].largest))
        frame = with_series(pairs, pl.Series(FROM, np.maximum(left, right)), pl.Series(UNTIL, until))
        return RoutedBatch(frame, routing)

    def save(self) -> State:
        state = super().save()
        numbers = {**state.numbers, **self._shape()}
        numbers |= {f"{_REACH} {left} {right}": reach for (left, right), reach in self.reached.items()}
        waiting = {_WAITING: self.waiting.segments, _FOUND: self.found.segments} if self.has_work else {}
        return State(numbers, {**state.segments, **waiting})

    def restore(self, state: State) -> None:
        """Continue from a state that may have been kept for other uses, or by the join of one query: then rows leave at
        other times, and have other columns."""
        super().restore(state)
        self.waiting.segments = list(state.segments.get(_WAITING, ()))
        self.found.segments = list(state.segments.get(_FOUND, ()))
        reaches = {name: reach for name, reach in state.numbers.items() if name.startswith(_REACH)}
        for name, reach in reaches.items():
            _, left, right = name.split()
            self.reached[int(left), int(right)] = reach
        shape = {name: number for name, number in state.numbers.items() if name not in reaches}
        if state.segments and shape != self._shape():
            self._adapt()

    def _adapt(self) -> None:
        """Let the rows of other uses have the columns of these, and leave with them."""
        left, right = self.columns
        for log, side, columns in zip(self.sides, self.kept, self.columns, strict=True):
            frames = [self._fit(segment.frame, columns) for segment in log.segments]
            log.segments = [hashed_segment(with_series(frame, side.until(frame))) for frame in frames]
        chunks = [(self._fit(chunk.frame, self.columns[chunk.facts["side"]]), chunk) for chunk in self.waiting.segments]
        self.waiting.segments = [Segment.of(frame, **chunk.facts) for frame, chunk in chunks]
        pairs = [(self._fit(pairs.frame, (*left, *right)), pairs) for pairs in self.found.segments]
        self.found.segments = [Segment.of(frame, **waiting.facts) for frame, waiting in pairs]

    def _fit(self, frame: pl.DataFrame, columns: Schema) -> pl.DataFrame:
        """Rows with the columns that the join has. What came before some use may lack one: it does not count for that
        use, and so its selections are those of all."""
        names = [column.id for column in columns]
        times_and_hash = [name for name in frame.columns if name in (FROM, UNTIL, HASH)]
        own = [name for name in frame.columns if name not in times_and_hash]
        words = [name for name in names if name in self.words]
        if own == names and not any(frame.get_column(word).null_count() for word in words):
            return frame
        types = frame_schema(columns)
        lacking = [pl.lit(None, types[name]).alias(name) for name in names if name not in frame.columns]
        return frame.with_columns(lacking).with_columns(pl.col(words).fill_null(-1)).select(*names, *times_and_hash)

    def _shape(self) -> dict[str, int]:
        """What of the rows in the state follows from the uses: how long they are kept, by side and bits, and a checksum
        of their columns."""
        sides = list(zip(("left", "right"), self.kept, self.columns, strict=True))
        shape = {f"{name} {bits}": extent for name, side, _ in sides for extent, bits in side.extents.items()}
        names = {name: " ".join(column.id for column in columns) for name, _, columns in sides}
        return shape | {f"{name} columns": zlib.crc32(text.encode()) for name, text in names.items()}

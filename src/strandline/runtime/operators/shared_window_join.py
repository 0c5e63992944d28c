"""The window join that several queries share: rows are kept and paired once, and pairs are routed to the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.core.types import Column, Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.planner.compaction import StateStructure
from strandline.planner.physical.plan import WindowUse
from strandline.planner.physical.window_uses import bounds, classes, extents_by_bits
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Index, Mask, Times, gather, keep, times, with_series
from strandline.runtime.kernels.intervals import intersect, window
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.scheduling.bands import Bands
from strandline.runtime.state.segments import Segment, State, column, hashed_segment


@dataclass(frozen=True, slots=True)
class Routing:
    """Pairs in the order of their bands: the times of both rows, the word of each pair if there are selections, and
    for each pair of bounds the slice of the pairs within them.

        band    … R2   R1   R0 | L0   L1   L2 …      R: the right row is the later one, L: the left one, or both
        bounds         [-------|--------)            of a use with the windows R1 over the left and L1 over the right
    """

    left_times: Times
    right_times: Times
    words: Index | None
    slices: dict[tuple[int, int], slice]
    classes: dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class RoutedBatch(Batch):
    """All pairs of a shared window join, each as long as it is valid in the largest windows, with their routing."""

    routing: Routing


def _after(time: Times, distance: int) -> Times:
    """Times so much later; never after the end of time."""
    if distance == FOREVER:
        return np.full(len(time), FOREVER)
    return np.where(time > FOREVER - distance, FOREVER, time + distance)


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
        until = _after(time, self.largest)
        if self.word is not None and len(self.extents) > 1:
            word: Index = frame.get_column(self.word).to_numpy()
            needed = np.zeros(len(time), np.bool_)
            for extent, bits in sorted(self.extents.items(), reverse=True)[:-1]:
                needed |= (word & bits) != 0
                shorter = max(other for other in self.extents if other < extent)
                until = np.where(needed, until, _after(time, shorter))
        return pl.Series(UNTIL, until)


@dataclass(frozen=True, slots=True)
class Layout:
    """What follows from the uses of a join: the bands over the left and over the right, for each pair of bounds the
    codes of the first band and the last one of its pairs, how long rows of both sides are kept, and the classes of
    selections with their bits."""

    bands: tuple[Bands, Bands]
    places: dict[tuple[int, int], tuple[int, int]]
    extents: tuple[Mapping[int, int], Mapping[int, int]]
    classes: dict[tuple[str, str], int]


@lru_cache(maxsize=256)  # operators are made again in every batch
def _lay_out(uses: tuple[WindowUse, ...]) -> Layout:
    of_uses = list(dict.fromkeys(map(bounds, uses)))
    over_left, over_right = (Bands.of(side) for side in zip(*of_uses, strict=True))
    firsts = len(over_left) - 1 - over_left.band_of_window([left for left, _ in of_uses])
    lasts = len(over_left) + over_right.band_of_window([right for _, right in of_uses])
    places = dict(zip(of_uses, zip(firsts.tolist(), lasts.tolist(), strict=True), strict=True))
    extents = extents_by_bits(uses, 0), extents_by_bits(uses, 1)
    return Layout((over_left, over_right), places, extents, classes(uses))


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
    """

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

    def step(self, inputs: list[Batch], watermark: Watermark) -> RoutedBatch:
        rows = [
            Batch(with_series(batch.frame, side.until(batch.frame)))
            for batch, side in zip(inputs, self.kept, strict=True)
        ]
        return self._routed(super().step(rows, watermark).frame)

    def _valid_together(
        self, mine: Segment, rows: Index, other: Segment, other_rows: Index
    ) -> tuple[Times, Times, Index, Index]:
        """The times of the rows of each pair in place of its interval: those of new rows first."""
        time, other_time = column(mine, FROM)[rows], column(other, FROM)[other_rows]
        meet: Mask = (time < column(other, UNTIL)[other_rows]) & (other_time < column(mine, UNTIL)[rows])
        words = [
            column(side, word)[at] for side, at in ((mine, rows), (other, other_rows)) for word in self._words_in(side)
        ]
        if len(words) == 2:
            meet &= (words[0] & words[1]) != 0
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

    def _routed(self, pairs: pl.DataFrame) -> RoutedBatch:
        """Pairs that have times in place of intervals, in the order of bands."""
        left, right = pairs.get_column(FROM).to_numpy(), pairs.get_column(UNTIL).to_numpy()
        over_left, over_right = self.layout.bands
        distance = left - right
        # The bands of the left side count down, in front of those of the right.
        code = np.where(
            distance >= 0,
            len(over_left) + over_right.band_of(distance),
            len(over_left) - 1 - over_left.band_of(-distance),
        ).astype(np.uint16)
        ends = np.cumsum(np.bincount(code, minlength=len(over_left) + len(over_right))).tolist()
        if len(over_left) + len(over_right) > 2:
            order = np.argsort(code, kind="stable")
            pairs, left, right = gather(pairs, order), left[order], right[order]
        slices: dict[tuple[int, int], slice] = {}
        for of_use, (first, last) in self.layout.places.items():
            slices[of_use] = slice(ends[first - 1] if first else 0, ends[last])
        words = [pairs.get_column(word).to_numpy() for word in self.words]
        word = None if not words else words[0] if len(words) == 1 else words[0] & words[1]
        routing = Routing(left, right, word, slices, self.layout.classes)
        until = np.minimum(_after(left, self.kept[0].largest), _after(right, self.kept[1].largest))
        frame = with_series(pairs, pl.Series(FROM, np.maximum(left, right)), pl.Series(UNTIL, until))
        return RoutedBatch(frame, routing)

    def save(self) -> State:
        state = super().save()
        return State({**state.numbers, **self._extents()}, state.segments)

    def restore(self, state: State) -> None:
        """Continue from a state that may have been kept for other uses: then rows leave at other times."""
        super().restore(state)
        if state.segments and state.numbers != self._extents():
            for log, side in zip(self.sides, self.kept, strict=True):
                log.segments = [
                    hashed_segment(with_series(segment.frame, side.until(segment.frame))) for segment in log.segments
                ]

    def _extents(self) -> dict[str, int]:
        """How long rows are kept, by side and bits."""
        sides = zip(("left", "right"), self.kept, strict=True)
        return {f"{name} {bits}": extent for name, side in sides for extent, bits in side.extents.items()}


class RouteOperator(Operator):
    """The pairs of one use of a shared window join.

    Law    snapshot(out, t) = snapshot(left window, t) ⋈ snapshot(right window, t), over the rows of the selections
    Emits  pairs that may start after the slice if a window slides: a reorder buffer follows
    """

    is_timed = False

    def __init__(self, use: WindowUse, outputs: Sequence[tuple[Column, ColumnRef]]) -> None:
        self.use = use
        self.outputs = tuple((column.id, source.id) for column, source in outputs)
        self.bounds = bounds(use)
        self.slides = use.left[1] > 1 or use.right[1] > 1

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        (batch,) = inputs
        assert isinstance(batch, RoutedBatch), "a route follows a shared window join"
        pairs = PairsOfUse(batch, self.use, self.bounds, self.outputs)
        if not self.slides:
            return pairs
        left_times, right_times = (
            times[pairs.within] for times in (batch.routing.left_times, batch.routing.right_times)
        )
        within_left, within_right = window(left_times, *self.use.left), window(right_times, *self.use.right)
        start, end, meet = intersect(*within_left, *within_right)
        if pairs.marked is not None:
            start, end, meet = start[pairs.marked], end[pairs.marked], meet[pairs.marked]
        return pairs.with_times(start, end).keep(meet)


def valid_in(left_times: Times, right_times: Times, over_left: int, over_right: int) -> tuple[Times, Times]:
    """When pairs are valid in windows that do not slide: from the later row on, until one of both has left."""
    ends = _after(left_times, over_left), _after(right_times, over_right)
    return np.maximum(left_times, right_times), np.minimum(*ends)


class PairsOfUse(Batch):
    """The pairs of one use: parts of columns that all uses have in common. Only where an operator reads them they are
    made a frame; results are cut out of the common columns by the driver."""

    __slots__ = ("_frame", "_marked", "bit", "bounds", "outputs", "source", "within")

    source: RoutedBatch
    within: slice
    bounds: tuple[int, int]
    outputs: tuple[tuple[str, str], ...]
    bit: int
    _frame: pl.DataFrame | None
    _marked: Mask | None

    def __init__(
        self, source: RoutedBatch, use: WindowUse, bounds: tuple[int, int], outputs: tuple[tuple[str, str], ...]
    ) -> None:
        routing = source.routing
        fields = {
            "source": source,
            "within": routing.slices[bounds],
            "bounds": bounds,
            "outputs": outputs,
            "bit": 0 if routing.words is None else 1 << routing.classes[use.selections],
            "_frame": None,
            "_marked": None,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def marked(self) -> Mask | None:
        """Which pairs of the slice are those of the selection; None if all are."""
        if self._marked is None and self.bit:
            words = self.source.routing.words
            assert words is not None, "there is a bit"
            object.__setattr__(self, "_marked", (words[self.within] & self.bit) != 0)
        return self._marked

    def __len__(self) -> int:
        marked = self.marked
        return self.within.stop - self.within.start if marked is None else int(np.count_nonzero(marked))

    @property
    def frame(self) -> pl.DataFrame:
        frame = self._frame
        if frame is None:
            frame = self._make_frame()
            object.__setattr__(self, "_frame", frame)
        return frame

    def _make_frame(self) -> pl.DataFrame:
        frame, routing, within = self.source.frame, self.source.routing, self.within
        start, end = valid_in(routing.left_times[within], routing.right_times[within], *self.bounds)
        part = within.start, within.stop - within.start
        columns = [frame.get_column(source).slice(*part).alias(name) for name, source in self.outputs]
        made = pl.DataFrame([*columns, pl.Series(FROM, start), pl.Series(UNTIL, end)])
        return made if self.marked is None else keep(made, self.marked)

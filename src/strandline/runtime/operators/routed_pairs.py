"""Pairs of a shared window join on their way to its uses: all pairs once, by band, and which of them each use has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.core.types import Column
from strandline.logical.expressions import ColumnRef
from strandline.planner.physical.plan import WindowUse
from strandline.planner.physical.window_uses import bounds
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Index, Mask, Times, keep, stack
from strandline.runtime.kernels.intervals import intersect, window
from strandline.runtime.operators.base import Operator, Watermark

Bounds: TypeAlias = tuple[int, int]  # of the windows of a use over the left and over the right
Span: TypeAlias = tuple[Instant, Instant]
Parts: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class Routing:
    """Pairs in the order of their bands: the times of both rows, the word of each pair if there are selections, and
    for each pair of bounds the parts with the pairs within them: a single one, unless work is put off.

        band    … R2   R1   R0 | L0   L1   L2 …      R: the right row is the later one, L: the left one, or both
        bounds         [-------|--------)            of a use with the windows R1 over the left and L1 over the right

    Where work is put off, each use has the pairs that start within its span, and has had all that start before it.
    """

    left_times: Times
    right_times: Times
    words: Index | None
    parts: dict[Bounds, Parts]
    classes: dict[tuple[str, str], int]
    spans: dict[Bounds, Span] | None = None

    @cached_property
    def oldest(self) -> Instant:
        """The earliest time of a row in a pair."""
        return min((int(time.min()) for time in (self.left_times, self.right_times) if len(time)), default=FOREVER)


@dataclass(frozen=True, slots=True)
class RoutedBatch(Batch):
    """All pairs of a shared window join, each as long as it is valid in the largest windows, with their routing."""

    routing: Routing


class Groups:
    """Groups of pairs that begin between neighbouring instants of the spans: within a band, a use takes some in a row.

    spans of two uses        [------)
                                 [---------)
    groups                0  |1 | 2 |  3   | 4
    """

    def __init__(self, spans: Mapping[Bounds, Span] | None) -> None:
        self._spans = spans
        instants = sorted({instant for span in spans.values() for instant in span}) if spans else []
        self._cuts: Times = np.array(instants, np.int64)

    def __len__(self) -> int:
        return len(self._cuts) + 1

    def of(self, starts: Times) -> Index:
        """The groups of pairs by their starts."""
        return np.searchsorted(self._cuts, starts, side="right")

    def within(self, of_use: Bounds) -> tuple[int, int]:
        """The groups of the pairs that begin within the span of a use: the first, and the one after the last."""
        assert self._spans is not None, "all pairs are in one group"
        begin, end = np.searchsorted(self._cuts, self._spans[of_use]).tolist()
        return begin + 1, end + 1

    def parts(self, of_use: Bounds, first: int, last: int, ends: npt.NDArray[np.int64]) -> Parts:
        """The parts with the pairs of a use, of pairs by band and group; `ends` are those of each group before it."""
        if self._spans is None:
            return (slice(int(ends[first]), int(ends[last + 1])),)
        begin, end = self.within(of_use)
        bands = np.arange(first, last + 1) * len(self)
        begins, stops = ends[bands + begin], ends[bands + end]
        filled = begins < stops
        begins, stops = begins[filled], stops[filled]
        apart = np.flatnonzero(begins[1:] != stops[:-1])  # else one goes on where the other ends
        begins = begins[np.concatenate(([0], apart + 1))] if len(begins) else begins
        stops = stops[np.concatenate((apart, [len(stops) - 1]))] if len(stops) else stops
        return tuple(slice(*part) for part in zip(begins.tolist(), stops.tolist(), strict=True)) or (slice(0, 0),)


def take_parts(values: npt.NDArray[np.int64], parts: Parts) -> npt.NDArray[np.int64]:
    """Parts of an array, one after the other; without a copy if there is one."""
    return values[parts[0]] if len(parts) == 1 else np.concatenate([values[part] for part in parts])


def later(time: Times, distance: int) -> Times:
    """Times so much later; never after the end of time."""
    if distance == FOREVER:
        return np.full(len(time), FOREVER)
    return np.where(time > FOREVER - distance, FOREVER, time + distance)


def valid_in(left_times: Times, right_times: Times, over_left: int, over_right: int) -> tuple[Times, Times]:
    """When pairs are valid in windows that do not slide: from the later row on, until one of both has left."""
    ends = later(left_times, over_left), later(right_times, over_right)
    return np.maximum(left_times, right_times), np.minimum(*ends)


def mark_pairs(left_times: Times, right_times: Times, words: Index | None, bit: int, since: Instant) -> Mask | None:
    """Which pairs have the bit of a selection, and rows from an instant on; None if that does not matter."""
    marked: Mask | None = None
    if bit:
        assert words is not None, "selections have words"
        marked = (words & bit) != 0
    if since > BEFORE_ALL:
        counted: Mask = np.minimum(left_times, right_times) >= since
        marked = counted if marked is None else marked & counted
    return marked


class RouteOperator(Operator):
    """The pairs of one use of a shared window join.

    Law    snapshot(out, t) = snapshot(left window, t) ⋈ snapshot(right window, t), over the rows of the selections
           with times from `since` on
    Emits  pairs that may start after the slice if a window slides: a reorder buffer follows
    """

    is_timed = False

    def __init__(
        self, use: WindowUse, outputs: Sequence[tuple[Column, ColumnRef]], since: Instant = BEFORE_ALL
    ) -> None:
        self.use = use
        self.since = since
        self.outputs = tuple((column.id, source.id) for column, source in outputs)
        self.bounds = bounds(use)
        self.slides = use.left[1] > 1 or use.right[1] > 1

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        (batch,) = inputs
        assert isinstance(batch, RoutedBatch), "a route follows a shared window join"
        pairs = PairsOfUse(batch, self.use, self.bounds, self.outputs, self.since)
        if not self.slides:
            return pairs
        left_times, right_times = pairs.times
        within_left, within_right = window(left_times, *self.use.left), window(right_times, *self.use.right)
        start, end, meet = intersect(*within_left, *within_right)
        if pairs.marked is not None:
            start, end, meet = start[pairs.marked], end[pairs.marked], meet[pairs.marked]
        return pairs.with_times(start, end).keep(meet)


class PairsOfUse(Batch):
    """The pairs of one use: parts of columns that all uses have in common. Only where an operator reads them they are
    made a frame; results are cut out of the common columns by the driver."""

    __slots__ = ("_frame", "_marked", "bit", "bounds", "outputs", "parts", "since", "source")

    source: RoutedBatch
    parts: Parts
    bounds: Bounds
    outputs: tuple[tuple[str, str], ...]
    bit: int
    since: Instant  # before all, if no pair has an older row
    _frame: pl.DataFrame | None
    _marked: Mask | None

    def __init__(
        self,
        source: RoutedBatch,
        use: WindowUse,
        bounds: Bounds,
        outputs: tuple[tuple[str, str], ...],
        since: Instant = BEFORE_ALL,
    ) -> None:
        routing = source.routing
        fields = {
            "source": source,
            "parts": routing.parts[bounds],
            "bounds": bounds,
            "outputs": outputs,
            "bit": 0 if routing.words is None else 1 << routing.classes[use.selections],
            "since": since if since > routing.oldest else BEFORE_ALL,
            "_frame": None,
            "_marked": None,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def times(self) -> tuple[Times, Times]:
        """The times of the left rows, and of the right ones."""
        routing = self.source.routing
        return take_parts(routing.left_times, self.parts), take_parts(routing.right_times, self.parts)

    @property
    def marked(self) -> Mask | None:
        """Which pairs of the parts are those of the selection, and of rows that count; None if all are."""
        if self._marked is None:
            words = self.source.routing.words
            words = None if words is None else take_parts(words, self.parts)
            object.__setattr__(self, "_marked", mark_pairs(*self.times, words, self.bit, self.since))
        return self._marked

    def __len__(self) -> int:
        marked = self.marked
        return sum(part.stop - part.start for part in self.parts) if marked is None else int(np.count_nonzero(marked))

    @property
    def frame(self) -> pl.DataFrame:
        frame = self._frame
        if frame is None:
            frame = self._make_frame()
            object.__setattr__(self, "_frame", frame)
        return frame

    def _make_frame(self) -> pl.DataFrame:
        start, end = valid_in(*self.times, *self.bounds)
        columns = [self.source.frame.get_column(source).alias(name) for name, source in self.outputs]
        payload = [pl.DataFrame([column[part] for column in columns]) for part in self.parts]
        made = pl.DataFrame([*stack(payload).get_columns(), pl.Series(FROM, start), pl.Series(UNTIL, end)])
        return made if self.marked is None else keep(made, self.marked)

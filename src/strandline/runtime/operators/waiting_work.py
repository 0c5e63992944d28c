"""Work that a shared window join has put off: chunks of new rows that have not met all bands, and pairs that wait.

A chunk is some new rows of one side, in time order before the chunks after it. Its tasks are the bands over the other
side, the nearest rows first. Within its band a row meets rows that were there before it, or with it; so a pair is made
once, by the chunk of its later row.

    chunk    facts: side, number, first (the earliest time of a row), met (all rows with times from here on were met)
    pairs    facts: first, last (the earliest and the latest start)

What was met is a time, so that segments of the other side may be merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.planner.compaction import merge_window
from strandline.runtime.kernels.batch import FROM, gather, keep, stack, times
from strandline.runtime.kernels.hashing import Hashes
from strandline.runtime.operators.routed_pairs import Bounds, Groups
from strandline.runtime.scheduling.bands import Bands
from strandline.runtime.scheduling.policies import POLICIES, BandTasks, next_task
from strandline.runtime.state.segments import HASH, Segment, merge_limit

Reaches: TypeAlias = dict[Bounds, Instant]


class Task(NamedTuple):
    """A chunk that meets the rows of the other side with times from `until` on that it has not met."""

    place: int
    chunk: Segment
    until: Instant


class WaitingChunks:
    """The chunks of a shared window join. `bands` are those that chunks of the left meet, and of the right: the windows
    over the other side."""

    def __init__(self, bands: tuple[Bands, Bands], needed: Mapping[Bounds, tuple[int, int]]) -> None:
        self._bands, self._needed = bands, needed
        self._windows = [side.windows.tolist() for side in bands]
        self._segments: list[Segment] = []
        self._done: list[int] = []  # how many bands each has done

    @property
    def segments(self) -> list[Segment]:
        """The chunks in order."""
        return self._segments

    @segments.setter
    def segments(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._done = list(map(self._count_done, segments))

    def add(self, sides: Sequence[pl.DataFrame], rows: int) -> None:
        """Add the new rows of both sides, all of them later than those before, so many in a chunk."""
        parts = [(part, side) for side, frame in enumerate(sides) for part in _cut(frame, rows)]
        first = [int(times(part, FROM).min()) for part, _ in parts]
        number = max([segment.facts["number"] for segment in self._segments], default=-1)
        for place in sorted(range(len(parts)), key=lambda n: (first[n], parts[n][1])):
            number += 1
            facts = {"side": parts[place][1], "number": number, "first": first[place], "met": FOREVER}
            self._segments.append(Segment.of(parts[place][0], **facts))
            self._done.append(0)

    def _count_done(self, chunk: Segment) -> int:
        met, windows = chunk.facts["met"], self._windows[chunk.facts["side"]]
        return sum(met <= _border(chunk.facts["first"], window) for window in windows)

    def next(self, policy: str, most: tuple[int, int] | None = None) -> Task | None:
        """The task that is next by a policy; with `most` only of those below so many bands, by side."""
        limits = [len(side) for side in self._bands] if most is None else most
        first: dict[tuple[int, int], int] = {}  # the oldest chunk by side and band: within a band it is next
        for place, (chunk, done) in enumerate(zip(self._segments, self._done, strict=True)):
            side = chunk.facts["side"]
            if done < limits[side]:
                first.setdefault((side, done), place)
        if not first:
            return None
        side, done = chosen = self._choose(policy, first)
        place = first.pop(chosen)
        chunk = self._segments[place]
        bands = done + 1
        # It goes on with the next band at once, where the policy would choose the same chunk again.
        while bands < limits[side]:
            waiting = first.get((side, bands), place)  # one that waits for the same band is older
            if waiting < place or self._choose(policy, {**first, (side, bands): place}) != (side, bands):
                break
            bands += 1
        return Task(place, chunk, _border(chunk.facts["first"], self._windows[side][bands - 1]))

    def _choose(self, policy: str, places: Mapping[tuple[int, int], int]) -> tuple[int, int]:
        """Which of the chunks is next that wait for a band of a side, by side and band."""
        ordered = sorted(places)
        tasks = [
            BandTasks.of(
                np.array([self._segments[places[key]].facts["number"] for key in ordered if key[0] == side], np.int64),
                np.array([done for own, done in ordered if own == side], np.int64),
                bands,
            )
            for side, bands in enumerate(self._bands)
        ]
        columns = (np.concatenate(column) for column in zip(*tasks, strict=True))
        return ordered[next_task(POLICIES[policy], BandTasks(*columns))]

    def record(self, task: Task, met: Instant) -> None:
        """Note how far back the chunk of a task has met the other side."""
        chunk = self._segments[task.place] = task.chunk.with_facts(met=met)
        self._done[task.place] = self._count_done(chunk)

    def forget_done(self) -> None:
        """Drop the chunks that have done all bands."""
        self.segments = [
            chunk
            for chunk, done in zip(self._segments, self._done, strict=True)
            if done < len(self._bands[chunk.facts["side"]])
        ]

    def oldest(self, side: int) -> Instant:
        """The earliest time of a row of a side that waits."""
        return min([chunk.facts["first"] for chunk in self._segments if chunk.facts["side"] == side], default=FOREVER)

    def reaches(self, watermark: Instant) -> Reaches:
        """Up to when each use is complete: before the oldest chunk that has not done its window."""
        first: dict[tuple[int, int], Instant] = {}  # by side and bands that were done
        for chunk, done in zip(self._segments, self._done, strict=True):
            key = chunk.facts["side"], done
            first[key] = min(first.get(key, FOREVER), chunk.facts["first"])
        return {
            of_use: min([watermark, *(time for (side, done), time in first.items() if done < needed[side])])
            for of_use, needed in self._needed.items()
        }

    def needed(self, uses: Iterable[Bounds]) -> tuple[int, int]:
        """How many bands the chunks of each side do for some uses."""
        needs = [self._needed[of_use] for of_use in uses]
        return max((left for left, _ in needs), default=0), max((right for _, right in needs), default=0)


class WaitingPairs:
    """Pairs that were found, and that not all of their uses have.

    Each use takes them in order, up to its reach; a pair leaves when the slowest of its uses has taken it.
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._new: list[pl.DataFrame] = []

    def add(self, pairs: Iterable[pl.DataFrame]) -> None:
        """Add pairs with the times of their left rows and of their right rows in place of intervals."""
        self._new += pairs

    def take(self, before: Reaches, after: Reaches, routes: PairRoutes) -> list[pl.DataFrame]:
        """The pairs that some use takes when reaches go on; those that no use needs any more are dropped."""
        taken: list[pl.DataFrame] = []
        kept: list[Segment] = []
        moved = [(begin, after[of_use]) for of_use, begin in before.items() if begin < after[of_use]]
        takers = _Takers.of(before, after, routes)
        for segment in [*self.segments, *([_pairs_segment(stack(self._new))] if self._new else ())]:
            is_moved = any(begin <= segment.facts["last"] and end > segment.facts["first"] for begin, end in moved)
            if not is_moved:
                kept.append(segment)
                continue
            due, left = takers.marks(segment, routes)
            if due.any():
                taken.append(keep(segment.frame, due))
            if 2 * np.count_nonzero(left) > segment.rows:
                kept.append(segment)
            elif left.any():
                kept.append(_pairs_segment(keep(segment.frame, left)))
        self.segments, self._new = kept, []
        largest = merge_limit(kept)
        while (window := merge_window([segment.rows for segment in self.segments], largest)) is not None:
            self.segments[window] = [_pairs_segment(stack([segment.frame for segment in self.segments[window]]))]
        return taken


def _pairs_segment(pairs: pl.DataFrame) -> Segment:
    start = pair_starts(pairs)
    return Segment.of(pairs, first=int(start.min()), last=int(start.max()))


class PairRoutes:
    """Which pairs belong to a use: the codes of its first and its last band, of all codes in order."""

    def __init__(self, bands: tuple[Bands, Bands], places: Mapping[Bounds, tuple[int, int]]) -> None:
        self.over_left, self.over_right = bands
        self.places = places
        self.codes = len(self.over_left) + len(self.over_right)

    def codes_of(self, pairs: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The bands of pairs: those of the left side count down, in front of those of the right. One beyond all windows
        has a code below 0 or beyond all codes."""
        distance = times(pairs, FROM) - times(pairs, _RIGHT)
        backwards = len(self.over_left) - 1 - self.over_left.band_of(-distance)
        return np.where(distance >= 0, len(self.over_left) + self.over_right.band_of(distance), backwards)


class _Takers(NamedTuple):
    """Pairs by code and by the group of their starts among the instants at which a reach was, or is: whether some use
    takes them now, and whether some use has not taken them yet."""

    groups: Groups
    due: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    left: np.ndarray[tuple[int, int], np.dtype[np.bool_]]

    @classmethod
    def of(cls, before: Reaches, after: Reaches, routes: PairRoutes) -> _Takers:
        groups = Groups({of_use: (before[of_use], after[of_use]) for of_use in routes.places})
        due, left = (np.zeros((routes.codes, len(groups)), np.bool_) for _ in range(2))
        for of_use, (first, last) in routes.places.items():
            begin, end = groups.within(of_use)
            due[first : last + 1, begin:end] = True
            left[first : last + 1, end:] = True
        return cls(groups, due, left)

    def marks(
        self, segment: Segment, routes: PairRoutes
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """Which pairs some use takes, and which some use has not taken yet."""
        code, group = routes.codes_of(segment.frame), self.groups.of(pair_starts(segment.frame))
        within = (code >= 0) & (code < routes.codes)  # a use that was dropped may have had a larger window
        code = np.where(within, code, 0)
        return within & self.due[code, group], within & self.left[code, group]


_RIGHT = "@until"  # pairs have the times of their right rows there, until they are routed


def pair_starts(pairs: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """When pairs begin: with the later row."""
    starts: np.ndarray[tuple[int], np.dtype[np.int64]] = np.maximum(times(pairs, FROM), times(pairs, _RIGHT))
    return starts


def time_span(segment: Segment) -> tuple[Instant, Instant]:
    """The earliest and the latest time of the rows of a segment."""
    return segment.stored.derive("span", _span)


def _span(frame: pl.DataFrame) -> tuple[Instant, Instant]:
    time = times(frame, FROM)
    return int(time.min()), int(time.max())


def _border(first: Instant, window: int) -> Instant:
    """The earliest time that a window holds for a row at an instant."""
    return BEFORE_ALL if window == FOREVER else max(BEFORE_ALL, first - window + 1)


def _cut(frame: pl.DataFrame, rows: int) -> list[pl.DataFrame]:
    """Rows in pieces, earlier ones first, each in the order of hashes."""
    if frame.height <= rows:
        return [frame] if frame.height else []
    order = np.argsort(times(frame, FROM), kind="stable")
    parts = [gather(frame, order[begin : begin + rows]) for begin in range(0, frame.height, rows)]
    return [gather(part, np.argsort(_hashes(part), kind="stable")) for part in parts]


def _hashes(frame: pl.DataFrame) -> Hashes:
    hashes: Hashes = frame.get_column(HASH).to_numpy()
    return hashes

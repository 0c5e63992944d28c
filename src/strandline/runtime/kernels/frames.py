"""Frames of window functions over rows that are sorted by partition and order.

A frame is a range of places, from `low` to before `high`. For the rows of a partition one after the other, neither
bound ever goes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strandline.logical.expressions import Frame
from strandline.runtime.kernels.batch import Index, Mask, Times
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.sweep import LOWEST


@dataclass(frozen=True)
class Partitions:
    """Rows of partitions, one partition after the other, each in its order. `levels` is the order within an instant, if
    there is one."""

    begins: Index  # where each partition begins
    time: Times
    levels: Index | None = None

    @cached_property
    def sizes(self) -> Index:
        return np.diff(np.append(self.begins, len(self.time)))

    @cached_property
    def first(self) -> Index:
        """For each row where its partition begins."""
        return np.repeat(self.begins, self.sizes)

    @cached_property
    def last(self) -> Index:
        """For each row where its partition ends."""
        return np.repeat(self.begins + self.sizes, self.sizes)

    @cached_property
    def begins_peers(self) -> Mask:
        """Mask of the first of some peers: equal rows of one instant."""
        differs = np.empty(len(self.time), np.bool_)
        differs[1:] = self.time[1:] != self.time[:-1]
        if self.levels is not None:
            differs[1:] |= self.levels[1:] != self.levels[:-1]
        differs[self.begins] = True
        return differs

    @cached_property
    def peers(self) -> Index:
        """For each row where its peers begin."""
        places = np.flatnonzero(self.begins_peers)
        return np.repeat(places, np.diff(np.append(places, len(self.time))))

    @cached_property
    def after_peers(self) -> Index:
        """For each row where its peers end."""
        places = np.flatnonzero(self.begins_peers)
        ends = np.append(places[1:], len(self.time))
        return np.repeat(ends, ends - places)

    def ends(self, rows: int) -> Index:
        """The places of the last rows of each partition, at most so many."""
        kept = np.minimum(self.sizes, rows)
        ends = np.repeat(self.begins + self.sizes, kept)
        number = np.arange(len(ends)) - np.repeat(np.cumsum(kept) - kept, kept)
        places: Index = ends - np.repeat(kept, kept) + number
        return places

    def bounds(self, frame: Frame, rows: Index) -> tuple[Index, Index]:
        """The frames of some rows, in order."""
        first, last = self.first[rows], self.last[rows]
        low, high = first, last
        if frame.unit == "rows":
            low = first if frame.start is None else np.clip(rows + frame.start, first, last)
            high = last if frame.end is None else np.clip(rows + frame.end + 1, first, last)
        else:
            if frame.start is not None:
                by_time = frame.start != 0
                low = self._since(rows, frame.start) if by_time else self.peers[rows]
            if frame.end is not None:
                by_time = frame.end != 0
                high = self._since(rows, frame.end + 1) if by_time else self.after_peers[rows]
        return low, np.maximum(low, high)

    def _since(self, rows: Index, offset: int) -> Index:
        """The first place of the partition whose time is at least that of a row and an offset."""
        return places_since(self.time, self.first, self.last, rows, offset)


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8[::1], i8)", on_demand=True)
def places_since(time: Times, first: Index, last: Index, rows: Index, offset: int) -> Index:
    """For some rows, in order, the first place of their partition with a time of at least theirs and the offset."""
    places = np.empty(len(rows), np.int64)
    place = 0
    for number in range(len(rows)):
        row = rows[number]
        place = max(place, first[row])
        while place < last[row] and time[place] < time[row] + offset:
            place += 1
        places[number] = place
    return places


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def frame_totals(
    entering: Index,
    enters_at: Times,
    added: Index,
    leaving: Index,
    leaves_at: Times,
    removed: Index,
    group: Index,
    time: Times,
    start: Index,
) -> Index:
    """The total of its group at the instant of each row, with what enters at that instant and without what leaves then;
    and behind these the totals of the groups at the end. Groups and instants of what enters, of what leaves and of the
    rows are given in order of time, and the totals of the groups at the start.
    """
    rows = len(group)
    totals = np.empty(rows + len(start), np.int64)
    total = start.copy()
    entered, left = 0, 0
    for row in range(rows + 1):
        while entered < len(entering) and (row == rows or enters_at[entered] <= time[row]):
            total[entering[entered]] += added[entered]
            entered += 1
        while left < len(leaving) and (row == rows or leaves_at[left] <= time[row]):
            total[leaving[left]] -= removed[left]
            left += 1
        if row < rows:
            totals[row] = total[group[row]]
    totals[rows:] = total
    return totals


@compiled("i8[::1](i8[::1], i8[::1], b1[::1], i8[::1])", on_demand=True)
def frame_maxima(low: Index, high: Index, has_value: Mask, ranks: Index) -> Index:
    """The largest rank in each frame, of rows with a value; LOWEST where there is none. Frames are in order."""
    maxima = np.empty(len(low), np.int64)
    # A queue of places: each is later than the one before and has a smaller rank.
    queue = np.empty(len(ranks), np.int64)
    head, tail, following = 0, 0, 0
    for number in range(len(low)):
        following = max(following, low[number])
        while following < high[number]:
            if has_value[following]:
                while tail > head and ranks[queue[tail - 1]] <= ranks[following]:
                    tail -= 1
                queue[tail] = following
                tail += 1
            following += 1
        while head < tail and queue[head] < low[number]:
            head += 1
        found = head < tail and queue[head] < high[number]
        maxima[number] = ranks[queue[head]] if found else LOWEST
    return maxima


@compiled("i8[::1](i8[::1], b1[::1], i8[::1])", on_demand=True)
def running_partition_maxima(first: Index, has_value: Mask, ranks: Index) -> Index:
    """The largest rank of a partition up to each row; LOWEST where there is none."""
    maxima = np.empty(len(ranks), np.int64)
    largest = LOWEST
    for row in range(len(ranks)):
        if first[row] == row:
            largest = LOWEST
        if has_value[row]:
            largest = max(largest, ranks[row])
        maxima[row] = largest
    return maxima

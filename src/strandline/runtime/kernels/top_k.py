"""Top-k with ties per group: pruning of elements that can never be in it, and a sweep over events for the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.batch import Index, Mask, Times
from strandline.runtime.kernels.compiled import compiled, inlined


def among_first(group: Index, level: Index, order_time: Times, is_retained: Mask, limit: int) -> Mask:
    """Mask of elements that fewer than `limit` retained elements of their group, with an order time no later, precede.

    `level` is an element's place in the order, the same for ties. Elements are given by order time.
    """
    sizes = np.minimum(np.bincount(group), limit)
    return _among_first(group, level, order_time, is_retained, np.cumsum(sizes) - sizes, limit)


@compiled("b1[::1](i8[::1], i8[::1], i8[::1], b1[::1], i8[::1], i8)")
def _among_first(
    group: Index, level: Index, order_time: Times, is_retained: Mask, heap_start: Index, limit: int
) -> Mask:
    """Each group has a max-heap of its `limit` smallest levels, which begins at its `heap_start`."""
    count = len(group)
    heaps = np.empty(count, np.int64)
    filled = np.zeros(len(heap_start), np.int64)
    first = np.ones(count, np.bool_)
    begin = 0
    while begin < count:
        end = begin
        while end < count and order_time[end] == order_time[begin]:
            code, value = group[end], level[end]
            base, size = heap_start[code], filled[code]
            if is_retained[end] and size < limit:
                at = size
                while at > 0 and heaps[base + (at - 1) // 2] < value:
                    heaps[base + at] = heaps[base + (at - 1) // 2]
                    at = (at - 1) // 2
                heaps[base + at] = value
                filled[code] += 1
            elif is_retained[end] and value < heaps[base]:
                at = 0
                while 2 * at + 1 < size:
                    child = 2 * at + 1
                    if child + 1 < size and heaps[base + child + 1] > heaps[base + child]:
                        child += 1
                    if heaps[base + child] <= value:
                        break
                    heaps[base + at] = heaps[base + child]
                    at = child
                heaps[base + at] = value
            end += 1
        # All of one order time count for each other.
        for index in range(begin, end):
            code = group[index]
            first[index] = filled[code] < limit or level[index] <= heaps[heap_start[code]]
        begin = end
    return first


@inlined
def _appended(
    intervals: npt.NDArray[np.int64], count: int, row: tuple[int, int, int, int]
) -> tuple[npt.NDArray[np.int64], int]:
    if count == len(intervals):
        intervals = np.concatenate((intervals, intervals))
    for column in range(4):
        intervals[count, column] = row[column]
    return intervals, count + 1


@compiled("i8[:, ::1](i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, b1, i8)")
def running_top(
    time: Times,
    element: Index,
    change: Index,
    events: Index,
    place_of: Index,
    level: Index,
    head: Index,
    places: Index,
    limit: int,
    with_ranks: bool,
    until: int,
) -> npt.NDArray[np.int64]:
    """Elements that are among the first `limit` of their group, with the intervals of that up to `until`: rows of
    element, rank, start and end. The rank counts `with_ranks`; then there is an interval per rank.

    Group g has the events from `events[g]` to `events[g + 1]`, in order of time: an element comes (`change` 1) or goes
    (-1). Its elements have the places from `places[g]` to `places[g + 1]`, each its own; `head[position]` and
    `level[position]` are the first and the last place of its ties. A tree of counts over the places finds the k-th
    element that is there; all up to a bound are among the first, and only elements that the bound crosses are touched,
    or with ranks those behind a change.
    """
    size = len(place_of)
    largest = 0
    for group in range(len(places) - 1):
        largest = max(largest, places[group + 1] - places[group])
    tree = np.empty(largest + 1, np.int64)
    since, rank_of = np.empty(size, np.int64), np.zeros(size, np.int64)
    inside, is_valid = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    element_at = np.empty(size, np.int64)
    for index in range(size):
        element_at[place_of[index]] = index
    intervals = np.empty((2 * size + 16, 4), np.int64)
    interval_count = 0
    for group in range(len(places) - 1):
        base, width = places[group], places[group + 1] - places[group]
        tree[: width + 1] = 0
        highest = 1
        while highest * 2 <= width:
            highest *= 2
        total, bound = 0, width - 1
        event, last = events[group], events[group + 1]
        while event < last:
            now = time[event]
            first, lowest = event, width
            while event < last and time[event] == now:
                position = place_of[element[event]]
                node = position - base + 1
                while node <= width:
                    tree[node] += change[event]
                    node += node & -node
                total += change[event]
                is_valid[position] = change[event] > 0
                lowest = min(lowest, head[position] - base)
                if change[event] < 0 and inside[position]:
                    inside[position] = False
                    if since[position] < now:
                        row = (element_at[position], rank_of[position], since[position], now)
                        intervals, interval_count = _appended(intervals, interval_count, row)
                event += 1
            before, bound = bound, width - 1
            if total > limit:
                node, step, remaining = 0, highest, limit
                while step > 0:
                    if node + step <= width and tree[node + step] < remaining:
                        node += step
                        remaining -= tree[node]
                    step //= 2
                bound = level[base + node] - base
            # Arrivals of this run.
            for index in range(first, event):
                position = place_of[element[index]]
                if not with_ranks and is_valid[position] and position - base <= bound and not inside[position]:
                    inside[position], since[position] = True, now
            # Elements that the bound crossed; with ranks, all behind the first change.
            low, high = min(before, bound), max(before, bound)
            if with_ranks:
                low = lowest - 1
            if low < high:
                count = 0
                node = low + 1
                while node > 0:
                    count += tree[node]
                    node -= node & -node
                ranked, leveled = 0, -1
                while True:
                    count += 1
                    if count > total:
                        break
                    node, step, remaining = 0, highest, count
                    while step > 0:
                        if node + step <= width and tree[node + step] < remaining:
                            node += step
                            remaining -= tree[node]
                        step //= 2
                    if node > high:
                        break
                    position = base + node
                    if with_ranks and level[position] != leveled:
                        ranked, leveled = count, level[position]
                    stays = node <= bound and inside[position] and rank_of[position] == ranked
                    if inside[position] and not stays:
                        inside[position] = False
                        if since[position] < now:
                            row = (element_at[position], rank_of[position], since[position], now)
                            intervals, interval_count = _appended(intervals, interval_count, row)
                    if node <= bound and not inside[position]:
                        inside[position], since[position], rank_of[position] = True, now, ranked
    for position in range(size):
        if inside[position] and since[position] < until:
            row = (element_at[position], rank_of[position], since[position], until)
            intervals, interval_count = _appended(intervals, interval_count, row)
    return intervals[:interval_count].copy()

"""A sweep over events that keeps the first elements in an order, with those that are level with the last of them."""

from __future__ import annotations

import numpy as np

from strandline.execution.batch import Index, Times
from strandline.execution.kernels.compiled import compiled


@compiled("Tuple((i8[::1], i8[::1], i8[::1]))(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, i8)")
def running_top(
    time: Times, element: Index, change: Index, place_of: Index, level: Index, limit: int, until: int
) -> tuple[Index, Times, Times]:
    """Which elements are among the first `limit`, from when until when, up to `until`.

    Events are in order of time: an element comes (`change` 1) or goes (-1). Elements have places in the order, each its
    own; `level[place]` is the last place that is level with a place. A tree of counts over the places finds the k-th
    element that is there; all up to a bound are among the first, and only what the bound passes over has to be touched.
    """
    size = len(place_of)
    tree = np.zeros(size + 1, np.int64)
    since = np.empty(size, np.int64)
    inside, there = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    element_at = np.empty(size, np.int64)
    for index in range(size):
        element_at[place_of[index]] = index
    highest = 1
    while highest * 2 <= size:
        highest *= 2

    room = 2 * size + 16
    who, begin, end = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    found, total, bound = 0, 0, size - 1
    event, events = 0, len(time)
    while event < events:
        now = time[event]
        first = event
        while event < events and time[event] == now:
            place = place_of[element[event]]
            node = place + 1
            while node <= size:
                tree[node] += change[event]
                node += node & -node
            total += change[event]
            there[place] = change[event] > 0
            if change[event] < 0 and inside[place]:
                inside[place] = False
                if since[place] < now:
                    if found == len(who):
                        who, begin, end = np.append(who, who), np.append(begin, begin), np.append(end, end)
                    who[found], begin[found], end[found] = element_at[place], since[place], now
                    found += 1
            event += 1
        before, bound = bound, size - 1
        if total > limit:
            node, width, rest = 0, highest, limit
            while width > 0:
                if node + width <= size and tree[node + width] < rest:
                    node += width
                    rest -= tree[node]
                width //= 2
            bound = level[node]
        # What has come in this run.
        for index in range(first, event):
            place = place_of[element[index]]
            if there[place] and place <= bound and not inside[place]:
                inside[place], since[place] = True, now
        # What the bound has passed over.
        low, high = min(before, bound), max(before, bound)
        if low < high:
            count = 0
            node = low + 1
            while node > 0:
                count += tree[node]
                node -= node & -node
            while True:
                count += 1
                if count > total:
                    break
                node, width, rest = 0, highest, count
                while width > 0:
                    if node + width <= size and tree[node + width] < rest:
                        node += width
                        rest -= tree[node]
                    width //= 2
                if node > high:
                    break
                if bound > before and not inside[node]:
                    inside[node], since[node] = True, now
                elif bound < before and inside[node]:
                    inside[node] = False
                    if since[node] < now:
                        if found == len(who):
                            who, begin, end = np.append(who, who), np.append(begin, begin), np.append(end, end)
                        who[found], begin[found], end[found] = element_at[node], since[node], now
                        found += 1
    for place in range(size):
        if inside[place] and since[place] < until:
            if found == len(who):
                who, begin, end = np.append(who, who), np.append(begin, begin), np.append(end, end)
            who[found], begin[found], end[found] = element_at[place], since[place], until
            found += 1
    return who[:found].copy(), begin[:found].copy(), end[:found].copy()

"""Sweep over events that keeps the members of each group in order: the k-th member, or all of them.

The elements of a group have places: their positions in one order of all elements of all groups, the groups one after
the other (`first` says where the places of a group begin). An element without a value has the place -1.
"""

from __future__ import annotations

import numpy as np

from strandline.runtime.kernels.batch import Index
from strandline.runtime.kernels.compiled import compiled


@compiled(
    "Tuple((i8[::1], i8[::1]))"
    "(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])"
)
def running_places(
    by_time: Index,
    codes: Index,
    run_of: Index,
    held: Index,
    element_of: Index,
    change: Index,
    first: Index,
    place_of: Index,
    lower: Index,
    upper: Index,
) -> tuple[Index, Index]:
    """The places of two members of its group after each run, counted from 0 by `lower` and `upper`; -1 for none.

    Elements 0, 1, … are `held` from before, by their groups. An event brings its element (`change` 1), takes it away
    (-1) or does nothing to the group's members (0). Per group a tree of counts: going down it finds the k-th, and a
    change touches one count per level.
    """
    tree = np.zeros(len(place_of) + 1, np.int64)
    size = first[1:] - first[:-1]
    last = np.empty(len(lower), np.int64)
    for at in range(len(run_of)):
        last[run_of[at]] = at
    low, high = np.full(len(lower), -1), np.full(len(lower), -1)
    for step in range(len(held) + len(by_time)):
        if step < len(held):
            element, group, sign = step, held[step], 1
        else:
            event = by_time[step - len(held)]
            element, group, sign = element_of[event], codes[event], change[event]
        begin, count = first[group], size[group]
        if sign != 0 and place_of[element] >= 0:
            node = place_of[element] - begin + 1
            while node <= count:
                tree[begin + node - 1] += sign
                node += node & -node
        if step < len(held):
            continue
        run = run_of[step - len(held)]
        if last[run] != step - len(held):
            continue
        for which in range(2):
            ordinal = lower[run] if which == 0 else upper[run]
            if ordinal < 0:
                continue
            node, width = 0, 1
            while width * 2 <= count:
                width *= 2
            remaining = ordinal + 1
            while width > 0:
                if node + width <= count and tree[begin + node + width - 1] < remaining:
                    node += width
                    remaining -= tree[begin + node - 1]
                width //= 2
            if which == 0:
                low[run] = begin + node
            else:
                high[run] = begin + node
    return low, high


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def list_members(
    by_time: Index,
    codes: Index,
    run_of: Index,
    held: Index,
    element_of: Index,
    change: Index,
    first: Index,
    place_of: Index,
    begin_of: Index,
) -> Index:
    """Places of the members of a group after each run, in order. Those of run r go to begin_of[r]:begin_of[r+1],
    which is empty where they are not needed."""
    last = np.empty(len(begin_of) - 1, np.int64)
    for at in range(len(run_of)):
        last[run_of[at]] = at
    members = np.empty(len(place_of), np.int64)  # of each group from `first` on, in order
    count = np.zeros(len(first) - 1, np.int64)
    listed = np.empty(begin_of[-1], np.int64)
    for step in range(len(held) + len(by_time)):
        if step < len(held):
            element, group, sign = step, held[step], 1
        else:
            event = by_time[step - len(held)]
            element, group, sign = element_of[event], codes[event], change[event]
        begin = first[group]
        if sign != 0 and place_of[element] >= 0:
            place = place_of[element]
            left, right = begin, begin + count[group]
            end = right
            while left < right:
                middle = (left + right) // 2
                if members[middle] < place:
                    left = middle + 1
                else:
                    right = middle
            if sign > 0:
                for at in range(end, left, -1):
                    members[at] = members[at - 1]
                members[left] = place
            else:
                for at in range(left, end - 1):
                    members[at] = members[at + 1]
            count[group] += sign
        if step < len(held):
            continue
        run = run_of[step - len(held)]
        if last[run] == step - len(held):
            start = begin_of[run]
            for index in range(begin_of[run + 1] - start):
                listed[start + index] = members[begin + index]
    return listed

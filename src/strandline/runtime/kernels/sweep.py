"""Sweep line over events in order of time: the runs of each group, running totals, running maxima.

An event is something that happens to a group at an instant. All events of a group at one instant are a run: after it
the group's result holds until its next run. The sweep visits all groups together, in order of time: its state per group
is small and stays in the processor's cache, and the events are read nearly sequentially.
"""

from __future__ import annotations

import numpy as np

from strandline.runtime.kernels.batch import Index, Mask, Times
from strandline.runtime.kernels.compiled import compiled

LOWEST = np.iinfo(np.int64).min


@compiled("Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1]))(i8[::1], i8[::1], i8[::1], i8, i8)")
def lay_out(
    by_time: Index, codes: Index, time: Times, groups: int, until: int
) -> tuple[Index, Index, Times, Times, Index]:
    """The run of each event, events in the order `by_time`; for each run its group, its instant, and when the next run
    of the group begins or the slice ends; for each group its last run, or -1.
    """
    events = len(by_time)
    run_of = np.empty(events, np.int64)
    code, instant, ends = np.empty(events, np.int64), np.empty(events, np.int64), np.empty(events, np.int64)
    last, since = np.full(groups, -1), np.zeros(groups, np.int64)
    runs = 0
    for position in range(events):
        event = by_time[position]
        group, now = codes[event], time[event]
        before = last[group]
        if before >= 0:
            if since[group] == now:
                run_of[position] = before
                continue
            ends[before] = now
        last[group], since[group] = runs, now
        run_of[position], code[runs], instant[runs], ends[runs] = runs, group, now, until
        runs += 1
    return run_of, code[:runs].copy(), instant[:runs].copy(), ends[:runs].copy(), last


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8, i8, i8[::1])")
def running_totals(by_time: Index, codes: Index, run_of: Index, groups: int, runs: int, changes: Index) -> Index:
    """The total of its group after each run, of changes given per event."""
    totals, total = np.empty(runs, np.int64), np.zeros(groups, np.int64)
    for position in range(len(by_time)):
        event = by_time[position]
        group = codes[event]
        total[group] += changes[event]
        totals[run_of[position]] = total[group]
    return totals


@compiled(
    "Tuple((i8[::1], i8[::1]))(i8[::1], i8[::1], i8[::1], i8[::1], i8, i8, i8[::1], i8, b1[::1], i8[::1], i8[::1], i8)"
)
def running_maxima(
    by_time: Index,
    codes: Index,
    time: Times,
    run_of: Index,
    groups: int,
    runs: int,
    held: Index,
    first_entering: int,
    has_value: Mask,
    ranks: Index,
    ends: Times,
    until: int,
) -> tuple[Index, Index]:
    """The largest rank of an element that is valid, after each run (LOWEST where there is none); and which elements
    can still be the largest just before `until`, or later.

    Elements are numbered: those held from before, of the groups `held`, in any order; then those that enter, by events
    `first_entering` and so on. `has_value`, `ranks` and `ends` go by this number.

    Per group the elements that still matter form a staircase: each ends later than the one before and has a smaller
    rank. An element that ends no later than another with at least its rank can never be the largest again.
    """
    # Space for the staircase of each group: one stair per element. A staircase is stairs[head:tail].
    entering = len(ranks) - len(held)
    head = np.zeros(groups + 1, np.int64)
    for group in held:
        head[group + 1] += 1
    for event in range(first_entering, first_entering + entering):
        head[codes[event] + 1] += 1
    for group in range(groups):
        head[group + 1] += head[group]
    tail = head.copy()
    stairs = np.empty(len(ranks), np.int64)
    stair_rank, stair_end = np.empty(len(ranks), np.int64), np.empty(len(ranks), np.int64)

    highest = np.empty(runs, np.int64)
    for step in range(len(held) + len(by_time)):
        if step < len(held):
            element, group = step, held[step]
        else:
            event = by_time[step - len(held)]
            element, group = len(held) + event - first_entering, codes[event]
            if event < first_entering or event >= first_entering + entering:
                element = -1
        if element >= 0 and has_value[element]:
            rank, end = ranks[element], ends[element]
            low, high = head[group], tail[group]
            # Where it belongs by its end; nearly always last.
            right = high
            if high > low and stair_end[high - 1] >= end:
                start = low
                while start < right:
                    middle = (start + right) // 2
                    if stair_end[middle] < end:
                        start = middle + 1
                    else:
                        right = middle
            if right == high or stair_rank[right] < rank:
                left = right
                while left > low and stair_rank[left - 1] <= rank:
                    left -= 1
                if right < high and stair_end[right] == end:
                    right += 1
                # The new stair takes the place of those from left to right.
                move = left + 1 - right
                if move != 0 and right < high:
                    for column in (stairs, stair_rank, stair_end):
                        column[right + move : high + move] = column[right:high].copy()
                tail[group] = high + move
                stairs[left], stair_rank[left], stair_end[left] = element, rank, end
        if step >= len(held):
            now = time[event]
            first = head[group]
            while first < tail[group] and stair_end[first] <= now:
                first += 1
            head[group] = first
            highest[run_of[step - len(held)]] = stair_rank[first] if first < tail[group] else LOWEST

    kept = np.empty(len(ranks), np.int64)
    count = 0
    for group in range(groups):
        for at in range(head[group], tail[group]):
            if stair_end[at] >= until:
                kept[count] = stairs[at]
                count += 1
    return highest, kept[:count].copy()


@compiled("Tuple((i8[::1], i8[::1], i8[::1], i8[::1]))(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def gaps(first: Index, start: Times, end: Times, since: Times, limit: Times) -> tuple[Index, Times, Times, Times]:
    """Gaps that intervals leave between `since` and `limit`: owner, start and end; and for each owner the end of the
    gapless cover up to `limit`, or `since`.

    The intervals of owner i are those from `first[i]` to `first[i + 1]`, by start.
    """
    owners = len(since)
    owner_of = np.empty(owners + len(start), np.int64)
    begin, stop = np.empty(len(owner_of), np.int64), np.empty(len(owner_of), np.int64)
    reach = np.empty(owners, np.int64)
    count = 0
    for owner in range(owners):
        at = since[owner]
        for interval in range(first[owner], first[owner + 1] + 1):
            last = interval == first[owner + 1]
            until = limit[owner] if last else min(start[interval], limit[owner])
            if at < until:
                owner_of[count], begin[count], stop[count] = owner, at, until
                count += 1
            if not last:
                at = max(at, end[interval])
        reach[owner] = at
    return owner_of[:count].copy(), begin[:count].copy(), stop[:count].copy(), reach


@compiled("Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1]))(b1[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8)")
def cover(
    begins_group: Mask, start: Times, end: Times, sent: Times, reach: Times, until: int
) -> tuple[Index, Times, Times, Times, Times]:
    """Cover the union of each group's intervals with as few disjoint ones as can be chosen without looking ahead.

    A chosen interval begins where none is chosen yet, or where the one before ends, and goes as far as the intervals
    reach that have started by then. The intervals of a group are contiguous, by start. Before the slice each group was
    covered until `sent`, and its intervals went as far as `reach`.

    Returns the chosen intervals that begin before `until`: a row of the group that is valid all the time, begin and
    end; and for each group until when it is covered now, and how far its intervals go.
    """
    rows = len(start)
    row_of, begins, ends = np.empty(2 * rows, np.int64), np.empty(2 * rows, np.int64), np.empty(2 * rows, np.int64)
    sent_after, reach_after = np.empty(rows, np.int64), np.empty(rows, np.int64)
    chosen, groups, row = 0, 0, 0
    while row < rows:
        covered, far, longest = sent[groups], reach[groups], row
        first = row
        while row <= rows:
            ended = row == rows or (row > first and begins_group[row])
            now = until if ended else start[row]
            while covered < now and far > covered:
                row_of[chosen], begins[chosen], ends[chosen] = longest, covered, far
                covered = far
                chosen += 1
            if ended:
                break
            covered = max(covered, now)
            if end[row] > far:
                far, longest = end[row], row
            row += 1
        sent_after[groups], reach_after[groups] = covered, far
        groups += 1
    return (
        row_of[:chosen].copy(),
        begins[:chosen].copy(),
        ends[:chosen].copy(),
        sent_after[:groups].copy(),
        reach_after[:groups].copy(),
    )

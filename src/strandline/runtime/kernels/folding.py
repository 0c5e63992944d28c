"""Signed rows as elements: which insertion each deletion ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strandline.core.temporal import OPEN
from strandline.runtime.kernels.batch import Index, Mask, Times
from strandline.runtime.kernels.compiled import compiled

LIVE = OPEN  # the end of an element that is not deleted


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Elements as the row that has their payload, their start and their end; and the deletions without a match."""

    rows: Index
    start: Times
    end: Times
    unmatched: Index


def fold_equal_rows(codes: Index, time: Times, sign: Index, held: int) -> FoldedRows:
    """Elements of rows that are equal if their `codes` are; the first `held` rows are elements since `time`.

    What happens to equal rows at one instant counts as a sum. Of equal elements the oldest ends first. Of deletions
    that nothing is left for at their instant, the last ones have no match.
    """
    groups = int(codes.max(initial=-1)) + 1
    arrived = held + np.lexsort((-sign[held:], time[held:], codes[held:]))  # insertions first, then in order of arrival
    first = np.flatnonzero(_begins(codes[arrived], time[arrived]))
    size = np.diff(np.append(first, len(arrived)))
    code, at = codes[arrived[first]], time[arrived[first]]
    net = np.add.reduceat(sign[arrived], first) if len(first) else np.zeros(0, np.int64)
    missing = _missing_rows(code, net, np.bincount(codes[:held], minlength=groups))
    change = net + missing
    opened, closed = np.repeat(np.arange(len(first)), np.maximum(change, 0)), np.maximum(-change, 0)
    rows = np.concatenate([np.arange(held), arrived[first[opened]]])
    start = np.concatenate([time[:held], at[opened]])
    order = np.lexsort((start, codes[rows]))
    rows, start = rows[order], start[order]
    # By code, the k-th element ends with the k-th deletion.
    ends = np.repeat(at, closed)
    closings = np.bincount(np.repeat(code, closed), minlength=groups)
    elements = np.bincount(codes[rows], minlength=groups)
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(elements) - elements, elements)
    ended = rank < closings[codes[rows]]
    end = np.full(len(rows), LIVE)
    end[ended] = ends[((np.cumsum(closings) - closings)[codes[rows]] + rank)[ended]]
    last = np.repeat(first + size, missing)
    unmatched = arrived[last - 1 - (np.arange(len(last)) - np.repeat(np.cumsum(missing) - missing, missing))]
    return FoldedRows(rows, start, end, unmatched)


def fold_keys(codes: Index, time: Times, sign: Index, payload: Index, held: int) -> FoldedRows:
    """Elements of rows with keys `codes`, of which the first `held` are elements since `time`.

    An insertion replaces the element of its key; at one instant the last row counts. One with the same `payload`
    changes nothing.
    """
    arrived = held + np.lexsort((time[held:], codes[held:]))
    order = np.concatenate([np.arange(held), arrived])
    order = order[np.argsort(codes[order], kind="stable")]  # of each key the element that is held comes first
    code, at, is_there = codes[order], time[order], sign[order] > 0
    same_key = np.zeros(len(order), np.bool_)
    same_key[1:] = code[1:] == code[:-1]
    was_there = np.zeros(len(order), np.bool_)
    was_there[1:] = same_key[1:] & is_there[:-1]
    unmatched = order[~is_there & ~was_there]
    # The last row of a key at an instant, where that changes something.
    goes_on = np.zeros(len(order), np.bool_)
    goes_on[:-1] = same_key[1:] & (at[1:] == at[:-1])
    order, code, at, is_there = (part[~goes_on] for part in (order, code, at, is_there))
    content = np.where(is_there, payload[order], -1)
    before = np.full(len(order), -1)
    before[1:] = np.where(code[1:] == code[:-1], content[:-1], -1)
    changes = content != before
    order, code, at, is_there = (part[changes] for part in (order, code, at, is_there))
    end = np.full(len(order), LIVE)
    end[:-1] = np.where(code[1:] == code[:-1], at[1:], LIVE)
    return FoldedRows(order[is_there], at[is_there], end[is_there], unmatched)


def _begins(codes: Index, time: Times) -> Mask:
    """Which rows, by code and time, are the first of theirs."""
    first = np.ones(len(codes), np.bool_)
    first[1:] = (codes[1:] != codes[:-1]) | (time[1:] != time[:-1])
    return first


@compiled("i8[::1](i8[::1], i8[::1], i8[::1])")
def _missing_rows(code: Index, net: Index, held: Index) -> Index:
    """How many deletions find nothing to delete, where the number of equal rows changes by `net`; by code and time."""
    missing = np.zeros(len(code), np.int64)
    live = 0
    for row in range(len(code)):
        if row == 0 or code[row] != code[row - 1]:
            live = held[code[row]]
        live += net[row]
        if live < 0:
            missing[row] = -live
            live = 0
    return missing

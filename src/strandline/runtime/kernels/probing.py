"""Hash probing, by key alone or by key and time: the inner loop of joins and of duplicate elimination."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.batch import Index, Times
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.hashing import Hashes

# Compiled, because arrays would have to hold every candidate of a slot before the first of them is compared.


@compiled("Tuple((i8[::1], i8[::1], i8))(u8[::1], u8[::1], u4[::1], u8, i8, i8)")
def matches(
    hashes: Hashes, stored: Hashes, table: npt.NDArray[np.uint32], shift: np.uint64, begin: int, limit: int
) -> tuple[Index, Index, int]:
    """Pairs (row of `hashes`, row of `stored`) with equal hashes from row `begin` on, and the row to continue with.

    It stops before a row that would make more than `limit` pairs; one row may have more. `stored` is sorted, and those
    whose leading bits, all but `shift`, are n lie from `table[n]` to `table[n + 1]`.
    """
    capacity = max(len(hashes) - begin, 16)
    rows, stored_rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count, row = 0, begin
    while row < len(hashes):
        row_hash = hashes[row]
        slot = np.int64(row_hash >> shift)
        first, end = np.int64(table[slot]), np.int64(table[slot + 1])
        # A slot has one or two rows, unless a frequent key lies in it: then halving is better than walking.
        stop = end
        while stop - first > 8:
            middle = (first + stop) // 2
            if stored[middle] < row_hash:
                first = middle + 1
            else:
                stop = middle
        while first < end and stored[first] < row_hash:
            first += 1
        last = first
        while last < end and stored[last] == row_hash:
            last += 1
        pairs = last - first
        if count > 0 and count + pairs > limit:
            break
        if count + pairs > capacity:
            capacity = 2 * capacity + int(pairs)
            more_rows, more_stored_rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            more_rows[:count], more_stored_rows[:count] = rows[:count], stored_rows[:count]
            rows, stored_rows = more_rows, more_stored_rows
        for at in range(first, last):
            rows[count], stored_rows[count] = row, at
            count += 1
        row += 1
    return rows[:count].copy(), stored_rows[:count].copy(), row


FAN_OUT = 16  # rows, and blocks of rows, whose latest end is kept


def latest_ends(ends: Times) -> Times:
    """The latest end in each block of FAN_OUT rows, of FAN_OUT such blocks, and so on: one level after the other."""
    levels, level = [np.empty(0, np.int64)], ends
    while len(level) > FAN_OUT:
        level = np.maximum.reduceat(level, np.arange(0, len(level), FAN_OUT))
        levels.append(level)
    return np.concatenate(levels)


@compiled("Tuple((i8[::1], i8[::1], i8))(u8[::1], i8[::1], i8[::1], u8[::1], i8[::1], i8[::1], i8[::1], i8, i8)")
def overlaps(
    hashes: Hashes,
    start: Times,
    end: Times,
    stored: Hashes,
    stored_start: Times,
    stored_end: Times,
    latest: Times,
    begin: int,
    limit: int,
) -> tuple[Index, Index, int]:
    """Pairs with equal hashes whose intervals overlap, from row `begin` on, and the row to continue with.

    `stored` is sorted by hash and start. Rows of a key that start too late are cut off by halving, those that end too
    early are passed over in blocks (`latest`, of `latest_ends`): work is per pair, whatever is stored.
    """
    capacity = max(len(hashes) - begin, 16)
    rows, stored_rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count, row, size = 0, begin, len(stored)
    while row < len(hashes):
        first = np.searchsorted(stored, hashes[row], side="left")
        last, stop = first, np.searchsorted(stored, hashes[row], side="right")
        while last < stop:  # the first row that starts at the end of this one, or later
            middle = (last + stop) // 2
            if stored_start[middle] < end[row]:
                last = middle + 1
            else:
                stop = middle
        before, at = count, first
        while at < last:
            # The largest block that begins here and has ended entirely.
            step, offset, width, blocks = 1, 0, FAN_OUT, (size + FAN_OUT - 1) // FAN_OUT
            if stored_end[at] <= start[row]:
                while at % width == 0 and offset < len(latest) and latest[offset + at // width] <= start[row]:
                    step, offset, width = width, offset + blocks, width * FAN_OUT
                    blocks = (blocks + FAN_OUT - 1) // FAN_OUT
                at += step
                continue
            if count == capacity:
                capacity *= 2
                more_rows, more_stored_rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
                more_rows[:count], more_stored_rows[:count] = rows[:count], stored_rows[:count]
                rows, stored_rows = more_rows, more_stored_rows
            rows[count], stored_rows[count] = row, at
            count += 1
            at += 1
        if before > 0 and count > limit:  # the pairs of this row come with the next ones
            count = before
            break
        row += 1
    return rows[:count].copy(), stored_rows[:count].copy(), row

"""Hash probing: the inner loop of joins and of duplicate elimination."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.batch import Index
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

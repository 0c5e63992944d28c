"""Index of rows by the hash of their primary key, changed in place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.core.mapped import mapped_zeros
from strandline.runtime.kernels.batch import Index
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.hashing import Hashes

_FREE: Final = -1
_GONE: Final = -2
_FEWEST_BITS: Final = 10
_MAPPED_BITS: Final = 21  # a table of so many, 32 MB, is mapped
_MOVED_AT_ONCE: Final = 2**20


class KeyIndex:
    """Hash table with open addressing: ids by hash. Different keys may have one hash, so that a hash may have several
    ids; whether the keys are equal is for the caller to compare.

    Work is proportional to what is added, removed and looked for; the table doubles when two thirds of it are used. A
    large one is mapped from files without a name in `directory`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._allocate(_FEWEST_BITS)

    def add(self, hashes: Hashes, ids: Index) -> None:
        self.reserve(len(ids))
        self._used += add_entries(hashes, ids, self._hashes, self._ids, self._shift)
        self._count += len(ids)

    def reserve(self, more: int) -> None:
        """Make room for so many more entries."""
        if 3 * (self._used + more) > 2 * len(self._ids):
            self._grow(more)

    def remove(self, hashes: Hashes, ids: Index) -> None:
        """Remove entries that are there."""
        removed = remove_entries(hashes, ids, self._hashes, self._ids, self._shift)
        assert removed == len(ids), "a row that ends is in the index"
        self._count -= removed

    def find(self, hashes: Hashes) -> tuple[Index, Index]:
        """All pairs of a hash, by its number, and an id."""
        return find_entries(hashes, self._hashes, self._ids, self._shift)

    def __len__(self) -> int:
        return self._count

    def _allocate(self, bits: int) -> None:
        self._hashes: npt.NDArray[np.uint64]
        self._ids: npt.NDArray[np.int64]
        if bits < _MAPPED_BITS:
            self._hashes, self._ids = np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.int64)
        else:
            self._hashes = mapped_zeros(self.directory, 1 << bits, np.uint64)
            self._ids = mapped_zeros(self.directory, 1 << bits, np.int64)
        self._ids[:] = _FREE
        self._shift = np.uint64(64 - bits)
        self._used = 0  # places that are not free, also those of removed entries
        self._count = 0

    def _grow(self, more: int) -> None:
        hashes, ids, count = self._hashes, self._ids, self._count
        bits = max(_FEWEST_BITS, int(np.ceil(np.log2(2 * (count + more)))))
        self._allocate(bits)
        for begin in range(0, len(ids), _MOVED_AT_ONCE):  # in the order of the hashes: place after place
            block = slice(begin, begin + _MOVED_AT_ONCE)
            there = ids[block] >= 0
            entries = hashes[block][there], ids[block][there]
            self._used += add_entries(*entries, self._hashes, self._ids, self._shift)
        self._count = count


@compiled("i8(u8[::1], i8[::1], u8[::1], i8[::1], u8)", on_demand=True, writes=(2, 3))
def add_entries(hashes: Hashes, ids: Index, table_hashes: Hashes, table_ids: Index, shift: np.uint64) -> int:
    """Put each entry into the first place after that of its hash without one; returns how many of them were free."""
    last = len(table_ids) - 1
    free = 0
    for entry in range(len(ids)):
        slot = np.int64(hashes[entry] >> shift)
        while table_ids[slot] >= 0:
            slot = (slot + 1) & last
        if table_ids[slot] == _FREE:
            free += 1
        table_hashes[slot], table_ids[slot] = hashes[entry], ids[entry]
    return free


@compiled("i8(u8[::1], i8[::1], u8[::1], i8[::1], u8)", on_demand=True, writes=(2, 3))
def remove_entries(hashes: Hashes, ids: Index, table_hashes: Hashes, table_ids: Index, shift: np.uint64) -> int:
    """Mark the places of entries as gone: searches continue behind them. Returns how many were there."""
    last = len(table_ids) - 1
    removed = 0
    for entry in range(len(ids)):
        slot = np.int64(hashes[entry] >> shift)
        while table_ids[slot] != _FREE:
            if table_ids[slot] == ids[entry]:
                table_ids[slot] = _GONE
                removed += 1
                break
            slot = (slot + 1) & last
    return removed


@compiled("Tuple((i8[::1], i8[::1]))(u8[::1], u8[::1], i8[::1], u8)", on_demand=True)
def find_entries(hashes: Hashes, table_hashes: Hashes, table_ids: Index, shift: np.uint64) -> tuple[Index, Index]:
    """All pairs of equal hashes: the number of the hash and the id. Counted first, then written."""
    last = len(table_ids) - 1
    count = 0
    for row in range(len(hashes)):
        slot = np.int64(hashes[row] >> shift)
        while table_ids[slot] != _FREE:
            if table_ids[slot] >= 0 and table_hashes[slot] == hashes[row]:
                count += 1
            slot = (slot + 1) & last
    rows, ids = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for row in range(len(hashes)):
        slot = np.int64(hashes[row] >> shift)
        while table_ids[slot] != _FREE:
            if table_ids[slot] >= 0 and table_hashes[slot] == hashes[row]:
                rows[count], ids[count] = row, table_ids[slot]
                count += 1
            slot = (slot + 1) & last
    return rows, ids

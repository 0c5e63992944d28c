"""Dense codes for groups of equal keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.hashing import GOLDEN, double_bits, is_bijective, to_integers
from strandline.runtime.kernels.lists import as_bytes, elements


def group_codes(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[Index, Index]:
    """A code 0, 1, … for each row, equal for equal keys (NULL equals NULL), and the first row of each code."""
    if not keys:
        return np.zeros(frame.height, dtype=np.int64), np.zeros(min(frame.height, 1), dtype=np.int64)
    codes = _with_null(frame.get_column(keys[0]))
    all_present = np.ones(frame.height, dtype=np.bool_)
    if len(keys) == 1:
        return pair_codes(codes, np.zeros_like(codes), all_present)
    for key in keys[1:]:
        codes, first = pair_codes(codes, _with_null(frame.get_column(key)), all_present)
        if len(first) == frame.height:  # all rows differ already
            break
    return codes, first


def _with_null(column: pl.Series) -> Index:
    """Integers that are equal where the values of a column are, and NULL equals NULL."""
    return _codes(column) if column.null_count() else identities(column)


def identities(column: pl.Series) -> Index:
    """Integers that are equal where the values of a column are; NULL has any."""
    normal = _normal(column)
    if not is_bijective(normal.dtype):
        return _codes(normal)
    return to_integers(normal)


@compiled("Tuple((i8[::1], i8[::1]))(i8[::1], i8[::1], b1[::1])")
def pair_codes(ones: Index, others: Index, present: Mask) -> tuple[Index, Index]:
    """Code 0, 1, … of each `present` row, equal for equal pairs of integers, and the first row of each code.

    Compiled: the hash table depends on the rows before.
    """
    codes = np.full(len(ones), -1)
    first, hashes = np.empty(len(ones), np.int64), np.empty(len(ones), np.uint64)
    count = 0
    bits = 10
    # Open addressing by the leading bits of a hash: code and pair side by side, so that a probe is one memory access.
    table = np.zeros((1 << bits, 3), np.int64)
    for row in range(len(ones)):
        if not present[row]:
            continue
        one, other = ones[row], others[row]
        row_hash = np.uint64(one) * GOLDEN + np.uint64(other)
        row_hash = (row_hash ^ (row_hash >> np.uint64(32))) * GOLDEN
        slot = np.int64(row_hash >> np.uint64(64 - bits))
        while table[slot, 0] != 0 and (table[slot, 1] != other or table[slot, 2] != one):
            slot = (slot + 1) & (len(table) - 1)
        if table[slot, 0] != 0:
            codes[row] = table[slot, 0] - 1
            continue
        codes[row], first[count], hashes[count] = count, row, row_hash
        count += 1
        table[slot, 0], table[slot, 1], table[slot, 2] = count, other, one
        if 2 * count > len(table):
            bits += 2
            table = np.zeros((1 << bits, 3), np.int64)
            for code in range(count):
                slot = np.int64(hashes[code] >> np.uint64(64 - bits))
                while table[slot, 0] != 0:
                    slot = (slot + 1) & (len(table) - 1)
                table[slot, 0], table[slot, 1], table[slot, 2] = code + 1, others[first[code]], ones[first[code]]
    return codes, first[:count].copy()


def _codes(column: pl.Series) -> Index:
    return _list_codes(column) if isinstance(column.dtype, pl.List) else _encode(_normal(column))


def _list_codes(column: pl.Series) -> Index:
    """Lists are equal if the codes of their elements are: each list is encoded as the bytes of these."""
    content, sizes = elements(column)
    packed = as_bytes(np.ascontiguousarray(_codes(content)), sizes)
    encoded: Index = packed.dictionary_encode().indices.to_numpy().astype(np.int64)
    if not column.null_count():
        return encoded
    return _encode(pl.Series(np.where(column.is_null().to_numpy(), -1, encoded)))  # NULL is not the empty list


def _normal(column: pl.Series) -> pl.Series:
    """-0.0 and 0.0 are one key, and so are all NaNs."""
    if not column.dtype.is_float():
        return column
    bits = pl.Series(double_bits(column))
    return pl.select(pl.when(column.is_not_null()).then(bits)).to_series() if column.null_count() else bits


def _encode(column: pl.Series) -> Index:
    array = column.to_arrow()
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64)
    encoded = array.dictionary_encode(null_encoding="encode")
    codes: Index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def in_groups(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, Index]:
    """The rows group by group, in their order within a group; and the code of each."""
    codes, _ = group_codes(frame, keys)
    order = group_order(codes)
    return frame[order], codes[order]


def group_order(codes: Index) -> Index:
    """The order of rows by code; rows of one code keep their order."""
    small = len(codes) and int(codes.max()) < 2**16
    # For 16 bits the stable sort is a radix sort: linear.
    return np.argsort(codes.astype(np.uint16), kind="stable") if small else _counted_order(codes)


@compiled("i8[::1](i8[::1])")
def _counted_order(codes: Index) -> Index:
    """Codes are dense, so that each row can be put where the rows of smaller codes end."""
    places = np.zeros(codes.max() + 2 if len(codes) else 1, np.int64)
    for code in codes:
        places[code + 1] += 1
    for code in range(1, len(places)):
        places[code] += places[code - 1]
    order = np.empty(len(codes), np.int64)
    for row in range(len(codes)):
        order[places[codes[row]]] = row
        places[codes[row]] += 1
    return order

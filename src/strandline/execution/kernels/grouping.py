"""Dense codes for groups of equal keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.execution.batch import Index
from strandline.execution.kernels.compiled import compiled
from strandline.execution.kernels.hashing import double_bits
from strandline.execution.kernels.lists import elements, offsets_of


def group_codes(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[Index, Index]:
    """A code 0, 1, … for each row, equal for equal keys (NULL equals NULL), and a row that represents each code."""
    if not keys:
        return np.zeros(frame.height, dtype=np.int64), np.zeros(min(frame.height, 1), dtype=np.int64)
    codes = _codes(frame.get_column(keys[0]))
    for key in keys[1:]:
        other = _codes(frame.get_column(key))
        # Both are below the row count, so the pair fits into 64 bits; encoding again makes it dense.
        codes = _encode(pl.Series(codes * (int(other.max(initial=0)) + 1) + other))
    count = int(codes.max(initial=-1)) + 1
    representative = np.zeros(count, dtype=np.int64)
    representative[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, representative


def _codes(column: pl.Series) -> Index:
    return _list_codes(column) if isinstance(column.dtype, pl.List) else _encode(_normal(column))


def _list_codes(column: pl.Series) -> Index:
    """Lists are equal if the codes of their elements are: each list is encoded as the bytes of these."""
    content, sizes = elements(column)
    codes = np.ascontiguousarray(_codes(content))
    packed = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(column), [None, pa.py_buffer(offsets_of(sizes) * codes.itemsize), pa.py_buffer(codes)]
    )
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
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64)
    encoded = array.dictionary_encode(null_encoding="encode")
    codes: Index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


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

"""Stable 64-bit hashes of key columns.

The hash selects the shard of a row and orders the state of joins, and both live in checkpoints: it must be the same in
every process, on every machine and with every version of the libraries. So it is spelled out here. Equal keys have
equal hashes; the converse is checked by comparing the keys themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.lists import elements, offsets_of

Hashes: TypeAlias = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x5EED0F4E55)
_RADIX = np.uint64(0x100000001B3)


def mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: a bijection that spreads every input bit over all output bits."""
    values = values + GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def hash_rows(frame: pl.DataFrame, keys: Sequence[str]) -> Hashes:
    """One hash per row over the key columns; without keys all rows have the same."""
    if not keys:
        return np.zeros(frame.height, dtype=np.uint64)
    result = hash_column(frame.get_column(keys[0]))
    for key in keys[1:]:
        result = mix(result * _RADIX + hash_column(frame.get_column(key)))
    return result


def is_bijective(kind: pl.DataType) -> bool:
    """True if distinct non-NULL values of the type have distinct hashes, so that keys need no comparison."""
    return kind.is_integer() or kind in (pl.Date, pl.Boolean) or isinstance(kind, pl.Datetime)


def hash_column(column: pl.Series) -> Hashes:
    nulls = column.is_null().to_numpy() if column.null_count() else None
    hashes = _hash_values(column)
    if nulls is not None:
        hashes = np.where(nulls, _NULL, hashes)
    return hashes


def _hash_values(column: pl.Series) -> Hashes:
    kind = column.dtype
    if kind == pl.Null:
        return np.full(len(column), _NULL)
    if kind == pl.String:
        return _hash_strings(column)
    if isinstance(kind, pl.List):
        content, sizes = elements(column)
        bounds = offsets_of(sizes)
        return _finished(polynomials(hash_column(content), bounds), bounds)
    if isinstance(kind, pl.Decimal):
        low, high = decimal_words(column)
        return mix(mix(low.view(np.uint64)) + high.view(np.uint64))
    if kind.is_float():
        return mix(double_bits(column).view(np.uint64))
    return mix(to_integers(column).view(np.uint64))


def to_integers(column: pl.Series) -> npt.NDArray[np.int64]:
    """The values of a column of a whole type as integers; NULL counts as 0."""
    if column.dtype != pl.Int64 or column.null_count():
        column = column.to_physical().cast(pl.Int64).fill_null(0)
    values: npt.NDArray[np.int64] = column.to_numpy()
    return values


def double_bits(column: pl.Series) -> npt.NDArray[np.int64]:
    """The bits of doubles, the same for equal ones: -0.0 equals 0.0, and every NaN every other. NULL counts as 0.

    In NumPy, because Polars takes x + 0.0 for x.
    """
    values = column.fill_null(0.0).to_numpy() + 0.0
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def _hash_strings(column: pl.Series) -> Hashes:
    array = column.fill_null("").to_arrow()
    if array.type != "large_string":
        array = array.cast("large_string")
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.frombuffer(data, dtype=np.uint8)[first:last] if data is not None else np.zeros(0, np.uint8)
    return _finished(text_polynomials(text, offsets - first), offsets)


def _finished(polynomial: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    return mix(polynomial ^ mix((bounds[1:] - bounds[:-1]).view(np.uint64)))


@compiled("u8[::1](u8[::1], i8[::1])")
def polynomials(terms: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """A polynomial over the terms of each sequence, modulo 2^64: the first term as it is, the next times R, and so on.

    The terms of sequence n lie from `bounds[n]` to `bounds[n + 1]`. Compiled, because each step needs the one before.
    """
    hashes = np.empty(len(bounds) - 1, np.uint64)
    for sequence in range(len(hashes)):
        value = np.uint64(0)
        for at in range(bounds[sequence + 1] - 1, bounds[sequence] - 1, -1):
            value = value * _RADIX + terms[at]
        hashes[sequence] = value
    return hashes


@compiled("u8[::1](u1[::1], i8[::1])")
def text_polynomials(text: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> Hashes:
    """The same of the UTF-8 bytes of texts, each byte plus one: a zero byte counts, too."""
    hashes = np.empty(len(bounds) - 1, np.uint64)
    for sequence in range(len(hashes)):
        value = np.uint64(0)
        for at in range(bounds[sequence + 1] - 1, bounds[sequence] - 1, -1):
            value = value * _RADIX + (np.uint64(text[at]) + np.uint64(1))
        hashes[sequence] = value
    return hashes


def decimal_words(column: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The low and high 64 bits of the 128-bit integers behind a DECIMAL column; NULL counts as 0."""
    array = column.to_arrow()
    if array.null_count:
        array = array.fill_null(0)
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return words[0::2], words[1::2]


def hashes_decide(one: pl.DataFrame, two: pl.DataFrame) -> bool:
    """True if rows of two frames with equal hashes have equal payloads, so that nothing is left to compare."""
    return one.width == 1 and _are_whole(one.to_series(0), two.to_series(0))


def same_payloads(one: pl.DataFrame, two: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Mask of rows with equal hashes that have equal payloads; NULL equals NULL, and NaN equals NaN."""
    same = np.ones(one.height, dtype=np.bool_)
    if hashes_decide(one, two):
        return same
    for name in one.columns:
        same &= _same_values(one.get_column(name), two.get_column(name))
    return same


def _same_values(one: pl.Series, two: pl.Series) -> npt.NDArray[np.bool_]:
    if _are_whole(one, two):
        return np.equal(to_integers(one), to_integers(two))
    pair = pl.DataFrame([one.alias("one"), two.alias("two")])
    same: npt.NDArray[np.bool_] = pair.select(pl.col("one").eq_missing(pl.col("two"))).to_series().to_numpy()
    return same


def _are_whole(one: pl.Series, two: pl.Series) -> bool:
    """True if the values of both are integers, or have different integers where they differ, and none is NULL."""
    return is_bijective(one.dtype) and one.dtype == two.dtype and not one.null_count() and not two.null_count()

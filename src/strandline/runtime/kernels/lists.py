"""Columns of lists as their elements, one after the other, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.core.lazy import pl

Sizes = npt.NDArray[np.int64]


def elements(lists: pl.Series) -> tuple[pl.Series, Sizes]:
    """The elements of all lists, one after the other, and how many each list has; one that is NULL has none."""
    array = lists.to_arrow(compat_level=pl.CompatLevel.oldest())
    sizes: Sizes = lists.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    assert isinstance(lists.dtype, pl.List)
    return pl.Series(array.flatten(), dtype=lists.dtype.inner), sizes


def in_lists(content: pl.Series, offsets: Sizes) -> pl.Series:
    """The opposite: list i has the elements from offsets[i] to offsets[i + 1]. None is NULL."""
    array = content.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets), array), dtype=pl.List(content.dtype))


def with_elements(lists: pl.Series, content: pl.Series, sizes: Sizes) -> pl.Series:
    """The lists with their elements replaced; NULL stays NULL."""
    changed = in_lists(content, offsets_of(sizes))
    return pl.select(pl.when(lists.is_not_null()).then(changed)).to_series() if lists.null_count() else changed


def as_bytes(content: npt.NDArray[np.int64], sizes: Sizes) -> pa.LargeBinaryArray:
    """Each list as the bytes of the integers that stand for its elements."""
    offsets = pa.py_buffer(offsets_of(sizes) * content.itemsize)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), [None, offsets, pa.py_buffer(content)])


def offsets_of(sizes: Sizes) -> Sizes:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])

"""MIN and MAX over many overlapping ranges at once."""

from __future__ import annotations

import numpy as np
import polars as pl

from strandline.execution.batch import Index, Mask, is_sorted
from strandline.execution.kernels.grouping import group_order, running_max_in_groups
from strandline.execution.kernels.hashing import double_bits

LOWEST = np.iinfo(np.int64).min


def range_max(first: Index, last: Index, values: Index, size: int) -> Index:
    """For each cell 0 … size-1 the largest value whose range [first, last) covers it; LOWEST where none does.

    A range of length n is covered by two blocks of 2^k cells, k = floor(log2 n). Values are dropped on the blocks of
    their level, then each level hands its blocks down to the two halves on the level below: O((ranges + cells) log n).
    """
    length = last - first
    live = length > 0
    if not live.all():
        first, last, values, length = first[live], last[live], values[live], length[live]
    cells = np.full(size, LOWEST, dtype=np.int64)
    if not len(length):
        return cells
    level = np.frexp(length.astype(np.float64))[1] - 1
    for k in range(int(level.max()), -1, -1):
        here = level == k
        if here.any():
            np.maximum.at(cells, first[here], values[here])
            np.maximum.at(cells, last[here] - (1 << k), values[here])
        if k:
            # A block at cell i on level k is two blocks on level k-1: at i and at i + 2^(k-1).
            half = 1 << (k - 1)
            lower = cells.copy()
            np.maximum(lower[half:], cells[:-half], out=lower[half:])
            cells = lower
    return cells


def staircase(codes: Index, ends: Index, values: Index) -> Mask:
    """Which elements may still be the maximum of their group in the future.

    An element that ends no later than another one with a value at least as large can never matter again.
    """
    # Elements of one window die in the order they came: then there is nothing to sort but the groups.
    order = group_order(codes)[::-1] if is_sorted(ends) else np.lexsort((~values, ~ends, codes))
    sorted_codes, sorted_values = codes[order], values[order]
    highest = running_max_in_groups(sorted_codes, sorted_values)
    keep = np.ones(len(order), dtype=np.bool_)
    same_group = sorted_codes[1:] == sorted_codes[:-1]
    keep[1:] = ~same_group | (sorted_values[1:] > highest[:-1])
    result = np.zeros(len(order), dtype=np.bool_)
    result[order] = keep
    return result


class Ranking:
    """Values of any ordered type as integers of the same order, and back.

    Whole numbers and times stand for themselves. Doubles use their bits, arranged so that NaN is the greatest, as in
    PostgreSQL. Texts and decimals are ranked among the values at hand, so their integers hold for one batch only.
    """

    def __init__(self, column: pl.Series) -> None:
        self.dtype = column.dtype
        self.levels: pl.Series | None = None
        if self.dtype.is_float():
            bits = double_bits(column)
            self.codes: Index = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
        elif self.dtype == pl.String or isinstance(self.dtype, pl.Decimal):
            self.levels = column.unique().sort()
            ranks = pl.DataFrame({"value": self.levels}).with_row_index("rank")
            joined = pl.DataFrame({"value": column}).join(ranks, on="value", how="left", maintain_order="left")
            self.codes = joined.get_column("rank").cast(pl.Int64).to_numpy()
        else:
            self.codes = column.to_physical().cast(pl.Int64).to_numpy()

    def decode(self, codes: Index, present: Mask) -> pl.Series:
        """The values of codes; NULL where not present."""
        safe = np.where(present, codes, self.codes[0] if len(self.codes) else 0)
        if self.levels is not None:
            values = self.levels[safe] if len(self.levels) else pl.Series([None] * len(safe), dtype=self.dtype)
        elif self.dtype.is_float():
            values = pl.Series((safe ^ ((safe >> 63) & np.int64(2**63 - 1))).view(np.float64))
        elif self.dtype == pl.Boolean:
            values = pl.Series(safe != 0)
        else:
            values = pl.Series(safe).cast(self.dtype) if self.dtype.is_integer() else _from_physical(safe, self.dtype)
        return pl.select(pl.when(pl.Series(present)).then(values)).to_series()


def _from_physical(values: Index, dtype: pl.DataType) -> pl.Series:
    return pl.Series(values).cast(pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)

"""Values of any ordered type as integers of the same order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.logical.expressions import SortKey
from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.hashing import double_bits
from strandline.runtime.kernels.lists import as_bytes, elements


class RankOrder:
    """Values of any ordered type as integers of the same order, and back; NULL has any.

    Whole numbers and times stand for themselves. Doubles use their bits, arranged so that NaN is the greatest, as in
    PostgreSQL. Texts and decimals are ranked among the values at hand, so their integers hold for one batch only; so
    are lists, which cannot be converted back.
    """

    def __init__(self, column: pl.Series) -> None:
        self.dtype = column.dtype
        self.levels: pl.Series | None = None
        if self.dtype.is_float():
            bits = double_bits(column)
            self.codes: Index = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
        elif isinstance(self.dtype, pl.List):
            self.codes = _list_ranks(column)
        elif self.dtype == pl.String or isinstance(self.dtype, pl.Decimal):
            self.levels = column.unique().sort()
            self.codes = _among(self.levels, column)
        else:
            self.codes = column.to_physical().cast(pl.Int64).fill_null(0).to_numpy()

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
            values = pl.Series(safe).cast(pl.Int32 if self.dtype == pl.Date else pl.Int64).cast(self.dtype)
        return pl.select(pl.when(pl.Series(present)).then(values)).to_series()


def order_ranks(frame: pl.DataFrame, order: Sequence[SortKey]) -> list[Index]:
    """Integers that order the rows of a frame, most significant first: for each column NULL or not, then its rank."""
    ranks: list[Index] = []
    for key in order:
        column = frame.get_column(key.column.id)
        codes, missing = RankOrder(column).codes, column.is_null().to_numpy()
        ranks.append(missing.astype(np.int64) * (-1 if key.nulls_first else 1))
        ranks.append(np.where(missing, 0, ~codes if key.descending else codes))
    return ranks


def order_levels(frame: pl.DataFrame, order: Sequence[SortKey]) -> Index:
    """One integer for each row of a frame: the smaller comes first, and ties are equal."""
    first = frame.get_column(order[0].column.id)
    if len(order) == 1 and not first.null_count():
        codes = RankOrder(first).codes
        return ~codes if order[0].descending else codes
    ranks = order_ranks(frame, order)
    rows = np.lexsort(ranks[::-1])
    differs = np.zeros(len(rows), np.bool_)
    for rank in ranks:
        differs[1:] |= rank[rows][1:] != rank[rows][:-1]
    levels = np.empty(len(rows), np.int64)
    levels[rows] = np.cumsum(differs)
    return levels


def _among(levels: pl.Series, column: pl.Series) -> Index:
    """The positions of values in their levels; NULL has any."""
    ranks = pl.DataFrame({"value": levels}).with_row_index("rank")
    joined = pl.DataFrame({"value": column}).join(ranks, on="value", how="left", maintain_order="left")
    codes: Index = joined.get_column("rank").cast(pl.Int64).fill_null(0).to_numpy()
    return codes


def _list_ranks(column: pl.Series) -> Index:
    """Lists by the first element in which they differ, where NULL is the greatest; a shorter one before its longer.

    That is the order of bytes, if each element is written as its rank among all elements, the highest byte first.
    """
    content, sizes = elements(column)
    _, dense = np.unique(RankOrder(content).codes, return_inverse=True)
    ranks = np.where(content.is_null().to_numpy(), len(content), dense).astype(">i8")
    keys = pl.Series(as_bytes(ranks, sizes), dtype=pl.Binary)
    return _among(keys.unique().sort(), keys)

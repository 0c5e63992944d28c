"""Neighbouring intervals of equal payload as one (algorithm 17 of Krämer's thesis, over arrays)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import FOREVER
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Mask, Times, gather, times
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.grouping import group_codes


def equals_row_before(columns: Sequence[pl.Series], rows: int) -> Mask:
    """Which rows have the same values as the row before: NULL is NULL, and doubles have the same bits."""
    same = np.ones(rows, np.bool_)
    same[:1] = False
    for column in columns:
        if not same.any():
            break
        if column.dtype.is_float():
            bits = column.to_numpy().view(np.int64)  # NULL is one NaN of several; it is compared below
            same[1:] &= bits[1:] == bits[:-1]
            if not column.null_count():
                continue
            column = column.is_null()
        same[1:] &= column.slice(1).eq_missing(column.slice(0, max(rows - 1, 0))).to_numpy()
    return same


@compiled("Tuple((i8[::1], i8[::1]))(b1[::1], i8[::1], i8[::1], i8)")
def join_neighbours(continues: Mask, start: Times, end: Times, longest: int) -> tuple[Index, Index]:
    """Rows that `continue` the row before, as one with it: the first row of each joined one, and the last. One that is
    at least `longest` long is continued no more."""
    first, last = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    count = 0
    for row in range(len(start)):
        if count and continues[row] and end[row - 1] - start[first[count - 1]] < longest:
            last[count - 1] = row
        else:
            first[count], last[count] = row, row
            count += 1
    return first[:count].copy(), last[:count].copy()


def join_adjacent(frame: pl.DataFrame, columns: Sequence[str], longest: int = FOREVER) -> pl.DataFrame:
    """Elements with those that begin where they end, if their payloads are equal. Of equal payloads that are valid
    together, each continues the one that began last before it, if that ends there."""
    if not frame.height:
        return frame
    codes, _ = group_codes(frame, columns)
    start, end = times(frame, FROM), times(frame, UNTIL)
    order = np.lexsort((start, codes))
    codes, start, end = codes[order], start[order], end[order]
    continues = np.zeros(frame.height, np.bool_)
    continues[1:] = (codes[1:] == codes[:-1]) & (start[1:] == end[:-1])
    if not continues.any():
        return frame
    first, last = join_neighbours(continues, start, end, longest)
    return gather(frame, order[first]).with_columns(pl.Series(UNTIL, end[last]))

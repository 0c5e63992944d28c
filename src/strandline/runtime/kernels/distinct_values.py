"""Distinct values of a column, where they are few, for evaluation over them only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

# At most one in this many rows may have a distinct value; beyond that there is little to gain.
MIN_ROWS_PER_VALUE: Final = 4
# A sample with more different values than this is one of a column of many.
MAX_DISTINCT_FRACTION: Final = 0.75
_SAMPLE: Final = 2_000


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """Dictionary encoding: the code of each row, and a representative row of each code."""

    codes: pl.Series
    rows: pl.Series

    def decode(self, values: pl.DataFrame) -> pl.DataFrame:
        """A row for each code, as a row for each row."""
        return values[self.codes]


def runs(column: pl.Series) -> DistinctValues | None:
    """The runs of equal values, if there are few of them: for ordered columns, such as times."""
    if int(column.head(_SAMPLE).rle_id()[-1]) >= _SAMPLE * MAX_DISTINCT_FRACTION:
        return None
    codes = column.rle_id()
    if int(codes[-1]) >= len(column) // MIN_ROWS_PER_VALUE:
        return None
    first = np.flatnonzero(np.diff(codes.to_numpy(), prepend=np.uint32(2**32 - 1)))
    return DistinctValues(codes, pl.Series(first))


def encode_distinct(column: pl.Series) -> DistinctValues | None:
    """The distinct values, if there are few of them. A sample detects many."""
    sample = column.head(_SAMPLE)
    if sample.n_unique() > len(sample) * MAX_DISTINCT_FRACTION:
        return None
    # Hashes compare faster than texts; a collision shows when the texts themselves are compared.
    keys = column.hash() if column.dtype == pl.String else column
    if keys.to_frame().select(pl.first().approx_n_unique()).item() > len(column) // MIN_ROWS_PER_VALUE:
        return None
    encoded = keys.to_arrow().dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy()
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the first row of each comes last
    distinct_values = DistinctValues(pl.Series(codes), pl.Series(first))
    if column.dtype == pl.String:
        frame = column.to_frame()
        if not distinct_values.decode(frame[distinct_values.rows]).to_series().eq_missing(column).all():
            return None
    return distinct_values

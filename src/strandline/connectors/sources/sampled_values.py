"""Statistics from a sample of rows: rates, and numbers of distinct values."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from strandline.core.temporal import SECOND, Instant
from strandline.logical.catalog import StreamStatistics

LEAST_ROWS: Final = 100  # fewer rows give no reliable figure


def estimate_statistics(sample: pl.DataFrame, rows: int, low: Instant, high: Instant) -> StreamStatistics:
    """Statistics of a stream with so many rows between two instants, of which some are known."""
    rate = rows * SECOND / (high - low) if high - low >= SECOND else None
    values = {name: estimate_distinct(sample.get_column(name), rows) for name in sample.columns}
    return StreamStatistics(rate, {name: count for name, count in values.items() if count})


def estimate_distinct(sample: pl.Series, rows: int) -> float:
    """Distinct values among so many rows, by those of a sample. A value that the sample has once stands for √(rows /
    sample) of them, the geometric mean of the least and the most that there can be (Charikar et al., PODS 2000)."""
    known = sample.drop_nulls()
    if not len(known) or known.dtype.is_nested():
        return 0.0
    counts = known.value_counts().get_column("count")
    once = int((counts == 1).sum())
    if once == len(known):
        return float(rows)  # no value has occurred twice: a key
    return min(float(rows), len(counts) - once + once * math.sqrt(max(rows, len(known)) / len(known)))

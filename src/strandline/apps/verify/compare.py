"""Comparison of two results as bags, instant by instant.

Whole numbers, decimals, texts, truth values and times must be equal. DOUBLEs may differ in their last digits, by
`TOLERANCE` of the larger one: databases sum in another order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from strandline.apps.verify.dataset import Times
from strandline.core.temporal import Instant

TOLERANCE: Final = 1e-9
AT: Final = "t"

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """An instant at which the results differ: the rows that only one of them has."""

    instant: Instant
    only_here: tuple[Row, ...]
    only_there: tuple[Row, ...]


def at_instants(elements: pl.DataFrame, start: Times, end: Times, instants: Times) -> pl.DataFrame:
    """The rows that are valid at each of the instants, which are in order; the first column is the instant."""
    first, last = np.searchsorted(instants, start), np.searchsorted(instants, end)
    counts = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(start)), counts)
    offset = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    moments = pl.Series(AT, instants[first[which] + offset], dtype=pl.Int64)
    chosen = elements[which]
    return pl.DataFrame([moments, *(column.alias(f"c{n}") for n, column in enumerate(chosen.get_columns(), 1))])


def differences(here: pl.DataFrame, there: pl.DataFrame) -> list[Difference]:
    """Differences of two bags per instant; both have an instant and then the same columns, by position."""
    names = [AT, *(f"c{n}" for n in range(1, here.width))]
    kinds = pl.Schema(zip(names, here.dtypes, strict=True))
    one = here.rename(dict(zip(here.columns, names, strict=True)))
    two = there.rename(dict(zip(there.columns, names, strict=True))).cast(kinds)
    signed = pl.concat([one.with_columns(side=pl.lit(1)), two.with_columns(side=pl.lit(-1))])
    left = signed.group_by(names).agg(pl.col("side").sum()).filter(pl.col("side") != 0)
    mismatches = []
    for (t, *_), rows in sorted(left.partition_by(AT, as_dict=True).items()):
        ours = [row[1:-1] for row in rows.rows() for _ in range(max(row[-1], 0))]
        theirs = [row[1:-1] for row in rows.rows() for _ in range(max(-row[-1], 0))]
        ours, theirs = _without_pairs(ours, theirs)
        if ours or theirs:
            mismatches.append(Difference(int(t), tuple(ours), tuple(theirs)))
    return mismatches


def _without_pairs(ours: list[Row], theirs: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rest after rows that are equal up to the last digits are paired."""
    remaining = list(theirs)
    alone = []
    for row in ours:
        match = next((n for n, other in enumerate(remaining) if all(map(_same_value, row, other))), None)
        if match is None:
            alone.append(row)
        else:
            remaining.pop(match)
    return alone, remaining


def _same_value(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same_value, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=5e-324)
    return a == b

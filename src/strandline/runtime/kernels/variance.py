"""Variances that can be taken back: exact, like the sums they are made of.

The variance of n numbers is (n·Σx² − (Σx)²) / n². With rounded sums the difference would have no right digit as soon as
the numbers lie close together, far from zero. Here both sums are exact limbs, so the difference is exact too, and is
rounded once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.logical.values import LARGEST_SQUARED
from strandline.runtime.kernels.exact_sums import BIAS, BITS, Ints, Limbs, carry, doubles, gapless, magnitude, to_limbs

_SPLITTER = 2.0**27 + 1.0


def squarable_values(column: pl.Series) -> pl.Series:
    """Values whose deviation is needed, as DOUBLEs; values without a finite square are left out, as is NULL."""
    values = column.cast(pl.Float64)
    return pl.select(pl.when(values.abs() < LARGEST_SQUARED).then(values)).to_series()


def mask_unsquarable(column: pl.Series) -> Ints:
    """Mask of values without a finite square: NaN, the infinities and too large numbers."""
    values = column.cast(pl.Float64)
    mask: Ints = (~(values.abs() < LARGEST_SQUARED)).fill_null(False).to_numpy().astype(np.int64)
    return mask


def squares(column: pl.Series) -> Limbs:
    values = column.fill_null(0.0).to_numpy()
    high = values * values
    # Rounding error of the product, by splitting the factor into halves whose products are exact.
    scaled = values * _SPLITTER
    upper = scaled - (scaled - values)
    lower = values - upper
    low = ((upper * upper - high) + 2.0 * upper * lower) + lower * lower
    limbs = dict(to_limbs(pl.Series(high)))
    for name, digits in to_limbs(pl.Series(low)).items():
        limbs[name] = limbs[name] + digits if name in limbs else digits
    return limbs


def variances(sums: Limbs, squared: Limbs, counts: Ints, sample: bool) -> npt.NDArray[np.float64]:
    """The variances; NaN where the count is too small."""
    rows = len(counts)
    total, low = _digits(sums, rows)
    square, offset = _square(total), 2 * low - BIAS // BITS
    squared_digits, squared_low = _digits(squared, rows)
    # n·Σx²: the carried digits leave 31 bits for n.
    scaled = [digit * counts for digit in squared_digits]
    first = min(offset, squared_low)
    last = max(offset + len(square), squared_low + len(scaled))
    zero = np.zeros(rows, np.int64)
    difference = []
    for position in range(first, last):
        plus = scaled[position - squared_low] if 0 <= position - squared_low < len(scaled) else zero
        minus = square[position - offset] if 0 <= position - offset < len(square) else zero
        difference.append(plus - minus)
    carry(difference)
    limbs = {str(position): digit for position, digit in enumerate(difference, first) if position >= 0}
    with np.errstate(divide="ignore", invalid="ignore"):
        return doubles(limbs, rows) / (counts * (counts - 1 if sample else counts)).astype(np.float64)


def _digits(limbs: Limbs, rows: int) -> tuple[list[Ints], int]:
    """The carried digits of the absolute values without gaps, and the position of the lowest."""
    digits, lowest = gapless(limbs, rows)
    return magnitude([*digits, np.zeros(rows, np.int64)])[0], lowest


def _square(digits: list[Ints]) -> list[Ints]:
    """The digits of the square of nonnegative, carried digits."""
    product = [np.zeros(len(digits[0]), np.int64) for _ in range(2 * len(digits))]
    words = [digit.view(np.uint64) for digit in digits]
    used = [index for index, digit in enumerate(digits) if digit.any()]
    for one in used:
        for two in used:
            parts = words[one] * words[two]
            product[one + two] += (parts & np.uint64(2**BITS - 1)).view(np.int64)
            product[one + two + 1] += (parts >> np.uint64(BITS)).view(np.int64)
    carry(product)
    return product

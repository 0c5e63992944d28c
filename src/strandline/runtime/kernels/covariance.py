"""Covariances that can be taken back: exact sums of pairs of numbers, as `variance.py` has of single ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.logical.values import LARGEST_SQUARED, SMALLEST_MULTIPLIED
from strandline.runtime.kernels.exact_sums import BIAS, BITS, Ints, Limbs, carry, doubles, gapless, magnitude, to_limbs

Doubles = npt.NDArray[np.float64]

_SPLITTER = 2.0**27 + 1.0


def multipliable_pairs(column: pl.Series) -> tuple[Doubles, Doubles, Ints]:
    """Both numbers of each pair, with 0 for those that are too small, for NULL and for pairs without exact products;
    and which pairs are of the last kind."""
    y, x = (column.list.get(place, null_on_oob=True).fill_null(0.0).to_numpy() for place in (0, 1))
    odd = ~((np.abs(y) < LARGEST_SQUARED) & (np.abs(x) < LARGEST_SQUARED))
    y, x = (np.where(odd | (np.abs(side) < SMALLEST_MULTIPLIED), 0.0, side) for side in (y, x))
    return y, x, odd.astype(np.int64)


def products(one: Doubles, two: Doubles) -> Limbs:
    """The exact products, as limbs: each is a DOUBLE and the error of its rounding."""
    high = one * two
    upper_one, lower_one = _halves(one)
    upper_two, lower_two = _halves(two)
    low = ((upper_one * upper_two - high) + upper_one * lower_two + lower_one * upper_two) + lower_one * lower_two
    limbs = dict(to_limbs(pl.Series(high)))
    for name, digits in to_limbs(pl.Series(low)).items():
        limbs[name] = limbs[name] + digits if name in limbs else digits
    return limbs


def determinants(multiplied: Limbs, one: Limbs, two: Limbs, counts: Ints) -> Doubles:
    """n·Σab − Σa·Σb, rounded once."""
    rows = len(counts)
    first, low_first, negative_first = _signed_digits(one, rows)
    second, low_second, negative_second = _signed_digits(two, rows)
    product, offset = _product(first, second), low_first + low_second - BIAS // BITS
    negative = negative_first != negative_second
    digits, lowest = gapless(multiplied, rows)
    digits = [*digits, np.zeros(rows, np.int64)]
    carry(digits)  # the carried digits leave 31 bits for n
    scaled = [digit * counts for digit in digits]
    begin, end = min(offset, lowest), max(offset + len(product), lowest + len(scaled))
    zero = np.zeros(rows, np.int64)
    difference = []
    for position in range(begin, end):
        plus = scaled[position - lowest] if 0 <= position - lowest < len(scaled) else zero
        minus = product[position - offset] if 0 <= position - offset < len(product) else zero
        difference.append(plus - np.where(negative, -minus, minus))
    carry(difference)
    return doubles({str(at): digit for at, digit in enumerate(difference, begin) if at >= 0}, rows)


def _halves(values: Doubles) -> tuple[Doubles, Doubles]:
    """Two parts of each value whose products are exact."""
    scaled = values * _SPLITTER
    upper = scaled - (scaled - values)
    return upper, values - upper


def _signed_digits(limbs: Limbs, rows: int) -> tuple[list[Ints], int, npt.NDArray[np.bool_]]:
    """The carried digits of the absolute values without gaps, the position of the lowest, and which are negative."""
    digits, lowest = gapless(limbs, rows)
    carried, negative = magnitude([*digits, np.zeros(rows, np.int64)])
    return carried, lowest, negative


def _product(one: list[Ints], two: list[Ints]) -> list[Ints]:
    """The digits of the product of nonnegative, carried digits."""
    product = [np.zeros(len(one[0]), np.int64) for _ in range(len(one) + len(two))]
    for i, left in ((i, digit.view(np.uint64)) for i, digit in enumerate(one) if digit.any()):
        for j, right in ((j, digit.view(np.uint64)) for j, digit in enumerate(two) if digit.any()):
            parts = left * right
            product[i + j] += (parts & np.uint64(2**BITS - 1)).view(np.int64)
            product[i + j + 1] += (parts >> np.uint64(BITS)).view(np.int64)
    carry(product)
    return product

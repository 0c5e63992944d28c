"""Poisson process with random access: the arrival of row n is a function of n and the seed.

Gaps are exponential and independent, with mean 1. The sum of 2m such gaps, split at the middle, has a left part that is
Beta(m, m) of the whole, independent of the whole. So the sums at the bounds of blocks are found from above by halving,
62 steps for any block; inside a block, independent exponentials are scaled to the sum of the block. The total of all
2^62 gaps is set to its mean, from which it would differ by a part in 2^31.

Only operations that IEEE 754 rounds exactly are used, so the result is the same on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.hashing import GOLDEN, Hashes, mix

Floats = npt.NDArray[np.float64]

BLOCK_BITS = 12
BLOCK = 1 << BLOCK_BITS  # gaps per block
BITS = 62  # all gaps: 2^62
_LN2 = 0.6931471805599453
_PI = 3.141592653589793


class PoissonProcess:
    """Arrivals at the mean rate of one per unit of time."""

    def __init__(self, seed: int) -> None:
        self.key = mix(np.array([seed % 2**64], dtype=np.uint64))[0]

    def arrivals(self, start: int, end: int) -> Floats:
        """Times of the rows from `start` to `end`, in order: row n comes after n + 1 gaps."""
        first, last = start >> BLOCK_BITS, (max(end, start + 1) - 1) >> BLOCK_BITS
        bounds = self._bounds(np.arange(first, last + 2, dtype=np.uint64))
        number = np.arange(first << BLOCK_BITS, (last + 1) << BLOCK_BITS, dtype=np.uint64)
        sums = np.cumsum(_exponential(self._uniform(number, 0)).reshape(-1, BLOCK), axis=1)
        begin, finish = bounds[:-1, None], bounds[1:, None]
        times = np.minimum(begin + (finish - begin) * (sums / sums[:, -1:]), finish)
        return times.ravel()[start - (first << BLOCK_BITS) : end - (first << BLOCK_BITS)]

    def count_by(self, time: float) -> int:
        """Number of rows that have come by a time."""
        block, before, whole = np.zeros(1, dtype=np.uint64), 0.0, 2.0**BITS
        for level in range(BITS - 1, BLOCK_BITS - 1, -1):
            left = float(whole * self._halves(level, block)[0])
            right = before + left <= time
            before, whole = (before + left, whole - left) if right else (before, left)
            block = 2 * block + np.uint64(right)
        first = int(block[0]) << BLOCK_BITS
        return first + int(np.searchsorted(self.arrivals(first, first + BLOCK), time, side="right"))

    def _bounds(self, block: Hashes) -> Floats:
        """Sums of all gaps before blocks."""
        before, whole = np.zeros(len(block)), np.full(len(block), 2.0**BITS)
        for level in range(BITS - 1, BLOCK_BITS - 1, -1):
            node = block >> np.uint64(level + 1 - BLOCK_BITS)
            left = whole * self._halves(level, node)
            right = (block >> np.uint64(level - BLOCK_BITS)) & np.uint64(1) == 1
            before = np.where(right, before + left, before)
            whole = np.where(right, whole - left, left)
        return before

    def _halves(self, level: int, node: Hashes) -> Floats:
        """Beta(m, m) variates with m = 2^level, by Ulrich's formula: ½ + ½ √(1 − u^(2 / (2m − 1))) cos(2πv)."""
        small = _logarithm(self._uniform(node, 2 * level)) * (2.0 / (2.0 ** (level + 1) - 1.0))
        power = -small * (1 + small / 2 * (1 + small / 3 * (1 + small / 4 * (1 + small / 5))))
        return 0.5 + 0.5 * np.sqrt(power) * _cosine_of_turn(self._uniform(node, 2 * level + 1))

    def _uniform(self, number: Hashes, what: int) -> Floats:
        """Numbers in (0, 1], a function of the seed, of what is drawn, and of the number."""
        with np.errstate(over="ignore"):
            drawn = mix(mix(number ^ self.key) + np.uint64(what) * GOLDEN)
        return ((drawn >> np.uint64(11)).astype(np.float64) + 1.0) / 2.0**53


def _exponential(uniform: Floats) -> Floats:
    return -_logarithm(uniform)


def _logarithm(values: Floats) -> Floats:
    """Natural logarithm of positive numbers: m · 2^e with m around 1, and 2 artanh((m − 1) / (m + 1)) as a series."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < 0.7071067811865476
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    series = np.zeros_like(values)
    for odd in range(21, 0, -2):
        series = series * square + 1.0 / odd
    return 2.0 * ratio * series + exponent * _LN2


def _cosine_of_turn(part: Floats) -> Floats:
    """cos(2πx) for x in [0, 1], by the series of the sine of the distance to the nearest zero."""
    angle = np.abs(np.abs(part - 0.5) - 0.25) * (2 * _PI)
    square = angle * angle
    series = np.ones_like(part)
    for even in range(22, 0, -2):
        series = 1.0 - series * square / (even * (even + 1.0))
    sine = angle * series
    return np.where(np.abs(part - 0.5) > 0.25, sine, -sine)

"""Aggregates of pairs of numbers: covariance, correlation, and the line of least squares.

The argument of such an aggregate is an array of two DOUBLEs, y and x, which is NULL where one of them is. So DISTINCT,
FILTER, exchanges and state treat a pair as any other value.

With n pairs, all follows from n and from six exact numbers, each of which is rounded once: Σx, Σy and the determinants
n·Σx² − (Σx)², n·Σy² − (Σy)² and n·Σxy − Σx·Σy. Numbers nearer to 0 than `SMALLEST_MULTIPLIED` count as 0, since their
products would not be exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from strandline.logical.values import LARGEST_SQUARED, SMALLEST_MULTIPLIED

PAIR_AGGREGATES: Final = {
    "covar_pop": ("COVAR_POP(y, x)", "The covariance of pairs of numbers; a pair with a NULL does not count."),
    "covar_samp": ("COVAR_SAMP(y, x)", "The same of a sample; NULL for one pair."),
    "corr": ("CORR(y, x)", "The correlation of pairs of numbers; NULL where all x or all y are equal."),
    "regr_slope": ("REGR_SLOPE(y, x)", "The slope of the line nearest to the pairs; NULL where all x are equal."),
    "regr_intercept": ("REGR_INTERCEPT(y, x)", "The y of that line at x = 0."),
    "regr_r2": ("REGR_R2(y, x)", "The square of the correlation; 1 where all y are equal, NULL where all x are."),
    "regr_sxx": ("REGR_SXX(y, x)", "The sum of the squares of the deviations of x."),
    "regr_syy": ("REGR_SYY(y, x)", "The same of y."),
    "regr_sxy": ("REGR_SXY(y, x)", "The sum of the products of both deviations."),
}


@dataclass(frozen=True, slots=True)
class PairSums:
    """The six numbers of some pairs, rounded."""

    count: int
    sum_y: float
    sum_x: float
    yy: float
    xx: float
    yx: float


def over_pairs(name: str, pairs: list[tuple[float, float]]) -> float | None:
    """The aggregate over one or more pairs: the reference."""
    if any(not abs(value) < LARGEST_SQUARED for pair in pairs for value in pair):
        return None if name == "covar_samp" and len(pairs) == 1 else math.nan
    y, x = (
        [Fraction(value if abs(value) >= SMALLEST_MULTIPLIED else 0) for value in side]
        for side in zip(*pairs, strict=True)
    )
    n = len(pairs)

    def determinant(a: list[Fraction], b: list[Fraction]) -> float:
        return _to_double(n * sum(one * two for one, two in zip(a, b, strict=True)) - sum(a) * sum(b))

    sums = PairSums(n, _to_double(sum(y)), _to_double(sum(x)), determinant(y, y), determinant(x, x), determinant(y, x))
    return of_sums(name, sums)


def of_sums(name: str, s: PairSums) -> float | None:
    """The aggregate by its sums, as IEEE 754 divides."""
    n = s.count
    match name:
        case "covar_pop":
            return s.yx / (n * n)
        case "covar_samp":
            return s.yx / (n * (n - 1)) if n > 1 else None
        case "corr":
            if s.xx == 0 or s.yy == 0:
                return None
            return min(max(_over(s.yx, math.sqrt(s.xx) * math.sqrt(s.yy)), -1.0), 1.0)
        case "regr_sxx":
            return s.xx / n
        case "regr_syy":
            return s.yy / n
        case "regr_sxy":
            return s.yx / n
    if s.xx == 0:
        return None
    slope = _over(s.yx, s.xx)
    match name:
        case "regr_slope":
            return slope
        case "regr_intercept":
            return (s.sum_y - slope * s.sum_x) / n
    return 1.0 if s.yy == 0 else slope * _over(s.yx, s.yy)


def _over(one: float, two: float) -> float:
    return math.nan if math.isinf(one) and math.isinf(two) else one / two


def _to_double(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

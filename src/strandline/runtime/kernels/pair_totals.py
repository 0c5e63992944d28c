"""Aggregates of pairs of numbers by running totals: what a pair adds to them, and what follows from them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.covariance import Doubles, determinants, multipliable_pairs, products
from strandline.runtime.kernels.exact_sums import Limbs, doubles, to_limbs

# Names of the running totals, + argument + ":" + limb: exact sums of y, x and their products.
SUM_Y, SUM_X, SUM_YY, SUM_XX, SUM_YX = PAIR_TOTALS = ("@y:", "@x:", "@yy:", "@xx:", "@yx:")
_SAMPLES: Final = ("covar_samp",)


def pair_deltas(column: pl.Series) -> tuple[Index, dict[str, Limbs]]:
    """Which pairs have no exact products, and the change of each total by the others."""
    y, x, odd = multipliable_pairs(column)
    totals = {
        SUM_Y: to_limbs(pl.Series(y)),
        SUM_X: to_limbs(pl.Series(x)),
        SUM_YY: products(y, y),
        SUM_XX: products(x, x),
        SUM_YX: products(y, x),
    }
    return odd, totals


def pair_values(function: str, totals: dict[str, Limbs], counts: Index, odd: Index) -> pl.Series:
    """The aggregate by its totals; NULL where it is not defined. The formulas are those of `of_sums`."""
    with np.errstate(all="ignore"):
        values, is_defined = _of_totals(function, totals, counts)
    values = np.where(odd > 0, np.nan, values)
    is_defined = (is_defined | (odd > 0)) & (counts > (1 if function in _SAMPLES else 0))
    return pl.select(pl.when(pl.Series(is_defined)).then(pl.Series(values))).to_series()


def _of_totals(function: str, totals: dict[str, Limbs], n: Index) -> tuple[Doubles, Mask]:
    def determinant(multiplied: str, one: str, two: str) -> Doubles:
        return determinants(totals[multiplied], totals[one], totals[two], n)

    defined = np.ones(len(n), np.bool_)
    match function:
        case "regr_sxx":
            return determinant(SUM_XX, SUM_X, SUM_X) / n, defined
        case "regr_syy":
            return determinant(SUM_YY, SUM_Y, SUM_Y) / n, defined
    yx = determinant(SUM_YX, SUM_Y, SUM_X)
    match function:
        case "covar_pop":
            return yx / (n * n), defined
        case "covar_samp":
            return yx / (n * (n - 1)), defined
        case "regr_sxy":
            return yx / n, defined
    xx = determinant(SUM_XX, SUM_X, SUM_X)
    defined = xx != 0
    slope = yx / xx
    match function:
        case "regr_slope":
            return slope, defined
        case "regr_intercept":
            return (doubles(totals[SUM_Y], len(n)) - slope * doubles(totals[SUM_X], len(n))) / n, defined
    yy = determinant(SUM_YY, SUM_Y, SUM_Y)
    if function == "corr":
        return np.clip(yx / (np.sqrt(xx) * np.sqrt(yy)), -1.0, 1.0), defined & (yy != 0)
    assert function == "regr_r2", f"an aggregate of pairs, not {function}"
    return np.where(yy == 0, 1.0, slope * (yx / yy)), defined

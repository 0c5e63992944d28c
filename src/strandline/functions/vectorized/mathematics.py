"""Roots, logarithms, angles and the like over whole columns.

Compiled loops (`kernels/elementary.py`) give the DOUBLEs nearest to the true values but for a few that they cannot
decide; those are computed as `core/correct_rounding.py` defines them. NumPy, Polars and Arrow have such functions,
too, but choose among formulas by the processor: the last digit of a result would depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from strandline.core import correct_rounding as nearest
from strandline.core.types import DOUBLE
from strandline.functions.definitions.mathematics import log, power
from strandline.logical.expressions import Call
from strandline.runtime.kernels import elementary
from strandline.runtime.kernels import elementary_tables as tables
from strandline.runtime.kernels.columns import bound, let, stretched, together
from strandline.runtime.kernels.elementary import COSINE, SINE, TANGENT, Bits, Doubles, Mask

Loop: TypeAlias = Callable[..., tuple[Doubles, Mask]]  # results, and which of them are undecided


def _bits(values: Doubles) -> Bits:
    return values.view(np.int64)


def _exp(x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.exponentials(x, tables.powers(), tables.exponentials())


def _ln(x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.logarithms(x, _bits(x), 1.0, 0.0, tables.logarithms())


def _logarithms(x: Doubles, base: int) -> tuple[Doubles, Mask]:
    factor = tables.logarithm_factors()[base]
    return elementary.logarithms(x, _bits(x), *factor, tables.logarithms())


def _logarithms_to_bases(base: Doubles, x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.logarithms_to_bases(base, _bits(base), x, _bits(x), tables.powers(), tables.logarithms())


def _powers(base: Doubles, exponent: Doubles) -> tuple[Doubles, Mask]:
    return elementary.powers_of(
        base, _bits(base), exponent, tables.powers(), tables.exponentials(), tables.logarithms()
    )


def _cube_roots(x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.cube_roots(x, _bits(x), tables.powers(), tables.cube_roots())


def _circular(x: Doubles, function: int) -> tuple[Doubles, Mask]:
    return elementary.circulars(x, _bits(x), function, tables.powers(), tables.turns(), tables.sines())


def _inverse_circular(x: Doubles, function: int) -> tuple[Doubles, Mask]:
    return elementary.inverse_circulars(x, function, tables.angles())


def _atan2(y: Doubles, x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.angles_of(y, x, tables.angles())


def _hyperbolic(x: Doubles, function: int) -> tuple[Doubles, Mask]:
    return elementary.hyperbolics(x, function, tables.powers(), tables.exponentials())


def _column(
    loop: Loop, exact: Callable[..., Any], impossible: Callable[..., Mask] | None, columns: Sequence[pl.Series]
) -> pl.Series:
    """The function of whole columns, NULL where an argument is or where it is impossible."""
    columns = [stretched(column, columns) for column in columns]
    arguments = [np.ascontiguousarray(column.to_numpy()) for column in columns]  # NULL is NaN
    results, undecided = loop(*arguments)
    for row in np.flatnonzero(undecided):
        results[row] = exact(*(float(values[row]) for values in arguments))
    with np.errstate(invalid="ignore"):
        missing = np.zeros(len(results), np.bool_) if impossible is None else impossible(*arguments)
    for column in columns:
        if column.null_count():
            missing |= column.is_null().to_numpy()
    result = pl.Series(results)
    return pl.select(pl.when(pl.Series(~missing)).then(result)).to_series() if missing.any() else result


def _function(
    loop: Loop, exact: Callable[..., Any], impossible: Callable[..., Mask] | None = None
) -> Callable[..., pl.Expr]:
    return lambda _, *columns: together(partial(_column, loop, exact, impossible), *columns, kind=DOUBLE)


def _not_positive(x: Doubles) -> Mask:
    result: Mask = x <= 0
    return result


def _beyond_unit(x: Doubles) -> Mask:
    result: Mask = np.abs(x) > 1
    return result


def _without_logarithm(base: Doubles, x: Doubles) -> Mask:
    result: Mask = (base <= 0) | (base == 1) | (x <= 0)
    return result


def _without_power(base: Doubles, exponent: Doubles) -> Mask:
    fractional = np.isfinite(exponent) & (exponent != np.floor(exponent))
    result: Mask = ((base == 0) & (exponent < 0)) | ((base < 0) & fractional)
    return result


_log10 = _function(partial(_logarithms, base=10), partial(nearest.log, 10.0), _not_positive)
_log_to_base = _function(_logarithms_to_bases, log, _without_logarithm)


def _log(call: Call, base: pl.Expr, x: pl.Expr | None = None) -> pl.Expr:
    return _log10(call, base) if x is None else _log_to_base(call, base, x)


def _sqrt(_: Call, value: pl.Expr) -> pl.Expr:
    return let((value,), lambda v: pl.when(v >= 0).then(v.sqrt()))


def _width_bucket(_: Call, x: pl.Expr, low: pl.Expr, high: pl.Expr, count: pl.Expr) -> pl.Expr:
    return bound(
        (x, low, high, count.cast(pl.Int64)),
        # Halves, because the bounds may be further apart than a DOUBLE can say.
        lambda x, low, high, n: (
            pl.when((high - low).is_infinite())
            .then((x / 2 - low / 2) / (high / 2 - low / 2))
            .otherwise((x - low) / (high - low))
        ),
        lambda x, low, high, n, part: pl.min_horizontal((part * n).floor().cast(pl.Int64, strict=False), n - 1) + 1,
        lambda x, low, high, n, part, number: (
            pl.when(pl.when(low < high).then(x < low).otherwise(x > low))
            .then(0)
            .when(pl.when(low < high).then(x >= high).otherwise(x <= high))
            .then(n + 1)
            .otherwise(number)
        ),
        lambda x, low, high, n, part, number, bucket: pl.when(
            (n > 0) & (low != high) & low.is_finite() & high.is_finite() & x.is_not_nan()
        ).then(bucket.cast(pl.Int32, strict=False)),
    )


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "sqrt": _sqrt,
    "cbrt": _function(_cube_roots, nearest.cbrt),
    "power": _function(_powers, power, _without_power),
    "exp": _function(_exp, nearest.exp),
    "ln": _function(_ln, nearest.ln, _not_positive),
    "log": _log,
    "log10": _log10,
    "log2": _function(partial(_logarithms, base=2), partial(nearest.log, 2.0), _not_positive),
    "sin": _function(partial(_circular, function=SINE), nearest.sin, np.isinf),
    "cos": _function(partial(_circular, function=COSINE), nearest.cos, np.isinf),
    "tan": _function(partial(_circular, function=TANGENT), nearest.tan, np.isinf),
    "asin": _function(partial(_inverse_circular, function=SINE), nearest.asin, _beyond_unit),
    "acos": _function(partial(_inverse_circular, function=COSINE), nearest.acos, _beyond_unit),
    "atan": _function(partial(_inverse_circular, function=TANGENT), nearest.atan),
    "atan2": _function(_atan2, nearest.atan2),
    "sinh": _function(partial(_hyperbolic, function=SINE), nearest.sinh),
    "cosh": _function(partial(_hyperbolic, function=COSINE), nearest.cosh),
    "tanh": _function(partial(_hyperbolic, function=TANGENT), nearest.tanh),
    "degrees": lambda _, x: x * (180 / math.pi),
    "radians": lambda _, x: x * (math.pi / 180),
    "width_bucket": _width_bucket,
    "isnan": lambda _, x: x.is_nan(),
    "isinf": lambda _, x: x.is_infinite(),
    "isfinite": lambda _, x: x.is_finite(),
}

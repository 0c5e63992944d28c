"""Roots, logarithms, angles and the like over whole columns.

Most of them are Arrow's, which asks the C library for every value, as Python does. NumPy and Polars compute some of
them by other formulas: then the last digit of an answer could depend on the machine, or a logarithm of 1000 not be 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from strandline.algebra.expressions import Call
from strandline.execution.scalars.basis import bound, let, mapped, stretched, together
from strandline.types import DOUBLE


def _arrow(function: Callable[..., pa.Array], columns: Sequence[pl.Series]) -> pl.Series:
    whole = (stretched(column, columns).to_arrow() for column in columns)
    return pl.Series(function(*whole), dtype=pl.Float64)


def _by_arrow(function: Callable[..., pa.Array], *columns: pl.Expr) -> pl.Expr:
    return together(partial(_arrow, function), *columns, kind=DOUBLE)


def _everywhere(function: Callable[..., pa.Array]) -> Callable[..., pl.Expr]:
    return lambda _, *columns: _by_arrow(function, *columns)


def _where(possible: Callable[[pl.Expr], pl.Expr], function: Callable[..., pa.Array]) -> Callable[..., pl.Expr]:
    """The function of the values for which it is defined, else NULL; NaN is always possible."""
    return lambda _, x: let((x,), lambda v: _by_arrow(function, pl.when(possible(v) | v.is_nan()).then(v)))


def _positive(x: pl.Expr) -> pl.Expr:
    return x > 0


def _finite(x: pl.Expr) -> pl.Expr:
    return x.is_finite()


def _in_unit(x: pl.Expr) -> pl.Expr:
    return x.is_between(-1.0, 1.0)


_ln = _where(_positive, pc.ln)
_log2 = _where(_positive, pc.log2)
_log10 = _where(_positive, pc.log10)


def _log(call: Call, base: pl.Expr, x: pl.Expr | None = None) -> pl.Expr:
    if x is None:
        return _log10(call, base)
    return bound(
        (base, x),
        lambda b, v: _ln(call, b),
        lambda b, v, below: pl.when(below != 0).then(_ln(call, v) / below),
        lambda b, v, below, quotient: pl.when(b == 2).then(_log2(call, v)).otherwise(quotient),
        lambda b, v, below, quotient, found: pl.when(b == 10).then(_log10(call, v)).otherwise(found),
    )


def _sqrt(_: Call, value: pl.Expr) -> pl.Expr:
    return let((value,), lambda v: pl.when(v >= 0).then(v.sqrt()))


def _cube_roots(values: pl.Series) -> pl.Series:
    x = values.to_numpy()
    root = np.cbrt(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        better = root - (root - x / (root * root)) / 3
    roots = pl.Series(np.where((root == 0) | ~np.isfinite(root), root, better))
    return pl.select(pl.when(values.is_not_null()).then(roots)).to_series()


def _power(_: Call, base: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    return pl.map_batches([base, exponent], _powers, return_dtype=pl.Float64(), is_elementwise=True)


def _powers(columns: Sequence[pl.Series]) -> pl.Series:
    """C's power, NULL where it has no real value.

    Polars multiplies if there is a single small exponent, with other last digits: then an answer would depend on how
    the rows are cut into batches. So there are always two exponents at least.
    """
    base, exponent = (stretched(column, columns) for column in columns)
    twice = len(base) == 1
    powers = pl.concat([base, base]).pow(pl.concat([exponent, exponent])).head(1) if twice else base.pow(exponent)
    fractional = exponent.is_finite() & (exponent != exponent.floor())
    impossible = ((base == 0) & (exponent < 0)) | ((base < 0) & fractional)
    return pl.select(pl.when(~impossible).then(powers)).to_series()


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
    "cbrt": lambda _, x: mapped(x, _cube_roots, DOUBLE),
    "power": _power,
    "exp": _everywhere(pc.exp),
    "ln": _ln,
    "log": _log,
    "log10": _log10,
    "log2": _log2,
    "sin": _where(_finite, pc.sin),
    "cos": _where(_finite, pc.cos),
    "tan": _where(_finite, pc.tan),
    "asin": _where(_in_unit, pc.asin),
    "acos": _where(_in_unit, pc.acos),
    "atan": _everywhere(pc.atan),
    "atan2": _everywhere(pc.atan2),
    "sinh": _everywhere(pc.sinh),
    "cosh": _everywhere(pc.cosh),
    "tanh": _everywhere(pc.tanh),
    "degrees": lambda _, x: x.degrees(),
    "radians": lambda _, x: x.radians(),
    "width_bucket": _width_bucket,
    "isnan": lambda _, x: x.is_nan(),
    "isinf": lambda _, x: x.is_infinite(),
    "isfinite": lambda _, x: x.is_finite(),
}

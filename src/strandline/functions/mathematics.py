"""Roots, logarithms, angles and the like: functions of DOUBLEs.

The result is the DOUBLE nearest to the true value (`core/correct_rounding.py`): the same on every machine. Where there
is no real result there is NULL; what is too large for a DOUBLE is an infinity, as in IEEE 754.

Over columns compiled loops (`kernels/elementary.py`) give the nearest DOUBLEs but for a few that they cannot decide;
those are computed one by one. NumPy, Polars and Arrow have such functions, too, but choose among formulas by the
processor: the last digit of a result would depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from strandline.core import correct_rounding as nearest
from strandline.core.lazy import pl
from strandline.core.types import BOOLEAN, DOUBLE, INT
from strandline.functions.signatures import Function, fixed
from strandline.logical.expressions import Call
from strandline.runtime.kernels import elementary
from strandline.runtime.kernels import elementary_tables as tables
from strandline.runtime.kernels.columns import bound, let, stretched, together
from strandline.runtime.kernels.elementary import COSINE, SINE, TANGENT, Bits, Doubles, Mask

Loop: TypeAlias = Callable[..., tuple[Doubles, Mask]]  # results, and which of them are undecided

# ---- meaning ---------------------------------------------------------------------------------------------------------


def power(base: float, exponent: float) -> float | None:
    if (base == 0 and exponent < 0) or (base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent)):
        return None
    if base == 0 or not (math.isfinite(base) and math.isfinite(exponent)):
        return math.pow(base, exponent)  # as IEEE 754 has it: nothing is rounded
    size = nearest.power(abs(base), exponent)
    return -size if base < 0 and exponent % 2 == 1 else size


def _of_numbers(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if x != x else function(x)


def _of_positive(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if x <= 0 else function(x) if x < math.inf else x


def _of_finite(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if math.isinf(x) else x if x != x else function(x)


def _of_unit(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if abs(x) > 1 else x if x != x else function(x)


def _cbrt(x: float) -> float:
    return nearest.cbrt(x) if math.isfinite(x) else x


_log10 = _of_positive(partial(nearest.log, 10.0))


def log(base: float, x: float | None = None) -> float | None:
    """To the base 10, or log(base, x)."""
    if x is None:
        return _log10(base)
    if base <= 0 or base == 1 or x <= 0:
        return None
    if math.isfinite(base) and math.isfinite(x):
        return nearest.log(base, x)
    # The quotient of two logarithms, of which one is infinite or NaN: only the sign of the other matters.
    return _sign_of_logarithm(x) / _sign_of_logarithm(base)


def _sign_of_logarithm(x: float) -> float:
    return x if not math.isfinite(x) else float((x > 1) - (x < 1))


def _atan2(y: float, x: float) -> float:
    return math.nan if x != x or y != y else nearest.atan2(y, x)


def _width_bucket(x: float, low: float, high: float, count: int) -> int | None:
    """The number of the bucket, from 1; 0 before the first bound, count + 1 from the second one on."""
    if count <= 0 or low == high or x != x or not (math.isfinite(low) and math.isfinite(high)):
        return None
    up = low < high
    if (x < low) if up else (x > low):
        return 0
    if (x >= high) if up else (x <= high):
        return count + 1
    # Halves, because the bounds may be further apart than a DOUBLE can say.
    part = (x / 2 - low / 2) / (high / 2 - low / 2) if math.isinf(high - low) else (x - low) / (high - low)
    return min(math.floor(part * count), count - 1) + 1


# ---- over columns ----------------------------------------------------------------------------------------------------


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


def _angles(y: Doubles, x: Doubles) -> tuple[Doubles, Mask]:
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


def _over_columns(
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


_log10_columns = _over_columns(partial(_logarithms, base=10), partial(nearest.log, 10.0), _not_positive)
_log_to_base = _over_columns(_logarithms_to_bases, log, _without_logarithm)


def _log_columns(call: Call, base: pl.Expr, x: pl.Expr | None = None) -> pl.Expr:
    return _log10_columns(call, base) if x is None else _log_to_base(call, base, x)


def _sqrt(_: Call, value: pl.Expr) -> pl.Expr:
    return let((value,), lambda v: pl.when(v >= 0).then(v.sqrt()))


def _width_bucket_columns(_: Call, x: pl.Expr, low: pl.Expr, high: pl.Expr, count: pl.Expr) -> pl.Expr:
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


# ---- declarations ----------------------------------------------------------------------------------------------------

_DOUBLE = fixed(DOUBLE, DOUBLE)
_TWO = fixed(DOUBLE, DOUBLE, DOUBLE)
_TEST = fixed(BOOLEAN, DOUBLE)

FAMILY: Final = (
    Function("sqrt", "sqrt(x)", "The square root; NULL if x is negative.",
             1, 1, _DOUBLE, lambda x: None if x < 0 else math.sqrt(x), _sqrt,
             sql="CASE WHEN {0} >= 0 THEN sqrt({0}) END"),
    Function("cbrt", "cbrt(x)", "The cube root.", 1, 1, _DOUBLE, _cbrt, _over_columns(_cube_roots, nearest.cbrt),
             sql="cbrt({0})", cost=20),
    Function("power", "power(x, y)", "x to the power of y, also x ^ y; NULL if there is no real result.",
             2, 2, _TWO, power, _over_columns(_powers, power, _without_power),
             sql="{h}power({0}, {1})", cost=20, aliases=("pow",)),
    Function("exp", "exp(x)", "e to the power of x.",
             1, 1, _DOUBLE, _of_numbers(nearest.exp), _over_columns(_exp, nearest.exp), sql="{h}exp({0})", cost=20),
    Function("ln", "ln(x)", "The natural logarithm; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(nearest.ln), _over_columns(_ln, nearest.ln, _not_positive),
             sql="CASE WHEN {0} > 0 THEN ln({0}) END", cost=20),
    Function("log", "log([base, ]x)", "The logarithm to a base, or to 10; NULL unless both are positive.",
             1, 2, _TWO, log, _log_columns, cost=20,
             sql={"*": "CASE WHEN {0} > 0 THEN log({0}) END",
                  "*, *": "CASE WHEN {0} > 0 AND {0} <> 1 AND {1} > 0 THEN ln({1}) / ln({0}) END"}),
    Function("log10", "log10(x)", "The logarithm to the base 10; NULL unless x is positive.",
             1, 1, _DOUBLE, _log10, _log10_columns, sql="CASE WHEN {0} > 0 THEN log({0}) END"),
    Function("log2", "log2(x)", "The logarithm to the base 2; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(partial(nearest.log, 2.0)),
             _over_columns(partial(_logarithms, base=2), partial(nearest.log, 2.0), _not_positive),
             duckdb="CASE WHEN {0} > 0 THEN log2({0}) END",
             postgresql="CASE WHEN {0} > 0 THEN ln({0}) / ln(CAST(2 AS DOUBLE PRECISION)) END"),
    Function("pi", "pi()", "The ratio of a circle's circumference to its diameter.",
             0, 0, fixed(DOUBLE), lambda: math.pi, lambda _: pl.lit(math.pi), sql="pi()"),
    Function("sin", "sin(x)", "The sine of an angle in radians; NULL if it is infinite.",
             1, 1, _DOUBLE, _of_finite(nearest.sin),
             _over_columns(partial(_circular, function=SINE), nearest.sin, np.isinf),
             sql="CASE WHEN NOT {h}isinf({0}) THEN sin({0}) END", cost=20),
    Function("cos", "cos(x)", "The cosine; NULL if x is infinite.",
             1, 1, _DOUBLE, _of_finite(nearest.cos),
             _over_columns(partial(_circular, function=COSINE), nearest.cos, np.isinf),
             sql="CASE WHEN NOT {h}isinf({0}) THEN cos({0}) END", cost=20),
    Function("tan", "tan(x)", "The tangent; NULL if x is infinite.",
             1, 1, _DOUBLE, _of_finite(nearest.tan),
             _over_columns(partial(_circular, function=TANGENT), nearest.tan, np.isinf),
             sql="CASE WHEN NOT {h}isinf({0}) THEN tan({0}) END", cost=20),
    Function("asin", "asin(x)", "The angle with this sine; NULL beyond -1 and 1.",
             1, 1, _DOUBLE, _of_unit(nearest.asin),
             _over_columns(partial(_inverse_circular, function=SINE), nearest.asin, _beyond_unit),
             sql="CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN asin({0}) END", cost=20),
    Function("acos", "acos(x)", "The angle with this cosine; NULL beyond -1 and 1.",
             1, 1, _DOUBLE, _of_unit(nearest.acos),
             _over_columns(partial(_inverse_circular, function=COSINE), nearest.acos, _beyond_unit),
             sql="CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN acos({0}) END", cost=20),
    Function("atan", "atan(x)", "The angle with this tangent.",
             1, 1, _DOUBLE, _of_numbers(nearest.atan),
             _over_columns(partial(_inverse_circular, function=TANGENT), nearest.atan), sql="atan({0})", cost=20),
    Function("atan2", "atan2(y, x)", "The angle of the point (x, y).",
             2, 2, _TWO, _atan2, _over_columns(_angles, nearest.atan2), sql="atan2({0}, {1})", cost=20),
    Function("sinh", "sinh(x)", "The hyperbolic sine.", 1, 1, _DOUBLE, _of_numbers(nearest.sinh),
             _over_columns(partial(_hyperbolic, function=SINE), nearest.sinh), sql="sinh({0})"),
    Function("cosh", "cosh(x)", "The hyperbolic cosine.", 1, 1, _DOUBLE, _of_numbers(nearest.cosh),
             _over_columns(partial(_hyperbolic, function=COSINE), nearest.cosh), sql="cosh({0})"),
    Function("tanh", "tanh(x)", "The hyperbolic tangent.", 1, 1, _DOUBLE, _of_numbers(nearest.tanh),
             _over_columns(partial(_hyperbolic, function=TANGENT), nearest.tanh), sql="tanh({0})"),
    Function("degrees", "degrees(x)", "Radians as degrees.", 1, 1, _DOUBLE, lambda x: x * (180 / math.pi),
             lambda _, x: x * (180 / math.pi), sql="{h}degrees({0})"),
    Function("radians", "radians(x)", "Degrees as radians.", 1, 1, _DOUBLE, lambda x: x * (math.pi / 180),
             lambda _, x: x * (math.pi / 180), sql="{h}radians({0})"),
    Function("width_bucket", "width_bucket(x, low, high, count)",
             "Which of count equal parts of [low, high) holds x, from 1; 0 before them, count + 1 after them.",
             4, 4, fixed(INT, DOUBLE, DOUBLE, DOUBLE, INT), _width_bucket, _width_bucket_columns,
             sql="{h}bucket({0}, {1}, {2}, {3})"),
    Function("isnan", "isnan(x)", "Whether x is NaN.", 1, 1, _TEST, math.isnan, lambda _, x: x.is_nan(),
             sql="{h}isnan({0})"),
    Function("isinf", "isinf(x)", "Whether x is an infinity.", 1, 1, _TEST, math.isinf, lambda _, x: x.is_infinite(),
             sql="{h}isinf({0})"),
    Function("isfinite", "isfinite(x)", "Whether x is neither NaN nor an infinity.",
             1, 1, _TEST, math.isfinite, lambda _, x: x.is_finite(),
             sql="(NOT {h}isnan({0}) AND NOT {h}isinf({0}))"),
)  # fmt: skip

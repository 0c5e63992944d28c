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
from strandline.runtime.kernels.columns import let, stretched, together
from strandline.runtime.kernels.elementary import COSINE, SINE, TANGENT, Bits, Doubles, Mask

Loop: TypeAlias = Callable[..., tuple[Doubles, Mask]]  # results, and which of them are undecided
Domain: TypeAlias = Callable[..., Any]  # of DOUBLEs or of arrays of them: where there is no real result

# ---- where there is no real result -----------------------------------------------------------------------------------


def _not_positive(x: Any) -> Any:
    return x <= 0


def _beyond_unit(x: Any) -> Any:
    return abs(x) > 1


def _without_logarithm(base: Any, x: Any) -> Any:
    return (base <= 0) | (base == 1) | (x <= 0)


def _without_power(base: Any, exponent: Any) -> Any:
    fractional = np.isfinite(exponent) & (exponent != np.floor(exponent))
    return ((base == 0) & (exponent < 0)) | ((base < 0) & fractional)


# ---- meaning ---------------------------------------------------------------------------------------------------------


def power(base: float, exponent: float) -> float | None:
    if _without_power(base, exponent):
        return None
    if base == 0 or not (math.isfinite(base) and math.isfinite(exponent)):
        return math.pow(base, exponent)  # as IEEE 754 has it: nothing is rounded
    size = nearest.power(abs(base), exponent)
    return -size if base < 0 and exponent % 2 == 1 else size


def log(base: float, x: float | None = None) -> float | None:
    """To the base 10, or log(base, x)."""
    if x is None:
        result: float | None = _LOG10.meaning(base)
        return result
    if _without_logarithm(base, x):
        return None
    if math.isfinite(base) and math.isfinite(x):
        return nearest.log(base, x)
    # The quotient of two logarithms, of which one is infinite or NaN: only the sign of the other matters.
    return _sign_of_logarithm(x) / _sign_of_logarithm(base)


def _sign_of_logarithm(x: float) -> float:
    return x if not math.isfinite(x) else float((x > 1) - (x < 1))


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


def _logarithms(x: Doubles, base: int | None = None) -> tuple[Doubles, Mask]:
    """Natural ones if there is no base."""
    factor = (1.0, 0.0) if base is None else tables.logarithm_factors()[base]
    return elementary.logarithms(x, _bits(x), *factor, tables.logarithms())


def _logarithms_to_bases(base: Doubles, x: Doubles) -> tuple[Doubles, Mask]:
    return elementary.logarithms_to_bases(base, _bits(base), x, _bits(x), tables.powers(), tables.logarithms())


def _powers(base: Doubles, exponent: Doubles) -> tuple[Doubles, Mask]:
    return elementary.powers_of(
        base, _bits(base), exponent, tables.powers(), tables.exponentials(), tables.logarithms()
    )


def _circulars(function: int) -> Loop:
    return lambda x: elementary.circulars(x, _bits(x), function, tables.powers(), tables.turns(), tables.sines())


def _inverse_circulars(function: int) -> Loop:
    return lambda x: elementary.inverse_circulars(x, function, tables.angles())


def _hyperbolics(function: int) -> Loop:
    return lambda x: elementary.hyperbolics(x, function, tables.powers(), tables.exponentials())


def _over_columns(loop: Loop, exact: Callable[..., Any], impossible: Domain | None = None) -> Callable[..., pl.Expr]:
    """The function of whole columns, NULL where an argument is or where it is impossible."""

    def column(columns: Sequence[pl.Series]) -> pl.Series:
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

    return lambda _, *columns: together(column, *columns, kind=DOUBLE)


_log_to_base = _over_columns(_logarithms_to_bases, log, _without_logarithm)


def _log_columns(call: Call, base: pl.Expr, x: pl.Expr | None = None) -> pl.Expr:
    return _LOG10.vectorized(call, base) if x is None else _log_to_base(call, base, x)


def _width_buckets(columns: Sequence[pl.Series]) -> pl.Series:
    columns = [stretched(column, columns) for column in columns]
    x, low, high, count = (column.cast(pl.Float64).to_numpy() for column in columns)  # NULL is NaN
    up = low < high
    with np.errstate(all="ignore"):
        # Halves, because the bounds may be further apart than a DOUBLE can say.
        halves = (x / 2 - low / 2) / (high / 2 - low / 2)
        part = np.where(np.isinf(high - low), halves, (x - low) / (high - low))
        within = np.minimum(np.floor(part * count), count - 1) + 1
    before, after = np.where(up, x < low, x > low), np.where(up, x >= high, x <= high)
    bucket = np.select([before, after], [np.zeros_like(x), count + 1], within)
    possible = (count > 0) & (low != high) & np.isfinite(low) & np.isfinite(high) & ~np.isnan(x)
    return pl.select(pl.when(pl.Series(possible)).then(pl.Series(bucket))).to_series().cast(pl.Int32, strict=False)


# ---- declarations ----------------------------------------------------------------------------------------------------

_DOUBLE = fixed(DOUBLE, DOUBLE)
_TWO = fixed(DOUBLE, DOUBLE, DOUBLE)
_TEST = fixed(BOOLEAN, DOUBLE)


def _elementary(
    name: str,
    doc: str,
    exact: Callable[[float], float],
    loop: Loop,
    impossible: Domain | None = None,
    *,
    sql: str | None = None,
    duckdb: str | None = None,
    postgresql: str | None = None,
    cost: int | None = None,
) -> Function:
    """A function of one DOUBLE: `exact` for finite ones, NaN for NaN, and NULL where it is impossible."""

    def meaning(x: float) -> float | None:
        if impossible is not None and impossible(x):
            return None
        return x if x != x else exact(x)

    return Function(name, f"{name}(x)", doc, 1, 1, _DOUBLE, meaning, _over_columns(loop, exact, impossible),
                    sql=sql, duckdb=duckdb, postgresql=postgresql, cost=cost)  # fmt: skip


def _same_at_infinity(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else x


_LOG10: Final = _elementary(
    "log10", "The logarithm to the base 10; NULL unless x is positive.", _same_at_infinity(partial(nearest.log, 10.0)),
    partial(_logarithms, base=10), _not_positive, sql="CASE WHEN {0} > 0 THEN log({0}) END")  # fmt: skip

FAMILY: Final = (
    Function("sqrt", "sqrt(x)", "The square root; NULL if x is negative.",
             1, 1, _DOUBLE, lambda x: None if x < 0 else math.sqrt(x),
             lambda _, x: let((x,), lambda v: pl.when(v >= 0).then(v.sqrt())),
             sql="CASE WHEN {0} >= 0 THEN sqrt({0}) END"),
    _elementary("cbrt", "The cube root.", _same_at_infinity(nearest.cbrt),
                lambda x: elementary.cube_roots(x, _bits(x), tables.powers(), tables.cube_roots()),
                cost=20, sql="cbrt({0})"),
    Function("power", "power(x, y)", "x to the power of y, also x ^ y; NULL if there is no real result.",
             2, 2, _TWO, power, _over_columns(_powers, power, _without_power),
             sql="{h}power({0}, {1})", cost=20, aliases=("pow",)),
    _elementary("exp", "e to the power of x.", nearest.exp,
                lambda x: elementary.exponentials(x, tables.powers(), tables.exponentials()),
                cost=20, sql="{h}exp({0})"),
    _elementary("ln", "The natural logarithm; NULL unless x is positive.", _same_at_infinity(nearest.ln), _logarithms,
                _not_positive, cost=20, sql="CASE WHEN {0} > 0 THEN ln({0}) END"),
    Function("log", "log([base, ]x)", "The logarithm to a base, or to 10; NULL unless both are positive.",
             1, 2, _TWO, log, _log_columns, cost=20,
             sql={"*": "CASE WHEN {0} > 0 THEN log({0}) END",
                  "*, *": "CASE WHEN {0} > 0 AND {0} <> 1 AND {1} > 0 THEN ln({1}) / ln({0}) END"}),
    _LOG10,
    _elementary("log2", "The logarithm to the base 2; NULL unless x is positive.",
                _same_at_infinity(partial(nearest.log, 2.0)), partial(_logarithms, base=2), _not_positive,
                duckdb="CASE WHEN {0} > 0 THEN log2({0}) END",
                postgresql="CASE WHEN {0} > 0 THEN ln({0}) / ln(CAST(2 AS DOUBLE PRECISION)) END"),
    Function("pi", "pi()", "The ratio of a circle's circumference to its diameter.",
             0, 0, fixed(DOUBLE), lambda: math.pi, lambda _: pl.lit(math.pi), sql="pi()"),
    _elementary("sin", "The sine of an angle in radians; NULL if it is infinite.", nearest.sin, _circulars(SINE),
                np.isinf, cost=20, sql="CASE WHEN NOT {h}isinf({0}) THEN sin({0}) END"),
    _elementary("cos", "The cosine; NULL if x is infinite.", nearest.cos, _circulars(COSINE),
                np.isinf, cost=20, sql="CASE WHEN NOT {h}isinf({0}) THEN cos({0}) END"),
    _elementary("tan", "The tangent; NULL if x is infinite.", nearest.tan, _circulars(TANGENT),
                np.isinf, cost=20, sql="CASE WHEN NOT {h}isinf({0}) THEN tan({0}) END"),
    _elementary("asin", "The angle with this sine; NULL beyond -1 and 1.", nearest.asin, _inverse_circulars(SINE),
                _beyond_unit, cost=20, sql="CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN asin({0}) END"),
    _elementary("acos", "The angle with this cosine; NULL beyond -1 and 1.", nearest.acos, _inverse_circulars(COSINE),
                _beyond_unit, cost=20, sql="CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN acos({0}) END"),
    _elementary("atan", "The angle with this tangent.", nearest.atan, _inverse_circulars(TANGENT),
                cost=20, sql="atan({0})"),
    Function("atan2", "atan2(y, x)", "The angle of the point (x, y).",
             2, 2, _TWO, lambda y, x: math.nan if x != x or y != y else nearest.atan2(y, x),
             _over_columns(lambda y, x: elementary.angles_of(y, x, tables.angles()), nearest.atan2),
             sql="atan2({0}, {1})", cost=20),
    _elementary("sinh", "The hyperbolic sine.", nearest.sinh, _hyperbolics(SINE), sql="sinh({0})"),
    _elementary("cosh", "The hyperbolic cosine.", nearest.cosh, _hyperbolics(COSINE), sql="cosh({0})"),
    _elementary("tanh", "The hyperbolic tangent.", nearest.tanh, _hyperbolics(TANGENT), sql="tanh({0})"),
    Function("degrees", "degrees(x)", "Radians as degrees.", 1, 1, _DOUBLE, lambda x: x * (180 / math.pi),
             lambda _, x: x * (180 / math.pi), sql="{h}degrees({0})"),
    Function("radians", "radians(x)", "Degrees as radians.", 1, 1, _DOUBLE, lambda x: x * (math.pi / 180),
             lambda _, x: x * (math.pi / 180), sql="{h}radians({0})"),
    Function("width_bucket", "width_bucket(x, low, high, count)",
             "Which of count equal parts of [low, high) holds x, from 1; 0 before them, count + 1 after them.",
             4, 4, fixed(INT, DOUBLE, DOUBLE, DOUBLE, INT), _width_bucket,
             lambda _, *columns: together(_width_buckets, *columns, kind=INT),
             sql="{h}bucket({0}, {1}, {2}, {3})"),
    Function("isnan", "isnan(x)", "Whether x is NaN.", 1, 1, _TEST, math.isnan, lambda _, x: x.is_nan(),
             sql="{h}isnan({0})"),
    Function("isinf", "isinf(x)", "Whether x is an infinity.", 1, 1, _TEST, math.isinf, lambda _, x: x.is_infinite(),
             sql="{h}isinf({0})"),
    Function("isfinite", "isfinite(x)", "Whether x is neither NaN nor an infinity.",
             1, 1, _TEST, math.isfinite, lambda _, x: x.is_finite(),
             sql="(NOT {h}isnan({0}) AND NOT {h}isinf({0}))"),
)  # fmt: skip

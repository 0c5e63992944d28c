"""Roots, logarithms, angles and the like: what they take and what they mean. All of them are functions of DOUBLEs.

The result is the DOUBLE nearest to the true value (`core/correct_rounding.py`): the same on every machine. Where there
is no real result there is NULL; what is too large for a DOUBLE is an infinity, as in IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from strandline.core import correct_rounding as nearest
from strandline.core.types import BOOLEAN, DOUBLE, INT
from strandline.functions.signatures import Function, fixed


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


def _log2(x: float) -> float:
    return nearest.log(2.0, x)


def _log10(x: float) -> float:
    return nearest.log(10.0, x)


LOG10: Final = _of_positive(_log10)


def log(base: float, x: float | None = None) -> float | None:
    """To the base 10, or log(base, x)."""
    if x is None:
        return LOG10(base)
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


_DOUBLE = fixed(DOUBLE, DOUBLE)
_TWO = fixed(DOUBLE, DOUBLE, DOUBLE)
_TEST = fixed(BOOLEAN, DOUBLE)

DECLARED: Final = (
    Function("sqrt", "sqrt(x)", "The square root; NULL if x is negative.",
             1, 1, _DOUBLE, lambda x: None if x < 0 else math.sqrt(x)),
    Function("cbrt", "cbrt(x)", "The cube root.", 1, 1, _DOUBLE, _cbrt),
    Function("power", "power(x, y)", "x to the power of y, also x ^ y; NULL if there is no real result.",
             2, 2, _TWO, power),
    Function("exp", "exp(x)", "e to the power of x.", 1, 1, _DOUBLE, _of_numbers(nearest.exp)),
    Function("ln", "ln(x)", "The natural logarithm; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(nearest.ln)),
    Function("log", "log([base, ]x)", "The logarithm to a base, or to 10; NULL unless both are positive.",
             1, 2, _TWO, log),
    Function("log10", "log10(x)", "The logarithm to the base 10; NULL unless x is positive.",
             1, 1, _DOUBLE, LOG10),
    Function("log2", "log2(x)", "The logarithm to the base 2; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(_log2)),
    Function("pi", "pi()", "The ratio of a circle's circumference to its diameter.",
             0, 0, fixed(DOUBLE), lambda: math.pi),
    Function("sin", "sin(x)", "The sine of an angle in radians; NULL if it is infinite.",
             1, 1, _DOUBLE, _of_finite(nearest.sin)),
    Function("cos", "cos(x)", "The cosine; NULL if x is infinite.", 1, 1, _DOUBLE, _of_finite(nearest.cos)),
    Function("tan", "tan(x)", "The tangent; NULL if x is infinite.", 1, 1, _DOUBLE, _of_finite(nearest.tan)),
    Function("asin", "asin(x)", "The angle with this sine; NULL beyond -1 and 1.",
             1, 1, _DOUBLE, _of_unit(nearest.asin)),
    Function("acos", "acos(x)", "The angle with this cosine; NULL beyond -1 and 1.",
             1, 1, _DOUBLE, _of_unit(nearest.acos)),
    Function("atan", "atan(x)", "The angle with this tangent.", 1, 1, _DOUBLE, _of_numbers(nearest.atan)),
    Function("atan2", "atan2(y, x)", "The angle of the point (x, y).", 2, 2, _TWO, _atan2),
    Function("sinh", "sinh(x)", "The hyperbolic sine.", 1, 1, _DOUBLE, _of_numbers(nearest.sinh)),
    Function("cosh", "cosh(x)", "The hyperbolic cosine.", 1, 1, _DOUBLE, _of_numbers(nearest.cosh)),
    Function("tanh", "tanh(x)", "The hyperbolic tangent.", 1, 1, _DOUBLE, _of_numbers(nearest.tanh)),
    Function("degrees", "degrees(x)", "Radians as degrees.", 1, 1, _DOUBLE, lambda x: x * (180 / math.pi)),
    Function("radians", "radians(x)", "Degrees as radians.", 1, 1, _DOUBLE, lambda x: x * (math.pi / 180)),
    Function("width_bucket", "width_bucket(x, low, high, count)",
             "Which of count equal parts of [low, high) holds x, from 1; 0 before them, count + 1 after them.",
             4, 4, fixed(INT, DOUBLE, DOUBLE, DOUBLE, INT), _width_bucket),
    Function("isnan", "isnan(x)", "Whether x is NaN.", 1, 1, _TEST, math.isnan),
    Function("isinf", "isinf(x)", "Whether x is an infinity.", 1, 1, _TEST, math.isinf),
    Function("isfinite", "isfinite(x)", "Whether x is neither NaN nor an infinity.", 1, 1, _TEST, math.isfinite),
)  # fmt: skip

"""Roots, logarithms, angles and the like: what they take and what they mean. All of them are functions of DOUBLEs.

Where there is no real result there is NULL; what is too large for a DOUBLE is an infinity, as in IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from strandline.algebra.signatures import Function, fixed
from strandline.types import BOOLEAN, DOUBLE, INT


def _power(base: float, exponent: float) -> float | None:
    if (base == 0 and exponent < 0) or (base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent)):
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _cube_root(x: float) -> float:
    """C's result and one step of Newton's: some libraries say that the cube root of 27 is a little more than 3."""
    root = math.cbrt(x)
    return root if root == 0 or not math.isfinite(root) else root - (root - x / (root * root)) / 3


def _unbounded(function: Callable[[float], float]) -> Callable[[float], float]:
    """Too large is infinite, with the sign of the argument: sinh(-1000). An exponential is never negative."""

    def unbounded(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.copysign(math.inf, x) if function is math.sinh else math.inf

    return unbounded


def _of_positive(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if x <= 0 else function(x)


def _of_finite(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if math.isinf(x) else function(x)


def _of_unit(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda x: None if abs(x) > 1 else function(x)


def _log(base: float, x: float | None = None) -> float | None:
    """To the base 10, or log(base, x)."""
    if x is None:
        return None if base <= 0 else math.log10(base)
    if base <= 0 or base == 1 or x <= 0:
        return None
    if base in (2, 10):  # a quotient of logarithms may miss a whole number
        return math.log2(x) if base == 2 else math.log10(x)
    return math.log(x) / math.log(base)


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
    Function("cbrt", "cbrt(x)", "The cube root.", 1, 1, _DOUBLE, _cube_root),
    Function("power", "power(x, y)", "x to the power of y, also x ^ y; NULL if there is no real result.",
             2, 2, _TWO, _power),
    Function("exp", "exp(x)", "e to the power of x.", 1, 1, _DOUBLE, _unbounded(math.exp)),
    Function("ln", "ln(x)", "The natural logarithm; NULL unless x is positive.", 1, 1, _DOUBLE, _of_positive(math.log)),
    Function("log", "log([base, ]x)", "The logarithm to a base, or to 10; NULL unless both are positive.",
             1, 2, _TWO, _log),
    Function("log10", "log10(x)", "The logarithm to the base 10; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(math.log10)),
    Function("log2", "log2(x)", "The logarithm to the base 2; NULL unless x is positive.",
             1, 1, _DOUBLE, _of_positive(math.log2)),
    Function("pi", "pi()", "The ratio of a circle's circumference to its diameter.",
             0, 0, fixed(DOUBLE), lambda: math.pi),
    Function("sin", "sin(x)", "The sine of an angle in radians; NULL if it is infinite.",
             1, 1, _DOUBLE, _of_finite(math.sin)),
    Function("cos", "cos(x)", "The cosine; NULL if x is infinite.", 1, 1, _DOUBLE, _of_finite(math.cos)),
    Function("tan", "tan(x)", "The tangent; NULL if x is infinite.", 1, 1, _DOUBLE, _of_finite(math.tan)),
    Function("asin", "asin(x)", "The angle with this sine; NULL beyond -1 and 1.", 1, 1, _DOUBLE, _of_unit(math.asin)),
    Function("acos", "acos(x)", "The angle with this cosine; NULL beyond -1 and 1.",
             1, 1, _DOUBLE, _of_unit(math.acos)),
    Function("atan", "atan(x)", "The angle with this tangent.", 1, 1, _DOUBLE, math.atan),
    Function("atan2", "atan2(y, x)", "The angle of the point (x, y).", 2, 2, _TWO, math.atan2),
    Function("sinh", "sinh(x)", "The hyperbolic sine.", 1, 1, _DOUBLE, _unbounded(math.sinh)),
    Function("cosh", "cosh(x)", "The hyperbolic cosine.", 1, 1, _DOUBLE, _unbounded(math.cosh)),
    Function("tanh", "tanh(x)", "The hyperbolic tangent.", 1, 1, _DOUBLE, math.tanh),
    Function("degrees", "degrees(x)", "Radians as degrees.", 1, 1, _DOUBLE, lambda x: x * (180 / math.pi)),
    Function("radians", "radians(x)", "Degrees as radians.", 1, 1, _DOUBLE, lambda x: x * (math.pi / 180)),
    Function("width_bucket", "width_bucket(x, low, high, count)",
             "Which of count equal parts of [low, high) holds x, from 1; 0 before them, count + 1 after them.",
             4, 4, fixed(INT, DOUBLE, DOUBLE, DOUBLE, INT), _width_bucket),
    Function("isnan", "isnan(x)", "Whether x is NaN.", 1, 1, _TEST, math.isnan),
    Function("isinf", "isinf(x)", "Whether x is an infinity.", 1, 1, _TEST, math.isinf),
    Function("isfinite", "isfinite(x)", "Whether x is neither NaN nor an infinity.", 1, 1, _TEST, math.isfinite),
)  # fmt: skip

"""Functions of DOUBLEs give the nearest DOUBLE, by decimal arithmetic with 120 digits and by fractions.

`decimal` has an exponential function and a logarithm of its own; sines and arc tangents are summed up here, by other
reductions than those of `core/correct_rounding.py`. What 120 digits cannot decide does not occur.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from random import Random

import pytest

from strandline.core import correct_rounding as nearest
from strandline.functions.registry import FUNCTIONS
from support import examples

WIDE = Context(prec=120)
COUNT = examples(1500)


def summed(first: Decimal, following: Callable[[Decimal, int], Decimal]) -> Decimal:
    """A series of which each term follows from the one before and its number."""
    total, term, n = Decimal(0), first, 1
    while abs(term) > abs(first) * Decimal("1e-115"):
        total += term
        term, n = following(term, n), n + 1
    return total


def decimal_exp(x: Decimal) -> Decimal:
    return WIDE.exp(x)


def decimal_atan(x: Decimal) -> Decimal:
    """Halved twelve times: then the series is short."""
    for _ in range(12):
        x = x / (1 + (1 + x * x).sqrt())
    square = x * x
    power, total, n = x, Decimal(0), 1
    while power and abs(power) > abs(x) * Decimal("1e-118"):
        total += power / n
        power, n = -power * square, n + 2
    return total * 4096


def decimal_pi() -> Decimal:
    return 4 * decimal_atan(Decimal(1))


def decimal_sin_cos(x: Decimal) -> tuple[Decimal, Decimal]:
    """Of x modulo 2 π, for which π must be known to as many more digits as x has."""
    with localcontext() as wide:
        wide.prec = 120 + max(0, x.adjusted()) + 10
        turn = 2 * _pi_of(wide.prec)
        rest = x % turn if abs(x) > 1 else x
    square = rest * rest
    sine = summed(rest, lambda term, n: -term * square / (2 * n * (2 * n + 1))) if rest else rest
    cosine = summed(Decimal(1), lambda term, n: -term * square / ((2 * n - 1) * 2 * n))
    return sine, cosine


def _pi_of(digits: int) -> Decimal:
    """By the means of Gauss and Legendre: each round doubles the digits."""
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), 1
    for _ in range(digits.bit_length() + 1):
        a, b, t, p = (a + b) / 2, (a * b).sqrt(), t - p * ((a - b) / 2) ** 2, 2 * p
    return (a + b) ** 2 / (4 * t)


def sinh_of(x: Decimal) -> Decimal:
    square = x * x
    if abs(x) < 1:
        return summed(x, lambda term, n: term * square / (2 * n * (2 * n + 1)))
    return (decimal_exp(x) - decimal_exp(-x)) / 2


def cosh_of(x: Decimal) -> Decimal:
    return (decimal_exp(x) + decimal_exp(-x)) / 2


def asin_of(x: Decimal) -> Decimal:
    return decimal_atan(x / (1 - x * x).sqrt()) if abs(x) < 1 else x * decimal_pi() / 2


def acos_of(x: Decimal) -> Decimal:
    return 2 * decimal_atan(((1 - x) / (1 + x)).sqrt()) if x > -1 else decimal_pi()


TRUE: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": decimal_exp,
    "ln": WIDE.ln,
    "log10": WIDE.log10,
    "log2": lambda x: WIDE.ln(x) / WIDE.ln(Decimal(2)),
    "sin": lambda x: decimal_sin_cos(x)[0],
    "cos": lambda x: decimal_sin_cos(x)[1],
    "tan": lambda x: decimal_sin_cos(x)[0] / decimal_sin_cos(x)[1],
    "asin": asin_of,
    "acos": acos_of,
    "atan": decimal_atan,
    "sinh": sinh_of,
    "cosh": cosh_of,
    "tanh": lambda x: sinh_of(x) / cosh_of(x),
}


def drawn(dice: Random, function: str) -> float:
    """Arguments of all sizes at which the function has a value, those of daily life more often."""
    sign = dice.choice((-1.0, 1.0))
    match function:
        case "exp" | "sinh" | "cosh" | "tanh":
            return sign * dice.choice((dice.uniform(0, 2), dice.uniform(0, 740), 2.0 ** dice.uniform(-60, 9)))
        case "ln" | "log10" | "log2":
            near = 1 + sign * 2.0 ** dice.uniform(-52, -1)
            return dice.choice((dice.uniform(0, 10), near, math.ldexp(dice.uniform(1, 2), dice.randint(-1070, 1023))))
        case "asin" | "acos":
            return sign * dice.choice((dice.random(), 1 - 2.0 ** dice.uniform(-52, -1), 2.0 ** dice.uniform(-60, 0)))
        case "atan":
            return sign * 2.0 ** dice.uniform(-60, 60)
    return sign * dice.choice(
        (dice.uniform(0, 1), dice.uniform(0, 100), dice.uniform(0, 1e6), 2.0 ** dice.uniform(-60, 1000))
    )


@pytest.mark.parametrize("function", TRUE)
def test_one_argument(function: str) -> None:
    dice = Random(function)
    with localcontext(WIDE):
        for _ in range(COUNT):
            x = drawn(dice, function)
            assert FUNCTIONS[function].meaning(x) == float(TRUE[function](Decimal(x))), (function, x)


def test_powers() -> None:
    dice = Random(1)
    with localcontext(WIDE):
        for _ in range(COUNT):
            x = dice.choice((dice.uniform(0, 100), 1 + 2.0 ** dice.uniform(-50, -1)))
            y = dice.uniform(-1, 1) * min(700 / abs(math.log(x)), 1e9)
            assert nearest.power(x, y) == float(decimal_exp(Decimal(y) * WIDE.ln(Decimal(x)))), (x, y)


@pytest.mark.parametrize("bits", [18, 27, 36, 54])
def test_powers_that_are_half_way_between_two_doubles(bits: int) -> None:
    """Python rounds the exact power to even; logarithms alone could never tell."""
    dice, halves = Random(bits), 0
    for _ in range(COUNT):
        odd = dice.getrandbits(bits) | 1
        exponent = dice.randint(1, 54 // bits + 1)
        power = odd**exponent
        halves += power.bit_length() == 54
        if odd < 2**53:
            assert nearest.power(float(odd), float(exponent)) == float(power)
            assert nearest.power(odd / 1024.0, float(exponent)) == float(Fraction(odd, 1024) ** exponent)
        if odd < 2**26:
            assert nearest.power(float(odd**2), exponent / 2) == float(power)
    assert halves or bits == 36


@pytest.mark.parametrize(
    "x, y, result",
    [
        (2.0, -1074.0, 5e-324),
        (2.0, -1075.0, 0.0),  # half of the least DOUBLE: to even
        (2.0, 1024.0, math.inf),
        (4.0, 0.5, 2.0),
        (3.0, -1.0, 1 / 3),
        (1.0, 1e300, 1.0),
        (7.0, 0.0, 1.0),
        (7.0, 5e-324, 1.0),
        (1.0 + 2.0**-52, 1e300, math.inf),
        (5e-324, 5e-324, 1.0),
        (5e-324, 0.5, math.ldexp(1.0, -537)),
    ],
)
def test_powers_at_the_edges(x: float, y: float, result: float) -> None:
    assert nearest.power(x, y) == result


def test_cube_roots() -> None:
    """The cube of the DOUBLE half-way to the next one, on either side, is on the other side of x."""
    dice = Random(3)
    for _ in range(COUNT):
        x = math.ldexp(dice.uniform(1, 2), dice.randint(-1074, 1023))
        root = nearest.cbrt(x)
        below, above = (Fraction(root) + Fraction(math.nextafter(root, end)) for end in (0.0, math.inf))
        assert (below / 2) ** 3 < Fraction(x) < (above / 2) ** 3
        assert nearest.cbrt(-x) == -root


def test_logarithms_to_any_base() -> None:
    dice = Random(4)
    with localcontext(WIDE):
        for _ in range(COUNT):
            base = dice.choice((dice.uniform(0, 10), 1 + 2.0 ** dice.uniform(-50, -1)))
            x = dice.choice((dice.uniform(0, 10), 1 - 2.0 ** dice.uniform(-50, -1), 2.0 ** dice.uniform(-1000, 1000)))
            assert nearest.log(base, x) == float(WIDE.ln(Decimal(x)) / WIDE.ln(Decimal(base))), (base, x)
    for base in range(2, 20):
        for exponent in range(1, 12):
            assert nearest.log(float(base), float(base**exponent)) == exponent
    assert nearest.log(0.25, 8.0) == -1.5


def test_angles_of_points() -> None:
    dice = Random(5)
    with localcontext(WIDE):
        pi = decimal_pi()
        for _ in range(COUNT):
            y, x = (dice.choice((-1, 1)) * 2.0 ** dice.uniform(*dice.choice(((-1, 1), (-300, 300)))) for _ in range(2))
            slope = decimal_atan(abs(Decimal(y)) / abs(Decimal(x)))
            assert nearest.atan2(y, x) == math.copysign(float(slope if x > 0 else pi - slope), y), (y, x)


def test_no_angle_is_too_large_or_too_close_to_a_quarter_turn() -> None:
    """The DOUBLE that comes closest to a multiple of π/2, and the largest one."""
    assert nearest.cos(6381956970095103.0 * 2.0**797) == -4.6871659242546276e-19
    assert nearest.sin(1e22) == -0.8522008497671888
    assert nearest.sin(math.nextafter(math.inf, 0)) == 0.004961954789184062


@pytest.mark.parametrize("function", ["sin", "tan", "asin", "atan", "sinh", "tanh", "cbrt"])
def test_zero_keeps_its_sign_and_the_least_doubles_themselves(function: str) -> None:
    of = getattr(nearest, function)
    assert math.copysign(1.0, of(-0.0)) == -1.0
    assert math.copysign(1.0, of(0.0)) == 1.0
    if function != "cbrt":
        for x in (5e-324, 1e-310, 2.0**-1022, 1e-20):
            assert of(x) == x
            assert of(-x) == -x

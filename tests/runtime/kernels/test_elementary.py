"""The compiled loops for functions of DOUBLEs: what they decide is right, their errors are within the bounds, and the
machine code computes what the Python code says."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from strandline.core import correct_rounding as nearest
from strandline.functions.mathematics import log, power
from strandline.runtime.kernels import elementary as loops
from strandline.runtime.kernels import elementary_tables as tables
from strandline.runtime.kernels.compiled import Compiled
from strandline.runtime.kernels.elementary import BOUND, COSINE, HYPERBOLIC_BOUND, SINE, TANGENT
from support import examples

Doubles = npt.NDArray[np.float64]
BITS = 400  # of the true values
POWERS = tables.powers()


def bits(x: Doubles) -> npt.NDArray[np.int64]:
    return x.view(np.int64)


# A loop, what it is called with for some columns, and what it must compute.
LOOPS: dict[str, tuple[Compiled[..., Any], Callable[..., tuple[Any, ...]], Callable[..., Any]]] = {
    "exp": (loops.exponentials, lambda x: (x, POWERS, tables.exponentials()), nearest.exp),
    "ln": (loops.logarithms, lambda x: (x, bits(x), 1.0, 0.0, tables.logarithms()), nearest.ln),
    "log2": (
        loops.logarithms,
        lambda x: (x, bits(x), *tables.logarithm_factors()[2], tables.logarithms()),
        partial(nearest.log, 2.0),
    ),
    "log10": (
        loops.logarithms,
        lambda x: (x, bits(x), *tables.logarithm_factors()[10], tables.logarithms()),
        partial(nearest.log, 10.0),
    ),
    "cbrt": (loops.cube_roots, lambda x: (x, bits(x), POWERS, tables.cube_roots()), nearest.cbrt),
    "sinh": (loops.hyperbolics, lambda x: (x, SINE, POWERS, tables.exponentials()), nearest.sinh),
    "cosh": (loops.hyperbolics, lambda x: (x, COSINE, POWERS, tables.exponentials()), nearest.cosh),
    "tanh": (loops.hyperbolics, lambda x: (x, TANGENT, POWERS, tables.exponentials()), nearest.tanh),
    "sin": (loops.circulars, lambda x: (x, bits(x), SINE, POWERS, tables.turns(), tables.sines()), nearest.sin),
    "cos": (loops.circulars, lambda x: (x, bits(x), COSINE, POWERS, tables.turns(), tables.sines()), nearest.cos),
    "tan": (loops.circulars, lambda x: (x, bits(x), TANGENT, POWERS, tables.turns(), tables.sines()), nearest.tan),
    "asin": (loops.inverse_circulars, lambda x: (x, SINE, tables.angles()), nearest.asin),
    "acos": (loops.inverse_circulars, lambda x: (x, COSINE, tables.angles()), nearest.acos),
    "atan": (loops.inverse_circulars, lambda x: (x, TANGENT, tables.angles()), nearest.atan),
    "atan2": (loops.angles_of, lambda y, x: (y, x, tables.angles()), nearest.atan2),
    "log": (
        loops.logarithms_to_bases,
        lambda b, x: (b, bits(b), x, bits(x), POWERS, tables.logarithms()),
        log,
    ),
    "power": (
        loops.powers_of,
        lambda x, y: (x, bits(x), y, POWERS, tables.exponentials(), tables.logarithms()),
        power,
    ),
}


def of_all_sizes(dice: Random, least: int, most: int) -> float:
    return math.ldexp(dice.uniform(1, 2), dice.randint(least, most - 1))


def drawn(dice: Random, function: str) -> tuple[float, ...]:
    """Arguments at which the function has a value."""
    sign = dice.choice((-1.0, 1.0))
    match function:
        case "exp":
            return (sign * dice.choice((dice.uniform(0, 2), dice.uniform(0, 746), of_all_sizes(dice, -70, 9))),)
        case "sinh" | "cosh" | "tanh":
            return (sign * dice.choice((dice.uniform(0, 2), dice.uniform(0, 715), of_all_sizes(dice, -30, 5))),)
        case "ln" | "log2" | "log10":
            near = 1 + sign * 2.0 ** dice.uniform(-52, -1)
            return (dice.choice((dice.uniform(0, 10), near, of_all_sizes(dice, -1022, 1024))),)
        case "cbrt":
            return (sign * dice.choice((dice.uniform(0, 100), of_all_sizes(dice, -1022, 1024))),)
        case "sin" | "cos" | "tan":
            near = math.nextafter(dice.randint(1, 10**9) * math.pi / 2, math.inf)
            some = (
                dice.uniform(0, 1),
                dice.uniform(0, 30),
                dice.uniform(0, 2**21),
                near,
                of_all_sizes(dice, -40, 1024),
            )
            return (sign * dice.choice(some),)
        case "asin" | "acos":
            return (sign * dice.choice((dice.random(), 1 - 2.0 ** dice.uniform(-52, -1), of_all_sizes(dice, -40, 0))),)
        case "atan":
            return (sign * dice.choice((dice.uniform(0, 3), of_all_sizes(dice, -40, 64))),)
        case "atan2":
            far = dice.choice((1, 1, 300))
            return sign * of_all_sizes(dice, -far, far), dice.choice((-1, 1)) * of_all_sizes(dice, -far, far)
        case "log":
            base = dice.choice((dice.uniform(0.01, 10), 1 + 2.0 ** dice.uniform(-40, -1)))
            return base, dice.choice((dice.uniform(0.01, 10), of_all_sizes(dice, -1022, 1024)))
    x = dice.choice((dice.uniform(0.01, 100), 1 + 2.0 ** dice.uniform(-40, -1), float(dice.randint(1, 2**20)), -7.25))
    whole = float(dice.randint(-12, 12))
    return x, whole if x < 0 else dice.choice(
        (whole, dice.uniform(-4, 4), sign * dice.uniform(0, 700) / math.log(x + 0.01))
    )


def columns(function: str, count: int) -> list[Doubles]:
    dice = Random(function)
    return [np.array(column) for column in zip(*(drawn(dice, function) for _ in range(count)), strict=True)]


@pytest.mark.parametrize("function", LOOPS)
def test_what_is_decided_is_the_nearest_double(function: str) -> None:
    loop, arguments, exact = LOOPS[function]
    drawn_columns = columns(function, examples(3000))
    results, undecided = loop(*arguments(*drawn_columns))
    for row in np.flatnonzero(~undecided):
        values = [float(column[row]) for column in drawn_columns]
        assert results[row] == exact(*values), (function, values)
    # All but some results below the normal DOUBLEs, and quarter turns that are too exact to be told.
    assert undecided.mean() < 0.02


@pytest.mark.parametrize("function", LOOPS)
def test_nearly_all_values_of_daily_life_are_decided(function: str) -> None:
    loop, arguments, _ = LOOPS[function]
    dice = np.random.default_rng(1)
    drawn_columns = [dice.uniform(0.01, 0.99, 100_000), dice.uniform(1.5, 9.5, 100_000)]
    _, undecided = loop(*arguments(*drawn_columns[: 2 if function in ("power", "log", "atan2") else 1]))
    assert undecided.mean() < 0.002


@pytest.mark.parametrize("function", LOOPS)
def test_machine_code_computes_what_the_python_code_says(function: str) -> None:
    """Bit by bit, undecided ones too: a fused multiplication would show in the low parts."""
    loop, arguments, _ = LOOPS[function]
    given = arguments(*columns(function, 300))
    results, undecided = loop(*given)
    with np.errstate(all="ignore"):
        python_results, python_undecided = loop.function(*given)
    assert undecided.tolist() == python_undecided.tolist()
    decided = ~undecided
    assert bits(results)[decided].tolist() == bits(python_results)[decided].tolist()


# ---- errors ----------------------------------------------------------------------------------------------------------


def relative_error(high: float, low: float, true: Fraction) -> float:
    return float(abs((Fraction(float(high)) + Fraction(float(low))) / true - 1))


def fraction(mantissa: int, exponent: int = 0) -> Fraction:
    return Fraction(mantissa, 1 << BITS) * Fraction(2) ** exponent


def the_bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))


def exp_error(dice: Random) -> float:
    x = dice.choice((dice.uniform(-2, 2), dice.uniform(-745, 709)))
    high, low, exponent = loops.exponential(x, 0.0, tables.exponentials())
    true, shift = nearest.exp_fixed(nearest.fixed(x, BITS), BITS)
    return relative_error(high, low, fraction(true, shift - exponent))


def ln_error(dice: Random, precise: bool = False) -> float:
    near = 1 + dice.uniform(-1, 1) * 2.0 ** dice.uniform(-50, -2)
    x = dice.choice((dice.uniform(0.5, 2), near, of_all_sizes(dice, -1022, 1024)))
    high, low = loops.logarithm(x, the_bits(x), precise, POWERS, tables.logarithms())
    return relative_error(high, low, fraction(nearest.ln_fixed(x, BITS))) if x != 1 else 0.0


def power_error(dice: Random) -> float:
    y = dice.choice((-1, 1)) * 2.0 ** dice.uniform(-4, 20)
    x = math.exp(dice.uniform(-1, 1) * min(700 / abs(y), 600))
    high, low = loops.logarithm(x, the_bits(x), True, POWERS, tables.logarithms())
    high, low = loops.multiply(high, low, y, 0.0)
    high, low, exponent = loops.exponential(high, low, tables.exponentials())
    numerator, denominator = y.as_integer_ratio()
    true, shift = nearest.exp_fixed(nearest.ln_fixed(x, BITS + 32) * numerator // denominator >> 32, BITS)
    return relative_error(high, low, fraction(true, shift - exponent))


def circular_error(dice: Random, function: int) -> float:
    some = (dice.uniform(0.0001, 1), dice.uniform(0, 30), dice.uniform(0, 2**20), of_all_sizes(dice, 20, 1024))
    x = dice.choice(some)
    quarters, t, t_low = loops.quarter_turns(x, the_bits(x), POWERS, tables.turns())
    sine, cosine = nearest.sin_cos_fixed(x, BITS)
    for _ in range(quarters):
        sine, cosine = -cosine, sine
    high, low = loops.cosine(t, t_low, tables.sines()) if function == COSINE else loops.sine(t, t_low, tables.sines())
    return relative_error(high, low, fraction(cosine if function == COSINE else sine))


def angle_error(dice: Random) -> float:
    y, x = of_all_sizes(dice, -12, 12), of_all_sizes(dice, -3, 3)
    high, low = loops.angle(y, 0.0, x, 0.0, tables.angles())
    slope = Fraction(y) / Fraction(x)
    flat = nearest.atan_fixed(nearest.fixed(min(slope, 1 / slope), BITS), BITS)
    return relative_error(high, low, fraction(flat if slope <= 1 else nearest.pi(BITS) // 2 - flat))


def small_sinh_error(dice: Random) -> float:
    x = dice.choice((dice.uniform(0.1, 0.25), 2.0 ** dice.uniform(-26, -2)))
    high, low = loops.small_hyperbolic_sine(x)
    up, _ = nearest.exp_fixed(nearest.fixed(x, BITS), BITS)
    return relative_error(high, low, fraction((up - (1 << 2 * BITS) // up) // 2))


@pytest.mark.parametrize(
    "error, bound",
    [
        (exp_error, BOUND),
        (ln_error, BOUND),
        (partial(ln_error, precise=True), 2.0**-76),  # times up to 2**10 in a power
        (power_error, BOUND),
        (partial(circular_error, function=SINE), BOUND),
        (partial(circular_error, function=COSINE), BOUND),
        (angle_error, BOUND),
        (small_sinh_error, HYPERBOLIC_BOUND),
    ],
    ids=["exp", "ln", "precise ln", "power", "sin", "cos", "angle", "small sinh"],
)
def test_errors_are_far_below_the_bounds(error: Callable[[Random], float], bound: float) -> None:
    """What is decided is right only if they are. Seen were a quarter of the bounds at most, of 20,000 values each."""
    dice = Random(11)
    assert max(error(dice) for _ in range(examples(600))) < bound / 2


# ---- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts, value, bits_of_first",
    [
        (loops.STEP, nearest.ln2(256) // 128, 35),
        (loops.LN2, nearest.ln2(256), 42),
        (loops.HALF_PI, nearest.pi(256) // 2, 53),
        (loops.PI, nearest.pi(256), 53),
        (loops.THIRD, (1 << 256) // 3, 53),
        (loops.SIXTH, (1 << 256) // 6, 53),
        (loops.QUARTER, nearest.pi(256) // 2, 33),
    ],
    ids=["ln 2 / 128", "ln 2", "π / 2", "π", "1 / 3", "1 / 6", "π / 2 in four"],
)
def test_constants_in_parts(parts: tuple[float, ...], value: int, bits_of_first: int) -> None:
    true = Fraction(value, 1 << 256)
    assert abs(sum(map(Fraction, parts)) - true) <= Fraction(math.ulp(parts[-1])) / 2 + Fraction(1, 1 << 250)
    for part in parts[:-1]:
        numerator, _ = part.as_integer_ratio()
        assert numerator.bit_length() <= bits_of_first, "products with a counter are exact"


def test_constants() -> None:
    """Of those that only count steps the last bit does not matter."""
    assert abs(loops.STEPS * math.log(2) / 128 - 1) < 1e-15
    assert abs(loops.QUARTERS * math.pi / 2 - 1) < 1e-15

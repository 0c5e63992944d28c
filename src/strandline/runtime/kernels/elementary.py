"""Elementary functions over arrays of DOUBLEs, with a flag for each result whether it is correctly rounded.

A value is computed as an unevaluated sum of two DOUBLEs, high + low, with a relative error of less than BOUND. If both
high + (low ± the error) round to the same DOUBLE, that is the DOUBLE nearest to the true value. Else, about once in a
thousand values, the result is undecided, and the caller computes it with integers (`core/correct_rounding.py`).

So the bits of a result do not depend on how it was computed, only whether a value is decided could. The loops use
nothing but + - * / and square roots of DOUBLEs, which IEEE 754 defines to the last bit, and nothing in them may be
fused or reordered: Numba does so only if asked (`fastmath`), and `tests/runtime/kernels/test_elementary.py` looks.

All arguments are reduced to a small remainder t by tables (`elementary_tables.py`), for which the first terms of the
series are enough: |t| < 2**-8, so the second term may already be computed with 53 bits, or the third.

Exponentials, logarithms and powers are computed block by block, in steps that each go through the block: a step that
looks up tables is slow, and between two of them processors with vectors compute several values at a time. The rows of
the scratch lie one after the other.

The helpers run as plain Python, too, and are tested so.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.compiled import compiled, inlined

Doubles: TypeAlias = npt.NDArray[np.float64]
Bits: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Pair: TypeAlias = tuple[float, float]

BOUND: Final = 2.0**-66
HYPERBOLIC_BOUND: Final = 2.0**-64
SINE, COSINE, TANGENT = 0, 1, 2

_SPLITTER: Final = 2.0**27 + 1.0
_ROUNDER: Final = 1.5 * 2.0**52  # x + this - this is x as a whole number
_TO_8: Final = 1.5 * 2.0**18  # the same to a multiple of 2**-34: 26 bits of a number below 2**-8
_TO_1: Final = 1.5 * 2.0**27  # the same to a multiple of 2**-25: 26 bits of a number from 1 to 2
_TINY: Final = 2.0**-27  # below, t and t ± t³/3 have the same nearest DOUBLE
_LEAST_NORMAL: Final = 2.0**-1022
_WITH_ALL_BITS: Final = 700.0  # closer to zero than this, e**x is a DOUBLE of 53 bits
_FEW_FACTORS: Final = 9.0  # powers with smaller whole exponents are products
_FROM_SQRT_2: Final = 106  # the place in the table of logarithms from which on x is halved
_BLOCK: Final = 256  # values at a time

_hex = float.fromhex
# Constants in parts: all but the last have so few bits that their products with a counter are exact.
STEPS: Final = _hex("0x1.71547652b82fep+7")  # 128 / ln 2
STEP: Final = (_hex("0x1.62e42fef8p-8"), _hex("0x1.1cf79abc9e3b4p-43"))  # ln 2 / 128
LN2: Final = (_hex("0x1.62e42fefa38p-1"), _hex("0x1.ef35793c7673p-45"))
QUARTERS: Final = _hex("0x1.45f306dc9c883p-1")  # 2 / π
QUARTER: Final = (
    _hex("0x1.921fb544p+0"),
    _hex("0x1.0b4611a6p-34"),
    _hex("0x1.3198a2ep-69"),
    _hex("0x1.b839a252049c1p-104"),
)  # π / 2
HALF_PI: Final = (_hex("0x1.921fb54442d18p+0"), _hex("0x1.1a62633145c07p-54"))
PI: Final = (_hex("0x1.921fb54442d18p+1"), _hex("0x1.1a62633145c07p-53"))
THIRD: Final = (_hex("0x1.5555555555555p-2"), _hex("0x1.5555555555555p-56"))
SIXTH: Final = (_hex("0x1.5555555555555p-3"), _hex("0x1.5555555555555p-57"))


# ---- numbers in two parts --------------------------------------------------------------------------------------------


@inlined
def two_sum(a: float, b: float) -> Pair:
    """Error-free sum a + b: the rounded sum and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@inlined
def fast_two_sum(a: float, b: float) -> Pair:
    """The same if |a| is not less than |b|."""
    total = a + b
    return total, b - (total - a)


@inlined
def two_product(a: float, b: float) -> Pair:
    """Error-free product a * b: factors are split into halves, whose products are exact."""
    scaled = _SPLITTER * a
    a1 = scaled - (scaled - a)
    a2 = a - a1
    scaled = _SPLITTER * b
    b1 = scaled - (scaled - b)
    b2 = b - b1
    product = a * b
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


@inlined
def multiply(a: float, a_low: float, b: float, b_low: float) -> Pair:
    product, error = two_product(a, b)
    return fast_two_sum(product, error + (a * b_low + a_low * b))


@inlined
def divide(a: float, a_low: float, b: float, b_low: float) -> Pair:
    inverse = 1.0 / b
    quotient = a * inverse  # nearly; the residual is corrected
    product, error = two_product(quotient, b)
    return fast_two_sum(quotient, ((((a - product) - error) + a_low) - quotient * b_low) * inverse)


@inlined
def square_root(a: float, a_low: float) -> Pair:
    if a == 0.0:
        return 0.0, 0.0
    root = math.sqrt(a)
    product, error = two_product(root, root)
    return fast_two_sum(root, (((a - product) - error) + a_low) / (2.0 * root))


@inlined
def rounded(high: float, low: float, bound: float) -> tuple[float, bool]:
    """The nearest DOUBLE, and whether it is undecided."""
    error = abs(high) * bound
    result = high + (low - error)
    return result, result != high + (low + error)


@inlined
def scaled(high: float, low: float, exponent: int, bound: float, powers: Doubles) -> tuple[float, bool]:
    """The same for a number of 1 to 2 times a power of two, which may be too large or have fewer bits than others."""
    if exponent > 1024:
        return math.inf, False
    if exponent > -1022:
        result, undecided = rounded(high, low, bound)
        half = exponent >> 1
        return result * powers[half + 1074] * powers[exponent - half + 1074], undecided
    if exponent < -1080:
        return 0.0, False
    unit = powers[-exponent]  # 2**(-1074 - exponent): the last bit of the result
    whole = (high + _ROUNDER * unit) - _ROUNDER * unit
    remainder = (high - whole) + low
    if remainder > 0.5 * unit:  # `high` was half-way, and `low` tips the scales
        whole, remainder = whole + unit, remainder - unit
    elif remainder < -0.5 * unit:
        whole, remainder = whole - unit, remainder + unit
    undecided = abs(remainder) >= 0.5 * unit - high * bound
    return whole * powers[74] * powers[exponent + 1000 + 1074], undecided


# ---- exponentials and logarithms -------------------------------------------------------------------------------------


@inlined
def reduce_exponent(x: float, x_low: float) -> tuple[float, float, float]:
    """x = count ln 2 / 128 + t, for |x| < 800."""
    count = (x * STEPS + _ROUNDER) - _ROUNDER
    t, t_low = two_sum(x - count * STEP[0], -(count * STEP[1]))
    t, t_low = two_sum(t, t_low + x_low)
    return count, t, t_low


@inlined
def base_times_exponential(base: float, base_low: float, t: float, t_low: float) -> Pair:
    t1 = (t + _TO_8) - _TO_8
    square = t * t
    more = t_low + (
        t_low * t
        + square
        * (0.5 + t * (1.0 / 6.0 + t * (1.0 / 24.0 + t * (1.0 / 120.0 + t * (1.0 / 720.0 + t * (1.0 / 5040.0))))))
    )
    high, low = fast_two_sum(base, base * t1)
    return fast_two_sum(high, low + (base_low + (base * (t - t1) + (base_low * t + (base + base_low) * more))))


@inlined
def exponential(x: float, x_low: float, table: Doubles) -> tuple[float, float, int]:
    """e**x = (high + low) * 2**exponent, for |x| < 800."""
    count, t, t_low = reduce_exponent(x, x_low)
    number = int(count)
    high, low = base_times_exponential(table[number & 127, 0], table[number & 127, 1], t, t_low)
    return high, low, number >> 7


@inlined
def rounded_exponential(x: float, powers: Doubles, table: Doubles) -> tuple[float, bool]:
    if abs(x) < 750.0:
        high, low, exponent = exponential(x, 0.0, table)
        return scaled(high, low, exponent, BOUND, powers)
    if x != x:
        return x, False
    return (math.inf if x > 0.0 else 0.0), False


@inlined
def logarithm_of_share(
    significand: float, exponent: float, c: float, minus_ln_c: float, minus_ln_c_low: float, precise: bool
) -> Pair:
    """ln(significand * 2**exponent), where significand is (1 + t) / c; `precise` for a factor that is large."""
    significand1 = (significand + _TO_1) - _TO_1
    t, t_low = two_sum(significand1 * c - 1.0, (significand - significand1) * c)
    t1 = (t + _TO_8) - _TO_8
    square, square_low = t1 * t1, (t - t1) * (t + t1)
    high, low = two_sum(exponent * LN2[0] + minus_ln_c, t)
    high, error = two_sum(high, -0.5 * square)
    low += error
    if precise:
        cube, cube_low = two_product(square, t)
        cube, cube_low = multiply(cube, cube_low + square_low * t, THIRD[0], THIRD[1])
        high, error = two_sum(high, cube)
        fourth = (square + square_low) * (square + square_low)
        low += error + (
            cube_low
            - fourth * (0.25 - t * (0.2 - t * (1.0 / 6.0 - t * (1.0 / 7.0 - t * (0.125 - t * (1.0 / 9.0 - t * 0.1))))))
        )
    else:
        low += (
            t
            * (square + square_low)
            * (1.0 / 3.0 - t * (0.25 - t * (0.2 - t * (1.0 / 6.0 - t * (1.0 / 7.0 - t * (0.125 - t * (1.0 / 9.0)))))))
        )
    low += (t_low * (1.0 - t * (1.0 - t)) - 0.5 * square_low) + (exponent * LN2[1] + minus_ln_c_low)
    return fast_two_sum(high, low)


@inlined
def logarithm(x: float, bits: int, precise: bool, powers: Doubles, table: Doubles) -> Pair:
    """ln x for a normal x with these bits."""
    exponent = (bits >> 52) - 1023
    index = (bits >> 44) & 255
    significand = x * powers[1074 - exponent]
    if index >= _FROM_SQRT_2:
        significand *= 0.5
        exponent += 1
    return logarithm_of_share(significand, float(exponent), table[index, 0], table[index, 1], table[index, 2], precise)


@inlined
def look_up_shares(bits: Bits, scratch: Doubles, table: Doubles) -> None:
    """Operands of `logarithm_of_share` for a block of normal numbers with these bits, in rows 0 to 4 of the scratch."""
    significands = scratch.view(np.int64)
    for i in range(len(bits)):
        significands[i] = (bits[i] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    for i in range(len(bits)):
        index = (bits[i] >> 44) & 255
        exponent = (bits[i] >> 52) - 1023
        if index >= _FROM_SQRT_2:
            scratch[i] *= 0.5
            exponent += 1
        scratch[_BLOCK + i] = exponent
        scratch[2 * _BLOCK + i] = table[index, 0]
        scratch[3 * _BLOCK + i] = table[index, 1]
        scratch[4 * _BLOCK + i] = table[index, 2]


@inlined
def look_up_bases(size: int, scratch: Doubles, first: int, powers: Doubles, table: Doubles) -> None:
    """For the counts in a row of the scratch the bases and powers of two, in the rows after it."""
    for i in range(size):
        number = int(scratch[first * _BLOCK + i])
        scratch[(first + 1) * _BLOCK + i] = table[number & 127, 0]
        scratch[(first + 2) * _BLOCK + i] = table[number & 127, 1]
        scratch[(first + 3) * _BLOCK + i] = powers[(number >> 7) + 1074]


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], f8[::1], f8[:, ::1])", on_demand=True)
def exponentials(values: Doubles, powers: Doubles, table: Doubles) -> tuple[Doubles, Mask]:
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    scratch = np.empty(6 * _BLOCK)
    for begin in range(0, len(values), _BLOCK):
        some, result = values[begin : begin + _BLOCK], results[begin : begin + _BLOCK]
        for i in range(len(some)):
            count, t, t_low = reduce_exponent(some[i] if abs(some[i]) < _WITH_ALL_BITS else 0.0, 0.0)
            scratch[i], scratch[4 * _BLOCK + i], scratch[5 * _BLOCK + i] = count, t, t_low
        look_up_bases(len(some), scratch, 0, powers, table)
        for i in range(len(some)):
            high, low = base_times_exponential(
                scratch[_BLOCK + i], scratch[2 * _BLOCK + i], scratch[4 * _BLOCK + i], scratch[5 * _BLOCK + i]
            )
            error = high * BOUND
            below = high + (low - error)
            scratch[i] = below - (high + (low + error))
            result[i] = below * scratch[3 * _BLOCK + i]
        for i in range(len(some)):
            if scratch[i] != 0.0 or not abs(some[i]) < _WITH_ALL_BITS:
                result[i], undecided[begin + i] = rounded_exponential(some[i], powers, table)
    return results, undecided


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8[::1], f8, f8, f8[:, ::1])", on_demand=True)
def logarithms(values: Doubles, bits: Bits, factor: float, factor_low: float, table: Doubles) -> tuple[Doubles, Mask]:
    """The natural logarithms times a factor; NaN for arguments that are not positive."""
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    scratch = np.empty(5 * _BLOCK)
    for begin in range(0, len(values), _BLOCK):
        some, result = values[begin : begin + _BLOCK], results[begin : begin + _BLOCK]
        look_up_shares(bits[begin : begin + _BLOCK], scratch, table)
        for i in range(len(some)):
            high, low = logarithm_of_share(
                scratch[i],
                scratch[_BLOCK + i],
                scratch[2 * _BLOCK + i],
                scratch[3 * _BLOCK + i],
                scratch[4 * _BLOCK + i],
                False,
            )
            if factor != 1.0:
                high, low = multiply(high, low, factor, factor_low)
            error = abs(high) * BOUND
            below = high + (low - error)
            scratch[i] = below - (high + (low + error))
            result[i] = below
        for i in range(len(some)):
            x = some[i]
            if _LEAST_NORMAL <= x < math.inf:
                undecided[begin + i] = scratch[i] != 0.0
            else:
                result[i] = x if x == math.inf else math.nan
                undecided[begin + i] = 0.0 < x < 1.0
    return results, undecided


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8[::1], f8[::1], i8[::1], f8[::1], f8[:, ::1])", on_demand=True)
def logarithms_to_bases(
    bases: Doubles, base_bits: Bits, values: Doubles, bits: Bits, powers: Doubles, table: Doubles
) -> tuple[Doubles, Mask]:
    """Logarithms to any bases; NaN where there is none."""
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        x, base = values[i], bases[i]
        if _LEAST_NORMAL <= x < math.inf and _LEAST_NORMAL <= base < math.inf and x != 1.0 and base != 1.0:
            high, low = logarithm(x, bits[i], False, powers, table)
            base_high, base_low = logarithm(base, base_bits[i], False, powers, table)
            high, low = divide(high, low, base_high, base_low)
            results[i], undecided[i] = rounded(high, low, BOUND)
        elif x != x or base != base:
            results[i] = math.nan
        else:
            undecided[i] = x > 0.0 and base > 0.0 and base != 1.0
            results[i] = math.nan
    return results, undecided


@inlined
def special_power(x: float, y: float) -> float:
    """x ** y where one of them is NaN, an infinity or zero, as IEEE 754 has it."""
    if x != x or y != y:
        return math.nan
    size = abs(x)
    if size == 1.0:
        return 1.0
    result = 0.0 if (size > 1.0) != (y > 0.0) else math.inf
    odd = abs(y) < 2.0**53 and y == np.floor(y) and 0.5 * y != np.floor(0.5 * y)
    return -result if odd and math.copysign(1.0, x) < 0.0 else result


_DECIDED, _UNDECIDED, _BY_LOGARITHM = 0, 1, 2


@inlined
def power_without_logarithm(x: float, y: float) -> tuple[float, int]:
    """x ** y, NaN where there is no real result; for a power by logarithms its sign."""
    if y == 0.0 or x == 1.0:
        return 1.0, _DECIDED
    if not (abs(x) < math.inf and abs(y) < math.inf) or x == 0.0:
        return special_power(x, y), _DECIDED
    if y == 2.0:
        return x * x, _DECIDED
    if y == 0.5 and x > 0.0:
        return math.sqrt(x), _DECIDED
    whole = y == np.floor(y)
    sign = 1.0
    if x < 0.0:
        if not whole:
            return math.nan, _DECIDED
        if abs(y) < 2.0**53 and 0.5 * y != np.floor(0.5 * y):
            sign = -1.0
        x = -x
    if x == 1.0:
        return sign, _DECIDED
    if x < _LEAST_NORMAL:
        return math.nan, _UNDECIDED
    if whole and 1.0 <= y < 40.0 and x < 2.0**53 and x == np.floor(x):
        # Small whole numbers have exact powers, many of them half-way between two DOUBLEs.
        factor, product = int(x), int(x)
        count = int(y) - 1
        while count > 0 and product < 2**62 // factor:
            product *= factor
            count -= 1
        if count == 0:
            return sign * float(product), _DECIDED
    if whole and 1.0 <= y < _FEW_FACTORS and 2.0**-100 < x < 2.0**100:
        high, low = x, 0.0
        for _ in range(int(y) - 1):
            high, low = multiply(high, low, x, 0.0)
        result, undecided = rounded(high, low, BOUND)
        return sign * result, _UNDECIDED if undecided else _DECIDED
    return sign, _BY_LOGARITHM


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8[::1], f8[::1], f8[::1], f8[:, ::1], f8[:, ::1])", on_demand=True)
def powers_of(
    bases: Doubles, base_bits: Bits, exponents: Doubles, powers: Doubles, exp_table: Doubles, log_table: Doubles
) -> tuple[Doubles, Mask]:
    """bases ** exponents, NaN where there is no real result."""
    results, undecided = np.empty(len(bases)), np.zeros(len(bases), np.bool_)
    scratch, ordinary = np.empty(7 * _BLOCK), np.empty(_BLOCK, np.bool_)
    for begin in range(0, len(bases), _BLOCK):
        some, result = bases[begin : begin + _BLOCK], results[begin : begin + _BLOCK]
        exponent, bits = exponents[begin : begin + _BLOCK], base_bits[begin : begin + _BLOCK]
        factors = 0
        for i in range(len(some)):
            x, y = some[i], exponent[i]
            ordinary[i] = _LEAST_NORMAL <= x < math.inf and abs(y) < 2.0**40
            if 0.0 <= y < _FEW_FACTORS and y == np.floor(y):
                factors += 1
        if factors == 0:
            look_up_shares(bits, scratch, log_table)
            for i in range(len(some)):
                high, low = logarithm_of_share(
                    scratch[i],
                    scratch[_BLOCK + i],
                    scratch[2 * _BLOCK + i],
                    scratch[3 * _BLOCK + i],
                    scratch[4 * _BLOCK + i],
                    True,
                )
                scratch[i], scratch[_BLOCK + i] = high, low
            for i in range(len(some)):
                high, low = multiply(scratch[i], scratch[_BLOCK + i], exponent[i], 0.0)
                scratch[6 * _BLOCK + i] = high
                inside = abs(high) < _WITH_ALL_BITS
                count, t, t_low = reduce_exponent(high if inside else 0.0, low if inside else 0.0)
                scratch[i], scratch[_BLOCK + i], scratch[2 * _BLOCK + i] = t, t_low, count
            look_up_bases(len(some), scratch, 2, powers, exp_table)
            for i in range(len(some)):
                high, low = base_times_exponential(
                    scratch[3 * _BLOCK + i], scratch[4 * _BLOCK + i], scratch[i], scratch[_BLOCK + i]
                )
                error = high * BOUND
                below = high + (low - error)
                scratch[i] = below - (high + (low + error))
                result[i] = below * scratch[5 * _BLOCK + i]
        for i in range(len(some)):
            y = exponent[i]
            if factors == 0 and ordinary[i] and scratch[i] == 0.0 and abs(scratch[6 * _BLOCK + i]) < _WITH_ALL_BITS:
                continue
            sign, way = power_without_logarithm(some[i], y)
            if way != _BY_LOGARITHM:
                result[i], undecided[begin + i] = sign, way == _UNDECIDED
                continue
            high, low = logarithm(abs(some[i]), bits[i] & 0x7FFFFFFFFFFFFFFF, True, powers, log_table)
            if abs(y) > 2.0**64 or abs(high * y) > 750.0:  # no logarithm other than 0 is below 2**-53
                result[i] = sign * (math.inf if (high > 0.0) == (y > 0.0) else 0.0)
                continue
            high, low = multiply(high, low, y, 0.0)
            high, low, twos = exponential(high, low, exp_table)
            size, undecided[begin + i] = scaled(high, low, twos, BOUND, powers)
            result[i] = sign * size
    return results, undecided


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8[::1], f8[::1], f8[:, ::1])", on_demand=True)
def cube_roots(values: Doubles, bits: Bits, powers: Doubles, table: Doubles) -> tuple[Doubles, Mask]:
    """By a guess from a table and a step of Halley's method, cut to 26 bits, so that its cube is exact."""
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        x = values[i]
        if not _LEAST_NORMAL <= abs(x) < math.inf:
            results[i] = x
            undecided[i] = abs(x) < 1.0 and x != 0.0
            continue
        exponent = ((bits[i] >> 52) & 2047) - 1023
        third = (exponent + 1074) // 3 - 358
        significand = abs(x) * powers[1074 - exponent]
        guess = table[((bits[i] >> 46) & 63), exponent - 3 * third]
        significand *= powers[1074 + exponent - 3 * third]
        cube = guess * guess * guess
        guess = guess * ((cube + 2.0 * significand) / (2.0 * cube + significand))
        root = (guess + _TO_1) - _TO_1
        square = root * root
        cube, error = two_product(square, root)
        left = (significand - cube) - error
        off = left / cube
        low = root * off * (1.0 / 3.0 - off * (1.0 / 9.0 - off * (5.0 / 81.0)))
        result, undecided[i] = rounded(root, low, BOUND)
        results[i] = math.copysign(result * powers[1074 + third], x)
    return results, undecided


@inlined
def small_hyperbolic_sine(x: float) -> Pair:
    """sinh x for 2**-27 < x < 1/4: x + x * (x²/6 + …)"""
    square, square_low = two_product(x, x)
    high, low = multiply(square, square_low, SIXTH[0], SIXTH[1])
    z = square
    low += (
        z
        * z
        * (
            1 / 120
            + z * (1 / 5040 + z * (1 / 362880 + z * (1 / 39916800 + z * (1 / 6227020800 + z * (1 / 1307674368000)))))
        )
    )
    high, low = multiply(high, low, x, 0.0)
    total, error = fast_two_sum(x, high)
    return total, error + low


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8, f8[::1], f8[:, ::1])", on_demand=True)
def hyperbolics(values: Doubles, function: int, powers: Doubles, table: Doubles) -> tuple[Doubles, Mask]:
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        x = abs(values[i])
        if x != x:
            results[i] = x
            continue
        if function == TANGENT and x > 20.0:
            results[i] = math.copysign(1.0, values[i])
            continue
        if x > 750.0:
            results[i] = math.inf if function == COSINE else math.copysign(math.inf, values[i])
            continue
        if x < _TINY:
            results[i] = 1.0 if function == COSINE else values[i]
            continue
        high, low, exponent = exponential(x, 0.0, table)
        down, down_low = divide(1.0, 0.0, high, low)
        if exponent < 500:
            down, down_low = down * powers[1074 - 2 * exponent], down_low * powers[1074 - 2 * exponent]
        else:
            down = down_low = 0.0
        total, total_low = two_sum(high, down)
        total, total_low = fast_two_sum(total, total_low + (low + down_low))
        if function == COSINE:
            results[i], undecided[i] = scaled(total, total_low, exponent - 1, HYPERBOLIC_BOUND, powers)
            continue
        if x < 0.25:
            sine, sine_low = small_hyperbolic_sine(x)
            sine, sine_low = sine * 2.0, sine_low * 2.0
        else:
            sine, sine_low = two_sum(high, -down)
            sine_low += low - down_low
        if function == TANGENT:
            sine, sine_low = divide(sine, sine_low, total, total_low)
            result, undecided[i] = rounded(sine, sine_low, HYPERBOLIC_BOUND)
        elif x < 0.25:
            result, undecided[i] = rounded(0.5 * sine, 0.5 * sine_low, HYPERBOLIC_BOUND)
        else:
            result, undecided[i] = scaled(sine, sine_low, exponent - 1, HYPERBOLIC_BOUND, powers)
        results[i] = math.copysign(result, values[i])
    return results, undecided


# ---- angles ----------------------------------------------------------------------------------------------------------


@inlined
def quarter_turns(x: float, bits: int, powers: Doubles, turns: Doubles) -> tuple[int, float, float]:
    """x = quarters * π/2 + t for x > 0: how many quarters, modulo 4, and t, at most a little more than π/4."""
    if x <= 0.785:
        return 0, x, 0.0
    if x < 2.0**20:
        count = (x * QUARTERS + _ROUNDER) - _ROUNDER
        t, t_low = two_sum(x - count * QUARTER[0], -(count * QUARTER[1]))
        t, more = two_sum(t, -(count * QUARTER[2]))
        t, t_low = two_sum(t, (t_low + more) - count * QUARTER[3])
        return int(count) & 3, t, t_low
    # x is a whole number of up to 53 bits times a power of two; it is multiplied in halves with the parts of that power
    # in quarter turns modulo 4. All products are exact.
    exponent = (bits >> 52) - 1023
    whole = x * powers[1074 - exponent] * 2.0**52
    upper = (whole * 2.0**-27 + _ROUNDER) - _ROUNDER
    lower = whole - upper * 2.0**27
    first, second = exponent - 25 + 32, exponent - 52 + 32
    turned = upper * turns[first, 0] + lower * turns[second, 0]
    count = (turned + _ROUNDER) - _ROUNDER
    t, t_low = two_sum(turned - count, upper * turns[first, 1] + lower * turns[second, 1])
    more = (t + _ROUNDER) - _ROUNDER
    count += more
    t -= more
    for part in range(2, 5):
        t, more = two_sum(t, upper * turns[first, part] + lower * turns[second, part])
        t_low += more
    t, t_low = multiply(t, t_low, HALF_PI[0], HALF_PI[1])
    return int(count) & 3, t, t_low


@inlined
def sine(t: float, t_low: float, table: Doubles) -> Pair:
    """sin(a + t), where a is a multiple of 1/128: sin a + cos a * t + …, for angles of up to 0.8."""
    sign = 1.0
    if t < 0.0:
        sign, t, t_low = -1.0, -t, -t_low
    count = (t * 128.0 + _ROUNDER) - _ROUNDER
    index = int(count)
    t, t_low = two_sum(t - count / 128.0, t_low)
    square = t * t
    sine_part = t * square * (-1.0 / 6.0 + square * (1.0 / 120.0 - square * (1.0 / 5040.0)))
    if index == 0:
        high, low = fast_two_sum(t, t_low + sine_part)
        return sign * high, sign * low
    cosine_part = square * (-0.5 + square * (1.0 / 24.0 - square * (1.0 / 720.0 - square * (1.0 / 40320.0))))
    s, s_low, c, c_low = table[index, 0], table[index, 1], table[index, 2], table[index, 3]
    t1 = (t + _TO_8) - _TO_8
    high, low = fast_two_sum(s, c * t1)
    low += (c * (t - t1) + c_low * t) + (t_low * (c - s * t) + ((c + c_low) * sine_part + (s + s_low) * cosine_part))
    high, low = fast_two_sum(high, low + s_low)
    return sign * high, sign * low


@inlined
def cosine(t: float, t_low: float, table: Doubles) -> Pair:
    """cos(a + t) in the same way."""
    if t < 0.0:
        t, t_low = -t, -t_low
    count = (t * 128.0 + _ROUNDER) - _ROUNDER
    index = int(count)
    t, t_low = two_sum(t - count / 128.0, t_low)
    square = t * t
    sine_part = t * square * (-1.0 / 6.0 + square * (1.0 / 120.0 - square * (1.0 / 5040.0)))
    cosine_part = square * (-0.5 + square * (1.0 / 24.0 - square * (1.0 / 720.0 - square * (1.0 / 40320.0))))
    s, s_low, c, c_low = table[index, 0], table[index, 1], table[index, 2], table[index, 3]
    t1 = (t + _TO_8) - _TO_8
    high, low = fast_two_sum(c, -(s * t1))
    low += (c + c_low) * cosine_part - ((s * (t - t1) + s_low * t) + (t_low * (s + c * t) + (s + s_low) * sine_part))
    return fast_two_sum(high, low + c_low)


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8[::1], i8, f8[::1], f8[:, ::1], f8[:, ::1])", on_demand=True)
def circulars(
    values: Doubles, bits: Bits, function: int, powers: Doubles, turns: Doubles, table: Doubles
) -> tuple[Doubles, Mask]:
    """Sines, cosines or tangents; NaN of the infinities."""
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        x = abs(values[i])
        if x < _TINY:
            results[i] = 1.0 if function == COSINE else values[i]
            continue
        if not x < math.inf:
            results[i] = math.nan
            continue
        quarters, t, t_low = quarter_turns(x, bits[i] & 0x7FFFFFFFFFFFFFFF, powers, turns)
        if abs(t) < 2.0**-30 and x > 1.0:
            undecided[i] = True
            continue
        if function == TANGENT:
            up, up_low = sine(t, t_low, table)
            down, down_low = cosine(t, t_low, table)
            if quarters & 1:
                up, up_low, down, down_low = down, down_low, -up, -up_low
            high, low = divide(up, up_low, down, down_low)
        else:
            if function == COSINE:
                quarters += 1
            if quarters & 1:
                high, low = cosine(t, t_low, table)
            else:
                high, low = sine(t, t_low, table)
            if quarters & 2:
                high, low = -high, -low
        result, undecided[i] = rounded(high, low, BOUND)
        results[i] = -result if function != COSINE and values[i] < 0.0 else result
    return results, undecided


@inlined
def angle(y: float, y_low: float, x: float, x_low: float, table: Doubles) -> Pair:
    """The angle of a point (x, y), neither of them negative: atan u = atan c + atan((u - c) / (1 + u c))."""
    steep = y > x
    if steep:
        y, y_low, x, x_low = x, x_low, y, y_low
    count = (128.0 * y / x + _ROUNDER) - _ROUNDER
    index = int(count)
    if index != 0:  # (y - c x) / (x + c y)
        c = count * 0.0078125
        product, error = two_product(c, x)
        up, up_low = fast_two_sum(y, -product)
        up, up_low = two_sum(up, up_low + ((y_low - error) - c * x_low))
        product, error = two_product(c, y)
        x, more = fast_two_sum(x, product)
        x_low += more + (error + c * y_low)
        y, y_low = up, up_low
    t, t_low = divide(y, y_low, x, x_low)
    square = t * t
    more = t * square * (-1.0 / 3.0 + square * (0.2 - square * (1.0 / 7.0 - square * (1.0 / 9.0))))
    if index == 0:
        high, low = fast_two_sum(t, t_low + more)
    else:
        high, low = fast_two_sum(table[index, 0], t)
        low += t_low * (1.0 - square) + (more + table[index, 1])
    if steep:
        total, error = fast_two_sum(HALF_PI[0], -high)
        return total, error - low + HALF_PI[1]
    return high, low


@inlined
def supplement(high: float, low: float) -> Pair:
    """π minus an angle."""
    total, error = fast_two_sum(PI[0], -high)
    return total, error - low + PI[1]


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], i8, f8[:, ::1])", on_demand=True)
def inverse_circulars(values: Doubles, function: int, table: Doubles) -> tuple[Doubles, Mask]:
    """The angles of sines, cosines or tangents; NaN beyond -1 and 1 for the former two."""
    results, undecided = np.empty(len(values)), np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        x = abs(values[i])
        if x < _TINY and function != COSINE:
            results[i] = values[i]
            continue
        if function == TANGENT:
            if x != x:
                results[i] = x
                continue
            if x > 2.0**60:
                result = HALF_PI[0]
            else:
                high, low = angle(x, 0.0, 1.0, 0.0, table)
                result, undecided[i] = rounded(high, low, BOUND)
            results[i] = math.copysign(result, values[i])
            continue
        if not x <= 1.0:
            results[i] = math.nan
            continue
        product, error = two_product(x, x)
        other, other_low = two_sum(1.0, -product)
        other, other_low = fast_two_sum(other, other_low - error)
        other, other_low = square_root(other, other_low)
        if function == SINE:
            high, low = angle(x, 0.0, other, other_low, table)
            result, undecided[i] = rounded(high, low, BOUND)
            results[i] = math.copysign(result, values[i])
        else:
            high, low = angle(other, other_low, x, 0.0, table)
            if values[i] < 0.0:
                high, low = supplement(high, low)
            results[i], undecided[i] = rounded(high, low, BOUND)
    return results, undecided


@compiled("Tuple((f8[::1], b1[::1]))(f8[::1], f8[::1], f8[:, ::1])", on_demand=True)
def angles_of(ordinates: Doubles, abscissas: Doubles, table: Doubles) -> tuple[Doubles, Mask]:
    """The angles of points (x, y); undecided if one is zero, infinite or far from 1."""
    results, undecided = np.empty(len(ordinates)), np.zeros(len(ordinates), np.bool_)
    for i in range(len(ordinates)):
        y, x = abs(ordinates[i]), abs(abscissas[i])
        if 1e-100 < y < 1e100 and 1e-100 < x < 1e100:
            high, low = angle(y, 0.0, x, 0.0, table)
            if abscissas[i] < 0.0:
                high, low = supplement(high, low)
            result, undecided[i] = rounded(high, low, BOUND)
            results[i] = math.copysign(result, ordinates[i])
        elif x != x or y != y:
            results[i] = math.nan
        else:
            undecided[i] = True
    return results, undecided

"""Elementary functions, correctly rounded: the DOUBLE nearest to the true value, of two the even one.

The true value has one nearest DOUBLE, so the result depends neither on the processor nor on a library. Only integers
are computed with. A fixed-point number with b bits is an integer n with the value n · 2**-b. A value is enclosed
between two bounds; if both round to the same DOUBLE that is the result, else it is computed with twice the bits. This
ends, because none of these functions has a value half-way between two DOUBLEs, but for `power`, which checks for exact
values first.

Arguments are finite DOUBLEs with a real result; callers handle the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

Real: TypeAlias = float | Fraction

_FIRST_BITS: Final = 128
# The truncation error of any of the functions below is far less, in units of the last bit.
_SLACK: Final = 1 << 40
# Quotients of small numbers lose bits: no logarithm or cosine of a DOUBLE is below 2**-64, other than zero.
_SPARE: Final = 192


def to_double(mantissa: int, exponent: int) -> float:
    """The DOUBLE nearest to mantissa * 2**exponent; an infinity if it is too large."""
    try:
        return float(mantissa << exponent) if exponent >= 0 else mantissa / (1 << -exponent)
    except OverflowError:
        return math.inf if mantissa > 0 else -math.inf


def _nearest(approximate: Callable[[int], tuple[int, int]]) -> float:
    """Round a value of which `approximate` gives a mantissa and an exponent, of about the given number of bits."""
    bits = _FIRST_BITS
    while True:
        mantissa, exponent = approximate(bits)
        low, high = to_double(mantissa - _SLACK, exponent), to_double(mantissa + _SLACK, exponent)
        if low == high:
            return low if mantissa < 0 else high
        bits *= 2


def _odd(x: float, approximate: Callable[[float, int], tuple[int, int]]) -> float:
    """Round an odd function, which is zero at zero. `approximate` gets the absolute value of x and the bits after the
    point that leave a small one as many significant bits."""
    if x == 0:
        return x
    leading_zeros = max(0, -math.frexp(x)[1])
    value = _nearest(lambda bits: approximate(abs(x), bits + leading_zeros))
    return value if x > 0 else -value


# ---- fixed-point numbers ---------------------------------------------------------------------------------------------


def fixed(x: Real, bits: int) -> int:
    numerator, denominator = x.as_integer_ratio()
    return (numerator << bits) // denominator


@lru_cache
def _constants(bits: int) -> tuple[int, int]:
    one = 1 << bits + 16

    def inverse(n: int, sign: int) -> int:  # of tan for a sign of -1, of tanh for 1
        total = term = one // n
        divisor = 1
        while term:
            term = term * sign // (n * n)
            divisor += 2
            total += term // divisor
            if term == -1:
                break
        return total

    return (16 * inverse(5, -1) - 4 * inverse(239, -1)) >> 16, 2 * inverse(3, 1) >> 16


def pi(bits: int) -> int:
    precision = -(-bits // 256) * 256
    return _constants(precision)[0] >> (precision - bits)


def ln2(bits: int) -> int:
    precision = -(-bits // 256) * 256
    return _constants(precision)[1] >> (precision - bits)


def _exp_series(x: int, bits: int) -> int:
    """e**x for x of -1 to 1: by the series for x / 256, squared eight times."""
    bits += 16
    x <<= 8
    total = term = 1 << bits
    divisor = 1
    while term:
        term = (term * x >> bits) // divisor
        total += term
        divisor += 1
    for _ in range(8):
        total = total * total >> bits
    return total >> 16


def exp_fixed(x: int, bits: int) -> tuple[int, int]:
    """e**x as a number from 1 to 2 and an exponent of 2."""
    exponent = x // ln2(bits)
    return _exp_series(x - exponent * ln2(bits), bits), exponent


def ln_fixed(x: Real, bits: int) -> int:
    """The logarithm: that of a guess, and of the residual."""
    numerator, denominator = x.as_integer_ratio()
    exponent = numerator.bit_length() - denominator.bit_length()
    significand = x * Fraction(2) ** -exponent if isinstance(x, Fraction) else math.ldexp(x, -exponent)
    guess = fixed(-math.log(significand), bits)  # its last digits do not matter
    off = fixed(significand, bits) * _exp_series(guess, bits) >> bits
    one = 1 << bits
    ratio = ((off - one) << bits) // (off + one)
    square = ratio * ratio >> bits
    total, term, divisor = 0, ratio, 1
    while term and term != -1:
        total += term // divisor
        term = term * square >> bits
        divisor += 2
    return exponent * ln2(bits) - guess + 2 * total


_ln_of_base = lru_cache(ln_fixed)


def sin_cos_fixed(x: Real, bits: int) -> tuple[int, int]:
    """Sine and cosine: of the rest that is left by quarters of a turn."""
    numerator, denominator = x.as_integer_ratio()
    wide = bits + max(0, numerator.bit_length() - denominator.bit_length()) + 8
    angle, half_turn = fixed(x, wide), pi(wide)
    quarters = (4 * angle + half_turn) // (2 * half_turn)
    remainder = (2 * angle - quarters * half_turn) >> (wide - bits + 1)
    square = remainder * remainder >> bits
    sine = _alternating(remainder, square, 2, bits)
    cosine = _alternating(1 << bits, square, 1, bits)
    return ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[quarters % 4]


def _alternating(term: int, square: int, divisor: int, bits: int) -> int:
    total = 0
    while term and term != -1:
        total += term
        term = -(term * square >> bits) // (divisor * (divisor + 1))
        divisor += 2
    return total


def atan_fixed(x: int, bits: int) -> int:
    """The angle of a tangent of 0 to 1: halved three times, then by the series."""
    one = 1 << bits
    for _ in range(3):
        x = (x << bits) // (one + math.isqrt(one * one + x * x))
    square = x * x >> bits
    total, term, divisor = 0, x, 1
    while term and term != -1:
        total += term // divisor
        term = -(term * square >> bits)
        divisor += 2
    return total << 3


def _cube_root(n: int) -> int:
    """The whole part of the cube root, by Newton's method from above."""
    root = 1 << -(-n.bit_length() // 3)
    while (better := (2 * root + n // (root * root)) // 3) < root:
        root = better
    return root


# ---- functions -------------------------------------------------------------------------------------------------------


def cbrt(x: float) -> float:
    def approximate(size: float, bits: int) -> tuple[int, int]:
        numerator, denominator = size.as_integer_ratio()
        exponent = 1 - denominator.bit_length()
        shift = 3 * bits + exponent % 3
        return _cube_root(numerator << shift), (exponent - shift) // 3

    return _odd(x, approximate)


def exp(x: float) -> float:
    if abs(x) > 750:
        return math.inf if x > 0 else 0.0

    def approximate(bits: int) -> tuple[int, int]:
        mantissa, exponent = exp_fixed(fixed(x, bits), bits)
        return mantissa, exponent - bits

    return _nearest(approximate)


def ln(x: float) -> float:
    return 0.0 if x == 1 else _nearest(lambda bits: (ln_fixed(x, bits), -bits))


def log(base: Real, x: float) -> float:
    if x == 1:
        return 0.0 if base > 1 else -0.0

    def approximate(bits: int) -> tuple[int, int]:
        wide = bits + (_SPARE if 0.5 < base < 2 else 64)
        return (ln_fixed(x, wide) << bits) // _ln_of_base(base, wide), -bits

    return _nearest(approximate)


def power(x: float, y: float) -> float:
    size = math.log2(x) * y
    if abs(size) > 1200:
        return math.inf if size > 0 else 0.0
    exact = _exact_power(x, y)
    if exact is not None:
        return to_double(*exact)
    numerator, denominator = y.as_integer_ratio()

    def approximate(bits: int) -> tuple[int, int]:
        wide = bits + max(0, math.frexp(y)[1])
        product = ln_fixed(x, wide) * numerator // denominator
        mantissa, exponent = exp_fixed(product >> (wide - bits), bits)
        return mantissa, exponent - bits

    return _nearest(approximate)


def _exact_power(x: float, y: float) -> tuple[int, int] | None:
    """The power, if it is a whole number of few bits times a power of two: then it may lie between two DOUBLEs.

    x is m * 2**e with an odd m, and y is n / 2**k. Unless m is 1, the power is such a number only if m and 2**e are
    powers with the exponent 2**k of whole numbers.
    """
    numerator, denominator = x.as_integer_ratio()
    twos = (numerator & -numerator).bit_length() - 1
    odd, exponent = numerator >> twos, twos - (denominator.bit_length() - 1)
    count, roots = y.as_integer_ratio()
    if odd == 1:
        whole, remainder = divmod(exponent * count, roots)
        return None if remainder else (1, whole)
    while roots > 1:
        root = math.isqrt(odd)
        if root * root != odd or exponent % 2:
            return None
        odd, exponent, roots = root, exponent // 2, roots // 2
    return (odd**count, exponent * count) if 0 < count * (odd.bit_length() - 1) < 64 else None


def sin(x: float) -> float:
    return _odd(x, lambda size, bits: (sin_cos_fixed(size, bits)[0], -bits))


def cos(x: float) -> float:
    return _nearest(lambda bits: (sin_cos_fixed(x, bits)[1], -bits))


def tan(x: float) -> float:
    def approximate(size: float, bits: int) -> tuple[int, int]:
        sine, cosine = sin_cos_fixed(size, bits + 64)
        if abs(cosine) >> bits + 40 == 0:
            sine, cosine = sin_cos_fixed(size, bits + _SPARE)
        return (sine << bits) // cosine, -bits

    return _odd(x, approximate)


def asin(x: float) -> float:
    """asin(x) = 2 atan(x / (1 + sqrt(1 - x²)))"""

    def approximate(size: float, bits: int) -> tuple[int, int]:
        sine, one = fixed(size, bits), 1 << bits
        return 2 * atan_fixed((sine << bits) // (one + math.isqrt(one * one - sine * sine)), bits), -bits

    return _odd(x, approximate)


def acos(x: float) -> float:
    """acos(x) = 2 atan(sqrt((1 - x) / (1 + x)))"""
    if x == 1:
        return 0.0

    def approximate(bits: int) -> tuple[int, int]:
        cosine, one = fixed(abs(x), bits), 1 << bits
        angle = 2 * atan_fixed(math.isqrt(((one - cosine) << 2 * bits) // (one + cosine)), bits)
        return (angle if x >= 0 else pi(bits) - angle), -bits

    return _nearest(approximate)


def atan(x: float) -> float:
    return atan2(x, 1.0)


def atan2(y: float, x: float) -> float:
    """The angle of a point, which may be at zero or infinitely far away."""
    if x == 0 or y == 0 or math.isinf(x) or math.isinf(y):
        return math.copysign(_eighths(_direction(abs(y), x)), y)
    slope = Fraction(abs(y)) / Fraction(abs(x))
    steep = slope > 1
    ratio = 1 / slope if steep else slope
    small = max(0, ratio.denominator.bit_length() - ratio.numerator.bit_length())

    def approximate(bits: int) -> tuple[int, int]:
        bits += small
        angle = atan_fixed(fixed(ratio, bits), bits)
        if steep:
            angle = (pi(bits) >> 1) - angle
        return (angle if x > 0 else pi(bits) - angle), -bits

    return math.copysign(_nearest(approximate), y)


def _direction(y: float, x: float) -> int:
    """The angle in eighths of a turn, of a point on an axis or infinitely far away."""
    if y == 0 or (math.isinf(x) and not math.isinf(y)):
        return 0 if math.copysign(1.0, x) > 0 else 4
    if not math.isinf(x):
        return 2
    return 1 if x > 0 else 3


def _eighths(count: int) -> float:
    return _nearest(lambda bits: (pi(bits) * count, -bits - 2)) if count else 0.0


def sinh(x: float) -> float:
    if abs(x) > 750:
        return math.copysign(math.inf, x)

    def approximate(size: float, bits: int) -> tuple[int, int]:
        up, down, exponent = _both_exponentials(size, bits)
        return up - down, exponent

    return _odd(x, approximate)


def cosh(x: float) -> float:
    if abs(x) > 750:
        return math.inf

    def approximate(bits: int) -> tuple[int, int]:
        up, down, exponent = _both_exponentials(abs(x), bits)
        return up + down, exponent

    return _nearest(approximate)


def tanh(x: float) -> float:
    if abs(x) > 40:
        return math.copysign(1.0, x)

    def approximate(size: float, bits: int) -> tuple[int, int]:
        up, down, _ = _both_exponentials(size, bits)
        return ((up - down) << bits) // (up + down), -bits

    return _odd(x, approximate)


def _both_exponentials(x: float, bits: int) -> tuple[int, int, int]:
    """Half of e**x and of e**-x, with a common exponent of 2."""
    up, exponent = exp_fixed(fixed(x, bits), bits)
    return up, (1 << 2 * bits) // up >> 2 * exponent, exponent - bits - 1

"""DECIMALs as 128-bit integers, their unscaled values: 1.25 of scale 2 is 125.

Polars' own DECIMAL arithmetic raises when it overflows, rounds half to even and keeps only the larger scale of a
product.
"""

from __future__ import annotations

from strandline.core.lazy import pl
from strandline.core.types import MAX_PRECISION, Type
from strandline.logical.expressions import Call
from strandline.runtime.kernels.columns import let, polars_type, within


def wide(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.Int128)


def power_of_ten(exponent: int) -> pl.Expr:
    return wide(10**exponent)


def unscaled(value: pl.Expr) -> pl.Expr:
    """The 128-bit integers of DECIMALs: 1.25 is 125."""
    return value.to_physical()


def scaled(value: pl.Expr, kind: Type) -> pl.Expr:
    """The opposite of `unscaled`, for integers that are known to fit."""
    return value.reinterpret(dtype=polars_type(kind))


def fitted(value: pl.Expr, kind: Type) -> pl.Expr:
    """The opposite of `unscaled`; NULL where an integer has too many digits."""
    max_value = 10**kind.precision - 1
    return scaled(within(value, -max_value, max_value, pl.Int128()), kind)


def total(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    left_type, right_type = (argument.type for argument in call.arguments)
    if left_type.scale > right_type.scale:
        left, right, left_type, right_type = right, left, right_type, left_type
    shift = right_type.scale - left_type.scale
    whole_digits = max(kind.precision - kind.scale for kind in (left_type, right_type))
    if whole_digits + right_type.scale < MAX_PRECISION:
        return scaled(left * power_of_ten(shift) + right, call.type)
    if shift == 0:  # a sum that wraps around has more than 38 digits, too
        return fitted(left + right, call.type)
    # Beyond 38 digits even an operand may overflow where the sum does not: add the digits that both have first.
    power, bound = power_of_ten(shift), 10 ** (MAX_PRECISION - shift)
    common = let(
        (left, right),
        lambda a, b: b // power,
        lambda a, b, high: b - high * power,
        lambda a, b, high, low: a + high,
        lambda a, b, high, low, total: pl.when(total.is_between(wide(-bound), wide(bound - 1))).then(
            total * power + low
        ),
    )
    return fitted(common, call.type)


def product(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if sum(argument.type.precision for argument in call.arguments) <= MAX_PRECISION:
        return scaled(left * right, call.type)
    max_value = wide(10**call.type.precision - 1)
    product = let((left, right), lambda a, b: pl.when((b == 0) | (a.abs() <= max_value // b.abs())).then(a * b))
    return scaled(product, call.type)


def round_integer(value: pl.Expr, zeros: int) -> pl.Expr:
    """128-bit integers rounded half away from zero to a multiple of a power of ten."""
    if zeros <= 0:
        return value
    if zeros > MAX_PRECISION:
        return value * 0
    return drop_digits(value, zeros) * power_of_ten(zeros)


def drop_digits(value: pl.Expr, digits: int) -> pl.Expr:
    """128-bit integers divided by a power of ten and rounded half away from zero."""
    if digits == 0:
        return value
    power, half = power_of_ten(digits), wide(5 * 10 ** (digits - 1))
    # The quotient is rounded down, the remainder is not negative: exactly a half goes up only where that is away.
    return let(
        (value,),
        lambda v: v // power,
        lambda v, q: v - q * power,
        lambda v, q, r: q + ((r > half) | ((r == half) & (v > 0))).cast(pl.Int128),
    )


def cut(value: pl.Expr, zeros: int) -> pl.Expr:
    """128-bit integers toward zero to a multiple of a power of ten."""
    if zeros <= 0:
        return value
    if zeros > MAX_PRECISION:
        return value * 0
    power = power_of_ten(zeros)
    return let((value,), lambda v: (v.abs() // power) * power * v.sign())

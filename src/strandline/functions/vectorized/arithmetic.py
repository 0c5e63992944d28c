"""Arithmetic and rounding over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from strandline.core.types import BIGINT, Type
from strandline.functions.vectorized import decimals
from strandline.logical.expressions import Call, Cast, Expression, Literal
from strandline.logical.values import WHOLE_DOUBLE
from strandline.runtime.kernels.columns import (
    FIRST_DAY,
    FIRST_INSTANT,
    LAST_DAY,
    LAST_INSTANT,
    LEAST_INT64,
    bound,
    constant,
    let,
    polars_type,
    quotient,
    stretched,
    together,
    within,
)


def _limit(expression: Expression) -> int:
    """No value of this integer expression is further from zero."""
    match expression:
        case Literal(int(value), _):
            return abs(value)
        case Cast(operand, _) if operand.type.name == "INT":
            return 2**31
        case Call("+" | "-", (left, right), _):
            return min(_limit(left) + _limit(right), 2**63)
        case Call("*", (left, right), _):
            return min(_limit(left) * _limit(right), 2**63)
    return 2**63


def _int64(call: Call, exact: Callable[[pl.Expr, pl.Expr], pl.Expr], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Integer + - *: 64 bits where the operands cannot overflow, else 128 bits and NULL where 64 do not suffice."""
    if _limit(call) < 2**63:
        return exact(left, right)
    return exact(left.cast(pl.Int128), right.cast(pl.Int128)).cast(pl.Int64, strict=False)


def _plus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left + right
        case "DECIMAL":
            return decimals.total(call, decimals.unscaled(left), decimals.unscaled(right))
        case "TIMESTAMP" | "DATE":
            first, second = (left, right) if call.arguments[0].type == call.type else (right, left)
            return _moved(call.type, first, second)
    return _int64(call, lambda a, b: a + b, left, right)


def _minus(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name, call.arguments[0].type.name:
        case "DOUBLE", _:
            return left - right
        case "DECIMAL", _:
            return decimals.total(call, decimals.unscaled(left), 0 - decimals.unscaled(right))
        case "TIMESTAMP" | "DATE", _:
            return _moved(call.type, left, -right)
        case "INTERVAL", "TIMESTAMP":
            return left.to_physical() - right.to_physical()
        case "INT", "DATE":
            return left.to_physical() - right.to_physical()
    return _int64(call, lambda a, b: a - b, left, right)


def _moved(kind: Type, moment: pl.Expr, shift: pl.Expr) -> pl.Expr:
    """A DATE or TIMESTAMP some days or microseconds later, NULL outside of the calendar."""
    least, most = (FIRST_DAY, LAST_DAY) if kind.name == "DATE" else (FIRST_INSTANT, LAST_INSTANT)
    # 64 bits may wrap around, also when the shift was negated, but then the sum is far outside of the calendar.
    moved = moment.to_physical().cast(pl.Int64) + shift
    whole = within(moved, least, most, pl.Int64())
    return (whole.cast(pl.Int32) if kind.name == "DATE" else whole).cast(polars_type(kind))


def _times(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return left * right
        case "DECIMAL":
            return decimals.product(call, decimals.unscaled(left), decimals.unscaled(right))
    return _int64(call, lambda a, b: a * b, left, right)


def _divide(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if call.type.name == "DOUBLE":
        return quotient(left, right)
    # Polars rounds quotients down: one more where that is not toward zero.
    return let(
        (left, right),
        lambda a, b: a // b,
        lambda a, b, q: q + ((q * b != a) & ((a < 0) != (b < 0))).cast(pl.Int64),
        lambda a, b, _, q: pl.when((a != LEAST_INT64) | (b != -1)).then(q),
    )


def _remainder(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return pl.map_batches([left, right], _fmod, return_dtype=pl.Float64(), is_elementwise=True)
        case "DECIMAL":
            return decimals.scaled(remainder(decimals.unscaled(left), decimals.unscaled(right)), call.type)
    return remainder(left, right)


def remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder with the sign of the dividend; Polars' has the sign of the divisor."""
    return let(
        (left, right),
        lambda a, b: a % b,
        lambda a, b, r: pl.when((r != 0) & ((r < 0) != (a < 0))).then(r - b).otherwise(r),
    )


def _fmod(columns: Sequence[pl.Series]) -> pl.Series:
    """The exact remainder of DOUBLEs; Polars computes it from the rounded quotient."""
    left, right = columns
    with np.errstate(invalid="ignore"):
        result = pl.Series(np.fmod(left.to_numpy(), right.to_numpy()))
    return pl.select(pl.when(left.is_not_null() & (right != 0)).then(result)).to_series()


def _negate(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name in ("BIGINT", "INTERVAL"):
        return let((value,), lambda v: pl.when(v != LEAST_INT64).then(-v))
    return -value


def _absolute(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name == "BIGINT":
        return let((value,), lambda v: pl.when(v != LEAST_INT64).then(v.abs()))
    return value.abs()


def _sign(call: Call, value: pl.Expr) -> pl.Expr:
    match call.arguments[0].type.name:
        case "DOUBLE":
            return value.sign() + 0.0  # -0 becomes 0
        case "DECIMAL":
            return decimals.unscaled(value).sign().cast(pl.Int32)
    return value.sign().cast(pl.Int32)


def _floor(call: Call, value: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return value.floor()
        case "DECIMAL":
            return decimals.scaled(
                decimals.unscaled(value) // decimals.power_of_ten(call.arguments[0].type.scale), call.type
            )
    return value


def _ceil(call: Call, value: pl.Expr) -> pl.Expr:
    match call.type.name:
        case "DOUBLE":
            return value.ceil()
        case "DECIMAL":
            return decimals.scaled(
                0 - (0 - decimals.unscaled(value)) // decimals.power_of_ten(call.arguments[0].type.scale), call.type
            )
    return value


def _round(call: Call, value: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    digits = _digits(call)
    if digits is None:
        return constant(None, call.type)
    match call.type.name:
        case "DOUBLE":
            return _round_double(value, digits)
        case "DECIMAL":
            source = call.arguments[0].type
            return decimals.rounded(decimals.unscaled(value), source.scale - digits, source.scale, call.type)
    return decimals.round_integer(value.cast(pl.Int128), -digits).cast(pl.Int64, strict=False)


def _round_double(value: pl.Expr, digits: int) -> pl.Expr:
    if digits == 0:
        return value.round(mode="half_away_from_zero")
    if digits > 308:
        return value
    if digits < -308:
        return let((value,), lambda v: pl.when(v.is_finite()).then(0.0).otherwise(v))
    return bound(  # the power of ten as a column: see `quotient`
        (value, pl.lit(float(10 ** abs(digits)))),
        lambda v, power: v * power if digits > 0 else v / power,
        lambda v, power, scaled: scaled.round(mode="half_away_from_zero"),
        lambda v, power, scaled, whole: whole / power if digits > 0 else whole * power,
        lambda v, power, scaled, whole, result: pl.when(scaled.abs() < WHOLE_DOUBLE).then(result).otherwise(v),
    )


def _trunc(call: Call, value: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    """Toward zero."""
    if call.type.name == "DOUBLE":
        return value.truncate(0)
    digits = _digits(call)
    if digits is None:
        return constant(None, call.type)
    if call.type.name != "DECIMAL":
        return decimals.cut(value.cast(pl.Int128), -digits).cast(pl.Int64)
    source = call.arguments[0].type
    cut = decimals.cut(decimals.unscaled(value), source.scale - min(digits, source.scale))
    dropped = source.scale - call.type.scale
    return decimals.scaled(cut // decimals.power_of_ten(dropped) if dropped else cut, call.type)


def _digits(call: Call) -> int | None:
    match call.arguments[1:]:
        case ():
            return 0
        case (Literal(int(digits), _),):
            return digits
        case (Literal(None, _),):
            return None
    raise AssertionError("the number of digits is checked when the query is bound")


def _shift(columns: Sequence[pl.Series], left: bool) -> pl.Series:
    """Bits moved; NULL unless the number of places is 0 to 63."""
    value, places = (stretched(column, columns) for column in columns)
    possible = value.is_not_null() & places.is_between(0, 63)
    amount = places.fill_null(0).cast(pl.Int64).to_numpy() & 63
    bits = value.fill_null(0).to_numpy()
    moved = np.left_shift(bits, amount) if left else np.right_shift(bits, amount)
    return pl.select(pl.when(possible).then(pl.Series(moved))).to_series()


def _shifted(left: bool) -> Callable[..., pl.Expr]:
    def shifted(_: Call, value: pl.Expr, places: pl.Expr) -> pl.Expr:
        return together(partial(_shift, left=left), value, places, kind=BIGINT)

    return shifted


def _gcds(columns: Sequence[pl.Series]) -> pl.Series:
    """NULL where it is 2 to the power of 63."""
    one, two = (stretched(column, columns) for column in columns)
    known = one.is_not_null() & two.is_not_null()
    found = pl.Series(np.gcd(one.fill_null(0).to_numpy(), two.fill_null(0).to_numpy()))
    return pl.select(pl.when(known & (found >= 0)).then(found)).to_series()


def _gcd(_: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return together(_gcds, left, right, kind=BIGINT)


def _lcm(call: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    # The divisor as 128 bits: that of the least BIGINT and itself has no 64.
    return let(
        (left, right),
        lambda a, b: _gcd(call, a, b).cast(pl.Int128).fill_null(2**63),
        lambda a, b, g: pl.when(g == 0).then(0).otherwise(a.cast(pl.Int128) // g * b.cast(pl.Int128)).abs(),
        lambda a, b, g, product: product.cast(pl.Int64, strict=False),
    )


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _divide,
    "%": _remainder,
    "neg": _negate,
    "abs": _absolute,
    "sign": _sign,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "trunc": _trunc,
    "div": _divide,
    "gcd": _gcd,
    "lcm": _lcm,
    "&": lambda _, a, b: a & b,
    "|": lambda _, a, b: a | b,
    "#": lambda _, a, b: a ^ b,
    "~": lambda _, a: -1 - a,
    "<<": _shifted(left=True),
    ">>": _shifted(left=False),
}

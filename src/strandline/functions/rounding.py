"""Signs and rounding of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

from strandline.core.lazy import pl
from strandline.core.types import DOUBLE, INT, Type, decimal
from strandline.functions import decimals
from strandline.functions.signatures import (
    Function,
    FunctionError,
    Types,
    integer_digits,
    is_implicitly_castable,
    number,
    numeric,
)
from strandline.logical.expressions import Call, Expression, Literal, columns_of
from strandline.logical.values import EXACT, WHOLE_DOUBLE, half_away, unit
from strandline.runtime.kernels.columns import LEAST_INT64, bound, constant, let

# ---- typing ----------------------------------------------------------------------------------------------------------


def _whole_type(kind: Type) -> Type:
    """Of the next whole numbers; a DECIMAL may gain a digit: ceil(9.5) is 10."""
    return decimal(integer_digits(kind) + 1, 0) if kind.name == "DECIMAL" else kind


_WHOLE = numeric(_whole_type)


def _round_rule(types: Types) -> tuple[Types, Type] | None:
    if len(types) == 1:
        return _WHOLE(types)
    kind = number(types[:1])
    if kind is None or not is_implicitly_castable(types[1], INT):
        return None
    return (kind, INT), decimal(kind.precision + 1, kind.scale) if kind.name == "DECIMAL" else kind


def _trunc_rule(types: Types) -> tuple[Types, Type] | None:
    kind = number(types[:1])
    if kind is None:
        return None
    if len(types) == 1:
        return (kind,), decimal(max(integer_digits(kind), 1), 0) if kind.name == "DECIMAL" else kind
    return ((kind, INT), kind) if kind != DOUBLE and is_implicitly_castable(types[1], INT) else None


def _check_digits(arguments: Sequence[Expression]) -> None:
    """Refuse a number of digits that is not known before the query runs."""
    if len(arguments) == 2 and columns_of(arguments[1]):
        raise FunctionError("the number of digits must be a constant", "Write round(x, 2).")


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _sign(value: Any) -> Any:
    if isinstance(value, float):
        return value if value != value else float((value > 0) - (value < 0))
    return int(value > 0) - int(value < 0)


def _whole(rounding: str, of_double: Callable[[float], int]) -> Callable[[Any], Any]:
    def whole(value: Any) -> Any:
        if isinstance(value, Decimal):
            return value.quantize(unit(0), rounding, EXACT)
        if isinstance(value, float) and math.isfinite(value):
            return math.copysign(of_double(value), value)  # ceil(-0.5) is -0
        return value

    return whole


def _round(value: Any, digits: int = 0) -> Any:
    """Rounding half away from zero.

    A DOUBLE is scaled by a power of ten, rounded and scaled back, each step a DOUBLE: round(2.675, 2) is 2.68 although
    the nearest DOUBLE to 2.675 is a little less.
    """
    if isinstance(value, float):
        return _round_double(value, digits)
    return _exact_to_digits(value, digits, ROUND_HALF_UP)


def _exact_to_digits(value: int | Decimal, digits: int, rounding: str) -> int | Decimal:
    return 0 if digits < -40 else Decimal(value).quantize(unit(min(digits, 40)), rounding, EXACT)


def _round_double(value: float, digits: int) -> float:
    if not math.isfinite(value) or digits > 308:
        return value
    if digits < -308:
        return 0.0
    power = float(10 ** abs(digits))
    scaled = value * power if digits >= 0 else value / power
    if abs(scaled) >= WHOLE_DOUBLE:
        return value
    return half_away(scaled) / power if digits >= 0 else half_away(scaled) * power


def _trunc(value: Any, digits: int = 0) -> Any:
    """Toward zero; digits are for exact numbers only."""
    if isinstance(value, float):
        return math.copysign(math.trunc(value), value) if math.isfinite(value) else value
    return _exact_to_digits(value, digits, ROUND_DOWN)


# ---- over columns ----------------------------------------------------------------------------------------------------


def _absolute_columns(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name == "BIGINT":
        return let((value,), lambda v: pl.when(v != LEAST_INT64).then(v.abs()))
    return value.abs()


def _sign_columns(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name == "DOUBLE":
        return value.sign() + 0.0  # -0 becomes 0
    return value.to_physical().sign().cast(pl.Int32)


def _floor(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name != "DECIMAL":
        return value.floor()
    return decimals.scaled(decimals.unscaled(value) // _one(call), call.type)


def _ceil(call: Call, value: pl.Expr) -> pl.Expr:
    if call.type.name != "DECIMAL":
        return value.ceil()
    return decimals.scaled(0 - (0 - decimals.unscaled(value)) // _one(call), call.type)


def _one(call: Call) -> pl.Expr:
    """The number 1 as the argument, a DECIMAL, has it."""
    return decimals.power_of_ten(call.arguments[0].type.scale)


def _round_columns(call: Call, value: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    digits = _digits(call)
    if digits is None:
        return constant(None, call.type)
    match call.type.name:
        case "DOUBLE":
            return _round_doubles(value, digits)
        case "DECIMAL":
            exact, scale = decimals.unscaled(value), call.arguments[0].type.scale
            if call.type.scale < scale:  # round(x): the digits go away
                return decimals.fitted(decimals.drop_digits(exact, scale - call.type.scale), call.type)
            return decimals.fitted(decimals.round_integer(exact, scale - digits), call.type)
    return decimals.round_integer(value.cast(pl.Int128), -digits).cast(pl.Int64, strict=False)


def _round_doubles(value: pl.Expr, digits: int) -> pl.Expr:
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


def _trunc_columns(call: Call, value: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
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


# ---- declarations ----------------------------------------------------------------------------------------------------

FAMILY: Final = (
    Function("abs", "abs(x)", "The absolute value.", 1, 1, numeric(),
             lambda x: x.copy_abs() if isinstance(x, Decimal) else abs(x), _absolute_columns,
             sql={"BIGINT": "CASE WHEN {0} < 0 THEN {h}subtract(CAST(0 AS BIGINT), {0}) ELSE {0} END",
                  "*": "abs({0})"}),
    Function("sign", "sign(x)", "-1, 0 or 1.",
             1, 1, numeric(lambda kind: DOUBLE if kind == DOUBLE else INT), _sign, _sign_columns,
             sql="CAST(sign({0}) AS INTEGER)",
             duckdb={"DOUBLE": "CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"},
             postgresql={"DOUBLE": "CASE WHEN {0} = 'NaN' THEN {0} ELSE sign({0}) END"}),
    Function("floor", "floor(x)", "The next whole number below.",
             1, 1, _WHOLE, _whole(ROUND_FLOOR, math.floor), _floor,
             sql={"BIGINT": "{0}", "*": "floor({0})"},
             duckdb={"DECIMAL": "TRY_CAST(floor({0}) AS DECIMAL({p},{s}))"}),
    Function("ceil", "ceil(x)", "The next whole number above.",
             1, 1, _WHOLE, _whole(ROUND_CEILING, math.ceil), _ceil, aliases=("ceiling",),
             sql={"BIGINT": "{0}", "*": "ceil({0})"},
             duckdb={"DECIMAL": "TRY_CAST(ceil({0}) AS DECIMAL({p},{s}))"}),
    Function("round", "round(x[, digits])", "x rounded half away from zero; digits may be negative.",
             1, 2, _round_rule, _round, _round_columns, check=_check_digits,
             sql={"BIGINT": "{0}", "DOUBLE": "{h}half_away({0})", "DOUBLE, *": "{h}round_double({0}, {1})"},
             duckdb={"DECIMAL": "TRY_CAST(round({0}) AS DECIMAL({p},{s}))",
                     "BIGINT, *": "TRY_CAST({h}rounded({0}, -{1}) AS BIGINT)",
                     "DECIMAL, *":
                         "TRY_CAST({h}point({h}rounded({h}unscaled({0}), {s} - {1}), {s}) AS DECIMAL({p},{s}))"},
             postgresql={"DECIMAL": "round({0}, 0)", "DECIMAL, *": "{h}fit(round({0}, {1}), {p}, {s})",
                         "BIGINT, *": "{h}fit64(round(CAST({0} AS NUMERIC), {1}))"}),
    Function("trunc", "trunc(x[, digits])", "x toward zero, to a whole number; to digits for exact numbers only.",
             1, 2, _trunc_rule, _trunc, _trunc_columns, check=_check_digits, aliases=("truncate",),
             sql={"BIGINT": "{0}", "DOUBLE": "trunc({0})"},
             duckdb={"DECIMAL": "TRY_CAST(trunc({0}) AS DECIMAL({p},{s}))",
                     "BIGINT, *": "CAST({h}cut({0}, -{1}) AS BIGINT)",
                     "DECIMAL, *": "TRY_CAST({h}point({h}cut({h}unscaled({0}), {s} - {1}), {s}) AS DECIMAL({p},{s}))"},
             postgresql={"DECIMAL": "trunc({0}, 0)", "DECIMAL, *": "{h}fit(trunc({0}, {1}), {p}, {s})",
                         "BIGINT, *": "{h}fit64(trunc(CAST({0} AS NUMERIC), {1}))"}),
)  # fmt: skip

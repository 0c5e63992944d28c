"""Arithmetic and rounding: what they take and what they mean.

Arithmetic that has no result yields NULL: one bad row must not stop a continuous query. That is division by zero, the
square root of a negative number, and whatever does not fit its type. DOUBLE follows IEEE 754 otherwise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

from strandline.core.types import BIGINT, DATE, DOUBLE, INT, INTERVAL, MAX_PRECISION, TIMESTAMP, Type, decimal
from strandline.functions.signatures import (
    Function,
    FunctionError,
    Types,
    all_of,
    exact,
    fixed,
    integer_digits,
    number,
    widens,
)
from strandline.logical.expressions import Expression, columns_of
from strandline.logical.values import CHRONON, EXACT, WHOLE_DOUBLE, half_away, in_calendar, unit

# ---- what they take --------------------------------------------------------------------------------------------


def _sum_rule(types: Types) -> tuple[Types, Type] | None:
    if (kind := number(types)) is not None:
        if (pair := exact(types)) is None:
            return (kind, kind), kind
        scale = max(part.scale for part in pair)
        return pair, decimal(max(map(integer_digits, pair)) + scale + 1, scale)
    return None


def _product_rule(types: Types) -> tuple[Types, Type] | None:
    if (kind := number(types)) is not None:
        if (pair := exact(types)) is None:
            return (kind, kind), kind
        left, right = pair
        if left.scale + right.scale > MAX_PRECISION:
            raise FunctionError(
                f"the product of {left} and {right} has more than {MAX_PRECISION} digits after the point",
                "CAST one of them to DOUBLE or to a DECIMAL of smaller scale.",
            )
        return pair, decimal(left.precision + right.precision, left.scale + right.scale)
    return None


def _plus_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("TIMESTAMP" | "DATE"), Type("INTERVAL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("INTERVAL"), Type("TIMESTAMP" | "DATE")):
            return (INTERVAL, TIMESTAMP), TIMESTAMP
        case (Type("TIMESTAMP"), Type("NULL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("NULL"), Type("TIMESTAMP")):
            return (INTERVAL, TIMESTAMP), TIMESTAMP
        case (Type("DATE"), Type("INT" | "BIGINT" | "NULL")):
            return (DATE, BIGINT), DATE
        case (Type("INT" | "BIGINT" | "NULL"), Type("DATE")):
            return (BIGINT, DATE), DATE
        case (Type("INTERVAL"), Type("INTERVAL" | "NULL")) | (Type("NULL"), Type("INTERVAL")):
            return (INTERVAL, INTERVAL), INTERVAL
    return _sum_rule(types)


def _minus_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("DATE"), Type("DATE" | "NULL")) | (Type("NULL"), Type("DATE")):
            return (DATE, DATE), INT
        case (Type("DATE"), Type("INT" | "BIGINT")):
            return (DATE, BIGINT), DATE
        case (Type("TIMESTAMP" | "DATE"), Type("INTERVAL")):
            return (TIMESTAMP, INTERVAL), TIMESTAMP
        case (Type("TIMESTAMP" | "DATE" | "NULL"), Type("TIMESTAMP")) | (Type("TIMESTAMP"), Type("DATE" | "NULL")):
            return (TIMESTAMP, TIMESTAMP), INTERVAL
        case (Type("INTERVAL"), Type("INTERVAL" | "NULL")) | (Type("NULL"), Type("INTERVAL")):
            return (INTERVAL, INTERVAL), INTERVAL
    return _sum_rule(types)


def _times_rule(types: Types) -> tuple[Types, Type] | None:
    match types:
        case (Type("INTERVAL"), Type("INT" | "BIGINT" | "NULL")):
            return (INTERVAL, BIGINT), INTERVAL
        case (Type("INT" | "BIGINT" | "NULL"), Type("INTERVAL")):
            return (BIGINT, INTERVAL), INTERVAL
    return _product_rule(types)


def _divide_rule(types: Types) -> tuple[Types, Type] | None:
    kind = number(types)
    if kind is None:
        return None
    kind = BIGINT if kind == BIGINT else DOUBLE
    return (kind, kind), kind


def _modulo_rule(types: Types) -> tuple[Types, Type] | None:
    kind = number(types)
    return None if kind is None else ((kind, kind), kind)


def _negate_rule(types: Types) -> tuple[Types, Type] | None:
    return (types, INTERVAL) if types == (INTERVAL,) else _same_number(types)


def _same_number(types: Types) -> tuple[Types, Type] | None:
    kind = number(types)
    return None if kind is None else ((kind,), kind)


def _sign_rule(types: Types) -> tuple[Types, Type] | None:
    kind = number(types)
    return None if kind is None else ((kind,), DOUBLE if kind == DOUBLE else INT)


def _whole_rule(types: Types) -> tuple[Types, Type] | None:
    """To a whole number; a DECIMAL may gain a digit: ceil(9.5) is 10."""
    kind = number(types)
    if kind is None:
        return None
    return (kind,), decimal(integer_digits(kind) + 1, 0) if kind.name == "DECIMAL" else kind


def _round_rule(types: Types) -> tuple[Types, Type] | None:
    if len(types) == 1:
        return _whole_rule(types)
    kind = number(types[:1])
    if kind is None or not widens(types[1], INT):
        return None
    return (kind, INT), decimal(kind.precision + 1, kind.scale) if kind.name == "DECIMAL" else kind


def _trunc_rule(types: Types) -> tuple[Types, Type] | None:
    kind = number(types[:1])
    if kind is None:
        return None
    if len(types) == 1:
        return (kind,), decimal(max(integer_digits(kind), 1), 0) if kind.name == "DECIMAL" else kind
    return ((kind, INT), kind) if kind != DOUBLE and widens(types[1], INT) else None


# ---- what they mean --------------------------------------------------------------------------------------------


def _add(left: Any, right: Any) -> Any:
    match left, right:
        case Decimal(), Decimal():
            return EXACT.add(left, right)
        case (datetime(), int()) | (int(), datetime()):
            moment, span = (left, right) if isinstance(left, datetime) else (right, left)
            return in_calendar(lambda: moment + span * CHRONON)
        case (date(), int()) | (int(), date()):
            day, days = (left, right) if isinstance(left, date) else (right, left)
            return in_calendar(lambda: day + timedelta(days=days))
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    match left, right:
        case datetime(), datetime():
            return (left - right) // CHRONON
        case date(), date():
            return (left - right).days
    return _add(left, -right if not isinstance(right, Decimal) else right.copy_negate())


def _multiply(left: Any, right: Any) -> Any:
    return EXACT.multiply(left, right) if isinstance(left, Decimal) else left * right


def _divide(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, Decimal):
        return EXACT.remainder(left, right)
    if isinstance(left, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _negate(value: Any) -> Any:
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _absolute(value: Any) -> Any:
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


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
    exact = Decimal(value)
    if digits < -40:
        rounded = Decimal(0)
    elif -exact.as_tuple().exponent <= digits:  # type: ignore[operator]  # DECIMALs are finite
        rounded = exact
    else:
        rounded = exact.quantize(unit(digits), ROUND_HALF_UP, EXACT)
    return rounded if isinstance(value, Decimal) else int(rounded)


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
    if digits < -40:
        return 0
    return Decimal(value).quantize(unit(min(digits, 40)), ROUND_DOWN, EXACT)


def _shift(value: int, bits: int) -> int | None:
    """To the left if `bits` is positive; a value has 64 bits, and shifts by more are none."""
    if not -64 < bits < 64:
        return None
    shifted = value << bits if bits >= 0 else value >> -bits
    return (shifted + 2**63) % 2**64 - 2**63


def constant_digits(arguments: Sequence[Expression]) -> None:
    """Refuse a number of digits that is not known before the query runs."""
    if len(arguments) == 2 and columns_of(arguments[1]):
        raise FunctionError("the number of digits must be a constant", "Write round(x, 2).")


_BITS = all_of(BIGINT, BIGINT)
_SHIFT = fixed(BIGINT, BIGINT, INT)

DECLARED: Final = (
    Function("+", "a + b", "Sum; also TIMESTAMP + INTERVAL and DATE + days.", 2, 2, _plus_rule, _add),
    Function("-", "a - b", "Difference; also between TIMESTAMPs (INTERVAL) and DATEs (days).",
             2, 2, _minus_rule, _subtract),
    Function("*", "a * b", "Product; also INTERVAL * integer.", 2, 2, _times_rule, _multiply),
    Function("/", "a / b", "Quotient; of integers, truncated toward zero. NULL if b is 0.",
             2, 2, _divide_rule, _divide),
    Function("%", "a % b", "Remainder with the sign of a. NULL if b is 0.", 2, 2, _modulo_rule, _remainder),
    Function("neg", "-a", "The number or INTERVAL with the other sign.", 1, 1, _negate_rule, _negate),
    Function("&", "a & b", "The bits that both whole numbers have.", 2, 2, _BITS, operator.and_),
    Function("|", "a | b", "The bits that one or both have.", 2, 2, _BITS, operator.or_),
    Function("#", "a # b", "The bits that one has and the other has not.", 2, 2, _BITS, operator.xor),
    Function("~", "~a", "All 64 bits inverted.", 1, 1, _BITS, operator.invert),
    Function("<<", "a << n", "The 64 bits of a, n places to the left; NULL unless n is 0 to 63.",
             2, 2, _SHIFT, lambda a, n: None if n < 0 else _shift(a, n)),
    Function(">>", "a >> n", "The 64 bits of a, n places to the right, the sign kept; NULL unless n is 0 to 63.",
             2, 2, _SHIFT, lambda a, n: None if n < 0 else _shift(a, -n)),
    Function("abs", "abs(x)", "The absolute value.", 1, 1, _same_number, _absolute),
    Function("sign", "sign(x)", "-1, 0 or 1.", 1, 1, _sign_rule, _sign),
    Function("floor", "floor(x)", "The next whole number below.", 1, 1, _whole_rule, _whole(ROUND_FLOOR, math.floor)),
    Function("ceil", "ceil(x)", "The next whole number above.", 1, 1, _whole_rule, _whole(ROUND_CEILING, math.ceil)),
    Function("round", "round(x[, digits])", "x rounded half away from zero; digits may be negative.",
             1, 2, _round_rule, _round, check=constant_digits),
    Function("trunc", "trunc(x[, digits])", "x toward zero, to a whole number; to digits for exact numbers only.",
             1, 2, _trunc_rule, _trunc, check=constant_digits),
    Function("div", "div(a, b)", "The quotient of whole numbers, truncated toward zero. NULL if b is 0.",
             2, 2, all_of(BIGINT, BIGINT), _divide),
    Function("gcd", "gcd(a, b)", "The greatest common divisor of whole numbers.", 2, 2, _BITS, math.gcd),
    Function("lcm", "lcm(a, b)", "The least common multiple of whole numbers; NULL beyond BIGINT.",
             2, 2, _BITS, math.lcm),
)  # fmt: skip

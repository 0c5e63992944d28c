"""The meaning of expressions, row by row: slow, obvious, and the judge of the fast path.

Arithmetic that has no result yields NULL: one bad row must not stop a continuous query. That is division by zero, the
square root of a negative number, and whatever does not fit its type. DOUBLE follows IEEE 754 otherwise, but NaN equals
itself and is greater than every number, so that grouping and sorting are sound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from functools import cache, lru_cache
from typing import Any, Final, assert_never

from strandline.algebra.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, Value
from strandline.algebra.functions import trunc_unit
from strandline.types import Type

EPOCH: Final = datetime(1970, 1, 1)
CHRONON: Final = timedelta(microseconds=1)
BLANKS: Final = " \t\n\r\v\f"
TRUE_TEXTS: Final = ("true", "t", "yes", "y", "on", "1")
FALSE_TEXTS: Final = ("false", "f", "no", "n", "off", "0")

# Beyond this a DOUBLE has no digits after the point, and rounding it is the identity.
WHOLE_DOUBLE: Final = 2.0**52

# These patterns mean the same to Python and to Rust: ASCII digits, nothing that depends on a flag.
INTEGER_TEXT: Final = r"[+-]?[0-9]+"
NUMBER_TEXT: Final = r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?"
TIMESTAMP_TEXT: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r" ?(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)

_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)  # exact for DECIMALs; "half up" is away from zero


def evaluate(expression: Expression, row: Mapping[str, Value]) -> Value:
    """The value of an expression over one row, whose values are named by column id."""
    match expression:
        case Literal(value, _):
            return value
        case ColumnRef(id, _):
            return row[id]
        case Cast(operand, kind):
            return cast(evaluate(operand, row), operand.type, kind)
        case Case(branches, otherwise, _):
            for condition, result in branches:
                if evaluate(condition, row) is True:
                    return evaluate(result, row)
            return evaluate(otherwise, row)
        case Call(function, arguments, kind):
            values = [evaluate(argument, row) for argument in arguments]
            if not is_strict(function):
                return _WITH_NULLS[function](values)
            if any(value is None for value in values):
                return None
            result_of: Callable[..., Value] = _STRICT[function]
            return fit(result_of(*values), kind)
        case _:
            assert_never(expression)


def is_strict(function: str) -> bool:
    """Whether the function is NULL as soon as one argument is."""
    return function not in _WITH_NULLS


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1: the order of two values of one type, neither of them NULL. Texts compare by code point."""
    if isinstance(left, float) and isinstance(right, float) and (left != left or right != right):
        return (left != left) - (right != right)
    return int(left > right) - int(left < right)


# ---- values and their types ----------------------------------------------------------------------------------------


def fit(value: Any, kind: Type) -> Value:
    """The value in the form of its type; None where the type has no room for it."""
    match kind.name:
        case "INT":
            return int(value) if value is not None and -(2**31) <= value < 2**31 else None
        case "BIGINT" | "INTERVAL":
            return int(value) if value is not None and -(2**63) <= value < 2**63 else None
        case "DECIMAL":
            return None if value is None else _fit_decimal(Decimal(value), kind)
    result: Value = value
    return result


def _fit_decimal(value: Decimal, kind: Type) -> Decimal | None:
    if value.copy_abs() > 10**40:  # also keeps `quantize` within its precision
        return None
    result = _EXACT.plus(_EXACT.quantize(value, _unit(kind.scale)))  # "plus": DECIMAL has no negative zero
    return result if result.copy_abs() < 10 ** (kind.precision - kind.scale) else None


@cache
def _unit(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def _best(values: list[Any], wanted: int) -> Value:
    best: Value = values[0]
    for value in values[1:]:
        if compare(value, best) == wanted:
            best = value
    return best


# ---- functions that see NULLs --------------------------------------------------------------------------------------


def _and(values: list[Any]) -> Value:
    if any(value is False for value in values):
        return False
    return None if None in values else True


def _or(values: list[Any]) -> Value:
    if any(value is True for value in values):
        return True
    return None if None in values else False


def _equal(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else compare(left, right) == 0


def _in(values: list[Any]) -> Value:
    return _or([_equal(values[0], item) for item in values[1:]])


def _nullif(values: list[Any]) -> Value:
    left, right = values
    result: Value = None if _equal(left, right) else left
    return result


def _extreme(wanted: int) -> Callable[[list[Any]], Value]:
    def extreme(values: list[Any]) -> Value:
        known = [value for value in values if value is not None]
        return _best(known, wanted) if known else None

    return extreme


_WITH_NULLS: Final[Mapping[str, Callable[[list[Any]], Value]]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "is_null": lambda values: values[0] is None,
    "coalesce": lambda values: next((value for value in values if value is not None), None),
    "nullif": _nullif,
    "greatest": _extreme(1),
    "least": _extreme(-1),
    "concat": lambda values: "".join(value for value in values if value is not None),
}


# ---- functions of values -------------------------------------------------------------------------------------------


def _add(left: Any, right: Any) -> Any:
    match left, right:
        case Decimal(), Decimal():
            return _EXACT.add(left, right)
        case (datetime(), int()) | (int(), datetime()):
            moment, span = (left, right) if isinstance(left, datetime) else (right, left)
            return _in_calendar(lambda: moment + span * CHRONON)
        case (date(), int()) | (int(), date()):
            day, days = (left, right) if isinstance(left, date) else (right, left)
            return _in_calendar(lambda: day + timedelta(days=days))
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    match left, right:
        case datetime(), datetime():
            return (left - right) // CHRONON
        case date(), date():
            return (left - right).days
    return _add(left, -right if not isinstance(right, Decimal) else right.copy_negate())


def _in_calendar(moment: Callable[[], Any]) -> Any:
    """The calendar has the years 1 to 9999."""
    try:
        return moment()
    except OverflowError:
        return None


def _multiply(left: Any, right: Any) -> Any:
    return _EXACT.multiply(left, right) if isinstance(left, Decimal) else left * right


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
        return _EXACT.remainder(left, right)
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
            return value.quantize(_unit(0), rounding, _EXACT)
        if isinstance(value, float) and math.isfinite(value):
            return math.copysign(of_double(value), value)  # ceil(-0.5) is -0
        return value

    return whole


def _half_away(value: float) -> float:
    """The whole number next to a finite DOUBLE; of two, the one further from zero."""
    fraction, whole = math.modf(value)
    return whole + math.copysign(1.0, value) if abs(fraction) >= 0.5 else whole


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
        rounded = exact.quantize(_unit(digits), ROUND_HALF_UP, _EXACT)
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
    return _half_away(scaled) / power if digits >= 0 else _half_away(scaled) * power


def _power(base: float, exponent: float) -> float | None:
    if (base == 0 and exponent < 0) or (base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent)):
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _like(text: str, pattern: str) -> bool:
    return _like_regex(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _like_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(like_regex(pattern), re.DOTALL)


def like_regex(pattern: str) -> str:
    """A LIKE pattern as a regular expression for the whole text; a backslash at the very end stands for itself."""
    forms = {"%": ".*", "_": "."}
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join(forms.get(token) or _escape(token[-1]) for token in tokens)


def _escape(character: str) -> str:
    return "\\" + character if character in r"\.+*?()|[]{}^$#&-~" else character


def _substring(text: str, start: int, count: int | None = None) -> str | None:
    """Positions before the first character count too, but are empty: substring('abc', 0, 2) is 'a'."""
    if count is None:
        return text[max(start, 1) - 1 :]
    return None if count < 0 else text[max(start, 1) - 1 : max(start + count, 1) - 1]


def _date_trunc(unit: str, moment: datetime) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match trunc_unit(unit):
        case "microsecond":
            return moment
        case "millisecond":
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        case "second":
            return moment.replace(microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "day":
            return midnight
        case "week":  # weeks begin on Monday
            return midnight - timedelta(days=moment.weekday())
        case "month":
            return midnight.replace(day=1)
        case "quarter":
            return midnight.replace(month=(moment.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return midnight.replace(month=1, day=1)
    raise AssertionError(f"date_trunc('{unit}', …) passed the check of its unit")


_STRICT: Final[Mapping[str, Callable[..., Any]]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "neg": _negate,
    "=": lambda a, b: compare(a, b) == 0,
    "<>": lambda a, b: compare(a, b) != 0,
    "<": lambda a, b: compare(a, b) < 0,
    "<=": lambda a, b: compare(a, b) <= 0,
    ">": lambda a, b: compare(a, b) > 0,
    ">=": lambda a, b: compare(a, b) >= 0,
    "not": lambda a: not a,
    "like": _like,
    "||": lambda a, b: a + b,
    "abs": _absolute,
    "sign": _sign,
    "floor": _whole(ROUND_FLOOR, math.floor),
    "ceil": _whole(ROUND_CEILING, math.ceil),
    "round": _round,
    "sqrt": lambda x: None if x < 0 else math.sqrt(x),
    "power": _power,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "trim": lambda s: s.strip(" "),
    "ltrim": lambda s: s.lstrip(" "),
    "rtrim": lambda s: s.rstrip(" "),
    "substring": _substring,
    "replace": lambda s, old, new: s.replace(old, new) if old else s,
    "starts_with": str.startswith,
    "date_trunc": _date_trunc,
    "year": lambda ts: ts.year,
    "month": lambda ts: ts.month,
    "day": lambda ts: ts.day,
    "hour": lambda ts: ts.hour,
    "minute": lambda ts: ts.minute,
    "second": lambda ts: (ts.second * 1_000_000 + ts.microsecond) / 1e6,
    "epoch": lambda ts: float((ts - EPOCH) // CHRONON) / 1e6,
}


# ---- casts ---------------------------------------------------------------------------------------------------------


def cast(value: Any, source: Type, target: Type) -> Value:
    """The value in another type; None where a text does not denote one or the type has no room for it."""
    if value is None or source == target:
        return None if value is None else fit(value, target)
    match source.name, target.name:
        case _, "VARCHAR":
            return show(value)
        case "VARCHAR", _:
            return parse(value, target)
        case "BOOLEAN", _:
            return int(value)
        case _, "BOOLEAN":
            return bool(value != 0)
        case "DATE", "TIMESTAMP":
            return datetime.combine(value, time())
        case "TIMESTAMP", "DATE":
            moment: datetime = value
            return moment.date()
        case _, "DOUBLE":
            return float(value)
        case "DOUBLE", _:
            return _double_to_exact(value, target)
        case "DECIMAL", "INT" | "BIGINT":
            return fit(value.quantize(_unit(0), ROUND_HALF_UP, _EXACT), target)
    return fit(Decimal(value) if target.name == "DECIMAL" else value, target)


def _double_to_exact(value: float, target: Type) -> Value:
    """To an integer, half to even; to a DECIMAL, as `round` does."""
    if not math.isfinite(value):
        return None
    if target.name != "DECIMAL":
        return fit(round(value), target)
    scaled = value * float(10**target.scale)
    if not math.isfinite(scaled):
        return None
    return fit(_EXACT.scaleb(Decimal(int(_half_away(scaled))), -target.scale), target)


def show(value: Value) -> str:
    """The text form of a value, as PostgreSQL writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _show_double(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            text = value.isoformat(" ", "microseconds")
            return text.rstrip("0").rstrip(".")
        case date():
            return value.isoformat()
    return str(value)


def _show_double(value: float) -> str:
    """The fewest digits that denote the DOUBLE; an exponent below 0.0001 and from 1e15 on."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    exact = Decimal(repr(abs(value)))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0") or "0"
    exponent = exact.adjusted() if exact else 0
    if -4 <= exponent < 15:
        fixed = format(exact, "f")
        return sign + (fixed.rstrip("0").rstrip(".") if "." in fixed else fixed)
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{exponent:+03d}"


def parse(text: str, kind: Type) -> Value:
    """The value that a text denotes, blanks around it aside; None if it denotes none."""
    text = text.strip(BLANKS) if kind.name != "VARCHAR" else text
    match kind.name:
        case "VARCHAR":
            return text
        case "BOOLEAN":
            word = text.lower()
            return True if word in TRUE_TEXTS else False if word in FALSE_TEXTS else None
        case "INT" | "BIGINT":
            return fit(_bounded_int(text), kind) if re.fullmatch(INTEGER_TEXT, text) else None
        case "DOUBLE":
            return _parse_double(text)
        case "DECIMAL":
            return _parse_decimal(text, kind)
        case "DATE":
            moment = _parse_timestamp(text, zoned=False)
            return None if moment is None else moment.date()
        case "TIMESTAMP":
            return _parse_timestamp(text, zoned=True)
    raise AssertionError(f"no text denotes a value of type {kind}")


def _bounded_int(text: str) -> int:
    """An integer, or, where it has more digits than anything here can use, some integer of its sign as useless."""
    digits = text.lstrip("+-").lstrip("0")[:30]
    return int(digits or 0) * (-1 if text.startswith("-") else 1)


def _parse_double(text: str) -> float | None:
    if re.fullmatch(r"[+-]?(?:inf|infinity|nan)", text, re.IGNORECASE | re.ASCII):
        return float(text)
    if not _is_number(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _is_number(text: str) -> bool:
    found = re.fullmatch(NUMBER_TEXT, text)
    return found is not None and bool(found[2] or found[3])


def _parse_decimal(text: str, kind: Type) -> Decimal | None:
    found = re.fullmatch(NUMBER_TEXT, text)
    if found is None or not (found[2] or found[3]):
        return None
    sign, whole, fraction, exponent = found[1], found[2], found[3] or "", _bounded_int(found[4] or "0")
    digits = (whole + fraction).lstrip("0")
    leading = len(digits) - len(fraction) + exponent  # how many digits are before the point
    if not digits or leading < -kind.scale:
        return _unit(kind.scale) * 0
    if leading > kind.precision:
        return None
    exact = Decimal(f"{sign}{digits}e{exponent - len(fraction)}")
    rounded = exact.quantize(_unit(kind.scale), ROUND_HALF_UP, Context(prec=len(digits) + 120))
    return _fit_decimal(rounded, kind)


def _parse_timestamp(text: str, zoned: bool) -> datetime | None:
    """An ISO text; without a zone it is UTC. Digits below a microsecond are rounded, as in PostgreSQL."""
    found = re.fullmatch(TIMESTAMP_TEXT, text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction, sign, zone_hour, zone_minute = found[7] or "", found[8], int(found[9] or 0), int(found[10] or 0)
    if zone_hour > 23 or zone_minute > 59:
        return None
    micros = int(fraction[:6].ljust(6, "0")) + (fraction[6:7] >= "5")
    zone = timedelta(hours=zone_hour, minutes=zone_minute) * (-1 if sign == "-" else 1)
    try:
        local = datetime(year, month, day, hour, minute, second)
        return local + micros * CHRONON - zone if zoned else local
    except (ValueError, OverflowError):
        return None

"""Values and their types: order, range, text form, casts. Slow and obvious, as the whole reference semantics.

None is NULL. A DOUBLE that is NaN equals itself and is greater than every number, so that grouping and sorting are
sound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from typing import Any, Final, TypeVar

from strandline.core.types import Type
from strandline.logical.expressions import Value

T = TypeVar("T")

LARGEST_SQUARED: Final = 2.0**511  # beyond this a DOUBLE has no square, and its group no variance but NaN
SMALLEST_MULTIPLIED: Final = 2.0**-485  # the product of two numbers from here on ends at 2^-1074 at the latest
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

EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)  # exact for DECIMALs; "half up" is away from zero


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1: the order of two values of one type, neither of them NULL. Texts compare by code point.

    Arrays compare by the first element in which they differ, where NULL is the greatest; a prefix comes before its
    extensions.
    """
    if isinstance(left, tuple):
        pairs = zip(left, right, strict=False)
        different = (order for a, b in pairs if (order := _compare_elements(a, b)))
        return next(different, (len(left) > len(right)) - (len(left) < len(right)))
    if isinstance(left, float) and isinstance(right, float) and (left != left or right != right):
        return (left != left) - (right != right)
    return int(left > right) - int(left < right)


def _compare_elements(left: Any, right: Any) -> int:
    if left is None or right is None:
        return (left is None) - (right is None)
    return compare(left, right)


def best(values: list[Any], sign: int) -> Value:
    best: Value = values[0]
    for value in values[1:]:
        if compare(value, best) == sign:
            best = value
    return best


def fit(value: Any, kind: Type) -> Value:
    """The value in the form of its type; None if it is out of range."""
    match kind.name:
        case "INT":
            return int(value) if value is not None and -(2**31) <= value < 2**31 else None
        case "BIGINT" | "INTERVAL":
            return int(value) if value is not None and -(2**63) <= value < 2**63 else None
        case "DECIMAL":
            return None if value is None else fit_decimal(Decimal(value), kind)
    result: Value = value
    return result


def fit_decimal(value: Decimal, kind: Type) -> Decimal | None:
    if value.copy_abs() > 10**40:  # also keeps `quantize` within its precision
        return None
    result = EXACT.plus(EXACT.quantize(value, unit(kind.scale)))  # "plus": DECIMAL has no negative zero
    return result if result.copy_abs() < 10 ** (kind.precision - kind.scale) else None


@cache
def unit(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def in_calendar(moment: Callable[[], T]) -> T | None:
    """The calendar has the years 1 to 9999 and no 30th of February."""
    try:
        return moment()
    except (OverflowError, ValueError):
        return None


def half_away(value: float) -> float:
    """The whole number next to a finite DOUBLE; of two, the one further from zero."""
    fraction, whole = math.modf(value)
    return whole + math.copysign(1.0, value) if abs(fraction) >= 0.5 else whole


def cast(value: Any, source: Type, target: Type) -> Value:
    """The value in another type; None where a text is invalid or the value is out of range."""
    if value is None or source == target:
        return None if value is None else fit(value, target)
    match source.name, target.name:
        case "ARRAY", "ARRAY":
            assert source.element is not None and target.element is not None
            return tuple(cast(element, source.element, target.element) for element in value)
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
            return fit(value.quantize(unit(0), ROUND_HALF_UP, EXACT), target)
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
    return fit(EXACT.scaleb(Decimal(int(half_away(scaled))), -target.scale), target)


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
    """The value that a text denotes, ignoring blanks around it; None if it is invalid."""
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
        case "ARRAY":
            return None
    raise AssertionError(f"no text denotes a value of type {kind}")


def _bounded_int(text: str) -> int:
    """An integer; of one with more than 30 digits only the first 30, which are out of range as well."""
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
    match = re.fullmatch(NUMBER_TEXT, text)
    return match is not None and bool(match[2] or match[3])


def _parse_decimal(text: str, kind: Type) -> Decimal | None:
    match = re.fullmatch(NUMBER_TEXT, text)
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", _bounded_int(match[4] or "0")
    digits = (whole + fraction).lstrip("0")
    leading = len(digits) - len(fraction) + exponent  # how many digits are before the point
    if not digits or leading < -kind.scale:
        return unit(kind.scale) * 0
    if leading > kind.precision:
        return None
    exact = Decimal(f"{sign}{digits}e{exponent - len(fraction)}")
    rounded = exact.quantize(unit(kind.scale), ROUND_HALF_UP, Context(prec=len(digits) + 120))
    return fit_decimal(rounded, kind)


def _parse_timestamp(text: str, zoned: bool) -> datetime | None:
    """An ISO text; without a zone it is UTC. Digits below a microsecond are rounded, as in PostgreSQL."""
    match = re.fullmatch(TIMESTAMP_TEXT, text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction, sign, zone_hour, zone_minute = match[7] or "", match[8], int(match[9] or 0), int(match[10] or 0)
    if zone_hour > 23 or zone_minute > 59:
        return None
    micros = int(fraction[:6].ljust(6, "0")) + (fraction[6:7] >= "5")
    zone = timedelta(hours=zone_hour, minutes=zone_minute) * (-1 if sign == "-" else 1)
    try:
        local = datetime(year, month, day, hour, minute, second)
        return local + micros * CHRONON - zone if zoned else local
    except (ValueError, OverflowError):
        return None

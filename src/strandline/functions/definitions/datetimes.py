"""Functions of instants: what they take and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Final

from strandline.core.types import DATE, DOUBLE, INT, INTERVAL, TIMESTAMP, VARCHAR, Type
from strandline.functions.signatures import Function, FunctionError, Types, fixed
from strandline.logical.expressions import Expression, Literal
from strandline.logical.values import CHRONON, EPOCH, in_calendar

TRUNC_UNITS: Final = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
)

# The parts of an instant that EXTRACT and date_part take out. Each is a function of its own.
PARTS: Final = (
    "epoch",
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "dow",
    "isodow",
    "doy",
    "week",
    "month",
    "quarter",
    "year",
    "isoyear",
    "decade",
    "century",
    "millennium",
)


def trunc_unit(text: str) -> str | None:
    """The unit of TRUNC_UNITS that `text` names in any case, singular or plural."""
    unit = _singular(text)
    return unit if unit in TRUNC_UNITS else None


def part_of(text: str) -> str | None:
    """The function of PARTS that `text` names in any case, singular or plural."""
    unit = _singular(text)
    return next((part for part in PARTS if unit in (part, part.removesuffix("s"))), None)


def _singular(text: str) -> str:
    word = text.strip().lower()
    return {"centuries": "century", "millennia": "millennium"}.get(word, word.removesuffix("s"))


def _date_trunc(unit: str, moment: datetime) -> datetime | None:
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
        case "decade":  # the first one begins in the year 0, which the calendar does not have
            return midnight.replace(moment.year // 10 * 10, 1, 1) if moment.year >= 10 else None
        case "century":
            return midnight.replace((moment.year - 1) // 100 * 100 + 1, 1, 1)
        case "millennium":
            return midnight.replace((moment.year - 1) // 1000 * 1000 + 1, 1, 1)
    raise AssertionError(f"date_trunc('{unit}', …) passed the check of its unit")


def _known_unit(arguments: Sequence[Expression]) -> None:
    match arguments[0]:
        case Literal(str(unit), _):
            if trunc_unit(unit) is None:
                raise FunctionError(f"unknown unit '{unit}' of date_trunc", f"Units are {', '.join(TRUNC_UNITS)}.", 0)
        case _:
            raise FunctionError("the unit of date_trunc must be a text literal", "Write date_trunc('hour', ts).", 0)


def _date_bin(stride: int, moment: datetime, origin: datetime) -> datetime | None:
    if stride <= 0:
        return None
    steps = (moment - origin) // CHRONON // stride
    return in_calendar(lambda: origin + steps * stride * CHRONON)


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> datetime | None:
    """The 60th second and the 24th hour are those that follow, as long as they do not lead beyond midnight."""
    if not (abs(second) < 1e3 and 0 <= hour <= 24 and 0 <= minute <= 59):  # NaN, too
        return None
    micros = round(second * 1e6)
    since_midnight = (hour * 60 + minute) * 60_000_000 + micros
    if not (0 <= micros <= 60_000_000 and since_midnight <= 86_400_000_000):
        return None
    return in_calendar(lambda: datetime(year, month, day) + since_midnight * CHRONON)


def _to_timestamp(seconds: float) -> datetime | None:
    if not abs(seconds) < 1e12:  # NaN, too
        return None
    return in_calendar(lambda: EPOCH + round(seconds * 1e6) * CHRONON)


def _epoch_rule(types: Types) -> tuple[Types, Type] | None:
    return ((INTERVAL,), DOUBLE) if types == (INTERVAL,) else _SECONDS(types)


def _epoch(moment: datetime | int) -> float:
    return float(moment if isinstance(moment, int) else (moment - EPOCH) // CHRONON) / 1e6


def _microseconds(moment: datetime) -> int:
    return moment.second * 1_000_000 + moment.microsecond


_SECONDS = fixed(DOUBLE, TIMESTAMP)
_PART = fixed(INT, TIMESTAMP)

DECLARED: Final = (
    Function("date_trunc", "date_trunc('unit', ts)", "The start of the unit that holds ts.",
             2, 2, fixed(TIMESTAMP, VARCHAR, TIMESTAMP), _date_trunc, check=_known_unit),
    Function("date_bin", "date_bin(stride, ts, origin)",
             "The start of the span of that length, counted from the origin, that holds ts.",
             3, 3, fixed(TIMESTAMP, INTERVAL, TIMESTAMP, TIMESTAMP), _date_bin),
    Function("make_date", "make_date(year, month, day)", "A DATE; NULL if there is no such day.",
             3, 3, fixed(DATE, INT, INT, INT), lambda *parts: in_calendar(lambda: date(*parts))),
    Function("make_timestamp", "make_timestamp(year, month, day, hour, minute, second)",
             "A TIMESTAMP, the seconds with their fraction; NULL if there is no such instant.",
             6, 6, fixed(TIMESTAMP, INT, INT, INT, INT, INT, DOUBLE), _make_timestamp),
    Function("to_timestamp", "to_timestamp(seconds)", "The TIMESTAMP so many seconds after 1970-01-01 00:00:00 UTC.",
             1, 1, fixed(TIMESTAMP, DOUBLE), _to_timestamp),
    Function("year", "year(ts)", "The year.", 1, 1, _PART, lambda ts: ts.year),
    Function("isoyear", "isoyear(ts)", "The year that the week belongs to.",
             1, 1, _PART, lambda ts: ts.isocalendar()[0]),
    Function("quarter", "quarter(ts)", "The quarter, 1 to 4.", 1, 1, _PART, lambda ts: (ts.month + 2) // 3),
    Function("month", "month(ts)", "The month, 1 to 12.", 1, 1, _PART, lambda ts: ts.month),
    Function("week", "week(ts)", "The week of the year by ISO 8601: weeks begin on Monday, the first has a Thursday.",
             1, 1, _PART, lambda ts: ts.isocalendar()[1]),
    Function("day", "day(ts)", "The day of the month.", 1, 1, _PART, lambda ts: ts.day),
    Function("doy", "doy(ts)", "The day of the year, 1 to 366.", 1, 1, _PART, lambda ts: ts.timetuple().tm_yday),
    Function("dow", "dow(ts)", "The day of the week, 0 (Sunday) to 6.", 1, 1, _PART, lambda ts: ts.isoweekday() % 7),
    Function("isodow", "isodow(ts)", "The day of the week, 1 (Monday) to 7.", 1, 1, _PART, lambda ts: ts.isoweekday()),
    Function("hour", "hour(ts)", "The hour, 0 to 23.", 1, 1, _PART, lambda ts: ts.hour),
    Function("minute", "minute(ts)", "The minute, 0 to 59.", 1, 1, _PART, lambda ts: ts.minute),
    Function("second", "second(ts)", "The seconds within the minute, with their fraction.",
             1, 1, _SECONDS, lambda ts: _microseconds(ts) / 1e6),
    Function("milliseconds", "milliseconds(ts)", "The milliseconds within the minute, with their fraction.",
             1, 1, _SECONDS, lambda ts: _microseconds(ts) / 1e3),
    Function("microseconds", "microseconds(ts)", "The microseconds within the minute.", 1, 1, _PART, _microseconds),
    Function("decade", "decade(ts)", "The year over 10.", 1, 1, _PART, lambda ts: ts.year // 10),
    Function("century", "century(ts)", "The century; the 21st began in 2001.",
             1, 1, _PART, lambda ts: (ts.year + 99) // 100),
    Function("millennium", "millennium(ts)", "The millennium; the third began in 2001.",
             1, 1, _PART, lambda ts: (ts.year + 999) // 1000),
    Function("epoch", "epoch(ts)", "Seconds since 1970-01-01 00:00:00 UTC, or of an INTERVAL, with their fraction.",
             1, 1, _epoch_rule, _epoch),
)  # fmt: skip

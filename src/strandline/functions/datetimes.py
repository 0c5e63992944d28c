"""Functions of instants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from strandline.core.lazy import pl
from strandline.core.temporal import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from strandline.core.types import DATE, DOUBLE, INT, INTERVAL, TIMESTAMP, VARCHAR
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import Function, FunctionError, fixed
from strandline.logical.expressions import Call, Expression, Literal
from strandline.logical.values import CHRONON, EPOCH, in_calendar
from strandline.runtime.kernels.columns import FIRST_INSTANT, LAST_INSTANT, bound, let, quotient, within


def trunc_unit(text: str) -> str | None:
    """The unit of TRUNC_UNITS that `text` names in any case, singular or plural."""
    unit = _singular(text)
    return unit if unit in _UNITS else None


def part_of(text: str) -> str | None:
    """The function of PARTS that `text` names in any case, singular or plural."""
    unit = _singular(text)
    return next((part for part in PARTS if unit in (part, part.removesuffix("s"))), None)


def _singular(text: str) -> str:
    word = text.strip().lower()
    return {"centuries": "century", "millennia": "millennium"}.get(word, word.removesuffix("s"))


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _date_trunc(unit: str, moment: datetime) -> datetime | None:
    return _UNITS[_singular(unit)].start(moment)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _check_unit(arguments: Sequence[Expression]) -> None:
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


def _epoch(moment: datetime | int) -> float:
    return float(moment if isinstance(moment, int) else (moment - EPOCH) // CHRONON) / 1e6


def _microseconds(moment: datetime) -> int:
    return moment.second * 1_000_000 + moment.microsecond


# ---- over columns ----------------------------------------------------------------------------------------------------


def _date_trunc_columns(call: Call, _: pl.Expr, moment: pl.Expr) -> pl.Expr:
    columns = _UNITS[_unit_name(call)].columns
    return moment.dt.truncate(columns) if isinstance(columns, str) else columns(moment)


def _instant(micros: pl.Expr) -> pl.Expr:
    """The instant some microseconds after the start of 1970; NULL outside of the calendar."""
    return within(micros, FIRST_INSTANT, LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us"))


def _days(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """From 1970 to a day; NULL if there is no such day, for which Polars raises."""
    return let(
        (year, month, day),
        lambda y, m, d: pl.date(pl.when(y.is_between(1, 9999)).then(y), pl.when(m.is_between(1, 12)).then(m), 1),
        lambda y, m, d, first: pl.when(d.is_between(1, first.dt.days_in_month())).then(first.to_physical() + d - 1),
    )


def _make_timestamp_columns(_: Call, *parts: pl.Expr) -> pl.Expr:
    year, month, day, hour, minute, second = parts
    return bound(
        (_days(year, month, day).cast(pl.Int64), hour.cast(pl.Int64), minute.cast(pl.Int64), second),
        lambda d, h, m, s: (s * 1e6).round(mode="half_to_even").cast(pl.Int64, strict=False),
        lambda d, h, m, s, micros: pl.when(
            h.is_between(0, 24) & m.is_between(0, 59) & micros.is_between(0, MINUTE)
        ).then(h * HOUR + m * MINUTE + micros),
        lambda d, h, m, s, micros, since_midnight: _instant(
            d * DAY + pl.when(since_midnight <= DAY).then(since_midnight)
        ),
    )


def _date_bin_columns(_: Call, stride: pl.Expr, moment: pl.Expr, origin: pl.Expr) -> pl.Expr:
    return let(
        (stride, moment.to_physical(), origin.to_physical()),
        lambda n, ts, start: pl.when(n > 0).then((ts - start) // n * n + start),
        # Far before the calendar it may wrap around, but then to far behind it.
        lambda n, ts, start, begin: _instant(begin),
    )


def _microsecond_columns(moment: pl.Expr) -> pl.Expr:
    return moment.to_physical() % MINUTE


# ---- the units of date_trunc -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of date_trunc.

    start        of the one that holds an instant; None if that is outside of the calendar
    columns      the same over a column, or the name of the unit in Polars
    granularity  of the starts
    """

    start: Callable[[datetime], datetime | None]
    columns: str | Callable[[pl.Expr], pl.Expr]
    granularity: int = DAY


def _years(count: int, first: int) -> _Unit:
    """Spans of years; they begin with the years that leave `first` when divided by their length."""

    def start(moment: datetime) -> datetime | None:
        year = (moment.year - first) // count * count + first
        return datetime(year, 1, 1) if year else None  # the calendar has no year 0

    def start_columns(moment: pl.Expr) -> pl.Expr:
        year = (moment.dt.year() - first) // count * count + first
        return let((year,), lambda y: pl.datetime(pl.when(y > 0).then(y), 1, 1))

    return _Unit(start, start_columns)


_UNITS: Final[Mapping[str, _Unit]] = {
    "microsecond": _Unit(lambda ts: ts, "1us", MICROSECOND),
    "millisecond": _Unit(lambda ts: ts.replace(microsecond=ts.microsecond // 1000 * 1000), "1ms", MILLISECOND),
    "second": _Unit(lambda ts: ts.replace(microsecond=0), "1s", SECOND),
    "minute": _Unit(lambda ts: ts.replace(second=0, microsecond=0), "1m", MINUTE),
    "hour": _Unit(lambda ts: ts.replace(minute=0, second=0, microsecond=0), "1h", HOUR),
    "day": _Unit(_midnight, "1d"),
    "week": _Unit(lambda ts: _midnight(ts) - timedelta(days=ts.weekday()), "1w"),  # weeks begin on Monday
    "month": _Unit(lambda ts: datetime(ts.year, ts.month, 1), "1mo"),
    "quarter": _Unit(lambda ts: datetime(ts.year, (ts.month - 1) // 3 * 3 + 1, 1), "1q"),
    "year": _Unit(lambda ts: datetime(ts.year, 1, 1), "1y"),
    "decade": _years(10, 0),
    "century": _years(100, 1),
    "millennium": _years(1000, 1),
}
TRUNC_UNITS: Final = tuple(_UNITS)


def _unit_name(call: Call) -> str:
    match call.arguments[0]:
        case Literal(str(text), _) if (name := trunc_unit(text)) is not None:
            return name
    raise AssertionError("the unit is checked when the query is bound")


def _duckdb_date_trunc(call: SqlCall) -> str:
    """DuckDB's centuries begin a year too early."""
    unit = _unit_name(call.expression)
    if unit in ("century", "millennium"):
        years = 100 if unit == "century" else 1000
        first = f"(extract(year FROM {{1}}) - 1) // {years} * {years} + 1"
        return call.spelled(f"CAST(make_date({first}, 1, 1) AS TIMESTAMP)")
    return call.spelled(f"{{h}}in_calendar(date_trunc('{unit}', {{1}}))")


# ---- declarations ----------------------------------------------------------------------------------------------------

_SECONDS = fixed(DOUBLE, TIMESTAMP)
_PART = fixed(INT, TIMESTAMP)
_SINCE_MINUTE: Final = "{h}micros({0} - date_trunc('minute', {0}) + TIMESTAMP '1970-01-01')"


def _part(
    name: str,
    doc: str,
    meaning: Callable[[datetime], int],
    column: Callable[[pl.Expr], pl.Expr],
    granularity: int | None = DAY,
    cost: int | None = 15,
) -> Function:
    """A part of an instant that is a whole number; databases know it by its name."""
    return Function(name, f"{name}(ts)", doc, 1, 1, _PART, meaning, lambda _, ts: column(ts).cast(pl.Int32),
                    sql=f"CAST(extract({name} FROM {{0}}) AS INTEGER)", cost=cost, granularity=granularity)  # fmt: skip


_PART_FUNCTIONS: Final = (
    _part("year", "The year.", lambda ts: ts.year, lambda ts: ts.dt.year()),
    _part("isoyear", "The year that the week belongs to.", lambda ts: ts.isocalendar()[0], lambda ts: ts.dt.iso_year()),
    _part("quarter", "The quarter, 1 to 4.", lambda ts: (ts.month + 2) // 3, lambda ts: ts.dt.quarter()),
    _part("month", "The month, 1 to 12.", lambda ts: ts.month, lambda ts: ts.dt.month()),
    _part("week", "The week of the year by ISO 8601: weeks begin on Monday, the first has a Thursday.",
          lambda ts: ts.isocalendar()[1], lambda ts: ts.dt.week()),
    _part("day", "The day of the month.", lambda ts: ts.day, lambda ts: ts.dt.day()),
    _part("doy", "The day of the year, 1 to 366.", lambda ts: ts.timetuple().tm_yday, lambda ts: ts.dt.ordinal_day()),
    _part("dow", "The day of the week, 0 (Sunday) to 6.",
          lambda ts: ts.isoweekday() % 7, lambda ts: ts.dt.weekday() % 7, cost=None),
    _part("isodow", "The day of the week, 1 (Monday) to 7.",
          lambda ts: ts.isoweekday(), lambda ts: ts.dt.weekday(), cost=None),
    _part("hour", "The hour, 0 to 23.", lambda ts: ts.hour, lambda ts: ts.dt.hour(), HOUR),
    _part("minute", "The minute, 0 to 59.", lambda ts: ts.minute, lambda ts: ts.dt.minute(), MINUTE),
    Function("second", "second(ts)", "The seconds within the minute, with their fraction.",
             1, 1, _SECONDS, lambda ts: _microseconds(ts) / 1e6,
             lambda _, ts: quotient(_microsecond_columns(ts).cast(pl.Float64), pl.lit(1e6)),
             sql=f"({_SINCE_MINUTE} / 1e6)"),
    Function("milliseconds", "milliseconds(ts)", "The milliseconds within the minute, with their fraction.",
             1, 1, _SECONDS, lambda ts: _microseconds(ts) / 1e3,
             lambda _, ts: quotient(_microsecond_columns(ts).cast(pl.Float64), pl.lit(1e3)),
             sql=f"({_SINCE_MINUTE} / 1e3)"),
    _part("microseconds", "The microseconds within the minute.", _microseconds, _microsecond_columns, None, None),
    _part("decade", "The year over 10.", lambda ts: ts.year // 10, lambda ts: ts.dt.year() // 10),
    _part("century", "The century; the 21st began in 2001.",
          lambda ts: (ts.year + 99) // 100, lambda ts: (ts.dt.year() + 99) // 100),
    _part("millennium", "The millennium; the third began in 2001.",
          lambda ts: (ts.year + 999) // 1000, lambda ts: (ts.dt.year() + 999) // 1000),
    Function("epoch", "epoch(ts)", "Seconds since 1970-01-01 00:00:00 UTC, or of an INTERVAL, with their fraction.",
             1, 1, lambda types: (types, DOUBLE) if types == (INTERVAL,) else _SECONDS(types), _epoch,
             lambda _, ts: quotient(ts.to_physical().cast(pl.Float64), pl.lit(1e6)),
             sql="({h}micros({0}) / 1e6)",
             duckdb={"BIGINT": "({0} / 1e6)"}, postgresql={"BIGINT": "(CAST({0} AS DOUBLE PRECISION) / 1e6)"}),
)  # fmt: skip
PARTS: Final = tuple(function.name for function in _PART_FUNCTIONS)
"""The parts of an instant that EXTRACT and date_part take out, each by the function of its name."""

FAMILY: Final = (
    Function("date_trunc", "date_trunc('unit', ts)", "The start of the unit that holds ts.",
             2, 2, fixed(TIMESTAMP, VARCHAR, TIMESTAMP), _date_trunc, _date_trunc_columns, check=_check_unit,
             sql="{h}in_calendar(date_trunc({0}, {1}))", duckdb=_duckdb_date_trunc, cost=15,
             granularity=lambda call: _UNITS[_unit_name(call)].granularity),
    Function("date_bin", "date_bin(stride, ts, origin)",
             "The start of the span of that length, counted from the origin, that holds ts.",
             3, 3, fixed(TIMESTAMP, INTERVAL, TIMESTAMP, TIMESTAMP), _date_bin, _date_bin_columns,
             sql="{h}bin({all})", cost=15),
    Function("make_date", "make_date(year, month, day)", "A DATE; NULL if there is no such day.",
             3, 3, fixed(DATE, INT, INT, INT), lambda *parts: in_calendar(lambda: date(*parts)),
             lambda _, *parts: _days(*parts).cast(pl.Date), sql="{h}date_of({all})", cost=40),
    Function("make_timestamp", "make_timestamp(year, month, day, hour, minute, second)",
             "A TIMESTAMP, the seconds with their fraction; NULL if there is no such instant.",
             6, 6, fixed(TIMESTAMP, INT, INT, INT, INT, INT, DOUBLE), _make_timestamp, _make_timestamp_columns,
             sql="{h}moment_of({all})", cost=40),
    Function("to_timestamp", "to_timestamp(seconds)",
             "The TIMESTAMP so many seconds after 1970-01-01 00:00:00 UTC; or a text, read.",
             1, 1, fixed(TIMESTAMP, DOUBLE), _to_timestamp,
             lambda _, s: _instant((s * 1e6).round(mode="half_to_even").cast(pl.Int64, strict=False)),
             sql="{h}moment_of_seconds({0})", cost=40),
    *_PART_FUNCTIONS,
)  # fmt: skip

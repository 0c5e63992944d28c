"""Functions of instants over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.core.temporal import DAY, HOUR, MINUTE
from strandline.functions.definitions.datetimes import trunc_unit
from strandline.logical.expressions import Call, Literal
from strandline.runtime.kernels.columns import FIRST_INSTANT, LAST_INSTANT, bound, let, quotient, within

_TRUNCATION: Final[Mapping[str, str]] = {
    "microsecond": "1us",
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
    "week": "1w",
    "month": "1mo",
    "quarter": "1q",
    "year": "1y",
}


def _date_trunc(call: Call, _: pl.Expr, moment: pl.Expr) -> pl.Expr:
    match call.arguments[0]:
        case Literal(str(unit), _) if (known := trunc_unit(unit)) is not None:
            return _LONG_SPANS[known](moment) if known in _LONG_SPANS else moment.dt.truncate(_TRUNCATION[known])
    raise AssertionError("the unit of date_trunc is checked when the query is bound")


def _span(years: int, first: int) -> Callable[[pl.Expr], pl.Expr]:
    """The start of a span of years; the spans begin with the years that leave `first` when divided by it."""

    def start(moment: pl.Expr) -> pl.Expr:
        year = moment.dt.year().cast(pl.Int64)
        return let(((year - first) // years * years + first,), lambda y: _instant(days_before(y), pl.lit(0)))

    return start


def _instant(days: pl.Expr, micros: pl.Expr) -> pl.Expr:
    """An instant some days and microseconds after the start of 1970; NULL outside of the calendar."""
    return within(days * DAY + micros, FIRST_INSTANT, LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us"))


def days_before(year: pl.Expr) -> pl.Expr:
    """From 1970 to the first of January, by the rule of leap years."""
    last = year - 1
    return last * 365 + last // 4 - last // 100 + last // 400 - 719_162


def _days(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """From 1970 to a day; NULL if there is no such day."""
    return let(
        (year.cast(pl.Int64), month.cast(pl.Int64), day.cast(pl.Int64)),
        lambda y, m, d: (y % 4 == 0) & ((y % 100 != 0) | (y % 400 == 0)),
        # Months before this one, if February had 30 days, less what it lacks.
        lambda y, m, d, leap: (367 * m - 362) // 12 - pl.when(m > 2).then(2 - leap.cast(pl.Int64)).otherwise(0),
        lambda y, m, d, leap, before: pl.when(m == 2).then(28 + leap.cast(pl.Int64)).otherwise(30 + (m + m // 8) % 2),
        lambda y, m, d, leap, before, length: pl.when(
            y.is_between(1, 9999) & m.is_between(1, 12) & (d >= 1) & (d <= length)
        ).then(days_before(y) + before + d - 1),
    )


def _make_date(_: Call, year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    return _days(year, month, day).cast(pl.Int32).cast(pl.Date)


def _make_timestamp(_: Call, *parts: pl.Expr) -> pl.Expr:
    year, month, day, hour, minute, second = parts
    return bound(
        (_days(year, month, day), hour.cast(pl.Int64), minute.cast(pl.Int64), second),
        lambda d, h, m, s: (s * 1e6).round(mode="half_to_even").cast(pl.Int64, strict=False),
        lambda d, h, m, s, micros: pl.when(
            h.is_between(0, 24) & m.is_between(0, 59) & micros.is_between(0, MINUTE)
        ).then(h * HOUR + m * MINUTE + micros),
        lambda d, h, m, s, micros, since_midnight: _instant(d, pl.when(since_midnight <= DAY).then(since_midnight)),
    )


def _to_timestamp(_: Call, seconds: pl.Expr) -> pl.Expr:
    micros = (seconds * 1e6).round(mode="half_to_even").cast(pl.Int64, strict=False)
    return within(micros, FIRST_INSTANT, LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us"))


def _date_bin(_: Call, stride: pl.Expr, moment: pl.Expr, origin: pl.Expr) -> pl.Expr:
    return let(
        (stride, moment.to_physical(), origin.to_physical()),
        lambda n, ts, start: pl.when(n > 0).then((ts - start) // n * n + start),
        # Far before the calendar it may wrap around, but then to far behind it.
        lambda n, ts, start, begin: within(begin, FIRST_INSTANT, LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us")),
    )


def _microseconds(moment: pl.Expr) -> pl.Expr:
    return moment.to_physical() % MINUTE


def _epoch(_: Call, moment: pl.Expr) -> pl.Expr:
    return quotient(moment.to_physical().cast(pl.Float64), pl.lit(1e6))


def _part(take: Callable[[pl.Expr], pl.Expr]) -> Callable[..., pl.Expr]:
    return lambda _, ts: take(ts).cast(pl.Int32)


_LONG_SPANS: Final = {"decade": _span(10, 0), "century": _span(100, 1), "millennium": _span(1000, 1)}

CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "date_trunc": _date_trunc,
    "date_bin": _date_bin,
    "make_date": _make_date,
    "make_timestamp": _make_timestamp,
    "to_timestamp": _to_timestamp,
    "year": _part(lambda ts: ts.dt.year()),
    "isoyear": _part(lambda ts: ts.dt.iso_year()),
    "quarter": _part(lambda ts: ts.dt.quarter()),
    "month": _part(lambda ts: ts.dt.month()),
    "week": _part(lambda ts: ts.dt.week()),
    "day": _part(lambda ts: ts.dt.day()),
    "doy": _part(lambda ts: ts.dt.ordinal_day()),
    "dow": _part(lambda ts: ts.dt.weekday() % 7),
    "isodow": _part(lambda ts: ts.dt.weekday()),
    "hour": _part(lambda ts: ts.dt.hour()),
    "minute": _part(lambda ts: ts.dt.minute()),
    "second": lambda _, ts: quotient(_microseconds(ts).cast(pl.Float64), pl.lit(1e6)),
    "milliseconds": lambda _, ts: quotient(_microseconds(ts).cast(pl.Float64), pl.lit(1e3)),
    "microseconds": _part(_microseconds),
    "decade": _part(lambda ts: ts.dt.year() // 10),
    "century": _part(lambda ts: (ts.dt.year() + 99) // 100),
    "millennium": _part(lambda ts: (ts.dt.year() + 999) // 1000),
    "epoch": _epoch,
}

"""Arithmetic of the calendar, and time zones: differences in units, sums of units, local times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from strandline.core.lazy import pl
from strandline.core.temporal import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR, Type
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import Function, FunctionError, Types, fixed, is_implicitly_castable
from strandline.logical.expressions import Call, Expression, Literal
from strandline.logical.values import CHRONON, EPOCH, in_calendar
from strandline.runtime.kernels.columns import FIRST_INSTANT, LAST_INSTANT, bound, let, mapped, within

WEEK: Final = 7 * DAY
_FIXED: Final = {
    "microsecond": MICROSECOND, "millisecond": MILLISECOND, "second": SECOND, "minute": MINUTE, "hour": HOUR,
    "day": DAY, "week": WEEK,
}  # fmt: skip
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_SHORT: Final = {
    "us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "m": "minute", "min": "minute",
    "mi": "minute", "h": "hour", "hr": "hour", "hh": "hour", "d": "day", "dd": "day", "w": "week", "wk": "week",
    "mon": "month", "mm": "month", "q": "quarter", "qq": "quarter", "y": "year", "yr": "year", "yy": "year",
    "yyyy": "year", "ss": "second", "ww": "week",
}  # fmt: skip
UNITS: Final = (*_FIXED, *_MONTHS)
_MONDAY: Final = 3 * DAY  # from the Monday before 1970 to its first day
_MOST_MONTHS: Final = 120_000  # beyond the calendar


def unit_of(text: str) -> str | None:
    """The unit that a text names in any case, singular, plural or short."""
    word = text.strip().lower()
    word = _SHORT.get(word, word.removesuffix("s"))
    return word if word in UNITS else None


def _check_unit(name: str) -> Callable[[Sequence[Expression]], None]:
    def check(arguments: Sequence[Expression]) -> None:
        match arguments[0]:
            case Literal(str(unit), _):
                if unit_of(unit) is None:
                    raise FunctionError(f"unknown unit '{unit}' of {name}", f"Units are {', '.join(UNITS)}.", 0)
            case _:
                raise FunctionError(f"the unit of {name} must be a text literal", f"Write {name}('hour', …).", 0)

    return check


def _unit(call: Call) -> str:
    match call.arguments[0]:
        case Literal(str(text), _) if (unit := unit_of(text)) is not None:
            return unit
    raise AssertionError("the unit is checked when the query is bound")


def _check_zone(arguments: Sequence[Expression]) -> None:
    hint = "Write a name of the IANA time zone database, as in 'Europe/Berlin' or 'UTC'."
    match arguments[1]:
        case Literal(str(zone), _):
            try:
                ZoneInfo(zone)
            except (KeyError, ValueError, OSError):
                raise FunctionError(f"unknown time zone '{zone}'", hint, 1) from None
        case _:
            raise FunctionError("the time zone must be a text literal", hint, 1)


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _month_number(ts: datetime) -> int:
    return ts.year * 12 + ts.month - 1


def _micros(ts: datetime) -> int:
    return (ts - EPOCH) // CHRONON


def _date_diff(unit: str, a: datetime, b: datetime) -> int:
    """How often the unit begins between two instants."""
    word = unit_of(unit)
    assert word is not None, "the unit is checked when the query is bound"
    if word in _MONTHS:
        return _month_number(b) // _MONTHS[word] - _month_number(a) // _MONTHS[word]
    shift = _MONDAY if word == "week" else 0
    return (_micros(b) + shift) // _FIXED[word] - (_micros(a) + shift) // _FIXED[word]


def _timestampdiff(unit: str, a: datetime, b: datetime) -> int:
    """How many whole units lie between two instants."""
    if a > b:
        return -_timestampdiff(unit, b, a)
    word = unit_of(unit)
    assert word is not None, "the unit is checked when the query is bound"
    if word in _FIXED:
        return (b - a) // CHRONON // _FIXED[word]
    months = _month_number(b) - _month_number(a)
    reached = _add_months(a, months)
    return (months - (reached is not None and reached > b)) // _MONTHS[word]


def _add_months(ts: datetime, months: int) -> datetime | None:
    """The same day and time so many months later, or the last day of that month if it is shorter."""
    number = _month_number(ts) + months
    if not 12 <= number < 120_000:
        return None
    first = datetime(number // 12, number % 12 + 1, 1)
    days = (datetime(9999, 12, 31) if number == 119_999 else _first_of(number + 1) - timedelta(days=1)).day
    return first.replace(day=min(ts.day, days)) + (ts - datetime(ts.year, ts.month, ts.day))


def _first_of(number: int) -> datetime:
    return datetime(number // 12, number % 12 + 1, 1)


def _date_add(unit: str, count: int, ts: datetime) -> datetime | None:
    word = unit_of(unit)
    assert word is not None, "the unit is checked when the query is bound"
    if word in _MONTHS:
        return _add_months(ts, count * _MONTHS[word])
    return in_calendar(lambda: ts + count * _FIXED[word] * CHRONON)


def _epoch_in(size: int) -> Callable[[Any], Any]:
    def epoch(value: datetime | int) -> datetime | int | None:
        if isinstance(value, int):
            return in_calendar(lambda: EPOCH + value * size * CHRONON)
        return _micros(value) // size

    return epoch


def _from_utc(ts: datetime, zone: str) -> datetime | None:
    return in_calendar(lambda: ts.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None))


def _to_utc(ts: datetime, zone: str) -> datetime | None:
    """A local time that does not exist is one by the offset before, one that exists twice one by the offset after."""

    def instant() -> datetime:
        rules = ZoneInfo(zone)
        early, late = (ts.replace(tzinfo=rules, fold=fold).utcoffset() for fold in (0, 1))
        assert early is not None and late is not None, "a zone has an offset at every instant"
        # In a gap the first of both is less, where clocks are put back it is greater.
        return ts - min(early, late)

    return in_calendar(instant)


# ---- over columns ----------------------------------------------------------------------------------------------------


def _month_columns(ts: pl.Expr) -> pl.Expr:
    return ts.dt.year().cast(pl.Int64) * 12 + ts.dt.month().cast(pl.Int64) - 1


def _instant(micros: pl.Expr) -> pl.Expr:
    return within(micros, FIRST_INSTANT, LAST_INSTANT, pl.Int64()).cast(pl.Datetime("us"))


def _date_diff_columns(call: Call, _: pl.Expr, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    unit = _unit(call)
    if unit in _MONTHS:
        return _month_columns(b) // _MONTHS[unit] - _month_columns(a) // _MONTHS[unit]
    shift = _MONDAY if unit == "week" else 0
    return (b.to_physical() + shift) // _FIXED[unit] - (a.to_physical() + shift) // _FIXED[unit]


def _timestampdiff_columns(call: Call, _: pl.Expr, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    unit = _unit(call)
    if unit in _FIXED:
        return let(
            (a.to_physical(), b.to_physical()),
            lambda x, y: pl.when(x <= y).then((y - x) // _FIXED[unit]).otherwise(-((x - y) // _FIXED[unit])),
        )

    def since_month(ts: pl.Expr, last: pl.Expr) -> pl.Expr:
        """Since the start of the month, of a month that has a last day."""
        day = pl.min_horizontal(ts.dt.day().cast(pl.Int64), last.dt.days_in_month().cast(pl.Int64))
        return day * DAY + ts.to_physical() % DAY

    return bound(
        (a, b),
        lambda x, y: pl.min_horizontal(x, y),
        lambda x, y, low: pl.max_horizontal(x, y),
        lambda x, y, low, high: _month_columns(high) - _month_columns(low),
        lambda x, y, low, high, n: n - (since_month(low, high) > since_month(high, high)).cast(pl.Int64),
        lambda x, y, low, high, n, months: pl.when(x.is_not_null() & y.is_not_null()).then(
            pl.when(x <= y).then(months // _MONTHS[unit]).otherwise(-(months // _MONTHS[unit]))
        ),
    )


def _date_add_columns(call: Call, _: pl.Expr, count: pl.Expr, ts: pl.Expr) -> pl.Expr:
    unit = _unit(call)
    if unit in _FIXED:
        most = (LAST_INSTANT - FIRST_INSTANT) // _FIXED[unit] + 1
        return let(
            (within(count, -most, most, pl.Int64()), ts.to_physical()),
            lambda n, start: _instant(start + n * _FIXED[unit]),
        )
    return bound(
        (within(count, -_MOST_MONTHS, _MOST_MONTHS, pl.Int64()), ts),
        lambda n, start: within(_month_columns(start) + n * _MONTHS[unit], 12, 119_999, pl.Int64()),
        lambda n, start, number: pl.date((number // 12).cast(pl.Int32), (number % 12 + 1).cast(pl.Int8), 1),
        lambda n, start, number, first: pl.min_horizontal(
            start.dt.day().cast(pl.Int64), first.dt.days_in_month().cast(pl.Int64)
        ),
        lambda n, start, number, first, day: (
            (first.to_physical().cast(pl.Int64) + day - 1) * DAY + start.to_physical() % DAY
        ).cast(pl.Datetime("us")),
    )


def _epoch_columns(size: int) -> Callable[..., pl.Expr]:
    def epoch(call: Call, value: pl.Expr) -> pl.Expr:
        if call.type != TIMESTAMP:
            return value.to_physical() // size
        most = LAST_INSTANT // size + 1
        return _instant(within(value, FIRST_INSTANT // size - 1, most, pl.Int64()) * size)

    return epoch


def _in_zone(name: str) -> Callable[..., pl.Expr]:
    def columns(call: Call, ts: pl.Expr, _: pl.Expr) -> pl.Expr:
        zone = call.arguments[1]
        assert isinstance(zone, Literal), "the zone is checked when the query is bound"
        if zone.value is None:
            return pl.lit(None, dtype=pl.Datetime("us"))

        def shifted(moments: pl.Series) -> pl.Series:
            from strandline.runtime.kernels import time_zones

            move = time_zones.to_local if name == "from_utc_timestamp" else time_zones.to_utc
            micros = moments.to_physical()
            values = pl.Series(move(str(zone.value), micros.fill_null(0).to_numpy()))
            return values.set(micros.is_null() | ~values.is_between(FIRST_INSTANT, LAST_INSTANT), None).cast(
                pl.Datetime("us")
            )

        return mapped(ts, shifted, TIMESTAMP)

    return columns


# ---- declarations ----------------------------------------------------------------------------------------------------


def _epoch_rule(types: Types) -> tuple[Types, Type] | None:
    if types[0] != BIGINT and is_implicitly_castable(types[0], TIMESTAMP):
        return (TIMESTAMP,), BIGINT
    return ((BIGINT,), TIMESTAMP) if is_implicitly_castable(types[0], BIGINT) else None


def _unit_sql(template: Callable[[str], str]) -> Callable[[SqlCall], str]:
    return lambda call: call.spelled(template(_unit(call.expression)))


def _diff_sql(unit: str) -> str:
    if unit in _MONTHS:
        size = _MONTHS[unit]
        return f"({{h}}floor_quotient({{h}}months({{2}}), {size}) - {{h}}floor_quotient({{h}}months({{1}}), {size}))"
    shift, size = _MONDAY if unit == "week" else 0, _FIXED[unit]
    parts = (f"{{h}}floor_quotient({{h}}micros({{{place}}}) + {shift}, {size})" for place in (2, 1))
    return f"({' - '.join(parts)})"


def _whole_units_sql(unit: str) -> str:
    if unit in _FIXED:
        return f"{{h}}quotient({{h}}micros({{2}}) - {{h}}micros({{1}}), {_FIXED[unit]})"
    return f"{{h}}quotient({{h}}whole_months({{1}}, {{2}}), {_MONTHS[unit]})"


def _add_sql(unit: str) -> str:
    if unit in _FIXED:
        return f"{{h}}later({{2}}, {{h}}multiply({{1}}, {_FIXED[unit]}))"
    return f"{{h}}months_later({{2}}, {{h}}multiply({{1}}, {_MONTHS[unit]}))"


_DIFF = fixed(BIGINT, VARCHAR, TIMESTAMP, TIMESTAMP)
_ZONE = fixed(TIMESTAMP, TIMESTAMP, VARCHAR)


def _epoch_function(name: str, doc: str, size: int) -> Function:
    return Function(
        name, f"{name}(ts)", doc, 1, 1, _epoch_rule, _epoch_in(size), _epoch_columns(size), cost=15,
        sql={"TIMESTAMP": f"{{h}}floor_quotient({{h}}micros({{0}}), {size})",
             "BIGINT": f"{{h}}later(TIMESTAMP '1970-01-01', {{h}}multiply({{0}}, {size}))"})  # fmt: skip


FAMILY: Final = (
    Function("date_diff", "date_diff('unit', a, b)",
             "How often the unit begins after a and until b; weeks begin on Monday.",
             3, 3, _DIFF, _date_diff, _date_diff_columns, check=_check_unit("date_diff"), sql=_unit_sql(_diff_sql),
             cost=40),
    Function("timestampdiff", "timestampdiff('unit', a, b)", "How many whole units pass from a to b.",
             3, 3, _DIFF, _timestampdiff, _timestampdiff_columns, check=_check_unit("timestampdiff"),
             sql=_unit_sql(_whole_units_sql), cost=60),
    Function("date_add", "date_add('unit', n, ts)",
             "The instant n units later; of months, on the same day or the last of the month.",
             3, 3, fixed(TIMESTAMP, VARCHAR, BIGINT, TIMESTAMP), _date_add, _date_add_columns,
             check=_check_unit("date_add"), sql=_unit_sql(_add_sql), cost=60),
    _epoch_function("epoch_ms", "Milliseconds since 1970-01-01 00:00:00 UTC; of a number, the instant.", MILLISECOND),
    _epoch_function("epoch_us", "Microseconds since 1970-01-01 00:00:00 UTC; of a number, the instant.", MICROSECOND),
    Function("from_utc_timestamp", "from_utc_timestamp(ts, 'zone')", "The local time of an instant in a time zone.",
             2, 2, _ZONE, _from_utc, _in_zone("from_utc_timestamp"), check=_check_zone, cost=60,
             sql="{h}in_calendar(({0} AT TIME ZONE 'UTC') AT TIME ZONE {1})"),
    Function("to_utc_timestamp", "to_utc_timestamp(ts, 'zone')",
             "The instant of a local time, also ts AT TIME ZONE 'zone'.",
             2, 2, _ZONE, _to_utc, _in_zone("to_utc_timestamp"), check=_check_zone, cost=60,
             sql="{h}in_calendar(({0} AT TIME ZONE {1}) AT TIME ZONE 'UTC')"),
)  # fmt: skip

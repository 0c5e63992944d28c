"""Instants as texts of a given form: `to_char`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Final, TypeAlias

from strandline.core.lazy import pl
from strandline.core.temporal import DAY, HOUR, MICROSECOND, MILLISECOND, SECOND
from strandline.core.types import TIMESTAMP, VARCHAR
from strandline.functions import datetimes
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import Function, FunctionError, fixed
from strandline.logical.expressions import Call, Expression, Literal
from strandline.logical.values import EPOCH
from strandline.runtime.kernels.columns import constant

# ---- the parts of an instant -----------------------------------------------------------------------------------------

_MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                  "November", "December")  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_JULIAN_EPOCH: Final = 2_440_588  # the Julian day of 1970-01-01


@dataclass(frozen=True, slots=True)
class _Part:
    """A number that a form may show: of an instant, over a column, in DuckDB; and its granularity."""

    meaning: Callable[[datetime], int]
    column: Callable[[pl.Expr], pl.Expr]
    duckdb: str
    granularity: int = DAY


def _field(name: str) -> _Part:
    """The same as a function of this name gives."""
    function = next(function for function in datetimes.FAMILY if function.name == name)
    assert isinstance(function.granularity, int), "a field that stays for a while"
    column = partial(function.vectorized, None)
    return _Part(function.meaning, column, f"extract({name} FROM {{0}})", function.granularity)


_FIELDS: Final = ("year", "isoyear", "century", "quarter", "month", "week", "day", "doy", "isodow", "hour", "minute")
_PARTS: Final[Mapping[str, _Part]] = {
    **{name: _field(name) for name in _FIELDS},
    "week of year": _Part(lambda ts: (ts.timetuple().tm_yday + 6) // 7, lambda ts: (ts.dt.ordinal_day() + 6) // 7,
                          "((extract(doy FROM {0}) - 1) // 7 + 1)"),
    "week of month": _Part(lambda ts: (ts.day + 6) // 7, lambda ts: (ts.dt.day() + 6) // 7,
                           "((extract(day FROM {0}) - 1) // 7 + 1)"),
    "weekday from Sunday": _Part(lambda ts: ts.isoweekday() % 7 + 1, lambda ts: ts.dt.weekday() % 7 + 1,
                                 "(extract(dow FROM {0}) + 1)"),
    "julian day": _Part(lambda ts: (ts - EPOCH).days + _JULIAN_EPOCH,
                        lambda ts: ts.to_physical() // DAY + _JULIAN_EPOCH,
                        "CAST(julian(CAST({0} AS DATE)) AS BIGINT)"),
    "half": _Part(lambda ts: ts.hour // 12 + 1, lambda ts: ts.dt.hour() // 12 + 1,
                  "CASE WHEN extract(hour FROM {0}) < 12 THEN 1 ELSE 2 END", HOUR),
    "hour of half": _Part(
        lambda ts: (ts.hour + 11) % 12 + 1, lambda ts: (ts.dt.hour() + 11) % 12 + 1,
        "CASE WHEN extract(hour FROM {0}) % 12 = 0 THEN 12 ELSE extract(hour FROM {0}) % 12 END", HOUR),
    "second": _Part(lambda ts: ts.second, lambda ts: ts.dt.second(), "extract(second FROM {0})", SECOND),
    "second of day": _Part(
        lambda ts: ts.hour * 3600 + ts.minute * 60 + ts.second, lambda ts: ts.to_physical() % DAY // SECOND,
        "date_diff('second', date_trunc('day', {0}), date_trunc('second', {0}))", SECOND),
    "millisecond": _Part(lambda ts: ts.microsecond // 1000, lambda ts: ts.to_physical() % SECOND // 1000,
                         "(extract(millisecond FROM {0}) % 1000)", MILLISECOND),
    "microsecond": _Part(lambda ts: ts.microsecond, lambda ts: ts.to_physical() % SECOND,
                         "(extract(microsecond FROM {0}) % 1000000)", MICROSECOND),
}  # fmt: skip

# ---- forms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Digits:
    """A part of the instant as a number: its last `last` digits, with zeros before it up to `width`."""

    part: str
    width: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class _Name:
    """A part of the instant, which counts from 1, as a name."""

    part: str
    names: tuple[str, ...]


_Token: TypeAlias = str | _Digits | _Name

_NUMBERS: Final[Mapping[str, _Digits]] = {
    "YYYY": _Digits("year", 4),
    "YYY": _Digits("year", 3, 3),
    "YY": _Digits("year", 2, 2),
    "Y": _Digits("year", 1, 1),
    "IYYY": _Digits("isoyear", 4),
    "CC": _Digits("century", 2),
    "Q": _Digits("quarter", 1),
    "MM": _Digits("month", 2),
    "WW": _Digits("week of year", 2),
    "W": _Digits("week of month", 1),
    "IW": _Digits("week", 2),
    "DDD": _Digits("doy", 3),
    "DD": _Digits("day", 2),
    "D": _Digits("weekday from Sunday", 1),
    "ID": _Digits("isodow", 1),
    "J": _Digits("julian day", 1),
    "HH24": _Digits("hour", 2),
    "HH12": _Digits("hour of half", 2),
    "HH": _Digits("hour of half", 2),
    "MI": _Digits("minute", 2),
    "SSSSS": _Digits("second of day", 1),
    "SSSS": _Digits("second of day", 1),
    "SS": _Digits("second", 2),
    "MS": _Digits("millisecond", 3),
    "US": _Digits("microsecond", 6),
}
_NAMES: Final[Mapping[str, _Name]] = {
    "Month": _Name("month", _MONTHS),
    "Mon": _Name("month", tuple(month[:3] for month in _MONTHS)),
    "Day": _Name("isodow", _DAYS),
    "Dy": _Name("isodow", tuple(day[:3] for day in _DAYS)),
}
_HALVES: Final = {"AM": ("AM", "PM"), "PM": ("AM", "PM"), "A.M.": ("A.M.", "P.M."), "P.M.": ("A.M.", "P.M.")}

_WORDS: Final = sorted((*_NUMBERS, *(name.upper() for name in _NAMES), *_HALVES), key=len, reverse=True)
_LEXER: Final = re.compile(
    rf'"([^"]*)"|(FM)?({"|".join(map(re.escape, _WORDS))})|([^A-Za-z"])', re.IGNORECASE | re.DOTALL
)


@lru_cache(maxsize=256)
def _tokens(form: str) -> tuple[_Token, ...]:
    """What a form consists of. A word in it must be known, or in double quotes."""
    tokens: list[_Token] = []
    at = 0
    while at < len(form):
        match = _LEXER.match(form, at)
        if match is None:
            hint = 'Put literal text in double quotes: "T".'
            raise FunctionError(f"invalid format of to_char: {form[at:]}", hint, 1)
        quoted, fill_mode, word, other = match.groups()
        tokens.append(_token(word, fill_mode is not None) if word else quoted if quoted is not None else other)
        at = match.end()
    return tuple(tokens)


def _token(word: str, bare: bool) -> _Token:
    """`bare` is the FM before it: without zeros and blanks that only fill."""
    if (number := _NUMBERS.get(word.upper())) is not None:
        fills = not bare or word.upper() in ("MS", "US")
        return number if fills else _Digits(number.part, 1, number.last)
    if word.upper() in _HALVES:
        halves = _HALVES[word.upper()]
        return _Name("half", halves if word[0].isupper() else tuple(half.lower() for half in halves))
    name = _NAMES[word.capitalize()]
    change = str.upper if word.isupper() else str.capitalize if word[0].isupper() else str.lower
    width = 0 if bare or (len(word) <= 3 and word.capitalize() != "Day") else 9
    return _Name(name.part, tuple(change(label).ljust(width) for label in name.names))


# ---- meaning, over columns, and in DuckDB ----------------------------------------------------------------------------


def _to_char(moment: datetime, form: str) -> str | None:
    """No text at all, if the form is empty: as PostgreSQL has it."""
    return None if not form else "".join(_shown(token, moment) for token in _tokens(form))


def _shown(token: _Token, moment: datetime) -> str:
    match token:
        case _Digits(part, width, last):
            number = _PARTS[part].meaning(moment)
            return str(number % 10**last if last else number).zfill(width)
        case _Name(part, names):
            return names[_PARTS[part].meaning(moment) - 1]
    return token


def _to_char_columns(call: Call, moment: pl.Expr, _: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal("" | None, _):
            return constant(None, VARCHAR)
        case Literal(str(form), _):
            # A form may be without any part of the instant, and the column says where there is NULL.
            nothing = pl.when(moment.is_not_null()).then(pl.lit(""))
            return pl.concat_str(nothing, *(_shown_columns(token, moment) for token in _tokens(form)))
    raise AssertionError("the form of to_char is checked when the query is bound")


def _shown_columns(token: _Token, moment: pl.Expr) -> pl.Expr:
    match token:
        case _Digits(part, width, last):
            number = _PARTS[part].column(moment).cast(pl.Int64)
            return (number % 10**last if last else number).cast(pl.String).str.zfill(width)
        case _Name(part, names):
            number = _PARTS[part].column(moment).cast(pl.Int64)
            return number.replace_strict(list(range(1, len(names) + 1)), list(names), return_dtype=pl.String)
    return pl.lit(token)


def _duckdb_to_char(call: SqlCall) -> str:
    literals = call.literals()
    if literals is None or not literals[0]:
        return call.null
    nothing = f"CASE WHEN {call.arguments[0]} IS NOT NULL THEN '' END"
    return f"({' || '.join([nothing, *(_duckdb_shown(call, token) for token in _tokens(literals[0]))])})"


def _duckdb_shown(call: SqlCall, token: _Token) -> str:
    match token:
        case _Digits(part, width, last):
            number = _PARTS[part].duckdb.format(call.arguments[0])
            return f"{call.helper_prefix}zeros({f'{number} % {10**last}' if last else number}, {width})"
        case _Name(part, names):
            return f"([{', '.join(map(call.quote, names))}][{_PARTS[part].duckdb.format(call.arguments[0])}])"
    return call.quote(token)


def _granularity(call: Call) -> int | None:
    match call.arguments[1]:
        case Literal(str(form), _):
            parts = [_PARTS[token.part] for token in _tokens(form) if not isinstance(token, str)]
            return min((part.granularity for part in parts), default=DAY)
    return None


def _check_format(arguments: Sequence[Expression]) -> None:
    match arguments[1]:
        case Literal(None, _):
            return
        case Literal(str(form), _):
            _tokens(form)
            return
    raise FunctionError("the format of to_char must be a text literal", "Write to_char(ts, 'YYYY-MM-DD').", 1)


FAMILY: Final = (
    Function("to_char", "to_char(ts, 'form')", "The instant as text, as in to_char(ts, 'YYYY-MM-DD HH24:MI:SS').",
             2, 2, fixed(VARCHAR, TIMESTAMP, VARCHAR), _to_char, _to_char_columns, check=_check_format, cost=250,
             granularity=_granularity, duckdb=_duckdb_to_char, postgresql="to_char({0}, {1})"),
)  # fmt: skip

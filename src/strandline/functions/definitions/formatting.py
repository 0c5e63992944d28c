"""Instants as texts of a wanted form: what `to_char` takes and what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias

from strandline.core.types import TIMESTAMP, VARCHAR
from strandline.functions.signatures import Function, FunctionError, fixed
from strandline.logical.expressions import Expression, Literal
from strandline.logical.values import EPOCH

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                 "November", "December")  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
JULIAN_EPOCH: Final = 2_440_588  # the Julian day of 1970-01-01


@dataclass(frozen=True, slots=True)
class Digits:
    """A part of the instant as a number: its last `last` digits, with zeros before it up to `width`."""

    part: str
    width: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """A part of the instant, which counts from 1, as a name."""

    part: str
    names: tuple[str, ...]


Piece: TypeAlias = str | Digits | Name

# Each part of an instant that a form may show. The array form has the same keys.
PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "year": lambda ts: ts.year,
    "isoyear": lambda ts: ts.isocalendar()[0],
    "century": lambda ts: (ts.year + 99) // 100,
    "quarter": lambda ts: (ts.month + 2) // 3,
    "month": lambda ts: ts.month,
    "week": lambda ts: ts.isocalendar()[1],
    "week of year": lambda ts: (ts.timetuple().tm_yday + 6) // 7,
    "week of month": lambda ts: (ts.day + 6) // 7,
    "day": lambda ts: ts.day,
    "day of year": lambda ts: ts.timetuple().tm_yday,
    "weekday from Sunday": lambda ts: ts.isoweekday() % 7 + 1,
    "weekday": lambda ts: ts.isoweekday(),
    "julian day": lambda ts: (ts - EPOCH).days + JULIAN_EPOCH,
    "half": lambda ts: ts.hour // 12 + 1,
    "hour": lambda ts: ts.hour,
    "hour of half": lambda ts: (ts.hour + 11) % 12 + 1,
    "minute": lambda ts: ts.minute,
    "second": lambda ts: ts.second,
    "second of day": lambda ts: ts.hour * 3600 + ts.minute * 60 + ts.second,
    "millisecond": lambda ts: ts.microsecond // 1000,
    "microsecond": lambda ts: ts.microsecond,
}

_NUMBERS: Final[Mapping[str, Digits]] = {
    "YYYY": Digits("year", 4),
    "YYY": Digits("year", 3, 3),
    "YY": Digits("year", 2, 2),
    "Y": Digits("year", 1, 1),
    "IYYY": Digits("isoyear", 4),
    "CC": Digits("century", 2),
    "Q": Digits("quarter", 1),
    "MM": Digits("month", 2),
    "WW": Digits("week of year", 2),
    "W": Digits("week of month", 1),
    "IW": Digits("week", 2),
    "DDD": Digits("day of year", 3),
    "DD": Digits("day", 2),
    "D": Digits("weekday from Sunday", 1),
    "ID": Digits("weekday", 1),
    "J": Digits("julian day", 1),
    "HH24": Digits("hour", 2),
    "HH12": Digits("hour of half", 2),
    "HH": Digits("hour of half", 2),
    "MI": Digits("minute", 2),
    "SSSSS": Digits("second of day", 1),
    "SSSS": Digits("second of day", 1),
    "SS": Digits("second", 2),
    "MS": Digits("millisecond", 3),
    "US": Digits("microsecond", 6),
}
_NAMES: Final[Mapping[str, Name]] = {
    "Month": Name("month", MONTHS),
    "Mon": Name("month", tuple(month[:3] for month in MONTHS)),
    "Day": Name("weekday", DAYS),
    "Dy": Name("weekday", tuple(day[:3] for day in DAYS)),
}
_HALVES: Final = {"AM": ("AM", "PM"), "PM": ("AM", "PM"), "A.M.": ("A.M.", "P.M."), "P.M.": ("A.M.", "P.M.")}

_WORDS: Final = sorted((*_NUMBERS, *(name.upper() for name in _NAMES), *_HALVES), key=len, reverse=True)
_TOKEN: Final = re.compile(
    rf'"([^"]*)"|(FM)?({"|".join(map(re.escape, _WORDS))})|([^A-Za-z"])', re.IGNORECASE | re.DOTALL
)


class FormatError(ValueError):
    """A form holds a word without a meaning."""


@lru_cache(maxsize=256)
def pieces(form: str) -> tuple[Piece, ...]:
    """What a form consists of. A word in it must be known, or in double quotes."""
    found: list[Piece] = []
    at = 0
    while at < len(form):
        token = _TOKEN.match(form, at)
        if token is None:
            raise FormatError(form[at:])
        quoted, full, word, other = token.groups()
        found.append(_piece(word, full is not None) if word else quoted if quoted is not None else other)
        at = token.end()
    return tuple(found)


def _piece(word: str, bare: bool) -> Piece:
    """`bare` is the FM before it: without zeros and blanks that only fill."""
    if (number := _NUMBERS.get(word.upper())) is not None:
        fills = not bare or word.upper() in ("MS", "US")
        return number if fills else Digits(number.part, 1, number.last)
    if word.upper() in _HALVES:
        halves = _HALVES[word.upper()]
        return Name("half", halves if word[0].isupper() else tuple(half.lower() for half in halves))
    name = _NAMES[word.capitalize()]
    change = str.upper if word.isupper() else str.capitalize if word[0].isupper() else str.lower
    width = 0 if bare or (len(word) <= 3 and word.capitalize() != "Day") else 9
    return Name(name.part, tuple(change(each).ljust(width) for each in name.names))


def _to_char(moment: datetime, form: str) -> str | None:
    """No text at all, if the form is empty: as PostgreSQL has it."""
    return None if not form else "".join(_shown(piece, moment) for piece in pieces(form))


def _shown(piece: Piece, moment: datetime) -> str:
    match piece:
        case Digits(part, width, last):
            number = PARTS[part](moment)
            return str(number % 10**last if last else number).zfill(width)
        case Name(part, names):
            return names[PARTS[part](moment) - 1]
    return piece


def _known_form(arguments: Sequence[Expression]) -> None:
    match arguments[1]:
        case Literal(None, _):
            return
        case Literal(str(form), _):
            try:
                pieces(form)
                return
            except FormatError as error:
                raise FunctionError(
                    f"invalid format of to_char: {error}", 'Put literal text in double quotes: "T".', 1
                ) from None
    raise FunctionError("the format of to_char must be a text literal", "Write to_char(ts, 'YYYY-MM-DD').", 1)


DECLARED: Final = (
    Function("to_char", "to_char(ts, 'form')", "The instant as text, as in to_char(ts, 'YYYY-MM-DD HH24:MI:SS').",
             2, 2, fixed(VARCHAR, TIMESTAMP, VARCHAR), _to_char, check=_known_form),
)  # fmt: skip

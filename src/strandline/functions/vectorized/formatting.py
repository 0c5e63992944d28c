"""Instants as texts of a wanted form, over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.core.temporal import DAY, SECOND
from strandline.core.types import VARCHAR
from strandline.functions.definitions.formatting import JULIAN_EPOCH, Digits, Name, Piece, pieces
from strandline.logical.expressions import Call, Literal
from strandline.runtime.kernels.columns import constant

# What `algebra.scalars.formats.PARTS` means.
PARTS: Final[Mapping[str, Callable[[pl.Expr], pl.Expr]]] = {
    "year": lambda ts: ts.dt.year(),
    "isoyear": lambda ts: ts.dt.iso_year(),
    "century": lambda ts: (ts.dt.year() + 99) // 100,
    "quarter": lambda ts: ts.dt.quarter(),
    "month": lambda ts: ts.dt.month(),
    "week": lambda ts: ts.dt.week(),
    "week of year": lambda ts: (ts.dt.ordinal_day() + 6) // 7,
    "week of month": lambda ts: (ts.dt.day() + 6) // 7,
    "day": lambda ts: ts.dt.day(),
    "day of year": lambda ts: ts.dt.ordinal_day(),
    "weekday from Sunday": lambda ts: ts.dt.weekday() % 7 + 1,
    "weekday": lambda ts: ts.dt.weekday(),
    "julian day": lambda ts: ts.to_physical() // DAY + JULIAN_EPOCH,
    "half": lambda ts: ts.dt.hour() // 12 + 1,
    "hour": lambda ts: ts.dt.hour(),
    "hour of half": lambda ts: (ts.dt.hour() + 11) % 12 + 1,
    "minute": lambda ts: ts.dt.minute(),
    "second": lambda ts: ts.dt.second(),
    "second of day": lambda ts: ts.to_physical() % DAY // SECOND,
    "millisecond": lambda ts: ts.to_physical() % SECOND // 1000,
    "microsecond": lambda ts: ts.to_physical() % SECOND,
}


def _to_char(call: Call, moment: pl.Expr, _: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal("" | None, _):
            return constant(None, VARCHAR)
        case Literal(str(form), _):
            # A form may be without any part of the instant, and the column says where there is NULL.
            nothing = pl.when(moment.is_not_null()).then(pl.lit(""))
            return pl.concat_str(nothing, *(_shown(piece, moment) for piece in pieces(form)))
    raise AssertionError("the form of to_char is checked when the query is bound")


def _shown(piece: Piece, moment: pl.Expr) -> pl.Expr:
    match piece:
        case Digits(part, width, last):
            number = PARTS[part](moment).cast(pl.Int64)
            return (number % 10**last if last else number).cast(pl.String).str.zfill(width)
        case Name(part, names):
            numbers = list(range(1, len(names) + 1))
            return PARTS[part](moment).cast(pl.Int64).replace_strict(numbers, list(names), return_dtype=pl.String)
    return pl.lit(piece)


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {"to_char": _to_char}

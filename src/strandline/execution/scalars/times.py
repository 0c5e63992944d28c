"""Functions of instants over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.algebra.expressions import Call, Literal
from strandline.algebra.functions import trunc_unit
from strandline.execution.scalars.basis import quotient
from strandline.temporal import MINUTE

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
            return moment.dt.truncate(_TRUNCATION[known])
    raise AssertionError("the unit of date_trunc is checked when the query is bound")


def _second(_: Call, moment: pl.Expr) -> pl.Expr:
    return quotient((moment.to_physical() % MINUTE).cast(pl.Float64), pl.lit(1e6))


def _epoch(_: Call, moment: pl.Expr) -> pl.Expr:
    return quotient(moment.to_physical().cast(pl.Float64), pl.lit(1e6))


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "date_trunc": _date_trunc,
    "year": lambda _, ts: ts.dt.year().cast(pl.Int32),
    "month": lambda _, ts: ts.dt.month().cast(pl.Int32),
    "day": lambda _, ts: ts.dt.day().cast(pl.Int32),
    "hour": lambda _, ts: ts.dt.hour().cast(pl.Int32),
    "minute": lambda _, ts: ts.dt.minute().cast(pl.Int32),
    "second": _second,
    "epoch": _epoch,
}

"""Comparison, logic and choice over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import polars as pl

from strandline.logical.expressions import Call, Literal
from strandline.runtime.kernels.columns import Step, let, polars_type


def _in(call: Call, value: pl.Expr, *items: pl.Expr) -> pl.Expr:
    known = [item.value for item in call.arguments[1:] if isinstance(item, Literal)]
    if len(known) < len(items):
        return let((value, *items), lambda v, *entry: pl.any_horizontal(v == item for item in entry))
    kind = polars_type(call.arguments[0].type)
    found = value.is_in(pl.Series([item for item in known if item is not None], dtype=kind).implode())
    return pl.when(found).then(True).otherwise(None) if None in known else found


def _nullif(_: Call, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return let((left, right), lambda a, b: pl.when(a == b).then(None).otherwise(a))


def _greatest(call: Call, *values: pl.Expr) -> pl.Expr:
    if call.type.name != "DOUBLE":
        return pl.max_horizontal(values)
    return _pairwise(values, lambda a, b: pl.when(a.is_null() | (b > a)).then(b).otherwise(a))


def _least(call: Call, *values: pl.Expr) -> pl.Expr:
    if call.type.name != "DOUBLE":
        return pl.min_horizontal(values)
    return _pairwise(values, lambda a, b: pl.when(a.is_null() | (b < a)).then(b).otherwise(a))


def _pairwise(values: Sequence[pl.Expr], choose: Step) -> pl.Expr:
    result = values[0]
    for value in values[1:]:
        result = let((result, value), choose)
    return result


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "=": lambda _, a, b: a == b,
    "<>": lambda _, a, b: a != b,
    "<": lambda _, a, b: a < b,
    "<=": lambda _, a, b: a <= b,
    ">": lambda _, a, b: a > b,
    ">=": lambda _, a, b: a >= b,
    "and": lambda _, *parts: pl.all_horizontal(parts),
    "or": lambda _, *parts: pl.any_horizontal(parts),
    "not": lambda _, a: ~a,
    "is_null": lambda _, a: a.is_null(),
    "in": _in,
    "coalesce": lambda _, *values: pl.coalesce(values),
    "nullif": _nullif,
    "greatest": _greatest,
    "least": _least,
}

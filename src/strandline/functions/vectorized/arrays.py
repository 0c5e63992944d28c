"""Arrays over whole columns. What is done to elements is done to those of all arrays at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from strandline.core.types import BOOLEAN, VARCHAR, array_of
from strandline.logical.expressions import Call
from strandline.runtime.kernels.columns import let, stretched, together
from strandline.runtime.kernels.lists import elements, with_elements


def _subscript(_: Call, array: pl.Expr, place: pl.Expr) -> pl.Expr:
    return let(
        (array, place),
        lambda a, i: a.list.get(pl.when(i.is_between(1, a.list.len().cast(pl.Int64))).then(i - 1), null_on_oob=True),
    )


def _contains(columns: Sequence[pl.Series]) -> pl.Series:
    lists, wanted = (stretched(column, columns) for column in columns)
    content, sizes = elements(lists)
    row_of = np.repeat(np.arange(len(lists)), sizes)
    equal = (content == wanted[row_of]).fill_null(False).to_numpy()
    found = np.bincount(row_of[equal], minlength=len(lists)) > 0
    unknown = np.bincount(row_of[content.is_null().to_numpy()], minlength=len(lists)) > 0
    known = pl.Series(found | ~unknown) & lists.is_not_null() & (wanted.is_not_null() | pl.Series(sizes == 0))
    return pl.select(pl.when(known).then(pl.Series(found))).to_series()


def _to_string(_: Call, array: pl.Expr, separator: pl.Expr, null: pl.Expr | None = None) -> pl.Expr:
    if null is not None:
        array = together(_filled, array, null, kind=array_of(VARCHAR))
    return let((array, separator), lambda a, s: pl.when(s.is_not_null()).then(a.list.drop_nulls().list.join(s)))


def _filled(columns: Sequence[pl.Series]) -> pl.Series:
    lists, instead = (stretched(column, columns) for column in columns)
    content, sizes = elements(lists)
    filled = content.zip_with(content.is_not_null(), instead[np.repeat(np.arange(len(lists)), sizes)])
    return with_elements(lists, filled, sizes)


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "array": lambda _, *values: pl.concat_list(values),
    "[]": _subscript,
    "cardinality": lambda _, a: a.list.len().cast(pl.Int32),
    "array_contains": lambda _, a, x: together(_contains, a, x, kind=BOOLEAN),
    "array_to_string": _to_string,
}

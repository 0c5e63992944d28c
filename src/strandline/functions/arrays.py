"""Arrays. What is done to the elements of columns is done to those of all arrays at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from strandline.core.lazy import pl
from strandline.core.types import BIGINT, BOOLEAN, INT, INTERVAL, VARCHAR, Type, array_of
from strandline.functions.signatures import Function, Types, castable, is_implicitly_castable, meet
from strandline.logical.expressions import Call
from strandline.logical.values import compare
from strandline.runtime.kernels.columns import let, stretched, together
from strandline.runtime.kernels.lists import elements, with_elements

# ---- typing ----------------------------------------------------------------------------------------------------------


def _array_rule(types: Types) -> tuple[Types, Type] | None:
    """Arrays hold plain values: neither arrays nor lengths of time, which no column has."""
    kind = meet(types)
    if kind is None or kind == INTERVAL or kind.element is not None:
        return None
    return (kind,) * len(types), array_of(kind)


def _subscript_rule(types: Types) -> tuple[Types, Type] | None:
    array, index_type = types
    return (
        ((array, BIGINT), array.element)
        if array.element is not None and is_implicitly_castable(index_type, BIGINT)
        else None
    )


def _contains_rule(types: Types) -> tuple[Types, Type] | None:
    array, value = types
    kind = None if array.element is None else meet((array.element, value))
    return None if kind is None else ((array_of(kind), kind), BOOLEAN)


def _to_string_rule(types: Types) -> tuple[Types, Type] | None:
    array, *texts = types
    if (
        array.element is None
        or not castable(array.element, VARCHAR)
        or not all(is_implicitly_castable(t, VARCHAR) for t in texts)
    ):
        return None
    return (array_of(VARCHAR), *(VARCHAR for _ in texts)), VARCHAR


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _contains(array: tuple[Any, ...] | None, value: Any) -> bool | None:
    """An array without elements does not contain even NULL."""
    if array is None or (array and value is None):
        return None
    if any(element is not None and compare(element, value) == 0 for element in array):
        return True
    return None if None in array else False


def _element_at(array: tuple[Any, ...], index: int) -> Any:
    return array[index - (index > 0)] if 1 <= abs(index) <= len(array) else None


def _to_string(array: tuple[str | None, ...] | None, separator: str | None, null: str | None = None) -> str | None:
    if array is None or separator is None:
        return None
    texts = (null if element is None else element for element in array)
    return separator.join(text for text in texts if text is not None)


# ---- over columns ----------------------------------------------------------------------------------------------------


def _subscript(_: Call, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    return let(
        (array, index),
        lambda a, i: a.list.get(pl.when(i.is_between(1, a.list.len().cast(pl.Int64))).then(i - 1), null_on_oob=True),
    )


def _element_at_columns(_: Call, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    return let(
        (array, index),
        lambda a, i: a.list.len().cast(pl.Int64),
        lambda a, i, n: pl.when(i.is_between(1, n)).then(i - 1).when(i.is_between(-n, -1)).then(i + n),
        lambda a, i, n, place: a.list.get(place, null_on_oob=True),
    )


def _contains_columns(_: Call, array: pl.Expr, value: pl.Expr) -> pl.Expr:
    return let(
        (array, value),
        lambda a, v: (
            pl.when(a.list.contains(v, nulls_equal=False))
            .then(True)
            .when((a.list.len() == 0) | (v.is_not_null() & ~a.list.contains(None)))
            .then(False)
        ),
    )


def _to_string_columns(_: Call, array: pl.Expr, separator: pl.Expr, null: pl.Expr | None = None) -> pl.Expr:
    if null is not None:
        array = together(_filled, array, null, kind=array_of(VARCHAR))
    return let((array, separator), lambda a, s: pl.when(s.is_not_null()).then(a.list.drop_nulls().list.join(s)))


def _filled(columns: Sequence[pl.Series]) -> pl.Series:
    lists, instead = (stretched(column, columns) for column in columns)
    content, sizes = elements(lists)
    filled = content.zip_with(content.is_not_null(), instead[np.repeat(np.arange(len(lists)), sizes)])
    return with_elements(lists, filled, sizes)


# ---- declarations ----------------------------------------------------------------------------------------------------

FAMILY: Final = (
    Function("array", "array(a, …)", "The array of these values.", 1, None, _array_rule, lambda *v: v,
             lambda _, *values: pl.concat_list(values), strict=False,
             duckdb="CAST([{all}] AS {t})", postgresql="CAST(ARRAY[{all}] AS {t})"),
    Function("[]", "a[i]", "The i-th element of an array, counted from 1; NULL if there is none.",
             2, 2, _subscript_rule, lambda a, i: a[i - 1] if 1 <= i <= len(a) else None, _subscript,
             sql="CASE WHEN {1} BETWEEN 1 AND 2147483647 THEN ({0})[CAST({1} AS INTEGER)] END"),
    Function("cardinality", "cardinality(a)", "How many elements an array has, NULLs too.",
             1, 1, lambda types: None if types[0].element is None else (types, INT), len,
             lambda _, a: a.list.len().cast(pl.Int32),
             duckdb="CAST(len({0}) AS INTEGER)", postgresql="CAST(cardinality({0}) AS INTEGER)",
             aliases=("array_length", "array_size", "size")),
    Function("element_at", "element_at(a, i)",
             "The i-th element of an array, counted from 1, or from the end if i is negative; NULL if there is none.",
             2, 2, _subscript_rule, _element_at, _element_at_columns,
             sql="CASE WHEN abs(CAST({1} AS DECIMAL(38,0))) BETWEEN 1 AND 2147483647 "
                 "THEN ({0})[CAST(CASE WHEN {1} < 0 THEN cardinality({0}) + 1 + {1} ELSE {1} END AS INTEGER)] END",
             duckdb="CASE WHEN {1} BETWEEN -2147483647 AND 2147483647 THEN list_extract({0}, {1}) END",
             aliases=("list_extract", "list_element")),
    Function("array_contains", "array_contains(a, x)",
             "Whether x is an element; NULL if none equals it and one is NULL.",
             2, 2, _contains_rule, _contains, _contains_columns,
             strict=False, duckdb="{h}holds({0}, {1})", postgresql="({1} = ANY ({0}))",
             aliases=("list_contains", "list_has", "array_has")),
    Function("array_to_string", "array_to_string(a, s, null)",
             "The elements as text, separated by s; NULLs are left out, or stand as the third argument.",
             2, 3, _to_string_rule, _to_string, _to_string_columns, strict=False, cost=250,
             duckdb={"*, *": "{h}listed({0}, {1})",
                     "*, *, *": "{h}listed(list_transform({0}, lambda x: coalesce(x, {2})), {1})"},
             postgresql="array_to_string({all})", aliases=("array_join",)),
)  # fmt: skip

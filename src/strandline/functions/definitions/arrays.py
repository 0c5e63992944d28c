"""Arrays: what their functions take and what they mean."""

from __future__ import annotations

from typing import Any, Final

from strandline.core.types import BIGINT, BOOLEAN, INT, INTERVAL, VARCHAR, Type, array_of
from strandline.functions.signatures import Function, Types, castable, meet, widens
from strandline.logical.expressions import Value
from strandline.logical.values import compare


def _array(types: Types) -> tuple[Types, Type] | None:
    """Arrays hold plain values: neither arrays nor lengths of time, which no column has."""
    kind = meet(types)
    if kind is None or kind == INTERVAL or kind.element is not None:
        return None
    return (kind,) * len(types), array_of(kind)


def _subscript(types: Types) -> tuple[Types, Type] | None:
    array, place = types
    return ((array, BIGINT), array.element) if array.element is not None and widens(place, BIGINT) else None


def _cardinality(types: Types) -> tuple[Types, Type] | None:
    return None if types[0].element is None else (types, INT)


def _contains(types: Types) -> tuple[Types, Type] | None:
    array, value = types
    kind = None if array.element is None else meet((array.element, value))
    return None if kind is None else ((array_of(kind), kind), BOOLEAN)


def _to_string(types: Types) -> tuple[Types, Type] | None:
    array, *texts = types
    if array.element is None or not castable(array.element, VARCHAR) or not all(widens(t, VARCHAR) for t in texts):
        return None
    return (array_of(VARCHAR), *(VARCHAR for _ in texts)), VARCHAR


def element_at(array: tuple[Any, ...], place: int) -> Value:
    result: Value = array[place - 1] if 1 <= place <= len(array) else None
    return result


def contains(array: tuple[Any, ...] | None, wanted: Any) -> bool | None:
    """An array without elements does not hold even what nobody knows."""
    if array is None or (array and wanted is None):
        return None
    if any(element is not None and compare(element, wanted) == 0 for element in array):
        return True
    return None if None in array else False


def joined(array: tuple[str | None, ...] | None, separator: str | None, null: str | None = None) -> str | None:
    if array is None or separator is None:
        return None
    texts = (null if element is None else element for element in array)
    return separator.join(text for text in texts if text is not None)


DECLARED: Final = (
    Function("array", "array(a, …)", "The array of these values.", 1, None, _array, lambda *v: v, strict=False),
    Function(
        "[]",
        "a[i]",
        "The i-th element of an array, counted from 1; NULL if there is none.",
        2,
        2,
        _subscript,
        element_at,
    ),
    Function("cardinality", "cardinality(a)", "How many elements an array has, NULLs too.", 1, 1, _cardinality, len),
    Function(
        "array_contains",
        "array_contains(a, x)",
        "Whether x is an element; NULL if none equals it and one is NULL.",
        2,
        2,
        _contains,
        contains,
        strict=False,
    ),
    Function(
        "array_to_string",
        "array_to_string(a, s, null)",
        "The elements as text, separated by s; NULLs are left out, or stand as the third argument.",
        2,
        3,
        _to_string,
        joined,
        strict=False,
    ),
)

"""Comparison, logic and choice: what they take and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.core.types import BOOLEAN, NULL, VARCHAR, Type
from strandline.functions.signatures import Function, Types, alike, all_of, comparable
from strandline.logical.expressions import Value
from strandline.logical.values import best, compare


def _and(*values: Any) -> Value:
    if any(value is False for value in values):
        return False
    return None if None in values else True


def _or(*values: Any) -> Value:
    if any(value is True for value in values):
        return True
    return None if None in values else False


def _equal(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else compare(left, right) == 0


def _in(*values: Any) -> Value:
    return _or(*(_equal(values[0], item) for item in values[1:]))


def _nullif(left: Any, right: Any) -> Value:
    result: Value = None if _equal(left, right) else left
    return result


def _extreme(wanted: int) -> Callable[..., Value]:
    def extreme(*values: Any) -> Value:
        known = [value for value in values if value is not None]
        return best(known, wanted) if known else None

    return extreme


def _is_null(types: Types) -> tuple[Types, Type] | None:
    return (VARCHAR if types[0] == NULL else types[0],), BOOLEAN


_TRUTH = all_of(BOOLEAN, BOOLEAN)
_COMPARE = comparable(BOOLEAN)


DECLARED: Final = (
    Function("=", "a = b", "Equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) == 0),
    Function("<>", "a <> b", "Not equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) != 0),
    Function(
        "<",
        "a < b",
        "Less; texts compare by code point, NaN is greater than every number.",
        2,
        2,
        _COMPARE,
        lambda a, b: compare(a, b) < 0,
    ),
    Function("<=", "a <= b", "Less or equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) <= 0),
    Function(">", "a > b", "Greater.", 2, 2, _COMPARE, lambda a, b: compare(a, b) > 0),
    Function(">=", "a >= b", "Greater or equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) >= 0),
    Function(
        "and",
        "a AND b",
        "False if one is false, else NULL if one is NULL, else true.",
        2,
        None,
        _TRUTH,
        _and,
        strict=False,
    ),
    Function(
        "or", "a OR b", "True if one is true, else NULL if one is NULL, else false.", 2, None, _TRUTH, _or, strict=False
    ),
    Function("not", "NOT a", "The opposite truth value.", 1, 1, _TRUTH, lambda a: not a),
    Function("is_null", "a IS NULL", "Whether there is no value.", 1, 1, _is_null, lambda a: a is None, strict=False),
    Function(
        "in",
        "a IN (b, …)",
        "Whether a equals one of the others; NULL if none does and one is NULL.",
        2,
        None,
        _COMPARE,
        _in,
        strict=False,
    ),
    Function(
        "coalesce",
        "coalesce(a, …)",
        "The first argument that is not NULL.",
        1,
        None,
        alike(None),
        lambda *values: next((value for value in values if value is not None), None),
        strict=False,
    ),
    Function("nullif", "nullif(a, b)", "NULL if a equals b, else a.", 2, 2, comparable(None), _nullif, strict=False),
    Function(
        "greatest",
        "greatest(a, …)",
        "The greatest argument that is not NULL.",
        1,
        None,
        comparable(None),
        _extreme(1),
        strict=False,
    ),
    Function(
        "least",
        "least(a, …)",
        "The least argument that is not NULL.",
        1,
        None,
        comparable(None),
        _extreme(-1),
        strict=False,
    ),
)

"""Comparison, logic and choice."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from strandline.core.lazy import pl
from strandline.core.types import BOOLEAN, NULL, VARCHAR
from strandline.functions.oracles import SqlCall
from strandline.functions.signatures import Function, alike, all_of, comparable
from strandline.logical.expressions import Call, Literal, Value
from strandline.logical.values import best, compare
from strandline.runtime.kernels.columns import let, polars_type

# ---- meaning ---------------------------------------------------------------------------------------------------------


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


def _extreme(sign: int) -> Callable[..., Value]:
    def extreme(*values: Any) -> Value:
        present = [value for value in values if value is not None]
        return best(present, sign) if present else None

    return extreme


# ---- over columns ----------------------------------------------------------------------------------------------------


def _comparison(straight: Callable[[Any, Any], Any], turned: Callable[[Any, Any], Any]) -> Callable[..., pl.Expr]:
    """A comparison over columns, `straight(a, b)` or `turned(b, a)`, which is the same.

    A constant stands on the right: on the left Polars compares it with a column of equal values as with one value, and
    loses the number of rows.
    """

    def compare_columns(call: Call, a: pl.Expr, b: pl.Expr) -> pl.Expr:
        compared: pl.Expr = turned(b, a) if isinstance(call.arguments[0], Literal) else straight(a, b)
        return compared

    return compare_columns


def _in_columns(call: Call, value: pl.Expr, *items: pl.Expr) -> pl.Expr:
    literals = [item.value for item in call.arguments[1:] if isinstance(item, Literal)]
    if len(literals) < len(items):
        return let((value, *items), lambda v, *others: pl.any_horizontal(v == item for item in others))
    kind = polars_type(call.arguments[0].type)
    listed = value.is_in(pl.Series([item for item in literals if item is not None], dtype=kind).implode())
    return pl.when(listed).then(True).otherwise(None) if None in literals else listed


def _extreme_columns(sign: int) -> Callable[..., pl.Expr]:
    """Polars' own functions take NaN for a missing value."""

    def better(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        return pl.when(a.is_null() | (b > a if sign > 0 else b < a)).then(b).otherwise(a)

    def extreme(call: Call, *values: pl.Expr) -> pl.Expr:
        if call.type.name != "DOUBLE":
            return pl.max_horizontal(values) if sign > 0 else pl.min_horizontal(values)
        return reduce(lambda a, b: let((a, b), better), values)

    return extreme


def _infix(word: str) -> Callable[[SqlCall], str]:
    return lambda call: f"({f' {word} '.join(call.arguments)})"


# ---- declarations ----------------------------------------------------------------------------------------------------

_TRUTH = all_of(BOOLEAN, BOOLEAN)
_COMPARE = comparable(BOOLEAN)

FAMILY: Final = (
    Function("=", "a = b", "Equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) == 0, _comparison(eq, eq),
             sql="({0} = {1})"),
    Function("<>", "a <> b", "Not equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) != 0, _comparison(ne, ne),
             sql="({0} <> {1})", aliases=("!=",)),
    Function("<", "a < b", "Less; texts compare by code point, NaN is greater than every number.",
             2, 2, _COMPARE, lambda a, b: compare(a, b) < 0, _comparison(lt, gt), sql="({0} < {1})"),
    Function("<=", "a <= b", "Less or equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) <= 0, _comparison(le, ge),
             sql="({0} <= {1})"),
    Function(">", "a > b", "Greater.", 2, 2, _COMPARE, lambda a, b: compare(a, b) > 0, _comparison(gt, lt),
             sql="({0} > {1})"),
    Function(">=", "a >= b", "Greater or equal.", 2, 2, _COMPARE, lambda a, b: compare(a, b) >= 0,
             _comparison(ge, le), sql="({0} >= {1})"),
    Function("and", "a AND b", "False if one is false, else NULL if one is NULL, else true.",
             2, None, _TRUTH, _and, lambda _, *parts: pl.all_horizontal(parts), strict=False, sql=_infix("AND")),
    Function("or", "a OR b", "True if one is true, else NULL if one is NULL, else false.",
             2, None, _TRUTH, _or, lambda _, *parts: pl.any_horizontal(parts), strict=False, sql=_infix("OR")),
    Function("not", "NOT a", "The opposite truth value.", 1, 1, _TRUTH, lambda a: not a, lambda _, a: ~a,
             sql="(NOT {0})"),
    Function("is_null", "a IS NULL", "Whether there is no value.", 1, 1,
             lambda types: ((VARCHAR if types[0] == NULL else types[0],), BOOLEAN), lambda a: a is None,
             lambda _, a: a.is_null(), strict=False, sql="({0} IS NULL)"),
    Function("in", "a IN (b, …)", "Whether a equals one of the others; NULL if none does and one is NULL.",
             2, None, _COMPARE, _in, _in_columns, strict=False, sql="({0} IN ({rest}))"),
    Function("coalesce", "coalesce(a, …)", "The first argument that is not NULL.",
             1, None, alike(None), lambda *values: next((value for value in values if value is not None), None),
             lambda _, *values: pl.coalesce(values), strict=False, sql="coalesce({all})", aliases=("ifnull", "nvl")),
    Function("nullif", "nullif(a, b)", "NULL if a equals b, else a.",
             2, 2, comparable(None), lambda a, b: None if _equal(a, b) else a,
             lambda _, *both: let(both, lambda a, b: pl.when(a == b).then(None).otherwise(a)), strict=False,
             sql="nullif({all})"),
    Function("greatest", "greatest(a, …)", "The greatest argument that is not NULL.",
             1, None, comparable(None), _extreme(1), _extreme_columns(1), strict=False, sql="greatest({all})"),
    Function("least", "least(a, …)", "The least argument that is not NULL.",
             1, None, comparable(None), _extreme(-1), _extreme_columns(-1), strict=False, sql="least({all})"),
)  # fmt: skip

"""The meaning of expressions and aggregates, row by row: slow, obvious, and the judge of the fast path.

What a single function means is said where it is declared, in the rooms of `scalars/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, assert_never

import pyarrow as pa

from strandline.algebra.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    UserCall,
    Value,
)
from strandline.algebra.functions import FUNCTIONS
from strandline.algebra.values import EXACT, best, cast, fit
from strandline.types import arrow_type


def evaluate(expression: Expression, row: Mapping[str, Value]) -> Value:
    """The value of an expression over one row, whose values are named by column id."""
    match expression:
        case Literal(value, _):
            return value
        case ColumnRef(id, _):
            return row[id]
        case Cast(operand, kind):
            return cast(evaluate(operand, row), operand.type, kind)
        case Case(branches, otherwise, _):
            for condition, result in branches:
                if evaluate(condition, row) is True:
                    return evaluate(result, row)
            return evaluate(otherwise, row)
        case Call(function, arguments, kind):
            values = [evaluate(argument, row) for argument in arguments]
            declared = FUNCTIONS[function]
            if declared.strict and any(value is None for value in values):
                return None
            return fit(declared.meaning(*values), kind)
        case UserCall(called, arguments):
            pairs = zip(arguments, called.arguments, strict=True)
            columns = [pa.array([evaluate(argument, row)], arrow_type(kind)) for argument, kind in pairs]
            value_of_user: Value = called.over(columns)[0].as_py()
            return value_of_user
        case _:
            assert_never(expression)


def aggregate(call: AggregateCall, values: Sequence[Value], rows: int) -> Value:
    """An aggregate over a group of `rows` rows whose argument has these values; NULLs do not count.

    Sums are exact: the order of the rows does not matter, and a DOUBLE sum is the exact sum, rounded once. So is the
    mean of exact numbers; the mean of DOUBLEs is their sum as a DOUBLE over their number.
    """
    if call.argument is None:
        return rows
    known: list[Any] = [value for value in values if value is not None]
    match call.function:
        case "count":
            return len(known)
        case _ if not known:
            return None
        case "min":
            return best(known, -1)
        case "max":
            return best(known, 1)
        case "sum":
            return fit(_double_sum(known) if call.type.name == "DOUBLE" else _exact_sum(known), call.type)
        case "avg" if call.argument.type.name == "DOUBLE":
            return _double_sum(known) / len(known)
        case "avg":
            return float(sum(map(Fraction, known)) / len(known))
    raise AssertionError(f"aggregate {call.function} has no meaning")


def _exact_sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = EXACT.add(total, value) if isinstance(total, Decimal) else total + value
    return total


def _special_sum(values: list[Any]) -> float | None:
    """What NaN and the infinities among the values make of any sum; None if there are none."""
    special = [value for value in values if isinstance(value, float) and not math.isfinite(value)]
    return sum(special) if special else None


def _double_sum(values: list[float]) -> float:
    special = _special_sum(values)
    if special is not None:
        return special
    try:
        return math.fsum(values)
    except OverflowError:  # of a partial sum; the whole may still be a DOUBLE
        return _to_double(sum(map(Fraction, values), Fraction()))


def _to_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

"""The meaning of expressions, row by row: slow, obvious, and the oracle of the fast path.

What a single function means is said where it is declared, in the file of its family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import pyarrow as pa

from strandline.core.types import arrow_type
from strandline.functions.registry import FUNCTIONS
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall, Value
from strandline.logical.values import cast, fit


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

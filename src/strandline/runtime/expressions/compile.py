"""Expressions over whole columns: what `functions/evaluate.py` means, as Polars expressions.

Law    `compile_expression(e)` in row i of a frame = `evaluate(e, row i)`, in the type `polars_type(e.type)`

Nothing here looks at single rows, and nothing raises because of a value: where there is no result there is NULL. Here
is the compiler of expression trees; what each function does to columns is in its declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import polars as pl

from strandline.functions.casts import cast_column
from strandline.functions.evaluate import evaluate
from strandline.functions.registry import FUNCTIONS, declaration
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall, children, rebuilt
from strandline.runtime.expressions.optimize import optimize, short_circuit_and
from strandline.runtime.kernels.columns import constant, polars_type


def evaluate_columns(
    frame: pl.DataFrame, outputs: Sequence[tuple[str, Expression]], keep: Sequence[str] = ()
) -> pl.DataFrame:
    """The outputs under their names, then the columns to keep: as many rows as `frame`, also for constants."""
    names = [name for name, _ in outputs]
    assert len({*names, *keep}) == len(names) + len(keep), "output columns have distinct names"
    if outputs and all(isinstance(expression, ColumnRef) for _, expression in outputs):
        return _with_names(frame, outputs, keep)
    if frame.height == 0:  # Polars has functions of a constant and a column that give one row here
        types = {name: polars_type(expression.type) for name, expression in outputs}
        return pl.DataFrame(schema={**types, **{name: frame.schema[name] for name in keep}})
    frame, expressions = _evaluate_user_calls(
        _expand_constants(frame), [_fold(expression) for _, expression in outputs]
    )
    frame, expressions = optimize(frame, expressions, _evaluate_series)
    return _with_outputs(frame, names, expressions).select(*names, *keep)


def _with_names(frame: pl.DataFrame, outputs: Sequence[tuple[str, Expression]], keep: Sequence[str]) -> pl.DataFrame:
    """Columns under other names: nothing is computed, so that no plan is made."""
    named = [frame.get_column(expression.id).alias(n) for n, expression in outputs if isinstance(expression, ColumnRef)]
    return pl.DataFrame([*named, *map(frame.get_column, keep)])


def filter_frame(frame: pl.DataFrame, predicate: Expression) -> pl.DataFrame:
    """The rows for which the predicate is true; not false, not unknown."""
    if not frame.height:
        return frame
    columns = frame.columns
    frame, (condition,) = _evaluate_user_calls(_expand_constants(frame), [_fold(predicate)])
    frame, (condition,) = optimize(frame, [short_circuit_and(condition)], _evaluate_series)
    return frame.filter(_compile(condition)).select(columns)


def _with_outputs(frame: pl.DataFrame, names: Sequence[str], expressions: Sequence[Expression]) -> pl.DataFrame:
    # `select` would give a single row if every output is constant; `with_columns` keeps the height.
    return frame.with_columns(_compile(e).alias(name) for name, e in zip(names, expressions, strict=True))


def _evaluate_series(frame: pl.DataFrame, expressions: Sequence[Expression]) -> list[pl.Series]:
    """The values of expressions over a frame, without optimization."""
    names = [f"@plain {number}" for number in range(len(expressions))]
    return _with_outputs(frame, names, expressions).select(names).get_columns()


def _evaluate_user_calls(
    frame: pl.DataFrame, expressions: Sequence[Expression]
) -> tuple[pl.DataFrame, list[Expression]]:
    """Replace calls of user-defined functions by columns; returns the expressions and the frame with these columns.

    The functions are called here and not by Polars, which would wrap their exceptions.
    """
    if not any(map(_has_call, expressions)):
        return frame, list(expressions)
    result_columns: dict[UserCall, ColumnRef] = {}

    def call(expression: Expression) -> Expression:
        nonlocal frame
        expression = rebuilt(expression, call)
        if not isinstance(expression, UserCall):
            return expression
        if expression not in result_columns:
            function = expression.function
            column_id = f"@call {len(result_columns)}"
            arguments = [(str(number), argument) for number, argument in enumerate(expression.arguments)]
            result = function.over([column.to_arrow() for column in evaluate_columns(frame, arguments)])
            frame = frame.with_columns(pl.Series(column_id, result, dtype=polars_type(function.returns)))
            result_columns[expression] = ColumnRef(column_id, function.returns)
        return result_columns[expression]

    changed = [call(expression) for expression in expressions]
    return frame, changed


def _has_call(expression: Expression) -> bool:
    return isinstance(expression, UserCall) or any(map(_has_call, children(expression)))


def _expand_constants(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without columns that Polars stores as one value for all rows: comparing a constant with such a column
    loses the number of rows. Free where there are none."""
    return pl.DataFrame(frame.get_columns()) if frame.width else frame


def compile_expression(expression: Expression) -> pl.Expr:
    """The expression over the columns of a frame that are named by their ids.

    A constant gives a single value: Polars repeats it where it meets a column, and `evaluate_columns` always does.
    """
    return _compile(_fold(expression))


def _compile(expression: Expression) -> pl.Expr:
    match expression:
        case Literal(value, kind):
            return constant(value, kind)
        case ColumnRef(id, _):
            return pl.col(id)
        case Cast(operand, kind):
            return cast_column(_compile(operand), operand.type, kind)
        case Case(branches, otherwise, _):
            result = _compile(otherwise)
            for condition, choice in reversed(branches):
                result = pl.when(_compile(condition)).then(_compile(choice)).otherwise(result)
            return result
        case UserCall():
            raise AssertionError("user-defined functions are called before")
        case Call(function, arguments, _):
            return declaration(function).vectorized(expression, *(_compile(argument) for argument in arguments))
        case _:
            assert_never(expression)


def _fold(expression: Expression) -> Expression:
    """Fold constant subexpressions into literals: functions have shortcuts for literals."""
    folded = rebuilt(expression, _fold)
    match folded:
        case Literal() | ColumnRef():
            return folded
        case Call(function, arguments, kind) if FUNCTIONS[function].strict:
            if any(isinstance(argument, Literal) and argument.value is None for argument in arguments):
                return Literal(None, kind)
    if all(isinstance(child, Literal) for child in children(folded)):
        return Literal(evaluate(folded, {}), folded.type)
    return folded

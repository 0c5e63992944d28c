"""Expressions over whole columns: what `algebra.evaluate` means, as Polars expressions.

Law    the value of `compile(e)` in row i of a frame = `evaluate(e, row i)`, in the type `polars_type(e.type)`

Nothing here looks at single rows, and nothing raises because of a value: where there is no result there is NULL.
DECIMALs are computed as 128-bit integers, the unscaled values, because Polars' own DECIMAL arithmetic raises when it
overflows, rounds half to even and keeps only the larger scale of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final, TypeAlias, assert_never

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from strandline.algebra.evaluate import (
    BLANKS,
    CHRONON,
    EPOCH,
    FALSE_TEXTS,
    TIMESTAMP_TEXT,
    TRUE_TEXTS,
    WHOLE_DOUBLE,
    evaluate,
    like_regex,
)
from strandline.algebra.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, Value, columns_of
from strandline.algebra.functions import trunc_unit
from strandline.temporal import DAY, HOUR, MINUTE, SECOND
from strandline.types import MAX_PRECISION, Type

Step: TypeAlias = Callable[..., pl.Expr]

_LEAST_INT64: Final = -(2**63)
_FIRST_INSTANT: Final = (datetime.min - EPOCH) // CHRONON
_LAST_INSTANT: Final = (datetime.max - EPOCH) // CHRONON
_FIRST_DAY: Final = (date.min - EPOCH.date()).days
_LAST_DAY: Final = (date.max - EPOCH.date()).days


def polars_type(kind: Type) -> pl.DataType:
    """The Polars type that holds values of an SQL type."""
    match kind.name:
        case "BOOLEAN":
            return pl.Boolean()
        case "INT":
            return pl.Int32()
        case "BIGINT" | "INTERVAL":
            return pl.Int64()
        case "DOUBLE":
            return pl.Float64()
        case "DECIMAL":
            return pl.Decimal(kind.precision, kind.scale)
        case "VARCHAR":
            return pl.String()
        case "DATE":
            return pl.Date()
        case "TIMESTAMP":
            return pl.Datetime("us")
        case "NULL":
            return pl.Null()
    raise AssertionError(f"type {kind} has no Polars form")


def evaluate_columns(
    frame: pl.DataFrame, outputs: Sequence[tuple[str, Expression]], keep: Sequence[str] = ()
) -> pl.DataFrame:
    """The outputs under their names, then the columns to keep: as many rows as `frame`, also for constants."""
    names = [name for name, _ in outputs]
    assert len({*names, *keep}) == len(names) + len(keep), "output columns have distinct names"
    # `select` would give a single row if every output is constant; `with_columns` knows the height.
    computed = frame.with_columns(compile(expression).alias(name) for name, expression in outputs)
    return computed.select(*names, *keep)


def filter_frame(frame: pl.DataFrame, predicate: Expression) -> pl.DataFrame:
    """The rows for which the predicate is true; not false, not unknown."""
    return frame.filter(compile(predicate))


def compile(expression: Expression) -> pl.Expr:
    """The expression over the columns of a frame that are named by their ids.

    A constant gives a single value: Polars repeats it where it meets a column, and `evaluate_columns` always does.
    """
    if not columns_of(expression):
        return _constant(evaluate(expression, {}), expression.type)
    match expression:
        case ColumnRef(id, _):
            return pl.col(id)
        case Cast(operand, kind):
            return _cast(compile(operand), operand.type, kind)
        case Case(branches, otherwise, _):
            result = compile(otherwise)
            for condition, value in reversed(branches):
                result = pl.when(compile(condition)).then(compile(value)).otherwise(result)
            return result
        case Call(function, arguments, _):
            return _CALLS[function](expression, *(compile(argument) for argument in arguments))
        case Literal():
            raise AssertionError("a literal reads no column")
        case _:
            assert_never(expression)


def cast_text(column: pl.Expr, kind: Type) -> pl.Expr:
    """The values that texts denote, blanks around them aside; NULL where they denote none."""
    if kind.name == "VARCHAR":
        return column
    text = column.str.strip_chars(BLANKS)
    match kind.name:
        case "BOOLEAN":
            words = {**dict.fromkeys(TRUE_TEXTS, True), **dict.fromkeys(FALSE_TEXTS, False)}
            return text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
        case "INT" | "BIGINT":
            return text.cast(polars_type(kind), strict=False)
        case "DOUBLE":
            return _let((text,), _double_of_text)
        case "DECIMAL":
            return _decimal_of_text(text, kind)
        case "DATE":
            return text.map_batches(_dates_of_texts, return_dtype=pl.Date(), is_elementwise=True)
        case "TIMESTAMP":
            return text.map_batches(_timestamps_of_texts, return_dtype=pl.Datetime("us"), is_elementwise=True)
    raise AssertionError(f"no text denotes a value of type {kind}")


def _constant(value: Value, kind: Type) -> pl.Expr:
    return pl.lit(value, dtype=polars_type(kind))


def _let(values: Sequence[pl.Expr], *steps: Step) -> pl.Expr:
    """The last of some steps, each of which sees the values and the results of the steps before it.

    Values are computed once, however often the steps use them: nested expressions would otherwise grow exponentially.
    A struct is Polars' way to name a value inside an expression.
    """
    if len(steps) == 1 and all(value.meta.is_column() or value.meta.is_literal() for value in values):
        return steps[0](*values)
    record = pl.struct(*(value.alias(f"_{i}") for i, value in enumerate(values)))
    fields = [pl.field(f"_{i}") for i in range(len(values))]
    for step in steps:
        name = f"_{len(fields)}"
        record = record.struct.with_fields(step(*fields).alias(name))
        fields.append(pl.field(name))
    return record.struct.field(f"_{len(fields) - 1}")


def _within(value: pl.Expr, least: int, most: int, dtype: pl.DataType) -> pl.Expr:
    """Integers of type `dtype`, NULL outside of the bounds."""
    low, high = pl.lit(least, dtype=dtype), pl.lit(most, dtype=dtype)
    return _let((value,), lambda v: pl.when(v.is_between(low, high)).then(v))


# ---- integers ------------------------------------------------------------------------------------------------------


def _bound(expression: Expression) -> int:
    """No value of this integer expression is further from zero."""
    match expression:
        case Literal(int(value), _):
            return abs(value)
        case Cast(Expression() as operand, _) if operand.type.name == "INT":
            return 2**31
    return 2**63

"""What scalar functions over columns build on: types, constants, and values that are computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Final, TypeAlias

from strandline.core.lazy import pl
from strandline.core.types import Type
from strandline.logical.expressions import Value
from strandline.logical.values import CHRONON, EPOCH

Step: TypeAlias = "Callable[..., pl.Expr]"

LEAST_INT64: Final = -(2**63)
FIRST_INSTANT: Final = (datetime.min - EPOCH) // CHRONON
LAST_INSTANT: Final = (datetime.max - EPOCH) // CHRONON
FIRST_DAY: Final = (date.min - EPOCH.date()).days
LAST_DAY: Final = (date.max - EPOCH.date()).days


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
        case "ARRAY":
            assert kind.element is not None, "an array has elements of some type"
            return pl.List(polars_type(kind.element))
    raise AssertionError(f"type {kind} has no Polars form")


def constant(value: Value, kind: Type) -> pl.Expr:
    if isinstance(value, tuple):
        return pl.lit(pl.Series([value], dtype=polars_type(kind))).first()
    return pl.lit(value, dtype=polars_type(kind))


def mapped(column: pl.Expr, function: Callable[[pl.Series], pl.Series], kind: Type) -> pl.Expr:
    """A function of whole columns that chooses its method by their content."""
    return column.map_batches(function, return_dtype=polars_type(kind), is_elementwise=True)


def together(function: Callable[[Sequence[pl.Series]], pl.Series], *columns: pl.Expr, kind: Type) -> pl.Expr:
    """A function of several whole columns; a constant among them is a column of one row."""
    return pl.map_batches(list(columns), function, return_dtype=polars_type(kind), is_elementwise=True)


def let(values: Sequence[pl.Expr], *steps: Step) -> pl.Expr:
    """The last of some steps, each of which sees the values and the results of the steps before it.

    Values are computed once, however often the steps use them: nested expressions would otherwise grow exponentially.
    A struct is Polars' way to name a value inside an expression.
    """
    if len(steps) == 1 and all(value.meta.is_column() or value.meta.is_literal() for value in values):
        return steps[0](*values)
    return bound(values, *steps)


def bound(values: Sequence[pl.Expr], *steps: Step) -> pl.Expr:
    record = pl.struct(*(value.alias(f"_{i}") for i, value in enumerate(values)))
    fields = [pl.field(f"_{i}") for i in range(len(values))]
    for step in steps:
        name = f"_{len(fields)}"
        record = record.struct.with_fields(step(*fields).alias(name))
        fields.append(pl.field(name))
    return record.struct.field(f"_{len(fields) - 1}")


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The quotient of DOUBLEs, NULL if the divisor is zero.

    Polars multiplies by the reciprocal of a literal, and 59999999 / 1e6 would not be 59.999999: a bound literal is a
    column and divides as such.
    """
    return bound((left, right), lambda a, b: pl.when(b != 0).then(a / b))


def within(value: pl.Expr, minimum: int, maximum: int, dtype: pl.DataType) -> pl.Expr:
    """Integers of type `dtype`; NULL where out of bounds."""
    low, high = pl.lit(minimum, dtype=dtype), pl.lit(maximum, dtype=dtype)
    return let((value,), lambda v: pl.when(v.is_between(low, high)).then(v))


def stretched(column: pl.Series, columns: Sequence[pl.Series]) -> pl.Series:
    """A constant of the length of another column."""
    height = next((len(other) for other in columns if len(other) != 1), 1)
    return column if len(column) == height else column.new_from_index(0, height)

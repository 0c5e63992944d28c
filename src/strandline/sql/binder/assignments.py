"""Assignments of values to the columns of a table: which types fit, and the casts that make them fit.

As in PostgreSQL an assignment converts more than an operator does: between numbers, between DATE and TIMESTAMP, and
every scalar to VARCHAR. A constant that has no value in the type of its column is refused where it stands. For others
that is decided at run time, by `Assignment.unfit`: a table keeps what it is given, so an assignment never makes NULL of
a value silently, as a CAST may.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, INTERVAL, NULL, VARCHAR, Type, is_numeric
from strandline.functions.aggregates import AggregateFunction
from strandline.functions.signatures import castable
from strandline.logical import values
from strandline.logical.catalog import Table
from strandline.logical.expressions import Call, Cast, Expression, Literal
from strandline.sql import ast
from strandline.sql.binder.expressions import Operand, Scalars, Subquery
from strandline.sql.binder.literals import article, cast_to, read


@dataclass(frozen=True, slots=True)
class Assignment:
    """The value of a column of the changed table; its type is that of the column."""

    column: str
    value: Expression

    @property
    def unfit(self) -> Expression | None:
        """The condition under which a value has no counterpart in the type of its column; None if all have one."""
        if not isinstance(self.value, Cast) or _always_fits(self.value.operand.type, self.value.type):
            return None
        is_null = Call("is_null", (self.value.operand,), BOOLEAN)
        return Call("and", (Call("not", (is_null,), BOOLEAN), Call("is_null", (self.value,), BOOLEAN)), BOOLEAN)


class StatementScalars(Scalars):
    """Binds the expressions of a statement that changes a table: over its rows, without subqueries and aggregates."""

    def value(self, table: Table, column: str, node: ast.NewValue) -> Operand:
        """The value for a column, or its DEFAULT."""
        if not isinstance(node, ast.Default):
            return self.operand(node)
        return Operand(default_value(table, column), node.span)

    def subquery(self, node: Subquery) -> Expression:
        hint = "Write MERGE INTO t USING (SELECT …) AS s ON …, which reads the subquery once for all rows."
        raise node.error(f"cannot use a subquery in {self.clause}", "misplaced-subquery", hint)

    def aggregate(self, function: AggregateFunction, node: ast.FunctionCall) -> Expression:
        hint = "Aggregate in the source of the rows: INSERT … SELECT, or MERGE … USING (SELECT …) AS s."
        message = f"aggregate {function.name} is not allowed in {self.clause}"
        raise node.error(message, "aggregate-not-allowed", hint)


def assign(table: Table, column: str, operand: Operand) -> Assignment:
    """The assignment of a value to a column, cast to its type."""
    kind = table.column_type(column)
    value = _fit(operand, column, kind)
    if isinstance(value, Literal) and value.value is None:
        check_nullable(table, column, operand.span)
    return Assignment(column, value)


def default_value(table: Table, column: str) -> Literal:
    """What a column has that a statement does not give."""
    return Literal(table.defaults.get(column), table.column_type(column))


def check_nullable(table: Table, column: str, span: Span) -> None:
    """Refuse NULL, or no value, in a column of the primary key or one that is NOT NULL."""
    if column not in (*table.key, *table.required):
        return
    hint = f'Give "{column}" a value.'
    if column in table.key:
        message = f'column "{column}" of the primary key of table "{table.name}" cannot be NULL'
        raise BindError(message, code="null-key", hint=hint, span=span)
    raise BindError(f'column "{column}" of table "{table.name}" is NOT NULL', code="null-value", hint=hint, span=span)


def out_of_range(column: str, kind: Type, span: Span) -> BindError:
    """The refusal of a value that the type of its column does not have; the caller raises it."""
    message = f'the value is out of range for column "{column}" of type {kind}'
    return BindError(message, code="out-of-range", hint=f"Give it {article(kind)} within its limits.", span=span)


def _fit(operand: Operand, column: str, kind: Type) -> Expression:
    if operand.is_untyped and kind != VARCHAR:
        assert isinstance(operand.value, Literal), "only a text literal is untyped"
        return read(str(operand.value.value), kind, operand.span)
    source = operand.value.type
    if not _is_assignable(source, kind):
        hint = f"Write CAST(… AS {kind})." if castable(source, kind) else f"Give it {article(kind)}."
        message = f'column "{column}" is of type {kind}, but the value is of type {source}'
        raise BindError(message, code="type-mismatch", hint=hint, span=operand.span)
    match operand.value:
        case Literal(value) if value is not None and values.cast(value, source, kind) is None:
            raise out_of_range(column, kind, operand.span)
    return cast_to(operand.value, kind)


def _is_assignable(source: Type, target: Type) -> bool:
    """Whether a value becomes one of the type of a column without a CAST."""
    if source in (NULL, target):
        return True
    if target == VARCHAR:
        return source != INTERVAL and source.element is None
    return (is_numeric(source) and is_numeric(target)) or {source.name, target.name} == {"DATE", "TIMESTAMP"}


def _always_fits(source: Type, target: Type) -> bool:
    """Whether every value of one type has a counterpart in the other."""
    if target == VARCHAR or source == NULL:
        return True
    match source.name, target.name:
        case (_, "DOUBLE") | ("INT", "BIGINT") | ("DATE", "TIMESTAMP") | ("TIMESTAMP", "DATE"):
            return True
        case "DECIMAL", "DECIMAL":
            return target.precision - target.scale > source.precision - source.scale
        case (("INT" | "BIGINT"), "DECIMAL"):
            return target.precision - target.scale >= (10 if source.name == "INT" else 19)
    return False

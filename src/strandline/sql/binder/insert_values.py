"""VALUES: constant rows, evaluated once to columns.

Lists of literals are long, so these are converted without a tree of expressions; everything else is bound and folded
like any constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.core.lazy import pl
from strandline.core.types import VARCHAR, Type
from strandline.functions.evaluate import evaluate
from strandline.logical.catalog import Table
from strandline.logical.expressions import Expression, Value
from strandline.runtime.kernels.columns import polars_type
from strandline.sql import ast
from strandline.sql.binder.assignments import StatementScalars, assign, check_nullable, out_of_range
from strandline.sql.binder.expressions import Subquery
from strandline.sql.binder.scope import Scope

_BOUNDS: Final = {"INT": 2**31, "BIGINT": 2**63}


class ConstantScalars(StatementScalars):
    """Binds the expressions of VALUES and DEFAULT, which read no columns."""

    def __init__(self, clause: str = "VALUES") -> None:
        super().__init__(Scope(()), clause)

    def bind(self, node: ast.Expression) -> Expression:
        if isinstance(node, ast.ColumnName):
            hint = f"Put texts in single quotes: '{node.column.name}'."
            raise node.error(f'{self.clause} cannot read column "{node.column.name}"', "unknown-column", hint)
        return super().bind(node)

    def subquery(self, node: Subquery) -> Expression:
        hint = "Write INSERT INTO name SELECT … in place of VALUES."
        hint = hint if self.clause == "VALUES" else "Write a constant."
        raise node.error(f"cannot use a subquery in {self.clause}", "misplaced-subquery", hint)


def evaluate_values(table: Table, columns: Sequence[str], rows: ast.Values) -> pl.DataFrame:
    """The rows with all columns of the table, in their order; those that are not listed have their default, or NULL."""
    lists = dict(zip(columns, zip(*rows.rows, strict=True), strict=True))
    scalars = ConstantScalars()
    series = []
    for name, kind in table.columns:
        nodes = lists.get(name)
        if nodes is None:
            column = [table.defaults.get(name)] * len(rows.rows)
        else:
            column = _evaluate_column(table, name, kind, nodes, scalars)
        series.append(pl.Series(name, column, polars_type(kind)))
    return pl.DataFrame(series)


def evaluate_default(table: Table, column: str, node: ast.NewValue) -> Value:
    """The value of the constant expression of DEFAULT."""
    return _evaluate(table, column, node, ConstantScalars("DEFAULT"))


def _evaluate_column(
    table: Table, name: str, kind: Type, nodes: Sequence[ast.NewValue], scalars: ConstantScalars
) -> list[Value]:
    column = _convert_literals(kind, nodes)
    return [_evaluate(table, name, node, scalars) for node in nodes] if column is None else column


def _convert_literals(kind: Type, nodes: Sequence[ast.NewValue]) -> list[Value] | None:
    """The values of a column of literals that are written in its own type; None if there are others among them."""
    if kind == VARCHAR:
        texts: list[Value] = [node.value for node in nodes if type(node) is ast.Text]
        return texts if len(texts) == len(nodes) else None
    bound = _BOUNDS.get(kind.name)
    if bound is None:
        return None
    digits = [node.digits for node in nodes if type(node) is ast.Number]
    if len(digits) < len(nodes) or not "".join(digits).isdecimal() or max(map(len, digits)) > 19:
        return None
    numbers = list(map(int, digits))
    return list(numbers) if max(numbers) < bound else None


def _evaluate(table: Table, column: str, node: ast.NewValue, scalars: ConstantScalars) -> Value:
    if type(node) is ast.Null:
        check_nullable(table, column, node.span)
        return None
    assignment = assign(table, column, scalars.value(table, column, node))
    value = evaluate(assignment.value, {})
    if value is None:
        _check_null(table, column, node, assignment.unfit)
    return value


def _check_null(table: Table, column: str, node: ast.NewValue, unfit: Expression | None) -> None:
    """Refuse NULL where it is what remains of a value, and where there must be one."""
    if unfit is not None and evaluate(unfit, {}):
        raise out_of_range(column, table.column_type(column), node.span)
    check_nullable(table, column, node.span)

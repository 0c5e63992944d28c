"""The SELECT list: stars expanded, and a name of its own for every output column.

A room of the binder. Outputs are still as they are written; whether they are grouped decides how they are bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.errors import BindError, Span
from strandline.lang import ast
from strandline.lang.scope import Scope

RESERVED_OUTPUTS: Final = ("valid_from", "valid_until")


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the SELECT list, stars expanded: its expression, its name and its place."""

    node: ast.Expression
    name: str
    span: Span


def output_columns(items: tuple[ast.Item, ...], scope: Scope) -> list[Output]:
    """The output columns: stars expanded, every column with a name of its own."""
    outputs: list[Output] = []
    taken: set[str] = set()
    for item in items:
        for node in _expanded(item.value, scope):
            name = item.alias.name if item.alias else output_name(node, scope) or f"col{len(outputs) + 1}"
            if name.lower() in RESERVED_OUTPUTS:
                raise BindError(
                    f'the output name "{name}" is reserved',
                    code="reserved-name",
                    hint="Every result has valid_from and valid_until; give the column another name with AS.",
                    span=item.alias.span if item.alias else item.span,
                )
            outputs.append(Output(node, _unused(name, taken), item.span))
    return outputs


def _expanded(value: ast.Expression | ast.Star, scope: Scope) -> list[ast.Expression]:
    if not isinstance(value, ast.Star):
        return [value]
    relations = scope.relations if value.qualifier is None else (scope.relation(value.qualifier),)
    qualified = value.qualifier is not None
    return [
        ast.ColumnName(_exactly(relation.alias, value.span), _exactly(column.name, value.span), span=value.span)
        for relation in relations
        for column in (relation.columns if qualified else relation.visible)
    ]


def _exactly(name: str, span: Span) -> ast.Identifier:
    return ast.Identifier(name, True, span=span)


def _unused(name: str, taken: set[str]) -> str:
    unused, count = name, 1
    while unused.lower() in taken:
        count += 1
        unused = f"{name}_{count}"
    taken.add(unused.lower())
    return unused


def output_name(node: ast.Expression, scope: Scope) -> str | None:
    """The name that an expression gives its column, or None."""
    match node:
        case ast.ColumnName():
            return scope.column(node).name
        case ast.Function(name, _):
            return name.name.lower()
        case ast.Cast(operand, _):
            return output_name(operand, scope)
        case ast.Case():
            return "case"
    return None

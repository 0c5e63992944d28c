"""SELECT list: expansion of stars, and a unique name for every output column.

Outputs are still syntax here; whether the SELECT groups decides how they are bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.core.errors import Span
from strandline.functions.signatures import ARRAY_HINT
from strandline.logical.expressions import ColumnRef, SortKey
from strandline.sql import ast
from strandline.sql.binder.literals import article
from strandline.sql.binder.scope import VALIDITY, Scope, suggestion

# Stars multiply: each of `SELECT *, * FROM …` doubles the columns that it reads.
MAX_COLUMNS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the SELECT list, stars expanded: its expression, its name and its place."""

    node: ast.Expression
    name: str
    span: Span


def output_columns(items: tuple[ast.Item, ...], scope: Scope) -> list[Output]:
    """The output columns: stars expanded, every column with a name of its own."""
    outputs: list[Output] = []
    names = _Names()
    for item in items:
        expanded = _expanded(item.value, scope)
        if len(outputs) + len(expanded) > MAX_COLUMNS:
            hint = "List the needed columns."
            raise item.error(f"the query has more than {MAX_COLUMNS:,} columns", "too-large", hint)
        for node, own_name in expanded:
            name = item.alias.name if item.alias else own_name or output_name(node, scope) or f"col{len(outputs) + 1}"
            if name.lower() in VALIDITY:
                hint = "Every result has valid_from and valid_until; give the column another name with AS."
                raise (item.alias or item).error(f'the output name "{name}" is reserved', "reserved-name", hint)
            outputs.append(Output(node, names.unused(name), item.span))
    return outputs


def _expanded(value: ast.Expression | ast.Star, scope: Scope) -> list[tuple[ast.Expression, str | None]]:
    """The expressions of an item, with their names where a star gives them."""
    if not isinstance(value, ast.Star):
        return [(value, None)]
    if not scope.relations:
        raise value.error("SELECT has no FROM", "missing-from", "Say what to read: SELECT * FROM name.")
    relations = scope.relations if value.qualifier is None else (scope.relation(value.qualifier),)
    qualified = value.qualifier is not None
    span = value.span
    columns = [
        (ast.ColumnName(_exactly(relation.alias, span), _exactly(column.name, span), span=span), column)
        for relation in relations
        for column in (relation.columns if qualified else relation.visible)
    ]
    names = [column.name for _, column in columns]
    for name in (*value.exclude, *(name for _, name in value.replace)):
        if not any(map(name.matches, names)):
            hint = suggestion(name.name, names, "Columns are")
            raise name.error(f'column "{name.name}" is not among those of the star', "unknown-column", hint)
    found: list[tuple[ast.Expression, str | None]] = []
    for node, column in columns:
        if not any(name.matches(column.name) for name in value.exclude):
            instead = (expression for expression, name in value.replace if name.matches(column.name))
            found.append((next(instead, node), column.name))
    if not found:
        raise value.error("EXCLUDE leaves no column", "syntax", "Keep at least one column.")
    return found


def write_out_aliases(tree: ast.Tree, outputs: list[Output], scope: Scope) -> ast.Tree:
    """A condition with names of outputs written out, where no column has the name, here or around."""

    def written_out(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.ColumnName) or node.qualifier is not None or scope.has_around(node):
            return node
        return next((output.node for output in outputs if node.column.matches(output.name)), node)

    return ast.rewrite(tree, written_out, into_queries=False)


def _exactly(name: str, span: Span) -> ast.Identifier:
    return ast.Identifier(name, True, span=span)


class _Names:
    """Names of output columns, each given once: the second `price` is `price_2`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # by lower case, how many have been given so far

    def unused(self, name: str) -> str:
        count = self.counts.get(name.lower(), 0) + 1
        unused = name if count == 1 else f"{name}_{count}"
        while count > 1 and unused.lower() in self.counts:
            count += 1
            unused = f"{name}_{count}"
        self.counts[name.lower()] = count
        self.counts.setdefault(unused.lower(), 1)
        return unused


def output_name(node: ast.Expression, scope: Scope) -> str | None:
    """The name that an expression gives its column, or None."""
    match node:
        case ast.ColumnName():
            return scope.column(node).name
        case ast.FunctionCall(name, _):
            return node.written or name.name.lower()
        case ast.WindowCall(called):
            return called.written or called.name.name.lower()
        case ast.Cast(operand, _):
            return output_name(operand, scope)
        case ast.Case():
            return "case"
        case ast.Binary("[]", array, _):
            return output_name(array, scope)
    return None


# ---- ORDER BY --------------------------------------------------------------------------------------------------------

Listed = TypeVar("Listed")


def listed_column(node: ast.Expression, named: Sequence[tuple[str, Listed]]) -> Listed | None:
    """The output that an element of ORDER BY means by its name or its position."""
    match node:
        case ast.Number(digits) if digits.isdecimal():
            if len(digits) > 9 or not 1 <= int(digits) <= len(named):
                hint = f"Positions go from 1 to {len(named)}."
                raise node.error(f"ORDER BY position {digits} is not in the SELECT list", "order-by-output", hint)
            return named[int(digits) - 1][1]
        case ast.ColumnName(None, column):
            return next((output for name, output in named if column.matches(name)), None)
    return None


def is_listed(node: ast.Expression, outputs: list[Output]) -> bool:
    """True if an element of ORDER BY is an output."""
    return listed_column(node, [(output.name, output) for output in outputs]) is not None


def sort_key(item: ast.SortItem, column: ColumnRef) -> SortKey:
    """The column of ORDER BY that an element of it has become."""
    if column.type.element is not None:
        raise item.value.error(f"cannot ORDER BY {article(column.type)}", "type-mismatch", ARRAY_HINT)
    return SortKey(column, item.descending, item.nulls_first)

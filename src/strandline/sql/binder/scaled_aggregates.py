"""Aggregates corrected for load shedding: `scaled_count`, `scaled_sum`, and their error bounds.

This comes before binding. Every row of a stream stands for `1 / share` rows of its source, which is
its weight w; a row of a join stands for the product of the weights. What is dropped is drawn by a hash, row by row, so

    scaled_count(*) = Σ w            its variance is estimated by Σ w · (w - 1)
    scaled_sum(x)   = Σ w · x        its variance is estimated by Σ w · (w - 1) · x²

and an error is 1.96 standard deviations: in 19 of 20 cases the true value is no farther away. In a join results share
dropped rows, so these variances would be too small there: an error is available over one stream only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeGuard

from strandline.core.errors import BindError, Span
from strandline.core.types import DOUBLE
from strandline.logical.catalog import WEIGHT
from strandline.sql import ast

SCALED: Final = {
    "scaled_count": "The number of rows, or of values, as it would be with those that shedding dropped; a DOUBLE.",
    "scaled_sum": "The sum of numbers as it would be with those that shedding dropped; a DOUBLE.",
    "count_error": "How far SCALED_COUNT may be off, in 19 of 20 cases.",
    "sum_error": "How far SCALED_SUM may be off, in 19 of 20 cases.",
}
_TWO_SIDED: Final = "1.96"  # standard deviations to either side, that leave one case in twenty out


def rescaled(select: ast.Select) -> ast.Select:
    """A SELECT in which these aggregates are sums over weights, and whose streams have weights for them."""
    called = [node for node in ast.own_nodes((select.items, select.having, select.qualify)) if _is_scaled(node)]
    if not called:
        return select
    tables = list(_tables(select.tables))
    for table in tables:
        if not isinstance(table, ast.StreamTable):
            raise not_weighted(table, called[0].name.name.upper())
    for call in called:
        _check(call, len(tables))
    names = [table.alias or table.name for table in tables if isinstance(table, ast.StreamTable)]
    items = tuple(
        replace(item, alias=ast.Identifier(item.value.name.name.lower(), span=item.value.span))
        if item.alias is None and _is_scaled(item.value)
        else item
        for item in select.items
    )

    def weigh(node: ast.Node) -> ast.Node:
        if isinstance(node, ast.StreamTable):
            return replace(node, weighted=True)
        return _expand_call(node, names) if _is_scaled(node) else node

    parts: dict[str, Any] = {name: getattr(select, name) for name in ("tables", "having", "qualify")} | {"items": items}
    return replace(select, **{name: ast.rewrite(part, weigh, into_queries=False) for name, part in parts.items()})


def as_if_whole(tree: Any) -> Any:
    """The equivalent in standard SQL without shedding, for an oracle."""

    def plain(call: ast.Node) -> ast.Node:
        if not _is_scaled(call):
            return call
        at = call.span
        if call.name.name.lower().endswith("_error"):
            return _number("0", at)
        name = ast.Identifier(call.name.name.lower().removeprefix("scaled_"), span=at)
        return ast.Cast(replace(call, name=name), ast.TypeName(DOUBLE, span=at), span=at)

    return ast.rewrite(tree, plain)


def not_weighted(table: ast.Node, aggregate: str = "SCALED_COUNT and the like") -> BindError:
    hint = "Rows are dropped at sources: name the stream itself in FROM."
    return table.error(f"{aggregate} needs a stream with a source", "scaled-over-query", hint)


def _check(call: ast.FunctionCall, tables: int) -> None:
    name = call.name.name.lower()
    if call.distinct or call.order or call.within:
        hint = "Remove it: the number of dropped distinct values cannot be estimated from the rest."
        raise call.error(f"{name.upper()} does not take DISTINCT or ORDER BY", "scaled-distinct", hint)
    fits = "count" in name if isinstance(call.arguments, ast.Star) else len(call.arguments) == 1
    if not fits:
        hint = f"Write {name}({'*' if 'count' in name else 'x'})."
        raise call.error(f"{name.upper()} takes one argument", "function-arguments", hint)
    if name.endswith("_error") and tables > 1:
        hint = (
            "Results that share a row are lost together, so the error would be underestimated. Use it over one "
            "stream; scaled_count and scaled_sum are unbiased over joins, too."
        )
        raise call.error(f"{name.upper()} cannot be used over a join", "error-over-join", hint)


def _expand_call(call: ast.FunctionCall, names: list[ast.Identifier]) -> ast.Expression:
    """A call, in terms of weights."""
    at, name = call.span, call.name.name.lower()
    weight: ast.Expression = _weight(names[0], at)
    for other in names[1:]:
        weight = ast.Binary("*", weight, _weight(other, at), span=at)
    if name.endswith("_error"):
        weight_minus_one = ast.Binary("-", weight, _number("1", at), span=at)
        weight = ast.Binary("*", weight, weight_minus_one, span=at)
    if isinstance(call.arguments, ast.Star):
        value = weight
    elif "count" in name:
        is_not_null = ast.IsTest(call.arguments[0], "NULL", True, span=at)
        value = ast.Case(None, ((is_not_null, weight),), None, span=at)
    else:
        number = ast.Cast(call.arguments[0], ast.TypeName(DOUBLE, span=at), span=at)
        value = ast.Binary("*", weight, number, span=at)
        value = ast.Binary("*", value, number, span=at) if name.endswith("_error") else value
    total: ast.Expression = _function("sum", (value,), at, call.filter)
    if "count" in name:
        total = _function("coalesce", (total, _number("0", at)), at)
    if name.endswith("_error"):
        total = ast.Binary("*", _number(_TWO_SIDED, at), _function("sqrt", (total,), at), span=at)
    return total


def _weight(stream: ast.Identifier, at: Span) -> ast.Expression:
    """The weight of a row; where an outer join has none, that of a row that is there."""
    column = ast.ColumnName(stream, ast.Identifier(WEIGHT, quoted=True, span=at), span=at)
    return _function("coalesce", (column, _number("1", at)), at)


def _number(digits: str, at: Span) -> ast.Expression:
    return ast.Cast(ast.Number(digits, span=at), ast.TypeName(DOUBLE, span=at), span=at)


def _function(
    name: str, arguments: tuple[ast.Expression, ...], at: Span, condition: ast.Expression | None = None
) -> ast.FunctionCall:
    return ast.FunctionCall(ast.Identifier(name, span=at), arguments, condition, span=at)


def _is_scaled(node: object) -> TypeGuard[ast.FunctionCall]:
    return isinstance(node, ast.FunctionCall) and node.name.name.lower() in SCALED


def _tables(tables: tuple[ast.TableReference, ...]) -> Iterator[ast.StreamTable | ast.QueryTable]:
    for table in tables:
        if isinstance(table, ast.Join):
            yield from _tables((table.left, table.right))
        elif isinstance(table, ast.WindowTable):
            yield table.source
        elif not isinstance(table, ast.UnnestTable):
            yield table

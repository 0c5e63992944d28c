"""Aggregates corrected for load shedding: `scaled_count`, `scaled_sum`, and their error bounds.

A pass before the binder. Every row of a stream represents `1 / share` rows of its source, which is its weight w; a row
of a join has the product of the weights. Rows are sampled independently by a hash, so

    scaled_count(*) = Σ w            its variance is estimated by Σ w · (w - 1)
    scaled_sum(x)   = Σ w · x        its variance is estimated by Σ w · (w - 1) · x²

and an error is 1.96 standard deviations: in 19 of 20 cases the true value is no farther away. In a join results share
dropped rows, so these variances would be too small there: an error is available over one stream only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Final

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

_Rewrite = Callable[[ast.Function], ast.Expression]


def rescaled(select: ast.Select) -> ast.Select:
    """A SELECT in which these aggregates are sums over weights, and whose streams have weights for them."""
    called = [call for part in (select.items, select.having, select.qualify) for call in _calls(part)]
    if not called:
        return select
    tables = list(_tables(select.tables))
    for table in tables:
        if not isinstance(table, ast.StreamTable):
            raise _not_a_source(called[0], table.span)
    for call in called:
        _check(call, len(tables))
    names = [table.alias or table.name for table in tables if isinstance(table, ast.StreamTable)]
    items = tuple(
        replace(item, alias=ast.Identifier(item.value.name.name.lower(), span=item.value.span))
        if item.alias is None and isinstance(item.value, ast.Function) and _is_scaled(item.value)
        else item
        for item in select.items
    )
    weighted = _mapped(select.tables, lambda node: node, lambda table: replace(table, weighted=True))
    having, qualify = (_mapped(part, lambda call: _meant(call, names)) for part in (select.having, select.qualify))
    listed = _mapped(items, lambda call: _meant(call, names))
    return replace(select, items=listed, tables=weighted, having=having, qualify=qualify)


def as_if_whole(tree: Any) -> Any:
    """The equivalent in standard SQL without shedding, for an oracle."""

    def plain(call: ast.Function) -> ast.Expression:
        at = call.span
        if call.name.name.lower().endswith("_error"):
            return _number("0", at)
        name = ast.Identifier(call.name.name.lower().removeprefix("scaled_"), span=at)
        return ast.Cast(replace(call, name=name), ast.TypeName(DOUBLE, span=at), span=at)

    return _mapped(tree, plain, into_queries=True)


def not_weighted(table: ast.StreamTable) -> BindError:
    return _not_a_source(None, table.span)


def _not_a_source(call: ast.Function | None, span: Span) -> BindError:
    name = "SCALED_COUNT and the like" if call is None else call.name.name.upper()
    return BindError(
        f"{name} needs a stream with a source",
        code="scaled-over-query",
        hint="Rows are dropped at sources: name the stream itself in FROM.",
        span=span,
    )


def _check(call: ast.Function, tables: int) -> None:
    name = call.name.name.lower()
    if call.distinct or call.order or call.within:
        raise BindError(
            f"{name.upper()} does not take DISTINCT or ORDER BY",
            code="scaled-distinct",
            hint="Remove it: the number of dropped distinct values cannot be estimated from the rest.",
            span=call.span,
        )
    fits = "count" in name if isinstance(call.arguments, ast.Star) else len(call.arguments) == 1
    if not fits:
        raise BindError(
            f"{name.upper()} takes one argument",
            code="function-arguments",
            hint=f"Write {name}({'*' if 'count' in name else 'x'}).",
            span=call.span,
        )
    if name.endswith("_error") and tables > 1:
        raise BindError(
            f"{name.upper()} cannot be used over a join",
            code="error-over-join",
            hint="Results that share a row are lost together, so the error would be underestimated. Use it over one "
            "stream; scaled_count and scaled_sum are unbiased over joins, too.",
            span=call.span,
        )


def _meant(call: ast.Function, names: list[ast.Identifier]) -> ast.Expression:
    """A call, in terms of weights."""
    at, name = call.span, call.name.name.lower()
    weight: ast.Expression = _weight(names[0], at)
    for other in names[1:]:
        weight = ast.Binary("*", weight, _weight(other, at), span=at)
    if name.endswith("_error"):
        less = ast.Binary("-", weight, _number("1", at), span=at)
        weight = ast.Binary("*", weight, less, span=at)
    if isinstance(call.arguments, ast.Star):
        value = weight
    elif "count" in name:
        there = ast.IsTest(call.arguments[0], "NULL", True, span=at)
        value = ast.Case(None, ((there, weight),), None, span=at)
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
) -> ast.Function:
    return ast.Function(ast.Identifier(name, span=at), arguments, condition, span=at)


def _is_scaled(node: object) -> bool:
    return isinstance(node, ast.Function) and node.name.name.lower() in SCALED


def _calls(tree: Any) -> Iterator[ast.Function]:
    """The calls of these aggregates that belong to a SELECT itself and not to a query in it."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from _calls(part)
    elif isinstance(tree, ast.Node) and not isinstance(tree, ast.Query):
        if isinstance(tree, ast.Function) and _is_scaled(tree):
            yield tree
        for child in ast.children(tree):
            yield from _calls(child)


def _tables(tables: tuple[ast.Table, ...]) -> Iterator[ast.StreamTable | ast.QueryTable]:
    for table in tables:
        if isinstance(table, ast.Join):
            yield from _tables((table.left, table.right))
        else:
            yield table


def _mapped(
    tree: Any,
    call: _Rewrite,
    stream: Callable[[ast.StreamTable], ast.StreamTable] = lambda table: table,
    into_queries: bool = False,
) -> Any:
    """A syntax tree with its calls of these aggregates, and its streams, replaced."""
    if isinstance(tree, tuple):
        return tuple(_mapped(part, call, stream, into_queries) for part in tree)
    if not isinstance(tree, ast.Node) or (isinstance(tree, ast.Query) and not into_queries):
        return tree
    if isinstance(tree, ast.StreamTable):
        return stream(tree)
    parts = {each.name: getattr(tree, each.name) for each in fields(tree) if each.name != "span"}
    changed = replace(tree, **{name: _mapped(part, call, stream, into_queries) for name, part in parts.items()})
    return call(changed) if isinstance(changed, ast.Function) and _is_scaled(changed) else changed

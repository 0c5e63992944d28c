"""Items of a SELECT list: expressions, stars with what they leave out, and the keys of GROUP BY ALL."""

from __future__ import annotations

from dataclasses import replace

from strandline.functions.aggregates import find_aggregate
from strandline.sql import ast
from strandline.sql.lexer import Token
from strandline.sql.parser import expressions, queries
from strandline.sql.parser.token_stream import TokenStream


def parse_items(tokens: TokenStream) -> tuple[ast.Item, ...]:
    """One or more items; a comma may follow the last."""
    items = [_parse_item(tokens)]
    while tokens.accept(","):
        if tokens.sees("FROM"):
            break
        items.append(_parse_item(tokens))
    return tuple(items)


def _parse_item(tokens: TokenStream) -> ast.Item:
    start = tokens.token
    value = _parse_value(tokens)
    alias = queries.parse_alias(tokens) if tokens.sees("AS") or tokens.sees_name() else None
    if alias is not None and isinstance(value, ast.Star):
        raise tokens.error("* cannot have an alias", "syntax", alias.span, "List the columns to rename them.")
    return ast.Item(value, alias, span=tokens.since(start))


def _parse_value(tokens: TokenStream) -> ast.Expression | ast.Star:
    start = tokens.token
    if tokens.accept("*"):
        return _parse_exceptions(tokens, ast.Star(span=start.span))
    if tokens.sees_name() and tokens.peek().keyword == "." and tokens.peek(2).keyword == "*":
        qualifier = tokens.expect_name("a name")
        tokens.advance(2)
        return _parse_exceptions(tokens, ast.Star(qualifier, span=tokens.since(start)))
    return expressions.parse_expression(tokens)


def _parse_exceptions(tokens: TokenStream, star: ast.Star) -> ast.Star:
    """`EXCLUDE (a, b)` or `EXCEPT (a, b)`, and `REPLACE (a + 1 AS a)`, after a star."""
    if tokens.sees("EXCLUDE") or (tokens.sees("EXCEPT", "(") and tokens.peek(2).keyword != "SELECT"):
        tokens.advance()
        if tokens.sees("("):
            names = tokens.parse_enclosed_list(lambda inner: inner.expect_name("a column"))
        else:
            names = (tokens.expect_name("a column"),)
        star = replace(star, exclude=names, span=tokens.since(star))
    if tokens.accept("REPLACE", "("):
        pairs = tokens.parse_list(_parse_replacement)
        tokens.expect(")")
        star = replace(star, replace=pairs, span=tokens.since(star))
    return star


def _parse_replacement(tokens: TokenStream) -> tuple[ast.Expression, ast.Identifier]:
    value = expressions.parse_expression(tokens)
    tokens.expect("AS", hint="Write * REPLACE (price * 2 AS price).")
    return value, tokens.expect_name("a column")


def all_keys(items: tuple[ast.Item, ...], word: Token) -> tuple[ast.Grouping, ...]:
    """The keys of GROUP BY ALL: the items that have no aggregate, by their positions."""
    keys: list[ast.Grouping] = []
    for position, item in enumerate(items, 1):
        if isinstance(item.value, ast.Star):
            hint = "List the columns, or write GROUP BY with the keys."
            raise item.error("GROUP BY ALL does not take a star", "not-supported", hint)
        calls = (node for node in ast.own_nodes(item.value) if isinstance(node, ast.FunctionCall))
        if not any(find_aggregate(call.name.name) for call in calls):
            keys.append(ast.Number(str(position), span=word.span))
    return tuple(keys or [ast.GroupingList((), span=word.span)])

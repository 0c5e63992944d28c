"""UNNEST in FROM, and in the SELECT list, where it is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.sql import ast
from strandline.sql.parser import expressions, queries
from strandline.sql.parser.token_stream import TokenStream

_OFFSET_HINT: Final = "Write WITH ORDINALITY AS t(element, position); positions count from 1."
_NAMES: Final = ("UNNEST", "EXPLODE")


def sees_unnest(tokens: TokenStream) -> bool:
    """UNNEST(…) or LATERAL UNNEST(…)."""
    ahead = 1 if tokens.sees("LATERAL") else 0
    return tokens.peek(ahead).keyword in _NAMES and tokens.peek(ahead + 1).keyword == "("


def parse_unnest(tokens: TokenStream) -> ast.UnnestTable:
    start = tokens.token
    tokens.accept("LATERAL")
    tokens.advance()
    array = tokens.parse_enclosed(expressions.parse_expression, "Write UNNEST(array) AS t(element).")
    ordinality = tokens.accept("WITH", "ORDINALITY")
    if tokens.sees("WITH", "OFFSET"):
        raise tokens.unsupported("WITH OFFSET", _OFFSET_HINT, tokens.token.span.to(tokens.peek().span))
    alias = queries.parse_alias(tokens) if tokens.sees("AS") or tokens.sees_name() else None
    columns: tuple[ast.Identifier, ...] = ()
    if alias is not None and tokens.sees("("):
        columns = tokens.parse_enclosed_list(lambda names: names.expect_name("a name for the elements"))
    if len(columns) > 1 + ordinality:
        hint = "Name the elements and, with WITH ORDINALITY, their positions."
        raise tokens.error(f"UNNEST has {1 + ordinality} columns, not {len(columns)}", "syntax", columns[-1].span, hint)
    return ast.UnnestTable(array, alias, columns, ordinality, span=tokens.since(start))


def with_unnest(select: ast.Select) -> ast.Select:
    """`SELECT unnest(a) AS x FROM s` as `SELECT x FROM s, UNNEST(a) AS x`."""
    items: list[ast.Item] = []
    tables = list(select.tables)
    for item in select.items:
        match item.value:
            case ast.FunctionCall(name, (array,)) if name.name.upper() in _NAMES and not name.quoted:
                alias = ast.Identifier(f"#{name.name.lower()}{len(tables)}", True, span=name.span)
                column = item.alias or ast.Identifier(name.name.lower(), span=name.span)
                tables.append(ast.UnnestTable(array, alias, (replace(column, quoted=True),), span=item.value.span))
                value = ast.ColumnName(alias, replace(column, quoted=True), span=item.value.span)
                items.append(replace(item, value=value))
            case _:
                items.append(item)
    if len(tables) == len(select.tables):
        return select
    if len(tables) > len(select.tables) + 1:
        hint = "Write FROM s, UNNEST(a) AS t(x) for the elements of one array; two together would be all pairs."
        raise tables[-1].error("the SELECT list has more than one UNNEST", "not-supported", hint)
    return replace(select, items=tuple(items), tables=tuple(tables))

"""Calls: the arguments of functions and aggregates, and what may follow them.

Calls that are written with words between their arguments, such as EXTRACT(year FROM ts), become ordinary ones.
"""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind
from strandline.sql.parser import expressions, spellings, windows
from strandline.sql.parser.token_stream import TokenStream

_TRIMS: Final = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_SUBQUERY_HINT: Final = "Put a subquery argument in its own parentheses: abs((SELECT …))."


def parse_call(tokens: TokenStream, name: ast.Identifier) -> ast.Expression:
    """`([DISTINCT] argument, … [ORDER BY …]) [WITHIN GROUP (…)] [FILTER (WHERE …)] [IGNORE NULLS] [OVER …]`."""
    tokens.expect("(")
    word = "" if name.quoted else name.name.upper()
    if word in _SPECIAL_ARGUMENTS:
        if word == "TRIM" and tokens.sees_any(_TRIMS):
            name = ast.Identifier(_TRIMS[tokens.advance().keyword], span=name.span)
        special = _SPECIAL_ARGUMENTS[word](tokens)
        tokens.expect(")")
        return ast.FunctionCall(name, special, span=tokens.since(name))
    arguments: tuple[ast.Expression, ...] | ast.Star = ()
    order: tuple[ast.SortItem, ...] = ()
    distinct = False
    nulls: str | None = None
    if tokens.sees("*"):
        arguments = ast.Star(span=tokens.advance().span)
    elif not tokens.sees(")"):
        distinct = tokens.accept("DISTINCT")
        tokens.accept("ALL")
        if tokens.sees_any(("SELECT", "WITH", "VALUES")):
            span = tokens.previous.span.to(tokens.peek(tokens.find_closing(-1)).span)
            raise tokens.unsupported("a subquery without parentheses", _SUBQUERY_HINT, span)
        arguments = tokens.parse_list(expressions.parse_expression)
        nulls = windows.parse_nulls(tokens)
        order = expressions.parse_order_by(tokens) if tokens.sees("ORDER") else ()
        if tokens.sees_any(("FROM", "FOR")):
            feature = f"{tokens.token.keyword} in {name.name}(…)"
            raise tokens.unsupported(feature, "Separate the arguments by commas.")
    tokens.expect(")")
    within = tokens.parse_enclosed(expressions.parse_order_by) if tokens.accept("WITHIN", "GROUP") else ()
    condition = _parse_condition(tokens) if tokens.accept("FILTER", "(") else None
    called = ast.FunctionCall(name, arguments, condition, distinct, order, within, span=tokens.since(name))
    expanded = spellings.expand_call(called)
    return windows.parse_over(tokens, expanded, nulls) if isinstance(expanded, ast.FunctionCall) else expanded


def _parse_condition(tokens: TokenStream) -> ast.Expression:
    """`WHERE condition)`, after FILTER and its parenthesis."""
    tokens.expect("WHERE", hint="Write FILTER (WHERE condition).")
    condition = expressions.parse_expression(tokens)
    tokens.expect(")")
    return condition


def _parse_extract(tokens: TokenStream) -> tuple[ast.Expression, ...]:
    unit = tokens.token
    if unit.kind not in (Kind.WORD, Kind.TEXT):
        raise tokens.unexpected("a unit of time", "Write EXTRACT(year FROM ts).")
    tokens.advance()
    tokens.expect("FROM", hint="Write EXTRACT(year FROM ts).")
    return ast.Text(unit.value, span=unit.span), expressions.parse_expression(tokens)


def _parse_position(tokens: TokenStream) -> tuple[ast.Expression, ...]:
    part = expressions.parse_expression(tokens, expressions.MATCH + 1)
    tokens.expect("IN", hint="Write POSITION('part' IN s).")
    return part, expressions.parse_expression(tokens)


def _parse_substring(tokens: TokenStream) -> tuple[ast.Expression, ...]:
    arguments = list(tokens.parse_list(expressions.parse_expression))
    if tokens.accept("FROM"):
        arguments.append(expressions.parse_expression(tokens))
    if tokens.sees("FOR"):
        if len(arguments) == 1:
            arguments.append(ast.Number("1", span=tokens.token.span))
        tokens.advance()
        arguments.append(expressions.parse_expression(tokens))
    return tuple(arguments)


def _parse_overlay(tokens: TokenStream) -> tuple[ast.Expression, ...]:
    arguments = list(tokens.parse_list(expressions.parse_expression))
    if tokens.accept("PLACING"):
        arguments.append(expressions.parse_expression(tokens))
        tokens.expect("FROM", hint="Write OVERLAY(s PLACING new FROM 2 FOR 3).")
        arguments.append(expressions.parse_expression(tokens))
        if tokens.accept("FOR"):
            arguments.append(expressions.parse_expression(tokens))
    return tuple(arguments)


def _parse_trim(tokens: TokenStream) -> tuple[ast.Expression, ...]:
    characters = () if tokens.sees("FROM") else tokens.parse_list(expressions.parse_expression)
    return (expressions.parse_expression(tokens), *characters) if tokens.accept("FROM") else characters


_SPECIAL_ARGUMENTS: Final = {
    "EXTRACT": _parse_extract,
    "POSITION": _parse_position,
    "SUBSTRING": _parse_substring,
    "SUBSTR": _parse_substring,
    "OVERLAY": _parse_overlay,
    "TRIM": _parse_trim,
}

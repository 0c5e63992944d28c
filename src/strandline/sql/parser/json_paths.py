"""Operators of JSON, written as calls with a path: `j -> 'a' ->> 0` is `json_extract_string(j, '$.a[0]')`."""

from __future__ import annotations

from typing import Final

from strandline.functions.jsons import Steps, path_of, steps_of
from strandline.sql import ast
from strandline.sql.lexer import Token
from strandline.sql.parser import expressions
from strandline.sql.parser.token_stream import TokenStream

OPERATORS: Final = ("->", "->>", "#>", "#>>")
_HINT: Final = "Write j ->> 'key', j ->> 0, j ->> '$.path' or j #>> '{a,b}', with a literal."


def parse_path_operand(tokens: TokenStream, start: Token, left: ast.Expression, operator: Token) -> ast.FunctionCall:
    """What is right of an operator of JSON, and the call that it means."""
    right = expressions.parse_expression(tokens, expressions.OTHER + 1)
    steps = _steps(right, operator.value)
    if steps is None:
        raise tokens.unsupported(f"{operator.value} with {right.text}", _HINT, right.span)
    name = "json_extract_string" if operator.value.endswith(">>") else "json_extract"
    match left:
        case ast.FunctionCall(called, (inner, ast.Text(already))) if called.name == "json_extract":
            before = steps_of(already)
            if before is not None:  # a path in two parts is one
                left, steps = inner, (*before, *steps)
    span = tokens.since(start)
    path = ast.Text(path_of(steps), span=right.span)
    return ast.FunctionCall(ast.Identifier(name, span=span), (left, path), written=_column(steps), span=span)


def _steps(right: ast.Expression, operator: str) -> Steps | None:
    match right:
        case ast.Text(text) if operator.startswith("#"):
            inner = text.strip()
            if not (inner.startswith("{") and inner.endswith("}")):
                return None
            parts = [part.strip().strip('"') for part in inner[1:-1].split(",") if part.strip()]
            return tuple(int(part) if part.lstrip("-").isdecimal() else part for part in parts)
        case ast.Text(text):
            return steps_of(text) if text.startswith("$") else (text,)
        case ast.Number(digits) if digits.isdecimal() and not operator.startswith("#"):
            return (int(digits),)
        case ast.Unary("-", ast.Number(digits)) if digits.isdecimal() and not operator.startswith("#"):
            return (-int(digits),)
    return None


def _column(steps: Steps) -> str | None:
    """A result is called by the last key of its path."""
    return next((step for step in reversed(steps) if isinstance(step, str)), None)

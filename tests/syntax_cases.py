"""Cases of `sql/cases/*.case`, and syntax trees as text."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from strandline.core.types import Type
from strandline.sql import ast

CASES = Path(__file__).parent / "sql" / "cases"


def cases(name: str) -> list[Any]:
    """The cases of a file: a title line `-- …`, the text, `----`, and what is expected of it."""
    found = []
    for part in ("\n" + (CASES / name).read_text()).split("\n-- ")[1:]:
        title, _, rest = part.partition("\n")
        text, _, expected = rest.partition("\n----\n")
        found.append(pytest.param(text, expected.strip("\n"), id=title))
    return found


def show(node: object) -> str:
    """A tree as one line: operators first, fields that say nothing left out."""
    match node:
        case ast.Identifier(name, quoted):
            return f'"{name}"' if quoted else name
        case ast.Number(digits):
            return digits
        case ast.Text(value):
            return f"'{value}'"
        case ast.Truth(value):
            return str(value).upper()
        case ast.Null():
            return "NULL"
        case ast.TypedText(kind, value):
            return f"{kind}'{value}'"
        case ast.Interval(microseconds) | ast.Duration(microseconds):
            return f"{microseconds}us"
        case ast.TypeName(kind):
            return str(kind)
        case ast.ColumnName(qualifier, column):
            return show(column) if qualifier is None else f"{show(qualifier)}.{show(column)}"
        case ast.Star(qualifier):
            return "*" if qualifier is None else f"{show(qualifier)}.*"
        case ast.Unary(operator, operand):
            return f"({operator} {show(operand)})"
        case ast.Binary(operator, left, right):
            return f"({operator} {show(left)} {show(right)})"
        case ast.Logical(operator, operands):
            return f"({operator} {' '.join(map(show, operands))})"
        case ast.FunctionCall(name, arguments):
            inner = show(arguments) if isinstance(arguments, ast.Star) else ", ".join(map(show, arguments))
            return f"{show(name)}({inner})"
        case ast.Node():
            given = {f.name: said(node, f.name) for f in fields(node)}
            parts = [f"{name}={show(part)}" for name, part in given.items() if part is not None]
            return f"{type(node).__name__}({', '.join(parts)})"
        case tuple():
            return f"[{', '.join(map(show, node))}]"
    return str(node) if isinstance(node, Type) else repr(node)


def said(node: ast.Node, field: str) -> object:
    value = getattr(node, field)
    if field == "offset" and value == 0:
        return None
    return None if field in ("span", "clause") or value is None or value is False or value == () else value

"""Binding of user-defined functions and aggregates: their declarations, and their calls in a statement.

This comes before binding: the calls are marked in the syntax tree, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.core.errors import CatalogError
from strandline.core.security.allow import Allow
from strandline.functions.aggregates import find_aggregate
from strandline.functions.registry import ALIASES, FUNCTIONS
from strandline.functions.spellings import SPELLINGS
from strandline.logical.udf import Definition, UserAggregate, UserFunction
from strandline.sql import ast
from strandline.sql.lexer import RESERVED
from strandline.sql.parser.formats import FORMATTERS
from strandline.sql.parser.queries import CHANGES
from strandline.sql.parser.statements import parse_type

_FORMS: Final = frozenset(("extract", "date_part", "position", "interval"))


def define(name: str, body: Callable[..., Any], arguments: Sequence[str], returns: str) -> UserFunction:
    """A function as the user declares it, with SQL types as texts."""
    _check(name, arguments)
    return UserFunction(name.lower(), tuple(map(parse_type, arguments)), parse_type(returns), body)


def define_aggregate(
    name: str,
    arguments: Sequence[str],
    returns: str,
    initialize: Callable[[Any], Any],
    merge: Callable[[Any, Any], Any],
    evaluate: Callable[[Any], Any],
    inverse: Callable[[Any, Any], Any] | None,
) -> UserAggregate:
    _check(name, arguments)
    if len(arguments) > 1:
        hint = "Combine several columns in an expression."
        raise CatalogError(f"aggregate {name} must have exactly one argument", code="function-arguments", hint=hint)
    types = tuple(map(parse_type, arguments))
    return UserAggregate(name.lower(), types, parse_type(returns), initialize, merge, evaluate, inverse)


def _check(name: str, arguments: Sequence[str]) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.upper() in (*RESERVED, *CHANGES):
        hint = "Use a letter, then letters, digits and _; not a reserved word."
        raise CatalogError(f'invalid function name "{name}"', code="function-name", hint=hint)
    if name.lower() in {*FUNCTIONS, *ALIASES, *_FORMS, *SPELLINGS, *FORMATTERS} or find_aggregate(name) is not None:
        raise CatalogError(
            f"function {name.lower()} already exists", code="function-exists", hint="Choose another name."
        )
    if isinstance(arguments, str) or not arguments:
        hint = 'Write arguments=["DOUBLE"]; a function without arguments is a constant.'
        raise CatalogError(f"function {name} must have a list of argument types", code="function-arguments", hint=hint)


def with_definitions(tree: ast.Tree, functions: Mapping[str, Definition], allow: Allow | None = None) -> ast.Tree:
    """The syntax tree with each call of one of these functions marked as such, if it is allowed."""

    def mark(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.FunctionCall):
            return node
        definition = functions.get(node.name.name.lower())
        if definition is not None and allow is not None:
            allow.check_function(node.name.name.lower(), node.name.span)
        return replace(node, definition=definition)

    return ast.rewrite(tree, mark) if functions else tree

"""Calls of other dialects, written as what they mean here (`functions/spellings.py`)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from strandline.functions.spellings import SPELLINGS, TAKE_UNITS, Spelling
from strandline.sql import ast
from strandline.sql.parser import expressions, formats
from strandline.sql.parser.token_stream import TokenStream


def expand_call(call: ast.FunctionCall) -> ast.Expression:
    """The expression that a call of another dialect stands for; any other call as it is."""
    arguments = call.arguments
    if call.name.quoted or isinstance(arguments, ast.Star):
        return call
    name = call.name.name.lower()
    if name in formats.FORMATTERS:
        return formats.to_char(call)
    if name in ("listagg", "string_agg", "group_concat") and call.within:
        call = replace(call, order=call.within, within=())
    for spelling in SPELLINGS.get(name, ()):
        values = _matched(spelling, arguments)
        if values is not None:
            return _expanded(call, spelling, values)
    if name in TAKE_UNITS and arguments:
        return replace(call, arguments=(_unit(arguments[0]) or arguments[0], *arguments[1:]))
    return call


def _matched(spelling: Spelling, arguments: tuple[ast.Expression, ...]) -> dict[str, ast.Expression] | None:
    """The arguments by the names of the parameters; None if they do not fit."""
    if len(arguments) != len(spelling.parameters):
        return None
    values: dict[str, ast.Expression] = {}
    for name, argument in zip(spelling.parameters, arguments, strict=True):
        value: ast.Expression | None = argument
        if name == "unit":
            value = _unit(argument)
        elif name.isdecimal() and not (isinstance(argument, ast.Number) and argument.digits == name):
            value = None
        if value is None:
            return None
        values[name] = value
    return values


def _unit(argument: ast.Expression) -> ast.Expression | None:
    """A unit of time as a text; it may be a bare name."""
    match argument:
        case ast.Text():
            return argument
        case ast.ColumnName(None, column) if not column.quoted and column.name != "unit":  # a template has that
            return ast.Text(column.name.lower().removeprefix("sql_tsi_"), span=argument.span)
    return None


@cache
def _template(text: str) -> ast.Expression:
    tokens = TokenStream(text)
    template = expressions.parse_expression(tokens)
    assert tokens.at_end(), f"a spelling is one expression: {text}"
    return template


def _expanded(call: ast.FunctionCall, spelling: Spelling, values: dict[str, ast.Expression]) -> ast.Expression:
    """The template with the arguments in place; errors about the rest of it are at the call."""

    def put(node: ast.Node) -> ast.Node:
        if isinstance(node, ast.ColumnName) and node.qualifier is None and node.column.name in values:
            return values[node.column.name]
        return replace(node, span=call.span)

    meaning = ast.rewrite(_template(spelling.means), put)
    if not isinstance(meaning, ast.FunctionCall):
        if call.filter is not None or call.distinct or call.order or call.within:
            return call  # the binder refuses clauses of aggregates here
        return expressions.with_months(meaning) if isinstance(meaning, ast.Binary) else meaning
    conditions = tuple(condition for condition in (meaning.filter, call.filter) if condition is not None)
    both = ast.Logical("AND", conditions, span=call.span) if len(conditions) > 1 else None
    condition = both or (conditions[0] if conditions else None)
    return replace(
        meaning,
        filter=condition,
        distinct=meaning.distinct or call.distinct,
        order=(*call.order, *meaning.order),
        within=meaning.within or call.within,
        written=call.name.name.lower(),
    )

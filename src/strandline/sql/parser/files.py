"""Files in FROM: `'trades.csv'`, `read_csv('trades.csv', delim = ';')`, `read_parquet('…')`, `read_json('…')`."""

from __future__ import annotations

import os
import re
from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind
from strandline.sql.parser.connectors import parse_connector
from strandline.sql.parser.token_stream import TokenStream

# The functions of other databases, with the format that they read; None where the name of the file decides.
FUNCTIONS: Final = {
    "FILE": None,
    "READ_CSV": "csv",
    "READ_CSV_AUTO": "csv",
    "READ_PARQUET": "parquet",
    "PARQUET_SCAN": "parquet",
    "READ_JSON": "json",
    "READ_JSON_AUTO": "json",
    "READ_NDJSON": "json",
    "READ_NDJSON_AUTO": "json",
}
_OPTIONS: Final = {"delim": "delimiter", "sep": "delimiter", "nullstr": "nulls"}
_MARKS: Final = re.compile(r"[^A-Za-z0-9_]+")


def sees_file(tokens: TokenStream) -> bool:
    """A text, or one of the functions with a parenthesis."""
    if tokens.token.kind is Kind.TEXT:
        return True
    return tokens.token.kind is Kind.WORD and tokens.token.keyword in FUNCTIONS and tokens.peek().keyword == "("


def parse_file(tokens: TokenStream) -> tuple[ast.Identifier, ast.Identifier, ast.Connector]:
    """The name of a file as a stream, the alias that it has without another, and its source."""
    start = tokens.token
    if start.kind is Kind.TEXT:
        tokens.advance()
        path = ast.SourceValue(start.value, span=start.span)
        source = ast.Connector(ast.Identifier("file", span=start.span), (path,), (), span=start.span)
        return _named(start.value, source), _alias_of(start.value, source), source
    call = parse_connector(tokens, "file", "read_csv('trades.csv'), read_parquet('…'), read_json('…').")
    if len(call.arguments) != 1 or not isinstance(given := call.arguments[0].value, str):
        hint = "Write read_csv('trades.csv'), or a pattern: read_csv('trades/*.csv')."
        raise tokens.error(f"{call.function.name}() needs a path", "source-argument", call.span, hint)
    options = [(_renamed(name), value) for name, value in call.options]
    format_ = FUNCTIONS[call.function.name.upper()]
    if format_ is not None and not any(name.name == "format" for name, _ in options):
        name = ast.Identifier("format", span=call.function.span)
        options.append((name, ast.SourceValue(format_, span=call.function.span)))
    function = ast.Identifier("file", span=call.function.span)
    source = ast.Connector(function, call.arguments, tuple(options), span=call.span)
    return _named(call.text if call.options else given, source), _alias_of(given, source), source


def _renamed(option: ast.Identifier) -> ast.Identifier:
    """An option of another database under its name here."""
    name = _OPTIONS.get(option.name.lower(), option.name.lower())
    return ast.Identifier(name, span=option.span)


def _named(name: str, source: ast.Connector) -> ast.Identifier:
    return ast.Identifier(name, quoted=True, span=source.span)


def _alias_of(path: str, source: ast.Connector) -> ast.Identifier:
    """`trades` for trades.csv, and for trades/*.csv."""
    for part in reversed(path.split("/")):
        if stem := _MARKS.sub("_", os.path.basename(part).split(".")[0]).strip("_"):
            return ast.Identifier(stem if not stem[0].isdigit() else f"file_{stem}", span=source.span)
    return ast.Identifier("file", span=source.span)

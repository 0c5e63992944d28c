"""Types as they are written: `DOUBLE PRECISION`, `DECIMAL(18, 2)`, `VARCHAR(20)`."""

from __future__ import annotations

import difflib
from typing import Final

from strandline.core import types
from strandline.core.types import MAX_PRECISION, Type, decimal
from strandline.sql import ast
from strandline.sql.dialects.names import TYPES
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser.literals import parse_whole_number
from strandline.sql.parser.token_stream import TokenStream

SIMPLE_TYPES: Final[dict[str, Type]] = {
    "BOOLEAN": types.BOOLEAN,
    "BOOL": types.BOOLEAN,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "FLOAT": types.DOUBLE,
    "REAL": types.DOUBLE,
    "VARCHAR": types.VARCHAR,
    "TEXT": types.VARCHAR,
    "STRING": types.VARCHAR,
    "JSON": types.VARCHAR,
    "JSONB": types.VARCHAR,
    "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP,
}
TYPE_NAMES: Final = (*SIMPLE_TYPES, "DECIMAL", "NUMERIC")


def parse_type_name(tokens: TokenStream) -> ast.TypeName:
    start = tokens.token
    if start.kind is not Kind.WORD:
        raise tokens.unexpected("a type")
    if start.keyword not in TYPE_NAMES:
        near = difflib.get_close_matches(start.keyword, TYPE_NAMES, n=1)
        listing = "Types are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE and TIMESTAMP."
        hint = TYPES.get(start.keyword) or (f"Did you mean {near[0]}?" if near else listing)
        raise tokens.error(f"type {start.value} does not exist", "unknown-type", hint=hint)
    tokens.advance()
    if start.keyword in SIMPLE_TYPES:
        kind = SIMPLE_TYPES[start.keyword]
        _skip_suffix(tokens, start)
    else:
        kind = _parse_decimal(tokens, start)
    if tokens.sees("["):
        hint = "Arrays come from ARRAY_AGG(x) and array(a, …)."
        raise tokens.unsupported("an array as a declared type", hint, tokens.through(start))
    return ast.TypeName(kind, span=tokens.since(start))


def parse_cast_type(tokens: TokenStream) -> ast.TypeName:
    start = tokens.token
    kind = parse_type_name(tokens)
    if start.keyword == "VARCHAR" and kind.span.end > start.span.end:
        # A declared length is a promise of the source; in a cast it would have to cut the text.
        raise tokens.unsupported("CAST to VARCHAR(n)", "Write substring(x, 1, n).", kind.span)
    if start.keyword == "TIMESTAMP" and tokens.previous.keyword == ")":
        raise tokens.unsupported("CAST to TIMESTAMP(n)", "Write date_trunc('millisecond', x).", kind.span)
    return kind


def _skip_suffix(tokens: TokenStream, start: Token) -> None:
    match start.keyword:
        case "DOUBLE":
            tokens.accept("PRECISION")
        case "VARCHAR" if tokens.accept("("):
            parse_whole_number(tokens, "a length", 1, 2**31)
            tokens.expect(")")
        case "TIMESTAMP" if tokens.accept("("):
            parse_whole_number(tokens, "a number of digits", 0, 9)
            tokens.expect(")")
            _skip_suffix(tokens, start)
        case "TIMESTAMP" if tokens.sees("WITH"):
            raise tokens.unsupported("TIMESTAMP WITH TIME ZONE", "A TIMESTAMP is in UTC.", tokens.through(start))
        case "TIMESTAMP":
            tokens.accept("WITHOUT", "TIME", "ZONE")


def _parse_decimal(tokens: TokenStream, start: Token) -> Type:
    hint = f"Write {start.keyword}(precision, scale), as in {start.keyword}(18, 2)."
    if not tokens.accept("("):
        raise tokens.error(f"{start.keyword} needs a precision", "missing-precision", start.span, hint)
    precision = parse_whole_number(tokens, "a precision", 1, MAX_PRECISION)
    scale = parse_whole_number(tokens, "a scale", 0, precision) if tokens.accept(",") else 0
    tokens.expect(")")
    return decimal(precision, scale)

"""Statements, and the entry points of the parser."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from strandline.core.errors import ParseError, Span
from strandline.core.types import Type
from strandline.sql import ast
from strandline.sql.dialects.explain import explain_refusal
from strandline.sql.lexer import RESERVED, Token
from strandline.sql.parser import dml
from strandline.sql.parser.connectors import parse_connector, parse_source_stream
from strandline.sql.parser.create_table import parse_create_materialized_view, parse_create_table
from strandline.sql.parser.files import parse_file, sees_file
from strandline.sql.parser.literals import parse_percent
from strandline.sql.parser.queries import parse_as_query, parse_column_names, parse_query, sees_query
from strandline.sql.parser.tables import parse_new_name, parse_system_name
from strandline.sql.parser.token_stream import MAX_DEPTH, TokenStream, too_deep
from strandline.sql.parser.types import parse_type_name

SHOW_KINDS: Final = ("STREAMS", "TABLES", "VIEWS", "QUERIES", "SINKS", "SHEDDING", "FUNCTIONS", "GRAPH")

_STATEMENT_HINT: Final = (
    "Statements are SELECT, WITH, CREATE, DROP, INSERT, UPDATE, DELETE, MERGE, TRUNCATE, EXPLAIN, SHOW, DESCRIBE and"
    " SET."
)
_SINK_HINT: Final = "Write CREATE SINK name INTO parquet('directory') AS SELECT …."
_DROPPED_PERCENTAGE: Final = "the percentage of rows that may be dropped"
_DROP_HINT: Final = "Write DROP STREAM name; in place of STREAM may be TABLE, VIEW, MATERIALIZED VIEW or SINK."


def parse(text: str) -> list[ast.Statement]:
    """The statements of a script; they are separated by semicolons."""
    tokens = TokenStream(text)
    statements: list[ast.Statement] = []
    while not tokens.at_end():
        if tokens.accept(";"):
            continue
        try:
            statement = _parse_statement(tokens)
            if not (tokens.at_end() or tokens.sees(";")):
                raise tokens.unexpected("; or the end of the statement", _hint_for_leftover(tokens))
        except ParseError as error:
            raise explain_refusal(error, tokens.all_tokens) from None
        _check_height(statement)
        statements.append(statement)
    return statements


def parse_one(text: str) -> ast.Statement:
    """The only statement of `text`."""
    statements = parse(text)
    if not statements:
        raise ParseError("expected a statement, found the end of the text", code="syntax", span=Span(text, 0, 0))
    if len(statements) > 1:
        hint = "Run them one by one, or as a script."
        message = "expected one statement, found several"
        raise ParseError(message, code="one-statement", hint=hint, span=statements[1].span)
    return statements[0]


def parse_type(text: str) -> Type:
    """The type that a text such as `DECIMAL(10, 2)` denotes."""
    tokens = TokenStream(text)
    kind = parse_type_name(tokens)
    if not tokens.at_end():
        raise tokens.unexpected("the end of the type")
    return kind.type


def _hint_for_leftover(tokens: TokenStream) -> str | None:
    if tokens.sees("["):
        return "Put a window right after a stream or subquery in FROM, before or after its alias."
    if tokens.sees_any(RESERVED):
        return f'A name that is also a keyword needs quotes: "{tokens.token.value}".'
    return None


def _check_height(statement: ast.Statement) -> None:
    """Refuse trees that are deeper than the text is nested: a + b + c + … leans to the left, a level per operator."""
    pending: list[tuple[ast.Node, int]] = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise too_deep(node.span)
        pending.extend((child, depth + 1) for child in ast.children(node))


def _parse_statement(tokens: TokenStream) -> ast.Statement:
    if sees_query(tokens):
        return _parse_query_statement(tokens)
    word = tokens.token.keyword
    if word in _PARSERS:
        return _PARSERS[word](tokens)
    near = difflib.get_close_matches(word, STATEMENTS, n=1)
    raise tokens.unexpected("a statement", f"Did you mean {near[0]}?" if near else _STATEMENT_HINT)


def _parse_query_statement(tokens: TokenStream) -> ast.Query | ast.QueryWithShedding | ast.QueryWithStart:
    """A query that is a statement of its own, and what it allows."""
    query = parse_query(tokens)
    start = tokens.token
    if (begin := _parse_start(tokens)) is not None:
        return ast.QueryWithStart(query, begin, span=query.span.to(tokens.since(start)))
    shedding = _parse_shedding(tokens)
    return query if shedding is None else ast.QueryWithShedding(query, shedding, span=query.span.to(shedding.span))


def _parse_start(tokens: TokenStream) -> ast.Start | None:
    """`STARTING NOW` or `STARTING EARLIEST`, or nothing."""
    if tokens.accept("STARTING", "NOW"):
        return "now"
    return "earliest" if tokens.accept("STARTING", "EARLIEST") else None


def _parse_shedding(tokens: TokenStream) -> ast.Shedding | None:
    """`ALLOW SHEDDING [UP TO n PERCENT]`, or nothing."""
    start = tokens.token
    if not tokens.accept("ALLOW", "SHEDDING"):
        return None
    most = parse_percent(tokens, _DROPPED_PERCENTAGE) if tokens.accept("UP", "TO") else 1.0
    return ast.Shedding(most, span=tokens.since(start))


def _parse_set(tokens: TokenStream) -> ast.Set | ast.SetPipeline:
    """`SET CAPACITY { n PERCENT | MEASURED }`, `SET SHEDDING { ON | OFF | UP TO n PERCENT }`, or `SET PIPELINE
    { name | DEFAULT }`."""
    start = tokens.advance()
    if tokens.accept("PIPELINE"):
        is_default = tokens.accept("DEFAULT")
        name = None if is_default else tokens.expect_name("the name of a pipeline, or DEFAULT")
        return ast.SetPipeline(name, span=tokens.since(start))
    value: float | None = None
    if tokens.accept("CAPACITY"):
        if not tokens.accept("MEASURED"):
            value = parse_percent(tokens, "the percentage of the machine that may be used")
        return ast.Set("CAPACITY", value, span=tokens.since(start))
    tokens.expect(
        "SHEDDING", hint="Write SET CAPACITY 80 PERCENT, SET SHEDDING UP TO 40 PERCENT, or SET PIPELINE name."
    )
    if tokens.accept("UP", "TO"):
        value = parse_percent(tokens, _DROPPED_PERCENTAGE)
    elif not tokens.accept("OFF"):
        tokens.expect("ON", hint="Write SET SHEDDING ON, OFF, or UP TO 40 PERCENT.")
        value = 1.0
    return ast.Set("SHEDDING", value, span=tokens.since(start))


def _parse_show(tokens: TokenStream) -> ast.Show | ast.ShowColumns:
    start = tokens.advance()
    if tokens.accept("COLUMNS"):
        tokens.expect_any(("FROM", "IN"), "FROM after SHOW COLUMNS")
        return ast.ShowColumns(_parse_described_name(tokens), span=tokens.since(start))
    if tokens.accept("MATERIALIZED"):
        tokens.expect("VIEWS")
        return ast.Show("VIEWS", span=tokens.since(start))
    kind = tokens.expect_any(SHOW_KINDS, f"{', '.join(SHOW_KINDS[:-1])}, {SHOW_KINDS[-1]} or COLUMNS after SHOW")
    return ast.Show(kind, span=tokens.since(start))


def _parse_describe(tokens: TokenStream) -> ast.Describe | ast.ShowColumns:
    """`DESCRIBE [kind] name`, or the columns of a query."""
    start = tokens.advance()
    if sees_file(tokens):
        name, _, source = parse_file(tokens)
        file = ast.StreamTable(name, None, None, source=source, span=source.span)
        return ast.Describe(name, file, span=tokens.since(start))
    if sees_query(tokens) and not tokens.sees("TABLE"):
        return ast.ShowColumns(parse_query(tokens), span=tokens.since(start))
    if tokens.sees_any(("STREAM", "TABLE", "VIEW", "EXTENDED")) and tokens.sees_name(1):
        tokens.advance()
    return ast.Describe(_parse_described_name(tokens), span=tokens.since(start))


def _parse_described_name(tokens: TokenStream) -> ast.Identifier:
    name = tokens.expect_name("the name of a stream, table or view")
    return parse_system_name(tokens, name) if name.matches("sys") and tokens.sees(".") else name


def _parse_explain(tokens: TokenStream) -> ast.Explain | ast.ExplainAnalyze:
    start = tokens.advance()
    if tokens.accept("ANALYZE"):
        if sees_query(tokens) or tokens.sees("CREATE"):
            hint = "Start the query, then write EXPLAIN ANALYZE and its name; EXPLAIN alone shows the plan."
            raise tokens.unsupported("EXPLAIN ANALYZE of a query that is not running", hint, tokens.since(start))
        name = tokens.expect_name("the name of a running query")
        return ast.ExplainAnalyze(name, span=tokens.since(start))
    why = tokens.accept("WHY")
    if not why:  # words of other dialects for the same
        _ = tokens.accept("PLAN", "FOR") or tokens.accept("QUERY", "PLAN") or tokens.accept("EXTENDED")
    if tokens.sees("CREATE"):
        statement = _parse_create(tokens)
        hint = "EXPLAIN shows the plan of a SELECT or CREATE STREAM … AS SELECT."
        if isinstance(statement, ast.CreateStream):
            raise tokens.error("a stream from a source has no plan", "nothing-to-explain", statement.span, hint)
        if isinstance(statement, ast.CreateTable | ast.CreateTableAs | ast.Drop):
            raise tokens.error("a table has no plan", "nothing-to-explain", statement.span, hint)
        return ast.Explain(statement, why, span=tokens.since(start))
    if not sees_query(tokens):
        raise tokens.unexpected("SELECT or CREATE STREAM after EXPLAIN")
    return ast.Explain(_parse_query_statement(tokens), why, span=tokens.since(start))


def _parse_create(tokens: TokenStream) -> ast.Creation:
    start = tokens.advance()
    replaces = tokens.accept("OR", "REPLACE")
    statement = _parse_created(tokens, start)
    if replaces and statement.if_not_exists:
        hint = "Keep one of them."
        raise tokens.error("OR REPLACE and IF NOT EXISTS exclude each other", "conflicting-clauses", start.span, hint)
    return replace(statement, replace=replaces)


def _parse_created(tokens: TokenStream, start: Token) -> ast.Creation:
    """What follows CREATE [OR REPLACE]."""
    if tokens.accept("TABLE"):
        return parse_create_table(tokens, start)
    if tokens.accept("MATERIALIZED"):
        return parse_create_materialized_view(tokens, start)
    kind = _parse_kind(tokens, "Declare a stream: CREATE STREAM name (columns) SOURCE … or AS SELECT ….")
    if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
    name = parse_new_name(tokens, kind.lower())
    if kind == "SINK":
        return replace(_parse_sink(tokens, start, name), if_not_exists=if_not_exists)
    if kind == "VIEW":
        columns = parse_column_names(tokens)
        query = parse_as_query(tokens, "Write CREATE VIEW name AS SELECT ….")
        return ast.CreateView(name, columns, query, False, if_not_exists, span=tokens.since(start))
    if tokens.sees("AS"):
        query = parse_as_query(tokens)
        begin = _parse_start(tokens)
        shedding = None if begin is not None else _parse_shedding(tokens)
        span = tokens.since(start)
        return ast.CreateStreamAs(name, query, shedding, False, if_not_exists, begin, span=span)
    return replace(parse_source_stream(tokens, start, name), if_not_exists=if_not_exists)


def _parse_kind(tokens: TokenStream, hint: str) -> str:
    """STREAM, VIEW or SINK."""
    kind = tokens.token.keyword if tokens.sees_any(("VIEW", "SINK")) else "STREAM"
    tokens.expect(kind, hint=hint)
    return kind


def _parse_sink(tokens: TokenStream, start: Token, name: ast.Identifier) -> ast.CreateSink:
    tokens.expect("INTO", hint=_SINK_HINT)
    target = parse_connector(tokens, "sink", "parquet('directory'), sqlite('file', table => 'name'), ….")
    query = parse_as_query(tokens, _SINK_HINT)
    begin = _parse_start(tokens)
    shedding = None if begin is not None else _parse_shedding(tokens)
    return ast.CreateSink(name, target, query, shedding, start=begin, span=tokens.since(start))


def _parse_drop(tokens: TokenStream) -> ast.Drop | ast.DropSink:
    start = tokens.advance()
    if tokens.accept("MATERIALIZED"):
        tokens.expect("VIEW", hint=_DROP_HINT)
        kind = "MATERIALIZED VIEW"
    else:
        kind = "TABLE" if tokens.accept("TABLE") else _parse_kind(tokens, _DROP_HINT)
    if_exists = tokens.accept("IF", "EXISTS")
    name = tokens.expect_name(f"a {kind.lower()} name")
    if kind == "SINK":
        return ast.DropSink(name, if_exists, span=tokens.since(start))
    if tokens.sees(","):
        hint = f"Drop one after the other: DROP {kind} {name.name}, then DROP {kind} {tokens.peek().value}."
        raise tokens.unsupported("a list of names in DROP", hint)
    cascade = tokens.accept("CASCADE")
    if not cascade:
        tokens.accept("RESTRICT")  # the default
    return ast.Drop(kind, name, if_exists, cascade, span=tokens.since(start))


_PARSERS: Final[dict[str, Callable[[TokenStream], ast.Statement]]] = {
    "CREATE": _parse_create,
    "DROP": _parse_drop,
    "INSERT": dml.parse_insert,
    "UPDATE": dml.parse_update,
    "DELETE": dml.parse_delete,
    "MERGE": dml.parse_merge,
    "TRUNCATE": dml.parse_truncate,
    "EXPLAIN": _parse_explain,
    "SHOW": _parse_show,
    "DESCRIBE": _parse_describe,
    "DESC": _parse_describe,
    "SET": _parse_set,
}
STATEMENTS: Final = ("SELECT", "WITH", *_PARSERS)

"""FROM: streams and subqueries with their windows and aliases, and joins.

A window is `WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE)` or `[ROWS 10]`, perhaps with `GRANULARITY(1 SECOND)`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.core.types import TIMESTAMP
from strandline.logical.catalog import SYSTEM
from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser import expressions, queries, unnest, window_tables
from strandline.sql.parser.files import parse_file, sees_file
from strandline.sql.parser.literals import parse_duration, parse_row_count
from strandline.sql.parser.token_stream import TokenStream

OUTER_JOINS: Final = ("LEFT", "RIGHT", "FULL")
MATCH_JOINS: Final = ("SEMI", "ANTI")

_WINDOW_HINT: Final = (
    "Write WINDOW(RANGE 10 MINUTES), WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE), WINDOW(ROWS 10), "
    "WINDOW(SESSION 5 MINUTES) or WINDOW(NOW)."
)
_AS_OF_HINT: Final = (
    "Write FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-31', or AS OF s.ts with the time column of a stream."
)
_SEQUENCE_HINT: Final = (
    "Join the events by their times. A, then B within 10 seconds, without C between: FROM a JOIN b ON b.k = a.k AND "
    "b.ts > a.ts AND b.ts <= a.ts + INTERVAL '10 seconds' WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND "
    "c.ts > a.ts AND c.ts < b.ts)."
)
# Clauses that may follow a table, whose first words are names elsewhere.
_AFTER_TABLE: Final = (
    ("MATCH_RECOGNIZE", "("),
    ("ALLOW", "SHEDDING"),
    ("STARTING", "NOW"),
    ("STARTING", "EARLIEST"),
    ("AT", "TIMESTAMP"),
    ("FOR", "SYSTEM_TIME"),
    ("PRIMARY", "KEY"),
)


def parse_table(tokens: TokenStream) -> ast.TableReference:
    """A stream or subquery and the joins that follow it."""
    start = tokens.token
    left = parse_entry(tokens)
    while True:
        if tokens.accept("CROSS"):
            tokens.expect("JOIN")
            right = parse_entry(tokens)
            left = ast.Join(None, left, right, span=tokens.since(start))
        elif tokens.sees_any(("JOIN", "INNER", "NATURAL", *OUTER_JOINS)) or _sees_match_join(tokens):
            left = _parse_join(tokens, start, left)
        elif tokens.sees("MATCH_RECOGNIZE", "("):
            raise tokens.unsupported("MATCH_RECOGNIZE", _SEQUENCE_HINT)
        elif _sees_asof_join(tokens):
            left = _parse_asof_join(tokens, start, left)
        else:
            return left


def parse_system_name(tokens: TokenStream, schema: ast.Identifier) -> ast.Identifier:
    """The rest of a name such as `sys.operators`."""
    tokens.expect(".")
    last = tokens.expect_name("a table of sys")
    return ast.Identifier(f"{SYSTEM}{last.name.lower()}", span=schema.span.to(last.span))


def parse_new_name(tokens: TokenStream, what: str) -> ast.Identifier:
    """The name of what a CREATE declares; those of sys are taken."""
    name = tokens.expect_name(f"a {what} name")
    if name.matches("sys") and tokens.sees("."):
        hint = "Names that begin with sys. are reserved; choose another name."
        span = parse_system_name(tokens, name).span
        raise tokens.error("cannot create a table of sys", "system-table", span, hint)
    return name


def _parse_join(tokens: TokenStream, start: Token, left: ast.TableReference) -> ast.Join:
    """What follows the left side of a join, all but CROSS JOIN."""
    natural = tokens.accept("NATURAL")
    kind = None
    if tokens.sees("LEFT") and _sees_match_join(tokens, 1):
        tokens.advance()
    if _sees_match_join(tokens):
        kind = tokens.advance().keyword
    elif tokens.sees_any(OUTER_JOINS):
        kind = tokens.advance().keyword
        tokens.accept("OUTER")
    else:
        tokens.accept("INNER")
    tokens.expect("JOIN")
    right = parse_entry(tokens)
    condition, using = (None, ()) if natural else _parse_join_condition(tokens)
    return ast.Join(condition, left, right, kind, using, natural, span=tokens.since(start))


def _sees_asof_join(tokens: TokenStream) -> bool:
    """ASOF before JOIN or the kind of a join; the word is a name elsewhere."""
    return tokens.sees("ASOF") and tokens.peek().keyword in ("JOIN", "INNER", *OUTER_JOINS, *MATCH_JOINS)


def _parse_asof_join(tokens: TokenStream, start: Token, left: ast.TableReference) -> ast.Join:
    """`ASOF [LEFT] JOIN right ON condition | USING (columns)`."""
    tokens.advance()
    if tokens.sees_any(("RIGHT", "FULL", *MATCH_JOINS)):
        span = tokens.previous.span.to(tokens.token.span)
        hint = "Write ASOF JOIN or ASOF LEFT JOIN: each row of the left meets the last row of the right."
        raise tokens.unsupported(f"ASOF {tokens.token.keyword} JOIN", hint, span)
    kind = "LEFT" if tokens.accept("LEFT") else None
    tokens.accept("OUTER" if kind else "INNER")
    tokens.expect("JOIN")
    right = parse_entry(tokens)
    condition, using = _parse_join_condition(tokens)
    return ast.Join(condition, left, right, kind, using, asof=True, span=tokens.since(start))


def _sees_match_join(tokens: TokenStream, ahead: int = 0) -> bool:
    """SEMI JOIN or ANTI JOIN; the words are names elsewhere."""
    return tokens.peek(ahead).keyword in MATCH_JOINS and tokens.peek(ahead + 1).keyword == "JOIN"


def _parse_join_condition(tokens: TokenStream) -> tuple[ast.Expression | None, tuple[ast.Identifier, ...]]:
    if tokens.accept("USING"):
        return None, tokens.parse_enclosed_list(lambda names: names.expect_name("a column of both sides"))
    tokens.expect("ON", hint="Write JOIN … ON condition, JOIN … USING (columns), or CROSS JOIN for all pairs.")
    return expressions.parse_expression(tokens), ()


def parse_entry(tokens: TokenStream) -> ast.TableReference:
    if unnest.sees_unnest(tokens):
        return unnest.parse_unnest(tokens)
    if tokens.sees("LATERAL", "(") and tokens.peek(2).keyword in ("SELECT", "WITH", "("):
        return _parse_lateral(tokens)
    if tokens.sees("LATERAL") and tokens.peek(2).keyword == "(":
        hint = "Write LATERAL (SELECT … FROM b WHERE b.k = a.k) AS m; it stands before a subquery only."
        raise tokens.unsupported("LATERAL over a function", hint)
    if window_tables.sees_window_table(tokens):
        return _parse_window_table(tokens)
    if queries.sees_changes(tokens) or (tokens.sees("(") and queries.opens_query(tokens)):
        return _parse_query_table(tokens)
    return _parse_nested_joins(tokens) if tokens.sees("(") else _parse_stream_table(tokens)


def _parse_lateral(tokens: TokenStream) -> ast.QueryTable:
    """`LATERAL (query) [AS] name`."""
    start = tokens.advance()
    table = _parse_query_table(tokens)
    if table.window is not None or table.granularity is not None:
        hint = "Put the window right after the stream inside the subquery."
        raise tokens.unsupported("a window over LATERAL", hint, tokens.since(start))
    return replace(table, lateral=True, span=tokens.since(start))


def _parse_window_table(tokens: TokenStream) -> ast.WindowTable:
    """`TUMBLE(…) [[AS] alias]`."""
    start = tokens.token
    table = window_tables.parse_window_table(tokens)
    window, granularity, alias = _parse_window_and_alias(tokens)
    if window is not None or granularity is not None:
        hint = f"Remove it: {table.kind} is a window itself."
        raise tokens.error(f"a second window over {table.kind}", "duplicate-window", tokens.since(start), hint)
    return replace(table, alias=alias, span=tokens.since(start))


def _parse_nested_joins(tokens: TokenStream) -> ast.TableReference:
    tokens.enter()
    tokens.expect("(")
    table = parse_table(tokens)
    tokens.expect(")")
    if _sees_window(tokens) or tokens.sees("AS") or tokens.sees_name():
        hint = "Windows and aliases belong to the streams and subqueries inside."
        raise tokens.error("parenthesised joins take no window and no alias", "syntax", hint=hint)
    tokens.leave()
    return table


def _parse_file_table(tokens: TokenStream) -> ast.StreamTable:
    """A file, which goes by the stem of its name: `FROM 'trades.csv'` has `trades.price`."""
    start = tokens.token
    name, stem, source = parse_file(tokens)
    window, granularity, alias = _parse_window_and_alias(tokens)
    return ast.StreamTable(name, window, alias or stem, granularity, source=source, span=tokens.since(start))


def _parse_stream_table(tokens: TokenStream) -> ast.StreamTable:
    if sees_file(tokens):
        return _parse_file_table(tokens)
    name = tokens.expect_name("a stream or a subquery")
    if tokens.sees("("):
        hint = "Read files by read_csv('…'), read_parquet('…') or read_json('…'); declare others: CREATE STREAM …."
        raise tokens.unsupported("a function in FROM", hint, name.span)
    if tokens.sees("."):
        if not name.matches("sys"):
            span = name.span.to(tokens.peek().span)
            raise tokens.unsupported("a schema name", "Stream names have one part.", span)
        return _parse_system_table(tokens, name)
    as_of = _parse_as_of(tokens)
    window, granularity, alias = _parse_window_and_alias(tokens)
    as_of = as_of or _parse_as_of(tokens)
    return ast.StreamTable(name, window, alias, granularity, as_of=as_of, span=tokens.since(name))


def _parse_as_of(tokens: TokenStream) -> ast.TypedText | ast.ColumnName | None:
    """`AT TIMESTAMP '…'`, `FOR SYSTEM_TIME AS OF '…'`, `FOR SYSTEM_TIME AS OF s.ts`, or nothing."""
    if not tokens.accept("FOR", "SYSTEM_TIME"):
        return parse_at(tokens)
    tokens.expect("AS", "OF", hint=_AS_OF_HINT)
    if tokens.token.kind is Kind.TEXT or tokens.sees("TIMESTAMP"):
        return _parse_instant(tokens)
    start = tokens.token
    column = tokens.expect_name("an instant or the time column of a stream")
    qualifier = None
    if tokens.accept("."):
        qualifier, column = column, tokens.expect_name("the time column")
    if expressions.operator_level(tokens) or tokens.sees("("):
        raise tokens.unsupported("an expression after AS OF", _AS_OF_HINT, tokens.through(start))
    return ast.ColumnName(qualifier, column, span=tokens.since(start))


def parse_at(tokens: TokenStream) -> ast.TypedText | None:
    """`AT TIMESTAMP '…'`, or nothing; AT is a name elsewhere."""
    if not tokens.accept("AT", "TIMESTAMP"):
        return None
    return _parse_instant(tokens)


def _parse_instant(tokens: TokenStream) -> ast.TypedText:
    """`[TIMESTAMP] '…'`."""
    start = tokens.token
    tokens.accept("TIMESTAMP")
    if tokens.token.kind is not Kind.TEXT:
        raise tokens.unexpected("an instant in quotes", "Write it like TIMESTAMP '2024-01-31 23:59:59.5'.")
    text = tokens.advance()
    return ast.TypedText(TIMESTAMP, text.value, span=tokens.since(start))


def _parse_system_table(tokens: TokenStream, schema: ast.Identifier) -> ast.StreamTable:
    """`sys.operators [alias]`: what it is now, so it has no window."""
    name = parse_system_name(tokens, schema)
    after = tokens.token
    window, granularity, alias = _parse_window_and_alias(tokens)
    if window is not None or granularity is not None:
        hint = "Remove the window."
        raise tokens.error(f'a window over "{name.name}"', "system-table", after.span, hint)
    alias = alias or ast.Identifier(name.name.removeprefix(SYSTEM), span=name.span)
    return ast.StreamTable(name, None, alias, span=name.span.to(alias.span))


def _parse_query_table(tokens: TokenStream) -> ast.QueryTable:
    """`(query) [AS] name` or `ISTREAM(query)`, which may go by the name of the only stream that the query reads."""
    start = tokens.token
    enclosed = tokens.sees("(")
    query = queries.parse_enclosed_query(tokens) if enclosed else queries.parse_changes(tokens)
    window, granularity, alias = _parse_window_and_alias(tokens, with_columns=True)
    if alias is not None and tokens.sees("("):
        query = _renamed(query, alias, queries.parse_column_names(tokens))
    match query:
        case ast.Changes(_, ast.Select(_, _, (ast.StreamTable(name, None, None),))) if not (enclosed or alias):
            alias = name
    if alias is None:  # as in PostgreSQL and DuckDB; of two in one FROM, one needs a name
        alias = ast.Identifier("subquery", span=tokens.since(start))
    return ast.QueryTable(query, window, alias, granularity, span=tokens.since(start))


def _renamed(query: ast.Query, alias: ast.Identifier, columns: tuple[ast.Identifier, ...]) -> ast.Query:
    """`(query) AS name (columns)`, which is `WITH name (columns) AS (query) SELECT * FROM name`."""
    table = ast.StreamTable(alias, None, None, span=alias.span)
    star = ast.Item(ast.Star(span=alias.span), None, span=alias.span)
    body = ast.Select(False, (star,), (table,), None, (), None, span=query.span)
    return ast.With((ast.CommonTable(alias, columns, query, span=query.span),), body, span=query.span)


def _parse_window_and_alias(
    tokens: TokenStream, with_columns: bool = False
) -> tuple[ast.Window | None, ast.Duration | None, ast.Identifier | None]:
    """A window with its granularity, and an alias, in either order, all optional."""
    window = _parse_window(tokens) if _sees_window(tokens) else None
    granularity = _parse_granularity(tokens)
    alias = queries.parse_alias(tokens) if _sees_alias(tokens) else None
    if alias is not None and tokens.sees("(") and not with_columns:
        raise tokens.unsupported("a column list after an alias", "Name the columns in the subquery with AS.")
    if _sees_window(tokens):
        if window is not None:
            hint = "Keep one of them."
            raise tokens.error("a second window over one stream", "duplicate-window", hint=hint)
        window = _parse_window(tokens)
    return window, granularity or _parse_granularity(tokens), alias


def _sees_alias(tokens: TokenStream) -> bool:
    """AS, or a name that is not the first word of what may follow a table."""
    if not tokens.sees_name():
        return tokens.sees("AS")
    if any(tokens.sees(*clause) for clause in _AFTER_TABLE) or _sees_keep(tokens):
        return False
    return not (tokens.sees_any((*MATCH_JOINS, "ASOF", "MINUS")) and tokens.peek().kind is Kind.WORD)


def _sees_keep(tokens: TokenStream) -> bool:
    """`KEEP 7 DAYS` of a materialized view, after the last table of its query."""
    after = tokens.peek()
    return tokens.sees("KEEP") and (
        after.kind in (Kind.NUMBER, Kind.DURATION, Kind.TEXT) or after.keyword == "INTERVAL"
    )


# ---- windows ---------------------------------------------------------------------------------------------------------


def _sees_window(tokens: TokenStream) -> bool:
    return tokens.sees("[") or tokens.sees("WINDOW", "(")


def _parse_window(tokens: TokenStream) -> ast.Window:
    """`WINDOW(…)` or `[…]`."""
    start = tokens.token
    closing = "]" if tokens.accept("[") else ")"
    if closing == ")":
        tokens.expect("WINDOW", "(")
    if tokens.accept("NOW"):
        tokens.expect(closing)
        return ast.NowWindow(span=tokens.since(start))
    partition: tuple[ast.ColumnName, ...] = ()
    if tokens.accept("PARTITION"):
        tokens.expect("BY")
        partition = tokens.parse_list(_parse_partition_column)
    if tokens.accept("RANGE"):
        return _parse_range_window(tokens, start, closing, partition)
    if tokens.accept("ROWS"):
        return _parse_rows_window(tokens, start, closing, partition)
    if tokens.accept("SESSION"):
        gap = parse_duration(tokens, "SESSION", least=1)
        tokens.expect(closing)
        return ast.SessionWindow(partition, gap, span=tokens.since(start))
    raise tokens.unexpected("RANGE, ROWS or SESSION" if partition else "RANGE, ROWS, SESSION or NOW", _WINDOW_HINT)


def _parse_granularity(tokens: TokenStream) -> ast.Duration | None:
    """`GRANULARITY(n unit)`, or nothing."""
    if not tokens.accept("GRANULARITY", "("):
        return None
    length = parse_duration(tokens, "GRANULARITY", least=1)
    tokens.expect(")")
    return length


def _parse_range_window(
    tokens: TokenStream, start: Token, closing: str, partition: tuple[ast.ColumnName, ...]
) -> ast.RangeWindow:
    if tokens.sees_any(("MIN", "MAX")):
        raise tokens.unsupported(f"RANGE {tokens.token.keyword}", "Give the range a length: RANGE 10 MINUTES.")
    length = None if tokens.accept("UNBOUNDED") else parse_duration(tokens, "RANGE", least=1)
    slide = parse_duration(tokens, "SLIDE", least=1) if tokens.accept("SLIDE") else None
    offset = window_tables.parse_offset(tokens) % slide.microseconds if slide and tokens.accept("OFFSET") else 0
    if not tokens.accept(closing):
        raise tokens.unexpected(closing if slide else f"SLIDE or {closing}", _WINDOW_HINT)
    return ast.RangeWindow(length, slide, partition, offset, span=tokens.since(start))


def _parse_rows_window(
    tokens: TokenStream, start: Token, closing: str, partition: tuple[ast.ColumnName, ...]
) -> ast.RowsWindow | ast.RangeWindow:
    """`ROWS n [SLIDE m]`; the rows so far, without a bound, are those of all times so far."""
    if tokens.accept("UNBOUNDED"):
        if tokens.sees("SLIDE"):
            hint = "Leave SLIDE out, or write RANGE UNBOUNDED SLIDE 1 MINUTE to let rows in once a minute."
            raise tokens.unsupported("SLIDE after ROWS UNBOUNDED", hint)
        tokens.expect(closing, hint=_WINDOW_HINT)
        return ast.RangeWindow(None, None, partition, span=tokens.since(start))
    rows = parse_row_count(tokens, "the number of rows")
    slide = parse_row_count(tokens, "the slide in rows") if tokens.accept("SLIDE") else 1
    tokens.expect(closing, hint=_WINDOW_HINT)
    return ast.RowsWindow(partition, rows, slide, span=tokens.since(start))


def _parse_partition_column(tokens: TokenStream) -> ast.ColumnName:
    name = tokens.expect_name("a column of the stream")
    return ast.ColumnName(None, name, span=name.span)

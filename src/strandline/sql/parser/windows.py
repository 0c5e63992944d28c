"""Windows over streams: `WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE)`, `[ROWS 10]`, and `GRANULARITY(1 SECOND)`."""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Token
from strandline.sql.parser.literals import parse_duration, parse_row_count
from strandline.sql.parser.token_stream import TokenStream

_WINDOW_HINT: Final = (
    "Write WINDOW(RANGE 10 MINUTES), WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE), WINDOW(ROWS 10), "
    "WINDOW(SESSION 5 MINUTES) or WINDOW(NOW)."
)


def sees_window(tokens: TokenStream) -> bool:
    return tokens.sees("[") or tokens.sees("WINDOW", "(")


def parse_window(tokens: TokenStream) -> ast.Window:
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


def parse_granularity(tokens: TokenStream) -> ast.Duration | None:
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
    if not tokens.accept(closing):
        raise tokens.unexpected(closing if slide else f"SLIDE or {closing}", _WINDOW_HINT)
    return ast.RangeWindow(length, slide, partition, span=tokens.since(start))


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

"""Window functions: OVER with its window, frames, and the WINDOW clause."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from strandline.core.temporal import unit_size
from strandline.sql import ast
from strandline.sql.lexer import Kind
from strandline.sql.parser import expressions
from strandline.sql.parser.literals import parse_interval
from strandline.sql.parser.token_stream import MAX_DEPTH, TokenStream

FRAMES: Final = ("ROWS", "RANGE", "GROUPS")

_NULLS: Final = ("IGNORE", "RESPECT")
_OVER_HINT: Final = (
    "Write OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10 seconds' PRECEDING AND CURRENT ROW)."
)
_BOUND_HINT: Final = "Write UNBOUNDED PRECEDING, 3 PRECEDING, INTERVAL '10 seconds' PRECEDING or CURRENT ROW."
_STREAM_HINT: Final = (
    "Put the window of a stream right after it: FROM s WINDOW(RANGE …); that of functions is WINDOW w AS (…)."
)

Tree = TypeVar("Tree")


def parse_nulls(tokens: TokenStream) -> str | None:
    """`IGNORE NULLS` or `RESPECT NULLS`, if it stands here."""
    if tokens.sees_any(_NULLS) and tokens.peek().keyword == "NULLS":
        return tokens.advance(2).keyword
    return None


def parse_over(tokens: TokenStream, call: ast.FunctionCall, nulls: str | None) -> ast.FunctionCall | ast.WindowCall:
    """`[IGNORE NULLS] OVER (…)` or `OVER name` after a call; OVER may also be the name of a column."""
    nulls = parse_nulls(tokens) or nulls
    if not tokens.sees("OVER") or not (tokens.peek().keyword == "(" or tokens.sees_name(1)):
        if nulls is not None:
            raise tokens.unexpected(f"OVER after {nulls} NULLS", _OVER_HINT)
        return call
    start = tokens.advance()
    if tokens.sees("("):
        window = _parse_definition(tokens)
    else:
        name = tokens.expect_name("a window")
        window = ast.WindowDefinition(name, (), (), None, span=start.span.to(name.span))
    return ast.WindowCall(call, window, nulls == "IGNORE", span=tokens.since(call))


def _parse_definition(tokens: TokenStream) -> ast.WindowDefinition:
    """`([name] [PARTITION BY …] [ORDER BY …] [frame])`."""
    start = tokens.token
    tokens.expect("(", hint=_OVER_HINT)
    starts = tokens.sees("PARTITION", "BY") or (tokens.sees_any(FRAMES) and tokens.peek().keyword not in (")", "ORDER"))
    name = tokens.expect_name("a window") if tokens.sees_name() and not starts else None
    partition: tuple[ast.Expression, ...] = ()
    if tokens.accept("PARTITION"):
        tokens.expect("BY")
        partition = tokens.parse_list(expressions.parse_expression)
    order = expressions.parse_order_by(tokens) if tokens.sees("ORDER") else ()
    frame = _parse_frame(tokens) if tokens.sees_any(FRAMES) else None
    if not tokens.accept(")"):
        raise tokens.unexpected(")", _OVER_HINT)
    return ast.WindowDefinition(name, partition, order, frame, span=tokens.since(start))


def _parse_frame(tokens: TokenStream) -> ast.FrameClause:
    start = tokens.advance()
    unit = start.keyword
    if unit == "GROUPS":
        raise tokens.unsupported("GROUPS in OVER", "Write ROWS, or RANGE for a length of time.", start.span)
    if tokens.accept("BETWEEN"):
        first = _parse_bound(tokens)
        tokens.expect("AND")
        last = _parse_bound(tokens)
    else:
        first = _parse_bound(tokens)
        last = ast.FrameBound(None, span=first.span)
    frame = ast.FrameClause(unit, first, last, span=tokens.since(start))
    if tokens.sees("EXCLUDE"):
        word = tokens.token
        tokens.advance()
        if not tokens.accept("NO", "OTHERS"):
            feature = f"EXCLUDE {tokens.token.keyword}"
            hint = "End the frame earlier, as in ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING."
            raise tokens.unsupported(feature, hint, word.span.to(tokens.token.span))
    return frame


def _parse_bound(tokens: TokenStream) -> ast.FrameBound:
    start = tokens.token
    if tokens.accept("CURRENT"):
        tokens.expect("ROW", hint=_BOUND_HINT)
        return ast.FrameBound(None, span=tokens.since(start))
    offset = None if tokens.accept("UNBOUNDED") else _parse_offset(tokens)
    if not tokens.sees_any(("PRECEDING", "FOLLOWING")):
        raise tokens.unexpected("PRECEDING or FOLLOWING", _BOUND_HINT)
    direction = tokens.advance().keyword
    return ast.FrameBound(direction, offset, span=tokens.since(start))


def _parse_offset(tokens: TokenStream) -> ast.Expression:
    """A number of rows, or a length of time, which may be written without the word INTERVAL."""
    start = tokens.token
    has_unit = tokens.peek().kind is Kind.WORD and unit_size(tokens.peek().value) is not None
    if start.kind is Kind.TEXT or (start.kind is Kind.NUMBER and has_unit):
        return ast.Interval(parse_interval(tokens), span=tokens.since(start))
    return expressions.parse_expression(tokens, expressions.ADD)


# ---- the WINDOW clause -----------------------------------------------------------------------------------------------


def parse_window_clause(tokens: TokenStream) -> tuple[ast.NamedWindow, ...]:
    """`WINDOW name AS (…), …`, if it stands here."""
    if not tokens.accept("WINDOW"):
        return ()
    named: list[ast.NamedWindow] = []
    for window in tokens.parse_list(_parse_named_window):
        if any(window.name.matches(other.name.name) for other in named):
            message = f'window "{window.name.name}" is already defined'
            raise tokens.error(message, "duplicate-window-name", window.name.span, "Give one of them another name.")
        named.append(replace(window, definition=_defined(window.definition, tuple(named))))
    return tuple(named)


def _parse_named_window(tokens: TokenStream) -> ast.NamedWindow:
    if not tokens.sees_name():
        raise tokens.unexpected("a name after WINDOW", _STREAM_HINT)
    name = tokens.expect_name("a name after WINDOW")
    tokens.expect("AS", hint="Write WINDOW w AS (PARTITION BY k ORDER BY ts).")
    return ast.NamedWindow(name, _parse_definition(tokens), span=tokens.since(name))


def define(tree: Tree, windows: tuple[ast.NamedWindow, ...]) -> Tree:
    """A part of a SELECT with the windows that its functions name written out."""

    def written_out(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.WindowCall) or node.window.name is None:
            return node
        return replace(node, window=_defined(node.window, windows))

    return ast.rewrite(tree, written_out, into_queries=False) if _has_names(tree) else tree


def _has_names(tree: object) -> bool:
    """Whether a window function names its window; without recursion, since the tree may still be too high."""
    pending = [(tree, 0)]
    has_names = False
    highest = 0
    while pending:
        node, height = pending.pop()
        if isinstance(node, tuple):
            pending.extend((part, height) for part in node)
        elif isinstance(node, ast.Node) and not isinstance(node, ast.Query):
            has_names |= isinstance(node, ast.WindowCall) and node.window.name is not None
            highest = max(highest, height)
            pending.extend((child, height + 1) for child in ast.children(node))
    return has_names and highest <= MAX_DEPTH  # what is higher is refused


def _defined(window: ast.WindowDefinition, windows: tuple[ast.NamedWindow, ...]) -> ast.WindowDefinition:
    """A window with what that window says which it names; it may add an order and a frame."""
    name = window.name
    if name is None:
        return window
    base = next((named.definition for named in windows if name.matches(named.name.name)), None)
    if base is None:
        names = ", ".join(named.name.name for named in windows)
        hint = f"Windows are {names}." if names else f"Define it behind FROM: WINDOW {name.name} AS (ORDER BY ts)."
        raise name.error(f'window "{name.name}" does not exist', "unknown-window", hint)
    if window == ast.WindowDefinition(name, (), (), None, span=window.span):
        return replace(base, span=window.span)
    for clause, is_twice in (
        ("PARTITION BY", bool(window.partition)),
        ("ORDER BY", bool(window.order and base.order)),
        ("the frame", base.frame is not None),
    ):
        if is_twice:
            hint = "Write the whole window in OVER."
            raise window.error(f'cannot override {clause} of window "{name.name}"', "window-override", hint)
    return replace(window, name=None, partition=base.partition, order=window.order or base.order)

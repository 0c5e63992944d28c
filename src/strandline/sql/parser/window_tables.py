"""Windows as table functions: `TUMBLE(s, ts, 10 MINUTES)`, and as Flink writes it,
`TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))`; HOP, CUMULATE and SESSION likewise."""

from __future__ import annotations

from typing import Final

from strandline.sql import ast
from strandline.sql.lexer import Kind, Token
from strandline.sql.parser import queries
from strandline.sql.parser.files import parse_file, sees_file
from strandline.sql.parser.literals import parse_duration, parse_interval
from strandline.sql.parser.token_stream import TokenStream

FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
# The lengths that a function takes, in the order in which they are written.
_LENGTHS: Final = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
}
HINTS: Final = {
    "TUMBLE": "Write TUMBLE(s, ts, INTERVAL '10 minutes'): a stream, its time column, and the length of the windows.",
    "HOP": "Write HOP(s, ts, INTERVAL '1 minute', INTERVAL '10 minutes'): first the slide, then the length.",
    "CUMULATE": "Write CUMULATE(s, ts, INTERVAL '1 minute', INTERVAL '1 hour'): first the step, then the length.",
    "SESSION": "Write SESSION(s PARTITION BY k, ts, INTERVAL '5 minutes'): the gap is what ends a session.",
}
_OFFSET_HINT: Final = "Write OFFSET => INTERVAL '6 hours': how long after multiples of their slide windows begin."


def sees_window_table(tokens: TokenStream) -> bool:
    """One of the functions, perhaps within TABLE(…)."""
    if tokens.sees("TABLE", "("):
        return tokens.peek(2).keyword in FUNCTIONS and tokens.peek(3).keyword == "("
    return tokens.sees_any(FUNCTIONS) and tokens.peek().keyword == "("


def parse_window_table(tokens: TokenStream) -> ast.WindowTable:
    """The function; its alias is left to the caller."""
    start = tokens.token
    is_enclosed = tokens.accept("TABLE", "(")
    kind = tokens.advance().keyword
    tokens.expect("(")
    source, partition = _parse_source(tokens, kind)
    tokens.expect(",", hint=HINTS[kind])
    time = _parse_time(tokens, kind)
    lengths: dict[str, ast.Duration] = {}
    offset: int | None = None
    while tokens.accept(","):
        if kind == "SESSION" and not partition and tokens.sees("DESCRIPTOR", "("):
            partition = _parse_descriptor(tokens)
            continue
        begin = tokens.token
        names = [name for name in _LENGTHS[kind] if name not in lengths]
        name = names[0] if names else "OFFSET"
        if tokens.peek().keyword == "=>":
            name = tokens.advance(2).keyword
        if name == "ORIGIN":
            raise tokens.unsupported(f"the origin of {kind}", _OFFSET_HINT, begin.span)
        if name == "OFFSET" and offset is None and kind != "SESSION":
            offset = parse_offset(tokens)
            continue
        if name not in names:
            raise tokens.error(f"{kind} has no argument {name}", "syntax", begin.span, HINTS[kind])
        lengths[name] = parse_duration(tokens, f"the {name.lower()} of {kind}", least=1)
    tokens.expect(")", hint=HINTS[kind])
    if is_enclosed:
        tokens.expect(")")
    if len(lengths) < len(_LENGTHS[kind]):
        missing = next(name for name in _LENGTHS[kind] if name not in lengths)
        raise tokens.error(f"{kind} lacks its {missing.lower()}", "syntax", tokens.since(start), HINTS[kind])
    return make_window_table(tokens, kind, source, time, lengths, partition, start, offset or 0)


def parse_offset(tokens: TokenStream) -> int:
    """Microseconds by which windows begin after multiples of their slide, or before."""
    sign = -1 if tokens.accept("-") else 1
    return sign * parse_interval(tokens)


def make_window_table(
    tokens: TokenStream,
    kind: str,
    source: ast.StreamTable | ast.QueryTable,
    time: ast.ColumnName,
    lengths: dict[str, ast.Duration],
    partition: tuple[ast.ColumnName, ...],
    start: Token | ast.Node,
    offset: int = 0,
) -> ast.WindowTable:
    """The window, whose lengths must fit. Windows that begin whole periods later are the same ones."""
    size = lengths["GAP" if kind == "SESSION" else "SIZE"]
    step = lengths.get("SLIDE") or lengths.get("STEP") or size
    if size.microseconds % step.microseconds:
        word = "slide" if kind == "HOP" else "step"
        hint = f"Make the length a multiple of the {word}, or write s WINDOW(RANGE length SLIDE {word})."
        raise tokens.error(f"the length of {kind} is not a multiple of its {word}", "bad-duration", size.span, hint)
    offset %= (size if kind == "CUMULATE" else step).microseconds
    return ast.WindowTable(kind, source, time, size, step, partition, None, offset, span=tokens.since(start))


def _parse_source(
    tokens: TokenStream, kind: str
) -> tuple[ast.StreamTable | ast.QueryTable, tuple[ast.ColumnName, ...]]:
    """`[DATA =>] [TABLE] name [PARTITION BY columns]`, a file, or a query in parentheses."""
    tokens.accept("DATA", "=>")
    tokens.accept("TABLE")
    start = tokens.token
    source: ast.StreamTable | ast.QueryTable
    if tokens.sees("("):
        query = queries.parse_enclosed_query(tokens, HINTS[kind])
        alias = ast.Identifier(kind.lower(), span=start.span)
        source = ast.QueryTable(query, None, alias, span=tokens.since(start))
    elif sees_file(tokens):
        name, stem, file = parse_file(tokens)
        source = ast.StreamTable(name, None, stem, source=file, span=tokens.since(start))
    else:
        name = tokens.expect_name("a stream")
        source = ast.StreamTable(name, None, None, span=name.span)
    if not tokens.accept("PARTITION"):
        return source, ()
    tokens.expect("BY")
    if kind != "SESSION":
        raise tokens.unsupported(f"PARTITION BY in {kind}", "Remove it: these windows are the same for all rows.")
    columns = [_parse_column(tokens)]
    while tokens.sees(",") and not _ends_partition(tokens):
        tokens.advance()
        columns.append(_parse_column(tokens))
    return source, tuple(columns)


def _ends_partition(tokens: TokenStream) -> bool:
    """Whether a comma ends the columns of PARTITION BY: the time column and a length are all that follows."""
    return tokens.peek().keyword in ("DESCRIPTOR", "TIMECOL") or not _commas_left(tokens)


def _commas_left(tokens: TokenStream) -> bool:
    """Whether two more arguments follow the next one."""
    depth, commas, ahead = 0, 0, 1
    while tokens.peek(ahead).kind is not Kind.END:
        keyword = tokens.peek(ahead).keyword
        depth += (keyword == "(") - (keyword == ")")
        if depth < 0:
            break
        commas += keyword == "," and depth == 0
        ahead += 1
    return commas > 1


def _parse_time(tokens: TokenStream, kind: str) -> ast.ColumnName:
    tokens.accept("TIMECOL", "=>")
    if tokens.sees("DESCRIPTOR", "("):
        columns = _parse_descriptor(tokens)
        if len(columns) != 1:
            raise tokens.error(f"{kind} has one time column", "syntax", columns[1].span, HINTS[kind])
        return columns[0]
    return _parse_column(tokens)


def _parse_descriptor(tokens: TokenStream) -> tuple[ast.ColumnName, ...]:
    tokens.expect("DESCRIPTOR")
    return tokens.parse_enclosed_list(_parse_column)


def _parse_column(tokens: TokenStream) -> ast.ColumnName:
    start = tokens.token
    column, qualifier = tokens.expect_name("a column of the stream"), None
    if tokens.accept("."):
        qualifier, column = column, tokens.expect_name("a column")
    return ast.ColumnName(qualifier, column, span=tokens.since(start))

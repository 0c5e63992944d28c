"""now(): the clock of a statement that is executed at once, and the instant of the snapshot in a continuous query.

At once, all uses in a statement are one instant. In a continuous query now() is the instant t that the result is about,
and changes at every instant. What is exact, and has bounded state, is a condition of WHERE on the time column of a
stream without a window: it is the window of the stream.

    ts > now() - INTERVAL '1 hour'                     WINDOW(RANGE 1 HOUR): t - 1 h < ts <= t
    ts >= now() - INTERVAL '1 hour'                    the same and a microsecond: t - 1 h <= ts <= t
    ts BETWEEN now() - INTERVAL '1 hour' AND now()     as before: rows are there from their time on
    ts + INTERVAL '1 hour' > now(), now() - ts < …     the same conditions in other words

All else is refused: what depends on now() in another way would change without a row coming or leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from strandline.core.errors import BindError
from strandline.core.types import DATE, TIMESTAMP, Type
from strandline.logical.catalog import BaseStream, Catalog
from strandline.sql import ast

_CALLS: Final[dict[str, Type]] = {
    "now": TIMESTAMP,
    "current_timestamp": TIMESTAMP,
    "localtimestamp": TIMESTAMP,
    "transaction_timestamp": TIMESTAMP,
    "statement_timestamp": TIMESTAMP,
    "mz_now": TIMESTAMP,
    "current_date": DATE,
    "today": DATE,
}
_WORDS: Final = ("current_timestamp", "localtimestamp", "current_date")  # written without parentheses
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HINT: Final = (
    "now() changes at every instant. For the rows of the last hour write WHERE ts > now() - INTERVAL '1 hour' with the"
    " time column of a stream without a window, or FROM s WINDOW(RANGE 1 HOUR)."
)


def clock_type(node: ast.Node) -> Type | None:
    """TIMESTAMP or DATE for a use of the clock; None for all else."""
    match node:
        case ast.FunctionCall(name, ()) if not name.quoted:
            return _CALLS.get(name.name.lower())
        case ast.ColumnName(None, name) if not name.quoted and name.name.lower() in _WORDS:
            return _CALLS[name.name.lower()]
    return None


def read_clock(tree: ast.Tree, now: datetime | None = None) -> ast.Tree:
    """A statement that is executed at once, with every use of the clock replaced by one instant."""
    moment = now or datetime.now(UTC).replace(tzinfo=None)

    def name(node: ast.Node) -> ast.Node:
        match node:
            case ast.Item(ast.FunctionCall(function) as value, None) if clock_type(value) is not None:
                return replace(node, alias=function)
            case ast.Item(ast.ColumnName(None, word) as value, None) if clock_type(value) is not None:
                return replace(node, alias=word)
        return node

    def read(node: ast.Node) -> ast.Node:
        kind = clock_type(node)
        if kind is None:
            return node
        return ast.TypedText(kind, str(moment if kind == TIMESTAMP else moment.date()), span=node.span)

    return ast.rewrite(ast.rewrite(tree, name), read)


def open_windows(tree: ast.Tree, catalog: Catalog) -> ast.Tree:
    """A continuous query, with conditions on now() replaced by the windows that they are; others are refused."""
    if not any(clock_type(node) is not None for node in _nodes(tree)):
        return tree
    local = {node.name.name.lower() for node in _nodes(tree) if isinstance(node, ast.CommonTable)}

    def rewrite(node: ast.Node) -> ast.Node:
        return _open_windows(node, catalog, local) if isinstance(node, ast.Select) and node.where else node

    rewritten = ast.rewrite(tree, rewrite)
    for node in _nodes(rewritten):
        if clock_type(node) is not None:
            message = f"{node.text} cannot be used here in a continuous query"
            raise BindError(message, code="clock-continuous", hint=_HINT, span=node.span)
    return rewritten


def _nodes(tree: object) -> Iterator[ast.Node]:
    pending = list(tree) if isinstance(tree, tuple) else [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Node):
            yield node
            pending.extend(ast.children(node))


def _open_windows(select: ast.Select, catalog: Catalog, local: set[str]) -> ast.Select:
    where = select.where
    parts = where.operands if isinstance(where, ast.Logical) and where.operator == "AND" else (where,)
    spans: dict[int, int] = {}  # the length of the window by the place of its table, in microseconds
    kept: list[ast.Expression] = []
    candidates = [table for entry in select.tables for table in _kept_tables(entry)]
    for part in parts:
        assert part is not None, "a SELECT without WHERE is not rewritten"
        bounds = _bounds(part)
        found = [_timed_table(column, candidates, catalog, local) for column, _ in bounds]
        if not bounds or any(table is None for table in found):
            kept.append(part)
            continue
        for (_, length), table in zip(bounds, found, strict=True):
            if length is not None and table is not None:
                spans[table.span.start] = min(length, spans.get(table.span.start, length))
            elif table is not None:
                spans.setdefault(table.span.start, _NO_LENGTH)
    bounded = {start: length for start, length in spans.items() if length < _NO_LENGTH}
    if not bounded or len(bounded) < len(spans):
        return select  # a bound on one side only leaves rows without end, and without a window none
    tables = tuple(_with_windows(entry, bounded) for entry in select.tables)
    condition = None if not kept else kept[0] if len(kept) == 1 else replace(_logical(where), operands=tuple(kept))
    return replace(select, tables=tables, where=condition)


_NO_LENGTH: Final = 2**62


def _logical(node: ast.Expression | None) -> ast.Logical:
    assert isinstance(node, ast.Logical), "several parts are joined by AND"
    return node


def _kept_tables(table: ast.TableReference) -> Iterator[ast.StreamTable]:
    """The streams of FROM whose rows no outer join may lack."""
    match table:
        case ast.StreamTable():
            yield table
        case ast.Join(_, left, right, kind) if not table.asof:
            if kind in (None, "LEFT", "SEMI", "ANTI"):
                yield from _kept_tables(left)
            if kind in (None, "RIGHT"):
                yield from _kept_tables(right)


def _timed_table(
    column: ast.ColumnName, tables: list[ast.StreamTable], catalog: Catalog, local: set[str]
) -> ast.StreamTable | None:
    """The only stream without a window of which this is the time column."""
    matches = []
    for table in tables:
        stream = catalog.get(table.name.name) if table.name.name in catalog else None
        if not isinstance(stream, BaseStream) or table.name.name.lower() in local:
            continue
        named = table.alias or table.name
        if column.qualifier is not None and not column.qualifier.matches(named.name):
            continue
        if any(column.column.matches(name) for name, _ in stream.queried_columns):
            matches.append((table, stream))
    if len(matches) != 1:
        return None
    table, stream = matches[0]
    plain = table.window is None and table.granularity is None and table.as_of is None
    points = not stream.has_intervals and stream.changes is None and stream.time_column is not None
    timed = plain and points and stream.time_column is not None and column.column.matches(stream.time_column)
    return table if timed else None


def _with_windows(table: ast.TableReference, lengths: dict[int, int]) -> ast.TableReference:
    match table:
        case ast.StreamTable() if table.span.start in lengths:
            length = ast.Duration(lengths[table.span.start], span=table.span)
            return replace(table, window=ast.RangeWindow(length, None, span=table.span))
        case ast.Join():
            return replace(table, left=_with_windows(table.left, lengths), right=_with_windows(table.right, lengths))
    return table


# ---- conditions ------------------------------------------------------------------------------------------------------


def _bounds(part: ast.Expression) -> list[tuple[ast.ColumnName, int | None]]:
    """What a condition says of now(): columns with the length of the window that it is, or None for ts <= now(), which
    is true for rows that have come. Nothing if it is another condition."""
    match part:
        case ast.Binary("<" | "<=" as operator, ast.Binary("-", clock, column), ast.Interval() as length):
            bound = _bound(_MIRRORED[operator], column, ast.Binary("-", clock, length, span=part.span))
            return [] if bound is None else [bound]
        case ast.Binary(">" | ">=" | "<" | "<=" as operator, left, right):
            bound = _bound(operator, left, right)
            return [] if bound is None else [bound]
        case ast.Between(operand, low, high, False, False):
            above, below = _bound(">=", operand, low), _bound("<=", operand, high)
            return [above, below] if above is not None and below is not None else []
    return []


def _bound(operator: str, left: ast.Expression, right: ast.Expression) -> tuple[ast.ColumnName, int | None] | None:
    """`column + a OP now() + b`, or mirrored: ts > now() - d."""
    one, two = _shifted(left), _shifted(right)
    if one is None or two is None:
        return None
    if clock_type(one[0]) is not None:
        one, two, operator = two, one, _MIRRORED[operator]
    (column, before), (clock, after) = one, two
    if not isinstance(column, ast.ColumnName) or clock_type(column) is not None or clock_type(clock) != TIMESTAMP:
        return None
    distance = before - after  # ts OP now() - distance
    match operator:
        case ">" if distance >= 1:
            return column, distance
        case ">=" if distance >= 0:
            return column, distance + 1
        case "<=" if distance <= 0:
            return column, None
        case "<" if distance < 0:
            return column, None
    return None


def _shifted(node: ast.Expression) -> tuple[ast.Expression, int] | None:
    """A column or the clock, and the INTERVAL that is added to it, in microseconds."""
    match node:
        case ast.Binary("+", inner, ast.Interval(microseconds)):
            sign = 1
        case ast.Binary("+", ast.Interval(microseconds), inner):
            sign = 1
        case ast.Binary("-", inner, ast.Interval(microseconds)):
            sign = -1
        case ast.ColumnName() | ast.FunctionCall():
            return node, 0
        case _:
            return None
    base = _shifted(inner)
    return None if base is None else (base[0], base[1] + sign * microseconds)

"""Windows in GROUP BY: `GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR)` with `TUMBLE_START(…)` in SELECT, as in older Flink
and Calcite, and `GROUP BY k, window(ts, '1 hour')` with `window.start` or `window(ts, '1 hour').start`, as in Spark.

They become a window as a table function in FROM, and its columns window_start and window_end in GROUP BY, with
window_time where it is asked for. A window in the SELECT list is a struct, whose fields are columns: `window(…) AS w`
becomes "w.start" and "w.end".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from strandline.core.errors import ParseError
from strandline.sql import ast
from strandline.sql.parser import window_tables
from strandline.sql.parser.literals import amounts_of, microseconds_of
from strandline.sql.parser.token_stream import TokenStream

Tree = TypeVar("Tree")

_STRUCTS: Final = ("WINDOW", "SESSION_WINDOW")
# The lengths that a function takes, in the order in which they are written; the slide of WINDOW may be left out. An
# offset may follow, except with sessions.
_LENGTHS: Final = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
    "WINDOW": ("SIZE", "SLIDE"),
    "SESSION_WINDOW": ("GAP",),
}
_PARTS: Final = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time"}
_HINT: Final = "Write FROM TUMBLE(s, ts, INTERVAL '1 hour') … GROUP BY window_start, window_end."


def with_group_windows(tokens: TokenStream, select: ast.Select) -> ast.Select:
    """The SELECT with the window of its GROUP BY in FROM; as it is, if it has none."""
    keys = [(key, _window_call(key, select.items)) for key in select.group_by]
    calls = [call for _, call in keys if call is not None]
    if not calls:
        return select
    call = calls[0]
    others = tuple(key for key, window in keys if window is None)
    if len(calls) > 1:
        raise _error("GROUP BY has two windows", calls[1], "Keep one of them.")
    table = select.tables[0] if len(select.tables) == 1 else None
    if not isinstance(table, ast.StreamTable | ast.QueryTable) or table.window is not None:
        message = f"{_word(call)} in GROUP BY needs one stream without a window in FROM"
        raise _error(message, call, "Apply it to a subquery: FROM TUMBLE((SELECT …), ts, INTERVAL '1 hour').")
    window = _window_table(tokens, call, table, others)

    def written_out(node: ast.Node) -> ast.Node:
        return _bound(node, call) or node

    items = tuple(part for item in select.items for part in _columns_of(item, call))
    changed = replace(
        select,
        items=ast.rewrite(items, written_out, into_queries=False),
        having=ast.rewrite(select.having, written_out, into_queries=False),
        qualify=ast.rewrite(select.qualify, written_out, into_queries=False),
    )
    parts = (changed.items, changed.having, changed.qualify)
    columns = [node.column for node in ast.own_nodes(parts) if isinstance(node, ast.ColumnName)]
    time = ("window_time",) if any(column.matches("window_time") for column in columns) else ()
    bounds = (_column(name, call) for name in ("window_start", "window_end", *time))
    return replace(changed, tables=(window,), group_by=(*(moved_position(key, items) for key in others), *bounds))


def _window_call(key: ast.Grouping, items: tuple[ast.Item, ...]) -> ast.FunctionCall | None:
    """The window that a key of GROUP BY is, or names by the alias or the position of an item."""
    match key:
        case ast.Number(digits) if digits.isdecimal() and 0 < int(digits) <= len(items):
            value: object = items[int(digits) - 1].value
        case ast.ColumnName(None, name):
            value = next((item.value for item in items if item.alias and name.matches(item.alias.name)), None)
        case _:
            value = key
    return value if isinstance(value, ast.FunctionCall) and _word(value) in _LENGTHS else None


def _columns_of(item: ast.Item, call: ast.FunctionCall) -> Iterator[ast.Item]:
    """An item of SELECT, or if it is the window of GROUP BY, the fields of that."""
    if not isinstance(item.value, ast.FunctionCall) or not _is_same(item.value, call):
        yield item
        return
    name = item.alias or replace(call.name, name=call.name.name.lower())
    for part in ("start", "end"):
        field = replace(name, name=f"{name.name}.{part}")
        yield ast.Item(_column(f"window_{part}", item), field, span=item.span)


def moved_position(key: Tree, items: tuple[ast.Item, ...]) -> Tree:
    """A key of GROUP BY or ORDER BY; a position is one of the items as written, where a window has two columns."""
    if not isinstance(key, ast.Number) or not key.digits.isdecimal():
        return key
    places = [place for place, item in enumerate(items, 1) if not _is_second_field(item, items[place - 2 : place - 1])]
    position = int(key.digits)
    return replace(key, digits=str(places[position - 1])) if 0 < position <= len(places) else key


def _is_second_field(item: ast.Item, previous: tuple[ast.Item, ...]) -> bool:
    """Whether an item is the end of a window that `_columns_of` has taken apart."""
    names = [each.alias.name if each.alias else "" for each in (*previous, item)]
    return names[0].endswith(".start") and names[-1].endswith(".end") and previous[0].span == item.span


def _window_table(
    tokens: TokenStream,
    call: ast.FunctionCall,
    table: ast.StreamTable | ast.QueryTable,
    others: tuple[ast.Grouping, ...],
) -> ast.WindowTable:
    arguments = call.arguments if isinstance(call.arguments, tuple) else ()
    word = _word(call)
    if len(arguments) < 2 or not isinstance(arguments[0], ast.ColumnName):
        raise _error(f"{word} in GROUP BY takes a time column and lengths of time", call, _HINT)
    names, given = _LENGTHS[word], arguments[1:]
    lengths = {name: _duration(argument) for name, argument in zip(names, given, strict=False)}
    kind = {"WINDOW": "HOP" if "SLIDE" in lengths else "TUMBLE", "SESSION_WINDOW": "SESSION"}.get(word, word)
    if word == "WINDOW":
        lengths.setdefault("SLIDE", lengths["SIZE"])
    if len(lengths) < len(names) or len(given) > len(names) + (kind != "SESSION"):
        raise _error(f"{word} has {len(given)} lengths of time", call, _HINT)
    offset = _microseconds(given[-1]) if len(given) > len(names) else 0
    partition: tuple[ast.ColumnName, ...] = ()
    if kind == "SESSION":
        columns = [item for item in others if isinstance(item, ast.ColumnName)]
        if len(columns) < len(others):
            place = next(item for item in others if not isinstance(item, ast.ColumnName))
            raise _error("sessions in GROUP BY are those of columns", place, "Compute it in a subquery of FROM.")
        partition = tuple(columns)
    alias = table.alias or (table.name if isinstance(table, ast.StreamTable) else None)
    window = window_tables.make_window_table(tokens, kind, table, arguments[0], lengths, partition, call, offset)
    return replace(window, alias=alias)


def _duration(node: ast.Expression) -> ast.Duration:
    """A length of time: INTERVAL '…', or for Spark's functions a text."""
    microseconds = _microseconds(node)
    if microseconds <= 0:
        raise _error("a window needs a length of time", node, "Write it like INTERVAL '10 minutes'.")
    return ast.Duration(microseconds, span=node.span)


def _microseconds(node: ast.Expression) -> int:
    match node:
        case ast.Interval(microseconds):
            return microseconds
        case ast.Unary("-", ast.Interval(microseconds)):
            return -microseconds
        case ast.Text(text):
            amounts = amounts_of(text)
            if amounts and all(unit for _, unit in amounts):
                return microseconds_of(amounts, node.span)
    raise _error("a window needs a length of time", node, "Write it like INTERVAL '10 minutes'.")


def _bound(node: ast.Node, call: ast.FunctionCall) -> ast.ColumnName | None:
    """The column of the window that a call such as TUMBLE_START(…), or `window.start`, stands for."""
    word = _word(call)
    match node:
        case ast.FunctionCall(name) if isinstance(node.arguments, tuple):
            kind, _, part = name.name.upper().rpartition("_")
            if name.name.upper() == word and word in _STRUCTS:
                raise _not_a_value(name.name.lower(), node)
            if kind == word and part in _PARTS:
                if _has_same_arguments(node, call):
                    return _column(_PARTS[part], node)
                message = f"{word} has other arguments than in GROUP BY"
                raise _error(message, node, "Repeat those of GROUP BY.")
        case ast.ColumnName(ast.Identifier(qualifier), column) if qualifier.upper() == word:
            part = column.name.upper()
            if part in _PARTS:
                return _column(_PARTS[part], node)
        case ast.ColumnName(None, column) if column.name.upper() == word and word in _STRUCTS:
            raise _not_a_value(column.name.lower(), node)
    return None


def _not_a_value(name: str, place: ast.Node) -> ParseError:
    hint = f"Write {name}.start and {name}.end; {name} alone stands in the SELECT list."
    return _error(f"{name} is not a value by itself", place, hint)


def _is_same(one: ast.FunctionCall, call: ast.FunctionCall) -> bool:
    """Whether an item is the window of GROUP BY."""
    if _word(one) != _word(call):
        return False
    if not _has_same_arguments(one, call):
        message = f"{_word(call)} has other arguments than in GROUP BY"
        raise _error(message, one, "Repeat those of GROUP BY.")
    return True


def _has_same_arguments(one: ast.FunctionCall, call: ast.FunctionCall) -> bool:
    return [_identity(a) for a in _arguments(one)] == [_identity(a) for a in _arguments(call)]


def _arguments(call: ast.FunctionCall) -> tuple[ast.Expression, ...]:
    return call.arguments if isinstance(call.arguments, tuple) else ()


def _identity(node: ast.Expression) -> object:
    match node:
        case ast.ColumnName(_, column):
            return column.name.lower()
        case ast.Interval() | ast.Text() | ast.Unary("-", ast.Interval()):
            return _microseconds(node)
    return node


def _word(call: ast.FunctionCall) -> str:
    return "" if call.name.quoted else call.name.name.upper()


def _column(name: str, place: ast.Node) -> ast.ColumnName:
    return ast.ColumnName(None, ast.Identifier(name, span=place.span), span=place.span)


def _error(message: str, place: ast.Node, hint: str) -> ParseError:
    return ParseError(message, code="group-window", hint=hint, span=place.span)

"""Windows in GROUP BY: `GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR)` with `TUMBLE_START(…)` in SELECT, as in older Flink
and Calcite, and `GROUP BY k, window(ts, '1 hour')` with `window.start`, as in Spark.

They become a window as a table function in FROM, and its columns window_start and window_end in GROUP BY, with
window_time where it is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.core.errors import ParseError
from strandline.sql import ast
from strandline.sql.parser import window_tables
from strandline.sql.parser.literals import amounts_of, microseconds_of
from strandline.sql.parser.token_stream import TokenStream

_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION", "WINDOW", "SESSION_WINDOW")
_PARTS: Final = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time"}
_HINT: Final = "Write FROM TUMBLE(s, ts, INTERVAL '1 hour') … GROUP BY window_start, window_end."


def with_group_windows(tokens: TokenStream, select: ast.Select) -> ast.Select:
    """The SELECT with the window of its GROUP BY in FROM; as it is, if it has none."""
    calls = [item for item in select.group_by if isinstance(item, ast.FunctionCall) and _word(item) in _FUNCTIONS]
    if not calls:
        return select
    call = calls[0]
    others = tuple(item for item in select.group_by if item is not call)
    if len(calls) > 1:
        raise _error("GROUP BY has two windows", calls[1], "Keep one of them.")
    table = select.tables[0] if len(select.tables) == 1 else None
    if not isinstance(table, ast.StreamTable | ast.QueryTable) or table.window is not None:
        message = f"{_word(call)} in GROUP BY needs one stream without a window in FROM"
        raise _error(message, call, "Apply it to a subquery: FROM TUMBLE((SELECT …), ts, INTERVAL '1 hour').")
    window = _window_table(tokens, call, table, others)

    def written_out(node: ast.Node) -> ast.Node:
        return _bound(node, call) or node

    parts = {name: getattr(select, name) for name in ("items", "having", "qualify")}
    changed = {name: ast.rewrite(part, written_out, into_queries=False) for name, part in parts.items()}
    columns = [node.column for node in ast.own_nodes(tuple(changed.values())) if isinstance(node, ast.ColumnName)]
    time = ("window_time",) if any(column.matches("window_time") for column in columns) else ()
    bounds = (_column(name, call) for name in ("window_start", "window_end", *time))
    return replace(select, tables=(window,), group_by=(*others, *bounds), **changed)


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
    lengths = [_duration(argument) for argument in arguments[1:]]
    partition: tuple[ast.ColumnName, ...] = ()
    named: dict[str, ast.Duration]
    match word, lengths:
        case "TUMBLE" | "WINDOW", [size]:
            kind, named = "TUMBLE", {"SIZE": size}
        case "WINDOW", [size, slide]:
            kind, named = "HOP", {"SLIDE": slide, "SIZE": size}
        case "HOP", [slide, size]:
            kind, named = "HOP", {"SLIDE": slide, "SIZE": size}
        case "CUMULATE", [step, size]:
            kind, named = "CUMULATE", {"STEP": step, "SIZE": size}
        case "SESSION" | "SESSION_WINDOW", [gap]:
            kind, named = "SESSION", {"GAP": gap}
            columns = [item for item in others if isinstance(item, ast.ColumnName)]
            if len(columns) < len(others):
                place = next(item for item in others if not isinstance(item, ast.ColumnName))
                raise _error("sessions in GROUP BY are those of columns", place, "Compute it in a subquery of FROM.")
            partition = tuple(columns)
        case _:
            raise _error(
                f"{word} has {len(lengths)} lengths of time", call, "Remove the offset." if len(lengths) > 1 else _HINT
            )
    alias = table.alias or (table.name if isinstance(table, ast.StreamTable) else None)
    window = window_tables.make_window_table(tokens, kind, table, arguments[0], named, partition, call)
    return replace(window, alias=alias)


def _duration(node: ast.Expression) -> ast.Duration:
    """A length of time: INTERVAL '…', or for Spark's functions a text."""
    match node:
        case ast.Interval(microseconds) if microseconds > 0:
            return ast.Duration(microseconds, span=node.span)
        case ast.Text(text):
            amounts = amounts_of(text)
            if amounts and all(unit for _, unit in amounts) and microseconds_of(amounts, node.span) > 0:
                return ast.Duration(microseconds_of(amounts, node.span), span=node.span)
    raise _error("a window needs a length of time", node, "Write it like INTERVAL '10 minutes'.")


def _bound(node: ast.Node, call: ast.FunctionCall) -> ast.ColumnName | None:
    """The column of the window that a call such as TUMBLE_START(…), or `window.start`, stands for."""
    word = _word(call)
    match node:
        case ast.FunctionCall(name) if isinstance(node.arguments, tuple):
            kind, _, part = name.name.upper().rpartition("_")
            same = kind == word and [_identity(a) for a in node.arguments] == [_identity(a) for a in _arguments(call)]
            if same and part in _PARTS:
                return _column(_PARTS[part], node)
            if kind == word and part in _PARTS:
                raise _error(
                    f"{name.name} has other arguments than {word} in GROUP BY", node, "Repeat those of GROUP BY."
                )
        case ast.ColumnName(ast.Identifier(qualifier), column) if qualifier.upper() == word:
            part = column.name.upper()
            if part in _PARTS:
                return _column(_PARTS[part], node)
        case ast.ColumnName(None, column) if column.name.upper() == word and word in ("WINDOW", "SESSION_WINDOW"):
            spelled = column.name.lower()
            raise _error(f"{spelled} is not a value by itself", node, f"Write {spelled}.start and {spelled}.end.")
    return None


def _arguments(call: ast.FunctionCall) -> tuple[ast.Expression, ...]:
    return call.arguments if isinstance(call.arguments, tuple) else ()


def _identity(node: ast.Expression) -> object:
    match node:
        case ast.ColumnName(_, column):
            return column.name.lower()
        case ast.Interval() | ast.Text():
            return _duration(node).microseconds
    return node


def _word(call: ast.FunctionCall) -> str:
    return "" if call.name.quoted else call.name.name.upper()


def _column(name: str, place: ast.Node) -> ast.ColumnName:
    return ast.ColumnName(None, ast.Identifier(name, span=place.span), span=place.span)


def _error(message: str, place: ast.Node, hint: str) -> ParseError:
    return ParseError(message, code="group-window", hint=hint, span=place.span)

"""Window functions as SQL of an oracle.

Over a stream of points they are computed once, over all rows of the stream: the rows of the SELECT without them are a
stage, and the result at an instant are the rows that are known then. Functions that are not in the order of time are
among the rows of one instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from strandline.apps.verify.sql_text import sort_direction
from strandline.core.temporal import AFTER_ALL
from strandline.core.types import Column
from strandline.functions.oracles import Untranslatable
from strandline.logical.catalog import BaseStream
from strandline.logical.plan import Plan
from strandline.logical.properties.instant_columns import instant_columns
from strandline.logical.schema import schema
from strandline.sql import ast
from strandline.sql.binder.grouping import is_grouping
from strandline.sql.binder.scope import Relation, Scope
from strandline.sql.binder.select_list import output_columns

if TYPE_CHECKING:
    from strandline.apps.verify.dataset import NameScope
    from strandline.apps.verify.translate import TranslatedStage

ROWS_OF: Final = "o"  # the alias of the rows that window functions are over
ROWS_IN: Final = "i"  # and of those in the frame of one of them
_BY_RANK: Final = ("rank", "dense_rank")
_WHOLE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def window_calls(select: ast.Select) -> list[ast.WindowCall]:
    """The window functions of a SELECT."""
    return [node for node in ast.own_nodes((select.items, select.qualify)) if isinstance(node, ast.WindowCall)]


def rows_after(call: ast.WindowCall) -> int:
    """For how many later rows a window function waits."""
    arguments = call.call.arguments
    if call.call.name.name.lower() == "lead":
        offset = arguments[1] if not isinstance(arguments, ast.Star) and len(arguments) > 1 else None
        return int(offset.digits) if isinstance(offset, ast.Number) else 1
    frame = call.window.frame
    if frame is None or frame.unit != "ROWS" or frame.end.direction != "FOLLOWING":
        return 0
    return int(frame.end.offset.digits) if isinstance(frame.end.offset, ast.Number) else 0


@dataclass(frozen=True, slots=True)
class OverRows:
    """The rows that the window functions of a SELECT are over: the SELECT without them, with a column for each of their
    arguments; and the SELECT in terms of these columns. `ties` are the first columns, by which ties are ordered where
    arrival does not."""

    inner: ast.Select
    outer: ast.Select
    ties: int


def only_rows(select: ast.Select) -> ast.Select:
    """The rows that the window functions of a SELECT are over: the SELECT with a constant for each function."""
    one, least = ast.Number("1", span=select.span), ast.Identifier("min", span=select.span)
    value = ast.FunctionCall(least, (one,), span=select.span) if is_grouping(select) else one
    constant = ast.Item(value, None, span=select.span)
    named = (replace(constant, alias=item.alias) if _has_call(item) else item for item in select.items)
    return replace(select, distinct=False, items=(*named, constant), qualify=None, windows=())


def _has_call(tree: ast.Tree) -> bool:
    return any(isinstance(node, ast.WindowCall) for node in ast.own_nodes(tree))


def without_stars(select: ast.Select, scope: Scope) -> ast.Select:
    """A SELECT with the columns that its stars mean. A column that USING has merged has its name alone."""
    if not any(isinstance(item.value, ast.Star) for item in select.items):
        return select

    def column(node: ast.Expression) -> ast.Expression:
        if isinstance(node, ast.ColumnName) and node.qualifier and node.qualifier.name.startswith("#"):
            return replace(node, qualifier=None)
        return node

    items = [
        ast.Item(column(output.node), ast.Identifier(output.name, True, span=output.span), span=output.span)
        for output in output_columns(select.items, scope)
    ]
    return replace(select, items=tuple(items))


def over_rows(select: ast.Select) -> OverRows:
    """The rows of a SELECT, and its window functions over them."""
    values: dict[ast.Expression, str] = {}

    def column(node: ast.Expression) -> ast.Expression:
        if isinstance(node, ast.Number | ast.Text | ast.Truth | ast.Null | ast.TypedText | ast.Interval):
            return node
        name = values.setdefault(node, f"over_{len(values) + 1}")
        return ast.ColumnName(None, ast.Identifier(name, span=node.span), span=node.span)

    if is_grouping(select):
        if any(isinstance(element, ast.GroupingList | ast.GroupingSets | ast.Number) for element in select.group_by):
            raise Untranslatable("window functions over grouping sets or positions")
        listed: list[ast.Item] = []
        for element in select.group_by:
            assert not isinstance(element, ast.GroupingList | ast.GroupingSets)
            column(element)
        ties = len(values)
    else:
        listed, ties = [ast.Item(ast.Star(span=select.span), None, span=select.span)], -1
    items = tuple(replace(item, value=_replaced(item.value, column)) for item in _named(select.items))
    qualify = None if select.qualify is None else _replaced(_written_out(select.qualify, select.items), column)
    for value, name in values.items():
        listed.append(ast.Item(value, ast.Identifier(name, span=value.span), span=value.span))
    inner = replace(select, distinct=False, items=tuple(listed), qualify=None, windows=())
    return OverRows(inner, replace(select, items=items, qualify=qualify), ties)


def _named(items: tuple[ast.Item, ...]) -> tuple[ast.Item, ...]:
    """The items, each with its name: a column that is replaced would lose it."""
    named = []
    for item in items:
        assert not isinstance(item.value, ast.Star), "stars are written out"
        name = item.value.column if isinstance(item.value, ast.ColumnName) else None
        named.append(item if item.alias is not None or name is None else replace(item, alias=name))
    return tuple(named)


def _written_out(condition: ast.Expression, items: tuple[ast.Item, ...]) -> ast.Expression:
    """A condition of QUALIFY with window functions in place of their names."""

    def written_out(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.ColumnName) or node.qualifier is not None:
            return node
        named = (item.value for item in items if item.alias is not None and item.alias.matches(node.column.name))
        value = next(named, node)
        return value if _has_call(value) else node

    return ast.rewrite(condition, written_out, into_queries=False)


def _replaced(tree: ast.Tree, column: Callable[[ast.Expression], ast.Expression]) -> ast.Tree:
    """An expression in terms of columns: what has no window function in it is one, and the arguments of these are."""
    assert isinstance(tree, ast.Node)
    if isinstance(tree, ast.WindowCall):
        call, window = tree.call, tree.window
        arguments = call.arguments if isinstance(call.arguments, ast.Star) else tuple(map(column, call.arguments))
        condition = None if call.filter is None else column(call.filter)

        def ordered(items: tuple[ast.SortItem, ...]) -> tuple[ast.SortItem, ...]:
            return tuple(replace(item, value=column(item.value)) for item in items)

        window = replace(window, partition=tuple(map(column, window.partition)), order=ordered(window.order))
        own = replace(call, order=ordered(call.order), within=ordered(call.within))
        return replace(tree, call=replace(own, arguments=arguments, filter=condition), window=window)
    if not _has_call(tree):
        return column(tree)  # type: ignore[arg-type, return-value]

    def part(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(part, value))
        return _replaced(value, column) if isinstance(value, ast.Node) and not isinstance(value, _KEPT) else value

    parts: dict[str, Any] = {
        field.name: part(getattr(tree, field.name)) for field in fields(tree) if field.name != "span"
    }
    return replace(tree, **parts)


_KEPT: Final = (ast.Identifier, ast.TypeName, ast.Star)


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """How the windows of functions over a stage are written: the table of the stage and its columns, those that are
    its time, and what breaks ties: equal rows are in one order in all windows."""

    table: str
    columns: tuple[Column, ...]
    times: frozenset[str]  # names
    ties: str

    @staticmethod
    def of(rows: OverRows, stage: TranslatedStage, plan: Plan, names: NameScope, row_id: str) -> WindowTexts:
        def time_column(stream: str) -> str | None:
            declared = names.catalog.get(stream)
            return declared.time_column if isinstance(declared, BaseStream) else None

        times = instant_columns(plan, time_column)
        columns = stage.body.columns
        said = frozenset(c.name for c, bound in zip(columns, schema(plan), strict=True) if bound.id in times)
        arguments = sum(column.name.startswith("over_") for column in columns)
        count = rows.ties if rows.ties >= 0 else len(columns) - arguments
        by_value = [f"{ROWS_OF}.{c.id} ASC NULLS LAST" for c in columns[:count]]
        texts = WindowTexts(stage.table, columns, said, ", ".join([*by_value, f"{ROWS_OF}.{row_id}"]))
        partitions = {call.window.partition for call in window_calls(rows.outer) if texts.is_past(call)}
        return replace(texts, ties=f"{ROWS_OF}.seq") if stage.ordered and len(partitions) == 1 else texts

    def is_past(self, call: ast.WindowCall) -> bool:
        first = call.window.order[0] if call.window.order else None
        if first is None or first.descending or not isinstance(first.value, ast.ColumnName):
            return False
        return first.value.column.name in self.times


def stage_scope(columns: tuple[Column, ...], place: ast.Node, alias: str = ROWS_OF) -> Scope:
    """The columns of a stage."""
    visible = tuple(replace(column, id=f"{alias}.{column.id}") for column in columns)
    return Scope((Relation(alias, visible, None, place.span),))


def window_text(
    call: ast.WindowCall, sql: Callable[[ast.Expression], str], texts: WindowTexts | None
) -> tuple[str, str]:
    """What stands in the parentheses of OVER, and in those of a function that gives the instant of the row."""
    window, name = call.window, call.call.name.name.lower()
    partition = [sql(key) for key in window.partition]
    keys = [sql(item.value) + sort_direction(item) for item in window.order]
    frame = _frame_text(window.frame)
    if texts is None:
        return _window(partition, keys, frame), ""
    if not texts.is_past(call):
        return _window([*partition, f"{ROWS_OF}.at_us"], keys, frame), ""
    keys = [f"{ROWS_OF}.at_us ASC", *keys[1:]]
    total = [*keys, texts.ties]
    if name in _BY_RANK:
        return _window(partition, keys, ""), ""
    if name in ("lag", "lead", "row_number"):
        return _window(partition, total, ""), _window(partition, total, "")
    if window.frame is not None and window.frame.unit == "ROWS":
        return _window(partition, total, frame), _window(partition, total, "")
    return _window(partition, keys, frame), ""


def value_text(
    call: ast.WindowCall, arguments: list[str], sql: Callable[[ast.Expression], str], texts: WindowTexts
) -> str:
    """LAG, FIRST_VALUE, LAST_VALUE or NTH_VALUE by the position of the row among the values of its partition:
    over frames by RANGE, in which databases leave the order of peers open, and where they do not ignore NULLs."""
    name, window, value = call.call.name.name.lower(), call.window, arguments[0]
    number = int(arguments[1]) if len(arguments) > 1 else 1
    if not number:
        return value
    partition = [sql(key) for key in window.partition]
    keys = [f"{ROWS_OF}.at_us ASC", *(sql(item.value) + sort_direction(item) for item in window.order[1:])]
    total = [*keys, texts.ties]
    counted = f"count({value})" if call.ignore_nulls else "count(*)"
    present = f" FILTER (WHERE {value} IS NOT NULL)" if call.ignore_nulls else ""
    values = f"array_agg({value}){present} OVER ({_window(partition, total, _WHOLE)})"

    def count_up_to(bound: str, unit: str = "ROWS") -> str:
        frame = f"{unit} BETWEEN UNBOUNDED PRECEDING AND {bound}"
        return f"{counted} OVER ({_window(partition, total if unit == 'ROWS' else keys, frame)})"

    if name == "lag":
        before, through = "0", count_up_to("1 PRECEDING")
        position = f"{through} - {number - 1}"
    else:
        unit = "RANGE" if window.frame is None else window.frame.unit
        end = "CURRENT ROW" if window.frame is None else _bound_text(window.frame.end)
        through = count_up_to(end, unit)
        before = "0" if window.frame is None else _count_before(window.frame, count_up_to)
        if before == "":  # a frame that begins with the peers of a row
            peers = [f"{ROWS_OF}.at_us", *(sql(item.value) for item in window.order[1:])]
            before = f"({through} - {counted} OVER ({_window([*partition, *peers], [], '')}))"
        position = through if name == "last_value" else f"{before} + {number}"
    otherwise = f" ELSE {arguments[2]}" if len(arguments) > 2 else ""
    found = f"({values})[CAST({position} AS INTEGER)]"
    return f"CASE WHEN {position} > {before} AND {position} <= {through} THEN {found}{otherwise} END"


def _count_before(frame: ast.FrameClause, count_up_to: Callable[[str, str], str]) -> str:
    """The number of rows before those of a frame; empty if it begins with the peers of a row."""
    match frame.start.direction, frame.start.offset:
        case "PRECEDING", None:
            return "0"
        case None, _ if frame.unit == "RANGE":
            return ""
        case None, _:
            return count_up_to("1 PRECEDING", frame.unit)
        case "PRECEDING", ast.Interval(microseconds):
            return count_up_to(f"{microseconds + 1} PRECEDING", frame.unit)
        case "PRECEDING", ast.Number(digits):
            return count_up_to(f"{int(digits) + 1} PRECEDING", frame.unit)
        case "FOLLOWING", ast.Number(digits):
            return count_up_to(f"{int(digits) - 1} FOLLOWING" if int(digits) else "1 PRECEDING", frame.unit)
    raise Untranslatable("the offset of a frame")


def rows_in_frame(call: ast.WindowCall, sql: Callable[[ast.Expression, str], str], texts: WindowTexts) -> str:
    """FROM and WHERE of the rows in a frame by time, for aggregates that are no window functions elsewhere; `sql` is
    the text of a key of a row in one place or the other."""
    same = [f"{sql(key, ROWS_IN)} IS NOT DISTINCT FROM {sql(key, ROWS_OF)}" for key in call.window.partition]
    bounds = None if call.window.frame is None else (call.window.frame.start, call.window.frame.end)
    tests = [f"{ROWS_IN}.at_us <= {ROWS_OF}.at_us - {_preceding(None if bounds is None else bounds[1])}"]
    if bounds is not None and not (bounds[0].direction == "PRECEDING" and bounds[0].offset is None):
        tests.append(f"{ROWS_IN}.at_us >= {ROWS_OF}.at_us - {_preceding(bounds[0])}")
    return f"FROM {texts.table} AS {ROWS_IN} WHERE {' AND '.join([*same, *tests])}"


def _preceding(bound: ast.FrameBound | None) -> int:
    """How long before a row a bound of a frame by RANGE is."""
    if bound is None or bound.direction is None:
        return 0
    if isinstance(bound.offset, ast.Interval):
        return bound.offset.microseconds
    if isinstance(bound.offset, ast.Number):
        return int(bound.offset.digits)
    raise Untranslatable("the offset of a frame")


def _window(partition: list[str], order: list[str], frame: str) -> str:
    parts = [f"PARTITION BY {', '.join(partition)}"] if partition else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return " ".join([*parts, *([frame] if frame else [])])


def _frame_text(frame: ast.FrameClause | None) -> str:
    return "" if frame is None else f"{frame.unit} BETWEEN {_bound_text(frame.start)} AND {_bound_text(frame.end)}"


def _bound_text(bound: ast.FrameBound) -> str:
    match bound.direction, bound.offset:
        case None, _:
            return "CURRENT ROW"
        case direction, None:
            return f"UNBOUNDED {direction}"
        case direction, ast.Interval(microseconds):
            return f"{microseconds} {direction}"
        case direction, ast.Number(digits):
            return f"{digits} {direction}"
    raise Untranslatable("the offset of a frame")


def known_at(waits: int, window: str) -> str:
    """The instant at which a row is known that waits for later rows."""
    if not waits:
        return f"{ROWS_OF}.at_us"
    return f"coalesce(lead({ROWS_OF}.at_us, {waits}) OVER ({window}), {AFTER_ALL})"

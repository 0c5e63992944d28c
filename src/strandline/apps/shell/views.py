"""Result views: the table of an instant, the changes, the rows with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from strandline.apps.display import (
    QUIET,
    Clock,
    Head,
    Row,
    expanded_lines,
    lay_out,
    say_hidden,
    show_value,
    table_lines,
)
from strandline.apps.row_formats import show_sign
from strandline.apps.shell.feed import ResultFollower
from strandline.core.errors import printable
from strandline.core.temporal import FOREVER, Instant, show_instant
from strandline.core.types import is_numeric
from strandline.database.introspection.text import count_of
from strandline.database.query import Query
from strandline.logical.expressions import ColumnRef
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import TIME

Form: TypeAlias = Literal["table", "changes", "rows"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)


def natural_form(query: Query) -> Form:
    """Rows without a window are valid for one instant each: a snapshot would hardly ever show one."""
    return "rows" if all(_is_momentary(f.root) for f in query.pipeline.fragments) else "table"


def _is_momentary(node: Node) -> bool:
    match node:
        case physical.Input():
            return True
        case physical.Filter() | physical.Project() | physical.TopK() | physical.Distinct() | physical.Reorder():
            return _is_momentary(node.source)
        case physical.IncrementalAggregate(keys, _, source):
            return bool(keys) and _is_momentary(source)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Screen:
    """What a view may take: lines of rows, and columns, None for as many as it needs. Expanded, every row is a block
    with a line for each column."""

    max_rows: int
    width: int | None = None
    expanded: bool = False

    def rows_of(self, query: Query) -> int:
        """How many rows fit."""
        return max(self.max_rows // (len(query.columns) + 2), 1) if self.expanded else self.max_rows


def show(feed: ResultFollower, form: Form, screen: Screen) -> RenderableType:
    """The newest part of a result, at most so many lines."""
    rows = screen.rows_of(feed.query)
    match form:
        case "table":
            return show_table(feed.query, feed.snapshot(), feed.progress - 1, screen)
        case "changes":
            frame, earlier = feed.changes(rows)
            return show_changes(feed.query, frame, _after(earlier, feed.passed_over), screen)
        case "rows":
            frame, earlier = feed.rows(rows)
            progress = None if feed.query.ended else feed.progress
            return show_rows(feed.query, frame, _after(earlier, feed.passed_over), progress, screen)


def show_table(query: Query, frame: pl.DataFrame, at: Instant, screen: Screen) -> RenderableType:
    ordered, max_rows = _ordered(query, frame), screen.rows_of(query)
    rows = [Row(_cells(values)) for values in ordered.head(max_rows).iter_rows()]
    more = ordered.height - max_rows
    parts: list[RenderableType] = [_title(query, f"at {show_instant(at)}, {count_of(ordered.height, 'row')}")]
    parts += _lines(_heads(query), rows, screen)
    parts += [Text(f"… and {more:,} more", style=QUIET)] if more > 0 else []
    return Group(*parts)


def show_changes(query: Query, frame: pl.DataFrame, after: str, screen: Screen) -> RenderableType:
    """Insertions and deletions with their times."""
    title = _title(query, f"changes{after}")
    if not frame.height:
        return Group(title, Text("none yet", style=QUIET))
    clock = Clock((time, time + 1) for time in frame.get_column(TIME).to_list())
    heads = [Head("", fixed=True), Head(f"time{clock.day}", fixed=True), *_heads(query)]
    rows = [
        Row([show_sign(change), clock.show(time), *_cells(values)], "green" if change > 0 else "red")
        for *values, time, change in frame.iter_rows()
    ]
    return Group(title, *_lines(heads, rows, screen))


def show_rows(
    query: Query, frame: pl.DataFrame, after: str, progress: Instant | None, screen: Screen
) -> RenderableType:
    """Every row with the interval in which it is valid; `…` is an end that is not known yet."""
    title = _title(query, f"rows{after}")
    if not frame.height:
        return Group(title, Text("none yet" if progress is not None else "none", style=QUIET))
    ends = pl.when(pl.col(UNTIL) == (FOREVER if progress is None else progress)).then(FOREVER).otherwise(pl.col(UNTIL))
    known = frame.with_columns(ends.alias(UNTIL))
    clock = Clock(known.select(FROM, UNTIL).iter_rows())
    heads = [*_heads(query), Head(f"valid{clock.day}", fixed=True)]
    rows = [Row([*_cells(values), clock.interval(start, end)]) for *values, start, end in known.iter_rows()]
    return Group(title, *_lines(heads, rows, screen))


def _lines(heads: Sequence[Head], rows: Sequence[Row], screen: Screen) -> list[RenderableType]:
    """A table, and which of its columns do not fit."""
    if not rows:
        return []
    if screen.expanded:
        return list(expanded_lines(heads, rows))
    layout = lay_out(heads, rows, screen.width)
    lines: list[RenderableType] = list(table_lines(heads, rows, layout))
    return [*lines, Text(say_hidden(layout.hidden, ".expand"), style=QUIET)] if layout.hidden else lines


def _heads(query: Query) -> list[Head]:
    return [Head(printable(column.name), is_numeric(column.type)) for column in query.columns]


def _cells(values: Iterable[object]) -> list[str | None]:
    return [None if value is None else show_value(value) for value in values]


def _ordered(query: Query, frame: pl.DataFrame) -> pl.DataFrame:
    """Sorted by ORDER BY, where the result has its columns; then by all columns, so that rows stay in place."""
    order: dict[str, tuple[bool, bool]] = {}
    remaining = ((c.id, False, True) for c in query.columns if c.type.element is None)
    for column, is_descending, puts_nulls_last in (*_asked_order(query), *remaining):
        order.setdefault(column, (is_descending, puts_nulls_last))
    if not order:
        return frame
    descending, nulls_last = map(list, zip(*order.values(), strict=True))
    return frame.sort(list(order), descending=descending, nulls_last=nulls_last)


def _asked_order(query: Query) -> Iterable[tuple[str, bool, bool]]:
    root = next(f.root for f in query.pipeline.fragments if f.route == physical.ResultOf(query.name))
    match root:
        case physical.Project(outputs, physical.TopK(partition, order, _, _)):
            shown = {value.id: column.id for column, value in outputs if isinstance(value, ColumnRef)}
        case physical.TopK(partition, order, _, _):
            shown = {column.id: column.id for column in query.columns}
        case _:
            return
    for column in partition:
        if column not in shown:
            return
        yield shown[column], False, True
    for key in order:
        if key.column.id not in shown:
            return
        yield shown[key.column.id], key.descending, not key.nulls_first


def _title(query: Query, what: str) -> Text:
    return Text.assemble((printable(query.name), "bold cyan"), f" {what}")


def _after(earlier: int, passed_over: bool) -> str:
    if passed_over:
        return ", the latest of many"
    return f", the latest after {earlier:,} others" if earlier else ""

"""Result views: the table of an instant, the changes, the rows with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, get_args

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strandline.apps.shell.feed import ResultFollower
from strandline.core.errors import printable
from strandline.core.temporal import FOREVER, Instant, show_instant
from strandline.core.types import is_numeric
from strandline.database.introspection.text import count_of, shorten
from strandline.database.query import Query
from strandline.logical.expressions import ColumnRef
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import TIME

Form: TypeAlias = Literal["table", "changes", "rows"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)

_WIDEST: Final = 60  # characters of one value
_HEAD: Final = "bold"
_QUIET: Final = "bright_black"


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


def show(feed: ResultFollower, form: Form, max_rows: int) -> RenderableType:
    """The newest part of a result, at most this many lines."""
    match form:
        case "table":
            return show_table(feed.query, feed.snapshot(), feed.progress - 1, max_rows)
        case "changes":
            frame, earlier = feed.changes(max_rows)
            return show_changes(feed.query, frame, _after(earlier, feed.passed_over))
        case "rows":
            frame, earlier = feed.rows(max_rows)
            progress = None if feed.query.ended else feed.progress
            return show_rows(feed.query, frame, _after(earlier, feed.passed_over), progress)


def show_table(query: Query, frame: pl.DataFrame, at: Instant, max_rows: int) -> RenderableType:
    rows = _ordered(query, frame)
    table = _table([column.name for column in query.columns], query)
    for row in rows.head(max_rows).iter_rows():
        table.add_row(*map(_cell, row))
    more = rows.height - max_rows
    parts: list[RenderableType] = [_title(query, f"at {show_instant(at)}, {count_of(rows.height, 'row')}")]
    parts += [table] if rows.height else []
    parts += [Text(f"… and {more:,} more", style=_QUIET)] if more > 0 else []
    return Group(*parts)


def show_changes(query: Query, frame: pl.DataFrame, after: str) -> RenderableType:
    """Insertions and deletions with their times."""
    title = _title(query, f"changes{after}")
    if not frame.height:
        return Group(title, Text("none yet", style=_QUIET))
    clock = _Clock(frame.get_column(TIME))
    table = _table(["", f"time{clock.day}", *(column.name for column in query.columns)], query, before=2)
    for *values, time, change in frame.iter_rows():
        sign = ("+" if change > 0 else "-") + (f"{abs(change)}" if abs(change) > 1 else "")
        table.add_row(sign, clock.show(time), *map(_cell, values), style="green" if change > 0 else "red")
    return Group(title, table)


def show_rows(query: Query, frame: pl.DataFrame, after: str, progress: Instant | None) -> RenderableType:
    """Every row with the interval in which it is valid; `…` is an end that is not known yet."""
    title = _title(query, f"rows{after}")
    if not frame.height:
        return Group(title, Text("none yet" if progress is not None else "none", style=_QUIET))
    clock = _Clock(pl.concat([frame.get_column(FROM), frame.get_column(UNTIL)]))
    table = _table([*(column.name for column in query.columns), f"valid{clock.day}"], query)
    for *values, start, end in frame.iter_rows():
        until = "…" if end >= FOREVER or end == progress else clock.show(end)
        table.add_row(*map(_cell, values), f"[{clock.show(start)}, {until})")
    return Group(title, table)


class _Clock:
    """Instants without their day where it is the same for all; then the column head has it."""

    def __init__(self, instants: pl.Series) -> None:
        finite = [show_instant(at) for at in instants.unique().to_list() if at < FOREVER]
        days = {shown[:10] for shown in finite if shown[:1].isdigit()}
        self.common = len(days) == 1 and all(shown[:1].isdigit() for shown in finite)
        self.day = f" on {days.pop()}" if self.common else ""

    def show(self, at: Instant) -> str:
        return show_instant(at)[11:] if self.common else show_instant(at)


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


def _table(heads: Sequence[str], query: Query, before: int = 0) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_HEAD, padding=(0, 2, 0, 0))
    for position, head in enumerate(heads):
        index = position - before
        number = 0 <= index < len(query.columns) and is_numeric(query.columns[index].type)
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(Text(printable(head)), justify=justify, no_wrap=True, overflow="ellipsis")
    return table


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style=_QUIET)
    if isinstance(value, bool):
        return Text("true" if value else "false")
    if isinstance(value, float):
        return Text(f"{value:.10g}")
    if isinstance(value, list):
        return Text("[" + ", ".join(_cell(item).plain for item in value) + "]")
    return Text(shorten(printable(str(value)).replace("\n", "⏎"), _WIDEST))

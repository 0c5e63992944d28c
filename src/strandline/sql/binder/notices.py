"""Notices of statements: declarations and queries that are allowed, and rarely mean what they seem to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from strandline.core.notices import Notice
from strandline.core.temporal import UNITS, show_duration
from strandline.core.types import TIMESTAMP, Column
from strandline.logical import plan as logical
from strandline.logical.catalog import BaseStream, Catalog
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, children, columns_of, conjuncts
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import is_chronon_stream
from strandline.logical.schema import schema
from strandline.logical.tree import expressions, sources, walk
from strandline.sql import ast
from strandline.sql.binder.names import DerivedWindow

_SAME_AS_UTC = ("UTC", "Etc/UTC", "GMT", "Z")
_DIFFERENCES = ("except", "except all", "except strict")
Joined: TypeAlias = logical.Join | logical.OuterJoin | logical.SemiJoin | logical.MarkJoin | logical.SetOperation
_WINDOWS = (logical.TimeWindow, logical.CountWindow, logical.SessionWindow, logical.Granularity)


def stream_notices(stream: BaseStream) -> Iterator[Notice]:
    """What the declaration of a stream may have forgotten."""
    times = [name for name, kind in stream.columns if kind == TIMESTAMP]
    if stream.time_column is None and times:
        yield Notice(
            "arrival-time",
            f'the rows of "{stream.name}" have the time of their arrival, not that of column "{times[0]}"',
            f"declare ORDERED BY {times[0]}, with WITHIN where rows come out of order",
        )


def is_read_without_window(plan: Plan) -> bool:
    """Whether what FROM names without a window is valid for one instant per row. Changes are so on purpose."""
    return is_chronon_stream(plan) and not any(isinstance(node, logical.Changes) for node in walk(plan))


def query_notices(plan: Plan, unwindowed: Mapping[str, str], catalog: Catalog) -> Iterator[Notice]:
    """What a query may have forgotten. `unwindowed` are the columns, by id, of what FROM reads without a window, each
    with the name that it has there.

    An operator over several rows meets only those that are valid together: without a window, rows of one microsecond.
    """
    origins = _Origins(plan, catalog)
    yield from _zone_notices(plan, origins)
    if not unwindowed:
        return
    for node in walk(plan):
        match node:
            case logical.Aggregate(keys, _, source) if _is_forgotten(source):
                values = [origins.value(key) for key in keys]
                if not any(isinstance(value, ColumnRef) and value.id in origins.times for value in values):
                    group_time = next((value for value in values if origins.is_of_time(value)), None)
                    yield from _grouping_notices(_names(source, _with_copies(unwindowed, source)), group_time)
            case logical.TopRows(_, _, _, source) | logical.Rank(_, _, _, _, source) if _is_forgotten(source):
                yield from _missing_window(_names(source, unwindowed), "ORDER BY")
            case logical.Distinct(source) if _is_forgotten(source) and not _is_outer_binding(node):
                yield from _missing_window(_names(source, unwindowed), "DISTINCT")
            case (
                logical.Join() | logical.OuterJoin() | logical.SemiJoin() | logical.MarkJoin() | logical.SetOperation()
            ):
                if _is_forgotten(node.left) and _is_forgotten(node.right) and not origins.compares_times:
                    yield from _missing_windows(_names(node.left, unwindowed), _names(node.right, unwindowed))
                elif _is_met_for_an_instant(node):
                    yield from _missing_window_of_right(_names(node.right, unwindowed))
            case _:
                pass


class _Origins:
    """Where the columns of a plan come from: from the time of a stream, or computed from it."""

    def __init__(self, plan: Plan, catalog: Catalog) -> None:
        nodes = list(walk(plan))
        maps = (node for node in nodes if isinstance(node, logical.Map))
        self._values = {column.id: value for node in maps for column, value in node.outputs}
        self.times = {c.id for node in nodes if isinstance(node, logical.Scan) for c in _time_column(node, catalog)}
        conditions = (part for node in nodes for value in expressions(node) for part in conjuncts(value))
        self.compares_times = any(self._is_equality_of_times(condition) for condition in conditions)

    def value(self, column: str) -> Expression:
        """What a column is computed from, or the column of a stream that it is."""
        value = self._values.get(column)
        while isinstance(value, ColumnRef) and value.id != column:
            column, value = value.id, self._values.get(value.id)
        return ColumnRef(column, TIMESTAMP) if value is None or isinstance(value, ColumnRef) else value

    def is_of_time(self, value: Expression) -> bool:
        """Whether an expression reads the time of a stream."""
        return any(self._is_time(column) for column in columns_of(value))

    def _is_time(self, column: str) -> bool:
        value = self.value(column)
        return isinstance(value, ColumnRef) and value.id in self.times

    def _is_equality_of_times(self, condition: Expression) -> bool:
        match condition:
            case Call("=", (ColumnRef(one), ColumnRef(other))):
                return self._is_time(one) and self._is_time(other)
        return False


def _zone_notices(plan: Plan, origins: _Origins) -> Iterator[Notice]:
    """AT TIME ZONE reads a TIMESTAMP as a local time, as PostgreSQL does; the time of a stream is in UTC."""
    open_parts = [value for node in walk(plan) for value in expressions(node)]
    while open_parts:
        part = open_parts.pop()
        open_parts += children(part)
        match part:
            case Call("to_utc_timestamp", (ColumnRef(column) as value, Literal(zone))) if (
                origins.is_of_time(value) and zone not in _SAME_AS_UTC
            ):
                name = column.rpartition(".")[2]
                yield Notice(
                    "time-zone",
                    f"AT TIME ZONE reads {name} as a local time of {zone}, and the time of a stream is in UTC",
                    f"for the local time there, write {name} AT TIME ZONE 'UTC' AT TIME ZONE '{zone}'",
                )
            case _:
                pass


def _time_column(scan: logical.Scan, catalog: Catalog) -> Iterator[Column]:
    stream = catalog.get(scan.stream) if scan.stream in catalog else None
    if isinstance(stream, BaseStream):
        yield from (column for column in scan.columns if column.name == stream.time_column)


def _is_forgotten(plan: Plan) -> bool:
    """Whether rows are valid for one instant, and no window below says that this is on purpose."""
    return is_read_without_window(plan) and not any(
        isinstance(node, _WINDOWS) or (isinstance(node, logical.Scan) and node.intervals and node.table is None)
        for node in walk(plan)
    )


def _is_met_for_an_instant(node: Joined) -> bool:
    """Whether rows that stay are matched with, or removed by, those of a stream that are valid for one instant. An
    inner join is meant so, as that of a table; an aggregate says itself that its stream has no window."""
    if isinstance(node, logical.Join) or not _is_forgotten(node.right) or is_chronon_stream(node.left):
        return False
    if isinstance(node, logical.SetOperation) and node.kind not in _DIFFERENCES:
        return False
    return not any(isinstance(part, logical.Aggregate) for part in walk(node.right))


def derived_windows_notices(windows: Sequence[DerivedWindow]) -> Iterator[Notice]:
    """That a query has windows that were not written, and which ones."""
    for origin in dict.fromkeys(window.origin for window in windows):
        found = [str(window) for window in windows if window.origin == origin]
        verb = "windows follow" if len(found) > 1 else "window follows"
        text = f"the {verb} from {origin}: {', '.join(found)}"
        yield Notice("derived-windows", text, "write windows to have others")
    for name in dict.fromkeys(window.name for window in windows if window.is_open):
        yield Notice(
            "open-matches",
            f"rows of {name} may come after those that they match: these are in the result, unmatched, until one comes",
            "read those, or a subquery of them, through DSTREAM(SELECT … WINDOW(RANGE d)): d later, when that is known",
        )


def order_notices(query: ast.Query) -> Iterator[Notice]:
    """That the rows of a continuous result have no order of its own."""
    body = query.body if isinstance(query, ast.With) else query
    if isinstance(body, ast.Ordered) and body.limit is None:
        yield Notice(
            "unordered-result",
            "a continuous result has no order: its rows come in the order of time, and ORDER BY is left out",
            "write ORDER BY … LIMIT n for the first n rows at every instant",
        )


def _is_outer_binding(node: logical.Distinct) -> bool:
    """Whether `decorrelate` made the node: the distinct outer bindings of a subquery."""
    return any(column.id.startswith("outer.") for column in schema(node))


def _with_copies(unwindowed: Mapping[str, str], plan: Plan) -> Mapping[str, str]:
    """The same with the columns that a plan reads of copies, as `agg OVER (…)` does: `s.x#2` is that of `s.x`."""
    read = (column.id for node in walk(plan) if isinstance(node, logical.Scan) for column in node.columns)
    copies = {column: original for column in read if (original := column.rpartition("#")[0]) in unwindowed}
    return {column: unwindowed[original] for column, original in copies.items()} | dict(unwindowed)


def _names(plan: Plan, unwindowed: Mapping[str, str]) -> list[str]:
    """What FROM calls the rows of a plan, as far as it reads them without a window."""
    names = dict.fromkeys(unwindowed[column.id] for column in schema(plan) if column.id in unwindowed)
    return list(names) or [name for source in sources(plan) for name in _names(source, unwindowed)]


def _grouping_notices(names: list[str], group_time: Expression | None) -> Iterator[Notice]:
    if group_time is None or not names:
        yield from _missing_window(names, "an aggregate")
        return
    length = _group_length(group_time)
    window = "WINDOW(RANGE UNBOUNDED)" if length is None else f"WINDOW(RANGE {length} SLIDE {length})"
    rows = "all rows so far" if length is None else "the rows of one interval after the other"
    yield Notice(
        "time-groups",
        f"{names[0]} is read without a window: a group of times meets only rows of the same microsecond",
        f"write FROM {names[0]} {window}, which has {rows}",
    )


def _group_length(group_time: Expression) -> str | None:
    """The length of the intervals that an expression such as date_trunc('hour', ts) makes; None if it has none, as that
    of months, or if its groups are not intervals, as those of extract(hour FROM ts)."""
    match group_time:
        case Call("date_trunc", (Literal(str() as unit), _)) if unit.upper() in UNITS:
            return show_duration(UNITS[unit.upper()])
        case Call("date_bin", (Literal(int() as stride), *_)):
            return show_duration(stride)
    return None


def _missing_window(names: list[str], what: str) -> Iterator[Notice]:
    for name in names[:1]:
        yield Notice(
            "no-window",
            f"{name} is read without a window: {what} meets only rows of the same microsecond",
            f"write FROM {name} WINDOW(RANGE 10 MINUTES), WINDOW(RANGE UNBOUNDED) for all rows so far, or WINDOW(NOW) "
            "if that is meant",
        )


def _missing_window_of_right(names: list[str]) -> Iterator[Notice]:
    for name in names[:1]:
        yield Notice(
            "no-window",
            f"{name} is read without a window: each of its rows is there for one microsecond",
            f"write {name} WINDOW(RANGE 10 MINUTES), or WINDOW(NOW) if that is meant",
        )


def _missing_windows(left: list[str], right: list[str]) -> Iterator[Notice]:
    if left and right:
        yield Notice(
            "no-window",
            f"{left[-1]} and {right[0]} are read without a window: rows meet only rows of the same microsecond",
            f"write {right[0]} WINDOW(RANGE 10 MINUTES), also for {left[-1]} if either may come first",
        )

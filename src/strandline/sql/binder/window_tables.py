"""Windows as table functions: the rows of finished windows, with window_start, window_end and window_time.

TUMBLE, HOP and CUMULATE: at t a row is visible in the window [start, end) that was finished last, from the last instant
of that window on until the next one is finished. It is the time window with this slide, and the bounds of its content.
A row of HOP and CUMULATE is visible once in each of the windows that contain it, one after the other.

SESSION: the rows of a session are visible together, at the instant at which it ends, the gap after its last row: what
`WINDOW(SESSION …)` lets go then. Its bounds are the first of their times, and that instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.core.errors import BindError, Span
from strandline.core.types import BIGINT, INTERVAL, TIMESTAMP, Column, Type
from strandline.logical.decorrelate import null_safe_equality
from strandline.logical.expressions import AggregateCall, Cast, ColumnRef, Expression, Literal, conjunction
from strandline.logical.plan import (
    Aggregate,
    Changes,
    Filter,
    Join,
    Map,
    Plan,
    Scan,
    SessionWindow,
    TimeWindow,
    WindowBounds,
)
from strandline.logical.properties.instant_columns import instant_columns
from strandline.logical.schema import pass_on, schema
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.binder import from_clause
from strandline.sql.binder.asof_joins import time_column_of
from strandline.sql.binder.expressions import Operand, call
from strandline.sql.binder.names import freshened
from strandline.sql.binder.scope import Relation, Scope

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder


def bind_window_table(binder: Binder, table: ast.WindowTable) -> tuple[Plan, Scope]:
    """The plan of a window, and the scope of its columns."""
    source, inner = from_clause.bind_table(binder, table.source)
    relation = inner.relations[0]
    time = inner.column(table.time)
    if time.id not in instant_columns(source, time_column_of(binder.names.catalog)):
        message = f'"{time.name}" is not the time column of a stream without a window'
        hint = "Name the column of ORDERED BY; a subquery passes it on if it has no window and no aggregate."
        if any(isinstance(node, Scan) and node.table is not None for node in walk(source)):
            message = f'"{relation.alias}" is a table, and has no windows: its rows have no time of their own'
            hint = "Declare a stream: CREATE STREAM name SOURCE file('path') ORDERED BY ts."
        raise BindError(message, code="window-table", hint=hint, span=table.time.span)
    alias = relation.alias if table.alias is None else table.alias.name
    kind = BIGINT if time.type == BIGINT else TIMESTAMP

    def column(name: str) -> Column:
        return Column(binder.ids.fresh(f"{alias}.{name}"), name, kind)

    start, end, last = column("window_start"), column("window_end"), column("window_time")
    if table.kind == "SESSION":
        partition = tuple(dict.fromkeys(inner.column(name).id for name in table.partition))
        plan = _sessions(binder, table, source, time, partition, (start, end))
    else:
        plan = _finished(table, source, time, (start, end))
    before = _moved(ColumnRef(end.id, kind), -1, table.span)
    plan = Map((*pass_on(schema(source)), *pass_on((start, end)), (last, before)), plan)
    label = table.span if table.alias is None else table.alias.span
    scope = Scope((Relation(alias, schema(plan), relation.stream, label, time_column=time.id),))
    binder.spans.update(dict.fromkeys((column.id for column in schema(plan)), label))
    return plan, scope


def _finished(table: ast.WindowTable, source: Plan, time: Column, bounds: tuple[Column, Column]) -> Plan:
    size, step, offset = table.size.microseconds, table.step.microseconds, table.offset
    cumulative = table.kind == "CUMULATE"
    window = TimeWindow(size, step, source, offset % step)
    plan: Plan = WindowBounds(size, step, cumulative, *bounds, window, offset)
    if not cumulative:
        return plan
    begin = ColumnRef(bounds[0].id, bounds[0].type)
    return Filter(_call(">=", _instant(time, bounds[0].type), begin, span=table.span), plan)


def _sessions(
    binder: Binder,
    table: ast.WindowTable,
    source: Plan,
    time: Column,
    partition: tuple[str, ...],
    bounds: tuple[Column, Column],
) -> Plan:
    """The rows of sessions that end, each with the first and the last time among those of its partition."""
    gap = table.size.microseconds
    rows = Changes("delete", SessionWindow(partition, gap, source))
    # The times are in the same sessions without the other columns: rows of one time and partition end together.
    narrow = Map(pass_on(c for c in schema(source) if c.id in (*partition, time.id)), source)
    same = freshened(Changes("delete", SessionWindow(partition, gap, narrow)), binder.ids.fresh)
    copies = {one.id: two for one, two in zip(schema(narrow), schema(same), strict=True)}
    time_of_same = ColumnRef(copies[time.id].id, time.type)
    extremes = tuple(
        (Column(binder.ids.fresh(name), name, time.type), AggregateCall(function, time_of_same, time.type))
        for name, function in (("first", "min"), ("last", "max"))
    )
    groups = Aggregate(tuple(copies[key].id for key in partition), extremes, same)
    pairs = [(c, copies[c.id]) for c in schema(rows) if c.id in partition]
    tests = [
        part
        for one, two in pairs
        for part in null_safe_equality(ColumnRef(one.id, one.type), ColumnRef(two.id, two.type))
    ]
    joined = Join(conjunction(tests), rows, groups)
    first, last = (_instant(column, bounds[0].type) for column, _ in extremes)
    ends = _moved(last, gap, table.span)
    return Map((*pass_on(schema(rows)), (bounds[0], first), (bounds[1], ends)), joined)


def _instant(time: Column, kind: Type) -> Expression:
    value = ColumnRef(time.id, time.type)
    return value if time.type == kind else Cast(value, kind)


def _moved(at: Expression, microseconds: int, span: Span) -> Expression:
    """An instant some microseconds later."""
    by = Literal(microseconds, BIGINT if at.type == BIGINT else INTERVAL)
    return _call("+", at, by, span=span)


def _call(function: str, *values: Expression, span: Span) -> Expression:
    return call(function, [Operand(value, span) for value in values], span)

"""The plan of window functions, by the rows that they are over.

over a stream of points, in the order of its time    Over: the past of the stream
over any rows, without an order                      a join of the rows with their aggregates
RANK() in another order                              Rank: among the rows that are valid together
in a statement that is executed at once              Over: all rows, in any order
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from strandline.core.types import BOOLEAN
from strandline.functions.aggregates import AGGREGATES
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    Value,
    conjunction,
)
from strandline.logical.plan import Aggregate, Join, Over, Plan, Rank
from strandline.logical.properties.instant_columns import instant_columns
from strandline.logical.properties.keys import determines
from strandline.logical.properties.temporal import is_chronon_stream, keeps_arrival_order
from strandline.logical.schema import schema
from strandline.sql.binder.names import freshened
from strandline.sql.binder.window_functions import SUMMED, BoundCall, WindowFunctions

if TYPE_CHECKING:
    from strandline.sql.binder.binder import Binder

_ZEROS: Final[dict[str, Value]] = {
    "BOOLEAN": False,
    "INT": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "DECIMAL": Decimal(0),
    "VARCHAR": "",
    "DATE": date(1970, 1, 1),
    "TIMESTAMP": datetime(1970, 1, 1),
    "INTERVAL": 0,
}
_WINDOWED_HINT: Final = (
    "Read the stream without WINDOW(…): the frame is the window, as in AVG(x) OVER (PARTITION BY k ORDER BY ts "
    "RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW)."
)
_PREVIOUS_HINT: Final = (
    "Compare windows in those that are twice as long: SELECT window_end, COUNT(*) FILTER (WHERE ts >= window_end - "
    "INTERVAL '1 hour') AS n, COUNT(*) FILTER (WHERE ts < window_end - INTERVAL '1 hour') AS previous "
    "FROM HOP(s, ts, INTERVAL '1 hour', INTERVAL '2 hours') GROUP BY window_end."
)
_WINDOWED_HINTS: Final = {
    "row_number": "Add columns to ORDER BY until no two rows are equal in it, as those of GROUP BY, or write RANK().",
    "dense_rank": "Write RANK() OVER (…): among the rows that are valid together it takes any order.",
    "lag": _PREVIOUS_HINT,
    "lead": _PREVIOUS_HINT,
}
_ORDER_HINT: Final = (
    "Order by the time column of the stream first: OVER (PARTITION BY k ORDER BY ts). "
    "RANK() takes any order, among the rows of one instant. "
    "The latest row of each k is in FROM s WINDOW(PARTITION BY k ROWS 1)."
)


def plan_window_functions(functions: WindowFunctions, source: Plan, binder: Binder) -> Plan:
    """The rows with the columns of their window functions."""
    if not functions.calls:
        return source
    source = functions.with_arguments(source)
    calls = list(functions.calls.values())
    if binder.names.stored:
        return _at_once(calls, source, binder)

    def time_column(stream: str) -> str | None:
        declared = binder.names.catalog.get(stream)
        return declared.time_column if isinstance(declared, BaseStream) else None

    times = instant_columns(source, time_column)
    past = [call for call in calls if _is_past(call, times)]
    unordered = [call for call in calls if not call.window.order]
    ranks = [call for call in calls if call not in past and call not in unordered]
    for call in unordered:
        _check_unordered(call)
    for call in ranks:
        _check_rank(call, source)
    for call in past:
        _check_past(call)
    waiting = [call for call in past if call.call.rows_after]
    if waiting and (unordered or ranks):
        call = (unordered + ranks)[0]
        hint = "Compute it in a subquery in FROM, and the functions that read later rows over that."
        raise call.node.error(
            "the row waits for later ones: LEAD and FOLLOWING go with ORDER BY time only", "over-waits", hint
        )
    plan = _over_past(past, source)
    for group in _grouped(unordered):
        plan = _join_aggregates(group, plan, source, binder)
    for call in ranks:
        partition = tuple(key.id for key in call.window.partition)
        plan = Rank(call.column, partition, call.window.order, None, plan)
    return plan


def _is_past(call: BoundCall, times: frozenset[str]) -> bool:
    first = call.window.order[0] if call.window.order else None
    return first is not None and first.column.id in times and not first.descending


# ---- the past of a stream --------------------------------------------------------------------------------------------


def _over_past(calls: list[BoundCall], source: Plan) -> Plan:
    by_window: dict[tuple[tuple[str, ...], tuple[SortKey, ...]], list[BoundCall]] = {}
    for call in calls:
        partition = tuple(key.id for key in call.window.partition)
        by_window.setdefault((partition, call.window.order[1:]), []).append(call)
    waits = {window: max(call.call.rows_after for call in group) for window, group in by_window.items()}
    waiting = [window for window, rows in waits.items() if rows]
    if len(waiting) > 1:
        hint = "Give LEAD and FOLLOWING one PARTITION BY and ORDER BY, or compute one of them in a subquery in FROM."
        call = by_window[waiting[1]][0]
        raise call.node.error("a row cannot wait for later rows of two windows", "over-waits", hint)
    # Only where all rows of an instant are in one place they have the order of arrival.
    has_arrival_order = keeps_arrival_order(source) and len({partition for partition, _ in by_window}) == 1
    columns = tuple(column.id for column in schema(source))
    plan = source
    for (partition, order), group in sorted(by_window.items(), key=lambda item: waits[item[0]]):
        ties = () if has_arrival_order or not any(map(_sees_order, group)) else columns
        listed = tuple((call.column, call.call) for call in group)
        plan = Over(partition, order, ties, listed, waits[partition, order], False, plan)
    return plan


def _sees_order(call: BoundCall) -> bool:
    """Whether a function depends on the order of rows of one instant."""
    if call.call.function in ("rank", "dense_rank"):
        return False
    return call.call.call is None or call.call.frame.unit == "rows"


def _check_past(bound: BoundCall) -> None:
    call, node = bound.call, bound.node
    if call.function in ("lag", "lead", "row_number", "rank", "dense_rank"):
        return
    if call.frame.end is None:
        hint = "A stream has no end. End the frame at CURRENT ROW, or at n FOLLOWING with ROWS."
        raise node.error("a frame up to UNBOUNDED FOLLOWING is never complete", "over-following", hint)
    if call.frame.unit == "range" and call.frame.end > 0:
        hint = "Write ROWS BETWEEN … AND n FOLLOWING, or join the stream with itself in WINDOW(RANGE …)."
        raise node.error("RANGE … FOLLOWING is not supported", "over-following", hint)
    if call.call is not None:
        _check_aggregate(bound)


def _check_aggregate(bound: BoundCall) -> None:
    """Refuse aggregates that window functions cannot be."""
    call, node = bound.call.call, bound.node
    assert call is not None
    if call.distinct:
        hint = "Group the stream in WINDOW(RANGE …) instead: SELECT k, COUNT(DISTINCT x) FROM s WINDOW(…) GROUP BY k."
        raise node.error("DISTINCT is not supported in a window function", "over-aggregate", hint)
    if call.function in SUMMED and call.user is None:
        return
    name = node.call.name.name.upper()
    if bound.call.frame.unit == "rows" or len(bound.window.order) > 1:
        hint = "Use COUNT, SUM, AVG, MIN, MAX, STDDEV or VARIANCE, or order by time alone with a frame by RANGE."
        raise node.error(f"{name} is not supported over these rows", "over-aggregate", hint)
    if call.user is None and AGGREGATES[call.function].ordered and not call.order:
        hint = f"Write the order of the values, as in {AGGREGATES[call.function].usage} OVER (…)."
        raise node.error(f"{name} in a window function needs an ORDER BY of its own", "over-aggregate", hint)


# ---- other rows ------------------------------------------------------------------------------------------------------


def _check_rank(call: BoundCall, source: Plan) -> None:
    """Refuse what has an order that is not that of the past, except RANK(), and ROW_NUMBER() where it is the same: no
    two rows that are valid together are equal in the order."""
    name = call.node.call.name.name.upper()
    keys = [key.id for key in call.window.partition] + [key.column.id for key in call.window.order]
    if call.call.function == "rank" or (call.call.function == "row_number" and determines(source, keys)):
        if call.node.window.frame is not None:
            hint = f"Remove it: {name}() covers the whole partition."
            raise call.node.window.frame.error(f"{name}() has no frame", "bad-frame", hint)
        return
    if is_chronon_stream(source):
        message = f"{name} OVER is not supported in this order"
        raise call.node.window.order[0].error(message, "over-order", _ORDER_HINT)
    message = f"{name} OVER (… ORDER BY …) is not supported over rows that are valid for longer than an instant"
    raise call.node.error(message, "over-windowed", _WINDOWED_HINTS.get(call.call.function, _WINDOWED_HINT))


def _check_unordered(call: BoundCall) -> None:
    if call.call.call is None:
        name = call.node.call.name.name.upper()
        hint = f"Write {name}(…) OVER (PARTITION BY k ORDER BY ts)."
        raise call.node.error(f"{name} needs an ORDER BY in OVER", "over-order", hint)


def _grouped(calls: Iterable[BoundCall]) -> list[list[BoundCall]]:
    by_partition: dict[tuple[str, ...], list[BoundCall]] = {}
    for call in calls:
        by_partition.setdefault(tuple(key.id for key in call.window.partition), []).append(call)
    return list(by_partition.values())


def _join_aggregates(calls: list[BoundCall], plan: Plan, source: Plan, binder: Binder) -> Plan:
    """The rows with aggregates over those of their partition: agg OVER (PARTITION BY k)."""
    copy = freshened(source, binder.ids.fresh)
    names = {column.id: other for column, other in zip(schema(source), schema(copy), strict=True)}

    def renamed(column: ColumnRef) -> ColumnRef:
        return replace(column, id=names[column.id].id)

    aggregates = []
    for bound in calls:
        call = bound.call.call
        assert call is not None, "it has been checked"
        order = tuple(replace(key, column=renamed(key.column)) for key in call.order)
        argument = None if call.argument is None else renamed(call.argument)
        aggregates.append((bound.column, replace(call, argument=argument, order=order)))
    keys = calls[0].window.partition
    groups = Aggregate(tuple(names[key.id].id for key in keys), tuple(aggregates), copy)
    return Join(conjunction(part for key in keys for part in _same(key, renamed(key))), plan, groups)


def _same(one: ColumnRef, two: ColumnRef) -> tuple[Expression, ...]:
    """That two keys are equal, or both NULL: by equalities, which a hash join takes."""
    zero = Literal((), one.type) if one.type.element is not None else Literal(_ZEROS[one.type.name], one.type)
    values = tuple(Call("coalesce", (side, zero), one.type) for side in (one, two))
    missing = tuple(Call("is_null", (side,), BOOLEAN) for side in (one, two))
    return Call("=", values, BOOLEAN), Call("=", missing, BOOLEAN)


# ---- statements that are executed at once ----------------------------------------------------------------------------


def _at_once(calls: list[BoundCall], source: Plan, binder: Binder) -> Plan:
    """All rows are there: plain SQL over them."""
    unordered = [call for call in calls if not call.window.order and call.call.call is not None]
    ordered: dict[tuple[tuple[str, ...], tuple[SortKey, ...]], list[BoundCall]] = {}
    for call in (call for call in calls if call not in unordered):
        _check_at_once(call)
        partition = tuple(key.id for key in call.window.partition)
        ordered.setdefault((partition, call.window.order), []).append(call)
    plan = source
    columns = tuple(column.id for column in schema(source))
    for (partition, order), group in ordered.items():
        listed = tuple((call.column, call.call) for call in group if call.call.function != "rank")
        plan = Over(partition, order, columns, listed, 0, True, plan) if listed else plan
        for call in (call for call in group if call.call.function == "rank"):
            plan = Rank(call.column, partition, order, None, plan)
    for joined in _grouped(unordered):
        plan = _join_aggregates(joined, plan, source, binder)
    return plan


def _check_at_once(bound: BoundCall) -> None:
    call = bound.call
    if not bound.window.order:
        _check_unordered(bound)
    name = bound.node.call.name.name.upper()
    if call.frame.unit == "range" and {call.frame.start, call.frame.end} - {None, 0}:
        hint = "Write ROWS, or a frame of UNBOUNDED and CURRENT ROW."
        raise bound.node.error("RANGE with an offset is not supported over a table", "bad-frame", hint)
    if call.call is not None and (call.call.distinct or call.call.user or call.call.function not in SUMMED):
        hint = "Use COUNT, SUM, AVG, MIN, MAX, STDDEV or VARIANCE without DISTINCT."
        raise bound.node.error(f"{name} is not supported over these rows", "over-aggregate", hint)

"""Binding of windows and granularities, and of `valid_from` and `valid_until` in expressions.

These two are the interval of a row in the window through which it is read. Both follow from the row's own time, so they
are expressions over its time column.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from strandline.core.errors import BindError, Span
from strandline.core.temporal import show_duration
from strandline.core.types import INTERVAL, TIMESTAMP, Column
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import Cast, ColumnRef, Expression, Literal
from strandline.logical.plan import Aggregate, CountWindow, Granularity, Plan, Scan, SessionWindow, TimeWindow
from strandline.logical.properties.temporal import granule, is_chronon_stream
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.binder.expressions import Operand, call
from strandline.sql.binder.scope import Scope

Validity: TypeAlias = tuple[Expression | None, Expression | None]

EPOCH: Final = Literal(datetime(1970, 1, 1), TIMESTAMP)


def windowed(plan: Plan, window: ast.Window | None, what: str, scope: Scope) -> Plan:
    """The window over a plan; the plan itself where the window is the identity."""
    if isinstance(window, ast.RangeWindow):
        _columns(window.partition, scope)  # they only have to exist: a range is the same for every partition
    if window is None or is_identity(window, plan):
        return plan
    length = None if is_chronon_stream(plan) else granule(plan)
    if not is_chronon_stream(plan) and length is None:
        raise _over_intervals(plan, window, what)
    match window:
        case ast.NowWindow():
            raise AssertionError("NOW is the identity")
        case ast.RangeWindow(range_, slide, _, offset):
            if length is not None:
                if range_ is None:
                    raise _unbounded_granules(what, window)
                _check_multiple(range_, length)
                if slide is not None:
                    _check_multiple(slide, length)
                if offset:
                    _check_multiple(ast.Duration(offset, span=window.span), length)
            return TimeWindow(range_.microseconds if range_ else None, slide.microseconds if slide else 1, plan, offset)
        case ast.RowsWindow(partition, rows, slide_rows):
            if length is not None and slide_rows > 1:
                raise _uncountable_granules("a window that hops by rows", what, window)
            return CountWindow(_columns(partition, scope), rows, slide_rows, plan)
        case ast.SessionWindow(partition, gap):
            if length is not None:
                raise _uncountable_granules("a session window", what, window)
            return SessionWindow(_columns(partition, scope), gap.microseconds, plan)
        case _:
            assert_never(window)


def is_identity(window: ast.Window, plan: Plan) -> bool:
    """True if a window over a plan is the plan itself: NOW, and one instant of elements that have intervals.

    With a granularity, a range of one instant would hold elements at the first instant of each granule only.
    """
    match window:
        case ast.NowWindow():
            return True
        case ast.RangeWindow(ast.Duration(1), slide):
            moves_always = slide is None or slide.microseconds == 1
            return moves_always and not is_chronon_stream(plan) and granule(plan) is None
    return False


def granular(plan: Plan, granularity: ast.Duration | None) -> Plan:
    """The plan at a granularity; time may only become coarser."""
    if granularity is None:
        return plan
    below = granule(plan)
    if below is not None:
        _check_multiple(granularity, below)
    return Granularity(granularity.microseconds, plan)


def _columns(partition: tuple[ast.ColumnName, ...], scope: Scope) -> tuple[str, ...]:
    return tuple(dict.fromkeys(scope.column(name).id for name in partition))


def _check_multiple(length: ast.Duration, granule_us: int) -> None:
    if length.microseconds % granule_us:
        granularity = show_duration(granule_us)
        message = f"{show_duration(length.microseconds)} is not a multiple of the granularity {granularity}"
        raise length.error(message, "granularity", f"Use a multiple of {granularity}.")


def _over_intervals(plan: Plan, window: ast.Window, what: str) -> BindError:
    return BindError(
        f"cannot apply a window to {what}: its elements have intervals already",
        code="window-over-intervals",
        detail=_why_intervals(plan),
        hint="Remove this window, take the changes, as in ISTREAM(SELECT …), or coarsen time: "
        "FROM s WINDOW(…) GRANULARITY(1 SECOND).",
        span=window.span,
    )


def _uncountable_granules(kind: str, what: str, window: ast.Window) -> BindError:
    return BindError(
        f"cannot apply {kind} to {what}, which has a granularity",
        code="granularity",
        detail="An element counts again in every granule of its interval; if it never expires, there is no last one.",
        hint="Use RANGE, or ROWS without SLIDE.",
        span=window.span,
    )


def _unbounded_granules(what: str, window: ast.Window) -> BindError:
    return BindError(
        f"cannot apply an unbounded window to {what}, which has a granularity",
        code="granularity",
        detail="An element would count again in every granule of its interval, without end if it never expires.",
        hint="Give the range a length, or put RANGE UNBOUNDED on the stream itself.",
        span=window.span,
    )


def _why_intervals(plan: Plan) -> str:
    cause = next(node for node in walk(plan) if _lengthens(node))
    if isinstance(cause, Scan):
        if cause.table is not None:
            return f'A row of table "{cause.stream}" is valid from its insertion until its deletion.'
        if cause.changes is not None:
            return f'A row of stream "{cause.stream}" is valid from its insertion until its deletion.'
        return f'The rows of stream "{cause.stream}" have declared intervals.'
    inside = "an aggregate" if isinstance(cause, Aggregate) else "a window"
    return f"It contains {inside}, so its elements are valid for longer than one instant."


def _lengthens(node: Plan) -> bool:
    """True if a node makes elements valid for longer than an instant."""
    if isinstance(node, Scan):
        return node.intervals
    return isinstance(node, TimeWindow | CountWindow | SessionWindow | Granularity | Aggregate)


# ---- valid_from and valid_until --------------------------------------------------------------------------------------


def validity(stream: BaseStream, columns: tuple[Column, ...], table: ast.StreamTable) -> Validity:
    """Both, as far as they are known when the row comes: how long a window by rows keeps it is not."""
    by_name = {column.name: ColumnRef(column.id, column.type) for column in columns}
    if stream.time_column is None or stream.changes is not None:
        return None, None
    begin = as_timestamp(by_name[stream.time_column], table.span)
    end: Expression | None = None
    if stream.end_column is not None:
        end = as_timestamp(by_name[stream.end_column], table.span)
    else:
        match table.window:
            case None | ast.NowWindow():
                end = _later(begin, 1, table.span)
            case ast.RangeWindow(length, slide, _, offset):
                step = slide.microseconds if slide else 1
                if length is not None:
                    end = _move(_later(begin, length.microseconds, table.span), step, offset, table.span)
                begin = _move(begin, step, offset, table.span)
            case ast.RowsWindow(_, _, slide_rows) if slide_rows > 1:
                return None, None
    if table.granularity is None:
        return begin, end
    granule = table.granularity.microseconds
    rounded = [None if at is None else _up(at, granule, table.span) for at in (begin, end)]
    return rounded[0], rounded[1]


def as_timestamp(time: ColumnRef, span: Span) -> Expression:
    """The value of a time column as a TIMESTAMP."""
    match time.type.name:
        case "TIMESTAMP":
            return time
        case "DATE":
            return Cast(time, TIMESTAMP)
    return _call("+", EPOCH, _call("*", time, Literal(1, INTERVAL), span=span), span=span)


def _later(at: Expression, microseconds: int, span: Span) -> Expression:
    return _call("+", at, Literal(microseconds, INTERVAL), span=span)


def _move(at: Expression, slide: int, offset: int, span: Span) -> Expression:
    """The first instant from `at` on at which a window moves: one before a multiple of its slide, plus its offset."""
    if slide == 1:
        return at
    origin = Literal(datetime(1970, 1, 1) + timedelta(microseconds=offset), TIMESTAMP) if offset else EPOCH
    return _later(_call("date_bin", Literal(slide, INTERVAL), at, origin, span=span), slide - 1, span)


def _up(at: Expression, granule: int, span: Span) -> Expression:
    """The first border of a granule from `at` on."""
    return _call("date_bin", Literal(granule, INTERVAL), _later(at, granule - 1, span), EPOCH, span=span)


def _call(function: str, *values: Expression, span: Span) -> Expression:
    return call(function, [Operand(value, span) for value in values], span)

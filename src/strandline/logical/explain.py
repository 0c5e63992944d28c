"""The one textual form of expressions and logical plans: EXPLAIN, tests and traces."""

from __future__ import annotations

from datetime import datetime

from strandline.core.temporal import show_duration, show_instant
from strandline.core.types import INTERVAL, Column
from strandline.logical import plan as logical
from strandline.logical.expressions import (
    UP_TO_PEERS,
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Frame,
    Literal,
    SortKey,
    UserCall,
    WindowCall,
)
from strandline.logical.plan import Plan
from strandline.logical.tree import sources

_INFIX = {"or": 1, "and": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "like": 4, "+": 6, "-": 6}
_INFIX |= {"||": 5, "&": 5, "|": 5, "#": 5, "<<": 5, ">>": 5, "*": 7, "/": 7, "%": 7}


def show_expression(expression: Expression, around: int = 0) -> str:
    """SQL-like text; parentheses only where the precedence needs them."""
    match expression:
        case Literal(value, kind):
            return _show_literal(value, kind == INTERVAL)
        case ColumnRef(id, _):
            return id
        case Call("and" | "or" as function, (first, *operands), _):
            return _show_infix(function, first, operands, around)
        case Call(function, (left, right), _) if function in _INFIX:
            return _show_infix(function, left, [right], around)
        case Call("not", (operand,), _):
            return f"NOT {show_expression(operand, 8)}"
        case Call("neg", (operand,), _):
            return f"-{show_expression(operand, 8)}"
        case Call("~", (operand,), _):
            return f"~{show_expression(operand, 8)}"
        case Call("is_null", (operand,), _):
            return f"{show_expression(operand, 8)} IS NULL"
        case Call("[]", (array, index), _):
            return f"{show_expression(array, 8)}[{show_expression(index)}]"
        case Call("in", (operand, *options), _):
            return f"{show_expression(operand, 8)} IN ({', '.join(map(show_expression, options))})"
        case Call(function, arguments, _):
            return f"{function}({', '.join(map(show_expression, arguments))})"
        case UserCall(called, arguments):
            return f"{called.name}({', '.join(map(show_expression, arguments))}): {called.returns}"
        case Case(branches, otherwise, _):
            parts = "".join(f" WHEN {show_expression(c)} THEN {show_expression(r)}" for c, r in branches)
            return f"CASE{parts} ELSE {show_expression(otherwise)} END"
        case Cast(operand, kind):
            return f"CAST({show_expression(operand)} AS {kind})"


def _show_infix(function: str, first: Expression, operands: list[Expression], around: int) -> str:
    """Operands with the operator between them; all operators lean to the left, so only the first needs no more."""
    level = _INFIX[function]
    word = function.upper() if function.isalpha() else function
    shown = (show_expression(first, level), *(show_expression(operand, level + 1) for operand in operands))
    text = f" {word} ".join(shown)
    return f"({text})" if level < around else text


def _show_literal(value: object, is_interval: bool) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, tuple):
        return f"array({', '.join(_show_literal(element, is_interval=False) for element in value)})"
    if is_interval:
        assert isinstance(value, int)
        return f"INTERVAL {show_duration(value)}"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return str(value)


def show_keys(keys: tuple[str, ...]) -> str:
    return f" by {', '.join(keys)}" if keys else ""


def show_grouping(keys: tuple[str, ...], aggregates: logical.Aggregates) -> str:
    computed = ", ".join(_show_aggregate(column, call) for column, call in aggregates)
    return f"{show_keys(keys)}{': ' if computed else ''}{computed}"


def _show_aggregate(column: Column, call: AggregateCall) -> str:
    argument = "*" if call.argument is None else call.argument.id
    distinct = "distinct " if call.distinct else ""
    parameter = "" if call.parameter is None else f", {_show_literal(call.parameter, is_interval=False)}"
    order = f" order by {', '.join(map(show_sort_key, call.order))}" if call.order else ""
    declared = "" if call.user is None else f": {call.type}{'' if call.user.inverse is None else ' with inverse'}"
    return f"{column.id} := {call.function}({distinct}{argument}{parameter}{order}){declared}"


def show_sort_key(key: SortKey) -> str:
    nulls = "" if key.nulls_first == key.descending else f" nulls {'first' if key.nulls_first else 'last'}"
    return f"{key.column.id}{' desc' if key.descending else ''}{nulls}"


def show_order(partition: tuple[str, ...], order: tuple[SortKey, ...]) -> str:
    per_partition = f" of each {', '.join(partition)}" if partition else ""
    return f"by {', '.join(map(show_sort_key, order))}{per_partition}"


def show_rank(column: Column, partition: tuple[str, ...], order: tuple[SortKey, ...], limit: int | None) -> str:
    return f"{column.id} {show_order(partition, order)}{'' if limit is None else f', up to {limit}'}"


def show_frame(frame: Frame) -> str:
    """A frame in the words of SQL; none where it is the default."""
    if frame == UP_TO_PEERS:
        return ""
    return f" {frame.unit} {_show_bound(frame.unit, frame.start, -1)} to {_show_bound(frame.unit, frame.end, 1)}"


def _show_bound(unit: str, bound: int | None, unbounded: int) -> str:
    if bound == 0:
        return "current row"
    direction = "preceding" if (unbounded if bound is None else bound) < 0 else "following"
    if bound is None:
        return f"unbounded {direction}"
    return f"{show_duration(abs(bound)) if unit == 'range' else abs(bound)} {direction}"


def show_window_call(column: Column, call: WindowCall) -> str:
    if call.call is not None:
        return f"{_show_aggregate(column, call.call)}{show_frame(call.frame)}"
    argument = "" if call.argument is None else call.argument.id
    offset = f", {call.offset}" if call.offset != 1 or call.function == "nth_value" else ""
    default = "" if call.default is None else f", else {call.default.id}"
    nulls = " ignore nulls" if call.ignores_nulls else ""
    return f"{column.id} := {call.function}({argument}{offset}{default}{nulls}){show_frame(call.frame)}"


def show_over(
    partition: tuple[str, ...],
    order: tuple[SortKey, ...],
    ties: tuple[str, ...],
    calls: logical.WindowCalls,
    waits: int,
    per_instant: bool,
) -> str:
    """Window functions with their window; its order begins with time."""
    by = [*map(show_sort_key, order), *(["value"] if ties else [])]
    then = f" then by {', '.join(by)}" if by else ""
    rows = "s" if waits > 1 else ""
    when = ", per instant" if per_instant else f", waiting for {waits} row{rows}" if waits else ""
    computed = ", ".join(show_window_call(column, call) for column, call in calls)
    return f"{show_keys(partition)}{then}{when}{': ' if computed else ''}{computed}"


def show_outputs(outputs: logical.Outputs) -> str:
    """Computed columns as `name := expression`, columns that just pass by name."""
    return ", ".join(
        c.id if isinstance(e, ColumnRef) and e.id == c.id else f"{c.id} := {show_expression(e)}" for c, e in outputs
    )


def show_window(range_us: int | None, slide_us: int, offset_us: int) -> str:
    slide = "" if slide_us == 1 else f" slide {show_duration(slide_us)}"
    offset = f" offset {show_duration(offset_us)}" if offset_us else ""
    return f"range {'unbounded' if range_us is None else show_duration(range_us)}{slide}{offset}"


def show_rows(partition: tuple[str, ...], rows: int, slide: int) -> str:
    return f"{rows} rows{show_keys(partition)}{'' if slide == 1 else f' slide {slide}'}"


def show_session(partition: tuple[str, ...], gap_us: int) -> str:
    return f"gap {show_duration(gap_us)}{show_keys(partition)}"


def _show_condition(predicate: Expression | None) -> str:
    return "" if predicate is None else f" on {show_expression(predicate)}"


def _show_kind(scan: logical.Scan) -> str:
    """What a scan reads, if not a stream of instants."""
    if scan.table is not None:
        kind = "" if scan.table == "changing" else f"{scan.table} "
        at = "" if scan.at is None else f" at {show_instant(scan.at)}"
        return f" of a {kind}table{'' if scan.retroactive else ', not retroactive'}{at}"
    return " of changes" if scan.changes is not None else " with intervals" if scan.intervals else ""


def show_bounds(range_us: int, slide_us: int, cumulative: bool, start: Column, end: Column, offset_us: int) -> str:
    kind = "cumulative, " if cumulative else ""
    return f"{start.id}, {end.id} of {kind}{show_window(range_us, slide_us, offset_us)}"


def show_node(plan: Plan) -> str:
    """One node, without its inputs."""
    match plan:
        case logical.Scan(stream, alias, columns):
            name = stream if alias == stream else f"{stream} as {alias}"
            return f"Scan {name} ({', '.join(c.name for c in columns)}){_show_kind(plan)}"
        case logical.TimeWindow(range_us, slide_us, _, offset_us):
            return f"TimeWindow {show_window(range_us, slide_us, offset_us)}"
        case logical.CountWindow(partition, rows, slide, _):
            return f"CountWindow {show_rows(partition, rows, slide)}"
        case logical.SessionWindow(partition, gap_us, _):
            return f"SessionWindow {show_session(partition, gap_us)}"
        case logical.WindowBounds():
            bounds = plan.range_us, plan.slide_us, plan.cumulative, plan.start, plan.end, plan.offset_us
            return f"WindowBounds {show_bounds(*bounds)}"
        case logical.Granularity(granule_us, _):
            return f"Granularity {show_duration(granule_us)}"
        case logical.Changes(kind, _):
            return f"Changes {kind}"
        case logical.TopRows(partition, order, limit, _):
            return f"TopRows {limit} {show_order(partition, order)}"
        case logical.Rank(column, partition, order, limit, _):
            return f"Rank {show_rank(column, partition, order, limit)}"
        case logical.Over(partition, order, ties, calls, waits, per_instant):
            return f"Over{show_over(partition, order, ties, calls, waits, per_instant)}"
        case logical.Filter(predicate, _):
            return f"Filter {show_expression(predicate)}"
        case logical.Unnest():
            return show_unnest(plan.element.id, plan.array, plan.ordinal, plan.outer)
        case logical.Map(outputs, _):
            return f"Map {show_outputs(outputs)}"
        case logical.Join(predicate, _, _):
            return f"Join{_show_condition(predicate)}" if predicate is not None else "Join all pairs"
        case logical.OuterJoin(full, predicate, _, _):
            return f"{'Full' if full else 'Left'} join{_show_condition(predicate)}"
        case logical.SemiJoin(anti, predicate, _, _):
            return f"{'Anti' if anti else 'Semi'} join{_show_condition(predicate)}"
        case logical.MarkJoin(mark, predicate, _, _):
            return f"Mark join {mark.id}{_show_condition(predicate)}"
        case logical.Lookup(kind, found, predicate, _, _):
            return f"Lookup {kind}{'' if found is None else f' {found.id}'}{_show_condition(predicate)}"
        case logical.Apply(kind, column, value, _, _):
            added = "" if column is None else f" {column.id}"
            return f"Apply {kind}{added}{'' if value is None else f' of {show_expression(value)}'}"
        case logical.Aggregate(keys, aggregates, _):
            return f"Aggregate{show_grouping(keys, aggregates)}"
        case logical.Distinct():
            return "Distinct"
        case logical.Union(columns, _):
            return f"Union ({', '.join(c.id for c in columns)})"
        case logical.SetOperation(kind, columns, _, _):
            return f"{kind.capitalize()} ({', '.join(c.id for c in columns)})"


def show_unnest(element: str, array: str, ordinal: Column | None, outer: bool) -> str:
    numbered = "" if ordinal is None else f", {ordinal.id} := position"
    return f"Unnest {element} := {array}{numbered}{', or NULL' if outer else ''}"


def show_plan(plan: Plan, depth: int = 0) -> str:
    """A plan as an indented tree, a node above its inputs."""
    lines = ["  " * depth + show_node(plan)]
    lines += [show_plan(source, depth + 1) for source in sources(plan)]
    return "\n".join(lines)

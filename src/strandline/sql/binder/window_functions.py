"""Window functions: what they compute, as further columns of the input of a SELECT.

They see all rows that are left after WHERE, GROUP BY and HAVING, so the columns come above these and below the list of
outputs. What a function means depends on the rows, which are known when all clauses are bound (`over_rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.core.types import BIGINT, NULL, VARCHAR, Column
from strandline.functions.aggregates import DISPERSIONS, AggregateFunction, find_aggregate
from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.functions.signatures import meet
from strandline.logical.expressions import (
    UP_TO_PEERS,
    WHOLE_PARTITION,
    AggregateCall,
    ColumnRef,
    Expression,
    Frame,
    Literal,
    SortKey,
    WindowCall,
)
from strandline.logical.plan import Map, Plan
from strandline.logical.schema import Ids, pass_on, schema
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.aggregates import bind_aggregate, described
from strandline.sql.binder.expressions import Scalars
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.select_list import Output, sort_key

RANKS: Final = ("row_number", "rank", "dense_rank")
VALUES: Final = ("lag", "lead", "first_value", "last_value", "nth_value")
# Aggregates that are computed from sums and extremes, over any frame.
SUMMED: Final = frozenset(("count", "sum", "avg", "min", "max", *DISPERSIONS, *PAIR_AGGREGATES))

_USAGE: Final = {
    "row_number": "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts)",
    "rank": "RANK() OVER (PARTITION BY x ORDER BY y DESC)",
    "dense_rank": "DENSE_RANK() OVER (PARTITION BY k ORDER BY ts)",
    "lag": "LAG(x, 1) OVER (PARTITION BY k ORDER BY ts)",
    "lead": "LEAD(x, 1) OVER (PARTITION BY k ORDER BY ts)",
    "first_value": "FIRST_VALUE(x) OVER (PARTITION BY k ORDER BY ts)",
    "last_value": "LAST_VALUE(x) OVER (PARTITION BY k ORDER BY ts)",
    "nth_value": "NTH_VALUE(x, 2) OVER (PARTITION BY k ORDER BY ts)",
}
_REFUSED: Final = {
    "percent_rank": "It needs the number of all rows, which a stream does not have. Use RANK() and COUNT(*) OVER (…).",
    "cume_dist": "It needs the number of all rows, which a stream does not have. Use RANK() and COUNT(*) OVER (…).",
    "ntile": "It needs the number of all rows, which a stream does not have. Use ROW_NUMBER() and arithmetic.",
}
_MOST_ROWS: Final = 10**9


@dataclass(frozen=True, slots=True)
class BoundWindow:
    """The partition and the order of a window."""

    partition: tuple[ColumnRef, ...]
    order: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A window function in its window, its column, and where it stands."""

    window: BoundWindow
    call: WindowCall
    column: Column
    node: ast.WindowCall


class WindowFunctions:
    """The window functions of one SELECT: their arguments, and their columns."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.computed: dict[Expression, Column] = {}  # keys and arguments that are no columns yet
        self.calls: dict[tuple[BoundWindow, WindowCall], BoundCall] = {}  # two equal ones are one column
        self._inside = False

    def column(self, node: ast.WindowCall, scalars: Scalars) -> ColumnRef:
        """The column that will have the value for each row; `scalars` binds keys and arguments."""
        if self._inside:
            hint = "Compute the inner one in a subquery in FROM."
            raise node.error("window functions cannot be nested", "misplaced-window-function", hint)
        self._inside = True
        partition = tuple(dict.fromkeys(self._column(scalars.key(key)) for key in node.window.partition))
        order = tuple(sort_key(item, self._column(scalars.key(item.value))) for item in node.window.order)
        call = self._call(node, scalars, order)
        self._inside = False
        window = BoundWindow(partition, order)
        if (window, call) not in self.calls:
            column = Column(self.ids.fresh(call.function), call.function, call.type)
            self.calls[window, call] = BoundCall(window, call, column, node)
        return ColumnRef(self.calls[window, call].column.id, call.type)

    def with_arguments(self, source: Plan) -> Plan:
        """The rows with the columns that the functions read."""
        if not self.computed:
            return source
        return Map((*pass_on(schema(source)), *((column, value) for value, column in self.computed.items())), source)

    def _column(self, value: Expression, name: str = "key") -> ColumnRef:
        if isinstance(value, ColumnRef):
            return value
        value = cast_to(value, VARCHAR) if value.type == NULL else value
        if value not in self.computed:
            self.computed[value] = Column(self.ids.fresh(name), name, value.type)
        return ColumnRef(self.computed[value].id, value.type)

    def _call(self, node: ast.WindowCall, scalars: Scalars, order: tuple[SortKey, ...]) -> WindowCall:
        call, name = node.call, node.call.name.name.lower()
        if name in _REFUSED:
            raise call.error(f"{name.upper()}() OVER is not supported", "not-supported", _REFUSED[name])
        function = find_aggregate(name)
        if function is None and isinstance(call.definition, UserAggregate):
            function = described(call.definition)
        if name in RANKS or name in VALUES:
            _check_plain(call, name)
            bound = self._ranking(node, name) if name in RANKS else self._value(node, name, scalars)
        elif function is not None:
            bound = self._aggregate(node, function, scalars)
        else:
            hint = "Window functions are aggregates, " + ", ".join(word.upper() for word in (*RANKS, *VALUES)) + "."
            raise call.error(f"{name} is not a window function", "not-a-window-function", hint)
        if node.ignore_nulls and name not in ("lag", "first_value", "last_value", "nth_value"):
            hint = "LAG, FIRST_VALUE, LAST_VALUE and NTH_VALUE take it."
            if name == "lead":
                hint = "How long it would wait for a value is not known. Filter the NULLs out in a subquery in FROM."
            raise node.error(f"{name} does not take IGNORE NULLS", "window-nulls", hint)
        frame = bound.frame
        if name not in RANKS and name not in ("lag", "lead"):  # these see the partition, whatever the frame
            frame = _frame(node, order)
        if node.ignore_nulls and frame.unit == "range" and (frame.end or 0) < 0:
            hint = "End the frame at CURRENT ROW, or write ROWS."
            raise node.error("IGNORE NULLS needs a frame up to the current row", "window-nulls", hint)
        return WindowCall(
            bound.function,
            bound.argument,
            bound.type,
            frame,
            bound.call,
            bound.offset,
            bound.default,
            node.ignore_nulls,
        )

    def _ranking(self, node: ast.WindowCall, name: str) -> WindowCall:
        if node.call.arguments != ():
            raise node.call.error(f"{name.upper()}() takes no arguments", "type-mismatch", f"Write {_USAGE[name]}.")
        return WindowCall(name, None, BIGINT)

    def _value(self, node: ast.WindowCall, name: str, scalars: Scalars) -> WindowCall:
        arguments = node.call.arguments
        counts = {"lag": (1, 3), "lead": (1, 3), "nth_value": (2, 2)}.get(name, (1, 1))
        if isinstance(arguments, ast.Star) or not counts[0] <= len(arguments) <= counts[1]:
            raise node.call.error(f"wrong arguments of {name}", "type-mismatch", f"Write {_USAGE[name]}.")
        value = scalars.key(arguments[0])
        offset, default = 1, None
        if len(arguments) > 1:
            offset = _whole_number(arguments[1], f"the offset of {name}", 1 if name == "nth_value" else 0)
        if len(arguments) > 2:
            otherwise = scalars.key(arguments[2])
            kind = meet([value.type, otherwise.type])
            if kind is None:
                message = f"{name} types {value.type} and {otherwise.type} cannot be matched"
                raise arguments[2].error(message, "type-mismatch", "CAST one of them to the type of the other.")
            value, otherwise = cast_to(value, kind), cast_to(otherwise, kind)
            is_null = isinstance(otherwise, Literal) and otherwise.value is None
            default = None if is_null else self._column(otherwise, "argument")
        column = self._column(value, "argument")
        return WindowCall(name, column, column.type, offset=offset, default=default)

    def _aggregate(self, node: ast.WindowCall, function: AggregateFunction, scalars: Scalars) -> WindowCall:
        if function.name in ("first", "last") and not node.call.order:
            word = f"{function.name.upper()}_VALUE"
            hint = f"Write {word}(x) OVER (…), or {function.usage} OVER (…)."
            raise node.error(
                f"{function.name} in a window function needs an ORDER BY of its own", "over-aggregate", hint
            )
        bound = bind_aggregate(function, node.call, scalars.key, scalars.key_condition, None)
        argument = None if bound.value is None else self._column(bound.value, "argument")
        order = tuple(SortKey(self._column(s.value, "order"), s.descending, s.nulls_first) for s in bound.order)
        call = AggregateCall(bound.function, argument, bound.type, bound.distinct, order, bound.parameter, bound.user)
        return WindowCall(bound.function, argument, bound.type, call=call)


def _check_plain(call: ast.FunctionCall, name: str) -> None:
    clauses = {"FILTER": call.filter, "DISTINCT": call.distinct, "ORDER BY": call.order, "WITHIN GROUP": call.within}
    for words in (words for words, clause in clauses.items() if clause):
        raise call.error(f"{name} does not take {words}", "type-mismatch", f"Write {_USAGE[name]}.")


def _whole_number(node: ast.Expression, what: str, least: int) -> int:
    if isinstance(node, ast.Number) and node.digits.isdecimal() and least <= int(node.digits) <= _MOST_ROWS:
        return int(node.digits)
    raise node.error(f"{what} must be a whole number from {least}", "type-mismatch", "Write a number, as in LAG(x, 2).")


# ---- frames ----------------------------------------------------------------------------------------------------------


def _frame(node: ast.WindowCall, order: tuple[SortKey, ...]) -> Frame:
    clause = node.window.frame
    if clause is None:
        return UP_TO_PEERS if order else WHOLE_PARTITION
    if not order:
        raise clause.error("a frame needs an ORDER BY", "bad-frame", "Write OVER (PARTITION BY k ORDER BY ts ROWS …).")
    if clause.start.direction == "FOLLOWING" and clause.start.offset is None:
        raise clause.start.error("a frame cannot start at UNBOUNDED FOLLOWING", "bad-frame", "Begin it earlier.")
    if clause.end.direction == "PRECEDING" and clause.end.offset is None:
        raise clause.end.error("a frame cannot end at UNBOUNDED PRECEDING", "bad-frame", "End it later.")
    unit = "rows" if clause.unit == "ROWS" else "range"
    start, end = (_bound(clause, bound, order) for bound in (clause.start, clause.end))
    if start is not None and end is not None and start > end:
        raise clause.error("the frame ends before it starts", "bad-frame", "Write the earlier bound first.")
    return Frame("rows" if unit == "rows" else "range", start, end)


def _bound(clause: ast.FrameClause, bound: ast.FrameBound, order: tuple[SortKey, ...]) -> int | None:
    if bound.direction is None:
        return 0
    if bound.offset is None:
        return None
    sign = -1 if bound.direction == "PRECEDING" else 1
    if clause.unit == "ROWS":
        return sign * _whole_number(bound.offset, "the number of rows of a frame", 0)
    if len(order) > 1:
        message = "RANGE with an offset needs exactly one ORDER BY column"
        raise clause.error(message, "bad-frame", "Order by the time alone, or write ROWS.")
    if order[0].column.type.name in ("TIMESTAMP", "DATE"):
        if isinstance(bound.offset, ast.Interval) and bound.offset.microseconds >= 0:
            return sign * bound.offset.microseconds
        hint = "Write RANGE BETWEEN INTERVAL '10 seconds' PRECEDING AND CURRENT ROW."
        raise bound.offset.error("the offset of RANGE must be a length of time", "bad-frame", hint)
    if isinstance(bound.offset, ast.Interval):
        column = order[0].column
        hint = f"Write it in the unit of {column.id}, as {bound.offset.microseconds} where that is microseconds."
        message = f"the offset of RANGE is a length of time, and {column.id} is {column.type.name}"
        raise bound.offset.error(message, "bad-frame", hint)
    return sign * _whole_number(bound.offset, "the offset of RANGE", 0)


# ---- what a SELECT says ----------------------------------------------------------------------------------------------


def has_window_functions(select: ast.Select) -> bool:
    """Whether a SELECT has window functions."""
    return select.qualify is not None or any(isinstance(node, ast.WindowCall) for node in ast.own_nodes(select.items))


def over_outputs(tree: ast.Tree, outputs: list[Output], scope: Scope) -> ast.Tree:
    """A condition of QUALIFY with outputs written out: a name is a column of the input if there is one, else that."""

    def written_out(node: ast.Node) -> ast.Node:
        if not isinstance(node, ast.ColumnName) or node.qualifier is not None or scope.matches(node.column):
            return node
        return next((output.node for output in outputs if node.column.matches(output.name)), node)

    return ast.rewrite(tree, written_out, into_queries=False)

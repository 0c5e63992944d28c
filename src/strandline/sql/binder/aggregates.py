"""Calls of aggregates: what stands in their parentheses and behind them.

It says what is aggregated and how; `grouping` gives it a column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.types import BOOLEAN, DOUBLE, NULL, VARCHAR, Type, array_of, is_numeric
from strandline.functions.aggregates import AGGREGATES, AggregateFunction, aggregate_type
from strandline.functions.signatures import ARRAY_HINT, FunctionError, is_implicitly_castable
from strandline.logical.expressions import Call, Case, Cast, Expression, Literal, Value
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.literals import article, cast_to

Bind = Callable[[ast.Expression], Expression]

_COUNT: Final = "count"


@dataclass(frozen=True, slots=True)
class Sorted:
    """An expression of an aggregate's ORDER BY."""

    value: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate over expressions; a value of None is `*`."""

    function: str
    value: Expression | None
    type: Type
    distinct: bool = False
    order: tuple[Sorted, ...] = ()
    parameter: Value = None
    user: UserAggregate | None = None


def described(user: UserAggregate) -> AggregateFunction:
    """An aggregate of the user's as one of the language's. Values that can be taken out again have no order."""
    return AggregateFunction(
        user.name,
        f"{user.name}(x)",
        f"It is declared as {user}.",
        rule=lambda _: user.returns,
        meaning=lambda _, values: user.over_values(values),
        ordered=user.inverse is None,
    )


def bind_aggregate(
    function: AggregateFunction, node: ast.FunctionCall, bind: Bind, condition: Bind, time: Expression | None
) -> BoundAggregate:
    """Bind a call. `condition` binds the FILTER clause; `time` is the arrival order of the rows, if defined."""
    _check_form(function, node)
    order = tuple(_sorted(item, bind) for item in node.within or node.order)
    parameter: Value = None
    if function.form in ("within group", "fraction within group"):
        value: Expression | None = order[0].value
        parameter = _fraction(node, bind) if function.form == "fraction within group" else None
    elif function.form == "pair":
        value = _pair(function, node, bind)
    else:
        value = None if isinstance(node.arguments, ast.Star) else bind(node.arguments[0])
        parameter = _separator(node, bind) if function.form == "separated" else None
    name = function.name
    if name == _COUNT and isinstance(value, Literal) and value.value is not None and not node.distinct:
        value = None  # COUNT(1) counts rows
    if name in ("first", "last") and not order:
        order = (_by_time(name, node, time),)
    if name == "median":
        assert value is not None
        name, parameter, order = "percentile_cont", 0.5, (Sorted(value, False, False),)
    user = node.definition if isinstance(node.definition, UserAggregate) else None
    try:
        if function.form == "pair":
            kind = DOUBLE
        elif user is None:
            kind = aggregate_type(name, None if value is None else value.type)
        else:
            assert value is not None, "only COUNT takes a star"
            kind, value, order = user.returns, *_fitted(user, value, order)
    except FunctionError as error:
        raise node.error(error.message, "type-mismatch", error.hint) from None
    if function.same_as is not None:
        name, value = function.same_as, None if value is None else cast_to(value, BOOLEAN)
    if value is not None and value.type == NULL:
        value = cast_to(value, VARCHAR)
    _check_distinct(name, node, value, order)
    if name == "array_agg":
        assert value is not None
        value = Call("array", (value,), kind)  # so that a NULL of the user's is not left out
    if node.filter is not None:
        # An aggregate ignores NULLs: filtered values become NULL.
        counted = Literal(True, BOOLEAN) if value is None else value
        kept = Case(((condition(node.filter), counted),), Literal(None, counted.type), counted.type)
        order = tuple(Sorted(kept, s.descending, s.nulls_first) if s.value == value else s for s in order)
        value = kept
    distinct = node.distinct and (user is not None or not AGGREGATES[name].ignores_copies)
    return BoundAggregate(name, value, kind, distinct, order, parameter, user)


def _pair(function: AggregateFunction, node: ast.FunctionCall, bind: Bind) -> Expression:
    """Both arguments as an array of two DOUBLEs; NULL if one of them is."""
    assert not isinstance(node.arguments, ast.Star)
    numbers = []
    for argument in node.arguments:
        value = bind(argument)
        if value.type != NULL and not is_numeric(value.type):
            hint = f"Write {function.usage}. {function.doc}"
            raise argument.error(f"{function.name} does not accept ({value.type})", "type-mismatch", hint)
        numbers.append(cast_to(value, DOUBLE))
    kind = array_of(DOUBLE)
    is_known = tuple(Call("not", (Call("is_null", (number,), BOOLEAN),), BOOLEAN) for number in numbers)
    pair = Call("array", tuple(numbers), kind)
    return Case(((Call("and", is_known, BOOLEAN), pair),), Literal(None, kind), kind)


def _fitted(user: UserAggregate, value: Expression, order: tuple[Sorted, ...]) -> tuple[Expression, tuple[Sorted, ...]]:
    """The argument of an aggregate of the user's in the type that it takes, in the order that names it, too."""
    (kind,) = user.arguments
    if not is_implicitly_castable(value.type, kind):
        raise FunctionError(f"{user.name} does not accept ({value.type})", f"It is declared as {user}.")
    fitted = cast_to(value, kind)
    return fitted, tuple(replace(item, value=fitted) if item.value == value else item for item in order)


def _check_form(function: AggregateFunction, node: ast.FunctionCall) -> None:
    count = 1 if isinstance(node.arguments, ast.Star) else len(node.arguments)
    arity = {"value": 1, "separated": 2, "within group": 0, "fraction within group": 1, "pair": 2}[function.form]
    within = function.form in ("within group", "fraction within group")
    problem = None
    if isinstance(node.arguments, ast.Star) and function.name != _COUNT:
        problem = f"{function.name} does not take *"
    elif isinstance(node.arguments, ast.Star) and node.distinct:
        problem = "COUNT(DISTINCT *) is not supported"
    elif count != arity:
        counts = ("no argument", "one argument", "two arguments")
        problem = f"{function.name} takes {counts[arity]}"
    elif within and len(node.within) != 1:
        problem = f"{function.name} needs one value WITHIN GROUP"
    elif not within and node.within:
        problem = f"{function.name} does not take WITHIN GROUP"
    elif node.order and not function.ordered:
        problem = f"{function.name} does not take ORDER BY"
    elif (within or function.form == "pair") and node.distinct:
        problem = f"{function.name} does not take DISTINCT"
    if problem is not None:
        raise node.error(problem, "type-mismatch", f"Write {function.usage}.")


def _sorted(item: ast.SortItem, bind: Bind) -> Sorted:
    value = bind(item.value)
    if value.type.element is not None:
        raise item.value.error(f"cannot ORDER BY {article(value.type)}", "type-mismatch", ARRAY_HINT)
    if value.type == NULL:
        value = cast_to(value, VARCHAR)
    return Sorted(value, item.descending, item.nulls_first)


def _fraction(node: ast.FunctionCall, bind: Bind) -> float:
    assert not isinstance(node.arguments, ast.Star)
    value = bind(node.arguments[0])
    while isinstance(value, Cast):
        value = value.operand
    if isinstance(value, Literal) and value.value is not None and is_numeric(value.type):
        fraction = float(str(value.value))
        if 0.0 <= fraction <= 1.0:
            return fraction
    hint = "Write PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x) for the 90th percentile."
    message = f"the fraction of {node.name.name.lower()} must be a number between 0 and 1"
    raise node.arguments[0].error(message, "type-mismatch", hint)


def _separator(node: ast.FunctionCall, bind: Bind) -> str:
    assert not isinstance(node.arguments, ast.Star)
    value = bind(node.arguments[1])
    if isinstance(value, Literal) and isinstance(value.value, str):
        return value.value
    hint = "Write STRING_AGG(x, ', ')."
    message = f"the separator of {node.name.name.lower()} must be a text literal"
    raise node.arguments[1].error(message, "type-mismatch", hint)


def _by_time(name: str, node: ast.FunctionCall, time: Expression | None) -> Sorted:
    if time is None:
        hint = f"Write {name.upper()}(x ORDER BY y). Only the rows of a single stream have an arrival order."
        raise node.error(f"{name} needs ORDER BY here: the rows have no arrival order", "aggregate-order", hint)
    return Sorted(time, False, False)


def _check_distinct(name: str, node: ast.FunctionCall, value: Expression | None, order: tuple[Sorted, ...]) -> None:
    by_order = name in ("string_agg", "array_agg") or isinstance(node.definition, UserAggregate)
    if node.distinct and by_order and any(item.value != value for item in order):
        hint = "Order by the argument itself."
        raise node.error("in an aggregate with DISTINCT, ORDER BY must be by the argument", "aggregate-order", hint)

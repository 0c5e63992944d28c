"""The aggregates of the language: which there are, their types, and what they mean over the rows of a group.

The meaning is slow and obvious, as that of expressions in `evaluate.py`: the judge of the fast path. An aggregate
leaves out the rows whose argument is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import cmp_to_key
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from strandline.core.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    NULL,
    VARCHAR,
    Type,
    array_of,
    decimal,
    is_numeric,
)
from strandline.functions.registry import suggestion
from strandline.functions.signatures import OF_ARRAYS, FunctionError
from strandline.logical.expressions import AggregateCall, SortKey, Value
from strandline.logical.values import LARGEST_SQUARED, compare, fit

# What stands in the parentheses: `x`, `x, separator`, or a fraction and the values WITHIN GROUP (ORDER BY x).
Form = Literal["value", "separated", "within group", "fraction within group"]

_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate over the values of a group that are not NULL; `ordered` if it takes an ORDER BY of its own."""

    name: str
    usage: str
    doc: str
    form: Form = "value"
    ordered: bool = False


AGGREGATES: Final[Mapping[str, AggregateFunction]] = MappingProxyType(
    {
        item.name: item
        for item in (
            AggregateFunction("count", "COUNT(*) or COUNT(x)", "The number of rows, or of values."),
            AggregateFunction("sum", "SUM(x)", "The exact sum of numbers; NULL if there are none."),
            AggregateFunction("avg", "AVG(x)", "The mean of numbers as a DOUBLE; NULL if there are none."),
            AggregateFunction("min", "MIN(x)", "The least value; NULL if there is none."),
            AggregateFunction("max", "MAX(x)", "The greatest value; NULL if there is none."),
            AggregateFunction("bool_and", "BOOL_AND(x)", "Whether all are true; NULL if there is none."),
            AggregateFunction("every", "EVERY(x)", "The same as BOOL_AND."),
            AggregateFunction("bool_or", "BOOL_OR(x)", "Whether one is true; NULL if there is none."),
            AggregateFunction("var_pop", "VAR_POP(x)", "The variance of numbers."),
            AggregateFunction("var_samp", "VAR_SAMP(x) or VARIANCE(x)", "The same of a sample; NULL for one number."),
            AggregateFunction("stddev_pop", "STDDEV_POP(x)", "The standard deviation of numbers."),
            AggregateFunction(
                "stddev_samp", "STDDEV_SAMP(x) or STDDEV(x)", "The same of a sample; NULL for one number."
            ),
            AggregateFunction("median", "MEDIAN(x)", "The number in the middle, or the mean of the two there."),
            AggregateFunction(
                "percentile_cont",
                "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)",
                "The number that this share of the numbers lies below, between two of them if need be.",
                "fraction within group",
            ),
            AggregateFunction(
                "percentile_disc",
                "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY x)",
                "The first value up to which at least this share of the values lies.",
                "fraction within group",
            ),
            AggregateFunction(
                "mode",
                "MODE() WITHIN GROUP (ORDER BY x)",
                "The most frequent value; of several the first in the order.",
                "within group",
            ),
            AggregateFunction(
                "first",
                "FIRST(x ORDER BY y)",
                "The value of the first row; of several such rows the least. Without ORDER BY the first by time.",
                ordered=True,
            ),
            AggregateFunction(
                "last",
                "LAST(x ORDER BY y)",
                "The value of the last row; of several such rows the greatest. Without ORDER BY the last by time.",
                ordered=True,
            ),
            AggregateFunction(
                "string_agg",
                "STRING_AGG(x, ', ' ORDER BY y)",
                "The texts, joined; in the order of the texts themselves if none is given or leaves a choice.",
                "separated",
                ordered=True,
            ),
            AggregateFunction(
                "array_agg",
                "ARRAY_AGG(x ORDER BY y)",
                "The values as an array, NULLs too; in their own order if none is given or leaves a choice.",
                ordered=True,
            ),
        )
    }
)

AGGREGATE_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"variance": "var_samp", "stddev": "stddev_samp", "listagg": "string_agg"}
)

# Truth values are ordered: all are true if the least is, and one is if the greatest is. The algebra has those two only.
BY_ORDER: Final[Mapping[str, str]] = MappingProxyType({"bool_and": "min", "every": "min", "bool_or": "max"})

# What a second copy of a value does not change.
BLIND_TO_COPIES: Final = frozenset(("min", "max", "first", "last"))

# Of the language's own: those that look at all values of a group, where others get by with totals.
OF_MEMBERS: Final = frozenset(
    ("percentile_cont", "percentile_disc", "first", "last", "mode", "string_agg", "array_agg")
)

DISPERSIONS: Final = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


def looks_at_members(call: AggregateCall) -> bool:
    """Whether it has to look at all values of a group, where others get by with totals."""
    return call.function in OF_MEMBERS if call.user is None else call.user.inverse is None


def find_aggregate(name: str) -> AggregateFunction | None:
    """The aggregate that a name in any case denotes."""
    key = name.lower()
    return AGGREGATES.get(AGGREGATE_ALIASES.get(key, key))


def aggregate_type(name: str, argument: Type | None) -> Type:
    """The type of an aggregate; an `argument` of None is `*`."""
    function = find_aggregate(name)
    if function is None:
        raise FunctionError(f"aggregate {name.lower()} does not exist", suggestion(name.lower(), AGGREGATES))
    usage = f"Write {function.usage}."
    if argument is None and function.name != "count":
        raise FunctionError(f"{function.name} needs an argument", usage)
    match function.name, argument:
        case "count", _:
            return BIGINT
        case _, Type("ARRAY"):
            raise FunctionError(f"{function.name} does not accept ({argument})", f"{usage} {OF_ARRAYS}")
        case "array_agg", Type() as kind if kind != INTERVAL:
            return array_of(VARCHAR if kind == NULL else kind)
        case "min" | "max" | "first" | "last" | "mode" | "percentile_disc", Type() as kind:
            return VARCHAR if kind == NULL else kind
        case "sum", Type("INT"):
            return BIGINT
        case "sum", Type("BIGINT"):
            return decimal(MAX_PRECISION, 0)
        case "sum", Type("DECIMAL", _, scale):
            return decimal(MAX_PRECISION, scale)
        case "sum", Type("DOUBLE"):
            return DOUBLE
        case "avg" | "median" | "percentile_cont", Type() as kind if is_numeric(kind):
            return DOUBLE
        case name, Type() as kind if name in DISPERSIONS and is_numeric(kind):
            return DOUBLE
        case "bool_and" | "every" | "bool_or", Type("BOOLEAN" | "NULL"):
            return BOOLEAN
        case "string_agg", Type("VARCHAR" | "NULL"):
            return VARCHAR
    raise FunctionError(f"{function.name} does not accept ({argument})", f"{usage} {function.doc}")


# ---- meaning ---------------------------------------------------------------------------------------------------------


def aggregate(call: AggregateCall, rows: Sequence[Mapping[str, Value]]) -> Value:
    """An aggregate over the rows of a group, whose values are named by column id.

    Sums are exact: the order of the rows does not matter, and a DOUBLE sum is the exact sum, rounded once. So is the
    mean of exact numbers; the mean of DOUBLEs is their sum as a DOUBLE over their number.
    """
    if call.argument is None:
        return len(rows)
    name = call.argument.id
    kept = [row for row in rows if row[name] is not None]
    if call.distinct:
        kept = list({_identity(row[name]): row for row in kept}.values())
    # Rows that the order leaves side by side follow by their values: an answer must not depend on who came first.
    keys = (*call.order, SortKey(call.argument))
    known: list[Any] = [row[name] for row in in_order(kept, keys)]
    if call.function == "count":
        return len(known)
    return _over_values(call, known) if known else None


def _over_values(call: AggregateCall, known: list[Any]) -> Value:
    """An aggregate over one or more values, in order."""
    assert call.argument is not None
    if call.user is not None:
        return _value(call.user.over_values(known))
    match call.function:
        case "min" | "max":
            # In their own order, whatever else was asked for.
            ordered = sorted(known, key=cmp_to_key(compare))
            return _value(ordered[0 if call.function == "min" else -1])
        case "first":
            return _value(known[0])
        case "last":
            return _value(known[-1])
        case "sum":
            return fit(_double_sum(known) if call.type.name == "DOUBLE" else _exact_sum(known), call.type)
        case "avg" if call.argument.type.name == "DOUBLE":
            return _double_sum(known) / len(known)
        case "avg":
            return float(sum(map(Fraction, known)) / len(known))
        case "var_pop" | "var_samp" | "stddev_pop" | "stddev_samp":
            return _dispersion(call.function, [float(value) for value in known])
        case "percentile_cont":
            return _between([float(value) for value in known], _fraction(call))
        case "percentile_disc":
            return _value(known[max(math.ceil(_fraction(call) * len(known)) - 1, 0)])
        case "mode":
            return _most_frequent(known)
        case "string_agg":
            return str(call.parameter).join(known)
        case "array_agg":
            return tuple(element for array in known for element in array)
    raise AssertionError(f"aggregate {call.function} has no meaning")


def _value(value: Any) -> Value:
    result: Value = value
    return result


def _identity(value: Any) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return tuple(map(_identity, value)) if isinstance(value, tuple) else value


RowType = TypeVar("RowType", bound=Mapping[str, Value])


def in_order(rows: Sequence[RowType], keys: Sequence[SortKey]) -> list[RowType]:
    """The rows in an order; those that are level stay as they were."""

    def comparison(one: RowType, two: RowType) -> int:
        return compare_rows(keys, one, two)

    return sorted(rows, key=cmp_to_key(comparison))


def compare_rows(keys: Sequence[SortKey], one: Mapping[str, Value], two: Mapping[str, Value]) -> int:
    """-1, 0 or 1: which of two rows comes first in an order."""
    for key in keys:
        left, right = one[key.column.id], two[key.column.id]
        if left is None or right is None:
            order = ((left is None) - (right is None)) * (-1 if key.nulls_first else 1)
        else:
            order = compare(left, right) * (-1 if key.descending else 1)
        if order:
            return order
    return 0


def _fraction(call: AggregateCall) -> float:
    assert isinstance(call.parameter, float), "a percentile has its fraction"
    return call.parameter


def _between(values: list[float], fraction: float) -> float:
    place = fraction * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)  # infinities have no difference


def _most_frequent(values: list[Any]) -> Value:
    counts: dict[object, int] = {}
    for value in values:
        counts[_identity(value)] = counts.get(_identity(value), 0) + 1
    return _value(max(values, key=lambda value: counts[_identity(value)]))  # the first of those with the most


def _dispersion(function: str, values: list[float]) -> float | None:
    count = len(values)
    if count == 1 and function.endswith("samp"):
        return None
    if any(value != value or abs(value) >= LARGEST_SQUARED for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    squares = _to_double(sum((value * value for value in exact), Fraction()) * count - sum(exact, Fraction()) ** 2)
    variance = squares / (count * (count if function.endswith("pop") else count - 1))
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _exact_sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = _EXACT.add(total, value) if isinstance(total, Decimal) else total + value
    return total


def _double_sum(values: list[float]) -> float:
    special = [value for value in values if not math.isfinite(value)]
    if special:  # NaN and the infinities decide any sum
        return sum(special)
    try:
        return math.fsum(values)
    except OverflowError:  # of a partial sum; the whole may still be a DOUBLE
        return _to_double(sum(map(Fraction, values), Fraction()))


def _to_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

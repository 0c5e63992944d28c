"""The aggregates of the language: which there are, their types, and what they mean over the rows of a group.

The meaning is slow and obvious, as that of expressions in `evaluate.py`: the oracle of the fast path. An aggregate
leaves out the rows whose argument is NULL.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key, partial, reduce
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

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
from strandline.functions.oracles import Spellings
from strandline.functions.pair_aggregates import PAIR_AGGREGATES, over_pairs
from strandline.functions.signatures import ARRAY_HINT, FunctionError
from strandline.logical.expressions import AggregateCall, SortKey, Value
from strandline.logical.values import EXACT, LARGEST_SQUARED, compare, fit

# What stands in the parentheses: `x`, `x, separator`, `y, x`, or a fraction and the values WITHIN GROUP (ORDER BY x).
Form = Literal["value", "separated", "within group", "fraction within group", "pair"]
Meaning: TypeAlias = Callable[[AggregateCall, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate over the values of a group that are not NULL. What computes it over columns is in
    `runtime/operators/aggregate.py`, or in `ordered_aggregates.py` if it needs the members of a group.

    rule            the type of the result by that of the argument; None if it does not accept it
    meaning         the value of a call over one or more values in order: the reference
    of_none         its value where there are no values
    ordered         whether it takes an ORDER BY of its own
    sql             how databases write it (`oracles.py`); `duckdb` and `postgresql` where one of them differs
    same_as         the aggregate of truth values, which are ordered, that has the same result
    ignores_copies  a second copy of a value does not change it
    needs_members   it looks at all values of a group, where others get by with totals
    """

    name: str
    usage: str
    doc: str
    rule: Callable[[Type], Type | None]
    meaning: Meaning
    form: Form = "value"
    ordered: bool = False
    of_none: Value = None
    sql: Spellings | None = None
    duckdb: Spellings | None = None
    postgresql: Spellings | None = None
    same_as: str | None = None
    ignores_copies: bool = False
    needs_members: bool = False
    aliases: tuple[str, ...] = ()


def needs_members(call: AggregateCall) -> bool:
    """Whether it has to look at all values of a group, where others get by with totals."""
    return AGGREGATES[call.function].needs_members if call.user is None else call.user.inverse is None


def find_aggregate(name: str) -> AggregateFunction | None:
    """The aggregate that a name in any case denotes."""
    key = name.lower()
    return AGGREGATES.get(_ALIASES.get(key, key))


def aggregate_type(name: str, argument: Type | None) -> Type:
    """The type of an aggregate; an `argument` of None is `*`."""
    function = AGGREGATES[name]
    usage = f"Write {function.usage}."
    if name == "count":
        return BIGINT
    if argument is None:
        raise FunctionError(f"{name} needs an argument", usage)
    result = None if argument.element is not None else function.rule(argument)
    if result is None:
        reason = function.doc if argument.element is None else ARRAY_HINT
        raise FunctionError(f"{name} does not accept ({argument})", f"{usage} {reason}")
    return result


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
    # Ties are broken by the values themselves: a result must not depend on the order of arrival.
    values: list[Any] = [row[name] for row in in_order(kept, (*call.order, SortKey(call.argument)))]
    result: Value
    if call.user is not None:
        result = call.user.over_values(values) if values else None
    else:
        function = AGGREGATES[call.function]
        result = function.meaning(call, values) if values else function.of_none
    return result


RowType = TypeVar("RowType", bound=Mapping[str, Value])


def in_order(rows: Sequence[RowType], keys: Sequence[SortKey]) -> list[RowType]:
    """The rows sorted by keys; ties stay in their order."""
    return sorted(rows, key=cmp_to_key(partial(compare_rows, keys)))


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


def _identity(value: Any) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return tuple(map(_identity, value)) if isinstance(value, tuple) else value


# ---- typing ----------------------------------------------------------------------------------------------------------


def _same(kind: Type) -> Type:
    return VARCHAR if kind == NULL else kind


def _sum_rule(kind: Type) -> Type | None:
    match kind:
        case Type("INT"):
            return BIGINT
        case Type("BIGINT"):
            return decimal(MAX_PRECISION, 0)
        case Type("DECIMAL", _, scale):
            return decimal(MAX_PRECISION, scale)
        case Type("DOUBLE"):
            return DOUBLE
    return None


def _double(kind: Type) -> Type | None:
    return DOUBLE if is_numeric(kind) else None


def _only(accepted: Type) -> Callable[[Type], Type | None]:
    return lambda kind: accepted if kind in (accepted, NULL) else None


_truth, _text = _only(BOOLEAN), _only(VARCHAR)


def _array(kind: Type) -> Type | None:
    return None if kind == INTERVAL else array_of(_same(kind))


# ---- meaning ---------------------------------------------------------------------------------------------------------


def _least(_: AggregateCall, values: list[Any]) -> Any:
    """In their own order, whatever else was asked for."""
    return sorted(values, key=cmp_to_key(compare))[0]


def _greatest(_: AggregateCall, values: list[Any]) -> Any:
    return sorted(values, key=cmp_to_key(compare))[-1]


def _sum(call: AggregateCall, values: list[Any]) -> Value:
    if call.type.name == "DOUBLE":
        return _double_sum(values)
    return fit(reduce(EXACT.add, values) if isinstance(values[0], Decimal) else sum(values), call.type)


def _mean(call: AggregateCall, values: list[Any]) -> float:
    assert call.argument is not None, "only COUNT takes a star"
    if call.argument.type.name == "DOUBLE":
        return _double_sum(values) / len(values)
    return float(sum(map(Fraction, values)) / len(values))


def _percentile_disc(call: AggregateCall, values: list[Any]) -> Any:
    return values[max(math.ceil(_fraction(call) * len(values)) - 1, 0)]


def _most_frequent(_: AggregateCall, values: list[Any]) -> Any:
    counts = Counter(map(_identity, values))
    return max(values, key=lambda value: counts[_identity(value)])  # the first of those with the most


def _fraction(call: AggregateCall) -> float:
    assert isinstance(call.parameter, float), "a percentile has its fraction"
    return call.parameter


def _between(values: list[float], fraction: float) -> float:
    rank = fraction * (len(values) - 1)
    low, high = values[math.floor(rank)], values[math.ceil(rank)]
    return low if low == high else low + (rank - math.floor(rank)) * (high - low)  # infinities have no difference


def _dispersion(call: AggregateCall, given: list[Any]) -> float | None:
    function, values, count = call.function, [float(value) for value in given], len(given)
    if count == 1 and function.endswith("samp"):
        return None
    if any(value != value or abs(value) >= LARGEST_SQUARED for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    squares = _to_double(sum((value * value for value in exact), Fraction()) * count - sum(exact, Fraction()) ** 2)
    variance = squares / (count * (count if function.endswith("pop") else count - 1))
    return math.sqrt(variance) if function.startswith("stddev") else variance


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


# ---- declarations ----------------------------------------------------------------------------------------------------

DISPERSIONS: Final = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


def _dispersion_of_numbers(name: str, usage: str, doc: str, *aliases: str) -> AggregateFunction:
    return AggregateFunction(
        name, usage, doc, _double, _dispersion, aliases=aliases,
        duckdb=f"{{h}}dispersion('{name}', CAST(list({{d}}{{0}}){{n}} AS DOUBLE[]))",
        postgresql=f"{{h}}dispersion('{name}', CAST(array_agg({{d}}{{0}}){{n}} AS DOUBLE PRECISION[]))")  # fmt: skip


def _of_pairs(name: str, usage: str, doc: str) -> AggregateFunction:
    """The type and the array of the pair are those of the binder."""
    return AggregateFunction(
        name, usage, doc, _double, lambda _, pairs: over_pairs(name, pairs), "pair",
        duckdb=f"{{h}}regression('{name}', list(CAST({{0}} AS DOUBLE)){{n}}, list(CAST({{1}} AS DOUBLE)){{n}})",
        postgresql=f"{{h}}regression('{name}', array_agg(CAST({{0}} AS DOUBLE PRECISION)){{n}}, "
                   f"array_agg(CAST({{1}} AS DOUBLE PRECISION)){{n}})")  # fmt: skip


_FAMILY: Final = (
    AggregateFunction(
        "count", "COUNT(*) or COUNT(x)", "The number of rows, or of values.", lambda _: BIGINT,
        lambda _, values: len(values), of_none=0, sql="count({d}{0}){f}"),
    AggregateFunction(
        "sum", "SUM(x)", "The exact sum of numbers; NULL if there are none.", _sum_rule, _sum,
        sql={"INT": "CAST(sum({d}{0}){f} AS BIGINT)"},
        duckdb={"BIGINT": "CAST(sum({d}{0}){f} AS DECIMAL(38,0))", "DECIMAL": "sum({d}{0}){f}",
                "DOUBLE": "{h}sum_double(list({d}{0}){n})"},
        postgresql={"BIGINT": "{h}fit(sum({d}{0}){f}, 38, 0)", "DECIMAL": "{h}fit(sum({d}{0}){f}, 38, {s})",
                    "DOUBLE": "{h}sum_double(array_agg({d}{0}){n})"}),
    AggregateFunction(
        "avg", "AVG(x)", "The mean of numbers as a DOUBLE; NULL if there are none.", _double, _mean,
        duckdb={"DOUBLE": "({h}sum_double(list({d}{0}){n}) / nullif(count({d}{0}){f}, 0))",
                "*": "(CAST(sum({d}{0}){f} AS DOUBLE) / nullif(count({d}{0}){f}, 0))"},
        postgresql={"DOUBLE": "({h}sum_double(array_agg({d}{0}){n}) / nullif(count({d}{0}){f}, 0))",
                    "*": "CAST(avg({d}{0}){f} AS DOUBLE PRECISION)"}),
    AggregateFunction(
        "min", "MIN(x)", "The least value; NULL if there is none.", _same, _least, ignores_copies=True,
        sql="min({0}){f}", postgresql={"BOOLEAN": "bool_and({0}){f}"}),
    AggregateFunction(
        "max", "MAX(x)", "The greatest value; NULL if there is none.", _same, _greatest, ignores_copies=True,
        sql="max({0}){f}", postgresql={"BOOLEAN": "bool_or({0}){f}"}),
    AggregateFunction(
        "bool_and", "BOOL_AND(x)", "Whether all are true; NULL if there is none.", _truth, _least, same_as="min",
        sql="bool_and({0}){f}"),
    AggregateFunction(
        "every", "EVERY(x)", "The same as BOOL_AND.", _truth, _least, same_as="min", sql="bool_and({0}){f}"),
    AggregateFunction(
        "bool_or", "BOOL_OR(x)", "Whether one is true; NULL if there is none.", _truth, _greatest, same_as="max",
        sql="bool_or({0}){f}"),
    _dispersion_of_numbers("var_pop", "VAR_POP(x)", "The variance of numbers."),
    _dispersion_of_numbers(
        "var_samp", "VAR_SAMP(x) or VARIANCE(x)", "The same of a sample; NULL for one number.", "variance"),
    _dispersion_of_numbers("stddev_pop", "STDDEV_POP(x)", "The standard deviation of numbers."),
    _dispersion_of_numbers(
        "stddev_samp", "STDDEV_SAMP(x) or STDDEV(x)", "The same of a sample; NULL for one number.", "stddev"),
    AggregateFunction(
        "median", "MEDIAN(x)", "The number in the middle, or the mean of the two there.", _double,
        lambda _, values: _between([float(value) for value in values], 0.5),
        duckdb="{h}between(CAST(list({d}{0} ORDER BY {0}){n} AS DOUBLE[]), 0.5)",
        postgresql="{h}between(CAST(array_agg({d}{0} ORDER BY {0}){n} AS DOUBLE PRECISION[]), 0.5)"),
    AggregateFunction(
        "percentile_cont", "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)",
        "The number that this share of the numbers lies below, between two of them if need be.",
        _double, lambda call, values: _between([float(value) for value in values], _fraction(call)),
        "fraction within group", needs_members=True,
        duckdb="{h}between(CAST(list({0} ORDER BY {w}){n} AS DOUBLE[]), {1})",
        postgresql="{h}between(CAST(array_agg({0} ORDER BY {w}){n} AS DOUBLE PRECISION[]), {1})"),
    AggregateFunction(
        "percentile_disc", "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY x)",
        "The first value up to which at least this share of the values lies.",
        _same, _percentile_disc, "fraction within group", needs_members=True,
        sql="percentile_disc({1}) WITHIN GROUP (ORDER BY {w}){f}"),
    AggregateFunction(
        "mode", "MODE() WITHIN GROUP (ORDER BY x)", "The most frequent value; of several the first in the order.",
        _same, _most_frequent, "within group", needs_members=True,
        duckdb="{h}most_frequent(list({0} ORDER BY {w}){n})", postgresql="mode() WITHIN GROUP (ORDER BY {w}){f}"),
    AggregateFunction(
        "first", "FIRST(x ORDER BY y)",
        "The value of the first row; of several such rows the least. Without ORDER BY the first by time.",
        _same, lambda _, values: values[0], ordered=True, ignores_copies=True, needs_members=True,
        duckdb="first({0} ORDER BY {o}){n}", postgresql="(array_agg({0} ORDER BY {o}){n})[1]"),
    AggregateFunction(
        "last", "LAST(x ORDER BY y)",
        "The value of the last row; of several such rows the greatest. Without ORDER BY the last by time.",
        _same, lambda _, values: values[-1], ordered=True, ignores_copies=True, needs_members=True,
        duckdb="last({0} ORDER BY {o}){n}", postgresql="{h}last_of(array_agg({0} ORDER BY {o}){n})"),
    AggregateFunction(
        "string_agg", "STRING_AGG(x, ', ' ORDER BY y)",
        "The texts, joined; in the order of the texts themselves if none is given or leaves a choice.",
        _text, lambda call, values: str(call.parameter).join(values), "separated", ordered=True, needs_members=True,
        sql="string_agg({d}{0}, {1} ORDER BY {o}){f}", aliases=("listagg",)),
    AggregateFunction(
        "array_agg", "ARRAY_AGG(x ORDER BY y)",
        "The values as an array, NULLs too; in their own order if none is given or leaves a choice.",
        _array, lambda _, values: tuple(element for array in values for element in array), ordered=True,
        needs_members=True, sql="array_agg({d}{0} ORDER BY {o}){f}"),
    *(_of_pairs(name, *written) for name, written in PAIR_AGGREGATES.items()),
)  # fmt: skip

AGGREGATES: Final[Mapping[str, AggregateFunction]] = MappingProxyType({function.name: function for function in _FAMILY})
_ALIASES: Final = {alias: function.name for function in _FAMILY for alias in function.aliases}

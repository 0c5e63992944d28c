"""Rules about groupings: groups of one element, and eager aggregation below a join or a union.

Totals of totals are totals only where nothing is rounded: COUNT, MIN, MAX, and SUM of integers and of decimals with
spare digits. The sum of DOUBLEs is the exact sum, rounded once; in parts it would be rounded more than once. DISTINCT
aggregates do not add up, except MIN and MAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from strandline.core.types import BIGINT, BOOLEAN, MAX_PRECISION, Column, Type
from strandline.functions.aggregates import aggregate_type
from strandline.logical.expressions import AggregateCall, Call, Case, Cast, ColumnRef, Expression, Literal, columns_of
from strandline.logical.plan import Aggregate, Aggregates, Join, Map, Outputs, Plan, Union
from strandline.logical.properties.keys import determines
from strandline.logical.schema import pass_on, schema
from strandline.planner.rules.expressions import respects_equality

SPARE_DIGITS: Final = 10  # digits that a sum may be longer than its numbers, so that no part of it is too long


def drop_grouping_by_key(plan: Plan) -> Plan | None:
    """γk(S) = μ(S) where k contains a key of S: every group is one element. COUNT(*) is 1, MIN, MAX and SUM the value.

    Not without keys: there is a group even over nothing.
    """
    match plan:
        case Aggregate(keys, aggregates, source) if keys and determines(source, keys):
            values = [_of_one(call) for _, call in aggregates]
            expressions = [value for value in values if value is not None]
            if len(expressions) < len(values):
                return None
            computed = ((c, value) for (c, _), value in zip(aggregates, expressions, strict=True))
            return Map((*pass_on(schema(plan)[: len(keys)]), *computed), source)
    return None


def _of_one(call: AggregateCall) -> Expression | None:
    """An aggregate over one element, as an expression."""
    if call.user is not None:
        return None
    one, zero = Literal(1, BIGINT), Literal(0, BIGINT)
    match call.function, call.argument:
        case "count", None:
            return one
        case "count", ColumnRef() as value:
            return Case(((Call("is_null", (value,), BOOLEAN), zero),), one, BIGINT)
        case "min" | "max", ColumnRef() as value if value.type == call.type:
            return value
        case "sum", ColumnRef() as value if _adds_up(value.type):
            return Cast(value, call.type)
    return None


def group_below_join(plan: Plan) -> Iterator[Plan]:
    """γk;Σa(L ⋈p R) = γk;Σs(γ(kL, pL);s:=Σa(L) ⋈p R) where all aggregates are over L, and the same for R.

    kL are the keys that L has, pL its columns that p reads. The elements of L that agree in them have the same matches
    and are in the same groups, so that one element with their totals may replace them. Duplicates in R do no harm: each
    adds the totals once more, as it would have added the elements.

    Without columns to group by below there would be a group over nothing: it stays.
    """
    if not isinstance(plan, Aggregate):
        return
    match _without_map(plan):
        case Aggregate(keys, aggregates, Join(condition, left, right)) as grouping:
            parts = _parts_of(grouping)
            if parts is None or not respects_equality(condition):
                return
            names = _names(plan.source)
            passed = tuple((c, names[c.id]) for c in schema(plan)[: len(plan.keys)])
            read = columns_of(condition).union(keys)
            arguments = {column.id for _, call in aggregates for column in call.columns}
            for here, other, on_left in ((left, right, True), (right, left, False)):
                own = [c.id for c in schema(here)]
                by = tuple(column_id for column_id in own if column_id in read)
                if not by or not arguments.issubset(own) or determines(here, by):
                    continue
                below = Aggregate(by, parts.below, here)
                join = Join(condition, below, other) if on_left else Join(condition, other, below)
                yield Map((*passed, *parts.outputs), Aggregate(keys, parts.above, join))


def _without_map(plan: Aggregate) -> Aggregate:
    """The grouping over the input of its map, if the map only passes on the needed columns."""
    names = _names(plan.source)
    asked = {*plan.keys, *(column.id for _, call in plan.aggregates for column in call.columns)}
    if not isinstance(plan.source, Map) or not asked <= names.keys():
        return plan
    calls = (
        (column, replace(call, argument=None if call.argument is None else names[call.argument.id], order=()))
        for column, call in plan.aggregates
    )
    return Aggregate(tuple(dict.fromkeys(names[key].id for key in plan.keys)), tuple(calls), plan.source.source)


def _names(source: Plan) -> dict[str, ColumnRef]:
    """The columns of a plan, those of a map by their names below it; without computed ones."""
    if isinstance(source, Map):
        return {c.id: e for c, e in source.outputs if isinstance(e, ColumnRef)}
    return {c.id: ColumnRef(c.id, c.type) for c in schema(source)}


def group_below_union(plan: Plan) -> Plan | None:
    """γk;Σa(S1 ⊎ S2) = γk;Σs(γk;s:=Σa(S1) ⊎ γk;s:=Σa(S2)), for keys and without DISTINCT."""
    match plan:
        case Aggregate(keys, _, Union(columns, inputs)) if keys:
            parts = _parts_of(plan)
            if parts is None or any(isinstance(source, Aggregate) for source in inputs):
                return None
            above = (*(next(c for c in columns if c.id == key) for key in keys), *(c for c, _ in parts.below))
            sides = tuple(_side(keys, parts.below, columns, source, n) for n, source in enumerate(inputs))
            whole = Aggregate(keys, parts.above, Union(above, sides))
            return Map((*pass_on(schema(plan)[: len(keys)]), *parts.outputs), whole)
    return None


def _side(keys: tuple[str, ...], calls: Aggregates, columns: tuple[Column, ...], source: Plan, number: int) -> Plan:
    """The grouping of one side of a union, whose columns have their own names."""
    names = {c.id: ColumnRef(s.id, s.type) for c, s in zip(columns, schema(source), strict=True)}
    renamed: list[tuple[Column, AggregateCall]] = []
    for column, call in calls:
        argument = None if call.argument is None else names[call.argument.id]
        renamed.append((replace(column, id=f"{column.id} {number}"), replace(call, argument=argument)))
    return Aggregate(tuple(names[key].id for key in keys), tuple(renamed), source)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Two-step aggregation: partial, final, and the expressions that restore the output."""

    below: Aggregates
    above: Aggregates
    outputs: Outputs


def _parts_of(plan: Aggregate) -> _Parts | None:
    below: list[tuple[Column, AggregateCall]] = []
    above: list[tuple[Column, AggregateCall]] = []
    outputs: list[tuple[Column, Expression]] = []
    for column, call in plan.aggregates:
        if not _is_additive(call):
            return None
        part = Column(f"part of {column.id}", column.name, call.type)
        function = "sum" if call.function == "count" else call.function
        kind = aggregate_type(function, call.type)
        whole = Column(f"whole of {column.id}", column.name, kind)
        value: Expression = ColumnRef(whole.id, kind)
        value = value if kind == column.type else Cast(value, column.type)
        if call.function == "count" and not plan.keys:  # the sum of no counts is NULL
            value = Case(((Call("is_null", (value,), BOOLEAN), Literal(0, BIGINT)),), value, BIGINT)
        below.append((part, call))
        above.append((whole, AggregateCall(function, ColumnRef(part.id, part.type), kind)))
        outputs.append((column, value))
    return _Parts(tuple(below), tuple(above), tuple(outputs))


def _is_additive(call: AggregateCall) -> bool:
    match call.function:
        case _ if call.user is not None:
            return False
        case "min" | "max":
            return True
        case "count":
            return not call.distinct
        case "sum":
            return not call.distinct and call.argument is not None and _adds_up(call.argument.type)
    return False


def _adds_up(kind: Type) -> bool:
    """True if sums of a type are exact and partial sums never overflow."""
    return kind.name in ("INT", "BIGINT") or (kind.name == "DECIMAL" and kind.precision + SPARE_DIGITS <= MAX_PRECISION)

"""Rules about the bounds of finished windows."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.types import INT, Column
from strandline.logical.expressions import ColumnRef, Expression, Literal, columns_of
from strandline.logical.plan import Aggregate, Filter, Map, Plan, WindowBounds
from strandline.logical.schema import pass_on, schema


def push_filter_below_bounds(plan: Plan) -> Plan | None:
    """σp(β(S)) = β(σp(S)), if p does not read the bounds."""
    match plan:
        case Filter(predicate, WindowBounds(start=start, end=end) as bounds):
            if not columns_of(predicate) & {start.id, end.id}:
                return replace(bounds, source=Filter(predicate, bounds.source))
    return None


def push_aggregate_below_bounds(plan: Plan) -> Plan | None:
    """γk,b(μ(β(S))) = μ(β(γk(μ(S)))), where b are keys that depend on the bounds alone: all elements of a snapshot have
    the same bounds.

    Then a row is in one group, not in one of each window that contains it. Without other keys the group is that of a
    constant: an aggregation without keys would have a row over nothing.
    """
    match plan:
        case Aggregate(keys, aggregates, Map(outputs, WindowBounds(start=start, end=end) as bounds)):
            own = frozenset((start.id, end.id))
            values = dict(outputs_by_id(outputs))
            by_window = [key for key in keys if columns_of(values[key]) and columns_of(values[key]) <= own]
            others = [(column, value) for column, value in outputs if column.id not in by_window]
            if not by_window or any(columns_of(value) & own for _, value in others):
                return None
            if any(ref.id in by_window for _, call in aggregates for ref in call.columns):
                return None
            left = tuple(key for key in keys if key not in by_window)
            if not left:
                one = Column(f"group of {end.id}", "group", INT)
                others, left = [*others, (one, Literal(1, INT))], (one.id,)
            grouped = replace(bounds, source=Aggregate(left, aggregates, Map(tuple(others), bounds.source)))
            listed: list[tuple[Column, Expression]] = []
            for column in schema(plan):
                listed.append(
                    (column, values[column.id] if column.id in by_window else ColumnRef(column.id, column.type))
                )
            return Map(tuple(listed), grouped)
        case Aggregate(keys, aggregates, WindowBounds() as bounds):
            return push_aggregate_below_bounds(Aggregate(keys, aggregates, Map(pass_on(schema(bounds)), bounds)))
    return None


def outputs_by_id(outputs: tuple[tuple[Column, Expression], ...]) -> list[tuple[str, Expression]]:
    return [(column.id, value) for column, value in outputs]

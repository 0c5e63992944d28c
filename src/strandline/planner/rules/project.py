"""Rules about maps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from strandline.core.types import Column
from strandline.functions.subexpressions import Part, Parts
from strandline.logical.expressions import ColumnRef, Expression, Literal, children, columns_of, substitute
from strandline.logical.plan import Filter, Map, Plan, TimeWindow
from strandline.logical.schema import pass_on, schema
from strandline.planner.rules.expressions import stays_small

# Nanoseconds for each row; for less, one more column that the filter has to move is not worth it.
EXPENSIVE_NS = 60


def push_map_below_time_window(plan: Plan) -> Plan | None:
    """μ(ω(S)) = ω(μ(S)): how long an element is valid does not depend on what is computed from it."""
    match plan:
        case Map(outputs, TimeWindow(source=source) as window):
            return replace(window, source=Map(outputs, source))
    return None


def merge_maps(plan: Plan) -> Plan | None:
    """μf(μg(S)) = μ(f∘g)(S), where no computed value of g would be computed twice and none would get too high."""
    match plan:
        case Map(outer, Map(inner, source)):
            uses = Counter(column_id for _, expression in outer for column_id in _references(expression))
            costly = (c.id for c, e in inner if not isinstance(e, ColumnRef | Literal))
            if any(uses[column_id] > 1 for column_id in costly):
                return None
            values = {column.id: expression for column, expression in inner}
            if not all(stays_small(expression, values) for _, expression in outer):
                return None
            return Map(tuple((column, substitute(expression, values)) for column, expression in outer), source)
    return None


def share_with_filter(plan: Plan) -> Plan | None:
    """μf(σp(S)) = μf'(σp'(μg(S))), where g is the expensive common subexpression of f and p, computed once.

    The predicate needs it for every row anyway. `push_filter_below_map` is undone by this where it doubled the work,
    but only now, when the filter is where it stays.
    """
    match plan:
        case Map(outputs, Filter(predicate, source)):
            parts = Parts([predicate, *(expression for _, expression in outputs)])
            common = parts.common(parts.roots[:1], parts.roots[1:], EXPENSIVE_NS)
            if not common:
                return None
            shared = [(_column(position, parts.all[number]), number) for position, number in enumerate(common)]
            instead: dict[int, Expression] = {number: ColumnRef(c.id, c.type) for c, number in shared}
            first, *expressions = (parts.written(root, instead) for root in parts.roots)
            needed = frozenset().union(*map(columns_of, (first, *expressions)))
            kept = pass_on(c for c in schema(source) if c.id in needed)
            below = Map((*kept, *((c, parts.all[number].expression) for c, number in shared)), source)
            return Map(tuple((c, e) for (c, _), e in zip(outputs, expressions, strict=True)), Filter(first, below))
    return None


def _column(position: int, part: Part) -> Column:
    # No other column has such an id, and nothing above the map that reads it refers to it.
    return Column(f"shared {position} of {min(part.columns)}", "shared", part.expression.type)


def _references(expression: Expression) -> list[str]:
    """The columns that an expression reads, as often as it reads them."""
    if isinstance(expression, ColumnRef):
        return [expression.id]
    return [column_id for child in children(expression) for column_id in _references(child)]

"""Rules about maps."""

from __future__ import annotations

from collections import Counter

from strandline.algebra.expressions import ColumnRef, Expression, Literal, children, substitute
from strandline.algebra.operators import Map, Plan, TimeWindow
from strandline.optimizer.rules.growth import stays_small


def push_map_below_time_window(plan: Plan) -> Plan | None:
    """μ(ω(S)) = ω(μ(S)): how long an element is valid does not depend on what is computed from it."""
    match plan:
        case Map(outputs, TimeWindow(range_us, slide_us, source)):
            return TimeWindow(range_us, slide_us, Map(outputs, source))
    return None


def merge_maps(plan: Plan) -> Plan | None:
    """μf(μg(S)) = μ(f∘g)(S), where no computed value of g would be computed twice and none would get too high."""
    match plan:
        case Map(outer, Map(inner, source)):
            uses = Counter(id for _, expression in outer for id in _references(expression))
            costly = (c.id for c, e in inner if not isinstance(e, ColumnRef | Literal))
            if any(uses[id] > 1 for id in costly):
                return None
            values = {column.id: expression for column, expression in inner}
            if not all(stays_small(expression, values) for _, expression in outer):
                return None
            return Map(tuple((column, substitute(expression, values)) for column, expression in outer), source)
    return None


def _references(expression: Expression) -> list[str]:
    """The columns that an expression reads, as often as it reads them."""
    if isinstance(expression, ColumnRef):
        return [expression.id]
    return [id for child in children(expression) for id in _references(child)]

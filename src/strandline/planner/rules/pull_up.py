"""Pull-up rules: an expensive condition or computation moves up, where fewer rows are left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.logical.expressions import (
    ColumnRef,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    reads_only,
    substitute,
)
from strandline.logical.plan import Aggregate, Distinct, Filter, Join, Map, MarkJoin, OuterJoin, Plan, SemiJoin
from strandline.logical.schema import column_ids, pass_on, schema
from strandline.planner.rules.expressions import connects, respects_equality, stays_small, takes_whole_groups


def split_filter(plan: Plan) -> Iterator[Plan]:
    """σ(p ∧ q)(S) = σq(σp(S)), with any part of the condition first."""
    match plan:
        case Filter(predicate, source):
            parts = conjuncts(predicate)
            for position, first in enumerate(parts):
                remaining = conjunction((*parts[:position], *parts[position + 1 :]))
                if remaining is not None:
                    yield Filter(remaining, Filter(first, source))


def swap_filters(plan: Plan) -> Plan | None:
    """σp(σq(S)) = σq(σp(S))."""
    match plan:
        case Filter(outer, Filter(inner, source)):
            return Filter(inner, Filter(outer, source))
    return None


def pull_filter_above_join(plan: Plan) -> Iterator[Plan]:
    """σp(L) ⋈ R = σp(L ⋈ R), and the same for R; for the left side of ⟕, ⋉, ▷ and marks too."""
    match plan:
        case Join() | OuterJoin(False) | SemiJoin() | MarkJoin() if isinstance(plan.left, Filter):
            yield Filter(plan.left.predicate, replace(plan, left=plan.left.source))
    match plan:
        case Join(predicate, left, Filter(of_right, right)):
            yield Filter(of_right, Join(predicate, left, right))


def take_filter_out_of_join(plan: Plan) -> Iterator[Plan]:
    """L ⋈(p ∧ q) R = σq(L ⋈p R): evaluate an expensive condition only for the pairs that a cheap one has left.

    The last equality of both sides stays: pairs are found by it, and without it all pairs would be made.
    """
    match plan:
        case Join(condition, left, right) if condition is not None:
            parts = conjuncts(condition)
            equalities = [part for part in parts if connects(part, column_ids(left), column_ids(right))]
            for position, part in enumerate(parts):
                if equalities == [part]:
                    continue
                yield Filter(part, Join(conjunction((*parts[:position], *parts[position + 1 :])), left, right))


def pull_filter_above_map(plan: Plan) -> Plan | None:
    """μf(σp(S)) = σp(μf(S)), where μ passes on all columns that p reads, perhaps under other names."""
    match plan:
        case Map(outputs, Filter(predicate, source)):
            names = {e.id: ColumnRef(c.id, c.type) for c, e in outputs if isinstance(e, ColumnRef)}
            if not columns_of(predicate) <= names.keys():
                return None
            return Filter(substitute(predicate, names), Map(outputs, source))
    return None


def pull_filter_above_distinct(plan: Plan) -> Plan | None:
    """δ(σ(S)) = σ(δ(S))."""
    match plan:
        case Distinct(Filter(predicate, source)) if respects_equality(predicate):
            return Filter(predicate, Distinct(source))
    return None


def pull_filter_above_aggregate(plan: Plan) -> Plan | None:
    """γk(σp(S)) = σp(γk(S)) where p reads keys only. Without keys there is a group even over nothing."""
    match plan:
        case Aggregate(keys, _, Filter(predicate, source)) if takes_whole_groups(predicate, frozenset(keys)):
            return Filter(predicate, replace(plan, source=source))
    return None


def pull_map_above_join(plan: Plan) -> Iterator[Plan]:
    """μf(L) ⋈p R = μ(f, R)(L ⋈(p∘f) R), and the same for R: computed for pairs, of which there may be fewer than rows.

    The columns of S come into sight by it. Where both sides read the same stream through one subplan, they may be there
    under the same names already, and the map stays.
    """
    match plan:
        case Join(condition, left, right):
            for here, other, on_left in ((left, right, True), (right, left, False)):
                if not isinstance(here, Map) or column_ids(here.source) & column_ids(other):
                    continue
                values = {column.id: expression for column, expression in here.outputs}
                if condition is not None and not stays_small(condition, values):
                    continue
                over_source = None if condition is None else substitute(condition, values)
                passed = pass_on(schema(other))
                if on_left:
                    yield Map((*here.outputs, *passed), Join(over_source, here.source, other))
                else:
                    yield Map((*passed, *here.outputs), Join(over_source, other, here.source))


def push_map_below_join(plan: Plan) -> Iterator[Plan]:
    """μf(L ⋈ R) = μf'(μg(L) ⋈ R), where g is the part of f that reads only L, and the same for R."""
    match plan:
        case Map(outputs, Join(condition, left, right)):
            for here, other, on_left in ((left, right, True), (right, left, False)):
                computed = [(c, e) for c, e in outputs if not isinstance(e, ColumnRef | Literal)]
                own = column_ids(here)
                early = {c.id for c, e in computed if reads_only(e, own)}
                if not early:
                    continue
                named = {column_id: f"early {column_id}" for column_id in early}
                added = ((replace(c, id=named[c.id]), e) for c, e in computed if c.id in early)
                below = Map((*pass_on(schema(here)), *added), here)
                join = Join(condition, below, other) if on_left else Join(condition, other, below)
                projections = ((c, ColumnRef(named[c.id], c.type) if c.id in early else e) for c, e in outputs)
                yield Map(tuple(projections), join)

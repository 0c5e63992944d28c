"""Rules that turn subqueries into joins, and joins into semi joins."""

from __future__ import annotations

from strandline.core.types import BOOLEAN
from strandline.logical.expressions import (
    Call,
    ColumnRef,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from strandline.logical.plan import Distinct, Filter, Join, Map, MarkJoin, Outputs, Plan, SemiJoin
from strandline.logical.properties.keys import has_unique_match
from strandline.logical.schema import column_ids, filtered, pass_on, schema
from strandline.planner.rules.expressions import respects_equality


def flatten_semi_join(plan: Plan) -> Plan | None:
    """L ⋉p R = πL(L ⋈p δ(πp(R))), where πp keeps the columns that p reads and p fixes each of them: each element of L
    has at most one match. An anti join has no such form: an unmatched element is in no pair."""
    match plan:
        case SemiJoin(False, predicate, left, right) if predicate is not None and respects_equality(predicate):
            read = columns_of(predicate)
            columns = pass_on(c for c in schema(right) if c.id in read)
            if not columns:
                return None
            values: Plan = Map(columns, right) if len(columns) < len(schema(right)) else right
            for matches in (values, Distinct(values)):
                if has_unique_match(predicate, left, matches):
                    return Map(pass_on(schema(left)), Join(predicate, left, matches))
    return None


def join_as_semi_join(plan: Plan) -> Plan | None:
    """μf(L ⋈ R) = μf(L ⋉ R) where f reads L only and each element of L has at most one match; and the same for R.

    Under δ the number of matches does not matter: δ(μf(L ⋈ R)) = δ(μf(L ⋉ R)).
    """
    match plan:
        case Distinct(Map(outputs, Join() as join)):
            semi = _semi(outputs, join, counted=False)
            return None if semi is None else Distinct(Map(outputs, semi))
        case Map(outputs, Join() as join):
            semi = _semi(outputs, join, counted=True)
            return None if semi is None else Map(outputs, semi)
    return None


def _semi(outputs: Outputs, join: Join, counted: bool) -> Plan | None:
    read = frozenset().union(*(columns_of(expression) for _, expression in outputs))
    for left, right in ((join.left, join.right), (join.right, join.left)):
        if read <= column_ids(left) and (not counted or has_unique_match(join.predicate, left, right)):
            return SemiJoin(False, join.predicate, left, right)
    return None


def mark_as_semi_join(plan: Plan) -> Plan | None:
    """σ(m ∧ q)(L with mark m of R) = σq(L ⋉ R with m := true), and NOT m gives ▷ with m := false."""
    match plan:
        case Filter(predicate, MarkJoin(mark, condition, left, right)):
            parts = conjuncts(predicate)
            asked = ColumnRef(mark.id, mark.type)
            for part, anti in ((asked, False), (Call("not", (asked,), BOOLEAN), True)):
                if part in parts:
                    outputs = (*pass_on(schema(left)), (mark, Literal(not anti, BOOLEAN)))
                    remaining = conjunction(other for other in parts if other != part)
                    return filtered(Map(outputs, SemiJoin(anti, condition, left, right)), remaining)
    return None

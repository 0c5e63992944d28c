"""Rules about duplicates: elimination, and operators that are insensitive to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.logical.expressions import columns_of
from strandline.logical.plan import (
    Aggregate,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    SemiJoin,
    SetOperation,
    TimeWindow,
    Union,
)
from strandline.logical.properties.keys import is_duplicate_free
from strandline.logical.schema import pass_on, schema
from strandline.logical.tree import sources, with_sources
from strandline.planner.rules.expressions import node_respects_equality, respects_equality


def drop_needless_distinct(plan: Plan) -> Plan | None:
    """δ(S) = S where no payload of S is valid twice: over δ, over a grouping, over what has a key."""
    match plan:
        case Distinct(source) if is_duplicate_free(source):
            return source
    return None


def push_distinct_below_join(plan: Plan) -> Plan | None:
    """δ(L ⋈ R) = δ(L) ⋈ δ(R), rule (10.6), δ(μ(L ⋈ R)) = δ(μ(δ(L) ⋈ δ(R))), and the same for ⟕.

    The condition holds for all duplicates of a pair or for none. A map may create new duplicates, then its δ stays. A
    full join of sides without duplicates may have one: of two elements of NULLs, one unmatched on either side.
    """
    match plan:
        case Distinct(Join() | OuterJoin(False) as join) if schema(join.left) and schema(join.right):
            return _without_duplicates(join) if respects_equality(join.predicate) else None
        case Distinct(Map(outputs, Join() | OuterJoin(False) as join) as map_) if outputs:
            if respects_equality(join.predicate) and node_respects_equality(map_):
                return _changed(plan, _distinct(Map(outputs, _without_duplicates(join))))
    return None


def pull_distinct_above_join(plan: Plan) -> Plan | None:
    """δ(L) ⋈ δ(R) = δ(L ⋈ R), and the same for ⟕, and where the one side has no duplicates anyway."""
    match plan:
        case Join(predicate) | OuterJoin(False, predicate) if respects_equality(predicate):
            if isinstance(plan.left, Distinct) and is_duplicate_free(plan.right):
                return Distinct(replace(plan, left=plan.left.source, right=_without_distinct(plan.right)))
            if isinstance(plan.right, Distinct) and is_duplicate_free(plan.left):
                return Distinct(replace(plan, right=plan.right.source))
    return None


def push_distinct_below_match(plan: Plan) -> Plan | None:
    """δ(L ⋉ R) = δ(L) ⋉ R, δ(μ(L ⋉ R)) = δ(μ(δ(L) ⋉ R)), and the same for ▷ and marks: duplicates have the same
    matches."""
    match plan:
        case Distinct(SemiJoin() | MarkJoin() as match_) if schema(match_.left) and node_respects_equality(match_):
            return replace(match_, left=_distinct(match_.left))
        case Distinct(Map(outputs, SemiJoin() | MarkJoin() as match_) as map_) if outputs:
            if not (node_respects_equality(match_) and node_respects_equality(map_)):
                return None
            return _changed(plan, _distinct(Map(outputs, replace(match_, left=_distinct(match_.left)))))
    return None


def remove_duplicates_early(plan: Plan) -> Iterator[Plan]:
    """δ(μ(S)) = δ(μ(δ(S))), δ(S1 ⊎ S2) = δ(δ(S1) ⊎ S2), γ(S) = γ(δ(S)) for aggregates that ignore duplicates."""
    match plan:
        case Distinct(Map(outputs, source) as map_) if _has_duplicates(source):
            if node_respects_equality(map_):
                yield Distinct(Map(outputs, Distinct(source)))
        case Distinct(Union(columns, inputs)):
            for position, source in enumerate(inputs):
                if _has_duplicates(source):
                    yield Distinct(Union(columns, (*inputs[:position], Distinct(source), *inputs[position + 1 :])))
        case Aggregate(_, _, source) if _ignores_duplicates(plan) and _has_duplicates(source):
            yield replace(plan, source=Distinct(source))


def remove_duplicates_below_semi_join(plan: Plan) -> Plan | None:
    """L ⋉p R = L ⋉p δ(π(R)), where π keeps the columns that p reads; the same for ▷ and marks.

    A match test does not depend on the number of matches. Without a condition R only needs to be non-empty, and there
    is no column to deduplicate by.
    """
    match plan:
        case SemiJoin() | MarkJoin() if plan.predicate is not None and respects_equality(plan.predicate):
            read = columns_of(plan.predicate)
            columns = tuple(c for c in schema(plan.right) if c.id in read)
            if not columns or isinstance(plan.right, Distinct):
                return None
            narrow = plan.right if columns == schema(plan.right) else Map(pass_on(columns), plan.right)
            return replace(plan, right=Distinct(narrow))
    return None


def drop_distinct_below_insensitive(plan: Plan) -> Plan | None:
    """δ(μ(δ(S))) = δ(μ(S)), δ(S1) ∩ S2 = S1 ∩ S2, L ⋉ δ(R) = L ⋉ R and so on: a δ below a duplicate-insensitive
    operator, with no sensitive one in between."""
    match plan:
        case Distinct(source):
            return _changed(plan, Distinct(_without_distinct(source)))
        case Aggregate(_, _, source) if _ignores_duplicates(plan):
            return _changed(plan, replace(plan, source=_without_distinct(source)))
        case SetOperation("except" | "intersect", _, left, right):
            return _changed(plan, replace(plan, left=_without_distinct(left), right=_without_distinct(right)))
        case SetOperation("except strict", _, _, right):
            return _changed(plan, replace(plan, right=_without_distinct(right)))
        case SemiJoin() | MarkJoin() if node_respects_equality(plan):
            return _changed(plan, replace(plan, right=_without_distinct(plan.right)))
    return None


def _without_distinct(plan: Plan) -> Plan:
    """The same payloads with perhaps more duplicates: without every δ below an insensitive operator.

    Multiplicity-sensitive operators end the search: EXCEPT ALL, top-k, ranks, count windows, changes.
    """
    if not node_respects_equality(plan):
        return plan
    match plan:
        case Distinct(source):
            return _without_distinct(source)
        case Filter() | Map() | Granularity() | TimeWindow() | Join() | OuterJoin() | SemiJoin() | MarkJoin() | Union():
            return with_sources(plan, tuple(map(_without_distinct, sources(plan))))
        case SetOperation(kind) if kind != "except all":
            return with_sources(plan, tuple(map(_without_distinct, sources(plan))))
    return plan


def _ignores_duplicates(plan: Aggregate) -> bool:
    """True if duplicates of elements do not change a grouping."""
    calls = [call for _, call in plan.aggregates]
    return all(call.user is None and (call.distinct or call.function in ("min", "max")) for call in calls)


def _without_duplicates(join: Join | OuterJoin) -> Plan:
    return replace(join, left=_distinct(join.left), right=_distinct(join.right))


def _distinct(plan: Plan) -> Plan:
    return Distinct(plan) if _has_duplicates(plan) else plan


def _has_duplicates(plan: Plan) -> bool:
    """True if a δ over a plan may have an effect. Elements without columns are all duplicates: only their number
    matters, and no operator distinguishes them."""
    return bool(schema(plan)) and not is_duplicate_free(plan)


def _changed(before: Plan, after: Plan) -> Plan | None:
    return after if after != before else None

"""Rules that move semi, anti, mark and left joins across other operators.

All four test elements of the left by those of the right, and have every element of the left at most where they stand:
they commute with what is computed from the left alone. An anti join ends elements at instants that are not known
before, and everything above it must follow; so it may pay to pull it up, though it makes the input of a join smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from strandline.logical.expressions import ColumnRef, columns_of, substitute
from strandline.logical.plan import (
    Aggregate,
    Distinct,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    SemiJoin,
    SetOperation,
    Union,
)
from strandline.logical.schema import column_ids, pass_on, rename, schema
from strandline.planner.rules.expressions import node_respects_equality, respects_equality, stays_small
from strandline.planner.rules.outer_join import rejects_nulls

Match: TypeAlias = OuterJoin | SemiJoin | MarkJoin


def push_match_below_join(plan: Plan) -> Iterator[Plan]:
    """(A ⋈q B) ⋉p C = (A ⋉p C) ⋈q B where p does not read B, and the same for ▷, marks and ⟕, and for B."""
    match plan:
        case (OuterJoin(False) | SemiJoin() | MarkJoin()) as outer if isinstance(outer.left, Join):
            condition, a, b = outer.left.predicate, outer.left.left, outer.left.right
            read = columns_of(outer.predicate)
            if not read & column_ids(b):
                yield _in_order(plan, Join(condition, replace(outer, left=a), b))
            if not read & column_ids(a):
                yield Join(condition, a, replace(outer, left=b))


def pull_match_above_join(plan: Plan) -> Iterator[Plan]:
    """(A ⋉p B) ⋈q C = (A ⋈q C) ⋉p B, and the same for ▷, marks and ⟕ where q does not read B, and on the right."""
    match plan:
        case Join(condition, left, right):
            for here, other, on_left in ((left, right, True), (right, left, False)):
                if not isinstance(here, SemiJoin | MarkJoin | OuterJoin) or not _may_pass(here, other):
                    continue
                if columns_of(condition) & _added(here):
                    continue
                pairs = Join(condition, here.left, other) if on_left else Join(condition, other, here.left)
                yield _in_order(plan, replace(here, left=pairs))


def exchange_matches(plan: Plan) -> Plan | None:
    """(A ⋉p B) ▷q C = (A ▷q C) ⋉p B, and so on for any two of ⋉, ▷, marks and ⟕, where q does not read B.

    With ⟗ only together with outer joins, where the other condition rejects an element without columns of A: it is
    unmatched in both orders.
    """
    match plan:
        case (OuterJoin() | SemiJoin() | MarkJoin()) as outer if isinstance(
            outer.left, OuterJoin | SemiJoin | MarkJoin
        ):
            inner = outer.left
            if columns_of(outer.predicate) & _added(inner) or column_ids(inner.right) & column_ids(outer.right):
                return None
            if not (_commutes(inner, outer, inner.left) and _commutes(outer, inner, inner.left)):
                return None
            return _in_order(plan, replace(inner, left=replace(outer, left=inner.left)))
    return None


def _commutes(one: Match, other: Match, left: Plan) -> bool:
    """True if elements that a full join adds, which have NULL for the left, pass the other operator unmatched."""
    if not (isinstance(one, OuterJoin) and one.full):
        return True
    return isinstance(other, OuterJoin) and rejects_nulls(other.predicate, left)


def push_match_below_set_operation(plan: Plan) -> Plan | None:
    """(S1 - S2) ⋉ R = (S1 ⋉ R) - S2, and the same for ∩ and ▷; (S1 ⊎ S2) ⋉ R = (S1 ⋉ R) ⊎ (S2 ⋉ R), and the same for
    ∪max: all duplicates of a payload have a match or none."""
    match plan:
        case SemiJoin(_, predicate, SetOperation() | Union() as both, right) if respects_equality(predicate):
            inputs = both.sources if isinstance(both, Union) else (both.left, both.right)
            if any(column_ids(source) & column_ids(right) for source in inputs):
                return None
            tested = [_test_side(plan, source, both) for source in inputs]
            if isinstance(both, Union):
                return replace(both, sources=tuple(tested))
            return replace(both, left=tested[0], right=tested[1] if both.kind == "union max" else both.right)
    return None


def _test_side(match_: SemiJoin, source: Plan, both: SetOperation | Union) -> Plan:
    """A side of a set operation under a semi join, with the column names of the side."""
    names = {column.id: value for column, value in rename(schema(source), both.columns)}
    condition = None if match_.predicate is None else substitute(match_.predicate, names)
    return SemiJoin(match_.anti, condition, source, match_.right)


def push_match_below_aggregate(plan: Plan) -> Plan | None:
    """γk(S) ⋉p R = γk(S ⋉p R) where p reads keys only, and the same for ▷: it takes whole groups."""
    match plan:
        case SemiJoin(_, _, Aggregate(_, _, source) as grouped, right) if _tests_groups(plan, grouped):
            if column_ids(source) & column_ids(right):
                return None
            return replace(grouped, source=replace(plan, left=source))
    return None


def pull_match_above_aggregate(plan: Plan) -> Plan | None:
    """γk(S ⋉p R) = γk(S) ⋉p R where p reads keys only, and the same for ▷: groups are tested instead of elements."""
    match plan:
        case Aggregate(_, _, SemiJoin() as inner) if _tests_groups(inner, plan) and _may_pass(inner, plan):
            return replace(inner, left=replace(plan, source=inner.left))
    return None


def _tests_groups(match_: SemiJoin, grouped: Aggregate) -> bool:
    """True if a semi join holds for whole groups. Without keys there is a group even over nothing."""
    read = columns_of(match_.predicate) - column_ids(match_.right)
    return bool(grouped.keys) and read <= set(grouped.keys) and respects_equality(match_.predicate)


def push_map_below_match(plan: Plan) -> Plan | None:
    """μf(L ⋉p R) = μf(L) ⋉p R, and the same for ▷, where f passes on the columns that p reads, perhaps under other
    names."""
    match plan:
        case Map(outputs, SemiJoin(_, condition, left) as inner):
            names = {e.id: ColumnRef(c.id, c.type) for c, e in outputs if isinstance(e, ColumnRef)}
            below = Map(outputs, left)
            if not columns_of(condition) & column_ids(left) <= names.keys() or not _may_pass(inner, below):
                return None
            tested = None if condition is None else substitute(condition, names)
            return replace(inner, predicate=tested, left=below)
    return None


def pull_map_above_match(plan: Plan) -> Plan | None:
    """μf(L) ⋉p R = μf(L ⋉(p∘f) R), and the same for ▷: computed for the elements that remain."""
    match plan:
        case SemiJoin(_, condition, Map(outputs, source), right) if not column_ids(source) & column_ids(right):
            values = {column.id: expression for column, expression in outputs}
            if condition is not None and not stays_small(condition, values):
                return None
            tested = None if condition is None else substitute(condition, values)
            return Map(outputs, replace(plan, predicate=tested, left=source))
    return None


def pull_distinct_above_match(plan: Plan) -> Plan | None:
    """δ(L) ⋉ R = δ(L ⋉ R), and the same for ▷ and marks: duplicates have the same matches."""
    match plan:
        case SemiJoin() | MarkJoin() if isinstance(plan.left, Distinct) and node_respects_equality(plan):
            return Distinct(replace(plan, left=plan.left.source))
    return None


def join_below_match_as_semi_join(plan: Plan) -> Iterator[Plan]:
    """L ⋉p (A ⋈q B) = L ⋉p (A ⋉q B) where p does not read B, and the same for ▷ and marks, and for A: the number of
    matches does not matter."""
    match plan:
        case SemiJoin() | MarkJoin():
            outputs, pairs = (
                (plan.right.outputs, plan.right.source) if isinstance(plan.right, Map) else (None, plan.right)
            )
            if not isinstance(pairs, Join):
                return
            read = columns_of(plan.predicate)
            if outputs is not None:
                read = frozenset().union(*(columns_of(expression) for _, expression in outputs))
            for kept, other in ((pairs.left, pairs.right), (pairs.right, pairs.left)):
                if not read & column_ids(other):
                    matched = SemiJoin(False, pairs.predicate, kept, other)
                    yield replace(plan, right=matched if outputs is None else Map(outputs, matched))


def _may_pass(inner: Match, other: Plan) -> bool:
    """True if an operator may move above another that has further columns: they have other names than its right side.
    A full join adds elements that the other operator would not see."""
    if isinstance(inner, OuterJoin) and inner.full:
        return False
    return not column_ids(inner.right) & column_ids(other)


def _added(match_: Match) -> frozenset[str]:
    """The columns that an operator adds to those of its left side."""
    return column_ids(match_) - column_ids(match_.left)


def _in_order(before: Plan, after: Plan) -> Plan:
    """A plan with its columns in the order that they had."""
    return after if schema(after) == schema(before) else Map(pass_on(schema(before)), after)

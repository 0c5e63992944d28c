"""Outer, semi and anti joins: pairs as the inner join has them, and a look at who is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import BOOLEAN, DOUBLE, INT, VARCHAR, Column, Schema
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, ColumnRef, Expression
from strandline.logical.values import compare
from strandline.planner.physical.plan import MatchKind, SideStructures
from strandline.runtime.operators.base import Operator
from strandline.runtime.operators.changes_outer_hash_join import ChangesOuterHashJoinOperator
from strandline.runtime.operators.outer_hash_join import OuterHashJoinOperator
from support import (
    Elements,
    Payload,
    Slicing,
    at,
    columns,
    drive,
    edges,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)

KINDS: tuple[MatchKind, ...] = get_args(MatchKind)
MARK = Column("mark", "mark", BOOLEAN)
LEFT, RIGHT = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r")


def matched(
    kind: MatchKind,
    left: Schema,
    right: Schema,
    lefts: Elements,
    rights: Elements,
    *,
    keys: int = 1,
    condition: Expression | None = None,
    slicing: Slicing = Slicing(),  # noqa: B008
) -> Elements:
    """The join on the first `keys` columns of both sides."""
    l_keys, r_keys = ([ColumnRef(c.id, c.type) for c in side[:keys]] for side in (left, right))
    mark, forms = MARK if kind == "mark" else None, slicing.input_forms
    structures: SideStructures = ("calendar", "fifo") if slicing.backwards else ("fifo", "calendar")

    def make() -> Operator:
        if "changes" in forms:
            return ChangesOuterHashJoinOperator(kind, l_keys, r_keys, condition, left, right, mark, forms, structures)
        return OuterHashJoinOperator(kind, l_keys, r_keys, condition, left, right, mark, slicing.form, structures)

    return drive(make, [(left, lefts), (right, rights)], slicing)


def expected(
    kind: MatchKind, lefts: Sequence[Payload], rights: Sequence[Payload], match: Callable[[Payload, Payload], bool]
) -> list[Payload]:
    """The relational join of two bags."""
    has = [any(match(one, two) for two in rights) for one in lefts]
    if kind == "mark":
        return [(*one, found) for one, found in zip(lefts, has, strict=True)]
    if kind in ("semi", "anti"):
        return [one for one, found in zip(lefts, has, strict=True) if found == (kind == "semi")]
    rows = [one + two for one in lefts for two in rights if match(one, two)]
    rows += [(*one, None, None) for one, found in zip(lefts, has, strict=True) if not found]
    if kind == "full":
        rows += [(None, None, *two) for two in rights if not any(match(one, two) for one in lefts)]
    return rows


def test_an_element_is_alone_before_between_and_after_its_partners() -> None:
    #   t     0  1  2  3  4  5  6  7  8  9
    #   a     [===========================)
    #   a'       [=====)     [==)              its partners
    #  a,–    [==)     [=====)  [=========)
    lefts, rights = line("a[0,9)"), line("a[1,3) a[5,6)")
    for cut in range(-1, 11):
        out = matched("anti", LEFT, RIGHT, lefts, rights, slicing=Slicing((cut,), "save"))
        same_snapshots(out, lambda t: at(line("a[0,1) a[3,5) a[6,9)"), t), range(-1, 11))
    assert show(matched("left", LEFT, RIGHT, lefts, rights)) == (
        "a,NULL[0,1) a,a[1,3) a,NULL[3,5) a,a[5,6) a,NULL[6,9)"
    )
    assert show(matched("semi", LEFT, RIGHT, lefts, rights)) == "a[1,3) a[5,6)"


def test_null_is_always_alone() -> None:
    assert show(matched("full", LEFT, RIGHT, line("NULL[0,2)"), line("NULL[1,3)"))) == "NULL,NULL[0,2) NULL,NULL[1,3)"
    assert show(matched("anti", LEFT, RIGHT, line("NULL[0,2)"), line("NULL[1,3)"))) == "NULL[0,2)"


def test_a_partner_that_comes_while_the_element_sleeps_is_not_forgotten() -> None:
    """The second partner comes in a slice in which the element has nothing to do, and holds longer than the first."""
    out = matched("anti", LEFT, RIGHT, line("a[0,20)"), line("a[1,9) a[5,12)"), slicing=Slicing((2, 4, 7, 8), "store"))
    same_snapshots(out, lambda t: at(line("a[0,1) a[12,20)"), t), range(-1, 22))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(data=st.data(), slicing=slicings(takes_changes=True))
def test_a_join_on_keys_is_the_snapshot_join(kind: MatchKind, data: st.DataObject, slicing: Slicing) -> None:
    left, right = columns(VARCHAR, INT, prefix="l"), columns(VARCHAR, INT, prefix="r")
    sides = intervals(payloads(VARCHAR, INT), endless=True)
    lefts, rights = data.draw(sides), data.draw(sides)
    out = matched(kind, left, right, lefts, rights, slicing=slicing)

    def match(one: Payload, two: Payload) -> bool:
        return one[0] is not None and two[0] is not None and one[0] == two[0]

    same_snapshots(out, lambda t: expected(kind, at(lefts, t), at(rights, t), match), edges(lefts, rights))


L, R = columns(INT, DOUBLE, prefix="l"), columns(INT, DOUBLE, prefix="r")
L0, L1, R0, R1 = (ColumnRef(c.id, c.type) for c in (*L, *R))
CONDITIONS: tuple[Expression, ...] = (
    Call("<", (L0, R0), BOOLEAN),
    Call("or", (Call("is_null", (L0,), BOOLEAN), Call("=", (L1, R1), BOOLEAN)), BOOLEAN),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", [0, 1])
@settings(max_examples=examples(30))
@given(data=st.data(), slicing=slicings(takes_changes=True))
def test_a_join_on_a_condition_is_the_snapshot_join(
    kind: MatchKind, keys: int, data: st.DataObject, slicing: Slicing
) -> None:
    sides = intervals(payloads(INT, DOUBLE), most=8)
    lefts, rights = data.draw(sides), data.draw(sides)
    condition = data.draw(st.sampled_from(CONDITIONS))
    out = matched(kind, L, R, lefts, rights, keys=keys, condition=condition, slicing=slicing)

    def match(one: Payload, two: Payload) -> bool:
        for mine, other in zip(one[:keys], two[:keys], strict=True):
            if mine is None or other is None or compare(mine, other) != 0:
                return False
        row = dict(zip((c.id for c in (*L, *R)), (*one, *two), strict=True))
        return evaluate(condition, row) is True

    same_snapshots(out, lambda t: expected(kind, at(lefts, t), at(rights, t), match), edges(lefts, rights))

"""Join: pairs that are valid together, agree on the keys and satisfy the condition."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER
from strandline.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, Schema, Type, decimal
from strandline.functions.evaluate import evaluate
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, Value
from strandline.logical.values import compare
from strandline.planner.compaction import StateStructure
from strandline.planner.physical.plan import SideStructures
from strandline.runtime.kernels.intervals import intersect
from strandline.runtime.operators import hash_join as join
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.changes_hash_join import ChangesHashJoinOperator
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.state import segments
from support import (
    MONEY,
    TEXT,
    Elements,
    Payload,
    Slicing,
    at,
    batch,
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


def joined(
    left: Schema,
    right: Schema,
    lefts: Elements,
    rights: Elements,
    *,
    keys: int,
    condition: Expression | None = None,
    slicing: Slicing = Slicing(),  # noqa: B008
    structures: SideStructures = ("fifo", "calendar"),
) -> Elements:
    """The join on the first `keys` columns of both sides."""
    l_keys, r_keys = ([ColumnRef(c.id, c.type) for c in side[:keys]] for side in (left, right))
    forms = slicing.input_forms

    def make() -> HashJoinOperator:
        if "changes" in forms:
            return ChangesHashJoinOperator(l_keys, r_keys, condition, left, right, forms, structures)
        return HashJoinOperator(l_keys, r_keys, condition, left, right, structures)

    return drive(make, [(left, lefts), (right, rights)], slicing)


def equal(one: Value, two: Value) -> bool:
    return one is not None and two is not None and compare(one, two) == 0


def pairs(lefts: Sequence[Payload], rights: Sequence[Payload], keys: int) -> list[Payload]:
    return [l + r for l in lefts for r in rights if all(equal(l[k], r[k]) for k in range(keys))]  # noqa: E741


LEFT, RIGHT = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r")


def test_a_pair_is_valid_while_both_are() -> None:
    #   t   0     3     6     9
    #   a   [===========)
    #   b         [===========)
    #  a,b        [=====)
    assert show(joined(LEFT, RIGHT, line("a[0,6)"), line("b[3,9)"), keys=0)) == "a,b[3,6)"


def test_a_side_whose_elements_end_by_the_watermark_only_probes() -> None:
    """A stream of instants, without a window: it meets what the other side keeps, and leaves nothing."""
    left_key, right_key = ([ColumnRef(side[0].id, VARCHAR)] for side in (LEFT, RIGHT))
    operator = HashJoinOperator(left_key, right_key, None, LEFT, RIGHT)
    slices: list[tuple[Elements, Elements, int]] = [
        (line("a[1,2) b[3,4)"), line("a[0,9) b[2,9)"), 5),
        (line("a[6,7)"), [], 8),
    ]
    sent = 0
    for lefts, rights, until in slices:
        sent += operator.step([batch(LEFT, lefts), batch(RIGHT, rights)], Watermark(until)).frame.height
    assert sent == 3
    assert [sum(segment.rows for segment in log.segments) for log in operator.sides] == [0, 2]


def test_touching_intervals_do_not_meet() -> None:
    assert joined(LEFT, RIGHT, line("a[0,5)"), line("a[5,9)"), keys=1) == []


def test_null_equals_nothing() -> None:
    assert show(joined(LEFT, RIGHT, line("NULL[0,5) a[0,5)"), line("NULL[0,5) a[1,5)"), keys=1)) == "a,a[1,5)"


def test_elements_that_never_end_meet_forever() -> None:
    out = joined(LEFT, RIGHT, line("a[0,∞)"), line("a[3,∞) a[7,9)"), keys=1, slicing=Slicing((1, 5), "save"))
    assert show(out) == "a,a[3,∞) a,a[7,9)"


def test_a_pair_appears_once_wherever_the_cut_is() -> None:
    for cut in range(-1, 12):
        out = joined(LEFT, RIGHT, line("a[0,6) a[2,4)"), line("a[1,9) a[2,3)"), keys=1, slicing=Slicing((cut,), "save"))
        assert sorted(show([e]) for e in out) == ["a,a[1,6)", "a,a[2,3)", "a,a[2,3)", "a,a[2,4)"], f"cut at {cut}"


def test_keys_with_the_same_value_and_another_form() -> None:
    left, right = columns(DOUBLE, prefix="l"), columns(DOUBLE, prefix="r")
    nan, other_nan = float("nan"), float("inf") - float("inf")
    lefts: Elements = [((-0.0,), 0, 5), ((nan,), 0, 5), ((1.0,), 0, 5)]
    rights: Elements = [((0.0,), 1, 5), ((other_nan,), 2, 5), ((2.0,), 0, 5)]
    assert show(joined(left, right, lefts, rights, keys=1)) == "-0.0,0.0[1,5) nan,nan[2,5)"


WIDE = decimal(38, 0)
KEYS: dict[str, tuple[Type, ...]] = {
    "int": (INT,),
    "bigint": (BIGINT,),
    "double": (DOUBLE,),
    "decimal": (MONEY,),
    "text": (VARCHAR,),
    "boolean": (BOOLEAN,),
    "date": (DATE,),
    "timestamp": (TIMESTAMP,),
    "two": (VARCHAR, DOUBLE),
    "three": (INT, MONEY, BOOLEAN),
}


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
@settings(max_examples=examples(15))
@given(data=st.data(), slicing=slicings(takes_changes=True))
def test_hash_join_is_the_snapshot_join(kinds: tuple[Type, ...], data: st.DataObject, slicing: Slicing) -> None:
    left, right = columns(*kinds, INT, prefix="l"), columns(*kinds, INT, prefix="r")
    sides = intervals(payloads(*kinds, INT), endless=True)
    lefts, rights = data.draw(sides), data.draw(sides)
    structures = data.draw(st.sampled_from(list(product(get_args(StateStructure), repeat=2))))
    out = joined(left, right, lefts, rights, keys=len(kinds), slicing=slicing, structures=structures)
    same_snapshots(out, lambda t: pairs(at(lefts, t), at(rights, t), len(kinds)), edges(lefts, rights))


L, R = columns(INT, DOUBLE, prefix="l"), columns(INT, DOUBLE, prefix="r")
L0, L1, R0, R1 = (ColumnRef(c.id, c.type) for c in (*L, *R))
CONDITIONS: tuple[Expression | None, ...] = (
    None,
    Call("<", (L0, R0), BOOLEAN),
    Call(">=", (L1, R1), BOOLEAN),
    Call("or", (Call("is_null", (L0,), BOOLEAN), Call("=", (L1, R1), BOOLEAN)), BOOLEAN),
    Literal(True, BOOLEAN),
    Literal(None, BOOLEAN),
)


@settings(max_examples=examples(100))
@given(
    intervals(payloads(INT, DOUBLE), most=8, endless=True),
    intervals(payloads(INT, DOUBLE), most=8),
    st.sampled_from(CONDITIONS),
    st.sampled_from((0, 1)),
    slicings(takes_changes=True),
    st.sampled_from((1, 3, 2_000_000)),
    st.booleans(),
)
@example([((1, 1.0), 0, 5)], [((1, 2.0), 0, 5), ((1, 0.5), 0, 5)], CONDITIONS[2], 1, Slicing(), 1, False)
def test_theta_join_is_the_snapshot_join(
    lefts: Elements,
    rights: Elements,
    condition: Expression | None,
    keys: int,
    slicing: Slicing,
    at_once: int,
    by_time: bool,
) -> None:
    """Any condition, with and without a key, probed by key or by key and time, however few pairs are looked at in one
    go."""

    def satisfied(row: Payload) -> bool:
        names = (c.id for c in (*L, *R))
        return condition is None or evaluate(condition, dict(zip(names, row, strict=True))) is True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "PAIRS_AT_ONCE", at_once)
        if by_time:
            patch.setattr(segments, "TRIAL_PAIRS", 1)
            patch.setattr(segments, "FEW_VALID", 0)
        out = joined(L, R, lefts, rights, keys=keys, condition=condition, slicing=slicing)
    same_snapshots(
        out, lambda t: [row for row in pairs(at(lefts, t), at(rights, t), keys) if satisfied(row)], edges(lefts, rights)
    )


def test_a_product_needs_no_columns() -> None:
    """COUNT(*) over a product reads no column of either side; the pairs are there all the same."""
    assert joined((), (), [((), 0, 5), ((), 1, 6)], [((), 2, 4)], keys=0) == [((), 2, 4), ((), 2, 4)]
    assert joined(TEXT, (), line("a[0,5) b[1,6)"), [((), 2, 4)], keys=0) == line("a[2,4) b[2,4)")


def test_decimals_of_all_sizes_as_keys() -> None:
    left, right = columns(WIDE, prefix="l"), columns(WIDE, prefix="r")
    numbers = [Decimal(n) for n in (0, 1, 2**64, 2**64 + 1, 10**38 - 1, -(2**64), -1)]
    lefts: Elements = [((n,), i, FOREVER) for i, n in enumerate(numbers)]
    rights: Elements = [((n,), 10, 11) for n in reversed(numbers)]
    out = joined(left, right, lefts, rights, keys=1)
    assert sorted(payload for payload, _, _ in out) == sorted((n, n) for n in numbers)


def test_a_running_value_meets_the_rows_of_its_time_only() -> None:
    """One key, values one after the other: work is per match, not per pair of the key."""
    count = 30_000
    values: Elements = [((1, float(n)), 2 * n, 2 * n + 2) for n in range(count)]
    rows: Elements = [((1, float(n)), 2 * n + 1, 2 * n + 2) for n in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        looked_at: list[int] = []
        patch.setattr(join, "intersect", lambda *times: looked_at.append(len(times[0])) or intersect(*times))
        out = joined(L, R, rows, values, keys=1)
    assert sum(looked_at) < 4 * count
    assert len(out) == count
    assert {(row[1], row[3]) for row, _, _ in out} == {(float(n), float(n)) for n in range(count)}

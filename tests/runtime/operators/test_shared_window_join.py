"""Shared window join: the pairs of each use are those of a join of its own two windows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings

from shared_joins import KEYS, LEFT, OUTPUTS, RIGHT, Join, in_order, joins, number, one, row_lists, uses
from strandline.core.temporal import FOREVER
from strandline.planner.physical.plan import WindowUse
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.operators.reorder import ReorderOperator
from strandline.runtime.operators.routed_pairs import RouteOperator
from strandline.runtime.operators.stateless import TimeWindowOperator
from strandline.runtime.state.segments import State
from support import Elements, Slicing, batch, drive, examples, slicings


class OneUse(Operator):
    """The shared join with the route of one use, as a plan has them."""

    def __init__(self, join: Join, use: WindowUse) -> None:
        self.parts: list[Operator] = [join.make(), RouteOperator(use, OUTPUTS)]
        if use.left[1] > 1 or use.right[1] > 1:
            self.parts.append(ReorderOperator())

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        for part in self.parts:
            inputs = [part.step(inputs, watermark)]
        return inputs[0]

    def save(self) -> State:
        join, *others = (part.save() for part in self.parts)
        for other in others:
            join.segments.update(other.segments)
        return join

    def restore(self, state: State) -> None:
        for part in self.parts:
            part.restore(state)


@given(joins, row_lists("l"), row_lists("r"), slicings())
@settings(max_examples=examples(150))
def test_each_use_has_its_own_pairs(join: Join, lefts: Elements, rights: Elements, slicing: Slicing) -> None:
    for use in join.uses:
        out = drive(partial(OneUse, join, use), [(LEFT, lefts), (RIGHT, rights)], slicing)
        assert in_order(out) == in_order(join.pairs(use, lefts, rights))


@given(joins, row_lists("l"), row_lists("r"), slicings())
@settings(max_examples=examples(60))
def test_each_use_sends_in_each_slice_what_a_join_of_its_own_sends(
    join: Join, lefts: Elements, rights: Elements, slicing: Slicing
) -> None:
    """Not only in the end: a batch has the same results whether a join is shared or not."""
    for use in join.uses:
        shared = OneUse(join, use)
        left_keys, right_keys = (side[: join.keys] for side in KEYS)
        alone = HashJoinOperator(left_keys, right_keys, join.condition, LEFT, RIGHT)
        windows = [TimeWindowOperator(*use.left), TimeWindowOperator(*use.right)]
        buffers = [ReorderOperator(), ReorderOperator()]
        before = -(10**6)
        for until in (*slicing.cuts, FOREVER):
            watermark = Watermark(until)
            slices = [
                batch(columns, [row for row in rows if before <= row[1] < until])
                for columns, rows in ((LEFT, lefts), (RIGHT, rights))
            ]
            mine = [
                batch(columns, [row for row in rows if before <= row[1] < until and number(row[0], 2) & join.bit(use)])
                for columns, rows in ((LEFT, lefts), (RIGHT, rights))
            ]
            inputs = [
                buffer.step([each.step([rows], watermark)], watermark)
                for buffer, each, rows in zip(buffers, windows, mine, strict=True)
            ]
            expected = alone.step(inputs, watermark).frame.drop("l.word", "r.word")
            found = shared.step(slices, watermark).frame
            assert sorted(map(str, found.rows())) == sorted(map(str, expected.rows()))
            before = until


def test_the_window_over_the_older_row_decides() -> None:
    #   t      0     3           9
    #   b      b
    #   a            a
    #   2, 9         [===========)  ends with the older one, or with its own window
    join = Join(uses((2, 9), (9, 2), (9, 9)))
    found = [join.pairs(use, one(3), one(0)) for use in join.uses]
    assert [[interval[1:] for interval in each] for each in found] == [[(3, 5)], [], [(3, 9)]]
    for use, expected in zip(join.uses, found, strict=True):
        assert drive(partial(OneUse, join, use), [(LEFT, one(3)), (RIGHT, one(0))]) == expected


def test_rows_are_kept_once_for_the_largest_window_of_each_side() -> None:
    join = Join(uses((2, 9), (5, 3), (5, 3), (1, 1)))
    operator = join.make()
    rows = [element for time in range(12) for element in one(time, str(time))]
    operator.step([batch(LEFT, rows), batch(RIGHT, rows)], Watermark(12))
    kept = {
        name: [row for segment in log.segments for row in segment.frame["l.v" if name == "left" else "r.v"]]
        for name, log in operator.logs.items()
    }
    assert {name: len(rows) for name, rows in kept.items()} == {"left": 4, "right": 8}


def test_a_state_serves_other_selections() -> None:
    """Words stay as they were; the classes that remain may need rows for another time."""
    two = WindowUse((9, 1, 0), (9, 1, 0), ("p", "")), WindowUse((2, 1, 0), (2, 1, 0), ("q", ""))
    first, then = (
        Join(two, has_words=True),
        Join((replace(two[0], left=(3, 1, 0), right=(3, 1, 0)), two[1]), has_words=True),
    )
    operator = first.make()
    operator.step([batch(LEFT, []), batch(RIGHT, one(4))], Watermark(5))
    other = then.make()
    other.restore(operator.save())
    assert other.step([batch(LEFT, one(8)), batch(RIGHT, [])], Watermark(9)).frame.height == 0


def test_a_state_serves_other_windows() -> None:
    """The windows of a shared join change when queries come and go; its rows do not."""
    wide, narrow = Join(uses((9, 9), (2, 2))), Join(uses((2, 2)))
    for before, after, expected in ((wide, narrow, 0), (narrow, wide, 1)):
        operator = before.make()
        operator.step([batch(LEFT, []), batch(RIGHT, one(4))], Watermark(5))
        other = after.make()
        other.restore(operator.save())
        out = other.step([batch(LEFT, one(8)), batch(RIGHT, [])], Watermark(9))
        assert out.frame.height == expected


def test_rows_are_kept_for_the_largest_window_that_selects_them() -> None:
    """Few rows in a large window and many in a small one are not all of them in the large one."""
    short, long = (
        WindowUse((range_us, 1, 0), (range_us, 1, 0), (name, "")) for name, range_us in (("p", 2), ("q", 50))
    )
    operator = Join((short, long), has_words=True).make()
    rows: Elements = [(("a", time, 3 if time % 10 == 0 else 1), time, time + 1) for time in range(40)]
    for until in range(5, 45, 5):
        slices = [batch(columns, [row for row in rows if until - 5 <= row[1] < until]) for columns in (LEFT, RIGHT)]
        operator.step(slices, Watermark(until))
    live = [
        row
        for segment in operator.sides[0].segments
        for row, until in zip(segment.frame["l.v"], segment.frame["@until"], strict=True)
        if until > 40
    ]
    assert sorted(live) == [0, 10, 20, 30, 39]
    assert sum(segment.rows for segment in operator.sides[0].segments) < 20


def test_pairs_without_a_common_selection_are_not_made() -> None:
    join = Join(
        (WindowUse((9, 1, 0), (9, 1, 0), ("p", "")), WindowUse((9, 1, 0), (9, 1, 0), ("q", ""))), has_words=True
    )
    left: Elements = [(("a", 0, 1), 0, 1)]
    right: Elements = [(("a", 0, 2), 1, 2), (("a", 1, 3), 1, 2)]
    out = join.make().step([batch(LEFT, left), batch(RIGHT, right)], Watermark(5))
    assert out.frame.get_column("r.v").to_list() == [1]


@pytest.mark.parametrize("step", [2, 3, 7])
def test_pairs_of_a_use_are_one_slice(step: int) -> None:
    """Windows over the left and the right in no order: still no pass over pairs of others, but one slice."""
    join = Join(uses((1, 12), (12, 1), (5, 5), (7, 3)))
    lefts = [element for time in range(0, 40, step) for element in one(time)]
    rights = [element for time in range(40) for element in one(time)]
    out = join.make().step([batch(LEFT, lefts), batch(RIGHT, rights)], Watermark(40))
    for use in join.uses:
        (within,) = out.routing.parts[use.left[0] or 0, use.right[0] or 0]
        assert within.stop - within.start == len(join.pairs(use, lefts, rights))

"""Shared window joins with a work budget: what is put off comes later, in order, and nothing is lost or made twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_joins import LEFT, OUTPUTS, RIGHT, Join, in_order, joins, one, row_lists, uses
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.planner.physical.plan import WindowUse
from strandline.planner.physical.window_uses import bounds
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.routed_pairs import RouteOperator
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.operators.waiting_work import time_span
from strandline.runtime.scheduling.budget import WorkBudget
from strandline.runtime.scheduling.policies import POLICIES
from strandline.runtime.state.segments import State
from strandline.runtime.state.store import StateStore
from support import Elements, batch, elements_of, examples

NOTHING: list[Elements] = [[], []]

policies = st.sampled_from(sorted(POLICIES))
budgets = st.builds(WorkBudget, st.sampled_from((None, 0, 0, 1, 200_000, 500_000)), policies)


@dataclass(frozen=True)
class Steps:
    """The slices up to instants, each with a budget; how many rows a chunk has, and which states go through a store."""

    cuts: tuple[tuple[Instant, WorkBudget], ...]
    chunk_rows: int
    stores: bool


steps = st.builds(
    Steps,
    st.lists(st.tuples(st.integers(-12, 32), budgets), max_size=9).map(
        lambda drawn: (*sorted(drawn, key=lambda cut: cut[0]), (FOREVER, WorkBudget(0)))
    ),
    st.integers(1, 4),
    st.booleans(),
)


class Run:
    """A shared join step by step, with the pairs of each use as they come."""

    def __init__(self, join: Join, chunk_rows: int, store: StateStore | None = None) -> None:
        self.join, self.chunk_rows, self.store = join, chunk_rows, store
        self.state, self.number = State(), 0
        self.operator = self._make()
        self.out: dict[WindowUse, Elements] = {use: [] for use in join.uses}
        self.reach = dict.fromkeys(join.uses, BEFORE_ALL)

    def _make(self) -> SharedWindowJoinOperator:
        operator = self.join.make()
        operator.chunk_rows = self.chunk_rows
        operator.restore(self.state)
        return operator

    def step(self, slices: Sequence[Elements], watermark: Instant, budget: WorkBudget) -> None:
        inputs = [batch(columns, rows) for columns, rows in zip((LEFT, RIGHT), slices, strict=True)]
        routed = self.operator.step(inputs, Watermark(watermark, budget=budget))
        spans = routed.routing.spans
        for use in self.out:
            pairs = elements_of(RouteOperator(use, OUTPUTS).step([routed], Watermark(watermark)).frame)
            begin, reach = (self.reach[use], watermark) if spans is None else spans[bounds(use)]
            assert begin in (self.reach[use], BEFORE_ALL), "a use goes on where it was"
            assert self.reach[use] <= reach <= watermark, "a reach never falls"
            # A window that slides may hold a pair later than its rows; it never does earlier.
            assert all(self.reach[use] <= start for _, start, _ in pairs), "nothing comes before what came"
            slides = use.left[1] > 1 or use.right[1] > 1
            assert slides or all(start < reach for _, start, _ in pairs), "nothing is beyond the reach"
            self.reach[use] = reach
            self.out[use] += pairs
        self.state = self.operator.save()
        if self.store is not None:
            stored = self.store.write(self.number, {"join": self.state})
            self.state = self.store.read(stored.manifest, stored.digest)["join"]
        self.number += 1
        self.operator = self._make()

    def check(self, lefts: Elements, rights: Elements) -> None:
        """What a use has is all that starts before its reach."""
        for use in self.out:
            expected = [pair for pair in self.join.pairs(use, lefts, rights) if pair[1] < self.reach[use]]
            found = [pair for pair in self.out[use] if pair[1] < self.reach[use]]
            assert in_order(found) == in_order(expected)


@given(joins, row_lists("l"), row_lists("r"), steps)
@settings(max_examples=examples(250))
def test_each_use_is_complete_up_to_its_reach(
    tmp_path_factory: pytest.TempPathFactory, join: Join, lefts: Elements, rights: Elements, plan: Steps
) -> None:
    store = StateStore(tmp_path_factory.mktemp("state"), 1, 0) if plan.stores else None
    run, before = Run(join, plan.chunk_rows, store), BEFORE_ALL
    for until, budget in plan.cuts:
        slices = [[row for row in side if before <= row[1] < until] for side in (lefts, rights)]
        run.step(slices, until, budget)
        run.check(lefts, rights)
        before = until
    for _ in range(2 * len(lefts + rights) * len(join.uses) + 1):
        if not run.operator.has_work:
            break
        run.step(NOTHING, FOREVER, plan.cuts[-1][1])
        run.check(lefts, rights)
    assert not run.operator.has_work, "each step does a task"
    assert not run.operator.found.segments, "nothing is left behind"
    for use in join.uses:
        assert in_order(run.out[use]) == in_order(join.pairs(use, lefts, rights))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_budget_of_any_size_gives_the_same_in_the_end(policy: str, tmp_path: Path) -> None:
    """Many rows in many segments, with merged ones among them; the work grows with the budget, the result does not."""
    join = Join(uses((3, 3), (20, 20), (150, 90)))
    lefts = [element for time in range(0, 400, 2) for element in one(time, "ab"[time % 4 // 2])]
    rights = [element for time in range(1, 400, 3) for element in one(time, "ab"[time % 2])]
    held = 0
    for units in (0, 300_000, 3_000_000, None):
        run = Run(join, 7, StateStore(tmp_path / str(units), 1, 0))
        for until in range(10, 420, 10):
            slices = [[row for row in side if until - 10 <= row[1] < until] for side in (lefts, rights)]
            run.step(slices, until, WorkBudget(units, policy))
            held = max(held, len(run.operator.waiting.segments))
        while run.operator.has_work:
            run.step(NOTHING, FOREVER, WorkBudget(3_000_000, policy))
        for use in join.uses:
            assert in_order(run.out[use]) == in_order(join.pairs(use, lefts, rights))
    assert held > 20, "something has waited"


def rows(begin: Instant, end: Instant) -> Elements:
    return [row for time in range(begin, end) for row in one(time)]


def test_policies_differ_in_what_is_complete_first() -> None:
    """Of the same work LWO lets the small window wait for the large one; SWF and Greedy do not."""
    first: dict[str, list[Instant]] = {}
    for policy in ("LWO", "SWF", "Greedy"):
        join = Join(uses((5, 5), (100, 100)))
        run = Run(join, 5)
        for until in range(10, 101, 10):
            run.step([rows(until - 10, until)] * 2, until, WorkBudget())
        run.step([rows(100, 200)] * 2, 200, WorkBudget(9_000_000, policy))
        first[policy] = list(run.reach.values())
    assert first["LWO"][0] == first["LWO"][1] < 200
    assert first["SWF"] == first["Greedy"]
    assert first["SWF"][0] > first["LWO"][0]
    assert first["SWF"][1] <= first["LWO"][1]


def test_rows_that_a_chunk_needs_are_kept() -> None:
    """By the watermark they would have left long ago."""
    join = Join(uses((4, 4), (2, 2)))
    run = Run(join, 1)
    run.step([[], one(0)], 1, WorkBudget(0))
    run.step([one(3), []], 4, WorkBudget(0))
    run.step([one(4), []], 50, WorkBudget(0, "Greedy"))
    while run.operator.has_work:
        run.step(NOTHING, 90, WorkBudget(0))
    assert run.out[join.uses[0]] == join.pairs(join.uses[0], one(3), one(0)) != []
    assert sum(segment.rows for segment in run.operator.sides[1].segments) <= 1


def test_uses_that_must_not_wait_are_complete_in_each_step() -> None:
    join = Join(uses((3, 3), (9, 9), (50, 50)))
    operator = join.make()
    operator.chunk_rows, operator.in_time = 2, frozenset([(9, 9)])
    crowd = rows(0, 40)
    out = operator.step([batch(LEFT, crowd), batch(RIGHT, crowd)], Watermark(40, budget=WorkBudget(0)))
    assert out.routing.spans is not None
    assert {use: span[1] for use, span in out.routing.spans.items()} == {(3, 3): 40, (9, 9): 40, (50, 50): 0}


def test_a_dropped_use_takes_its_work_with_it() -> None:
    """Chunks go on with the bands that are left, and pairs that no use needs any more are forgotten."""
    wide, narrow = (
        Join(uses((3, 3), (60, 60))),
        Join(
            uses(
                (3, 3),
            )
        ),
    )
    crowd = rows(0, 60)
    before = Run(wide, 4)
    before.step([crowd, crowd], 60, WorkBudget(0, "SWF"))
    after = Run(narrow, 4)
    after.state = before.state
    after.operator = after._make()
    after.reach[narrow.uses[0]] = before.reach[wide.uses[0]]
    while after.operator.has_work:
        after.step(NOTHING, 60, WorkBudget(1_000_000, "SWF"))
    both = before.out[wide.uses[0]] + after.out[narrow.uses[0]]
    assert in_order(both) == in_order(narrow.pairs(narrow.uses[0], crowd, crowd))
    assert not after.operator.found.segments


def test_segments_know_their_times() -> None:
    run = Run(Join(uses((9, 9))), 4)
    run.step([[*one(3), *one(1)], one(2)], 5, WorkBudget())
    assert [time_span(segment) for segment in run.operator.sides[0].segments] == [(1, 3)]

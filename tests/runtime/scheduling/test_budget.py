"""Budgets: what the driver decides on, and how it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.core.errors import StrandlineError
from strandline.runtime.offsets import PipelineOffset, SourceOffset
from strandline.runtime.scheduling.budget import UNLIMITED, GroupInput, WorkBudget, WorkReport
from strandline.runtime.scheduling.budget_planner import BatchTimes, BudgetPlanner

NANO = 1e-9


def run(planner: BudgetPlanner, rows: int, per_row: int, left: int, fixed: float, unit: float) -> tuple[int, float]:
    """A batch of a machine with its own speed; gives what is left, in units, and how long it took."""
    budget = planner.decide(rows, 1, has_work=left > 0)
    work = left + rows * per_row
    spent = work if budget.units is None else min(work, budget.units)
    seconds = fixed + spent * unit
    planner.observe(WorkReport(spent, work - spent), seconds)
    return work - spent, seconds


def test_without_a_target_nothing_waits() -> None:
    planner = BudgetPlanner()
    assert planner.decide(10**9, 2, has_work=True) == UNLIMITED


def test_without_a_shared_join_nothing_waits() -> None:
    assert BudgetPlanner(1.0).decide(10**9, 0, has_work=False) == UNLIMITED


@pytest.mark.parametrize("unit", [0.2 * NANO, 1.5 * NANO, 20 * NANO])
@pytest.mark.parametrize("fixed", [0.0, 0.3])
def test_batches_in_a_burst_take_as_long_as_they_should(unit: float, fixed: float) -> None:
    """However fast the machine is, and whatever else there is in a batch."""
    planner, left, target = BudgetPlanner(1.0), 0, 1.0
    calm = int(0.2 / unit / 1000)
    for number in range(20):
        left, seconds = run(planner, 1000 + number % 5 * 100, calm, left, fixed, unit)
    assert left == 0
    assert planner.decide(1000, 1, has_work=False) == UNLIMITED, "all of it fits"
    lasted = []
    for _ in range(12):
        left, seconds = run(planner, 20_000, calm, left, fixed, unit)
        lasted.append(seconds)
    assert left > 0
    assert all(0.7 * target < seconds < 1.3 * target for seconds in lasted[4:])
    for _ in range(200):
        left, _ = run(planner, 100, calm, left, fixed, unit)
    assert left == 0, "what was put off is done after the burst"
    assert planner.decide(1000, 1, has_work=False) == UNLIMITED


def test_joins_have_their_share_however_long_the_rest_takes() -> None:
    planner = BudgetPlanner(0.1)
    for units in (10**6, 10**7, 10**8) * 5:
        planner.observe(WorkReport(units), 3 + units * NANO)
    share = planner.decide(100, 1, has_work=True).units
    assert share is not None and share * planner.times.per_unit > 0.02


def test_batches_that_are_alike_tell_the_ratio() -> None:
    times = BatchTimes()
    for _ in range(10):
        times.add(1e6, 0.5)
    assert times.per_unit == pytest.approx(0.5e-6)
    assert times.fixed == pytest.approx(0)


def test_budgets_are_divided_among_joins_and_shards() -> None:
    one, four = (BudgetPlanner(1.0).decide(1000, parts, has_work=True).units for parts in (1, 4))
    assert one is not None and four is not None and four == one // 4


@pytest.mark.parametrize(
    "budget", [UNLIMITED, WorkBudget(17, "LWO"), WorkBudget(0), WorkBudget(9, fragments={"f3": 12})]
)
def test_a_budget_is_part_of_the_offset(budget: WorkBudget) -> None:
    offset = PipelineOffset(3, {"s": SourceOffset(7)}, budget=budget)
    data = offset.to_json()
    assert ("budget" in data) == (budget != UNLIMITED), "without one, offsets are as they were"
    assert PipelineOffset.from_json(data, Path("offsets/2")) == offset


def test_a_damaged_budget_is_found() -> None:
    data = PipelineOffset(3, {"s": SourceOffset(7)}, budget=WorkBudget(17)).to_json()
    data["budget"] = {"units": 18, "policy": "Greedy"}
    with pytest.raises(StrandlineError, match="damaged"):
        PipelineOffset.from_json(data, Path("offsets/2"))


@pytest.mark.parametrize(
    "data", [{"units": "1"}, {"units": 1, "policy": "x"}, {"unit": 1}, {"fragments": {"f3": "12"}}]
)
def test_no_budget(data: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        WorkBudget.from_json(data)


def test_a_report_is_that_of_all_shards() -> None:
    one, two = WorkReport(5, 2, {"q": 9, "r": 4}), WorkReport(6, 0, {"q": 7})
    assert one.merge(two) == WorkReport(11, 2, {"q": 7, "r": 4})


def test_what_waits_in_front_of_fragments_is_that_of_all_shards() -> None:
    one = WorkReport(left=3, fragments={"f1": GroupInput(5, 10, [(8, 1), (9, 2)]), "f2": GroupInput(7, 0, [])})
    two = WorkReport(left=4, fragments={"f1": GroupInput(5, 20, [(6, 4)])})
    both = {"f1": GroupInput(5, 30, [(6, 4), (8, 1), (9, 2)]), "f2": GroupInput(7, 0, [])}
    assert one.merge(two) == WorkReport(left=7, fragments=both)
    assert WorkReport.from_json(json.loads(json.dumps(one.to_json()))) == one

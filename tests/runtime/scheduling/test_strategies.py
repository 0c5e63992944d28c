"""Strategies of fragments: whose turn it is, what they cost, and what the driver decides on."""

from __future__ import annotations

import pytest

from strandline.core.types import INT
from strandline.logical.catalog import StreamStatistics
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.physical.running_groups import Chart, find_patient, groups_of
from strandline.planner.prices import built_in
from strandline.planner.progress_charts import chart_groups
from strandline.planner.stages import optimize
from strandline.runtime.scheduling.budget import GroupInput, WorkReport
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from strandline.runtime.scheduling.strategies import STRATEGIES, WaitingInput, take_turns
from support import Arrivals, arrange, bind

S: Arrivals = arrange("s", {"a": INT, "b": INT}, [(t, 0, (t % 3, t)) for t in range(9)], 0)
GROUPED = "SELECT a, COUNT(*) AS n FROM s WINDOW(RANGE 3 SECONDS) GROUP BY a"
TWO_STAGES = (
    "SELECT p.b, COUNT(*) AS n FROM s WINDOW(RANGE 9 SECONDS) p JOIN s WINDOW(RANGE 9 SECONDS) q ON p.a = q.a "
    "GROUP BY p.b"
)


def waiting(turn: int = 0) -> list[WaitingInput]:
    """Old input that is dear, and new input that is cheap, with more of it to come."""
    dear = WaitingInput("dear", Chart(100, 0.1), (0 - turn) % 2, 10, [(20, 5), (30, 5)], coming=5)
    cheap = WaitingInput("cheap", Chart(1, 9.0), (1 - turn) % 2, 15, [(25, 5), (35, 5)], coming=5)
    return [dear, cheap]


def reaches(groups: list[WaitingInput]) -> dict[str, int | None]:
    return {group.name: None if group.is_over else group.reach for group in groups}


@pytest.mark.parametrize(
    ("strategy", "units", "expected"),
    [
        ("fifo", 500, {"dear": 20, "cheap": 15}),
        ("fifo", 501, {"dear": 20, "cheap": 25}),
        ("fifo", 506, {"dear": 30, "cheap": 25}),
        ("round-robin", 1, {"dear": 20, "cheap": 15}),
        ("round-robin", 501, {"dear": 20, "cheap": 25}),
        ("round-robin", 1010, {"dear": 30, "cheap": 35}),
        ("chain", 1, {"dear": 10, "cheap": 25}),
        ("chain", 11, {"dear": 20, "cheap": 35}),  # what comes does not fit
        ("chain", 15, {"dear": 10, "cheap": None}),
        ("chain", 16, {"dear": 20, "cheap": None}),
        ("chain", 1510, {"dear": 30, "cheap": None}),
        ("chain", 1515, {"dear": None, "cheap": None}),
    ],
)
def test_whose_turn_it_is(strategy: str, units: int, expected: dict[str, int | None]) -> None:
    groups = waiting()
    spent = take_turns(strategy, groups, units)
    assert reaches(groups) == expected
    assert units - 500 <= spent < units + 500


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_does_something_however_small_its_budget(strategy: str) -> None:
    groups = waiting()
    assert take_turns(strategy, groups, 0) > 0
    assert sum(group.turns for group in groups) == 1


def test_what_comes_waits_where_it_does_not_fit() -> None:
    group = WaitingInput("a", Chart(100, 1.0), 0, 10, [], coming=5)
    assert take_turns("fifo", [group], 499) == 0
    assert reaches([group]) == {"a": 10}
    assert take_turns("fifo", [group], 500) == 500
    assert group.is_over


def test_with_round_robin_another_group_begins_in_each_batch() -> None:
    first = []
    for turn in range(4):
        groups = waiting(turn)
        take_turns("round-robin", groups, 0)
        first.append(next(group.name for group in groups if group.turns))
    assert first == ["dear", "cheap", "dear", "cheap"]


def pipeline(*texts: str) -> Pipeline:
    parts = [lower(f"q{n}", optimize(bind(text, [S])), [S.declared], 2) for n, text in enumerate(texts)]
    return combine(parts, [S.declared], [""] * len(parts))


def chart_of(charts: dict[str, Chart], made: Pipeline, query: str, stage: int) -> Chart:
    (chart,) = {charts[f.id] for f in made.at(stage) if query in f.queries and f.id in charts}
    return chart


def test_charts_of_fragments() -> None:
    """What costs less for a row has the steeper chart, and fan-out makes one flat."""
    made = pipeline(GROUPED, TWO_STAGES)
    fast = {"s": StreamStatistics(10_000.0)}
    charts = dict(chart_groups(made, fast, built_in()))
    grouped, joined = (chart_of(charts, made, query, 1) for query in ("q0", "q1"))
    assert joined.cost > 10 * grouped.cost, "a row meets thousands of others"
    assert grouped.slope > 10 * joined.slope
    last = chart_of(charts, made, "q1", 2)
    assert last.slope > joined.slope, "its rows leave the system"


def test_fragments_of_one_group_wait_together() -> None:
    made = pipeline(GROUPED, GROUPED.replace("COUNT(*) AS n", "COUNT(*) AS n, MAX(b) AS m"))
    for stage in range(1, made.stages + 1):
        for group in groups_of(made, stage):
            assert sum(fragment.id in find_patient(made) for fragment in group) <= 1


# ---- what the driver decides on --------------------------------------------------------------------------------------


def planner(strategy: str | None = "fifo") -> BudgetPlanner:
    return BudgetPlanner(1e-6, strategy=strategy, prices=built_in())


def report(made: Pipeline, *parts: tuple[int, int], taken: int = 100) -> WorkReport:
    groups = {name: GroupInput(10, taken, list(parts)) for name in find_patient(made)}
    return WorkReport(left=sum(rows for _, rows in parts), fragments=groups)


def test_without_a_strategy_fragments_put_off_nothing() -> None:
    made = pipeline(GROUPED)
    assert planner(None).decide_on(made, 100, has_work=False).fragments is None
    assert BudgetPlanner(None, strategy="fifo").decide_on(made, 100, has_work=False).fragments is None


def test_a_group_of_which_nothing_is_known_takes_all() -> None:
    made = pipeline(GROUPED)
    budgets = planner()
    assert budgets.decide_on(made, 100, has_work=False).fragments == {}
    budgets.observe(report(made, taken=100), 1.0)
    assert budgets.decide_on(made, 0, has_work=False).fragments == {}, "nothing comes"


def test_new_rows_wait_where_they_do_not_fit() -> None:
    made = pipeline(GROUPED, TWO_STAGES)
    budgets = planner("chain")
    budgets.decide_on(made, 100, has_work=False)
    budgets.observe(report(made, taken=100), 1.0)
    limits = budgets.decide_on(made, 100, has_work=True).fragments
    assert limits == dict.fromkeys(find_patient(made), 10), "up to where they were"


def test_what_waits_is_taken_in_order() -> None:
    made = pipeline(GROUPED)
    (group,) = find_patient(made)
    budgets = planner()
    budgets.decide_on(made, 100, has_work=False)
    budgets.observe(report(made, (20, 50), (30, 50), taken=0), 1.0)
    assert budgets.decide_on(made, 100, has_work=True).fragments == {group: 20}
    budgets.observe(report(made, (30, 50), taken=50), 1.0)
    assert budgets.decide_on(made, 100, has_work=True).fragments == {group: 30}


def test_another_graph_begins_when_nothing_waits() -> None:
    """Its groups may be made of parts that are not equally far."""
    one, two = pipeline(GROUPED), pipeline(GROUPED)
    budgets = planner()
    budgets.decide_on(one, 100, has_work=False)
    budgets.observe(report(one, (20, 50)), 1.0)
    assert budgets.decide_on(two, 100, has_work=True).fragments is None
    assert budgets.decide_on(two, 100, has_work=False).fragments == {}

"""The space of plans: every plan in it means the same, and the search in it finds cheaper ones and says how."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import fuzz_optimizer
from fuzz_optimizer import STEPWISE, ask, run
from rule_testing import made_by, some_streams
from strandline.core.types import INT, VARCHAR
from strandline.logical.catalog import StreamStatistics
from strandline.logical.plan import Aggregate, CountWindow, Distinct, Filter, Join, Plan, Scan, SemiJoin
from strandline.logical.tree import sources, walk
from strandline.planner.alternatives import Alternative, Cost, PlanCandidate, SearchResult, improve, separating_rule
from strandline.planner.cardinality import StatisticsByStream, estimate_profile
from strandline.planner.stages import optimize
from support import Arrivals, assert_exact, bind, examples, raw, run_plan

# ---- all plans mean the same -----------------------------------------------------------------------------------------


def test_plans_of_the_space_mean_the_same() -> None:
    tally = run(examples(300), 7_000, lambda _: None)
    assert tally.wrong == []
    assert tally.runs > 0 and tally.with_rows > 0
    assert len(tally.used) > 20, "many rules are used even by few pairs"


def filter_below_any_window(plan: Plan) -> Iterator[Plan]:
    """A wrong rule: it does not ask what kind of window it is."""
    match plan:
        case Filter(predicate, CountWindow() as window):
            yield CountWindow(window.partition, window.rows, window.slide, Filter(predicate, window.source))


def count_copies_once(plan: Plan) -> Iterator[Plan]:
    """A wrong rule: it takes every aggregate for one that copies do not change."""
    match plan:
        case Aggregate(keys, calls, source):
            yield Aggregate(keys, calls, Distinct(source))


@pytest.mark.parametrize("wrong", [filter_below_any_window, count_copies_once])
def test_a_wrong_rule_is_found(wrong: Alternative, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_optimizer, "STEPWISE", (*STEPWISE, wrong))
    tally = fuzz_optimizer.Tally()
    for seed in range(200):
        ask(seed, tally)
        if tally.wrong:
            break
    [report] = tally.wrong
    for part in (wrong.__name__, f"seed {seed}\n", "SELECT", "as written:", "rewritten:", "instant", f"--seed {seed}"):
        assert part in report


# ---- the search ------------------------------------------------------------------------------------------------------

COLUMNS = (("i", INT), ("b", INT), ("s", VARCHAR), ("ts", INT))
EMPTY = [Arrivals(f"s{n}", COLUMNS, ()) for n in range(8)]
WINDOW = "[RANGE 10 SECONDS]"
GROUPED = f"SELECT a.i, COUNT(*) AS n, MAX(a.b) AS m FROM s0 {WINDOW} a JOIN s1 {WINDOW} b ON a.i = b.i GROUP BY a.i"
FAST_AND_SLOW = {"s0": StreamStatistics(1000, {"i": 10.0}), "s1": StreamStatistics(10, {"i": 10.0})}


def traffic(known: StatisticsByStream) -> Cost:
    """A simple cost: what flows on the edges of a plan each second, and a little for each element that is kept."""

    def cost(plan: Plan) -> float:
        edges = [estimate_profile(source, known) for node in walk(plan) for source in sources(node)]
        return sum(flow.rate + 0.001 * flow.valid for flow in edges)

    return cost


def searched(text: str, known: StatisticsByStream, limit: int = 300) -> tuple[Plan, SearchResult]:
    plan = optimize(bind(text, EMPTY), known)
    return plan, improve(plan, traffic(known), limit)


def test_a_fast_stream_is_grouped_before_the_join() -> None:
    plan, found = searched(GROUPED, FAST_AND_SLOW)
    assert found.best.cost < traffic(FAST_AND_SLOW)(plan)
    assert "group_below_join" in found.best.rules
    [below] = [node for node in walk(found.plan) if isinstance(node, Aggregate) and not any(map(is_join, walk(node)))]
    assert {node.stream for node in walk(below) if isinstance(node, Scan)} == {"s0"}


def is_join(plan: Plan) -> bool:
    return isinstance(plan, Join)


def test_a_join_of_which_one_side_is_seen_once_becomes_a_test() -> None:
    _, found = searched(f"SELECT DISTINCT a.i FROM s0 {WINDOW} a JOIN s1 {WINDOW} b ON a.i = b.i", FAST_AND_SLOW)
    assert any(isinstance(node, SemiJoin) for node in walk(found.plan))
    assert not any(map(is_join, walk(found.plan)))


def test_the_rules_lead_to_the_plan() -> None:
    plan, found = searched(GROUPED, FAST_AND_SLOW)
    for candidate in (found.best, *found.rejected):
        assert candidate.plan in made_by(candidate.rules, plan)


def test_rejected_plans_are_the_next_best_and_say_what_separates_them() -> None:
    _, found = searched(GROUPED, FAST_AND_SLOW)
    costs = [found.best.cost, *(each.cost for each in found.rejected)]
    assert len(costs) > 3 and costs == sorted(costs)
    [as_written] = [each for each in found.rejected if not each.rules]
    assert separating_rule(found.best, as_written) == "group_below_join"


@pytest.mark.parametrize(
    ("chosen", "other", "rule"),
    [
        (("a", "b"), ("a", "c"), "c"),
        (("a", "b"), ("a",), "b"),
        ((), ("a", "b"), "a"),
        (("a",), ("a", "b"), "b"),
        (("a",), ("a",), "a"),  # the same rule at another place
    ],
)
def test_which_rule_separates_two_plans(chosen: tuple[str, ...], other: tuple[str, ...], rule: str) -> None:
    plan = bind("SELECT i FROM s0", EMPTY)
    assert separating_rule(PlanCandidate(plan, 1.0, chosen), PlanCandidate(plan, 2.0, other)) == rule


def test_the_search_is_the_same_every_time_and_ends() -> None:
    tables = ", ".join(f"s{n} {WINDOW} t{n}" for n in range(8))
    chain = " AND ".join(f"t{n}.i = t{n + 1}.i" for n in range(7))
    text = f"SELECT t0.b, COUNT(*) AS n FROM {tables} WHERE {chain} AND t3.b > 4 GROUP BY t0.b"
    one, two = (searched(text, {}, limit=120)[1] for _ in range(2))
    assert one == two
    costed: list[Plan] = []
    improve(optimize(bind(text, EMPTY)), lambda plan: costed.append(plan) or 1.0, 120)
    assert len(costed) <= 120


def test_the_text_stands_where_nothing_is_gained() -> None:
    plan = optimize(bind(GROUPED, EMPTY))
    assert improve(plan, lambda _: 1.0).best == PlanCandidate(plan, 1.0)
    assert improve(plan, lambda _: math.nan).plan == plan


@pytest.mark.parametrize("text", [
    "SELECT a.i, COUNT(*) AS n, MAX(a.b) AS m FROM s0 [RANGE 8 MICROSECONDS] a JOIN s1 [ROWS 3] b ON a.i = b.i "
    "GROUP BY a.i",
    "SELECT DISTINCT a.i FROM s0 [RANGE 8 MICROSECONDS] a JOIN s1 [RANGE 9 MICROSECONDS] b ON a.i = b.i",
    "SELECT i, COUNT(*) AS n FROM (SELECT i FROM s0 [ROWS 3] UNION ALL SELECT i FROM s1 [ROWS 4]) AS u GROUP BY i",
])  # fmt: skip
def test_the_engine_runs_what_the_search_finds(text: str) -> None:
    for seed in range(examples(5)):
        streams = some_streams(seed)
        plan = bind(text, streams)
        better = improve(optimize(plan), traffic(FAST_AND_SLOW)).plan
        assert_exact(plan, raw(streams), run_plan(better, streams, optimised=False))

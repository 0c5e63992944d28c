"""Where the constants of the cost model come from, and what the planner makes of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import strandline as sl
from strandline.apps.bench import calibrate as calibration
from strandline.apps.bench.calibrate import QUERIES, Setting, calibrate, show, write
from strandline.apps.bench.costs import judged, pipeline_of, report_costs, run_shape
from strandline.apps.bench.generated_streams import GeneratedStream, bound, statistics_of
from strandline.apps.bench.orders import QUERIES as JOIN_QUERIES
from strandline.apps.bench.orders import report_orders
from strandline.apps.bench.shapes import HELD_OUT_SHAPES, SHAPES, Shape
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.planner.estimate import estimate
from strandline.planner.joins.rates import JoinCosts, JoinInput, JoinLoad, JoinQuery
from strandline.planner.joins.search import best_plan, last_joins, trees
from strandline.planner.joins.shedding import shed
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.planner import AS_WRITTEN, PlanningInputs, plan_query
from strandline.planner.prices import COSTS_VARIABLE, Prices, built_in, load_prices

STREAMS = (
    GeneratedStream("a", 5_000, {"k": 1_000}),
    GeneratedStream("b", 500, {"k": 1_000, "m": 50_000}),
    GeneratedStream("c", 20, {"m": 50_000}),
)
THREE = (
    "SELECT a.v FROM a [RANGE 10 SECONDS] JOIN b [RANGE 10 SECONDS] ON a.k = b.k JOIN c [RANGE 60 SECONDS] ON b.m = c.m"
)


@pytest.fixture
def database() -> Database:
    db = sl.connect(engine="local")
    for made in STREAMS:
        db.catalog.add(made.stream)
    return db


def test_a_calibration_is_fitted_written_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: QUERIES[name] for name in ("join", "count", "pass")}
    monkeypatch.setattr(calibration, "QUERIES", few)
    told: list[str] = []
    found = calibrate(told.append, (Setting(300, 2, 0.5, False), Setting(2_000, 2, 0.5, True)))
    assert {"HashJoin", "IncrementalAggregate", "Exchange", "Result", "Batch", "Read"} <= set(found.seconds)
    assert len(told) == len(few) + 1
    assert "rows/s" in show(found)
    place = write(found, tmp_path / "deep" / "costs.json")
    monkeypatch.setenv(COSTS_VARIABLE, str(place))
    assert load_prices().seconds == found.seconds
    assert load_prices().origin == str(place)


def test_a_file_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "costs.json"
    monkeypatch.setenv(COSTS_VARIABLE, str(place))
    with pytest.raises(StrandlineError, match="does not exist") as missing:
        load_prices()
    assert missing.value.hint is not None and "calibrate" in missing.value.hint
    for text in ("{", "[]", json.dumps({"seconds": {"Filter": {"row": 1}}})):
        place.write_text(text)
        with pytest.raises(StrandlineError, match="not a calibration file"):
            load_prices()


def test_without_a_calibration_the_built_in_constants_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COSTS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_prices() is built_in()


def inputs_of(streams: Sequence[GeneratedStream], shards: int = 1, prices: Prices | None = None) -> PlanningInputs:
    return PlanningInputs([made.stream for made in streams], statistics_of(streams), prices or load_prices(), shards)


def test_explain_has_figures_and_says_what_is_assumed(database: Database) -> None:
    text = database.sql("EXPLAIN SELECT k, COUNT(*) AS n FROM a [RANGE 10 SECONDS] GROUP BY k")
    assert "rows/s  CPU ms/s" in text and "51,000 rows" in text
    assert "headroom: " in text and "assumed" not in text
    database.sql("CREATE STREAM unknown (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    text = database.sql("EXPLAIN SELECT x, COUNT(*) AS n FROM unknown [RANGE 10 SECONDS] GROUP BY x")
    wanted = (
        "assumed: unknown has 1,000 rows/s and 1,000 distinct values of x; declare it WITH (rate = …, distinct(x) = …)"
    )
    assert wanted in text
    assert "unbounded state" in database.sql("EXPLAIN SELECT DISTINCT x FROM unknown [RANGE UNBOUNDED]")


def test_explain_says_what_is_too_much() -> None:
    with sl.connect(engine="local") as db:
        db.catalog.add(GeneratedStream("fast", 100_000_000, {"k": 10}).stream)
        assert "overloaded: needs " in db.sql("EXPLAIN SELECT k, COUNT(*) AS n FROM fast [RANGE 1 SECOND] GROUP BY k")


def test_explain_why_names_the_plans_that_were_rejected(database: Database) -> None:
    text = database.sql(f"EXPLAIN WHY {THREE}")
    assert text.startswith("chosen: ")
    for words in ("joins (a ⋈ b) ⋈ c", AS_WRITTEN, "times"):
        assert words in text
    assert "(a ⋈ c) ⋈ b" not in text, "no equality connects a and c"
    assert "rejected" in database.sql("EXPLAIN WHY CREATE VIEW w AS SELECT k FROM a WHERE k > 3")


def test_the_chosen_plan_is_the_cheapest() -> None:
    chosen = plan_query("q", bound(THREE, STREAMS), inputs_of(STREAMS), compare=True)
    assert chosen.physical == plan_query("q", bound(THREE, STREAMS), inputs_of(STREAMS)).physical
    costs = [other.cost for other in chosen.rejected]
    assert costs == sorted(costs)
    assert all(cost >= 0.95 * chosen.cost for cost in costs)


def test_analyze_sets_the_estimate_beside_what_was_measured() -> None:
    with sl.connect(engine="local") as db:
        rows = ", ".join(f"('a', {n})" for n in range(0, 5_000_000, 100_000))
        db.sql(f"CREATE STREAM s (k VARCHAR, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts WITH (rate = 10)")
        query = db.sql("SELECT k, COUNT(*) AS n FROM s [RANGE 1 SECOND] GROUP BY k", name="counts")
        query.await_end()
        assert "est." in db.sql("EXPLAIN ANALYZE counts")


def test_last_joins_hold_the_cheapest_tree_of_each_division() -> None:
    draw = np.random.default_rng(2)
    inputs = tuple(JoinInput(str(n), float(draw.uniform(1, 100)), seconds=5.0) for n in range(4))
    pairs = {frozenset((i, k)): float(draw.uniform(0.001, 0.1)) for i in range(4) for k in range(i)}
    query = JoinQuery(inputs, pairs, JoinCosts(1.0, 0.5, 0.05))
    found = last_joins(query)
    every = [JoinLoad.of(query, tree).at(np.ones(4)) for tree in trees(4, "bushy")]
    assert len(found) == 7
    assert found[0][0] == pytest.approx(min(every))
    assert [cost for cost, _ in found] == pytest.approx([JoinLoad.of(query, t).at(np.ones(4)) for _, t in found])


def eight(kind: str) -> JoinQuery:
    draw = np.random.default_rng(5)

    def window(n: int) -> dict[str, float]:
        by_time = kind == "time" or (kind == "both" and n % 2 == 1)
        return {"seconds": float(draw.uniform(1, 60))} if by_time else {"rows": float(draw.integers(10, 1000))}

    inputs = tuple(JoinInput(str(n), float(draw.uniform(10, 2000)), **window(n)) for n in range(8))
    pairs = {frozenset((i, k)): float(draw.uniform(0.0005, 0.01)) for i in range(8) for k in range(i) if (i + k) % 3}
    return JoinQuery(inputs, pairs, JoinCosts(1.0, 0.5, 0.05), frozenset(pairs))


@pytest.mark.parametrize(("kind", "most"), [("time", 3.0), ("both", 8.0)])
def test_eight_streams_that_nobody_keeps_up_with_are_planned_soon(kind: str, most: float) -> None:
    query = eight(kind)
    began = time.process_time()
    found = best_plan(query, 1.0)
    assert time.process_time() - began < most  # a tenth of that on a machine that does nothing else
    assert not found.shedding.whole
    assert found.shedding.load <= 1.0 + 1e-6


def test_eight_streams_are_planned_soon() -> None:
    streams = [GeneratedStream(f"s{n}", 100 * (n + 1), {"k": 1_000}) for n in range(8)]
    joins = "".join(f" JOIN s{n} [RANGE 2 SECONDS] ON s{n - 1}.k = s{n}.k" for n in range(1, 8))
    plan = bound(f"SELECT s0.v FROM s0 [RANGE 2 SECONDS]{joins}", streams)
    inputs = inputs_of(streams, 2)
    began = time.process_time()
    plan_query("q", plan, inputs)
    assert time.process_time() - began < 3.0


def test_a_search_finds_what_no_order_of_joins_gives() -> None:
    shape = SHAPES["distinct and join, 5 s"]
    streams = [replace(made, rate=4 * made.rate) for made in shape.streams]  # a load that is worth a search
    plan = bound(shape.text("join first"), streams)
    chosen = plan_query("q", plan, inputs_of(streams), compare=True)
    assert "push distinct below join" in chosen.difference
    assert chosen.physical == plan_query("q", plan, inputs_of(streams)).physical
    textual = next(other for other in chosen.rejected if other.difference == AS_WRITTEN)
    assert chosen.cost < 0.9 * textual.cost


def test_a_quick_look_at_both_kinds_of_windows_stays_within_the_capacity() -> None:
    query = JoinQuery(
        (JoinInput("a", 100.0, rows=50.0), JoinInput("b", 40.0, seconds=3.0), JoinInput("c", 70.0, seconds=9.0)),
        {frozenset((0, 1)): 0.02, frozenset((1, 2)): 0.01},
        JoinCosts(1e-3, 5e-4),
    )
    tree = ((0, 1), 2)
    capacity = JoinLoad.of(query, tree).at(np.ones(3)) / 4
    quick, close = (shed(query, tree, capacity, quick=quick) for quick in (True, False))
    assert quick.load <= capacity * 1.001
    assert 0.5 * close.output <= quick.output <= close.output * 1.001


SMALL = Shape(
    (GeneratedStream("a", 2_000, {"k": 200, "g": 10}), GeneratedStream("b", 500, {"k": 200})), 2, 1,
    dict.fromkeys(("filter first", "join first"),
                  "SELECT * FROM (SELECT a.k, a.g, b.v AS w FROM a {w} JOIN b {w} ON a.k = b.k) x WHERE g = 3"),
    frozenset({"join first"}),
)  # fmt: skip


def test_a_shape_is_judged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.apps.bench.costs.LEAST_SECONDS", 0.01)
    verdict = judged("small", run_shape(SMALL, 1))
    assert verdict["chosen"] == "filter first"
    assert verdict["same_answers"]
    assert verdict["state_ratio"] == pytest.approx(1.0, abs=0.3)
    report_costs({"shapes": [verdict], "close": 0.15}, Console(width=120))
    assert "filter first *" in capsys.readouterr().out


@pytest.mark.parametrize("shape", [*SHAPES.values(), *HELD_OUT_SHAPES.values()], ids=[*SHAPES, *HELD_OUT_SHAPES])
def test_every_plan_of_a_shape_is_another(shape: Shape) -> None:
    pipelines = [pipeline_of(shape, label) for label in shape.plans]
    assert len({show_pipeline(each) for each in pipelines}) == len(pipelines) >= 2
    assert all(estimate(each, statistics_of(shape.streams), shape.batch).cost > 0 for each in pipelines)


@pytest.mark.parametrize("name", JOIN_QUERIES)
def test_the_text_of_a_query_is_not_the_best_order(name: str) -> None:
    query = JOIN_QUERIES[name]
    plan = bound(query.text.replace("{w}", f"{query.window:g}"), query.streams)
    chosen = plan_query("q", plan, inputs_of(query.streams), compare=True)
    textual = next(other for other in chosen.rejected if other.difference == AS_WRITTEN)
    assert chosen.cost < textual.cost


def test_orders_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    sides = {f"{side}_{what}": 2.0 for side in ("text", "chosen") for what in ("ms", "rows")}
    item = {"query": "bids", "window_s": 2, "ratio": 1.5, "same_answer": True, **sides}
    report_orders({"orders": [item]}, Console(width=120))
    assert "1.5" in capsys.readouterr().out

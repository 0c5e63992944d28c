"""The forms of streams by cost: intervals where much changes in a batch, changes where much stays open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.core.types import DOUBLE, INT, TIMESTAMP
from strandline.logical.catalog import StreamStatistics
from strandline.planner import stream_forms
from strandline.planner.estimate import BATCH_SECONDS, estimate, measured_batch
from strandline.planner.physical import plan as physical
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.forms import FormStrategy
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline, numbered
from strandline.planner.planner import PlannedQuery, PlanningInputs, plan_query
from strandline.planner.prices import built_in
from strandline.planner.stages import optimize
from support import Arrivals, bind

STREAMS = [Arrivals(name, (("k", INT), ("v", DOUBLE), ("ts", TIMESTAMP)), ()) for name in ("a", "b")]
AVERAGES = "(SELECT k, AVG(v) AS m FROM a WINDOW(RANGE 1 MINUTE) GROUP BY k)"
LOOK_UP = f"SELECT r.k, h.m FROM a r JOIN {AVERAGES} h ON r.k = h.k"


def planned(text: str, known: StreamStatistics, compare: bool = False) -> PlannedQuery:
    streams = [stream.declared for stream in STREAMS]
    statistics = {stream.name: known for stream in STREAMS}
    inputs = PlanningInputs(streams, statistics, built_in(), 1, changes=frozenset({"q"}))
    return plan_query("q", bind(text, STREAMS), inputs, compare=compare)


def forms(pipeline: Pipeline) -> list[str]:
    nodes = [node for fragment in pipeline.fragments for node in numbered(fragment.root)]
    return [node.form for node in nodes if isinstance(node, physical.IncrementalAggregate)]


BUSY = StreamStatistics(20_000.0, {"k": 10_000.0}, batch_seconds=1.0)  # a batch changes every group
QUIET = replace(BUSY, rate=1_000.0, batch_seconds=0.01)  # a batch changes a few of thousands of groups


def test_where_a_batch_changes_all_groups_they_come_as_intervals() -> None:
    query = planned(LOOK_UP, BUSY)
    assert query.difference == "intervals from IncrementalAggregate"
    assert (
        show_pipeline(query.physical)
        == """\
stage 0, at the sources
  f1 → exchange hash(r.k)
    Read a (r.k)  [MON]
  f2 → exchange hash(a.k)
    Project a.k, a.v  [MON]
      Read a (a.k, a.v)  [MON]
stage 1, in 1 shards
  f3 → result of q
    Project k := r.k, m := h.m  [MON]
      HashJoin on r.k = h.k  [MON, hash + calendar]
        Reorder  [MON, queue]
          Exchange from f1 (r.k)  [MON]
        Project h.k := a.k, h.m := avg_v  [STR]
          IncrementalAggregate by a.k: avg_v := avg(a.v)  [STR, held + queue]
            Reorder  [WKS, queue]
              TimeWindow range 1 MINUTE  [WKS]
                Exchange from f2 (a.k, a.v)  [MON]"""
    )


def test_where_a_batch_changes_few_groups_they_come_as_changes() -> None:
    query = planned(LOOK_UP, QUIET)
    assert query.difference == ""
    assert (
        show_pipeline(query.physical).splitlines()[-8:]
        == """\
      HashJoin on r.k = h.k  [MON, hash + signed + queue]
        Reorder  [MON, queue]
          Exchange from f1 (r.k)  [MON]
        Project h.k := a.k, h.m := avg_v  [STR±]
          IncrementalAggregate by a.k: avg_v := avg(a.v), as changes  [STR±, keyed + queue]
            Reorder  [WKS, queue]
              TimeWindow range 1 MINUTE  [WKS]
                Exchange from f2 (a.k, a.v)  [MON]""".splitlines()
    )


@pytest.mark.parametrize("known", [StreamStatistics(), replace(BUSY, batch_seconds=None)])
def test_where_batches_are_not_known_elements_that_stay_open_come_as_changes(known: StreamStatistics) -> None:
    assert forms(planned(LOOK_UP, known).physical) == ["changes"]


def test_a_plan_that_short_batches_would_make_slow_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch of a minute each of 300,000 groups changes several times; in one of 6 s, a third does."""
    many = StreamStatistics(20_000.0, {"k": 300_000.0}, batch_seconds=60.0)
    assert forms(planned(LOOK_UP, many).physical) == ["intervals"]
    monkeypatch.setattr(stream_forms, "MAX_REGRET", 0.5)
    assert forms(planned(LOOK_UP, many).physical) == ["changes"]


def test_the_choice_is_a_function_of_what_is_known() -> None:
    assert planned(LOOK_UP, BUSY).physical == planned(LOOK_UP, BUSY).physical


def test_explain_why_names_the_plan_of_the_rule() -> None:
    query = planned(LOOK_UP, BUSY, compare=True)
    assert query.rejected[0].difference == "changes wherever elements stay open"
    assert forms(query.rejected[0].physical) == ["changes"]
    assert query.rejected[0].cost > query.cost


def test_the_shortest_batch_of_the_streams_counts() -> None:
    pipeline = lower("q", optimize(bind("SELECT a.k FROM a, b", STREAMS)), [s.declared for s in STREAMS], 1)
    known = {"a": StreamStatistics(batch_seconds=3.0), "b": StreamStatistics(batch_seconds=2.0)}
    assert measured_batch(pipeline, known) == estimate(pipeline, known, prices=built_in()).batch_seconds == 2.0
    assert measured_batch(pipeline, {"a": StreamStatistics()}) is None
    assert estimate(pipeline, {}, prices=built_in()).batch_seconds == BATCH_SECONDS


def test_the_search_is_bounded() -> None:
    """Ten aggregates joined: 1,024 choices, of which a few are costed."""
    joins = " ".join(f"JOIN {AVERAGES} h{n} ON r.k = h{n}.k AND h{n}.m > {n}" for n in range(10))
    plan = optimize(bind(f"SELECT r.k FROM a r {joins}", STREAMS))
    made: list[FormStrategy] = []

    def assemble(strategy: FormStrategy) -> Pipeline:
        made.append(strategy)
        return lower("q", plan, [s.declared for s in STREAMS], 1, form="changes", strategy=strategy)

    best, by_rule = stream_forms.choose_forms(assemble, {"a": BUSY}, built_in())
    assert best.cost < by_rule.cost
    assert len(made) <= stream_forms.MAX_PLANS + 10

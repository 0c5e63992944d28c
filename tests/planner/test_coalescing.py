"""Where plans coalesce: by what it saves above, and never otherwise."""

from __future__ import annotations

import pytest

from strandline.core.types import DOUBLE, INT, TIMESTAMP
from strandline.logical.catalog import StreamStatistics
from strandline.planner.coalescing import coalesce_everywhere, place_coalescing
from strandline.planner.physical import plan as physical
from strandline.planner.physical.forms import ALL_INTERVALS, BY_RULE
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, numbered
from strandline.planner.prices import Prices, built_in
from strandline.planner.stages import optimize
from support import Arrivals, Cuts, arrange, assert_exact, bind, raw, run_plan

STREAMS = [Arrivals(name, (("k", INT), ("v", DOUBLE), ("ts", TIMESTAMP)), ()) for name in ("a", "b")]
# Example 12.1 of the thesis, query Q4: the highest bids of the last ten minutes.
HIGHEST = """SELECT k, v FROM a WINDOW(RANGE 10 MINUTES)
             WHERE v = (SELECT MAX(v) FROM a WINDOW(RANGE 10 MINUTES))"""
OFTEN = """SELECT x.k, b.v FROM (SELECT k FROM a WINDOW(RANGE 10 MINUTES) GROUP BY k HAVING COUNT(*) > 2) AS x
           JOIN b WINDOW(RANGE 10 MINUTES) ON x.k = b.k"""


def lowered(text: str, form: StreamForm = "intervals") -> Pipeline:
    """As intervals, all edges are: what is sent as changes is not cut, and need not be put together."""
    streams = [stream.declared for stream in STREAMS]
    strategy = ALL_INTERVALS if form == "intervals" else BY_RULE
    return lower("q", optimize(bind(text, STREAMS)), streams, 2, form=form, strategy=strategy)


def placed(text: str, rate: float, values: float = 100.0, prices: Prices | None = None) -> Pipeline:
    statistics = {stream.name: StreamStatistics(rate, {"k": values}) for stream in STREAMS}
    return place_coalescing(lowered(text), statistics, prices or built_in())


def nodes(pipeline: Pipeline) -> list[Node]:
    return [node for fragment in pipeline.fragments for node in numbered(fragment.root)]


def coalescing(pipeline: Pipeline) -> list[str]:
    aggregates = [n.tag for n in nodes(pipeline) if isinstance(n, physical.IncrementalAggregate) and n.coalesces]
    return aggregates + [node.tag for node in nodes(pipeline) if isinstance(node, physical.Coalesce)]


def test_the_maximum_below_a_join_is_coalesced() -> None:
    assert coalescing(placed(HIGHEST, 1000.0)) == ["IncrementalAggregate"]


@pytest.mark.parametrize("aggregate", ["COUNT(*)", "MAX(v) AS m, COUNT(*)", "SUM(v)", "AVG(v)"])
def test_an_aggregate_that_every_row_changes_is_not(aggregate: str) -> None:
    text = f"SELECT x.k FROM (SELECT k, {aggregate} AS n FROM a [RANGE 1 MINUTE] GROUP BY k) x JOIN b ON x.k = b.k"
    assert coalescing(placed(text.replace("x.k FROM", "x.k, x.n FROM", 1), 1000.0)) == []
    assert coalescing(coalesce_everywhere(lowered(text.replace("x.k FROM", "x.k, x.n FROM", 1)))) == []


def test_a_maximum_over_few_rows_that_nothing_reads_is_not() -> None:
    """A row per group at a time: every row changes its maximum."""
    text = "SELECT k, MAX(v) AS m FROM a WINDOW(RANGE 1 SECOND) GROUP BY k"
    assert coalescing(placed(text, 100.0, values=100_000.0)) == []


def test_values_that_only_a_filter_reads_are_coalesced_if_a_join_above_saves_more() -> None:
    assert coalescing(placed(OFTEN, 1000.0, values=10.0)) == ["Coalesce"]
    free = Prices({**built_in().seconds, "HashJoin": {}, "IncrementalAggregate": {}, "Exchange": {}, "Project": {}})
    nothing_above = f"SELECT COUNT(*) AS n FROM ({OFTEN}) AS y"  # the same number of results
    assert coalescing(placed(nothing_above, 1000.0, values=10.0)) == ["Coalesce"]
    assert coalescing(placed(nothing_above, 1000.0, values=10.0, prices=free)) == [], "nothing above costs anything"


@pytest.mark.parametrize(
    "read",
    [
        "SELECT m, n FROM ({0}) WINDOW(RANGE 8 MICROSECONDS) AS x",
        "SELECT m, n FROM ({0}) WINDOW(ROWS 3) AS x",
        "SELECT m, n FROM ({0}) WINDOW(SESSION 3 MICROSECONDS) AS x",
        "SELECT m, COUNT(*) OVER (ORDER BY ts) AS c FROM ({1}) AS x",
        "SELECT COUNT(*) AS c FROM ({0}) WINDOW(RANGE 8 MICROSECONDS) AS x JOIN a ON x.m = a.v",
    ],
)
def test_equal_rows_of_neighbouring_instants_are_two_for_a_window(read: str) -> None:
    """What windows and window functions read is never coalesced, however many fragments are between."""
    inner = ("SELECT k, MAX(v) AS m, MAX(k) AS n FROM a GROUP BY k", "SELECT ts, MAX(v) AS m FROM a GROUP BY k, ts")
    text = read.format(*inner)
    assert coalescing(coalesce_everywhere(lowered(text))) == []
    stream = arrange("a", {"k": INT, "v": DOUBLE}, [(t, 0, (1, 2.0)) for t in (70, 119, 120)], 0)
    plan = bind(text, [stream])
    assert_exact(plan, raw([stream]), run_plan(plan, [stream], Cuts(coalesces=True)))


def test_below_changes_that_a_window_reads_rows_are_coalesced() -> None:
    inner = "SELECT ISTREAM k, MAX(v) AS m FROM a WINDOW(RANGE 5 SECONDS) GROUP BY k"
    pipeline = coalesce_everywhere(lowered(f"SELECT m FROM ({inner}) WINDOW(RANGE 8 SECONDS) AS x"))
    assert coalescing(pipeline) == ["IncrementalAggregate"]


def test_the_highest_bids_are_about_as_many_elements_as_results() -> None:
    rows = [(t * 1000, 0, (t % 7, float(t * 7919 % 1009))) for t in range(600)]
    stream = arrange("a", {"k": INT, "v": DOUBLE}, rows, 0)
    text = HIGHEST.replace("10 MINUTES", "100 MILLISECONDS")
    sizes = ((200, 200),)
    sent = [len(run_plan(bind(text, [stream]), [stream], Cuts(sizes, coalesces=how)).elements) for how in (False, True)]
    assert sent[0] > 500
    assert sent[1] < 40

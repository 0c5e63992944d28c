"""The plan of a query that is added to a graph: what runs already costs nothing more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

import strandline as sl
from strandline.core.temporal import BEFORE_ALL
from strandline.core.types import INT
from strandline.database.database import Database
from strandline.logical.catalog import StreamStatistics
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Pipeline, numbered
from strandline.planner.physical.structure import SharedFragments
from strandline.planner.planner import PlannedQuery, PlanningInputs, plan, plan_to_share
from strandline.planner.prices import built_in
from strandline.planner.sharing import choose_beside, what_it_adds
from support import arrange, bind

STREAMS = [arrange(name, {"k": INT, "v": INT}, [], 0) for name in "abc"]
COUNTS = "SELECT k, count(*) AS n FROM a WINDOW(RANGE 60 SECONDS) GROUP BY k"
PER_KEY = "SELECT k, count(*) AS n FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k"
OF_ONE = f"SELECT k, n FROM ({COUNTS}) WHERE k = 3"
RATES = {stream.name: StreamStatistics(rate=100.0) for stream in STREAMS}


def inputs(known: bool = True) -> PlanningInputs:
    return PlanningInputs([stream.declared for stream in STREAMS], RATES if known else {}, built_in(), 2)


def plans_of(text: str, known: bool = True) -> tuple[PlannedQuery, ...]:
    return plan_to_share("added", bind(text, STREAMS), inputs(known))


def running(*texts: str) -> Pipeline:
    queries = {f"q{number}": bind(text, STREAMS) for number, text in enumerate(texts)}
    return plan(queries, inputs()).physical


def scope() -> str:
    return inputs().sharing_scope("added")


def operators(pipeline: Pipeline, kind: type) -> Sequence[physical.Node]:
    nodes = (node for fragment in pipeline.fragments for node in numbered(fragment.root))
    return [node for node in nodes if isinstance(node, kind)]


@pytest.mark.parametrize("known", [True, False])
def test_a_filter_stays_above_an_aggregate_that_runs(known: bool) -> None:
    plans = plans_of(OF_ONE, known)
    alone = choose_beside(plans, running("SELECT v FROM a"), scope(), BEFORE_ALL)
    assert alone is plans[0]
    beside = choose_beside(plans, running(COUNTS), scope(), BEFORE_ALL)
    assert beside is not alone
    shared = SharedFragments.of(running(COUNTS))
    adds, alone_adds = (what_it_adds(each, shared, scope(), BEFORE_ALL) for each in (beside, alone))
    assert adds.running > alone_adds.running and adds.cost < alone_adds.cost / 2
    together = SharedFragments.of(running(COUNTS))
    together.add(beside.physical, scope())
    pipeline = Pipeline((), tuple(together.fragments), (), 2)
    assert len({f.operators[-1] for f in pipeline.fragments if f.root in operators(pipeline, physical.Filter)}) <= 1
    assert len(set(operators(pipeline, physical.IncrementalAggregate))) == 1


def test_joins_begin_with_one_that_runs() -> None:
    joined = "SELECT b.v, c.v AS w FROM b WINDOW(RANGE 9 SECONDS), c WINDOW(RANGE 9 SECONDS) WHERE b.k = c.k"
    three = (
        "SELECT a.v AS u, b.v, c.v AS w FROM a WINDOW(RANGE 9 SECONDS), b WINDOW(RANGE 9 SECONDS),"
        " c WINDOW(RANGE 9 SECONDS) WHERE a.k = b.k AND b.k = c.k"
    )
    plans = plans_of(three)
    graph = SharedFragments.of(running(joined))
    chosen = choose_beside(plans, running(joined), scope(), BEFORE_ALL)
    added = [what_it_adds(each, graph, scope(), BEFORE_ALL) for each in plans]
    assert what_it_adds(chosen, graph, scope(), BEFORE_ALL).cost <= added[0].cost


def test_what_is_found_is_what_is_taken() -> None:
    """Finding says of each operator what adding does."""
    texts = (COUNTS, OF_ONE, "SELECT DISTINCT k FROM a WINDOW(RANGE 60 SECONDS)", "SELECT k, v FROM a WHERE v > 3")
    for graph in ((COUNTS,), texts):
        for text in texts:
            for each in plans_of(text):
                shared = SharedFragments.of(running(*graph))
                known = {operator for fragment in shared.fragments for operator in fragment.operators}
                sent = {fragment.id for fragment in shared.fragments}
                found = shared.find(each.physical, scope())
                renamed = tuple(
                    physical.Fragment(**{**{name: getattr(f, name) for name in f.__slots__}, "id": f"new {f.id}"})
                    for f in each.physical.fragments
                )
                shared.add(Pipeline(each.physical.streams, renamed, each.physical.queries, 2), scope())
                added = {f.id.removeprefix("new "): f for f in shared.fragments if f.id not in sent}
                for fragment, runs, is_sent in found:
                    assert is_sent == (fragment.id not in added)
                    if not is_sent:
                        assert tuple(operator in known for operator in added[fragment.id].operators) == runs


def test_a_query_that_is_added_takes_what_runs(db: Database) -> None:
    first = db.sql(PER_KEY, name="counts")
    give(db, ("a", 0), ("b", 5))
    wait_for(lambda: first.results().num_rows)
    of_a = f"SELECT n FROM ({PER_KEY}) WHERE k = 'a'"
    explained = str(db.sql(f"EXPLAIN {of_a}"))
    assert explained.split("beside what runs")[1].count("shared with counts") == 4
    assert "shared" not in str(db.sql(f"EXPLAIN WHY {of_a}"))
    second = db.sql(of_a, name="of_a")
    wait_for(lambda: not any(stream.follows for stream in second._pipeline.physical.streams))
    aggregates = operators(second._pipeline.physical, physical.IncrementalAggregate)
    assert second._pipeline is first._pipeline and len(set(aggregates)) == 1
    give(db, ("a", 7))
    db.end("s")
    assert first.await_end(20) and second.await_end(20)
    assert [row["n"] for row in second.results().to_pylist()] == [1, 2, 1]


def test_where_nothing_reads_a_stream_explain_shows_the_plan_alone(db: Database) -> None:
    assert "beside what runs" not in str(db.sql(f"EXPLAIN {PER_KEY}"))


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        yield database


def give(db: Database, *rows: tuple[str, int]) -> None:
    db.append("s", [(key, f"2024-01-01 00:00:{second:02d}") for key, second in rows])


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)

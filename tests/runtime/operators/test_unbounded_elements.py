"""Plans whose elements never end have shorter ways: what counts once is marked row by row, what comes simply comes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from strandline.core.types import DOUBLE, INT, VARCHAR
from strandline.logical.properties.temporal import never_expires
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from support import Arrivals, Cuts, arrange, arrivals, assert_exact, bind, cuts, examples, raw, run_plan

ONCE = "COUNT(DISTINCT x) AS a, COUNT(DISTINCT x) FILTER (WHERE i > 0) AS b, SUM(DISTINCT i) AS c, COUNT(*) AS d"
MORE = "MAX(DISTINCT x) AS e, SUM(i) AS f, COUNT(DISTINCT k) AS g, COUNT(k) AS h, ARRAY_AGG(DISTINCT i ORDER BY i) AS j"
EVER = "[RANGE UNBOUNDED]"
SLOW = "[RANGE UNBOUNDED SLIDE 4 MICROSECONDS]"

QUERIES = (
    f"SELECT k, {ONCE} FROM s {EVER} GROUP BY k",
    f"SELECT {ONCE} FROM s {SLOW}",
    f"SELECT k, {ONCE}, {MORE} FROM s {EVER} GROUP BY k",
    f"SELECT k, {ONCE} FROM s {EVER} GRANULARITY(3 MICROSECONDS) GROUP BY k",
    f"SELECT s.k, COUNT(DISTINCT r.x) AS n, SUM(DISTINCT s.i) AS m FROM s {EVER} JOIN r {EVER} USING (k) GROUP BY s.k",
    f"ISTREAM(SELECT k, i FROM s {EVER} WHERE i > 0)",
    f"ISTREAM(SELECT k, i FROM s {SLOW})",
    f"ISTREAM(SELECT s.k, r.x FROM s {EVER} JOIN r {SLOW} ON s.k = r.k)",
    f"ISTREAM(SELECT DISTINCT k FROM s {EVER})",
    f"ISTREAM(SELECT k FROM s {EVER} UNION ALL SELECT k FROM r {SLOW})",
    f"DSTREAM(SELECT k FROM s {EVER})",
    f"SELECT k, COUNT(DISTINCT i) AS n FROM (ISTREAM(SELECT k, i FROM s {SLOW})) t [RANGE 5 MICROSECONDS] GROUP BY k",
)
COLUMNS = {"k": VARCHAR, "i": INT, "x": DOUBLE}


@pytest.mark.parametrize("text", QUERIES)
@settings(max_examples=examples(15))
@given(s=arrivals("s", COLUMNS), r=arrivals("r", COLUMNS, most=5), cut=cuts(2))
def test_the_short_way_is_exact(text: str, s: Arrivals, r: Arrivals, cut: Cuts) -> None:
    streams = [s, r]
    plan = bind(text, streams)
    assert_exact(plan, raw(streams), run_plan(plan, streams, cut))


def physical(text: str) -> str:
    streams = [arrange(name, COLUMNS, [], 0) for name in ("s", "r")]
    return show_pipeline(lower("q", optimize(bind(text, streams)), [s.declared for s in streams], 2))


def test_the_short_way_is_taken_where_nothing_ends() -> None:
    assert "FirstOccurrence" in physical(QUERIES[0]) and "Distinct" not in physical(QUERIES[0])
    assert "InsertStream" in physical(QUERIES[7]) and "stage 2" not in physical(QUERIES[7])
    assert "stage 1" not in physical(QUERIES[5]), "the rows as they are read"


@pytest.mark.parametrize("window", ["[RANGE 5 MICROSECONDS]", "[ROWS 3]", ""])
def test_it_is_not_taken_where_something_may_end(window: str) -> None:
    stream = arrange("s", COLUMNS, [], 0)
    assert not never_expires(bind(f"SELECT k FROM s {window}", [stream]))
    assert "FirstOccurrence" not in physical(f"SELECT k, COUNT(DISTINCT x) AS n FROM s {window} GROUP BY k")
    assert "ChangeStream insert" in physical(f"ISTREAM(SELECT k FROM s {window})")

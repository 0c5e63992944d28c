"""An interval that `Query.results()` shows is one that a row has, where no operator cuts elements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.core.temporal import FOREVER, instant
from strandline.core.types import INT, Type
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import has_whole_elements
from strandline.planner.stages import optimize
from support import Arrivals, Cuts, arrange, arrange_intervals, arrivals, bind, cuts, examples, run_plan

COLUMNS: dict[str, Type] = {"k": INT, "v": INT}
SMALL = st.integers(0, 1) | st.none()
ROWS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 3), st.tuples(SMALL, SMALL), st.integers(1, 12) | st.none()),
    max_size=6,
)

WHOLE = [
    "SELECT k FROM w",
    "SELECT 1 AS one FROM w WHERE v > 0 OR k = 1",
    "SELECT k FROM s [RANGE 7 MICROSECONDS SLIDE 3 MICROSECONDS]",
    "SELECT k FROM w GRANULARITY(3 MICROSECONDS)",
    "SELECT k FROM w UNION ALL SELECT v FROM s [RANGE 4 MICROSECONDS]",
    "SELECT w.k FROM w JOIN s [RANGE 5 MICROSECONDS] ON w.k = s.k",
    "SELECT w.k FROM w JOIN s [RANGE UNBOUNDED] ON w.v < s.v",
]
IN_PIECES = [
    "SELECT k FROM s [ROWS 2]",
    "SELECT k FROM s [SESSION 4 MICROSECONDS]",
    "SELECT k, COUNT(*) AS n FROM w GROUP BY k",
    "SELECT w.k FROM w LEFT JOIN s [RANGE 3 MICROSECONDS] ON w.k = s.k",
    "SELECT k FROM w EXCEPT ALL SELECT k FROM s [RANGE 3 MICROSECONDS]",
    "SELECT v FROM w ORDER BY k LIMIT 2",
]


def is_whole(text: str) -> bool:
    streams = [arrange("s", COLUMNS, [], 0), arrange_intervals("w", COLUMNS, [], 0)]
    plan = optimize(bind(text, streams))
    return has_whole_elements(lower("q", plan, [stream.declared for stream in streams], 2), "q")


@pytest.mark.parametrize("text", WHOLE)
@given(rows=ROWS, s=arrivals("s", COLUMNS, most=6, high=15), cut=cuts(2))
@settings(max_examples=examples(20))
def test_elements_do_not_depend_on_batches(
    text: str, rows: list[tuple[int, int, tuple[object, ...], int | None]], s: Arrivals, cut: Cuts
) -> None:
    streams = [s, arrange_intervals("w", COLUMNS, rows, 3)]  # type: ignore[arg-type]
    plan = bind(text, streams)
    cut = replace(cut, forms=0)  # other forms may pair the start of one element with the end of an equal one
    assert Counter(run_plan(plan, streams, cut).elements) == Counter(run_plan(plan, streams).elements)


@pytest.mark.parametrize("text", WHOLE)
def test_these_are_whole(text: str) -> None:
    assert is_whole(text)


@pytest.mark.parametrize("text", IN_PIECES)
def test_these_may_come_in_pieces(text: str) -> None:
    assert not is_whole(text)


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
@pytest.mark.parametrize("keep", [None, 1000])
def test_results_show_the_intervals_of_rows(batch_rows: int, keep: int | None) -> None:
    #   t  0    5    10
    #   x  [=========)
    #   x    [==)
    #   x       [===)      begins where the one above ends
    #   x        [========>
    intervals = [(0, 10), (2, 5), (5, 9), (6, None)]
    listed = ", ".join(f"('x', {a}, {'NULL' if b is None else b})" for a, b in intervals)
    with sl.connect(engine="local", batch_rows=batch_rows, keep=keep) as database:
        database.sql(f"CREATE STREAM w (x VARCHAR, a BIGINT, b BIGINT) SOURCE rows({listed}) VALID FROM a UNTIL b")
        query = database.sql("SELECT x FROM w")
        assert query.await_end(60)
        rows = query.results().to_pylist()
    shown = [
        (instant(r["valid_from"]), FOREVER if r["valid_until"] is None else instant(r["valid_until"])) for r in rows
    ]
    assert shown == [(a, FOREVER if b is None else b) for a, b in intervals]

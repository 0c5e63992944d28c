"""Windows over granules of elements that may never end: a finite answer, exact also after the last row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import INT
from support import (
    Arrivals,
    Cuts,
    arrange,
    arrange_intervals,
    assert_exact,
    bind,
    cuts,
    examples,
    raw,
    run_plan,
)

INNER = (
    "SELECT i FROM s [ROWS 2] GRANULARITY(3 MICROSECONDS)",
    "SELECT i FROM s [RANGE UNBOUNDED] GRANULARITY(3 MICROSECONDS)",
    "SELECT i FROM stay GRANULARITY(3 MICROSECONDS)",
    "SELECT a.i FROM stay GRANULARITY(3 MICROSECONDS) a JOIN s [ROWS 3] GRANULARITY(3 MICROSECONDS) b ON a.i = b.i",
)
OUTER = ("[RANGE 3 MICROSECONDS]", "[RANGE 12 MICROSECONDS]", "[RANGE 6 MICROSECONDS SLIDE 9 MICROSECONDS]",
         "[RANGE 9 MICROSECONDS SLIDE 3 MICROSECONDS]", "[ROWS 3]", "[PARTITION BY i ROWS 2]")  # fmt: skip

row = st.tuples(st.integers(-5, 15), st.just(0), st.tuples(st.integers(0, 2)))
points = st.lists(row, max_size=5).map(lambda drawn: arrange("s", {"i": INT}, drawn, 0))
lengths = st.sampled_from((1, 2, 5, None))
stays = st.lists(st.tuples(row, lengths), max_size=4).map(
    lambda drawn: arrange_intervals("stay", {"i": INT}, [(*point, length) for point, length in drawn], 0)
)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
@settings(max_examples=examples(12))
@given(s=points, stay=stays, cut=cuts(2))
def test_a_window_over_granules_is_exact_for_ever(
    inner: str, outer: str, s: Arrivals, stay: Arrivals, cut: Cuts
) -> None:
    streams = [s, stay]
    plan = bind(f"SELECT i, COUNT(*) AS n FROM ({inner}) x {outer} GROUP BY i", streams)
    assert_exact(plan, raw(streams), run_plan(plan, streams, cut))

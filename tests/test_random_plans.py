"""Whole queries, written at random, against the executable meaning of the algebra.

Whatever the query, the streams, the batches, the buckets and the disorder: optimised or not, the answer at every
instant is the plain SQL answer over the window contents at that instant.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from random_streams import cut
from strandline.core.types import INT, TIMESTAMP, VARCHAR
from strandline.logical.expressions import Value
from strandline.logical.reference.interpreter import Element
from strategies import Question, question
from support import Arrivals, Cuts, assert_exact, bind, cuts, examples, moment, raw, run_plan, values

BLOCK = 25


def check(asked: Question, dice: Random) -> int:
    """Run a question twice, cut in two ways; returns how many elements it has for an answer."""
    plan = bind(asked.text, asked.streams)
    optimised = run_plan(plan, asked.streams, cut(dice, asked.streams))
    as_written = run_plan(plan, asked.streams, cut(dice, asked.streams), optimised=False)
    assert_exact(plan, raw(asked.streams), optimised, as_written)
    return len(optimised.elements)


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_every_query_means_its_snapshots(first: int) -> None:
    found = 0
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        try:
            found += check(asked, dice)
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert found > BLOCK // 2, "the queries have answers to compare"


@settings(max_examples=examples(20))
@given(st.randoms(use_true_random=False))
def test_every_small_query_means_its_snapshots(dice: Random) -> None:
    """The same with dice that make a failing example small."""
    asked = question(dice)
    note(asked.text)
    check(asked, dice)


# ---- rows that come too late -----------------------------------------------------------------------------------------

LATE_QUERIES = (
    "SELECT s, i FROM s0",
    "SELECT s, COUNT(*) AS n, SUM(i) AS total FROM s0 [RANGE 7 MICROSECONDS] GROUP BY s",
    "SELECT COUNT(*) AS n, MAX(ts) AS latest FROM s0 [RANGE 5 MICROSECONDS SLIDE 3 MICROSECONDS]",
    "SELECT a.i, b.ts FROM s0 [RANGE 6 MICROSECONDS] a, s0 [RANGE 2 MICROSECONDS] b WHERE a.s = b.s",
)


def punctual(stream: Arrivals) -> tuple[list[Element], list[Element]]:
    """The definition: a row is late if it is older than the latest row before it by more than the disorder."""
    accepted: list[Element] = []
    late: list[Element] = []
    for element in stream.elements:
        latest = max((e.time for e in accepted), default=None)
        is_late = latest is not None and element.time < latest - stream.disorder_us
        (late if is_late else accepted).append(element)
    return accepted, late


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.integers(0, 20), values(VARCHAR), values(INT)), max_size=12),
    st.integers(0, 8),
    st.sampled_from(LATE_QUERIES),
    cuts(1),
)
def test_which_rows_are_late_depends_on_their_order_alone(
    rows: list[tuple[int, Value, Value]], disorder: int, text: str, cut: Cuts
) -> None:
    elements = tuple(Element(t, {"s": s, "i": i, "ts": moment(t)}) for t, s, i in rows)
    stream = Arrivals("s0", (("s", VARCHAR), ("i", INT), ("ts", TIMESTAMP)), elements, disorder)
    accepted, late = punctual(stream)
    plan = bind(text, [stream])
    answer = run_plan(plan, [stream], cut)
    assert answer.late_count == {"s0": len(late)}
    # The rows themselves are kept aside, with every column that the query reads, in order of arrival.
    kept = answer.late.get("s0", [])
    assert len(kept) == len(late)
    assert all(
        element.values[name] == value for row, element in zip(kept, late, strict=True) for name, value in row.items()
    )
    assert_exact(plan, {"s0": accepted}, answer)

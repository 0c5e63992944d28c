"""Time window: an element is valid while the window holds it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.temporal import EARLIEST, LATEST, SECOND
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators.reorder import ReorderOperator
from strandline.runtime.operators.stateless import TimeWindowOperator
from support import (
    TEXT,
    Elements,
    Payload,
    Slicing,
    drive,
    edges,
    examples,
    line,
    same_snapshots,
    show,
    slicings,
)


def chronons(times: list[tuple[str, int]]) -> Elements:
    return [((x,), t, t + 1) for x, t in sorted(times, key=lambda pair: pair[1])]


def windowed(
    source: Elements,
    range_us: int | None,
    slide_us: int = 1,
    slicing: Slicing = Slicing(),  # noqa: B008
    offset_us: int = 0,
) -> Elements:
    """The window and the reorder buffer that a plan puts behind it."""
    moved = drive(lambda: TimeWindowOperator(range_us, slide_us, offset_us), [(TEXT, source)], sliced=False)
    moved.sort(key=lambda element: element[1])
    return drive(ReorderOperator, [(TEXT, moved)], slicing)


def test_a_now_window_changes_nothing() -> None:
    rows = line("b[1,2) a[3,4) c[4,5)")
    assert windowed(rows, 1) == rows


def test_a_slide_larger_than_the_range_misses_elements() -> None:
    #   the window moves at 9, 19, … and then looks 3 back: it sees 7, 8, 9 and 17, 18, 19
    assert show(windowed(line("a[5,6) b[7,8) c[9,10) d[10,11) e[19,20)"), 3, 10)) == "b[9,19) c[9,19) e[19,29)"


@pytest.mark.parametrize("time", [EARLIEST, -1, 0, LATEST - 1])
def test_times_far_from_the_epoch(time: int) -> None:
    source = chronons([("a", time)])
    ((_, start, end),) = windowed(source, 10 * SECOND, 3 * SECOND)
    around = (start - 1, start, end - 1, end)
    assert [len(held(source, 10 * SECOND, 3 * SECOND, t)) for t in around] == [0, 1, 1, 0]


def test_without_a_range_nothing_leaves() -> None:
    assert show(windowed(line("a[5,6) b[10,11)"), None)) == "a[5,∞) b[10,∞)"
    assert show(windowed(line("a[5,6) b[10,11)"), None, 10)) == "a[9,∞) b[19,∞)"


def test_an_offset_moves_the_instants_at_which_the_window_hops() -> None:
    #   slide=10 offset=3   t   2    12   22
    rows = line("a[2,3) b[3,4) c[12,13)")
    assert show(windowed(rows, 10, 10, offset_us=3)) == "a[2,12) b[12,22) c[12,22)"
    assert show(windowed(rows, None, 10, offset_us=3)) == "a[2,∞) b[12,∞) c[12,∞)"


def held(source: Elements, range_us: int | None, slide_us: int, t: int, offset_us: int = 0) -> list[Payload]:
    """The definition: T - range <= s < T with T = floor((t + 1 - offset) / slide) * slide + offset; without a range
    s < T."""
    last = (t + 1 - offset_us) // slide_us * slide_us + offset_us
    return [payload for payload, s, _ in source if s < last and (range_us is None or last - range_us <= s)]


@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 30)), max_size=10).map(chronons),
    st.integers(1, 25) | st.none(),
    st.integers(1, 25),
    slicings(),
    st.integers(0, 24),
)
@example(chronons([("a", -10), ("b", -1), ("a", 0)]), 7, 3, Slicing((-5, 0)), 2)  # the slide does not divide the range
@example(chronons([("a", 1)]), 1, 25, Slicing(), 0)  # never seen
def test_window_holds_what_the_definition_says(
    source: Elements, range_us: int | None, slide_us: int, slicing: Slicing, offset: int
) -> None:
    offset_us = offset % slide_us
    out = windowed(source, range_us, slide_us, slicing, offset_us)
    around = {s + d for _, s, _ in source for d in range(-2, (range_us or 25) + slide_us + 2)}
    same_snapshots(out, lambda t: held(source, range_us, slide_us, t, offset_us), {*edges(source), *around})


def test_a_slide_of_one_chronon_is_no_slide() -> None:
    source = chronons([("a", t) for t in (-3, 0, 4)])
    for t in range(-10, 20):
        assert bag(held(source, 5, 1, t)) == bag([p for p, s, _ in source if s <= t < s + 5])

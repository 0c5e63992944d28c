"""Reorder buffer: whatever order rows come in, ordered and complete slices leave."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.reorder import ReorderOperator
from support import TEXT, Elements, batch, elements_of, examples, line, show


def test_what_lies_beyond_the_progress_waits() -> None:
    #   arrives   c@7 a@2 b@5 | d@6        progress 5 | the end
    buffer = ReorderOperator()
    first = buffer.step([batch(TEXT, line("c[7,8) a[2,3) b[5,6)"))], Watermark(5))
    assert show(elements_of(first.frame)) == "a[2,3)"
    second = buffer.step([batch(TEXT, line("d[6,7)"))], Watermark(FOREVER))
    assert show(elements_of(second.frame)) == "b[5,6) d[6,7) c[7,8)"


def test_elements_that_start_together_keep_their_order_of_arrival() -> None:
    buffer, out = ReorderOperator(), []
    for name in "edcba":  # more runs than are kept apart: they are merged
        out += elements_of(buffer.step([batch(TEXT, line(f"{name}[3,4) {name}'[3,5)"))], Watermark(0)).frame)
    out += elements_of(buffer.step([batch(TEXT, [])], Watermark(FOREVER)).frame)
    assert "".join(str(x) for (x,), _, _ in out) == "ee'dd'cc'bb'aa'"


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=4), st.integers(0, 5)), max_size=12), st.booleans())
def test_slices_are_complete_and_ordered(steps: list[tuple[list[int], int]], restored: bool) -> None:
    """Each step brings rows at the progress plus some offsets, then moves the progress on."""
    buffer, progress = ReorderOperator(), 0
    arrived: Elements = []
    out: Elements = []
    for offsets, move in [*steps, ([], FOREVER)]:
        rows = [((str(len(arrived) + i),), progress + o, progress + o + 1) for i, o in enumerate(offsets)]
        arrived += rows
        until = FOREVER if move == FOREVER else progress + move
        slice = elements_of(buffer.step([batch(TEXT, rows)], Watermark(until)).frame)
        assert all(progress <= start < until for _, start, _ in slice)
        out += slice
        progress = until
        if restored:
            state, buffer = buffer.save(), ReorderOperator()
            buffer.restore(state)
    # A stable sort of everything by start is all that ever happens, however the input was cut.
    assert out == sorted(arrived, key=lambda element: element[1])

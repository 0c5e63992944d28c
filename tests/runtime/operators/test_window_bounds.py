"""Window bounds: the window that was finished last, at every instant."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import BIGINT, VARCHAR, Column
from strandline.runtime.operators.window_bounds import WindowBoundsOperator
from support import (
    TEXT,
    Elements,
    Slicing,
    at,
    drive,
    edges,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)

START, END = Column("ws", "window_start", BIGINT), Column("we", "window_end", BIGINT)


def test_an_element_is_cut_where_windows_end() -> None:
    #   range=8 slide=4   t   3   7   11  15
    #   a                     [=======)
    #   out                   -4,4 0,8
    out = drive(lambda: WindowBoundsOperator(8, 4, False, START, END), [(TEXT, line("a[3,11) b[8,10)"))])
    assert show(out) == "a,-4,4[3,7) a,0,8[7,11) b,0,8[8,10)"


def test_cumulative_windows_begin_together() -> None:
    #   range=6 slide=2   t   1   3   5   7   9
    out = drive(lambda: WindowBoundsOperator(6, 2, True, START, END), [(TEXT, line("a[1,9)"))])
    assert show(out) == "a,0,2[1,3) a,0,4[3,5) a,0,6[5,7) a,6,8[7,9)"


def test_an_offset_moves_all_windows() -> None:
    #   range=6 slide=2 offset=1   t   2   4   6   8
    hops = drive(lambda: WindowBoundsOperator(6, 2, False, START, END, 1), [(TEXT, line("a[2,6)"))])
    assert show(hops) == "a,-3,3[2,4) a,-1,5[4,6)"
    grown = drive(lambda: WindowBoundsOperator(6, 2, True, START, END, 3), [(TEXT, line("a[2,8)"))])
    assert show(grown) == "a,-3,3[2,4) a,3,5[4,6) a,3,7[6,8)"


@settings(max_examples=examples(60))
@given(
    intervals(payloads(VARCHAR)).map(lambda found: [e for e in found if e[2] < 2**62]),
    st.integers(1, 6),
    st.integers(1, 4),
    st.booleans(),
    slicings(),
    st.integers(0, 23),
)
def test_bounds_follow_the_instants(
    source: Elements, slide: int, times: int, cumulative: bool, slicing: Slicing, moved: int
) -> None:
    length = slide * times
    offset = moved % (length if cumulative else slide)
    out = drive(lambda: WindowBoundsOperator(length, slide, cumulative, START, END, offset), [(TEXT, source)], slicing)
    hops = range(-40, 80, slide)

    def expected(t: int) -> list[tuple[object, ...]]:
        end = (t + 1 - offset) // slide * slide + offset
        start = (end - 1 - offset) // length * length + offset if cumulative else end - length
        return [(*payload, start, end) for payload in at(source, t)]

    same_snapshots(out, expected, [*edges(source), *(hop // slide * slide + offset % slide - 1 for hop in hops)])  # type: ignore[arg-type]

"""Split: more cuts, the same snapshots."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import VARCHAR
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.split import SplitOperator
from support import (
    TEXT,
    Elements,
    Slicing,
    at,
    batch,
    drive,
    edges,
    elements_of,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)


def test_an_element_is_cut_into_pieces() -> None:
    #   length=3   t  0  3  6 8
    #   a             [=======)
    #   out           [==)[==)[)
    assert show(drive(lambda: SplitOperator(3), [(TEXT, line("a[0,8)"))])) == "a[0,3) a[3,6) a[6,8)"


def test_what_never_ends_is_cut_up_to_the_progress() -> None:
    for start in (0, -7):  # the length of [-7, ∞) does not fit into 64 bits
        split, out = SplitOperator(4), []
        out += elements_of(split.step([batch(TEXT, [(("a",), start, 2**63 - 1)])], Watermark(start + 5)).frame)
        out += elements_of(split.step([batch(TEXT, [])], Watermark(start + 9)).frame)
        assert out == [(("a",), start + n, start + n + 4) for n in (0, 4, 8)]


def test_at_the_end_what_never_ends_has_as_many_pieces_as_a_window_holds() -> None:
    #   length=4, two of them   t  0   4   8
    #   a                          [========…
    #   out                        [========…
    #                                  [====…
    assert show(drive(lambda: SplitOperator(4, 2), [(TEXT, line("a[0,∞)"))])) == "a[0,∞) a[4,∞)"
    late = drive(lambda: SplitOperator(4, 2), [(TEXT, line("a[0,∞)"))], Slicing((6,)))
    assert show(late) == "a[0,4) a[4,8) a[8,∞) a[12,∞)"


@settings(max_examples=examples(50))
@given(intervals(payloads(VARCHAR)), st.integers(1, 9), slicings())
def test_split_keeps_the_snapshots(source: Elements, length: int, slicing: Slicing) -> None:
    out = drive(lambda: SplitOperator(length), [(TEXT, source)], slicing)
    assert all(end - start <= length for _, start, end in out)
    same_snapshots(out, lambda t: at(source, t), edges(source))

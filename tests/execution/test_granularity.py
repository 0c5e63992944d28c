"""Granularity: a stream as it is at the beginning of each granule."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import VARCHAR
from strandline.runtime.operators.stateless import AlignTimeOperator
from support import (
    TEXT,
    Elements,
    Slicing,
    at,
    columns,
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


def test_both_ends_move_to_the_next_border() -> None:
    source = line("a[1,5) b[2,4) c[4,8) d[5,∞)")
    assert show(drive(lambda: AlignTimeOperator(4), [(TEXT, source)], Slicing())) == "a[4,8) c[4,8) d[8,∞)"


@settings(max_examples=examples(60))
@given(intervals(payloads(VARCHAR), endless=True), st.integers(1, 7), slicings())
def test_a_granule_is_as_it_begins(source: Elements, granule: int, slicing: Slicing) -> None:
    schema = columns(VARCHAR)
    out = drive(lambda: AlignTimeOperator(granule), [(schema, source)], slicing, sliced=False)
    instants = {t + d for t in edges(source) for d in (0, granule - 1, granule)}
    same_snapshots(out, lambda t: at(source, t // granule * granule), sorted(instants))

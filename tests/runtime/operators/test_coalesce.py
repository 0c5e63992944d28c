"""Coalesce: the same snapshots, with elements that are cut sent once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from strandline.core.types import DOUBLE, INT
from strandline.runtime.operators.coalesce import CoalesceOperator
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


def coalesced(text: str, *cuts: int) -> str:
    return show(drive(lambda: CoalesceOperator(TEXT), [(TEXT, line(text))], Slicing(cuts, "store")))


def test_what_goes_on_at_the_watermark_is_one_element() -> None:
    assert coalesced("a[0,4) a[4,9) a[9,12) b[4,6)", 4, 9) == "a[0,12) b[4,6)"
    assert coalesced("a[0,4) b[4,9) a[9,12)", 4, 9) == "a[0,4) b[4,9) a[9,12)"


def test_equal_elements_go_on_one_by_one() -> None:
    assert coalesced("a[0,4) a[2,4) a[4,8)", 4) == "a[0,4) a[2,8)"


def test_what_goes_on_beyond_the_watermark_has_its_end_at_once() -> None:
    assert coalesced("a[0,4) a[4,20)", 4, 6, 8) == "a[0,20)"
    assert coalesced("a[0,4) a[4,∞)", 4, 6) == "a[0,∞)"


@settings(max_examples=examples(120))
@given(intervals(payloads(INT, DOUBLE), endless=True), slicings())
def test_snapshots_stay_the_same(source: Elements, slicing: Slicing) -> None:
    schema = columns(INT, DOUBLE)
    cut: Elements = []  # as an operator emits what it does not know the end of
    for payload, start, end in source:
        borders = [start, *(c for c in slicing.cuts if start < c < end), end]
        cut += [(payload, one, two) for one, two in pairwise(borders) if one < two]
    out = drive(lambda: CoalesceOperator(schema), [(schema, sorted(cut, key=lambda element: element[1]))], slicing)
    same_snapshots(out, lambda t: at(source, t), edges(source))
    assert len(out) <= len(source), "the cuts are gone"

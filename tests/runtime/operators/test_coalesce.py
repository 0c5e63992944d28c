"""Coalesce: the same snapshots, with elements that are cut sent once."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from hypothesis import given, settings

from strandline.core.types import DOUBLE, INT
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.coalesce import CoalesceOperator
from support import (
    TEXT,
    Elements,
    Slicing,
    at,
    batch,
    columns,
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


def coalesced(text: str, *cuts: int, longest: int | None = None) -> str:
    form: StreamForm = "changes" if longest is None else "intervals"
    made = partial(CoalesceOperator, TEXT, form, longest)
    return show(drive(made, [(TEXT, line(text))], Slicing(cuts, "store"), sliced=longest is None))


def test_what_goes_on_at_the_watermark_is_one_element() -> None:
    assert coalesced("a[0,4) a[4,9) a[9,12) b[4,6)", 4, 9) == "a[0,12) b[4,6)"
    assert coalesced("a[0,4) b[4,9) a[9,12)", 4, 9) == "a[0,4) b[4,9) a[9,12)"


def test_equal_elements_go_on_one_by_one() -> None:
    assert coalesced("a[0,4) a[2,4) a[4,8)", 4) == "a[0,4) a[2,8)"


def test_what_goes_on_beyond_the_watermark_has_its_end_at_once() -> None:
    assert coalesced("a[0,4) a[4,20)", 4, 6, 8) == "a[0,20)"
    assert coalesced("a[0,4) a[4,∞)", 4, 6) == "a[0,∞)"


def test_an_element_that_is_long_enough_goes_on_no_more() -> None:
    """Algorithm 17: one that is at least l_max long is sent before the next one is looked at."""
    text = "a[0,4) a[4,9) a[9,12) a[12,13) b[4,6)"
    assert coalesced(text, 4, 9, longest=6) == "a[0,9) b[4,6) a[9,13)"
    assert coalesced(text, 4, 9, longest=20) == "a[0,13) b[4,6)"
    assert coalesced(text, 4, 9, longest=1) == "a[0,4) a[4,9) b[4,6) a[9,12) a[12,13)"


def test_what_reaches_the_watermark_waits_until_it_is_long_enough() -> None:
    operator = CoalesceOperator(TEXT, "intervals", 8)
    sent = []
    for until in (3, 6, 9, 12):
        sent.append(
            show(elements_of(operator.step([batch(TEXT, [(("a",), until - 3, until)])], Watermark(until)).frame))
        )
    assert sent == ["", "", "a[0,9)", ""]


@settings(max_examples=examples(120))
@given(intervals(payloads(INT, DOUBLE), endless=True), slicings())
def test_snapshots_stay_the_same(source: Elements, slicing: Slicing) -> None:
    schema = columns(INT, DOUBLE)
    cut: Elements = []  # as an operator emits what it does not know the end of
    for payload, start, end in source:
        borders = [start, *(c for c in slicing.cuts if start < c < end), end]
        cut += [(payload, one, two) for one, two in pairwise(borders) if one < two]
    cut.sort(key=lambda element: element[1])
    ways: list[tuple[StreamForm, int | None]] = [("changes", None), ("intervals", None), ("intervals", 7)]
    for form, longest in (*ways, ("intervals", 10**6)):
        made = partial(CoalesceOperator, schema, form, longest)
        out = drive(made, [(schema, cut)], slicing, sliced=longest is None)
        same_snapshots(out, lambda t: at(source, t), edges(source))
        assert len(out) <= (len(source) if form == "changes" else len(cut)), "the cuts are gone"

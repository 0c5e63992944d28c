"""The streams of changes: what comes and what goes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from strandline.core.temporal import OPEN, Instant
from strandline.core.types import DOUBLE, VARCHAR
from strandline.logical.plan import ChangeKind
from strandline.logical.reference.interpreter import bag
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.change_stream import ChangeStreamOperator
from support import (
    TEXT,
    Elements,
    Payload,
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


def changes(kind: ChangeKind, text: str, slicing: Slicing = Slicing()) -> str:  # noqa: B008
    return show(drive(lambda: ChangeStreamOperator(kind, TEXT), [(TEXT, line(text))], slicing))


def test_an_element_comes_when_it_begins_and_goes_when_it_ends() -> None:
    assert changes("insert", "a[0,6) b[3,∞)") == "a[0,1) b[3,4)"
    assert changes("delete", "a[0,6) b[3,∞)") == "a[6,7)"


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_piece_that_follows_on_an_equal_one_is_no_change(cut: int) -> None:
    pieces = "a[0,3) a[3,6) b[2,5) a[6,8)"
    assert changes("insert", pieces, Slicing((cut,), "save")) == "a[0,1) b[2,3)"
    assert changes("delete", pieces, Slicing((cut,), "save")) == "b[5,6) a[8,9)"


def test_copies_count() -> None:
    assert changes("insert", "a[0,4) a[0,4) a[2,3) a[4,6)") == "a[0,1) a[0,1) a[2,3)"
    assert changes("delete", "a[0,4) a[0,4) a[2,3) a[4,6)") == "a[3,4) a[4,5) a[6,7)"


def expected(kind: ChangeKind, source: Elements, t: Instant) -> list[Payload]:
    now, before = at(source, t), at(source, t - 1)
    one, two = (now, before) if kind == "insert" else (before, now)
    known = {str(bag([row])): row for row in one}
    left = Counter(str(bag([row])) for row in one) - Counter(str(bag([row])) for row in two)
    return [known[key] for key in left.elements()]


def test_what_stays_open_is_not_kept() -> None:
    operator = ChangeStreamOperator("delete", TEXT, "changes")
    operator.step([batch(TEXT, [*line("a[0,9) b[1,4)"), (("c",), 2, OPEN)])], Watermark(3))
    assert sum(frame.height for frame in operator.ends.rows()) == 2
    out = operator.step([batch(TEXT, [(("c",), 2, 5)])], Watermark(7))
    assert show(elements_of(out.frame)) == "b[4,5) c[5,6)"
    assert sum(frame.height for frame in operator.ends.rows()) == 1


@pytest.mark.parametrize("kind", ["insert", "delete"])
@settings(max_examples=examples(80))
@given(intervals(payloads(VARCHAR, DOUBLE), endless=True), slicings(takes_changes=True))
def test_changes_are_differences_of_snapshots(kind: ChangeKind, source: Elements, slicing: Slicing) -> None:
    schema = columns(VARCHAR, DOUBLE)
    form: StreamForm = "changes" if slicing.changes[0] else "intervals"
    out = drive(lambda: ChangeStreamOperator(kind, schema, form), [(schema, source)], slicing)
    assert all(end == start + 1 for _, start, end in out)
    same_snapshots(out, lambda t: expected(kind, source, t), edges(source))

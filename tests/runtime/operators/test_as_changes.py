"""From intervals to changes and back: the same snapshots, with other rows."""

from __future__ import annotations

from hypothesis import given, settings

from strandline.core.temporal import OPEN
from strandline.core.types import INT, VARCHAR
from strandline.runtime.operators.as_changes import AsChangesOperator
from strandline.runtime.operators.as_intervals import AsIntervalsOperator
from strandline.runtime.operators.base import Operator, Watermark
from support import (
    TEXT,
    Elements,
    Slicing,
    as_changes,
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


def slices(operator: Operator, source: Elements, *cuts: int, changes: bool = False) -> list[Elements]:
    """What is sent in each slice."""
    sent, before = [], -10
    for until in cuts:
        part = as_changes(source, before, until) if changes else [e for e in source if before <= e[1] < until]
        sent.append(elements_of(operator.step([batch(TEXT, part)], Watermark(until)).frame))
        before = until
    return sent


def test_an_element_is_sent_when_it_begins_and_when_it_ends() -> None:
    sent = slices(AsChangesOperator(), line("a[0,9) b[1,2)"), 3, 6, 12, 15)
    a, b = (("a",), 0, 9), (("b",), 1, 2)
    assert [sorted(part) for part in sent] == [[(("a",), 0, OPEN), b], [], [a], []]


def test_an_open_element_is_cut_in_every_slice() -> None:
    sent = slices(AsIntervalsOperator(TEXT), line("a[0,9) b[1,2)"), 3, 6, 12, 15, changes=True)
    assert [show(part) for part in sent] == ["a[0,3) b[1,2)", "a[3,6)", "a[6,9)", ""]


@settings(max_examples=examples(60))
@given(intervals(payloads(VARCHAR, INT), endless=True), slicings(takes_changes=True))
def test_the_snapshots_stay_the_same(source: Elements, slicing: Slicing) -> None:
    schema = columns(VARCHAR, INT)
    if slicing.changes[0]:
        out = drive(lambda: AsIntervalsOperator(schema), [(schema, source)], slicing)
    else:
        out = drive(AsChangesOperator, [(schema, source)], slicing)
    same_snapshots(out, lambda t: at(source, t), edges(source))

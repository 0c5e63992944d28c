"""Coalesce: fewer cuts, the same snapshots."""

from __future__ import annotations

from hypothesis import example, given, settings

from strandline.core.types import DOUBLE, VARCHAR
from strandline.runtime.operators.split import CoalesceOperator
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


def test_pieces_that_touch_become_one() -> None:
    #   in    a [==)[===)
    #   out   a [======)
    assert show(drive(lambda: CoalesceOperator(TEXT), [(TEXT, line("a[0,3) a[3,7)"))])) == "a[0,7)"


def test_copies_stay_copies() -> None:
    assert (
        show(drive(lambda: CoalesceOperator(TEXT), [(TEXT, line("a[0,3) a[0,5) a[3,5) b[3,4)"))]))
        == "a[0,5) a[0,5) b[3,4)"
    )


def test_pieces_join_within_a_slice_only() -> None:
    out = drive(lambda: CoalesceOperator(TEXT), [(TEXT, line("a[0,2) a[2,4) a[4,6) a[6,8)"))], Slicing((4,)))
    assert show(out) == "a[0,4) a[4,8)"


C = columns(VARCHAR, DOUBLE)


@settings(max_examples=examples(50))
@given(intervals(payloads(VARCHAR, DOUBLE), endless=True), slicings())
@example(
    [(("a", float("nan")), 0, 2), (("a", float("nan")), 2, 4), ((None, 0.0), 0, 1), ((None, -0.0), 1, 9)], Slicing()
)
def test_coalesce_keeps_the_snapshots(source: Elements, slicing: Slicing) -> None:
    out = drive(lambda: CoalesceOperator(C), [(C, source)], slicing)
    assert len(out) <= len(source)
    same_snapshots(out, lambda t: at(source, t), edges(source))

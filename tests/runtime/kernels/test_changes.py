"""Coalesce: fewer cuts, the same snapshots."""

from __future__ import annotations

from hypothesis import example, given, settings

from strandline.core.types import DOUBLE, VARCHAR, Schema
from strandline.runtime.kernels.changes import coalesce
from support import (
    TEXT,
    Elements,
    at,
    batch,
    columns,
    edges,
    elements_of,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
)


def coalesced(schema: Schema, source: Elements) -> Elements:
    return elements_of(coalesce(batch(schema, source).frame, [column.id for column in schema]))


def test_adjacent_intervals_become_one() -> None:
    #   in    a [==)[===)
    #   out   a [======)
    assert show(coalesced(TEXT, line("a[0,3) a[3,7)"))) == "a[0,7)"


def test_duplicates_stay_duplicates() -> None:
    assert show(coalesced(TEXT, line("a[0,3) a[0,5) a[3,5) b[3,4)"))) == "a[0,5) a[0,5) b[3,4)"


C = columns(VARCHAR, DOUBLE)


@settings(max_examples=examples(50))
@given(intervals(payloads(VARCHAR, DOUBLE), endless=True))
@example([(("a", float("nan")), 0, 2), (("a", float("nan")), 2, 4), ((None, 0.0), 0, 1), ((None, -0.0), 1, 9)])
def test_coalesce_keeps_the_snapshots(source: Elements) -> None:
    out = coalesced(C, source)
    assert len(out) <= len(source)
    same_snapshots(out, lambda t: at(source, t), edges(source))

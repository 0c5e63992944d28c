"""Union: the bags of all inputs added up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import DOUBLE, VARCHAR
from strandline.runtime.operators.stateless import UnionAllOperator
from support import (
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


def test_columns_match_by_position() -> None:
    left, right, merged = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r"), columns(VARCHAR, prefix="m")
    assert (
        show(drive(lambda: UnionAllOperator(merged), [(left, line("a[0,1)")), (right, line("a[0,1)"))]))
        == "a[0,1) a[0,1)"
    )


@settings(max_examples=examples(25))
@given(st.lists(intervals(payloads(VARCHAR, DOUBLE), most=8, endless=True), min_size=1, max_size=4), slicings())
def test_union_is_the_sum_of_the_snapshots(sources: list[Elements], slicing: Slicing) -> None:
    inputs = [(columns(VARCHAR, DOUBLE, prefix=f"in{i}."), source) for i, source in enumerate(sources)]
    out = drive(lambda: UnionAllOperator(columns(VARCHAR, DOUBLE)), inputs, slicing)
    same_snapshots(out, lambda t: [p for source in sources for p in at(source, t)], edges(*sources))

"""Union: the bags of all inputs added up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from thesis import S1, S2

from strandline.execution.operators.stateless import MergeOperator
from strandline.types import DOUBLE, VARCHAR
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


def test_thesis_table_11_4() -> None:
    out = drive(lambda: MergeOperator(TEXT), [(TEXT, line(S1)), (TEXT, line(S2))])
    assert show(out) == ("b[1,7) c[1,8) d[3,9) a[4,5) a[5,11) d[6,14) b[7,15) a[9,10) e[10,18) b[12,17)")


def test_columns_match_by_position() -> None:
    left, right, merged = columns(VARCHAR, prefix="l"), columns(VARCHAR, prefix="r"), columns(VARCHAR, prefix="m")
    assert (
        show(drive(lambda: MergeOperator(merged), [(left, line("a[0,1)")), (right, line("a[0,1)"))])) == "a[0,1) a[0,1)"
    )


@settings(max_examples=examples(25))
@given(st.lists(intervals(payloads(VARCHAR, DOUBLE), most=8, endless=True), min_size=1, max_size=4), slicings())
def test_union_is_the_sum_of_the_snapshots(sources: list[Elements], slicing: Slicing) -> None:
    inputs = [(columns(VARCHAR, DOUBLE, prefix=f"in{i}."), source) for i, source in enumerate(sources)]
    out = drive(lambda: MergeOperator(columns(VARCHAR, DOUBLE)), inputs, slicing)
    same_snapshots(out, lambda t: [p for source in sources for p in at(source, t)], edges(*sources))

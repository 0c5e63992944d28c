"""Neighbours of equal payload as one."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import DOUBLE, INT, VARCHAR
from strandline.runtime.kernels.adjacent import equals_row_before, join_adjacent
from support import Elements, at, batch, columns, edges, elements_of, examples, intervals, payloads, same_snapshots


def test_doubles_are_equal_if_their_bits_are() -> None:
    column = pl.Series([0.0, 0.0, -0.0, None, float("nan"), float("nan"), None, None])
    assert equals_row_before([column], 8).tolist() == [False, True, False, False, False, True, False, True]


def test_all_columns_must_be_equal() -> None:
    parts = [pl.Series([1, 1, 1]), pl.Series(["a", None, None])]
    assert equals_row_before(parts, 3).tolist() == [False, False, True]
    assert equals_row_before([], 0).tolist() == []


@settings(max_examples=examples(100))
@given(intervals(payloads(INT, DOUBLE, VARCHAR), endless=True), st.one_of(st.none(), st.integers(1, 30)))
def test_snapshots_stay_the_same_and_no_long_element_goes_on(source: Elements, longest: int | None) -> None:
    schema = columns(INT, DOUBLE, VARCHAR)
    halves = [(p, one, two) for p, s, e in source for one, two in ((s, s + (e - s) // 2), (s + (e - s) // 2, e))]
    frame = batch(schema, [element for element in halves if element[1] < element[2]]).frame
    limit = () if longest is None else (longest,)
    out = elements_of(join_adjacent(frame, [c.id for c in schema], *limit))
    same_snapshots(out, lambda t: at(source, t), edges(source))
    assert len(out) <= frame.height
    if longest is not None:
        parts = {(s, e) for _, s, e in elements_of(frame)}
        # One that was joined was shorter than the limit before its last part came.
        assert all((s, e) in parts or any(s + longest > start and end == e for start, end in parts) for _, s, e in out)

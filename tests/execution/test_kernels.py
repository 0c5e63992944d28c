"""Array kernels against the obvious loops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.algebra.snapshot import bag
from strandline.execution.expressions import polars_type
from strandline.execution.kernels.extremes import LOWEST, range_max, staircase
from strandline.execution.kernels.grouping import group_codes, running_max_in_groups, sort_order
from strandline.execution.kernels.hashing import hash_column, hash_rows
from strandline.types import DOUBLE, VARCHAR, Type, decimal
from support import KINDS, any_decimal, examples, values


@settings(max_examples=examples(60))
@given(st.integers(1, 40), st.data())
def test_range_max_is_the_largest_value_over_each_cell(size: int, data: st.DataObject) -> None:
    place = st.integers(0, size)
    ranges = data.draw(st.lists(st.tuples(place, place, st.integers(-5, 5)), max_size=20))
    first, last, value = (np.array([r[i] for r in ranges], dtype=np.int64) for i in range(3))
    expected = [max([v for a, b, v in ranges if a <= cell < b], default=LOWEST) for cell in range(size)]
    assert range_max(first, last, value, size).tolist() == expected


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(-3, 3) | st.just(LOWEST)), max_size=15),
    st.booleans(),
)
def test_the_staircase_keeps_every_future_maximum(rows: list[tuple[int, int, int]], by_end: bool) -> None:
    """At every later instant the maximum over what was kept is the maximum over all."""
    rows = sorted(rows, key=lambda row: row[1]) if by_end else rows
    codes, ends, value = (np.array([r[i] for r in rows], dtype=np.int64) for i in range(3))
    kept = [row for row, keep in zip(rows, staircase(codes, ends, value), strict=True) if keep]
    for code in range(3):
        for t in range(9):
            best = [max((v for c, e, v in some if c == code and e > t), default=None) for some in (rows, kept)]
            assert best[0] == best[1]


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_the_running_maximum_begins_anew_in_each_group(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    codes, value = (np.array([r[i] for r in rows], dtype=np.int64) for i in range(2))
    expected = [max(v for c, v in rows[: i + 1] if c == code) for i, (code, _) in enumerate(rows)]
    assert running_max_in_groups(codes, value).tolist() == expected


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)), max_size=20))
def test_sorting_by_group_and_time(rows: list[tuple[int, int]]) -> None:
    codes, time = (np.array([r[i] for r in rows], dtype=np.int64) for i in range(2))
    assert [rows[i] for i in sort_order(codes, time)] == sorted(rows)


@pytest.mark.parametrize("kind", [*KINDS, decimal(38, 38), decimal(5, 5)], ids=str)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_equal_keys_have_equal_codes_and_equal_hashes(kind: Type, data: st.DataObject) -> None:
    some = values(kind) if kind in KINDS else st.none() | any_decimal(kind)
    rows = data.draw(st.lists(st.tuples(some, values(VARCHAR)), max_size=12))
    frame = pl.DataFrame(rows, schema={"a": polars_type(kind), "b": pl.String()}, orient="row")
    codes, representative = group_codes(frame, ["a", "b"])
    hashes = hash_rows(frame, ["a", "b"])
    keys = [str(bag([row])) for row in rows]
    for i in range(len(rows)):
        assert keys[representative[codes[i]]] == keys[i]
        for j in range(i):
            assert (codes[i] == codes[j]) == (hashes[i] == hashes[j]) == (keys[i] == keys[j])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_a_hash_does_not_depend_on_how_the_column_lies_in_memory(kind: Type, data: st.DataObject) -> None:
    """The hash names the bucket of a key, and the same key must find it from any batch."""
    drawn = data.draw(st.lists(values(kind), min_size=1, max_size=10))
    column = pl.Series("a", drawn, dtype=polars_type(kind))
    alone = [int(hash_column(pl.Series("a", [value], dtype=polars_type(kind)))[0]) for value in drawn]
    cut = data.draw(st.integers(0, len(drawn)))
    chunks = pl.concat([column.slice(0, cut), column.slice(cut)], rechunk=False)
    assert hash_column(column).tolist() == hash_column(chunks).tolist() == alone
    assert hash_column(column.slice(cut)).tolist() == alone[cut:]


def test_hashes_are_the_same_for_ever() -> None:
    """They lie in checkpoints: a change here makes old state unreadable and needs a new format number."""
    frame = pl.DataFrame({"i": [1, None, -1], "s": ["a", "", "ä😀"], "d": [0.5, -0.0, float("nan")]})
    assert hash_rows(frame, ["i"]).tolist() == [10451216379200822465, 407704129109, 16490336266968443936]
    assert hash_rows(frame, ["s"]).tolist() == [3918140811610257722, 12035550249420947055, 9232167193457591361]
    assert hash_rows(frame, ["d", "i"]).tolist() == [10158081661337328572, 13936451009131383409, 1553594315927167025]


def test_nan_and_zero_have_one_code() -> None:
    nan = float("inf") - float("inf")
    frame = pl.DataFrame({"x": [0.0, -0.0, float("nan"), nan, -nan, None]}, schema={"x": polars_type(DOUBLE)})
    assert group_codes(frame, ["x"])[0].tolist() == [0, 0, 1, 1, 1, 2]

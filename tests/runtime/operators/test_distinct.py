"""Duplicate elimination: each payload at most once per instant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.types import DOUBLE, INT, VARCHAR, Type
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators import distinct as distinct_module
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.counting_distinct import CountingDistinctOperator
from strandline.runtime.operators.distinct import DistinctOperator
from support import (
    ARRAYS,
    KINDS,
    TEXT,
    Elements,
    Payload,
    Slicing,
    at,
    batch,
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


def test_the_second_copy_begins_where_the_first_ends() -> None:
    #   t   0     3     6     9
    #   a   [===========)
    #   a         [===========)
    #  out  [===========)[====)
    assert show(drive(lambda: DistinctOperator(TEXT), [(TEXT, line("a[0,6) a[3,9)"))])) == "a[0,6) a[6,9)"


def test_a_piece_that_begins_after_the_slice_waits_for_it() -> None:
    #   the rest of the second copy is known at 3, but begins at 6: the cut at 4 must not let it through
    out = drive(lambda: DistinctOperator(TEXT), [(TEXT, line("a[0,6) a[3,9) b[5,6)"))], Slicing((4,), "store"))
    assert show(out) == "a[0,6) b[5,6) a[6,9)"


def test_null_is_a_value_like_others() -> None:
    assert show(drive(lambda: DistinctOperator(TEXT), [(TEXT, line("NULL[0,6) NULL[3,5)"))])) == "NULL[0,6)"


def distinct(rows: list[Payload]) -> list[Payload]:
    return list({str(bag([row])): row for row in rows}.values())


COLUMNS = {str(kind).lower(): (kind,) for kind in (*KINDS, *ARRAYS)} | {"mixed": (VARCHAR, DOUBLE, INT)}


@pytest.mark.parametrize("kinds", COLUMNS.values(), ids=COLUMNS)
@settings(max_examples=examples(20))
@given(data=st.data(), slicing=slicings(takes_changes=True))
def test_distinct_is_the_snapshot_distinct(kinds: tuple[Type, ...], data: st.DataObject, slicing: Slicing) -> None:
    source = data.draw(intervals(payloads(*kinds), endless=True))
    schema = columns(*kinds)
    operator = CountingDistinctOperator if slicing.changes[0] else DistinctOperator
    out = drive(lambda: operator(schema), [(schema, source)], slicing)
    same_snapshots(out, lambda t: distinct(at(source, t)), edges(source))


NEGATIVE_NAN = float("inf") - float("inf")


@pytest.mark.parametrize("cuts", [(), (1,)])
def test_every_nan_is_the_same_and_so_is_every_zero(cuts: tuple[int, ...]) -> None:
    schema = columns(DOUBLE)
    source: Elements = [((float("nan"),), 0, 3), ((-float("nan"),), 1, 3), ((NEGATIVE_NAN,), 1, 3), ((0.0,), 0, 3)]
    source += [((-0.0,), 2, 3)]
    source.sort(key=lambda element: element[1])
    out = drive(lambda: DistinctOperator(schema), [(schema, source)], Slicing(cuts, "save"))
    assert show(out) == "0.0[0,3) nan[0,3)"


@example([2, 1, 3])
@given(st.permutations([1, 2, 3, 4]))
@settings(max_examples=examples(5))
def test_the_longest_copy_wins_wherever_it_stands(lengths: list[int]) -> None:
    source: Elements = [(("a",), 0, n) for n in lengths]
    out = drive(lambda: DistinctOperator(TEXT), [(TEXT, source)])
    assert sum(end - start for _, start, end in out) == max(lengths)


def test_payloads_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_module, "hash_rows", lambda frame, _: np.zeros(frame.height, dtype=np.uint64))
    source = line("a[0,6) b[1,4) NULL[1,3) a[3,9) b[3,5) NULL[2,3)")
    for slicing in (Slicing(), Slicing((2,), "save"), Slicing((2, 3), "store")):
        out = drive(lambda: DistinctOperator(TEXT), [(TEXT, source)], slicing)
        same_snapshots(out, lambda t: distinct(at(source, t)), edges(source))


@settings(max_examples=examples(40))
@given(source=intervals(payloads(INT), endless=True), slicing=slicings())
def test_the_cuts_of_the_input_do_not_show(source: Elements, slicing: Slicing) -> None:
    schema = columns(INT)
    whole, cut = (drive(lambda: DistinctOperator(schema), [(schema, source)], s) for s in (Slicing(), slicing))
    assert sorted(map(str, cut)) == sorted(map(str, whole))


def test_state_and_output_grow_with_payloads_and_not_with_duplicates() -> None:
    # 20 slices of 1,000 rows, 50 payloads, each row valid for 10 slices
    schema, payloads_, length = columns(INT), 50, 1_000
    operator, out = DistinctOperator(schema), 0
    for number in range(20):
        rows: Elements = [((row % payloads_,), number * 100 + row // 10, number * 100 + length) for row in range(1_000)]
        out += operator.step([batch(schema, rows)], Watermark((number + 1) * 100)).frame.height
        assert operator.save().rows() <= 4 * payloads_
    assert out <= 2 * payloads_ * (20 * 100 // length)


def test_a_payload_that_expired_in_the_log_is_new_again() -> None:
    # a is due at 6 and ends at 9, within a slice; b keeps the segment with a's entry alive
    source = line("a[0,6) b[0,60) a[3,9) a[20,22)")
    for cuts in ((), (2, 4), (2, 4, 12), (4, 6, 9, 15)):
        out = drive(lambda: DistinctOperator(TEXT), [(TEXT, source)], Slicing(cuts, "store"))
        assert sorted(show(out).split()) == ["a[0,6)", "a[20,22)", "a[6,9)", "b[0,60)"]

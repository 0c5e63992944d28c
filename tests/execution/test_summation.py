"""Sums are exact: to the bit what `math.fsum` says, whatever came and went before and however the input was cut."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER
from strandline.core.types import BIGINT, DOUBLE, INT, Column, Type, decimal
from strandline.functions.aggregates import aggregate, aggregate_type
from strandline.logical.expressions import AggregateCall, ColumnRef
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.exact_sums import from_limbs, means, to_limbs
from strandline.runtime.operators.aggregate import IncrementalAggregateOperator
from support import Elements, Slicing, any_decimal, at, columns, drive, edges, examples, slicings

NAN, INF = float("nan"), float("inf")


def bits(value: float | None) -> str:
    """A DOUBLE by its bits, so that nothing is nearly equal; one NaN is as good as another."""
    return "NULL" if value is None else "NaN" if value != value else struct.pack(">d", value + 0.0).hex()


def sums(source: Sequence[tuple[float | None, int, int]], slicing: Slicing = Slicing()) -> Elements:  # noqa: B008
    """SUM over one column of DOUBLEs that come and go."""
    schema = columns(DOUBLE)
    call = AggregateCall("sum", ColumnRef("c0", DOUBLE), DOUBLE)
    elements: Elements = [((value,), start, end) for value, start, end in sorted(source, key=lambda e: e[1])]
    origin = min((start for _, start, _ in elements), default=FOREVER)
    return drive(
        lambda: IncrementalAggregateOperator((), ((Column("sum", "sum", DOUBLE), call),), schema),
        [(schema, elements)],
        slicing,
        origin,
    )


def true_sum(values: list[float | None]) -> float | None:
    call = AggregateCall("sum", ColumnRef("c0", DOUBLE), DOUBLE)
    result = aggregate(call, [{"c0": value} for value in values])
    assert result is None or isinstance(result, float)
    return result


# ---- examples --------------------------------------------------------------------------------------------------------


def test_what_a_large_number_hides_reappears_when_it_leaves() -> None:
    #   t         0       1       2       3       4
    #   1e308     [===============)
    #   1                 [=======================)
    #   -1e308            [===============)
    #   sum       1e308   1       -1e308  1
    out = sums([(1e308, 0, 2), (1.0, 1, 4), (-1e308, 1, 3)])
    assert [at(out, t) for t in range(5)] == [[(1e308,)], [(1.0,)], [(-1e308,)], [(1.0,)], [(None,)]]


def test_nan_and_infinities_enter_and_leave() -> None:
    #   t      0      1      2      3      4      5
    #   1      [==================================)
    #   inf           [=============)
    #   -inf                 [=============)
    #   nan                                [======)
    out = sums([(1.0, 0, 5), (INF, 1, 3), (-INF, 2, 4), (NAN, 4, 5)])
    assert [bits(at(out, t)[0][0]) for t in range(6)] == [bits(x) for x in (1.0, INF, NAN, -INF, NAN, None)]  # type: ignore[arg-type]


def test_the_smallest_numbers_add_up() -> None:
    tiny = 5e-324
    out = sums([(tiny, 0, 9)] * 3 + [(1.0, 1, 5), (-tiny, 6, 9)])
    assert [at(out, t)[0][0] for t in (0, 1, 5, 6)] == [3 * tiny, 1.0, 3 * tiny, 2 * tiny]


def test_a_sum_beyond_all_doubles_is_infinite_and_comes_back() -> None:
    top = float(np.finfo(np.float64).max)
    out = sums([(top, 0, 9), (top, 1, 3), (-top, 2, 3)])
    assert [at(out, t)[0][0] for t in (0, 1, 2, 3)] == [top, INF, top, top]


def test_no_rounding_error_piles_up() -> None:
    """A thousand times 0.1 came and went: what is left is exactly what stayed."""
    out = sums([(0.1, t, t + 3) for t in range(1000)] + [(0.25, 0, 2000)], Slicing((333, 666), "save"))
    assert at(out, 1500) == [(0.25,)]
    assert at(out, 500) == [(math.fsum([0.1, 0.1, 0.1, 0.25]),)]


def test_ties_round_to_even() -> None:
    up, down = 1.0 + 2.0**-52, 1.0
    for base, half, expected in (
        (down, 2.0**-53, down),
        (up, 2.0**-53, 1.0 + 2.0**-51),
        (-up, -(2.0**-53), -1.0 - 2.0**-51),
    ):
        assert at(sums([(base, 0, 5), (half, 0, 5)]), 0) == [(expected,)]
        # A bit far below the half breaks the tie.
        assert at(sums([(base, 0, 5), (half, 0, 5), (math.copysign(2.0**-200, half), 0, 5)]), 0) == [
            (math.fsum([base, half, math.copysign(2.0**-200, half)]),)
        ]


# ---- properties ------------------------------------------------------------------------------------------------------

WILD = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [1e308, -1e308, 1.0, 1e-308, 5e-324, -5e-324, 0.1, -0.0, 2.0**53, 2.0**-1022, 1.7976931348623157e308]
    )
    | st.integers(-(2**53), 2**53).map(float)
)
TAME = st.floats(-1e6, 1e6)


@settings(max_examples=examples(80))
@given(
    st.lists(
        st.tuples(WILD | st.sampled_from([None, NAN, INF, -INF]), st.integers(0, 12), st.integers(1, 9)), max_size=12
    ),
    slicings(0, 22),
)
@example([(1e308, 0, 5), (1e308, 0, 5), (-1e308, 0, 5), (1.0, 1, 5)], Slicing((1, 2, 3), "store"))
def test_sum_is_fsum_to_the_bit(drawn: list[tuple[float | None, int, int]], slicing: Slicing) -> None:
    source = [(value, start, start + length) for value, start, length in drawn]
    out = sums(source, slicing)
    for t in edges([((), start, end) for _, start, end in source]):
        valid = [value for value, start, end in source if start <= t < end]
        expected = [true_sum(valid)] if any(start <= t for _, start, _ in source) else []
        assert [bits(x) for (x,) in at(out, t)] == [bits(x) for x in expected], f"at {t}"  # type: ignore[arg-type]


@settings(max_examples=examples(150))
@given(st.lists(WILD | TAME, min_size=1, max_size=20), st.sampled_from([1, 3]))
def test_the_kernel_rounds_once(values: list[float], copies: int) -> None:
    """Straight through the limbs: any numbers at all, with and without neighbours that need other positions."""
    limbs = to_limbs(pl.Series(values, dtype=pl.Float64))
    totals = {name: np.repeat(digits.sum(), copies) for name, digits in limbs.items()}
    result = from_limbs(totals, pl.Float64(), copies)
    assert [bits(x) for x in result] == [bits(true_sum(list(values)))] * copies


@pytest.mark.parametrize(
    "kind", [INT, BIGINT, decimal(10, 2), decimal(38, 0), decimal(38, 38), decimal(20, 18)], ids=str
)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_exact_numbers_add_up_exactly(kind: Type, data: st.DataObject) -> None:
    size = 2 ** (31 if kind == INT else 63)
    whole = st.integers(-size, size - 1) | st.integers(-9, 9)
    number: st.SearchStrategy[Any] = any_decimal(kind) if kind.name == "DECIMAL" else whole
    known = data.draw(st.lists(number, min_size=1, max_size=12))
    column = pl.Series([None, *known], dtype=polars_type(kind))
    totals = {name: np.array([digits.sum()]) for name, digits in to_limbs(column).items()}
    of = aggregate_type("sum", kind)
    expected = aggregate(AggregateCall("sum", ColumnRef("c0", kind), of), [{"c0": value} for value in known])
    assert from_limbs(totals, polars_type(of), 1).to_list() == [expected]
    mean = means(totals, np.array([len(known)]), column.dtype, 1)
    assert mean.tolist() == [float(sum(map(Fraction, known)) / len(known))]


def test_the_mean_of_large_numbers_is_rounded_once() -> None:
    """2^53 + 1 and 2^53 + 3: their mean is a DOUBLE, although neither they nor their sum are."""
    limbs = {name: np.array([d.sum()]) for name, d in to_limbs(pl.Series([2**53 + 1, 2**53 + 3])).items()}
    assert means(limbs, np.array([2]), pl.Int64(), 1).tolist() == [float(2**53 + 2)]


def test_the_mean_of_the_smallest_decimals_is_rounded_once() -> None:
    """Here the quotient needs all its digits: some are a tie in the first 64 bits, and only the remainder decides."""
    numbers = range(1, 4000)
    mean = means({"0": np.array(numbers)}, np.ones(len(numbers), np.int64), pl.Decimal(38, 38), len(numbers))
    assert mean.tolist() == [float(Fraction(n, 10**38)) for n in numbers]

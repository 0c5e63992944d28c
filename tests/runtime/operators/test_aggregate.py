"""Aggregation: at every instant the aggregates over what is valid, by group or over everything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.core.types import BIGINT, BOOLEAN, DOUBLE, INT, VARCHAR, Column, Schema, Type, array_of, decimal
from strandline.functions.aggregates import DISPERSIONS, aggregate, aggregate_type
from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.logical.expressions import AggregateCall, ColumnRef, SortKey
from strandline.logical.reference.interpreter import bag
from strandline.logical.udf import UserAggregate
from strandline.planner.physical.distinct_aggregates import has_sums
from strandline.planner.physical.plan import StreamForm
from strandline.runtime.operators import live_elements
from strandline.runtime.operators.aggregate import IncrementalAggregateOperator
from strandline.runtime.operators.base import Watermark
from support import (
    ARRAYS,
    DOMAIN,
    KINDS,
    MONEY,
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

Calls = tuple[tuple[Column, AggregateCall], ...]


def calls(schema: Schema, *wanted: str) -> Calls:
    """Aggregates written as `sum c1`; without a column it is `count`, the number of rows.

    `percentile_cont:0.5 c1 by -c2` has a parameter and an order, here descending by c2.
    """
    columns = {c.id: ColumnRef(c.id, c.type) for c in schema}
    found: list[tuple[Column, AggregateCall]] = []
    for text in wanted:
        named, _, order = text.partition(" by ")
        function, _, name = named.partition(" ")
        function, has_parameter, parameter = function.partition(":")
        argument = columns.get(name)
        user = OF_USERS.get(function)
        if user is not None:
            by = tuple(SortKey(columns[key.strip("-")], "-" in key) for key in order.split())
            call = AggregateCall(function, argument, user.returns, order=by, user=user)
            found.append((Column(text, text, user.returns), call))
            continue
        # An array of one element each is what ARRAY_AGG takes in the algebra.
        kind = argument.type if argument and function == "array_agg" else None
        kind = (
            DOUBLE
            if function in PAIR_AGGREGATES
            else kind or aggregate_type(function, argument.type if argument else None)
        )
        keys = tuple(SortKey(columns[key.strip("-!")], "-" in key, "!" in key) for key in order.split())
        value = float(parameter) if function.startswith("percentile") else parameter if has_parameter else None
        found.append((Column(text, text, kind), AggregateCall(function, argument, kind, False, keys, value)))
    return tuple(found)


def aggregated(
    schema: Schema,
    keys: int,
    wanted: Sequence[str],
    source: Elements,
    slicing: Slicing = Slicing(),  # noqa: B008
    origin: int | None = None,
) -> Elements:
    """The aggregates of `source` grouped by its first `keys` columns."""
    if origin is None:
        origin = min((start for _, start, _ in source), default=FOREVER)
    names, called = tuple(c.id for c in schema[:keys]), calls(schema, *wanted)
    input_form = slicing.input_forms[0]
    panes = slicing.panes and input_form == "intervals" and all(has_sums(call) for _, call in called)
    return drive(
        lambda: IncrementalAggregateOperator(names, called, schema, slicing.form, panes, slicing.coalesces, input_form),
        [(schema, source)],
        slicing,
        origin,
    )


def expected(schema: Schema, keys: int, wanted: Sequence[str], rows: list[Payload], exists: bool) -> list[Payload]:
    """The plain SQL answer over some rows; without keys there is one if the answer `exists` already."""
    groups: dict[str, list[Payload]] = {str(bag([row[:keys]])): [] for row in rows}
    if not keys and exists:
        groups[str(bag([()]))] = []
    for row in rows:
        groups[str(bag([row[:keys]]))].append(row)
    place = {c.id: i for i, c in enumerate(schema)}
    answer = []
    for members in groups.values():
        computed = []
        for _, call in calls(schema, *wanted):
            computed.append(aggregate(call, [dict(zip(place, row, strict=True)) for row in members]))
        answer.append((*(members[0][:keys] if members else ()), *computed))
    return answer


# ---- time lines ------------------------------------------------------------------------------------------------------


def test_a_count_changes_when_elements_come_and_go() -> None:
    #   t        0     3     6     9
    #   a        [===========)
    #   b              [===========)
    #   count    1     2     1     0
    assert show(aggregated(TEXT, 0, ["count"], line("a[0,6) b[3,9)"))) == "1[0,3) 2[3,6) 1[6,9) 0[9,∞)"


def test_a_group_without_elements_has_no_row_but_the_whole_has() -> None:
    source = line("a[0,2) a[5,6)")
    assert show(aggregated(TEXT, 1, ["count"], source)) == "a,1[0,2) a,1[5,6)"
    assert show(aggregated(TEXT, 0, ["count"], source)) == "1[0,2) 0[2,5) 1[5,6) 0[6,∞)"


def test_the_whole_exists_from_the_first_element_of_any_input() -> None:
    """Elements may be filtered away or belong to another stream: the answer is 0 from the first of them on."""
    assert show(aggregated(TEXT, 0, ["count", "max x"], [], origin=4)) == "0,NULL[4,∞)"
    assert show(aggregated(TEXT, 0, ["count"], line("a[6,8)"), origin=4)) == "0[4,6) 1[6,8) 0[8,∞)"
    assert aggregated(TEXT, 0, ["count"], []) == []


@pytest.mark.parametrize("cut", range(2, 12))
def test_the_answer_goes_on_where_the_slice_before_ended(cut: int) -> None:
    out = aggregated(TEXT, 0, ["count"], line("a[6,8)"), Slicing((cut,), "save"), origin=4)
    same_snapshots(out, lambda t: [(int(6 <= t < 8),)] if t >= 4 else [], range(14))


def test_nulls_do_not_count_but_their_rows_do() -> None:
    out = aggregated(TEXT, 0, ["count", "count x", "min x", "max x"], line("NULL[0,9) b[2,6) a[4,5)"))
    assert show(out) == (
        "1,0,NULL,NULL[0,2) 2,1,b,b[2,4) 3,2,a,b[4,5) 2,1,b,b[5,6) 1,0,NULL,NULL[6,9) 0,0,NULL,NULL[9,∞)"
    )


# ---- the law ---------------------------------------------------------------------------------------------------------

MIXED = columns(VARCHAR, DOUBLE, INT, MONEY, BIGINT)
EVERYTHING = [
    "count",
    *(f"{function} c{i}" for i in range(1, 5) for function in ("count", "sum", "avg", "min", "max")),
    "min c0",
    "max c0",
]


@settings(max_examples=examples(40))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BIGINT), endless=True),
    st.integers(0, 3),
    slicings(takes_changes=True),
)
@example([(("a", float("inf"), 1, None, 2**63 - 1), 0, 4), (("a", 1.0, 1, None, 1), 1, 8)], 1, Slicing((2, 5), "store"))
@example([(("a", 1e308, 1, None, 1), 0, 9), (("a", 1e308, 1, None, 2), 0, 9)], 1, Slicing())  # the sum overflows
def test_aggregation_is_the_snapshot_aggregation(source: Elements, keys: int, slicing: Slicing) -> None:
    """Every aggregate at once, grouped by up to three columns, and over everything."""
    out = aggregated(MIXED, keys, EVERYTHING, source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(out, lambda t: expected(MIXED, keys, EVERYTHING, at(source, t), first <= t), edges(source))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=examples(20))
@given(data=st.data(), slicing=slicings(takes_changes=True), keys=st.integers(0, 1), best=st.integers(1, 3))
def test_min_and_max_of_every_type(kind: Type, data: st.DataObject, slicing: Slicing, keys: int, best: int) -> None:
    schema = columns(BOOLEAN, kind)
    source = data.draw(intervals(payloads(BOOLEAN, kind), endless=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_elements, "BEST", best)  # so that all that are at hand may end
        out = aggregated(schema, keys, ["min c1", "max c1"], source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(
        out, lambda t: expected(schema, keys, ["min c1", "max c1"], at(source, t), first <= t), edges(source)
    )


OF_MEMBERS = [
    "percentile_cont:0.5 c1 by c1",
    "percentile_cont:0.3 c1 by -c1",
    "percentile_cont:1 c2 by c2",
    "percentile_disc:0.75 c3 by c3",
    "percentile_disc:0 c0 by -c0",
    "mode c2 by c2",
    "mode c0 by -c0",
    "first c1 by c2",
    "last c1 by c2 -c0",
    "last c0 by -c1!",
    "first c3 by c0! c4",
    "string_agg:+ c0",
    "string_agg: c0 by -c2",
    "count c0",
]


@settings(max_examples=examples(40))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BIGINT), endless=True),
    st.integers(0, 3),
    slicings(takes_changes=True),
)
def test_aggregates_of_members_are_the_snapshot_ones(source: Elements, keys: int, slicing: Slicing) -> None:
    out = aggregated(MIXED, keys, OF_MEMBERS, source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(out, lambda t: expected(MIXED, keys, OF_MEMBERS, at(source, t), first <= t), edges(source))


def singles(source: Elements, *places: int) -> Elements:
    """The elements with arrays of one element each, the arguments of ARRAY_AGG, beside some of their values.

    What is left out by a FILTER has no array at all; here it is every value of 1.
    """
    return [
        ((*payload, *(None if payload[place] == 1 else (payload[place],) for place in places)), start, end)
        for payload, start, end in source
    ]


@settings(max_examples=examples(40))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BOOLEAN), endless=True),
    st.integers(0, 2),
    slicings(takes_changes=True),
)
@example([(("a", None, 1, None, True), 0, 4), (("a", None, None, None, False), 0, 8)], 0, Slicing((2,), "store"))
def test_arrays_of_members_are_the_snapshot_ones(source: Elements, keys: int, slicing: Slicing) -> None:
    kinds = (VARCHAR, DOUBLE, INT, MONEY, BOOLEAN)
    schema = columns(*kinds, *map(array_of, kinds))
    wanted = ["array_agg c5", "array_agg c6 by -c2", "array_agg c7 by c0! c1", "array_agg c8", "array_agg c9 by c3"]
    arrays = singles(source, *range(5))
    out = aggregated(schema, keys, [*wanted, "count c7"], arrays, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(
        out, lambda t: expected(schema, keys, [*wanted, "count c7"], at(arrays, t), first <= t), edges(source)
    )


def pairs_of(source: Elements, y: int, x: int) -> Elements:
    """The elements with the pair of two of their numbers, the argument of CORR and its kind; NULL if one is NULL."""
    return [
        ((*row, None if row[y] is None or row[x] is None else (float(row[y]), float(row[x]))), start, end)  # type: ignore[arg-type]
        for row, start, end in source
    ]


@settings(max_examples=examples(60))
@given(intervals(payloads(INT, DOUBLE, DOUBLE), endless=True), st.integers(0, 1), slicings(takes_changes=True))
@example([((1, 1e200, 3.0), 0, 4), ((1, -1e200, 7.0), 0, 8), ((1, 5.0, 1e-300), 2, 8)], 1, Slicing((2,), "store"))
@example([((1, 0.1, 0.3), 0, 4), ((1, 0.1, 0.3), 0, 8), ((1, math.inf, 3.0), 2, 6)], 1, Slicing((1,), "store"))
@example([((1, 0.1 * n, 0.3 * n), n, 9 + n) for n in range(9)], 1, Slicing((1,), "store"))
def test_aggregates_of_pairs_are_the_snapshot_ones(source: Elements, keys: int, slicing: Slicing) -> None:
    schema = columns(INT, DOUBLE, DOUBLE, array_of(DOUBLE), array_of(DOUBLE))
    wanted = [f"{name} {column}" for name in PAIR_AGGREGATES for column in ("c3", "c4")]
    pairs = pairs_of(pairs_of(source, 1, 2), 0, 2)
    out = aggregated(schema, keys, [*wanted, "count c3"], pairs, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(
        out, lambda t: expected(schema, keys, [*wanted, "count c3"], at(pairs, t), first <= t), edges(source)
    )


def test_members_are_listed_in_parts_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.runtime.operators.ordered_aggregates._MOST_LISTED", 3)
    source = line("a[0,9) b[1,8) c[2,7) a[3,6) b[4,5)")
    wanted = ["string_agg:, x", "mode x by x"]
    out = aggregated(TEXT, 0, wanted, source)
    same_snapshots(out, lambda t: expected(TEXT, 0, wanted, at(source, t), t >= 0), edges(source))
    schema, arrays = columns(VARCHAR, array_of(VARCHAR)), singles(source, 0)
    out = aggregated(schema, 0, ["array_agg c1"], arrays)
    same_snapshots(out, lambda t: expected(schema, 0, ["array_agg c1"], at(arrays, t), t >= 0), edges(source))


# ---- aggregates of the user's ---------------------------------------------------------------------------------------


def ones(values: pa.Array) -> pa.Array:
    return pa.array(np.ones(len(values), np.int64))


def added(one: Any, two: Any) -> Any:
    return tuple(pc.add(a, b) for a, b in zip(one, two, strict=True))


def composed(one: Any, two: Any) -> Any:
    """x → bx + a, and then another: in the other order it is something else."""
    (a, b), (c, d) = ([part.to_numpy() for part in state] for state in (one, two))
    return pa.array((a * d + c) % 10_007), pa.array(b * d % 10_007)


def lists(combine: Callable[[list[str], list[str]], list[str]]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def over(one: pa.Array, two: pa.Array) -> pa.Array:
        return pa.array([combine(a, b) for a, b in zip(one.to_pylist(), two.to_pylist(), strict=True)])

    return over


def left_over(have: list[str], gone: list[str]) -> list[str]:
    return list((Counter(have) - Counter(gone)).elements())


OF_USERS = {
    user.name: user
    for user in (
        UserAggregate(
            "sum_and_count",
            (BIGINT,),
            BIGINT,
            lambda n: (n, ones(n)),
            added,
            lambda state: pc.bit_wise_xor(state[0], pc.multiply(state[1], 1_000_003)),
            lambda one, two: tuple(pc.subtract(a, b) for a, b in zip(one, two, strict=True)),
        ),
        UserAggregate(
            "bits", (INT,), INT, lambda n: n, lambda a, b: pc.bit_wise_xor(a, b), lambda n: n, pc.bit_wise_xor
        ),
        UserAggregate(
            "money",
            (MONEY,),
            decimal(30, 2),
            lambda m: m.cast(pa.decimal128(30, 2)),
            pc.add,
            lambda m: m,
            pc.subtract,
        ),
        UserAggregate(
            "bag",
            (VARCHAR,),
            VARCHAR,
            lambda text: pa.array([[each] for each in text.to_pylist()]),
            lists(lambda one, two: one + two),
            lambda bags: pa.array(["+".join(sorted(each)) for each in bags.to_pylist()]),
            lists(left_over),
        ),
        UserAggregate(
            "chain",
            (VARCHAR,),
            VARCHAR,
            lambda text: text,
            lambda one, two: pc.binary_join_element_wise(one, two, pa.scalar("<", one.type)),
            lambda text: text,
        ),
        UserAggregate(
            "composed",
            (INT,),
            BIGINT,
            lambda n: (pc.cast(n, pa.int64()), pa.array(n.to_numpy().astype(np.int64) * 3 % 10_007 + 2)),
            composed,
            lambda state: state[0],
        ),
    )
}
INVERTED = ["sum_and_count c4", "bits c2", "money c3", "bag c0", "count c2"]
REMERGED = ["chain c0", "chain c0 by -c2", "composed c2", "composed c2 by c0 -c4", "sum c2"]


@settings(max_examples=examples(80))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BIGINT), endless=True),
    st.integers(0, 1),
    slicings(takes_changes=True),
)
@example([(("a", 1.0, n, None, 5), 3 * n, 3 * n + 2) for n in range(3)], 1, Slicing((1, 4), "store"))
@example([((None, None, None, None, None), 0, 9), (("a", 1.0, 1, None, 5), 2, 4)], 0, Slicing((1, 3, 5), "store"))
def test_what_can_be_taken_out_again_is(source: Elements, keys: int, slicing: Slicing) -> None:
    out = aggregated(MIXED, keys, INVERTED, source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(out, lambda t: expected(MIXED, keys, INVERTED, at(source, t), first <= t), edges(source))


@settings(max_examples=examples(60))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BIGINT), endless=True),
    st.integers(0, 1),
    slicings(takes_changes=True),
)
def test_what_cannot_be_taken_out_is_merged_anew(source: Elements, keys: int, slicing: Slicing) -> None:
    out = aggregated(MIXED, keys, REMERGED, source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(out, lambda t: expected(MIXED, keys, REMERGED, at(source, t), first <= t), edges(source))


def test_what_is_merged_anew_is_merged_in_parts_where_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.runtime.operators.ordered_aggregates._MOST_LISTED", 3)
    source = line("a[0,9) b[1,8) NULL[1,9) c[2,7) a[3,6) b[4,5)")
    out = aggregated(TEXT, 0, ["chain x"], source)
    same_snapshots(out, lambda t: expected(TEXT, 0, ["chain x"], at(source, t), t >= 0), edges(source))


def test_with_an_inverse_a_slice_costs_its_events_and_not_its_group() -> None:
    sizes: list[int] = []

    def counted(one: Any, two: Any) -> Any:
        sizes.append(len(one))
        return pc.add(one, two)

    user = UserAggregate("total", (INT,), INT, lambda n: n, counted, lambda n: n, pc.subtract)
    call = (Column("t", "t", INT), AggregateCall("total", ColumnRef("c0", INT), INT, user=user))
    schema = columns(INT)
    operator = IncrementalAggregateOperator((), (call,), schema)
    operator.step([batch(schema, [((n,), 0, 100) for n in range(1000)])], Watermark(1, 0))
    assert len(sizes) <= 2 * 10 and sum(sizes) <= 2 * 1000, "rounds of pairs, not one value after the other"
    sizes.clear()
    out = elements_of(operator.step([batch(schema, [((7,), 5, 100)])], Watermark(9, 0)).frame)
    assert out == [((499_500,), 1, 5), ((499_507,), 5, 9)]
    assert sum(sizes) == 1


def test_an_empty_group_forgets_what_rounding_did() -> None:
    user = UserAggregate("total", (DOUBLE,), DOUBLE, lambda x: x, pc.add, lambda x: x, pc.subtract)
    schema = columns(DOUBLE)
    call = (Column("t", "t", DOUBLE), AggregateCall("total", ColumnRef("c0", DOUBLE), DOUBLE, user=user))
    source: Elements = [((0.1,), 0, 4), ((1e20,), 1, 3), ((0.1,), 6, 8)]
    for cuts in ((), (2, 5)):
        out = drive(lambda: IncrementalAggregateOperator((), (call,), schema), [(schema, source)], Slicing(cuts), 0)
        assert [at(out, t) for t in (3, 4, 6)] == [[(0.0,)], [(None,)], [(0.1,)]]


def test_few_of_many_groups_change() -> None:
    """Totals and candidates are looked up for the same groups, however many of each there are."""
    draw, schema = Random(7), columns(INT, INT)
    source: Elements = [((n % 60, draw.randrange(100)), 0, 50 + draw.randrange(400)) for n in range(600)]
    source += [((draw.randrange(60), draw.randrange(100)), t, t + 1 + draw.randrange(90)) for t in range(1, 400)]
    cuts = tuple(range(1, 500, 9))
    wanted = ("max c1", "min c1", "sum c1")
    forms = (Slicing(cuts, form="intervals"), Slicing(cuts, "save", form="changes"))
    one, two = (aggregated(schema, 1, wanted, source, slicing) for slicing in forms)
    for t in range(0, 520, 3):
        assert bag(at(one, t)) == bag(at(two, t)), f"at instant {t}"
    assert len(two) < len(one)


def test_elements_that_end_together_are_kept_as_sums() -> None:
    """100 rows of three groups in every batch, windows of ten granules: a row per group and granule, and a few more."""
    schema = columns(INT, DOUBLE)
    operator = IncrementalAggregateOperator(("c0",), calls(schema, "sum c1", "max c1"), schema, panes=True)
    for start in range(0, 400, 2):
        end = -(-start // 10) * 10 + 100
        rows: Elements = [((n % 3, float(n)), start, end) for n in range(100)]
        out = operator.step([batch(schema, rows)], Watermark(start + 2, 0))
        kept = sum(segment.rows - segment.facts["consumed"] for segment in operator.valid.segments)
        assert kept <= 3 * 11 + 3 * 3, "three batches are not added up yet"
    total = sum(n for n in range(100) if n % 3 == 0) * len(
        [s for s in range(0, 400, 2) if -(-s // 10) * 10 + 100 > 398]
    )
    assert (0, float(total), 99.0) in [row[:-2] for row in out.frame.rows()]


DISPERSED = [f"{function} c{i}" for i in range(1, 5) for function in DISPERSIONS]


@settings(max_examples=examples(40))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT, MONEY, BIGINT), endless=True),
    st.integers(0, 1),
    slicings(takes_changes=True),
)
@example([(("a", 0.1, 1, None, 1), n, n + 7) for n in range(3)], 0, Slicing((1, 2, 8), "store"))
@example([(("a", 1e15 + n, n, None, 10**15 + n), n, n + 7) for n in range(3)], 1, Slicing((2,), "save"))
def test_dispersions_are_the_snapshot_ones(source: Elements, keys: int, slicing: Slicing) -> None:
    out = aggregated(MIXED, keys, DISPERSED, source, slicing)
    first = min((start for _, start, _ in source), default=FOREVER)
    same_snapshots(out, lambda t: expected(MIXED, keys, DISPERSED, at(source, t), first <= t), edges(source))


@settings(max_examples=examples(60))
@given(st.lists(st.floats(-1e150, 1e150).filter(lambda x: x == 0 or abs(x) > 1e-140), min_size=1, max_size=9))
def test_variances_are_exact(values: list[float]) -> None:
    source: Elements = [((value,), 0, 5 + n) for n, value in enumerate(values)]
    schema = columns(DOUBLE)
    wanted = [f"{function} c0" for function in DISPERSIONS]
    out = aggregated(schema, 0, wanted, source)
    same_snapshots(out, lambda t: expected(schema, 0, wanted, at(source, t), t >= 0), edges(source))


def test_equal_numbers_do_not_deviate() -> None:
    for number in (0.1, 1e15 + 0.3, 123456789.123):
        out = aggregated(columns(DOUBLE), 0, ["stddev_samp c0"], [((number,), 0, 5)] * 7)
        assert at(out, 3) == [(0.0,)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_least_and_the_greatest_value_alone(kind: Type) -> None:
    """Each value of the domain all by itself is its own minimum and maximum."""
    for value in DOMAIN[kind.name]:
        out = aggregated(columns(kind), 0, ["min c0", "max c0"], [((value,), 0, 5)])
        assert bag(at(out, 3)) == bag([(value, value)]), f"of {value!r}"
        assert at(out, 5) == [(None, None)]


@pytest.mark.parametrize("kind", [*KINDS, *ARRAYS], ids=str)
@settings(max_examples=examples(8))
@given(data=st.data(), slicing=slicings(takes_changes=True))
def test_groups_of_every_type(kind: Type, data: st.DataObject, slicing: Slicing) -> None:
    schema = columns(kind, INT)
    source = data.draw(intervals(payloads(kind, INT)))
    wanted = ["count", "sum c1"]
    out = aggregated(schema, 1, wanted, source, slicing)
    same_snapshots(out, lambda t: expected(schema, 1, wanted, at(source, t), True), edges(source))


def test_every_nan_is_one_group_and_so_is_every_zero() -> None:
    nan = float("inf") - float("inf")
    source: Elements = [((x,), 0, 5) for x in (float("nan"), -float("nan"), nan, 0.0, -0.0)]
    assert show(aggregated(columns(DOUBLE), 1, ["count"], source)) == "0.0,2[0,5) nan,3[0,5)"


def test_a_sum_without_room_is_null() -> None:
    """DECIMAL has 38 digits; what has more is NULL, and comes back when it fits again."""
    wide, zero = decimal(38, 0), Decimal(0)
    for top in (Decimal(10**38 - 1), Decimal(1 - 10**38)):
        source: Elements = [((top,), 0, 9), ((top,), 1, 8), ((top,), 2, 7), ((zero,), 3, 9)]
        out = aggregated(columns(wide), 0, ["sum c0"], source)
        assert [at(out, t)[0][0] for t in (0, 1, 2, 3, 7, 8)] == [top, None, None, None, None, top]


def test_a_sum_beyond_128_bits_comes_back() -> None:
    """5000 times the greatest DECIMAL, then all but one of them taken back by its opposite."""
    wide, top, bottom = decimal(38, 0), Decimal(10**38 - 1), Decimal(1 - 10**38)
    source: Elements = [*[((top,), 0, 10)] * 5000, *[((bottom,), 5, 10)] * 4999]
    out = aggregated(columns(wide), 0, ["sum c0", "avg c0"], source)
    assert [at(out, t) for t in (3, 5)] == [[(None, float(top))], [(top, float(Fraction(top) / 9999))]]


@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("cut", [2, 5, 9, 20, 25])
def test_rows_of_a_table_before_time_begins_count_alone(form: StreamForm, cut: Instant) -> None:
    """Without rows there is no count before the first row of a stream, at `origin`; a table may have rows before it."""
    operator = IncrementalAggregateOperator((), calls(TEXT, "count"), TEXT, form)
    found = elements_of(operator.step([batch(TEXT, [(("a",), 0, 5)])], Watermark(cut, 20)).frame)
    found += elements_of(operator.step([batch(TEXT, [])], Watermark(FOREVER, 20)).frame)
    ended = [element for element in found if element[2] != OPEN]
    for t, expected in ((0, [(1,)]), (4, [(1,)]), (5, []), (19, []), (20, [(0,)]), (30, [(0,)])):
        assert at(ended, t) == expected, t


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_a_table_with_rows_keeps_its_count_when_a_stream_begins(form: StreamForm) -> None:
    """The slice that has `origin` may have no change of the single group, which then goes on with its count."""
    operator = IncrementalAggregateOperator((), calls(TEXT, "count"), TEXT, form)
    found = elements_of(operator.step([batch(TEXT, [(("a",), 0, OPEN)] * 2)], Watermark(10)).frame)
    for watermark in (Watermark(21, 20), Watermark(FOREVER, 20)):
        found += elements_of(operator.step([batch(TEXT, [])], watermark).frame)
    ended = [element for element in found if element[2] != OPEN]
    for t in (0, 9, 10, 19, 20, 21, 30):
        assert at(ended, t) == [(2,)], t

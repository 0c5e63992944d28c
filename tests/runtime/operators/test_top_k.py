"""The first rows in an order, at every instant, with those that are level with the last of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER
from strandline.core.types import BIGINT, DOUBLE, INT, VARCHAR, Column
from strandline.functions.aggregates import compare_rows
from strandline.logical.expressions import ColumnRef, SortKey
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.top_k import TopKOperator, TopKPrefilterOperator
from support import (
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
    elements_of,
    examples,
    intervals,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)


def test_who_is_first_changes_when_others_come_and_go() -> None:
    order = (SortKey(ColumnRef("x", VARCHAR)),)
    out = drive(lambda: TopKOperator((), order, 1, TEXT), [(TEXT, line("c[0,9) b[3,6) b[4,5) a[8,9)"))], Slicing())
    assert show(out) == "c[0,3) b[3,6) b[4,5) c[6,8) a[8,9)"


def places(
    rows: list[Payload], names: list[str], order: tuple[SortKey, ...], partition: tuple[str, ...] = ()
) -> list[tuple[Payload, int]]:
    """Each row with one more than there are rows of its partition before it."""
    named = [dict(zip(names, row, strict=True)) for row in rows]
    groups = [bag([[row[key] for key in partition]]) for row in named]
    others = list(zip(named, groups, strict=True))
    ahead = [sum(mine == group and compare_rows(order, other, row) < 0 for other, group in others)
             for row, mine in others]  # fmt: skip
    return [(row, before + 1) for row, before in zip(rows, ahead, strict=True)]


def expected(
    rows: list[Payload], names: list[str], order: tuple[SortKey, ...], limit: int, partition: tuple[str, ...] = ()
) -> list[Payload]:
    return [row for row, place in places(rows, names, order, partition) if place <= limit]


@settings(max_examples=examples(80))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT), endless=True),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=2),
    slicings(),
)
@example([((None, 1.0, 0), 0, 9), (("a", 1.0, 0), 2, 5), (("b", 1.0, 0), 2, 4)], 1, [(0, True, False)], Slicing((3,)))
def test_the_first_rows_of_every_snapshot(
    source: Elements, limit: int, keys: list[tuple[int, bool, bool]], slicing: Slicing
) -> None:
    schema = columns(VARCHAR, DOUBLE, INT)
    order = tuple(SortKey(ColumnRef(schema[i].id, schema[i].type), down, nulls) for i, down, nulls in keys)
    out = drive(lambda: TopKOperator((), order, limit, schema), [(schema, source)], slicing)
    names = [column.id for column in schema]
    same_snapshots(out, lambda t: expected(at(source, t), names, order, limit), edges(source))


SCHEMA = columns(VARCHAR, DOUBLE, INT)
NAMES = [column.id for column in SCHEMA]
ORDERS = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=2)
PARTITIONS = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


def ordered_by(keys: list[tuple[int, bool, bool]]) -> tuple[SortKey, ...]:
    return tuple(SortKey(ColumnRef(SCHEMA[i].id, SCHEMA[i].type), down, nulls) for i, down, nulls in keys)


@settings(max_examples=examples(150))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT), endless=True, most=25), st.integers(1, 4), ORDERS, PARTITIONS,
    slicings(),
)  # fmt: skip
def test_the_first_rows_of_each_partition(
    source: Elements, limit: int, keys: list[tuple[int, bool, bool]], partition: tuple[str, ...], slicing: Slicing
) -> None:
    order = ordered_by(keys)
    out = drive(lambda: TopKOperator(partition, order, limit, SCHEMA), [(SCHEMA, source)], slicing)
    same_snapshots(out, lambda t: expected(at(source, t), NAMES, order, limit, partition), edges(source))


@settings(max_examples=examples(150))
@given(
    intervals(payloads(VARCHAR, DOUBLE, INT), endless=True, most=25), st.none() | st.integers(1, 4), ORDERS,
    PARTITIONS, slicings(),
)  # fmt: skip
def test_the_places_of_rows(
    source: Elements,
    limit: int | None,
    keys: list[tuple[int, bool, bool]],
    partition: tuple[str, ...],
    slicing: Slicing,
) -> None:
    order, place = ordered_by(keys), Column("place", "place", BIGINT)

    def ranked(t: int) -> list[Payload]:
        found = places(at(source, t), NAMES, order, partition)
        return [(*row, n) for row, n in found if limit is None or n <= limit]

    out = drive(lambda: TopKOperator(partition, order, limit, SCHEMA, place), [(SCHEMA, source)], slicing)
    same_snapshots(out, ranked, edges(source))


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(payloads(VARCHAR, DOUBLE, INT), st.integers(-9, 30)), max_size=20), st.integers(1, 3), ORDERS,
    PARTITIONS, st.none() | st.integers(1, 12), st.integers(1, 6), st.integers(0, 5), st.data(),
)  # fmt: skip
def test_rows_that_can_never_be_first_need_not_travel(
    rows: list[tuple[Payload, int]],
    limit: int,
    keys: list[tuple[int, bool, bool]],
    partition: tuple[str, ...],
    length: int | None,
    slide: int,
    moved: int,
    data: st.DataObject,
) -> None:
    order, offset = ordered_by(keys), moved % slide
    cut = data.draw(st.integers(0, len(rows)))  # each piece is looked at alone
    kept: Elements = []
    for piece in (rows[:cut], rows[cut:]):
        operator = TopKPrefilterOperator(partition, order, limit, length, slide, offset)
        elements = [(payload, time, time + 1) for payload, time in piece]
        kept += elements_of(operator.step([batch(SCHEMA, elements)], Watermark(FOREVER)).frame)

    def seen(elements: Elements, t: int) -> list[Payload]:
        last = (t + 1 - offset) // slide * slide + offset
        held = [row for row, time, _ in elements if time < last and (length is None or time >= last - length)]
        return expected(held, NAMES, order, limit, partition)

    everything: Elements = [(payload, time, time + 1) for payload, time in rows]
    for t in range(-12, 50):
        assert bag(seen(kept, t)) == bag(seen(everything, t))


def test_a_piece_sends_no_more_than_it_must() -> None:
    order = (SortKey(ColumnRef("c0", INT), True, False),)
    rows = [((number % 1000,), number, number + 1) for number in range(100_000)]
    operator = TopKPrefilterOperator((), order, 1, 10_000, 10_000)
    out = operator.step([batch(columns(INT), rows)], Watermark(FOREVER))
    assert len(out) == 10 * 10, "of each window the rows that are level with the first"


@pytest.mark.parametrize(("until", "most"), [(lambda time: FOREVER, 20), (lambda time: time + 1000, 60)])
def test_who_can_never_be_first_again_is_forgotten(until: Callable[[int], int], most: int) -> None:
    # Prices rise and fall by turns: the worst of both is that each new one is better, or worse, than all before.
    order = (SortKey(ColumnRef("c0", INT), True, False),)
    operator = TopKOperator((), order, 5, columns(INT))
    for begin in range(0, 20_000, 100):
        rows = [((n * 7919 % 10_007,), n, until(n)) for n in range(begin, begin + 100)]
        operator.step([batch(columns(INT), rows)], Watermark(begin + 100))
        assert operator.save().rows() <= most + 100


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=examples(10))
@given(data=st.data(), down=st.booleans(), slicing=slicings())
def test_an_order_of_every_type(kind: type, data: st.DataObject, down: bool, slicing: Slicing) -> None:
    schema = columns(kind)  # type: ignore[arg-type]
    source = data.draw(intervals(payloads(kind), endless=True))  # type: ignore[arg-type]
    order = (SortKey(ColumnRef("c0", schema[0].type), down, False),)
    out = drive(lambda: TopKOperator((), order, 2, schema), [(schema, source)], slicing)
    same_snapshots(out, lambda t: expected(at(source, t), ["c0"], order, 2), edges(source))

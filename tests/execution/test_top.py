"""The first rows in an order, at every instant, with those that are level with the last of them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.algebra.aggregates import compare_rows
from strandline.algebra.expressions import ColumnRef, SortKey
from strandline.execution.operators.top import TopOperator
from strandline.types import DOUBLE, INT, VARCHAR
from support import (
    KINDS,
    TEXT,
    Elements,
    Payload,
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


def test_who_is_first_changes_when_others_come_and_go() -> None:
    order = (SortKey(ColumnRef("x", VARCHAR)),)
    out = drive(lambda: TopOperator(order, 1, TEXT), [(TEXT, line("c[0,9) b[3,6) b[4,5) a[8,9)"))], Slicing())
    assert show(out) == "c[0,3) b[3,6) b[4,5) c[6,8) a[8,9)"


def expected(rows: list[Payload], names: list[str], order: tuple[SortKey, ...], limit: int) -> list[Payload]:
    named = [dict(zip(names, row, strict=True)) for row in rows]
    ahead = [sum(compare_rows(order, other, row) < 0 for other in named) for row in named]
    return [row for row, before in zip(rows, ahead, strict=True) if before < limit]


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
    out = drive(lambda: TopOperator(order, limit, schema), [(schema, source)], slicing)
    names = [column.id for column in schema]
    same_snapshots(out, lambda t: expected(at(source, t), names, order, limit), edges(source))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=examples(10))
@given(data=st.data(), down=st.booleans(), slicing=slicings())
def test_an_order_of_every_type(kind: type, data: st.DataObject, down: bool, slicing: Slicing) -> None:
    schema = columns(kind)  # type: ignore[arg-type]
    source = data.draw(intervals(payloads(kind), endless=True))  # type: ignore[arg-type]
    order = (SortKey(ColumnRef("c0", schema[0].type), down, False),)
    out = drive(lambda: TopOperator(order, 2, schema), [(schema, source)], slicing)
    same_snapshots(out, lambda t: expected(at(source, t), ["c0"], order, 2), edges(source))

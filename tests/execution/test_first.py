"""First values: who brings what its group did not have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import FOREVER
from strandline.core.types import DOUBLE, INT, VARCHAR, Column, Schema, Type
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators.first_occurrence import FirstOccurrenceOperator
from support import (
    ARRAYS,
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


def first(keys: tuple[str, ...], schema: Schema, *values: str) -> FirstOccurrenceOperator:
    types = {column.id: column.type for column in schema}
    return FirstOccurrenceOperator(keys, [(Column(f"once {id}", "once", types[id]), id) for id in values], schema)


@pytest.mark.parametrize("cut", range(10))
def test_a_value_counts_where_it_comes_first(cut: int) -> None:
    #   t    0  2  4  6
    #   in   a  b  a  b
    #   copy a  b  –  –
    source = line("a[0,∞) b[2,∞) a[4,∞) NULL[5,∞) b[6,∞)")
    out = drive(lambda: first((), TEXT, TEXT[0].id), [(TEXT, source)], Slicing((cut,), "save"))
    assert show(out) == "a,a[0,∞) b,b[2,∞) a,NULL[4,∞) NULL,NULL[5,∞) b,NULL[6,∞)"


def test_of_those_that_come_together_one_has_it() -> None:
    out = drive(lambda: first((), TEXT, TEXT[0].id), [(TEXT, line("a[3,∞) a[3,∞) a[2,∞)"))])
    assert show(out) == "a,a[2,∞) a,NULL[3,∞) a,NULL[3,∞)"


def lasting(elements: Elements) -> Elements:
    return [(payload, start, FOREVER) for payload, start, _ in elements]


def different(rows: list[Payload], value: int) -> list[Payload]:
    """The groups, which are the first column, with the values that they have."""
    pairs = [(row[0], row[value]) for row in rows if row[value] is not None]
    return list({str(bag([pair])): pair for pair in pairs}.values())


@pytest.mark.parametrize("kind", (*KINDS, *ARRAYS), ids=lambda kind: str(kind).lower())
@settings(max_examples=examples(15))
@given(data=st.data(), slicing=slicings())
def test_the_first_values_are_the_different_ones(kind: Type, data: st.DataObject, slicing: Slicing) -> None:
    schema = columns(data.draw(st.sampled_from((VARCHAR, INT, DOUBLE))), kind, INT)
    source = lasting(data.draw(intervals(payloads(*(column.type for column in schema)))))
    out = drive(lambda: first(("c0",), schema, "c1", "c2"), [(schema, source)], slicing)
    for value in (1, 2):
        copies = [((payload[0], payload[2 + value]), start, end) for payload, start, end in out]
        copies = [element for element in copies if element[0][1] is not None]
        same_snapshots(copies, lambda t, value=value: different(at(source, t), value), edges(source))  # type: ignore[misc]
    same_snapshots([(p[:3], s, e) for p, s, e in out], lambda t: at(source, t), edges(source))

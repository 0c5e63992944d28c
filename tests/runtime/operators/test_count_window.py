"""Count windows: the last rows of a stream or of each partition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import Instant
from strandline.core.types import DOUBLE, INT, VARCHAR
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators.count_window import CountWindowOperator
from support import (
    Elements,
    Payload,
    Slicing,
    columns,
    drive,
    edges,
    examples,
    line,
    payloads,
    same_snapshots,
    show,
    slicings,
)


def windowed(source: Elements, rows: int, slide: int = 1, keys: int = 0, slicing: Slicing = Slicing()) -> Elements:  # noqa: B008
    schema = columns(VARCHAR) if not source or len(source[0][0]) == 1 else columns(DOUBLE, INT)
    partition = tuple(c.id for c in schema[:keys])
    return drive(
        lambda: CountWindowOperator(partition, rows, slide, False, schema, slicing.form), [(schema, source)], slicing
    )


def test_a_row_stays_until_enough_have_come_after_it() -> None:
    #   t   0  1  2  3  4  5  6
    #   a   [=====)
    #   b      [===========)
    #   c         […
    assert show(windowed(line("a[0,1) b[1,2) c[2,3) d[5,6)"), rows=2)) == "a[0,2) b[1,5) c[2,∞) d[5,∞)"


def test_the_window_moves_with_every_second_row() -> None:
    assert show(windowed(line("a[0,1) b[1,2) c[2,3) d[5,6) e[7,8)"), rows=3, slide=2)) == (
        "a[1,5) b[1,∞) c[5,∞) d[5,∞)"
    )


def test_of_rows_at_one_instant_the_last_to_come_count() -> None:
    assert show(windowed(line("a[0,1) b[3,4) c[3,4) d[3,4)"), rows=2)) == "a[0,3) c[3,∞) d[3,∞)"


def expected(source: Elements, rows: int, slide: int, keys: int, t: Instant) -> list[Payload]:
    parts: dict[str, list[Payload]] = {}
    for payload, start, _ in source:
        if start <= t:
            parts.setdefault(str(bag([payload[:keys]])), []).append(payload)
    found: list[Payload] = []
    for part in parts.values():
        last = len(part) // slide * slide
        found += part[max(0, last - rows) : last]
    return found


@pytest.mark.parametrize("keys", [0, 1])
@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(payloads(DOUBLE, INT), st.integers(-20, 40)), max_size=20),
    st.integers(1, 5),
    st.integers(1, 4),
    slicings(),
)
def test_a_count_window_is_the_last_rows_at_every_instant(
    keys: int, drawn: list[tuple[Payload, int]], rows: int, slide: int, slicing: Slicing
) -> None:
    source: Elements = [(p, t, t + 1) for p, t in sorted(drawn, key=lambda row: row[1])]
    # A reorder buffer stands before the operator: rows of one instant come in their order.
    slicing = replace(slicing, backwards=False)
    out = windowed(source, rows, slide, keys, slicing)
    same_snapshots(out, lambda t: expected(source, rows, slide, keys, t), edges(source))

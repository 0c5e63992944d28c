"""Session windows: rows stay for as long as they keep coming."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import Instant
from strandline.core.types import DOUBLE, INT
from strandline.logical.reference.interpreter import bag
from strandline.runtime.operators.session_window import SessionWindowOperator
from support import (
    TEXT,
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


def test_a_session_ends_when_nothing_comes_for_the_gap() -> None:
    out = drive(lambda: SessionWindowOperator((), 4, TEXT), [(TEXT, line("a[0,1) b[3,4) c[7,8) d[9,10)"))], Slicing())
    assert show(out) == "a[0,7) b[3,7) c[7,13) d[9,13)"


def expected(source: Elements, gap: int, keys: int, t: Instant) -> list[Payload]:
    parts: dict[str, list[tuple[Payload, int]]] = {}
    for payload, start, _ in source:
        if start <= t:
            parts.setdefault(str(bag([payload[:keys]])), []).append((payload, start))
    found: list[Payload] = []
    for part in parts.values():
        after = t
        for payload, start in reversed(part):
            if after - start >= gap:
                break
            found.append(payload)
            after = start
    return found


@pytest.mark.parametrize("keys", [0, 1])
@settings(max_examples=examples(80))
@given(st.lists(st.tuples(payloads(DOUBLE, INT), st.integers(-20, 40)), max_size=20), st.integers(1, 9), slicings())
def test_a_session_window_is_the_session_that_goes_on(
    keys: int, drawn: list[tuple[Payload, int]], gap: int, slicing: Slicing
) -> None:
    schema = columns(DOUBLE, INT)
    source: Elements = [(p, t, t + 1) for p, t in sorted(drawn, key=lambda row: row[1])]
    partition = tuple(c.id for c in schema[:keys])
    out = drive(lambda: SessionWindowOperator(partition, gap, schema), [(schema, source)], slicing)
    instants = {t + d for t in edges(source) for d in (0, gap - 1, gap, gap + 1)}
    same_snapshots(out, lambda t: expected(source, gap, keys, t), sorted(instants))

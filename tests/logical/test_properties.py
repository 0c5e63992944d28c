"""Facts about plans, held against what really comes out of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from random_streams import cut
from strandline.core.temporal import FOREVER, Instant
from strandline.core.types import INT, VARCHAR
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import is_chronon_stream, never_expires
from strandline.logical.properties.update_pattern import (
    UpdatePattern,
    constant_duration,
    ends_in_order,
    has_certain_ends,
    update_pattern,
)
from strandline.logical.reference.interpreter import RawStreams, bag, change_instants, snapshot
from strandline.logical.schema import schema
from strandline.planner.stages import optimize
from strategies import Question, question
from support import Arrivals, Elements, arrange, bind, examples, raw, run_plan

BLOCK = 40


def in_order(elements: Elements) -> bool:
    """No element that starts before another ends after it."""
    ends: dict[Instant, list[Instant]] = {}
    for _, start, end in elements:
        ends.setdefault(start, []).append(end)
    return all(max(ends[one]) <= min(ends[two]) for one, two in pairwise(sorted(ends)))


def rows_at(plan: Plan, streams: RawStreams, t: Instant) -> Counter[str]:
    ids = [column.id for column in schema(plan)]
    return Counter(map(repr, bag([tuple(row[i] for i in ids) for row in snapshot(plan, streams, t)])))


def keeps_what_it_has(plan: Plan, streams: RawStreams, until: Instant) -> bool:
    """The law of certain ends for the rows up to an instant."""
    begun = {name: [e for e in elements if e.time <= until] for name, elements in streams.items()}
    later = [t for t in change_instants(plan, streams) if t >= until]
    return all(rows_at(plan, begun, t) <= rows_at(plan, streams, t) for t in later)


def check(asked: Question, dice: Random) -> UpdatePattern:
    """Every fact that a plan gives about itself, before and after optimization."""
    plan = bind(asked.text, asked.streams)
    elements = run_plan(plan, asked.streams, cut(dice, asked.streams)).elements
    streams = raw(asked.streams)
    times = sorted({e.time for s in asked.streams for e in s.elements}) or [0]
    for same in (plan, optimize(plan)):
        if is_chronon_stream(same):
            assert all(end - start == 1 for _, start, end in elements)
        if never_expires(same):
            assert all(end == FOREVER for _, _, end in elements)
        duration = constant_duration(same)
        if duration is not None:
            assert {end - start for _, start, end in elements} <= {duration}
        if ends_in_order(same):
            assert in_order(elements)
        if has_certain_ends(same):
            assert keeps_what_it_has(same, streams, dice.choice(times))
    return update_pattern(plan)


@pytest.mark.parametrize("first", range(0, examples(5) * BLOCK, BLOCK))
def test_what_a_plan_says_about_itself_is_true(first: int) -> None:
    seen: Counter[UpdatePattern] = Counter()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        try:
            seen[check(asked, dice)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert len(seen) >= 3, "the plans differ in how their elements leave"


# ---- each operator ---------------------------------------------------------------------------------------------------

LEFT = [(0, 0, (1, "a")), (2, 0, (2, "b")), (3, 0, (1, "a")), (5, 0, (3, "d")), (9, 0, (1, "c"))]
RIGHT = [(1, 0, (1, "a")), (4, 0, (1, "a")), (5, 0, (2, "b")), (7, 0, (1, "c"))]
L, R = (arrange(name, {"k": INT, "x": VARCHAR}, rows, 0) for name, rows in (("l", LEFT), ("r", RIGHT)))

A, B = "l WINDOW(RANGE 8 MICROSECONDS)", "r WINDOW(RANGE 3 MICROSECONDS)"
MONOTONIC, WEAKEST, WEAK, STRICT = UpdatePattern

# The pattern of a query, and how long its elements are valid if all are valid equally long. For a weak pattern the rows
# above show elements that end out of order; for a strict one, elements that later rows end.
PATTERNS: dict[str, tuple[UpdatePattern, int | None]] = {
    "SELECT x FROM l": (MONOTONIC, 1),
    "SELECT DISTINCT x FROM l": (MONOTONIC, 1),
    "SELECT k, COUNT(*) AS n FROM l GROUP BY k": (MONOTONIC, 1),
    f"SELECT l.x FROM l JOIN {B} ON l.k = r.k": (MONOTONIC, 1),
    f"SELECT l.x FROM l LEFT JOIN {B} ON l.k = r.k": (MONOTONIC, 1),
    f"SELECT x FROM l EXCEPT SELECT x FROM {B}": (MONOTONIC, 1),
    "SELECT x FROM l ORDER BY x LIMIT 1": (MONOTONIC, 1),
    f"SELECT x FROM {A} INTERSECT SELECT x FROM r": (MONOTONIC, 1),
    f"SELECT x FROM {A}": (WEAKEST, 8),
    f"SELECT x || x AS y FROM {A} WHERE k = 1": (WEAKEST, 8),
    "SELECT x FROM l WINDOW(RANGE 8 MICROSECONDS SLIDE 2 MICROSECONDS)": (WEAKEST, 8),
    "SELECT x FROM l WINDOW(RANGE 8 MICROSECONDS SLIDE 5 MICROSECONDS)": (WEAKEST, None),
    f"SELECT x FROM {A} UNION ALL SELECT x FROM r WINDOW(RANGE 8 MICROSECONDS)": (WEAKEST, 8),
    "SELECT x FROM l WINDOW(RANGE UNBOUNDED)": (WEAKEST, None),
    f"SELECT x FROM {A} GRANULARITY(4 MICROSECONDS)": (WEAKEST, 8),
    f"SELECT x FROM {A} GRANULARITY(3 MICROSECONDS)": (WEAKEST, None),
    f"SELECT x FROM {A} UNION ALL SELECT x FROM {B}": (WEAK, None),
    f"SELECT l.x FROM {A} JOIN {B} ON l.k = r.k": (WEAK, None),
    f"SELECT x FROM {A} SEMI JOIN {B} ON l.k = r.k": (WEAK, None),
    f"SELECT DISTINCT x FROM {A}": (WEAK, None),
    f"SELECT x FROM {A} UNION MAX SELECT x FROM {B}": (WEAK, None),
    f"SELECT x FROM {A} INTERSECT ALL SELECT x FROM {B}": (WEAK, None),
    "SELECT x FROM l WINDOW(ROWS 2)": (STRICT, None),
    "SELECT x FROM l WINDOW(PARTITION BY k ROWS 1)": (STRICT, None),
    f"SELECT l.x, r.x AS y FROM {A} LEFT JOIN {B} ON l.k = r.k": (STRICT, None),
    f"SELECT x FROM {A} ANTI JOIN {B} ON l.k = r.k": (STRICT, None),
    f"SELECT x, EXISTS (SELECT 1 FROM {B} WHERE r.k = l.k) AS known FROM {A}": (STRICT, None),
    f"SELECT k, COUNT(*) AS n FROM {A} GROUP BY k": (STRICT, None),
    f"SELECT COUNT(*) AS n FROM {A}": (STRICT, None),
    "SELECT COUNT(*) AS n FROM l": (STRICT, None),
    f"SELECT x FROM {A} EXCEPT ALL SELECT x FROM {B}": (STRICT, None),
    f"SELECT x FROM {A} ORDER BY x DESC LIMIT 1": (STRICT, None),
    "SELECT x FROM DSTREAM(SELECT x FROM l [RANGE 3 MICROSECONDS]) AS d [RANGE 5 MICROSECONDS]": (STRICT, 5),
    f"SELECT DISTINCT n FROM (SELECT COUNT(*) AS n FROM {A}) AS counts": (STRICT, None),
}


@pytest.mark.parametrize("text", PATTERNS)
def test_pattern(text: str) -> None:
    pattern, duration = PATTERNS[text]
    plan = bind(text, [L, R])
    assert update_pattern(plan) == pattern
    assert constant_duration(plan) == duration
    streams = raw(read_by(text))
    kept = [keeps_what_it_has(plan, streams, until) for until in range(-1, 12)]
    assert all(kept) == (pattern != STRICT), "strict is what the rows show to be so, and nothing else is"


def read_by(text: str) -> list[Arrivals]:
    return [stream for stream in (L, R) if f" {stream.name}" in text]


# Whether a queue is enough to know who leaves next.
ORDER = {
    "SELECT x FROM l WINDOW(ROWS 2)": True,
    "SELECT x FROM l WINDOW(SESSION 3 MICROSECONDS)": True,
    f"SELECT x FROM {A} GRANULARITY(3 MICROSECONDS)": True,
    f"SELECT COUNT(*) AS n FROM {A}": True,
    f"SELECT COUNT(*) AS n FROM {A} HAVING COUNT(*) > 1": True,
    "SELECT x FROM l WINDOW(PARTITION BY k ROWS 1)": False,
    "SELECT x FROM l WINDOW(PARTITION BY k SESSION 4 MICROSECONDS)": False,
    f"SELECT k, COUNT(*) AS n FROM {A} GROUP BY k": False,
    f"SELECT x FROM {A} UNION ALL SELECT x FROM {B}": False,
    f"SELECT x FROM {A} EXCEPT ALL SELECT x FROM {B}": False,
    f"SELECT l.x FROM {A} JOIN r WINDOW(RANGE 8 MICROSECONDS) ON l.k = r.k": False,
    f"SELECT DISTINCT x FROM {A}": False,
}


@pytest.mark.parametrize("text", ORDER)
def test_order_of_ends(text: str) -> None:
    plan = bind(text, [L, R])
    assert ends_in_order(plan) == ORDER[text]
    assert in_order(run_plan(plan, read_by(text)).elements) == ORDER[text]

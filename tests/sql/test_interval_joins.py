"""Windows that follow from conditions on the times of streams: which ones, and that every pair meets."""

from __future__ import annotations

from random import Random

import pytest

from random_streams import cut
from strandline.core.types import INT
from strandline.logical.catalog import Catalog
from strandline.logical.plan import Scan, TimeWindow
from strandline.logical.tree import walk
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import arrange, bind, run_plan

STREAMS = [arrange(name, {"k": INT}, [], 0) for name in ("a", "b", "c")]


def windows(text: str) -> dict[str, int | None]:
    """The ranges of the windows of a query, by alias."""
    plan = bind(text, STREAMS)
    ranges = {
        node.source.alias: node.range_us
        for node in walk(plan)
        if isinstance(node, TimeWindow) and isinstance(node.source, Scan)
    }
    return {node.alias: ranges.get(node.alias) for node in walk(plan) if isinstance(node, Scan)}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MICROSECOND", {"a": 11, "b": None}),
        ("b.ts >= a.ts AND b.ts < a.ts + INTERVAL '10' MICROSECOND", {"a": 10, "b": None}),
        ("a.ts <= b.ts AND b.ts - INTERVAL '10' MICROSECOND <= a.ts", {"a": 11, "b": None}),
        ("b.ts - a.ts < INTERVAL '10' MICROSECOND AND b.ts > a.ts - INTERVAL '3' MICROSECOND", {"a": 10, "b": 3}),
        ("a.ts BETWEEN b.ts - INTERVAL '4' MICROSECOND AND b.ts + INTERVAL '2' MICROSECOND", {"a": 5, "b": 3}),
        ("b.ts BETWEEN a.ts + INTERVAL '5' MICROSECOND AND a.ts + INTERVAL '7' MICROSECOND", {"a": 8, "b": None}),
        ("a.ts = b.ts", {"a": None, "b": None}),
        ("a.ts + INTERVAL '3' MICROSECOND = b.ts", {"a": 4, "b": None}),
        ("b.ts >= a.ts", {"a": None, "b": None}),
        ("b.ts > a.ts AND b.ts < a.ts", {"a": None, "b": None}),
        ("NOT (b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MICROSECOND)", {"a": None, "b": None}),
        ("(b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND OR a.k = 1)", {"a": None, "b": None}),
        ("b.ts BETWEEN SYMMETRIC a.ts AND a.ts + INTERVAL '1' SECOND", {"a": None, "b": None}),
    ],
)
@pytest.mark.parametrize(
    "shape", ["a JOIN b ON {}", "a LEFT JOIN b ON {}", "a, b WHERE {}", "a, b WHERE a.k = b.k AND {}"]
)
def test_each_side_is_kept_as_long_as_the_other_may_be_later(
    shape: str, condition: str, expected: dict[str, int | None]
) -> None:
    assert windows(f"SELECT 1 AS one FROM {shape.format(condition)}") == expected


def test_three_streams_meet_when_the_last_of_them_comes() -> None:
    text = """SELECT 1 AS one FROM a JOIN b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MICROSECOND
              JOIN c ON c.ts > b.ts AND c.ts <= b.ts + INTERVAL '3' MICROSECOND"""
    assert windows(text) == {"a": 9, "b": 4, "c": None}


def test_windows_that_are_written_stay() -> None:
    text = (
        "SELECT 1 AS one FROM a [RANGE 2 MICROSECONDS] JOIN b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL '9' MICROSECOND"
    )
    assert windows(text) == {"a": 2, "b": None}


def test_a_subquery_passes_its_time_on() -> None:
    text = """SELECT 1 AS one FROM (SELECT k, ts AS t FROM a WHERE k > 0) p
              JOIN b ON b.ts BETWEEN p.t AND p.t + INTERVAL '5' MICROSECOND"""
    assert [node.range_us for node in walk(bind(text, STREAMS)) if isinstance(node, TimeWindow)] == [6]


def test_a_stream_in_exists_is_kept_as_well() -> None:
    text = """SELECT 1 AS one FROM a JOIN b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MICROSECOND
              WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.ts > a.ts AND c.ts < b.ts)"""
    assert windows(text) == {"a": 11, "b": None, "c": 10}


def test_what_a_user_is_told() -> None:
    def told(text: str) -> list[str]:
        catalog = Catalog()
        catalog.notices.show = None
        for stream in STREAMS:
            catalog.add(stream.declared)
        query = parse_one(text)
        assert isinstance(query, ast.Query)
        bind_query(query, catalog)
        return [str(notice) for notice in catalog.notices.take()]

    bounds = "b.ts - a.ts < INTERVAL '2' SECOND AND a.ts <= b.ts"
    assert told(f"WITH q AS (SELECT a.k FROM a, b WHERE {bounds}) SELECT k FROM q") == [
        "notice[derived-windows]: the windows follow from the condition: a WINDOW(RANGE 2 SECONDS), b WINDOW(NOW); "
        "write windows to have others"
    ]
    assert "notice[no-window]" in told("SELECT a.k FROM a JOIN b ON a.ts <= b.ts")[0]
    assert told("SELECT a.k FROM a JOIN b ON a.ts = b.ts") == []


@pytest.mark.parametrize("seed", range(25))
def test_every_pair_that_satisfies_the_condition_meets(seed: int) -> None:
    """The pairs of the result, whenever they are valid, are those of a plain join over all rows."""
    dice = Random(seed)
    drawn = [[(dice.randint(-5, 20), dice.randint(0, 3), (n,)) for n in range(dice.randint(0, 9))] for _ in range(2)]
    streams = [arrange(name, {"k": INT}, rows, dice.choice((0, 3))) for name, rows in zip("ab", drawn, strict=True)]
    low = dice.randint(-8, 4)
    high = low + dice.randint(0, 8)
    shift = f"{'+' if low >= 0 else '-'} INTERVAL '{abs(low)}' MICROSECOND"
    most = f"{'+' if high >= 0 else '-'} INTERVAL '{abs(high)}' MICROSECOND"
    bounds = f"b.ts BETWEEN a.ts {shift} AND a.ts {most}"
    plan = bind(f"SELECT a.k AS x, b.k AS y FROM a JOIN b ON {bounds}", streams)
    answer = run_plan(plan, streams, cut(dice, streams))
    found = {payload for payload, _, _ in answer.elements}
    left, right = ([(e.time, e.values["k"]) for e in stream.elements] for stream in streams)
    assert found == {(x, y) for s, x in left for t, y in right if low <= t - s <= high}

"""Windows that follow from conditions on the times of streams: which ones, and that every pair meets."""

from __future__ import annotations

from dataclasses import dataclass
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
from support import Arrivals, arrange, bind, run_plan

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
    "shape", ["a JOIN b ON {}", "a FULL JOIN b ON {}", "a, b WHERE {}", "a, b WHERE a.k = b.k AND {}"]
)
def test_each_side_is_kept_as_long_as_the_other_may_be_later(
    shape: str, condition: str, expected: dict[str, int | None]
) -> None:
    assert windows(f"SELECT 1 AS one FROM {shape.format(condition)}") == expected


def test_a_preserved_row_is_read_when_its_match_is_known() -> None:
    within = "b.ts BETWEEN a.ts - INTERVAL '3' MICROSECOND AND a.ts + INTERVAL '10' MICROSECOND"
    assert windows(f"SELECT 1 AS one FROM a LEFT JOIN b ON {within}") == {"a": 10, "b": 14}
    assert windows(f"SELECT 1 AS one FROM b RIGHT JOIN a ON {within}") == {"b": 14, "a": 10}
    before = "b.ts BETWEEN a.ts - INTERVAL '3' MICROSECOND AND a.ts"
    assert windows(f"SELECT 1 AS one FROM a LEFT JOIN b ON {before}") == {"a": None, "b": 4}


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


def notices(text: str) -> list[str]:
    """What a user is told about a query."""
    catalog = Catalog()
    catalog.notices.show = None
    for stream in STREAMS:
        catalog.add(stream.declared)
    query = parse_one(text)
    assert isinstance(query, ast.Query)
    bind_query(query, catalog)
    return [str(notice) for notice in catalog.notices.take()]


def test_what_a_user_is_told() -> None:
    bounds = "b.ts - a.ts < INTERVAL '2' SECOND AND a.ts <= b.ts"
    assert notices(f"WITH q AS (SELECT a.k FROM a, b WHERE {bounds}) SELECT k FROM q") == [
        "notice[derived-windows]: the windows follow from the condition: a WINDOW(RANGE 2 SECONDS), b WINDOW(NOW); "
        "write windows to have others"
    ]
    assert "notice[no-window]" in notices("SELECT a.k FROM a JOIN b ON a.ts <= b.ts")[0]
    assert notices("SELECT a.k FROM a JOIN b ON a.ts = b.ts") == []


@dataclass(frozen=True)
class Drawn:
    """Two random streams of numbered rows, and a condition that bounds their times."""

    streams: list[Arrivals]
    rows: tuple[list[tuple[int, int]], list[tuple[int, int]]]  # the time and the number of each row
    low: int
    high: int
    bounds: str

    def matches(self, s: int) -> list[int]:
        """The rows of b that a row of a meets in the plain join over all rows."""
        return [y for t, y in self.rows[1] if self.low <= t - s <= self.high]


def draw(dice: Random) -> Drawn:
    drawn = [[(dice.randint(-5, 20), dice.randint(0, 3), (n,)) for n in range(dice.randint(0, 9))] for _ in range(2)]
    streams = [arrange(name, {"k": INT}, rows, dice.choice((0, 3))) for name, rows in zip("ab", drawn, strict=True)]
    low = dice.randint(-8, 4)
    high = low + dice.randint(0, 8)
    shift = f"{'+' if low >= 0 else '-'} INTERVAL '{abs(low)}' MICROSECOND"
    most = f"{'+' if high >= 0 else '-'} INTERVAL '{abs(high)}' MICROSECOND"
    left, right = ([(e.time, int(str(e.values["k"]))) for e in stream.elements] for stream in streams)
    return Drawn(streams, (left, right), low, high, f"b.ts BETWEEN a.ts {shift} AND a.ts {most}")


def elements(text: str, drawn: Drawn, dice: Random) -> list[tuple[tuple[object, ...], int, int]]:
    plan = bind(text, drawn.streams)
    return list(run_plan(plan, drawn.streams, cut(dice, drawn.streams)).elements)


@pytest.mark.parametrize("seed", range(25))
def test_every_pair_that_satisfies_the_condition_meets(seed: int) -> None:
    """The pairs of the result, whenever they are valid, are those of a plain join over all rows."""
    drawn = draw(dice := Random(seed))
    found = elements(f"SELECT a.k AS x, b.k AS y FROM a JOIN b ON {drawn.bounds}", drawn, dice)
    assert {payload for payload, _, _ in found} == {(x, y) for s, x in drawn.rows[0] for y in drawn.matches(s)}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("form", ["NOT EXISTS", "ANTI JOIN", "LEFT JOIN", "IS NULL", "two"])
def test_a_row_without_a_match_is_there_once_when_that_is_known(form: str, seed: int) -> None:
    """The rows are those of the plain query over all rows, each for one chronon, when the last row that could match
    has come, and at once where that is already there."""
    drawn = draw(dice := Random(seed))
    bounds = drawn.bounds
    within = f"EXISTS (SELECT 1 FROM b WHERE {bounds})"
    other = "EXISTS (SELECT 1 FROM b c WHERE c.k > a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL '2' MICROSECOND)"
    texts = {
        "NOT EXISTS": f"SELECT a.k FROM a WHERE NOT {within}",
        "ANTI JOIN": f"SELECT a.k FROM a ANTI JOIN b ON {bounds}",
        "LEFT JOIN": f"SELECT a.k AS x, b.k AS y FROM a LEFT JOIN b ON {bounds}",
        "IS NULL": f"SELECT a.k FROM b RIGHT JOIN a ON {bounds} WHERE b.k IS NULL",
        "two": f"SELECT a.k FROM a WHERE NOT {within} AND NOT {other}",
    }
    expected: list[tuple[tuple[object, ...], int]] = []
    for s, x in drawn.rows[0]:
        known = s + max(drawn.high, 2 if form == "two" else 0)
        later = form == "two" and any(y > x and s <= t <= s + 2 for t, y in drawn.rows[1])
        matches: list[int | None] = [*drawn.matches(s)]
        if form == "LEFT JOIN":
            expected += [((x, y), max(known, s)) for y in (matches or [None])]
        elif not matches and not later:
            expected.append(((x,), max(known, s)))
    found = elements(texts[form], drawn, dice)
    assert sorted(found, key=repr) == sorted([(row, t, t + 1) for row, t in expected], key=repr)


@pytest.mark.parametrize("seed", range(40))
def test_a_row_with_a_match_is_there_once_in_exists(seed: int) -> None:
    """It comes with its first match, and is in the result once however many there are."""
    drawn = draw(dice := Random(seed))
    found = elements(f"SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {drawn.bounds})", drawn, dice)
    times = {y: t for t, y in drawn.rows[1]}
    first = {(x,): max(s, min(times[y] for y in drawn.matches(s))) for s, x in drawn.rows[0] if drawn.matches(s)}
    assert sorted((row, since) for row, since, _ in found) == sorted(first.items())


@pytest.mark.parametrize("seed", range(40))
def test_a_count_of_matches_has_all_when_the_last_can_have_come(seed: int) -> None:
    """Under an aggregate rows are kept until those that they match have left, so that nothing is counted alone."""
    drawn = draw(dice := Random(seed))
    found = elements(f"SELECT a.k, COUNT(*) AS n FROM a JOIN b ON {drawn.bounds} GROUP BY a.k", drawn, dice)
    for s, x in drawn.rows[0]:
        at = s + max(drawn.high, 0)
        counts = [n for (k, n), since, until in found if k == x and since <= at < until]
        assert counts == [len(drawn.matches(s))] * bool(drawn.matches(s))


def test_matches_that_stay_open_are_told() -> None:
    """Of two streams that are joined none waits, and what a window or another query says counts."""
    bounds = "b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MICROSECOND"
    after = "c.ts BETWEEN a.ts AND a.ts + INTERVAL '9' MICROSECOND"
    codes = codes_of(f"SELECT a.k FROM a LEFT JOIN b ON {bounds} WHERE a.k IN (SELECT c.k FROM c [RANGE 1 MINUTE] c)")
    assert "open-matches" in codes
    assert "open-matches" in codes_of(f"SELECT a.k FROM a FULL JOIN b ON {bounds}")
    assert "open-matches" not in codes_of(f"SELECT a.k FROM a LEFT JOIN b ON {bounds}")
    text = f"SELECT a.k FROM a JOIN b ON {bounds} WHERE NOT EXISTS (SELECT 1 FROM c WHERE {after})"
    assert codes_of(text) == ["derived-windows"]


def codes_of(text: str) -> list[str]:
    return [told.partition("]")[0].removeprefix("notice[") for told in notices(text)]

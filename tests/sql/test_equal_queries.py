"""Pairs of queries that mean the same: at every instant both are the one snapshot, also as the engine runs them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import INT, Type
from strandline.logical.reference.interpreter import bag, change_instants, snapshot
from strandline.logical.schema import schema
from support import Arrivals, arrange_intervals, arrivals, assert_exact, bind, cuts, examples, raw, run_plan

COLUMNS: dict[str, Type] = {"k": INT, "v": INT}
SMALL = st.integers(0, 2) | st.none()

EQUAL = {
    "a range per partition": (
        "SELECT k, v FROM s WINDOW(PARTITION BY k RANGE 6 MICROSECONDS)",
        "SELECT k, v FROM s WINDOW(RANGE 6 MICROSECONDS)",
    ),
    "a range per partition that jumps": (
        "SELECT k, COUNT(*) AS n FROM s [PARTITION BY k, v RANGE 6 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY k",
        "SELECT k, COUNT(*) AS n FROM s [RANGE 6 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY k",
    ),
    "all rows so far": (
        "SELECT k, SUM(v) AS t FROM s WINDOW(ROWS UNBOUNDED) GROUP BY k",
        "SELECT k, SUM(v) AS t FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k",
    ),
    "all rows so far of each partition, as a very large number": (
        "SELECT k, v FROM s [PARTITION BY k ROWS UNBOUNDED]",
        "SELECT k, v FROM s [PARTITION BY k ROWS 1000000]",
    ),
    "all rows so far of a query": (
        "SELECT x.v FROM (SELECT s.v FROM s JOIN w ON s.k = w.k) x WINDOW(ROWS UNBOUNDED)",
        "SELECT x.v FROM (SELECT s.v FROM s JOIN w ON s.k = w.k) x WINDOW(ROWS 1000000)",
    ),
    "now, over rows with intervals": ("SELECT k, v FROM w WINDOW(NOW)", "SELECT k, v FROM w"),
    "one chronon, over rows with intervals": ("SELECT k, v FROM w [RANGE 1 MICROSECOND]", "SELECT k, v FROM w"),
    "one chronon that moves by one": (
        "SELECT k, v FROM w [PARTITION BY k RANGE 1 MICROSECOND SLIDE 1 MICROSECOND]",
        "SELECT k, v FROM w",
    ),
    "now, over a window": (
        "SELECT x.k FROM (SELECT k FROM s [RANGE 5 MICROSECONDS]) x WINDOW(NOW)",
        "SELECT k FROM s [RANGE 5 MICROSECONDS]",
    ),
    "one chronon, over groups": (
        "SELECT x.k, x.n FROM (SELECT k, COUNT(*) AS n FROM w GROUP BY k) x [RANGE 1 MICROSECOND] WHERE x.n > 1",
        "SELECT k, COUNT(*) AS n FROM w GROUP BY k HAVING COUNT(*) > 1",
    ),
    "ISTREAM around the list": (
        "SELECT ISTREAM(k, SUM(v) AS t) FROM s [RANGE 5 MICROSECONDS] GROUP BY k",
        "ISTREAM(SELECT k, SUM(v) AS t FROM s [RANGE 5 MICROSECONDS] GROUP BY k)",
    ),
    "DSTREAM before the list": (
        "SELECT DSTREAM k, v FROM w WHERE v > 0",
        "DSTREAM(SELECT k, v FROM w WHERE v > 0)",
    ),
    "RSTREAM of all columns": ("SELECT RSTREAM(*) FROM w", "RSTREAM(w)"),
    "a window over RSTREAM of single instants": (
        "SELECT x.k FROM RSTREAM(SELECT s.k FROM s JOIN w ON s.k = w.k) x WINDOW(ROWS 2)",
        "SELECT x.k FROM (SELECT s.k FROM s JOIN w ON s.k = w.k) x WINDOW(ROWS 2)",
    ),
    "a window over RSTREAM of granules": (
        "SELECT x.k FROM RSTREAM(SELECT k FROM w GRANULARITY(4 MICROSECONDS)) x WINDOW(RANGE 8 MICROSECONDS)",
        "SELECT x.k FROM (SELECT k FROM w GRANULARITY(4 MICROSECONDS)) x WINDOW(RANGE 8 MICROSECONDS)",
    ),
    "ISTREAM with DISTINCT": ("SELECT ISTREAM(DISTINCT k) FROM w", "ISTREAM(SELECT DISTINCT k FROM w)"),
    "ISTREAM in a set operator": (
        "SELECT ISTREAM(k) FROM w UNION ALL SELECT k FROM s",
        "ISTREAM(SELECT k FROM w) UNION ALL SELECT k FROM s",
    ),
    "ISTREAM of a list, with a window": (
        "SELECT x.k FROM (SELECT ISTREAM k FROM w) x WINDOW(ROWS 2)",
        "SELECT x.k FROM ISTREAM(SELECT k FROM w) x WINDOW(ROWS 2)",
    ),
    # Of at most one row, MAX is its value, and NULL where there is none.
    "the value of the last row": (
        "SELECT k, (SELECT v FROM s [ROWS 1]) AS x FROM w",
        "SELECT k, (SELECT MAX(v) FROM s [ROWS 1]) AS x FROM w",
    ),
    "the value of the last row, under a condition": (
        "SELECT k FROM w WHERE v >= (SELECT t.v FROM s [ROWS 1] t WHERE t.v <> w.k)",
        "SELECT k FROM w WHERE v >= (SELECT MAX(t.v) FROM s [ROWS 1] t WHERE t.v <> w.k)",
    ),
    "the value of the last row, with one of the row around": (
        "SELECT k, (SELECT t.v + w.v FROM s [ROWS 1] t WHERE t.k < w.k) AS x FROM w",
        "SELECT k, (SELECT MAX(t.v + w.v) FROM s [ROWS 1] t WHERE t.k < w.k) AS x FROM w",
    ),
    "the value of the last row of a partition": (
        "SELECT k, (SELECT t.v FROM s [PARTITION BY k ROWS 1] t WHERE t.k = w.k) AS x FROM w",
        "SELECT k, (SELECT MAX(t.v) FROM s [PARTITION BY k ROWS 1] t WHERE t.k = w.k) AS x FROM w",
    ),
    "the value of the last row of a constant partition": (
        "SELECT k FROM w WHERE v = (SELECT t.v FROM s [PARTITION BY k, v ROWS 1] t WHERE t.k = 1 AND w.k = t.v)",
        "SELECT k FROM w WHERE v = (SELECT MAX(t.v) FROM s [PARTITION BY k, v ROWS 1] t WHERE t.k = 1 AND w.k = t.v)",
    ),
    "the value of the last row of a partition, with a question about the row around": (
        "SELECT k, (SELECT t.v FROM s [PARTITION BY k ROWS 1] t WHERE t.k = w.v"
        " AND EXISTS (SELECT 1 FROM s [RANGE 4 MICROSECONDS] u WHERE u.k < w.k)) AS x FROM w",
        "SELECT k, (SELECT MAX(t.v) FROM s [PARTITION BY k ROWS 1] t WHERE t.k = w.v"
        " AND EXISTS (SELECT 1 FROM s [RANGE 4 MICROSECONDS] u WHERE u.k < w.k)) AS x FROM w",
    ),
    "the value of the last row of a named query, above groups": (
        "WITH x AS (SELECT k, v FROM s [PARTITION BY k ROWS 1]) SELECT w.k, COUNT(*) AS n FROM w GROUP BY w.k "
        "HAVING COUNT(*) > (SELECT x.v FROM x WHERE x.k = w.k)",
        "WITH x AS (SELECT k, v FROM s [PARTITION BY k ROWS 1]) SELECT w.k, COUNT(*) AS n FROM w GROUP BY w.k "
        "HAVING COUNT(*) > (SELECT MAX(x.v) FROM x WHERE x.k = w.k)",
    ),
    "the value of a group": (
        "SELECT k, (SELECT g.n FROM (SELECT k, COUNT(*) AS n FROM w GROUP BY k) g WHERE g.k = o.v) AS x FROM w o",
        "SELECT k, (SELECT MAX(g.n) FROM (SELECT k, COUNT(*) AS n FROM w GROUP BY k) g WHERE g.k = o.v) AS x FROM w o",
    ),
    "the first value": (
        "SELECT k, (SELECT v FROM w ORDER BY v DESC NULLS LAST LIMIT 1) AS x FROM s",
        "SELECT k, (SELECT MAX(v) FROM w) AS x FROM s",
    ),
    "the first value in the order of another": (
        "SELECT k FROM s WHERE v = (SELECT v FROM w ORDER BY k NULLS LAST, 1 NULLS LAST LIMIT 1)",
        "SELECT k FROM s WHERE v = (SELECT MIN(v) FROM (SELECT k, v FROM w ORDER BY k NULLS LAST LIMIT 1) f)",
    ),
    "now, over granules": (
        "SELECT x.k FROM (SELECT k FROM w GRANULARITY(4 MICROSECONDS)) x [NOW]",
        "SELECT k FROM w GRANULARITY(4 MICROSECONDS)",
    ),
}


def interval_arrivals() -> st.SearchStrategy[Arrivals]:
    row = st.tuples(st.integers(-5, 20), st.integers(0, 3), st.tuples(SMALL, SMALL), st.integers(1, 12) | st.just(None))
    return st.builds(lambda rows: arrange_intervals("w", COLUMNS, rows, 3), st.lists(row, max_size=6))


@pytest.mark.parametrize("name", EQUAL)
@given(s=arrivals("s", COLUMNS, most=6, high=20), w=interval_arrivals(), cut=cuts(2))
@settings(max_examples=examples(15))
def test_both_have_the_same_snapshots(name: str, s: Arrivals, w: Arrivals, cut: object) -> None:
    streams = [s, w]
    one, other = (bind(text, streams) for text in EQUAL[name])
    elements = raw(streams)
    for t in {*change_instants(one, elements), *change_instants(other, elements)}:
        bags = [bag([tuple(row[c.id] for c in schema(p)) for row in snapshot(p, elements, t)]) for p in (one, other)]
        assert bags[0] == bags[1], f"at instant {t}"
    assert_exact(one, elements, run_plan(one, streams, cut))  # type: ignore[arg-type]

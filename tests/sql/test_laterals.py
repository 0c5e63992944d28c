"""LATERAL: what it becomes, and what it refuses."""

from __future__ import annotations

import pytest

import strandline as sl
from strandline.core.types import INT
from strandline.logical.plan import Apply, TopRows
from strandline.logical.tree import walk
from support import arrange, bind

STREAMS = [arrange(name, {"k": INT, "v": INT}, [], 0) for name in ("a", "b")]
ROWS = "SELECT b.v FROM b [RANGE 5 MICROSECONDS] WHERE b.k = a.k"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT a.v, m.v AS w FROM a, LATERAL ({ROWS}) m",
        f"SELECT a.v, m.v AS w FROM a CROSS JOIN LATERAL ({ROWS}) AS m",
        f"SELECT a.v, m.v AS w FROM a JOIN LATERAL ({ROWS}) m ON m.v > a.v",
        f"SELECT a.v, m.v AS w FROM a LEFT JOIN LATERAL ({ROWS} ORDER BY b.ts DESC LIMIT 1) m ON TRUE",
        "SELECT a.v, m.n, m.h FROM a, LATERAL (SELECT COUNT(*) AS n, MAX(v) AS h FROM b [ROWS 3] WHERE b.v > a.v) m",
    ],
)
def test_nothing_is_left_to_apply(text: str) -> None:
    assert not any(isinstance(node, Apply) for node in walk(bind(text, STREAMS)))


def test_the_first_rows_are_those_of_each_key() -> None:
    plan = bind(f"SELECT m.v FROM a, LATERAL ({ROWS} ORDER BY b.v LIMIT 2) m", STREAMS)
    (first,) = (node for node in walk(plan) if isinstance(node, TopRows))
    assert (len(first.partition), first.limit) == (1, 2)


def test_a_left_join_has_null_for_all_columns_of_a_row_without_match() -> None:
    with sl.connect(engine="local") as db:
        db.sql("""
            CREATE STREAM a (k INT, ts BIGINT) SOURCE rows((1, 0), (2, 1)) ORDERED BY ts;
            CREATE STREAM b (k INT, ts BIGINT) SOURCE rows((1, 0)) ORDERED BY ts;
        """)
        q = db.sql("SELECT a.k, m.one FROM a LEFT JOIN LATERAL (SELECT 1 AS one FROM b WHERE b.k = a.k) m ON TRUE")
        q.await_end()
        assert [(row["k"], row["one"]) for row in q.results().to_pylist()] == [(1, 1), (2, None)]


@pytest.mark.parametrize(
    "text",
    [
        "a, LATERAL (SELECT v, COUNT(*) AS n FROM b WHERE b.k = a.k GROUP BY v) m",
        "a, LATERAL (SELECT DISTINCT v FROM b WHERE b.k = a.k) m",
        "a, LATERAL (SELECT v FROM b UNION ALL SELECT v FROM b) m",
        "a, LATERAL (SELECT v FROM b WHERE b.v > a.v ORDER BY v LIMIT 1) m",
        "a LEFT JOIN LATERAL (SELECT v FROM b WHERE b.k = a.k) m ON m.v > a.v",
        "a LEFT JOIN LATERAL (SELECT b.v + a.v AS w FROM b WHERE b.k = a.k) m ON TRUE",
        "a RIGHT JOIN LATERAL (SELECT v FROM b WHERE b.k = a.k) m ON TRUE",
        "a JOIN LATERAL (SELECT k, v FROM b WHERE b.k = a.k) m USING (k)",
    ],
)
def test_refusals_have_a_hint(text: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        bind(f"SELECT 1 AS one FROM {text}", STREAMS)
    assert (caught.value.code, bool(caught.value.hint)) == ("lateral", True)

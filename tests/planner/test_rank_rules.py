"""What the optimizer makes of places: a limit where a condition says one, and no places where nobody asks for them."""

from __future__ import annotations

import pytest

from strandline.core.types import INT, TIMESTAMP
from strandline.logical.catalog import Catalog
from strandline.logical.explain import show_plan
from strandline.planner.stages import optimize
from strandline.sql import ast
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one
from support import Arrivals

S = Arrivals("s", (("k", INT), ("x", INT), ("ts", TIMESTAMP)), ())


def optimised(text: str) -> list[str]:
    catalog = Catalog()
    catalog.add(S.declared)
    statement = parse_one(text)
    assert isinstance(statement, ast.Query)
    return [line.strip() for line in show_plan(optimize(bind_query(statement, catalog))).splitlines()]


def ranked(condition: str, listed: str = "k, x") -> list[str]:
    """The operators between the outputs and the window."""
    inner = "SELECT *, RANK() OVER (PARTITION BY k ORDER BY x DESC) AS p FROM s [RANGE 1 MINUTE]"
    lines = optimised(f"SELECT {listed} FROM ({inner}) AS r{' WHERE ' if condition else ''}{condition}")
    return [line for line in lines if line.startswith(("Filter", "TopRows", "Rank", "TimeWindow"))]


TOP = "TopRows {} by s.x desc of each s.k"
RANK = "Rank rank by s.x desc of each s.k"


@pytest.mark.parametrize(
    ("condition", "limit"),
    [
        ("p <= 10", 10),
        ("p < 10", 9),
        ("10 >= p", 10),
        ("10 > p", 9),
        ("p = 1", 1),
        ("1 = p", 1),
        ("p BETWEEN 1 AND 3", 3),
        ("p <= 10 AND p < 4", 3),
        ("p >= 0 AND p <= 2", 2),
    ],
)
def test_a_limit_makes_first_rows(condition: str, limit: int) -> None:
    assert ranked(condition)[0] == TOP.format(limit)
    assert len(ranked(condition)) == 2


@pytest.mark.parametrize(
    ("condition", "rest", "limit"),
    [
        ("p = 3", "Filter rank = 3", 3),
        ("p BETWEEN 2 AND 3", "Filter rank >= 2", 3),
        ("p <= 0", "Filter rank <= 0", 1),
        ("p < 4 AND p <> 2", "Filter rank <> 2", 3),
        ("p <= 5 AND p + x > 3", "Filter rank + CAST(s.x AS BIGINT) > 3", 5),
    ],
)
def test_a_limit_beside_other_questions_about_places(condition: str, rest: str, limit: int) -> None:
    assert ranked(condition)[:2] == [rest, f"{RANK}, up to {limit}"]


@pytest.mark.parametrize("condition", ["p > 3", "p <= x", "p <= 3 OR x = 1", "p <> 1", "p <= 2.5", "p IN (1, 2)"])
def test_no_limit(condition: str) -> None:
    assert ranked(condition)[1] == RANK


def test_conditions_on_the_partition_go_before_the_ranking_and_others_do_not() -> None:
    assert ranked("p <= 2 AND k > 7 AND x > 5") == ["Filter s.x > 5", TOP.format(2), "TimeWindow range 1 MINUTE",
                                                    "Filter s.k > 7"]  # fmt: skip
    assert "Filter s.k > 7" in ranked("p > 2 AND k > 7")[2:]


def test_places_that_nobody_reads_are_not_counted() -> None:
    assert ranked("") == ["TimeWindow range 1 MINUTE"]
    assert ranked("p <= 2", "k, p")[0] == f"{RANK}, up to 2"


def test_the_first_rows_in_an_order_let_no_condition_through() -> None:
    lines = optimised("SELECT k FROM (SELECT k, x FROM s [RANGE 1 MINUTE] ORDER BY x LIMIT 2) AS t WHERE k > 1")
    assert next(line for line in lines if not line.startswith("Map")) == "Filter t.k > 1"


def test_a_limit_reaches_a_ranking_below_a_join() -> None:
    inner = "SELECT k, RANK() OVER (ORDER BY x) AS p FROM s [RANGE 1 MINUTE]"
    lines = optimised(f"SELECT a.k FROM ({inner}) AS a JOIN s [RANGE 1 MINUTE] AS b ON a.k = b.k WHERE a.p <= 3")
    assert "TopRows 3 by s.x" in lines

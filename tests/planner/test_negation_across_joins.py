"""Negation and joins: where they commute, where they do not, and that the cost decides where they do.

Golab and Özsu show two plans for one query, (L1 ⋈ L3) − L2 and (L1 − L2) ⋈ L3 (figure 6), with a negation that leaves
v1 − v2 of the v1 elements of a value (equation 1). Those are two queries. With an anti join they are one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeGuard

import pytest

from plan_cases import Case, plan_queries
from strandline.core.types import INT
from strandline.logical.plan import Distinct, Join, Plan, SemiJoin
from strandline.logical.reference.interpreter import snapshot
from strandline.logical.tree import walk
from strandline.planner.alternatives import neighbours
from support import Arrivals, arrange, assert_exact, bind, raw, run_plan

W = "[RANGE 10 MICROSECONDS]"
JOIN_FIRST = f"SELECT a.v FROM l1 {W} a JOIN l3 {W} c ON a.v = c.v EXCEPT ALL SELECT v FROM l2 {W}"
NEGATION_FIRST = (
    f"SELECT d.v FROM (SELECT v FROM l1 {W} EXCEPT ALL SELECT v FROM l2 {W}) AS d JOIN l3 {W} c ON d.v = c.v"
)
BOTH_JOINED = (
    f"SELECT a.v FROM l1 {W} a JOIN l3 {W} c ON a.v = c.v "
    f"EXCEPT ALL SELECT b.v FROM l2 {W} b JOIN l3 {W} c ON b.v = c.v"
)
ANTI_JOIN_LAST = (
    f"SELECT a.v FROM l1 {W} a JOIN l3 {W} c ON a.v = c.v WHERE NOT EXISTS (SELECT 1 FROM l2 {W} b WHERE a.v = b.v)"
)
ANTI_JOIN_FIRST = (
    f"SELECT d.v FROM (SELECT v FROM l1 {W} a WHERE NOT EXISTS (SELECT 1 FROM l2 {W} b WHERE a.v = b.v)) AS d "
    f"JOIN l3 {W} c ON d.v = c.v"
)


def links() -> list[Arrivals]:
    """Value 7 is three times in the first link, twice in the third, and from instant 4 on once in the second."""
    return [
        arrange("l1", {"v": INT}, [(0, 0, (7,)), (1, 0, (7,)), (2, 0, (7,)), (2, 0, (8,))], 0),
        arrange("l2", {"v": INT}, [(4, 0, (7,)), (5, 0, (9,))], 0),
        arrange("l3", {"v": INT}, [(0, 0, (7,)), (3, 0, (7,)), (3, 0, (8,))], 0),
    ]


def counts(text: str, at: int) -> Counter[object]:
    plan = bind(text, links())
    return Counter(row["v"] if "v" in row else next(iter(row.values())) for row in snapshot(plan, raw(links()), at))


def test_equation_1_does_not_commute_with_a_join() -> None:
    """At instant 3 the third link has two 7s and the second none: six pairs, in both plans. At instant 4 one 7 comes in
    the second link. Six pairs less one are five. Two elements, three less one, in pairs with two are four."""
    assert counts(JOIN_FIRST, 3) == counts(NEGATION_FIRST, 3) == {7: 6, 8: 1}
    assert counts(JOIN_FIRST, 4) == {7: 5, 8: 1}
    assert counts(NEGATION_FIRST, 4) == {7: 4, 8: 1}
    # At instant 10 the first 7 of both links has left: (2 · 1) - 1 pairs, and (2 - 1) · 1.
    assert counts(JOIN_FIRST, 10) == counts(NEGATION_FIRST, 10) == {7: 1, 8: 1}


def test_the_difference_of_pairs_is_that_of_elements_where_both_sides_are_joined() -> None:
    """6 - 2 = (3 - 1) · 2"""
    for at in range(16):
        assert counts(BOTH_JOINED, at) == counts(NEGATION_FIRST, at)


def test_an_anti_join_commutes_with_a_join() -> None:
    assert counts(ANTI_JOIN_LAST, 3) == counts(ANTI_JOIN_FIRST, 3) == {7: 6, 8: 1}
    assert counts(ANTI_JOIN_LAST, 4) == counts(ANTI_JOIN_FIRST, 4) == {8: 1}
    for at in range(16):
        assert counts(ANTI_JOIN_LAST, at) == counts(ANTI_JOIN_FIRST, at)


@pytest.mark.parametrize("text", [JOIN_FIRST, NEGATION_FIRST, BOTH_JOINED, ANTI_JOIN_LAST, ANTI_JOIN_FIRST])
def test_the_engine_and_every_rule_keep_the_numbers(text: str) -> None:
    plan = bind(text, links())
    assert_exact(plan, raw(links()), run_plan(plan, links(), optimised=True))
    others = [other for _, other in neighbours(plan)]
    assert others
    for other in others:
        assert_exact(plan, raw(links()), run_plan(other, links(), optimised=False))


# ---- the cost decides ------------------------------------------------------------------------------------------------

LONG = "WINDOW(RANGE 10 MINUTES)"
TEST_LAST = (
    f"SELECT a.v FROM l1 {LONG} a JOIN l3 {LONG} c ON a.v = c.v "
    f"WHERE NOT EXISTS (SELECT 1 FROM l2 {LONG} b WHERE a.v = b.v)"
)
TEST_FIRST = (
    f"SELECT d.v FROM (SELECT v FROM l1 {LONG} a WHERE NOT EXISTS (SELECT 1 FROM l2 {LONG} b WHERE a.v = b.v)) AS d "
    f"JOIN l3 {LONG} c ON d.v = c.v"
)


def chosen(text: str, rates: tuple[float, float, float], values: int = 1000) -> Plan:
    """The plan of a query where the three links have these rates, and so many values each."""
    declarations = "\n".join(
        f"CREATE STREAM l{number} (v BIGINT, w BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts "
        f"WITH (rate = {rate}, distinct(v) = {values}, distinct(w) = 10);"
        for number, rate in enumerate(rates, start=1)
    )
    [query] = plan_queries(Case(Path(), declarations, "", text, ())).queries
    return query.optimized


def anti_join_is_last(plan: Plan) -> bool:
    [anti] = [node for node in walk(plan) if isinstance(node, SemiJoin)]
    return any(isinstance(node, Join) for node in walk(anti.left))


@pytest.mark.parametrize("text", [TEST_LAST, TEST_FIRST])
def test_an_anti_join_stands_where_it_is_cheaper(text: str) -> None:
    """It goes below the join where it leaves little of a join that makes many pairs; and above it where the join leaves
    little: elements that end early are followed by fewer operators."""
    assert not anti_join_is_last(chosen(text, (1000, 1000, 1000)))
    assert anti_join_is_last(chosen(text, (1000, 1000, 0.01)))


DISTINCT_PAIRS = f"SELECT DISTINCT a.v, a.w AS x, c.w AS y FROM l1 {LONG} a JOIN l3 {LONG} c ON a.v = c.v"


def test_duplicates_are_removed_where_it_is_cheaper() -> None:
    """Below the join where there are many of them; then no pair occurs twice. Above it where there are few."""
    few_values = chosen(DISTINCT_PAIRS, (1000, 1, 1000))
    assert sum(isinstance(node, Distinct) for node in walk(few_values)) == 2
    assert all(any(isinstance(n, Distinct) for n in walk(join.left)) for join in walk(few_values) if is_join(join))
    many_values = chosen(DISTINCT_PAIRS, (1000, 1, 1000), values=1_000_000)
    assert sum(isinstance(node, Distinct) for node in walk(many_values)) == 1
    assert not any(isinstance(n, Distinct) for join in walk(many_values) if is_join(join) for n in walk(join))


def is_join(plan: Plan) -> TypeGuard[Join]:
    return isinstance(plan, Join)

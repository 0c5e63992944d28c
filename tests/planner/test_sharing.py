"""What a filter and the map above it have in common is computed once, where it is dear."""

from __future__ import annotations

from strandline.core.types import INT, VARCHAR
from strandline.logical.explain import show_plan
from strandline.planner.stages import optimize
from support import Arrivals, arrange, assert_exact, bind, raw, run_plan

S: Arrivals = arrange(
    "s", {"a": VARCHAR, "b": INT}, [(t, 0, (text, t % 3)) for t, text in enumerate(["id=1", None, "x", "id=22", ""])], 0
)
DEAR = """
SELECT b, id, upper(id) AS big
  FROM (SELECT b, substring(a FROM 'id=([0-9]+)') AS id FROM s WINDOW(RANGE 2 MICROSECONDS)) AS t
 WHERE id IS NOT NULL AND b < 2
"""
CHEAP = "SELECT c, c * 2 AS d FROM (SELECT b + 1 AS c FROM s WINDOW(RANGE 2 MICROSECONDS)) AS t WHERE c > 1"


def test_a_dear_part_of_a_filter_and_a_map_is_a_column() -> None:
    plan = optimize(bind(DEAR, [S]))
    shown = show_plan(plan)
    assert shown.count("id=([0-9]+)") == 1
    assert "Filter NOT shared 0 of s.a IS NULL AND s.b < 2" in shown
    assert optimize(plan) == plan


def test_a_cheap_part_is_computed_twice() -> None:
    assert "shared" not in show_plan(optimize(bind(CHEAP, [S])))


def test_the_answer_is_the_same() -> None:
    for text in (DEAR, CHEAP):
        plan = bind(text, [S])
        assert_exact(plan, raw([S]), run_plan(plan, [S]), run_plan(plan, [S], optimised=False))

"""Facts about plans, held against what really comes out of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from random_streams import cut
from strandline.core.temporal import FOREVER
from strandline.core.types import INT, VARCHAR
from strandline.logical.properties.temporal import is_point_stream, lasts
from strandline.planner.stages import optimize
from strategies import Question, question
from support import arrange, bind, examples, run_plan

BLOCK = 40


def check(asked: Question, dice: Random) -> tuple[bool, bool]:
    """Every fact that a plan gives about itself, before and after optimization."""
    plan = bind(asked.text, asked.streams)
    elements = run_plan(plan, asked.streams, cut(dice, asked.streams)).elements
    for same in (plan, optimize(plan)):
        if is_point_stream(same):
            assert all(end - start == 1 for _, start, end in elements)
        if lasts(same):
            assert all(end == FOREVER for _, _, end in elements)
    return is_point_stream(plan), lasts(plan)


@pytest.mark.parametrize("first", range(0, examples(5) * BLOCK, BLOCK))
def test_what_a_plan_says_about_itself_is_true(first: int) -> None:
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        try:
            seen[check(asked, dice)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert len(seen) >= 2, "the plans differ in how long their elements are valid"


# ---- each operator ---------------------------------------------------------------------------------------------------

L, R = (arrange(name, {"k": INT, "x": VARCHAR}, [(0, 0, (1, "a"))], 0) for name in ("l", "r"))
A, B = "l WINDOW(RANGE 8 MICROSECONDS)", "r WINDOW(RANGE 3 MICROSECONDS)"

POINT_STREAMS = {
    "SELECT x FROM l": True,
    "SELECT DISTINCT x FROM l": True,
    "SELECT k, COUNT(*) AS n FROM l GROUP BY k": True,
    f"SELECT l.x FROM l JOIN {B} ON l.k = r.k": True,
    f"SELECT l.x FROM l LEFT JOIN {B} ON l.k = r.k": True,
    f"SELECT x FROM l EXCEPT SELECT x FROM {B}": True,
    "SELECT x FROM l ORDER BY x LIMIT 1": True,
    f"SELECT x FROM {A} INTERSECT SELECT x FROM r": True,
    f"SELECT x FROM {A}": False,
    f"SELECT x FROM {A} GRANULARITY(4 MICROSECONDS)": False,
    "SELECT x FROM l WINDOW(ROWS 2)": False,
    "SELECT x FROM l WINDOW(SESSION 3 MICROSECONDS)": False,
    "SELECT COUNT(*) AS n FROM l": False,
    f"SELECT x FROM l UNION MAX SELECT x FROM {B}": False,
    "SELECT x FROM DSTREAM(SELECT x FROM l [RANGE 3 MICROSECONDS]) AS d [RANGE 5 MICROSECONDS]": False,
}


@pytest.mark.parametrize("text", POINT_STREAMS)
def test_point_streams(text: str) -> None:
    assert is_point_stream(bind(text, [L, R])) == POINT_STREAMS[text]

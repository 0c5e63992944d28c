"""Facts about plans, held against what really comes out of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from random_streams import cut
from strandline.core.temporal import FOREVER
from strandline.logical.properties.temporal import is_chronon_stream, never_expires
from strandline.planner.stages import optimize
from strategies import Question, question
from support import bind, examples, run_plan

BLOCK = 40


def check(asked: Question, dice: Random) -> str:
    """Every fact that a plan gives about itself, before and after optimization."""
    plan = bind(asked.text, asked.streams)
    elements = run_plan(plan, asked.streams, cut(dice, asked.streams)).elements
    for same in (plan, optimize(plan)):
        if is_chronon_stream(same):
            assert all(end - start == 1 for _, start, end in elements)
        if never_expires(same):
            assert all(end == FOREVER for _, _, end in elements)
    return "instants" if is_chronon_stream(plan) else "endless" if never_expires(plan) else "other"


@pytest.mark.parametrize("first", range(0, examples(5) * BLOCK, BLOCK))
def test_what_a_plan_says_about_itself_is_true(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        try:
            seen[check(asked, dice)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert seen["instants"] and seen["other"], "the plans differ in how long their elements are valid"

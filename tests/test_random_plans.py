"""Whole queries, written at random, against the executable meaning of the algebra.

Whatever the query, the streams, the batches, the buckets and the disorder: optimised or not, the answer at every instant
is the plain SQL answer over the window contents at that instant.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from strategies import Question, cut, question
from support import assert_exact, bind, examples, raw, run_plan

BLOCK = 25


def check(asked: Question, dice: Random) -> int:
    """Run a question twice, cut in two ways; returns how many elements it has for an answer."""
    plan = bind(asked.text, asked.streams)
    optimised = run_plan(plan, asked.streams, cut(dice, asked.streams))
    as_written = run_plan(plan, asked.streams, cut(dice, asked.streams), optimised=False)
    assert_exact(plan, raw(asked.streams), optimised, as_written)
    return len(optimised.elements)


@pytest.mark.parametrize("first", range(0, examples(10) * BLOCK, BLOCK))
def test_every_query_means_its_snapshots(first: int) -> None:
    found = 0
    for seed in range(first, first + BLOCK):
        dice = Random(seed)
        asked = question(dice)
        try:
            found += check(asked, dice)
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    assert found > BLOCK, "the queries have answers to compare"


@settings(max_examples=examples(20))
@given(st.randoms(use_true_random=False))
def test_every_small_query_means_its_snapshots(dice: Random) -> None:
    """The same with dice that make a failing example small."""
    asked = question(dice)
    note(asked.text)
    check(asked, dice)

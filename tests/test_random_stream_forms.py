"""Random queries whose FROM begins with a form of `stream_forms.py`, against the definition, at every instant.

Many more of them are judged by databases: `python tests/fuzz.py 1000 --about asof`.
"""

from __future__ import annotations

from random import Random

import pytest

from fuzz import bound_question
from random_streams import cut
from strategies import question
from stream_forms import FORMS
from support import assert_exact, examples, raw, run_plan


@pytest.mark.parametrize("block", range(examples(4)))
def test_forms_have_the_snapshots_of_the_definition(block: int) -> None:
    instants = 0
    for seed in range(block * 15, block * 15 + 15):
        dice = Random(seed)
        asked = question(dice, False, FORMS)
        cuts = cut(dice, asked.streams)
        plan = bound_question(asked).plan
        try:
            instants += assert_exact(plan, raw(asked.streams), run_plan(plan, asked.streams, cuts))
        except BaseException as error:
            error.add_note(f"seed {seed}, {cuts}\n{asked.text}")
            raise
    assert instants > 50

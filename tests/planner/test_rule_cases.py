"""What every rule makes of a plan, and where it must not fire: `rules/<rule>.case`."""

from __future__ import annotations

import pytest

from fuzz_optimizer import RULES as ALL_RULES
from plan_cases import RULE_STREAMS, Case, declare_streams, explain_difference, make_rule_sections, read_rule_cases
from rule_testing import some_streams
from strandline.logical.catalog import BaseStream

CASES = read_rule_cases()
# The order of joins is no rule of a stage; its file has the name of the function.
RULES = {"order_joins" if rule == "order of joins" else rule for rule in ALL_RULES}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_rule_makes_the_expected_plans(case: Case) -> None:
    sections = make_rule_sections(case)
    difference = explain_difference(case, sections)
    if difference is not None:
        pytest.fail(difference, pytrace=False)
    # After an update nothing differs: a case still has to say itself that its rule does not fire.
    fires = any(section.name == "after" for section in sections)
    assert fires == (case.refusal is None), f"the rule {'fires' if fires else 'does not fire'}"


def test_every_rule_has_a_case_where_it_fires_and_one_where_it_does_not() -> None:
    assert {case.file.stem for case in CASES if case.refusal is None} == RULES
    assert {case.file.stem for case in CASES if case.refusal is not None} == RULES


def test_titles_are_unique_within_a_file() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_streams_of_the_cases_are_those_that_check_the_meaning_of_rules() -> None:
    """`tests/planner/test_rules.py` runs the firing cases over random streams with the same columns."""
    declared = [stream for stream in declare_streams(RULE_STREAMS.read_text()) if isinstance(stream, BaseStream)]
    drawn = [stream.declared for stream in some_streams(0)]
    assert [(each.name, each.columns) for each in declared] == [(each.name, each.columns) for each in drawn]

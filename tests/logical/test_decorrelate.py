"""Decorrelation: a plan with Apply, evaluated for each row of the left, has the snapshots of the joins made of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from rule_testing import differ, some_streams
from strandline.logical.decorrelate import decorrelate
from strandline.logical.explain import show_plan
from strandline.logical.plan import Apply, Plan
from strandline.logical.schema import Ids
from strandline.logical.tree import walk
from strategies import question
from support import bind, examples

CASES = [
    pytest.param(*rest.split("\n----\n"), id=title)
    for title, _, rest in (
        part.partition("\n") for part in Path(__file__).with_name("decorrelate.case").read_text().split("\n-- ")[1:]
    )
]
Pair = tuple[Plan, Plan]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """What the binder decorrelates: the plans with Apply, and those without."""
    decorrelated: list[Pair] = []

    def note(plan: Plan, ids: Ids) -> Plan:
        joined = decorrelate(plan, ids)
        if joined is not plan:
            decorrelated.append((plan, joined))
        return joined

    monkeypatch.setattr("strandline.sql.binder.binder.decorrelate", note)
    return decorrelated


@pytest.mark.parametrize(("query", "applied", "joined"), CASES)
def test_an_apply_becomes_joins(query: str, applied: str, joined: str, pairs: list[Pair]) -> None:
    bind(query, some_streams(1))
    assert [(show_plan(before), show_plan(after)) for before, after in pairs] == [(applied, joined.strip("\n"))]


@pytest.mark.parametrize(("query", "applied", "joined"), CASES)
def test_the_joins_have_the_same_snapshots(query: str, applied: str, joined: str, pairs: list[Pair]) -> None:
    for seed in range(examples(6)):
        streams = some_streams(seed)
        bind(query, streams)
        assert not differ(*pairs.pop(), streams), f"seed {seed}"


@pytest.mark.parametrize("seed", range(examples(40)))
def test_random_subqueries_have_the_same_snapshots(seed: int, pairs: list[Pair]) -> None:
    asked = question(Random(seed))
    bind(asked.text, asked.streams)
    for before, after in pairs:
        assert not any(isinstance(node, Apply) for node in walk(after))
        assert not differ(before, after, list(asked.streams))

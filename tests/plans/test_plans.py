"""From SQL to the physical plan, step by step: the plans of `*.case`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from plan_cases import Case, explain_difference, make_plan_sections, plan_queries, read_plan_cases
from strandline.logical import plan as logical
from strandline.logical.tree import walk
from strandline.planner.physical import plan as physical

CASES = read_plan_cases()

# An exchange becomes the route between two fragments; converters are where a form is forced.
NEVER_IN_A_PLAN = {physical.Exchange, physical.AsChanges, physical.AsIntervals}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_query_has_the_expected_plans(case: Case) -> None:
    difference = explain_difference(case, make_plan_sections(case))
    if difference is not None:
        pytest.fail(difference, pytrace=False)


def test_titles_are_unique_within_a_file() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.fixture(scope="module")
def logical_nodes() -> list[logical.Plan]:
    planned = [query for case in CASES for query in plan_queries(case).queries]
    return [node for query in planned for plan in (query.logical, query.optimized) for node in walk(plan)]


@pytest.fixture(scope="module")
def fragments() -> list[physical.Fragment]:
    return [fragment for case in CASES for fragment in plan_queries(case).physical.fragments]


def walk_physical(node: physical.Node) -> Iterator[physical.Node]:
    yield node
    for source in physical.sources(node):
        yield from walk_physical(source)


def test_cases_have_every_logical_node(logical_nodes: list[logical.Plan]) -> None:
    # The binder has made joins of every Apply: those are in algebra/decorrelate.case.
    assert {type(node) for node in logical_nodes} == set(get_args(logical.Plan)) - {logical.Apply}


def test_cases_have_every_kind_of_logical_node(logical_nodes: list[logical.Plan]) -> None:
    kinds = {node.kind for node in logical_nodes if isinstance(node, logical.SetOperation)}
    assert kinds == set(get_args(logical.SetKind))
    changes = {node.kind for node in logical_nodes if isinstance(node, logical.Changes)}
    assert changes == set(get_args(logical.ChangeKind))


def test_cases_have_every_physical_node(fragments: list[physical.Fragment]) -> None:
    nodes = {type(node) for fragment in fragments for node in walk_physical(fragment.root)}
    assert nodes == set(get_args(physical.Node)) - NEVER_IN_A_PLAN


def test_cases_have_every_kind_of_join_and_exchange(fragments: list[physical.Fragment]) -> None:
    nodes = [node for fragment in fragments for node in walk_physical(fragment.root)]
    assert {node.kind for node in nodes if isinstance(node, physical.OuterHashJoin)} == set(
        get_args(physical.MatchKind)
    )
    modes = {fragment.route.mode for fragment in fragments if isinstance(fragment.route, physical.ExchangeTo)}
    assert modes == set(get_args(physical.Mode))

"""Every rule keeps the answer: the queries on which it fires, over random streams, and what would be wrong where it
must not fire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from plan_cases import Case, apply_rule, read_rule_cases
from rule_testing import differ, made_by, some_streams
from strandline.core.types import INT
from strandline.functions.registry import FUNCTIONS
from strandline.logical.expressions import substitute
from strandline.logical.plan import (
    Aggregate,
    CountWindow,
    Distinct,
    Filter,
    Join,
    Map,
    OuterJoin,
    Plan,
    SemiJoin,
    SessionWindow,
    SetOperation,
    Union,
)
from strandline.logical.reference.interpreter import bag
from strandline.logical.schema import pass_on, rename, schema
from strandline.logical.tree import sources, transform_up, walk, with_sources
from strandline.planner.rules.prune_columns import prune_columns
from strandline.planner.rules.window import push_window_below_union
from strandline.planner.stages import optimize
from support import arrange, assert_exact, bind, examples, raw, run_plan, show
from table_testing import some_tables

A, B = "s0 [RANGE 7 MICROSECONDS] a", "s1 [RANGE 5 MICROSECONDS] b"

# The queries on which rules fire are in `tests/planner/rules`. The order of joins is checked by `test_join_order.py`.
FIRING = [case for case in read_rule_cases() if case.refusal is None and case.file.stem != "order_joins"]


@pytest.mark.parametrize("case", FIRING, ids=[case.name for case in FIRING])
def test_rule_fires_and_keeps_the_answer(case: Case) -> None:
    for seed in range(examples(6)):
        streams = [*some_streams(seed), *some_tables(seed)]
        plan = bind(case.query, streams)
        prepared = made_by(case.prepared_by, plan)
        others = [other for each in prepared for other in apply_rule(case.file.stem, each)]
        assert others, "the rule fires"
        for other in others:
            assert schema(other) == schema(plan)
            assert not differ(plan, other, streams), f"seed {seed}"


# ---- where a rule must not fire: the cases of `tests/planner/rules`, and what they cannot say ------------------------


def test_a_window_by_rows_does_not_see_its_source_change_its_order() -> None:
    """Below it a rule may not bring back the order of arrival: rows of one instant go by their values there."""
    plan = bind("SELECT i, s FROM (SELECT i, s FROM s0 UNION MAX SELECT i, s FROM s0) [ROWS 2] AS u", some_streams(0))
    assert made_by(["merge_same_sides"], plan) == []
    assert optimize(plan) != plan
    assert any(type(node).__name__ == "SetOperation" for node in walk(optimize(plan)))


def test_which_functions_tell_zeros_apart() -> None:
    """All others, where they take a DOUBLE and give no text, give equal results for 0 and -0."""
    some = (0.0, -0.0, 1.0, -1.0, 2, -3, "9D9", (0.0,), (-0.0,))
    apart = set()
    for name, function in FUNCTIONS.items():
        for arguments in (each for size in (1, 2, 3) for each in product(some, repeat=size)):
            positive = tuple(abs(x) if x == 0 else (0.0,) if x == (0.0,) else x for x in arguments)
            try:
                one, two = function.meaning(*arguments), function.meaning(*positive)
            except Exception:  # it takes no such arguments
                continue
            if not isinstance(one, str) and bag([(one,)]) != bag([(two,)]):
                apart.add(name)
    assert apart == {"atan2"}


# ---- the law does not hold there: what would be wrong with it --------------------------------------------------------


def filter_below_window(plan: Plan) -> Plan:
    """What no rule does: a filter below a window by rows or a session."""
    match plan:
        case Filter(predicate, CountWindow() | SessionWindow() as window):
            return replace(window, source=Filter(predicate, window.source))
    return plan


def window_below_union(plan: Plan) -> Plan:
    """What no rule does: a window by rows or a session below a union."""
    match plan:
        case CountWindow() | SessionWindow() if isinstance(plan.source, Union):
            return with_sources(plan.source, tuple(replace(plan, source=each) for each in sources(plan.source)))
    return plan


def map_below_window(plan: Plan) -> Plan:
    """What no rule does: a map below a window by rows that goes by values."""
    match plan:
        case Map(outputs, CountWindow() as window):
            return replace(window, source=Map(outputs, window.source))
    return plan


def outer_join_rotated(plan: Plan) -> Plan:
    """What no rule does: outer joins associate whatever their conditions are."""
    match plan:
        case OuterJoin(outer_full, q, OuterJoin(inner_full, p, a, b), c):
            return OuterJoin(inner_full, p, a, OuterJoin(outer_full, q, b, c))
    return plan


def match_before_match(plan: Plan) -> Plan:
    """What no rule does: an anti join passes a full join."""
    match plan:
        case SemiJoin() | OuterJoin() if isinstance(plan.left, OuterJoin):
            inner = plan.left
            changed = replace(inner, left=replace(plan, left=inner.left))
            return changed if schema(changed) == schema(plan) else Map(pass_on(schema(plan)), changed)
    return plan


def match_above_group(plan: Plan) -> Plan:
    """What no rule does: a group of all is tested instead of its elements."""
    match plan:
        case Aggregate(_, _, SemiJoin() as inner):
            return replace(inner, left=replace(plan, source=inner.left))
    return plan


def join_below_difference(plan: Plan) -> Plan:
    """What no rule does: EXCEPT of pairs instead of pairs of an EXCEPT, whatever duplicates the other side has."""
    match plan:
        case Join(condition, SetOperation(kind, columns, one, two), right) if condition is not None:
            sides = [
                Join(substitute(condition, {c.id: value for c, value in rename(schema(side), columns)}), side, right)
                for side in (one, two)
            ]
            return SetOperation(kind, schema(plan), *sides)
    return plan


def distinct_below_full_join(plan: Plan) -> Plan:
    """What no rule does: a full join of sides without duplicates has none either."""
    match plan:
        case Distinct(Map(outputs, OuterJoin() as join)):
            return Map(outputs, replace(join, left=Distinct(join.left), right=Distinct(join.right)))
    return plan


NULLS = "SELECT CASE WHEN a.i > 0 THEN a.i END AS i FROM s0 [RANGE 7 MICROSECONDS] a"
THREE = f"SELECT a.i, b.s, c.b FROM {A} LEFT JOIN {B} ON a.i = b.i"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (outer_join_rotated, f"{THREE} LEFT JOIN s0 [ROWS 2] c ON COALESCE(b.s, 'a') = c.s"),
        (outer_join_rotated, f"{THREE} FULL JOIN s0 [ROWS 2] c ON b.s = c.s"),
        (match_before_match, f"SELECT a.i, b.s FROM {A} FULL JOIN {B} ON a.i = b.i WHERE NOT EXISTS (SELECT 1 FROM "
                             "s0 [ROWS 2] c WHERE a.s = c.s)"),
        (match_before_match, f"SELECT a.i, b.s, c.b FROM {A} LEFT JOIN {B} ON COALESCE(a.i, 1) = b.i FULL JOIN "
                             "s0 [ROWS 2] c ON a.s = c.s"),
        (match_above_group, f"SELECT COUNT(*) AS n FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE b.i > 0)"),
        (join_below_difference, f"SELECT d.i, c.b FROM (SELECT i FROM {A} EXCEPT SELECT i FROM s1) AS d JOIN "
                                "(SELECT i, 1 AS b FROM s0 [ROWS 4] c) AS c ON d.i = c.i"),
        (distinct_below_full_join, f"SELECT DISTINCT * FROM ({NULLS}) AS x FULL JOIN ({NULLS}) AS y ON x.i = y.i + 1"),
        (filter_below_window, "SELECT i FROM s0 [ROWS 2] WHERE i > 0"),
        (filter_below_window, "SELECT i FROM s0 [PARTITION BY s ROWS 1] WHERE i > 0"),
        (filter_below_window, "SELECT i FROM s0 [SESSION 3 MICROSECONDS] WHERE i > 0"),
        (window_below_union, "SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [ROWS 2] AS u"),
        (window_below_union, "SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [SESSION 3 MICROSECONDS] u"),
        (map_below_window, "SELECT s FROM (SELECT i, s FROM s0 UNION ALL SELECT i, s FROM s1) [ROWS 1] AS u"),
    ],
)  # fmt: skip
def test_what_is_forbidden_would_be_wrong(wrong: Callable[[Plan], Plan], text: str) -> None:
    """The random streams of this file show it, so they would show a wrong rule, too."""
    found = 0
    for seed in range(12):
        streams = some_streams(seed)
        plan = bind(text, streams)
        other = transform_up(plan, wrong)
        assert other != plan
        found += differ(plan, other, streams)
    assert found > 0


def test_a_window_of_time_is_no_hindrance() -> None:
    streams = some_streams(3)
    plan = bind("SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [RANGE 2 MICROSECONDS] AS u", streams)
    [window] = [node for node in walk(plan) if push_window_below_union(node) is not None]
    other = push_window_below_union(window)
    assert other is not None and not differ(window, other, streams)


# ---- kept examples ---------------------------------------------------------------------------------------------------


def test_a_window_over_the_first_change_of_an_aggregate() -> None:
    """The row of an aggregate without keys comes with the first row of any stream, here of another one. A window over
    its changes has it then, too, be it one of an instant, which is dropped."""
    text = """
        SELECT t.n FROM s1 [RANGE 8 MICROSECONDS] x CROSS JOIN
          (ISTREAM(SELECT COUNT(*) AS n FROM s0)) [RANGE 1 MICROSECOND] AS t
    """
    late = arrange("s0", {"i": INT}, [(9, 0, (1,))], 0)
    early = arrange("s1", {"i": INT}, [(3, 0, (1,)), (12, 0, (2,))], 0)
    plan = bind(text, [late, early])
    [other] = made_by(["drop_default_window"], plan)
    assert not differ(plan, other, [late, early])
    for same in (plan, other):
        answer = run_plan(same, [late, early], optimised=False)
        assert_exact(plan, raw([late, early]), answer)
        assert show(answer.elements) == "0[3,4) 1[9,10) 0[10,11)"


def test_nothing_removes_copies_of_elements_without_columns() -> None:
    streams = some_streams(1)
    plan = bind(f"SELECT DISTINCT a.i, 1 AS one FROM {A} CROSS JOIN {B}", streams)
    pruned = prune_columns(plan)
    assert any(node for node in walk(pruned) if not schema(node)), "nobody reads a column of the right side"
    others = made_by(["push_distinct_below_join"], pruned)
    assert others
    for other in others:
        assert all(schema(node.source) for node in walk(other) if isinstance(node, Distinct))
        assert_exact(plan, raw(streams), run_plan(other, streams, optimised=False))

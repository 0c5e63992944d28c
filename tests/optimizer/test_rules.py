"""Every rule: a query on which it fires, random streams on which it must not change the answer, and where it must not
fire at all because it would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from fuzz_optimizer import RULES
from rewriting import differ, made_by, some_streams
from strandline.algebra.functions import FUNCTIONS
from strandline.algebra.operators import CountWindow, Distinct, Filter, Map, Plan, SessionWindow, Union
from strandline.algebra.schema import schema
from strandline.algebra.snapshot import bag
from strandline.algebra.tree import sources, transform_up, walk, with_sources
from strandline.optimizer.pipeline import optimize
from strandline.optimizer.rules.columns import prune_columns
from strandline.optimizer.rules.window import push_window_below_union
from strandline.types import INT
from support import arrange, assert_exact, bind, examples, raw, run_plan, show

A, B = "s0 [RANGE 7 MICROSECONDS] a", "s1 [RANGE 5 MICROSECONDS] b"
BY_KEY = "(SELECT i, MAX(b) AS most FROM s1 [RANGE 9 MICROSECONDS] GROUP BY i) AS b"

# For each rule a query, and the rules that make room for it before, if the plan as written has none.
FIRES: dict[str, tuple[str, ...]] = {
    "merge_filters": ("SELECT i FROM (SELECT i, s FROM s0 WHERE s = 'a') AS t WHERE i > 0", "push_filter_below_map"),
    "swap_filters": ("SELECT i FROM s0 WHERE s = 'a' AND i > 0", "split_filter"),
    "split_filter": ("SELECT i FROM s0 WHERE s = 'a' AND i > 0",),
    "push_filter_below_map": ("SELECT j FROM (SELECT i + 1 AS j FROM s0) AS t WHERE j > 1",),
    "push_filter_below_time_window": (f"SELECT i FROM {A} WHERE i > 0",),
    "push_filter_below_partitioned_window": ("SELECT i, s FROM s0 [PARTITION BY i ROWS 2] WHERE i > 0 AND s = 'b'",),
    "push_filter_into_join": (f"SELECT a.i FROM {A}, {B} WHERE a.i = b.i AND a.b < b.b",),
    "push_condition_below_join": (f"SELECT a.i FROM {A} JOIN {B} ON a.i = b.i AND a.b > 0 AND b.s = 'b'",),
    "push_filter_below_match": (f"SELECT a.i, b.s FROM {A} LEFT JOIN {B} ON a.i = b.i WHERE a.b > 0",),
    "push_condition_below_match": (f"SELECT a.i FROM {A} LEFT JOIN {B} ON a.i = b.i AND b.s = 'b'",),
    "push_filter_below_union": ("SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) AS u WHERE i > 0",),
    "push_filter_below_set_operation": ("SELECT i FROM (SELECT i FROM s0 [ROWS 3] EXCEPT ALL SELECT i FROM s1 [ROWS 2])"
                                        " AS u WHERE i > 0",),
    "push_filter_below_distinct": (f"SELECT i FROM (SELECT DISTINCT i, s FROM {A}) AS t WHERE i > 0",),
    "push_filter_below_aggregate": (f"SELECT i, COUNT(*) AS n FROM {A} GROUP BY i HAVING i > 0",),
    "pull_filter_above_map": ("SELECT i AS j, s FROM s0 WHERE i > 0",),
    "pull_filter_above_window": ("SELECT i FROM (SELECT i FROM s0 WHERE i > 0) [RANGE 5 MICROSECONDS] AS t",
                                 "pull_filter_above_map"),
    "pull_filter_above_distinct": (f"SELECT DISTINCT i FROM {A} WHERE i > 0", "pull_filter_above_map"),
    "pull_filter_above_aggregate": (f"SELECT i, COUNT(*) AS n FROM {A} WHERE i > 0 GROUP BY i",
                                    "pull_filter_above_map"),
    "pull_filter_above_join": (f"SELECT a.i FROM {A} JOIN {B} ON a.i = b.i AND b.b > 0", "push_condition_below_join"),
    "take_filter_out_of_join": (f"SELECT a.i FROM {A} JOIN {B} ON a.i = b.i AND upper(a.s) = b.s",),
    "merge_maps": ("SELECT j + 1 AS k FROM (SELECT i + 1 AS j FROM s0) AS t",),
    "share_with_filter": ("SELECT regexp_replace(s, 'a+', 'b') AS r FROM s0 WHERE regexp_replace(s, 'a+', 'b') <> ''",),
    "push_map_below_window": ("SELECT i, upper(s) AS u FROM s0 [PARTITION BY i ROWS 2]",),
    "pull_map_above_window": ("SELECT i FROM (SELECT i, upper(s) AS u FROM s0) [PARTITION BY i ROWS 2] AS t",),
    "push_map_below_union": ("SELECT i + 1 AS j FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) AS u",),
    "pull_map_above_join": (f"SELECT a.u FROM (SELECT i, upper(s) AS u FROM {A}) AS a JOIN {B} ON a.u = b.s",),
    "push_map_below_join": (f"SELECT upper(a.s) AS u, b.b + 1 AS c, a.i + b.i AS e FROM {A} JOIN {B} ON a.i = b.i",),
    "swap_join": (f"SELECT a.i, b.s FROM {A} JOIN {B} ON a.i = b.i",),
    "exchange_in_join": (f"SELECT a.i FROM {A} JOIN {B} ON a.i = b.i JOIN s0 [ROWS 2] c ON c.s = a.s",),
    "rotate_join": (f"SELECT a.i FROM {A} JOIN {B} ON a.i = b.i JOIN s0 [ROWS 2] c ON c.s = b.s",),
    "push_distinct_below_join": (f"SELECT DISTINCT a.i FROM {A} JOIN {B} ON a.i = b.i",),
    "pull_distinct_above_join": (f"SELECT a.i FROM (SELECT DISTINCT i FROM {A}) AS a JOIN {BY_KEY} ON a.i = b.i",
                                 "pull_map_above_join"),
    "push_distinct_below_match": (f"SELECT DISTINCT a.i FROM {A} WHERE a.i IN (SELECT b.i FROM {B})",),
    "remove_copies_early": (f"SELECT DISTINCT i FROM {A}",),
    "remove_copies_of_partners": (f"SELECT a.i FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE a.i < b.i)",),
    "leave_copies": (f"SELECT i FROM {A} INTERSECT SELECT DISTINCT i FROM {B}",),
    "group_below_join": (f"SELECT a.i, SUM(a.b) AS n, COUNT(*) AS c, MIN(a.s) AS l FROM {A} JOIN {B} ON a.i = b.i"
                         " GROUP BY a.i",),
    "group_below_union": ("SELECT i, COUNT(*) AS n, MAX(b) AS m FROM (SELECT i, b FROM s0 [ROWS 3] UNION ALL "
                          "SELECT i, b FROM s1 [ROWS 4]) AS u GROUP BY i", "push_map_below_union"),
    "flatten_semi_join": (f"SELECT a.i FROM {A} WHERE a.i IN (SELECT b.i FROM {B})",),
    "join_as_semi_join": (f"SELECT a.s FROM {A} JOIN {BY_KEY} ON a.i = b.i",),
    "push_window_below_union": ("SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [RANGE 4 MICROSECONDS "
                                "SLIDE 3 MICROSECONDS] AS u",),
    "pull_window_above_union": (f"SELECT i FROM {A} UNION ALL SELECT i FROM s1 [RANGE 7 MICROSECONDS]",),
    "push_granules_down": (f"SELECT n FROM (SELECT i, COUNT(*) AS n FROM {A} GROUP BY i) GRANULARITY(3 MICROSECONDS) t",
                           "pull_map_above_window"),
    "pull_granules_up": ("SELECT DISTINCT i FROM s0 [RANGE 7 MICROSECONDS] GRANULARITY(3 MICROSECONDS)",),
    "rotate_set_operations": ("SELECT i FROM s0 [ROWS 4] INTERSECT ALL SELECT i FROM s1 [ROWS 4] INTERSECT ALL "
                              "SELECT i FROM s0 [ROWS 3]",),
    "swap_set_operation": ("SELECT i FROM s0 [ROWS 4] UNION MAX SELECT i FROM s1 [ROWS 4]",),
    "subtract_together": ("SELECT i FROM s0 [ROWS 5] EXCEPT ALL SELECT i FROM s1 [ROWS 2] EXCEPT ALL "
                          "SELECT i FROM s0 [ROWS 1]",),
    "subtract_one_by_one": ("SELECT i FROM s0 [ROWS 5] EXCEPT ALL (SELECT i FROM s1 [ROWS 2] UNION ALL "
                            "SELECT i FROM s0 [ROWS 1])",),
    "drop_default_window": ("SELECT i FROM s0 [RANGE 1 MICROSECOND]",),
    "drop_finer_granules": ("SELECT i FROM (SELECT i FROM s0 [ROWS 2] GRANULARITY(2 MICROSECONDS)) "
                            "GRANULARITY(4 MICROSECONDS) AS t", "push_granules_down"),
    "flatten_unions": ("SELECT i FROM s0 UNION ALL SELECT * FROM (SELECT i FROM s1 UNION ALL SELECT b FROM s0) AS u",
                       "push_map_below_union"),
    "merge_same_sides": ("SELECT i, s FROM s0 [ROWS 2] INTERSECT ALL SELECT i, s FROM s0 [ROWS 2]",),
    "drop_needless_distinct": (f"SELECT DISTINCT i, COUNT(*) AS n FROM {A} GROUP BY i",),
    "drop_grouping_by_key": ("SELECT i, SUM(b) AS n, COUNT(s) AS c, COUNT(*) AS e, MAX(d) AS m FROM s0 "
                             "[PARTITION BY i ROWS 1] GROUP BY i",),
    "mark_as_semi_join": (f"SELECT i FROM (SELECT a.i, EXISTS (SELECT 1 FROM {B} WHERE a.i = b.i) AS known FROM {A})"
                          " AS t WHERE NOT known AND i > 0", "push_filter_below_map"),
    "outer_join_as_join": (f"SELECT a.i, b.s FROM {A} FULL JOIN {B} ON a.i = b.i WHERE b.b + 1 > 0",),
    "push_filter_below_first_rows": (f"SELECT i, p FROM (SELECT i, RANK() OVER (PARTITION BY i ORDER BY b) AS p "
                                     f"FROM {A}) AS t WHERE i > 0", "push_filter_below_map"),
    "limit_rank_by_filter": (f"SELECT i, p FROM (SELECT i, RANK() OVER (PARTITION BY i ORDER BY b) AS p FROM {A}) AS t "
                             "WHERE p <= 2", "push_filter_below_map"),
    "push_map_below_time_window": ("SELECT i + 1 AS j FROM s0 [RANGE 3 MICROSECONDS]",),
}  # fmt: skip


def test_every_rule_has_an_example_and_a_line_in_the_docs() -> None:
    assert {*FIRES, "order of joins", "prune_columns"} == set(RULES)
    page = (Path(__file__).parents[2] / "docs" / "optimizer.md").read_text()
    assert [rule for rule in FIRES if f"`{rule}`" not in page] == []


@pytest.mark.parametrize("rule", FIRES)
def test_rule_fires_and_keeps_the_answer(rule: str) -> None:
    text, *before = FIRES[rule]
    for seed in range(examples(6)):
        streams = some_streams(seed)
        plan = bind(text, streams)
        others = made_by((*before, rule), plan)
        assert others, "the rule fires"
        for other in others:
            assert schema(other) == schema(plan)
            assert not differ(plan, other, streams), f"seed {seed}"


# ---- where a rule must not fire --------------------------------------------------------------------------------------

FORBIDDEN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a filter stays above a window by rows": (
        "SELECT i FROM s0 [ROWS 2] WHERE i > 0", "push_filter_below_partitioned_window", ()),
    "and above one whose partition is another column": (
        "SELECT i FROM s0 [PARTITION BY s ROWS 2] WHERE i > 0", "push_filter_below_partitioned_window", ()),
    "and above a session": (
        "SELECT i FROM s0 [SESSION 3 MICROSECONDS] WHERE i > 0", "push_filter_below_partitioned_window", ()),
    "a filter below a window by rows stays there": (
        "SELECT i FROM (SELECT i FROM s0 WHERE i > 0) [ROWS 2] AS t", "pull_filter_above_window",
        ("pull_filter_above_map",)),
    "a window by rows stays above a union": (
        "SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [ROWS 2] AS u", "push_window_below_union", ()),
    "so does a session": (
        "SELECT i FROM (SELECT i FROM s0 UNION ALL SELECT i FROM s1) [SESSION 3 MICROSECONDS] AS u",
        "push_window_below_union", ()),
    "windows by rows stay below a union": (
        "SELECT i FROM s0 [ROWS 2] UNION ALL SELECT i FROM s1 [ROWS 2]", "pull_window_above_union", ()),
    "so do windows of different length": (
        "SELECT i FROM s0 [RANGE 2 MICROSECONDS] UNION ALL SELECT i FROM s1 [RANGE 3 MICROSECONDS]",
        "pull_window_above_union", ()),
    "and of different slides": (
        f"SELECT i FROM {A} UNION ALL SELECT i FROM s1 [RANGE 7 MICROSECONDS SLIDE 2 MICROSECONDS]",
        "pull_window_above_union", ()),
    "a map stays above a window that is partitioned by what it drops": (
        "SELECT s FROM s0 [PARTITION BY i ROWS 2]", "push_map_below_window", ()),
    "a map stays above a window by rows that goes by values": (
        "SELECT s FROM (SELECT i, s FROM s0 UNION ALL SELECT i, s FROM s1) [ROWS 2] AS u", "push_map_below_window", ()),
    "a window of a granule is none of one instant": (
        "SELECT i FROM (SELECT i FROM s0 [ROWS 2] GRANULARITY(2 MICROSECONDS)) [RANGE 4 MICROSECONDS] AS t",
        "drop_default_window", ()),
    "a slide makes even the shortest window another": (
        "SELECT i FROM s0 [RANGE 1 MICROSECOND SLIDE 2 MICROSECONDS]", "drop_default_window", ()),
    "granules stay above an aggregate without keys": (
        "SELECT n FROM (SELECT COUNT(*) AS n FROM s0 [ROWS 3]) GRANULARITY(3 MICROSECONDS) AS t",
        "push_granules_down", ("push_granules_down",)),
    "copies count for EXCEPT ALL": (
        f"SELECT DISTINCT i FROM (SELECT i FROM {A} EXCEPT ALL SELECT DISTINCT i FROM {B}) AS u", "leave_copies", ()),
    "and for COUNT": (f"SELECT COUNT(*) AS n FROM (SELECT DISTINCT i FROM {A}) AS t", "leave_copies", ()),
    "rows of a window come twice": (f"SELECT DISTINCT i, s FROM {A}", "drop_needless_distinct", ()),
    "a filter on an aggregate stays above it": (
        f"SELECT i, COUNT(*) AS n FROM {A} GROUP BY i HAVING COUNT(*) > 1", "push_filter_below_aggregate", ()),
    "a filter stays below an aggregate without keys": (
        f"SELECT COUNT(*) AS n FROM {A} WHERE 1 > 2", "pull_filter_above_aggregate", ()),
    "sums of DOUBLEs are rounded once": (
        f"SELECT a.i, SUM(a.d) AS n FROM {A} JOIN {B} ON a.i = b.i GROUP BY a.i", "group_below_join", ()),
    "values that count once do not add up": (
        f"SELECT a.i, COUNT(DISTINCT a.s) AS n FROM {A} JOIN {B} ON a.i = b.i GROUP BY a.i", "group_below_join", ()),
    "an aggregate of both sides stays above the join": (
        f"SELECT a.i, MIN(a.s) AS l, SUM(b.b) AS n FROM {A} JOIN {B} ON a.i = b.i GROUP BY a.i",
        "group_below_join", ()),
    "without columns to group by below there would be a group over nothing": (
        f"SELECT COUNT(*) AS n FROM {A} CROSS JOIN {B}", "group_below_join", ()),
    "groups of several elements stay groups": (
        "SELECT i, SUM(b) AS n FROM s0 [PARTITION BY i ROWS 2] GROUP BY i", "drop_grouping_by_key", ()),
    "a partner that is not fixed may be one of several": (
        f"SELECT a.i FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE a.i = b.i AND a.b < b.b)", "flatten_semi_join", ()),
    "who is alone is in no pair": (
        f"SELECT a.i FROM {A} WHERE NOT EXISTS (SELECT 1 FROM {B} WHERE a.i = b.i)", "flatten_semi_join", ()),
    "a join with several partners is no test for one": (
        f"SELECT a.s FROM {A} JOIN {B} ON a.i = b.i", "join_as_semi_join", ()),
    "a mark in an OR is no filter": (
        f"SELECT i FROM (SELECT a.i, EXISTS (SELECT 1 FROM {B} WHERE a.i = b.i) AS known FROM {A}) AS t "
        "WHERE known OR i > 0", "mark_as_semi_join", ("push_filter_below_map",)),
    "a filter that lets NULL through keeps an outer join": (
        f"SELECT a.i FROM {A} LEFT JOIN {B} ON a.i = b.i WHERE b.b IS NULL", "outer_join_as_join", ()),
    "so does one that makes a value of it": (
        f"SELECT a.i FROM {A} LEFT JOIN {B} ON a.i = b.i WHERE COALESCE(b.b, 1) > 0", "outer_join_as_join", ()),
    "different operators do not rotate": (
        "SELECT i FROM s0 [ROWS 4] INTERSECT ALL SELECT i FROM s1 [ROWS 4] UNION MAX SELECT i FROM s0 [ROWS 2]",
        "rotate_set_operations", ()),
    "nor are EXCEPT and EXCEPT ALL one": (
        "SELECT i FROM s0 [ROWS 5] EXCEPT ALL SELECT i FROM s1 [ROWS 2] EXCEPT SELECT i FROM s0 [ROWS 1]",
        "subtract_together", ()),
    "sides with other windows are other sides": (
        "SELECT i FROM s0 [ROWS 2] INTERSECT SELECT i FROM s0 [ROWS 3]", "merge_same_sides", ()),
    "two zeros are one value but two texts": (
        f"SELECT DISTINCT CAST(d AS VARCHAR) AS t FROM {A}", "remove_copies_early", ()),
    "a condition that tells zeros apart does not pass DISTINCT": (
        f"SELECT d FROM (SELECT DISTINCT d FROM {A}) AS t WHERE CAST(d AS VARCHAR) = '-0'",
        "push_filter_below_distinct", ()),
    "nor a grouping": (
        f"SELECT d, COUNT(*) AS n FROM {A} GROUP BY d HAVING atan2(d, -1e0) > 0e0", "push_filter_below_aggregate", ()),
    "nor a window that is partitioned": (
        "SELECT d FROM s0 [PARTITION BY d ROWS 1] WHERE CAST(d AS VARCHAR) = '0'",
        "push_filter_below_partitioned_window", ()),
    "nor a test for partners": (
        f"SELECT a.i FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE a.s <> CAST(b.d AS VARCHAR))",
        "remove_copies_of_partners", ()),
    "finer granules over coarser ones stay": (
        "SELECT i FROM (SELECT i FROM s0 [ROWS 2] GRANULARITY(2 MICROSECONDS)) [RANGE 4 MICROSECONDS] AS t",
        "drop_finer_granules", ()),
}  # fmt: skip


@pytest.mark.parametrize("why", FORBIDDEN)
def test_rule_does_not_fire(why: str) -> None:
    text, rule, before = FORBIDDEN[why]
    plan = bind(text, some_streams(0))
    others = made_by(before, plan)
    assert not before or others, "there is a plan on which it must not fire"
    assert made_by((*before, rule), plan) == []


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


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
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

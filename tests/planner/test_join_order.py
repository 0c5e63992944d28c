"""Joins in another order mean the same; the order that is chosen goes by rates."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from rule_testing import made_by
from strandline.core.types import INT
from strandline.logical.catalog import StreamStatistics
from strandline.logical.expressions import Call, Expression, columns_of, conjuncts
from strandline.logical.plan import Join, Plan
from strandline.logical.reference.interpreter import snapshot
from strandline.logical.schema import column_ids, schema
from strandline.logical.tree import sources, streams_read, walk
from strandline.planner.join_order import join_graph_of, order_joins, rebuilt
from strandline.planner.joins.search import trees
from strandline.planner.rules.expressions import connects
from strandline.planner.stages import optimize
from support import Arrivals, Cuts, arrivals, assert_exact, bag, bind, change_instants, examples, raw, run_plan

COLUMNS = {"x": INT, "y": INT}
WINDOWS = ("", "[RANGE 4 MICROSECONDS]", "[RANGE 9 MICROSECONDS SLIDE 3 MICROSECONDS]", "[ROWS 2]", "[RANGE UNBOUNDED]")
CONDITIONS = (
    "{a}.x = {b}.x",
    "{a}.x = {b}.y",
    "{a}.x + {b}.x = {b}.y",
    "{a}.x < {b}.y",
    "{a}.x + 1 = {b}.x",
)


@st.composite
def joins(draw: st.DrawFn) -> tuple[str, list[Arrivals]]:
    """A join of three or four streams, each pair with a condition or without one, and perhaps one over three."""
    size = draw(st.integers(3, 4))
    streams = [draw(arrivals(f"s{i}", COLUMNS, most=5, high=12)) for i in range(size)]
    tables = ", ".join(f"s{i} {draw(st.sampled_from(WINDOWS))} t{i}" for i in range(size))
    parts = [
        draw(st.sampled_from(CONDITIONS)).format(a=f"t{i}", b=f"t{k}")
        for k in range(size)
        for i in range(k)
        if draw(st.booleans())
    ]
    if draw(st.booleans()):
        parts.append("t0.x + t1.y = t2.x")
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    columns = ", ".join(f"t{i}.x AS x{i}, t{i}.y AS y{i}" for i in range(size))
    return f"SELECT {columns} FROM {tables}{where}", streams


def top_join(plan: Plan) -> Join:
    return next(node for node in walk(plan) if isinstance(node, Join))


@settings(max_examples=examples(25))
@given(joins())
def test_every_order_means_the_same(asked: tuple[str, list[Arrivals]]) -> None:
    text, streams = asked
    note(text)
    join = top_join(optimize(bind(text, streams)))
    graph = join_graph_of(join)
    elements = raw(streams)
    instants = change_instants(join, elements)
    names = [c.id for c in schema(join)]
    expected = {t: bag([tuple(row[n] for n in names) for row in snapshot(join, elements, t)]) for t in instants}
    for tree in trees(len(graph.inputs), "bushy"):
        other = rebuilt(graph, tree)
        for t in instants:
            assert bag([tuple(row[n] for n in names) for row in snapshot(other, elements, t)]) == expected[t]


@settings(max_examples=examples(25))
@given(joins(), st.lists(st.floats(0.1, 10_000), min_size=4, max_size=4), st.randoms(use_true_random=False))
def test_the_order_that_rates_choose_means_the_same(
    asked: tuple[str, list[Arrivals]], rates: list[float], dice: Random
) -> None:
    text, streams = asked
    note(text)
    plan = bind(text, streams)
    known = {s.name: StreamStatistics(rate, values={"x": 3, "y": 50}) for s, rate in zip(streams, rates, strict=False)}
    ordered = order_joins(optimize(plan), known)
    assert schema(ordered) == schema(optimize(plan))
    sizes = tuple(tuple(dice.randint(0, 3) for _ in range(4)) for _ in streams)
    assert_exact(plan, raw(streams), run_plan(ordered, streams, Cuts(sizes, shards=2), optimised=False))


def first_joined(plan: Plan) -> frozenset[str]:
    """The streams of the join that is done first."""
    deepest = [node for node in walk(plan) if isinstance(node, Join) and not any(map(_has_join, sources(node)))]
    assert len(deepest) == 1, "the plan is left-deep"
    return streams_read(deepest[0])


def _has_join(plan: Plan) -> bool:
    return any(isinstance(node, Join) for node in walk(plan))


@pytest.mark.parametrize(
    ("rates", "first"), [((10.0, 10_000.0, 10.0), {"s0", "s2"}), ((10_000.0, 10.0, 10.0), {"s1", "s2"})]
)
def test_slow_streams_are_joined_first(rates: tuple[float, ...], first: set[str]) -> None:
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(3)]
    text = (
        "SELECT a.x FROM s0 [RANGE 10 SECONDS] a, s1 [RANGE 10 SECONDS] b, s2 [RANGE 10 SECONDS] c "
        "WHERE a.x = b.x AND b.x = c.x AND a.x = c.x"
    )
    known = {f"s{i}": StreamStatistics(rate, values={"x": 1000}) for i, rate in enumerate(rates)}
    assert first_joined(order_joins(optimize(bind(text, streams)), known)) == first


def test_the_text_stands_where_nothing_is_gained() -> None:
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(3)]
    text = "SELECT a.x FROM s0 [ROWS 9] a, s1 [ROWS 9] b, s2 [ROWS 9] c WHERE a.x = b.x AND b.x = c.x"
    plan = optimize(bind(text, streams))
    assert order_joins(plan, {}) == plan


@pytest.mark.parametrize("size", [9, 10, 14])
def test_many_streams_are_ordered_soon_or_stand_as_they_are(size: int) -> None:
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(size)]
    tables = ", ".join(f"s{i} [RANGE UNBOUNDED] t{i}" for i in range(size))
    chain = " AND ".join(f"t{i}.x = t{i + 1}.y" for i in range(size - 1))
    plan = bind(f"SELECT t0.x FROM {tables} WHERE {chain}", streams)
    known = {f"s{i}": StreamStatistics(10.0 ** (i % 5)) for i in range(size)}
    assert streams_read(optimize(plan, known)) == streams_read(plan)


@pytest.mark.parametrize(
    "condition", ["FALSE", "t0.x IN (SELECT x FROM s1)", "t0.x NOT IN (SELECT x FROM s1 [ROWS 1])"]
)
def test_nothing_may_come_and_the_planner_does_not_mind(condition: str) -> None:
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(3)]
    plan = bind(f"SELECT t0.x FROM s0 t0, s1 t1, s2 t2 WHERE t0.x = t1.x AND {condition}", streams)
    for rate in (1e-300, 1.0, 1e300):
        assert optimize(plan, {f"s{i}": StreamStatistics(rate, {"x": rate}) for i in range(3)})


# ---- products --------------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[Arrivals]]:
    """A join of three to twelve streams over a random graph of equalities and other conditions."""
    size = draw(st.integers(3, 12))
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(size)]
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda pair: pair[0] < pair[1])
    equalities, others = draw(st.sets(pairs, max_size=size + 2)), draw(st.sets(pairs, max_size=2))
    parts = [f"t{i}.x = t{k}.y" for i, k in equalities] + [f"t{i}.x < t{k}.x" for i, k in others]
    tables = ", ".join(f"s{i} {draw(st.sampled_from(WINDOWS))} t{i}" for i in range(size))
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return f"SELECT t0.x FROM {tables}{where}", streams


def count_components(inputs: list[frozenset[str]], links: list[frozenset[str]]) -> int:
    """How many parts a graph has whose inputs are sets of columns and whose edges read some of these."""
    parts = list(inputs)
    for link in links:
        touched = [part for part in parts if part & link]
        parts = [part for part in parts if not part & link] + [frozenset().union(*touched)]
    return len(parts)


def is_key(part: Expression, join: Join) -> bool:
    return connects(part, column_ids(join.left), column_ids(join.right))


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.lists(st.sampled_from([1e-6, 0.1, 1000.0, 1e6]), min_size=12, max_size=12), st.booleans())
def test_all_pairs_are_made_only_of_parts_that_nothing_connects(
    asked: tuple[str, list[Arrivals]], rates: list[float], limited: bool
) -> None:
    text, streams = asked
    note(text)
    known = {s.name: StreamStatistics(rate, values={"x": rate}) for s, rate in zip(streams, rates, strict=False)}
    plan = optimize(bind(text, streams), known, 0.001 if limited and len(streams) < 6 else None)
    graph = join_graph_of(top_join(plan))
    inputs = [column_ids(source) for source in graph.inputs]
    equalities = [columns_of(part) for part in graph.conditions if isinstance(part, Call) and part.function == "="]
    joins = [node for node in walk(plan) if isinstance(node, Join)]
    without_key = [join for join in joins if not any(is_key(part, join) for part in conjuncts(join.predicate))]
    assert len(without_key) == count_components(inputs, equalities) - 1
    without_condition = [join for join in joins if join.predicate is None]
    assert len(without_condition) == count_components(inputs, list(map(columns_of, graph.conditions))) - 1
    for join in without_key:
        for side in (join.left, join.right):
            across = [e for e in equalities if e & column_ids(side) and not e <= column_ids(side)]
            assert not across, "a part is joined as a whole before it meets another"


@pytest.mark.parametrize("rule", ["rotate_join", "exchange_in_join"])
def test_single_steps_make_no_product(rule: str) -> None:
    streams = [Arrivals(f"s{i}", (*COLUMNS.items(), ("ts", INT)), ()) for i in range(3)]
    chain = bind("SELECT b.x FROM s0 a JOIN s1 b ON a.x = b.x JOIN s2 c ON b.y = c.y", streams)
    for made in made_by([rule], top_join(optimize(chain))):
        assert all(node.predicate is not None for node in walk(made) if isinstance(node, Join))

"""The rates, loads and drop boxes of joins: laws, and figures that Ayad and Naughton state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.apps.papers import ayad_naughton as paper
from strandline.planner.joins.rates import (
    JoinCosts,
    JoinInput,
    JoinLoad,
    JoinQuery,
    Tree,
    joins_of,
    mask_of,
    members,
    output_rate,
)
from strandline.planner.joins.search import best_plan, cheapest_tree, heuristic, ranked, trees
from strandline.planner.joins.shedding import shed
from support import examples

Kinds = st.sampled_from(["rows", "time", "both"])


@st.composite
def queries(draw: st.DrawFn, kinds: st.SearchStrategy[str] = Kinds, most: int = 4) -> JoinQuery:
    size = draw(st.integers(2, most))
    kind = draw(kinds)
    positive = st.floats(0.5, 60)
    inputs = []
    for number in range(size):
        by_rows = kind == "rows" or (kind == "both" and draw(st.booleans()))
        window = draw(positive)
        rate = draw(positive)
        inputs.append(
            JoinInput("ABCDEF"[number], rate, rows=window)
            if by_rows
            else JoinInput("ABCDEF"[number], rate, None, window / 10)
        )
    pairs = {frozenset((i, k)): draw(st.sampled_from([1.0, 0.5, 0.1, 0.02])) for k in range(size) for i in range(k)}
    costs = JoinCosts(
        draw(st.floats(1e-4, 1e-2)), draw(st.sampled_from([0.0, 1e-3])), draw(st.sampled_from([0.0, 1e-4]))
    )
    keyed = frozenset(pair for pair, factor in pairs.items() if factor < 1.0)
    return JoinQuery(tuple(inputs), pairs, costs, keyed)


def every_tree(size: int) -> Iterator[Tree]:
    return trees(size, "bushy")


@given(queries())
def test_what_flows_out_does_not_depend_on_the_plan(query: JoinQuery) -> None:
    """Equations (3) and (4), join by join, give (5) and (6) for every tree."""
    for tree in every_tree(query.size):
        rate = {1 << i: each.rate for i, each in enumerate(query.inputs)}
        state = {1 << i: each.window for i, each in enumerate(query.inputs)}
        for left, right in joins_of(tree):
            factor = query.factor(left, right)
            rate[left | right] = factor * (state[right] * rate[left] + state[left] * rate[right])
            state[left | right] = factor * state[left] * state[right]
        every = query.everything
        assert rate[every] == pytest.approx(output_rate(query, every, np.ones(query.size)))


@given(queries(), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_drop_box_is_a_slower_stream(query: JoinQuery, kept: list[float]) -> None:
    """The load at some shares is that of the query whose streams are so much slower: windows by time thin out too."""
    shares = np.array(kept[: query.size])
    slower = JoinQuery(
        tuple(JoinInput(i.name, i.rate * x, i.rows, i.seconds) for i, x in zip(query.inputs, shares, strict=True)),
        query.selectivity,
        query.costs,
        query.keyed,
    )
    whole = np.ones(query.size)
    for tree in every_tree(query.size):
        assert JoinLoad.of(query, tree).at(shares) == pytest.approx(
            JoinLoad.of(slower, tree).at(whole), rel=1e-9, abs=1e-12
        )
    every = query.everything
    assert output_rate(query, every, shares) == pytest.approx(output_rate(slower, every, whole), rel=1e-9, abs=1e-12)


@given(queries(), st.floats(0.01, 1.2), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(25))
def test_no_other_shares_give_more(query: JoinQuery, part: float, seed: int) -> None:
    tree = next(every_tree(query.size))
    load = JoinLoad.of(query, tree)
    capacity = part * load.at(np.ones(query.size))
    found = shed(query, tree, capacity)
    assert load.at(found.sampling_rates) <= capacity * (1 + 1e-6)
    assert ((found.sampling_rates >= 0) & (found.sampling_rates <= 1)).all()
    random = np.random.default_rng(seed)
    for shares in random.uniform(0, 1, (120, query.size)):
        # The way from nothing through these shares, as far as it fits.
        low, high = 0.0, 1.0 / max(shares.max(), 1e-9)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if load.at(shares * middle) <= capacity else (low, middle)
        assert output_rate(query, query.everything, shares * low) <= found.output * (1 + 1e-6) + 1e-12


@given(queries(st.just("time"), most=4), st.floats(0.05, 0.95))
@settings(max_examples=60)
def test_thinned_streams_by_time_carry_the_same_load(query: JoinQuery, part: float) -> None:
    tree = next(every_tree(query.size))
    load = JoinLoad.of(query, tree)
    found = shed(query, tree, part * load.at(np.ones(query.size)))
    carried = [x * load.per_sampling_rate(found.sampling_rates, i) for i, x in enumerate(found.sampling_rates)]
    thinned = [c for c, x in zip(carried, found.sampling_rates, strict=True) if x < 1 - 1e-6]
    assert thinned, "too little capacity for everything"
    assert max(thinned) == pytest.approx(min(thinned), rel=1e-3)
    assert max(carried) <= max(thinned) * (1 + 1e-3)


@given(queries(most=5))
@settings(max_examples=40)
def test_the_cheapest_plan_is_the_cheapest_of_all(query: JoinQuery) -> None:
    whole = np.ones(query.size)
    loads = [JoinLoad.of(query, tree).at(whole) for tree in trees(query.size, "bushy")]
    assert JoinLoad.of(query, cheapest_tree(query)).at(whole) == pytest.approx(min(loads))


@given(queries(), st.floats(0.05, 3))
@settings(max_examples=40)
def test_the_best_plan_keeps_up_if_any_does_and_gives_the_most_if_none(query: JoinQuery, part: float) -> None:
    cheapest = JoinLoad.of(query, cheapest_tree(query)).at(np.ones(query.size))
    best = best_plan(query, part * cheapest)
    assert best.shedding.whole == (part >= 1)
    if not best.shedding.whole:
        assert best.shedding.output >= max(c.shedding.output for c in ranked(query, part * cheapest)) * (1 - 1e-6)


@given(queries(st.just("rows"), most=5), st.floats(1.0, 3.0))
@settings(max_examples=40)
def test_the_heuristic_finds_the_best_left_deep_plan_if_one_keeps_up(query: JoinQuery, part: float) -> None:
    cheapest = min(JoinLoad.of(query, tree).at(np.ones(query.size)) for tree in trees(query.size, "left-deep"))
    found = heuristic(query, part * cheapest)
    assert found.shedding.whole
    assert found.load == pytest.approx(cheapest)


def test_trees_are_all_and_each_once() -> None:
    assert [len(set(trees(n, "bushy"))) for n in (2, 3, 4, 5, 6)] == [1, 3, 15, 105, 945]
    assert [len(set(trees(n, "left-deep"))) for n in (2, 3, 4, 5)] == [1, 3, 12, 60]
    assert all(mask_of(tree) == 0b1111 for tree in trees(4, "bushy"))
    assert list(members(0b1011)) == [0, 1, 3]


# What the paper states.


def test_figure_1() -> None:
    assert list(paper.figure_1().values()) == pytest.approx([0.75, 1.25])


def test_example_1() -> None:
    assert [paper.throughput(plan, 0.5) for plan in paper.PLANS] == pytest.approx([1000] * 3)
    assert [paper.utilisation(plan, 0.5) for plan in paper.PLANS] == pytest.approx([0.25, 0.14, 0.20])
    assert [paper.utilisation(plan, 3) for plan in paper.PLANS] == pytest.approx([1.5, 0.84, 1.2])


def test_figure_6() -> None:
    ab, bc, ac = paper.PLANS
    starts = {plan: 1 / paper.utilisation(plan, 1) for plan in paper.PLANS}  # ms at which it begins to shed
    assert starts[ab] < starts[ac] < starts[bc]
    assert 3.5 < starts[bc] < 4
    assert paper.throughput(bc, 4) > paper.throughput(ac, 4)
    assert paper.throughput(ac, 4.5) > paper.throughput(bc, 4.5)
    assert paper.throughput(ac, 14) > 2 * paper.throughput(bc, 14)
    gaps = {cost: paper.throughput(ac, cost) - paper.throughput(bc, cost) for cost in np.arange(4.5, 40, 0.5)}
    assert 13 <= max(gaps, key=gaps.__getitem__) <= 15
    assert all(paper.throughput(bc, cost) < paper.throughput(ab, cost) for cost in (17.5, 20, 40, 80))
    assert [paper.throughput(plan, 100) for plan in paper.PLANS] == pytest.approx([100] * 3)


def test_the_experiment() -> None:
    levels = {level.percent: level for level in paper.experiment(120)}
    assert levels[100].better == 0
    assert levels[60].as_good > 0.5
    assert levels[30].as_good > 0.95
    assert 0.02 < levels[60].gain < 0.06  # about 4 %
    assert 5 < 1 + levels[1].gain < 10  # almost 8-fold
    assert all(level.error <= 0.002 for level in levels.values())
    assert all(level.highest_error <= 1 for level in levels.values())
    better = [level.better for level in levels.values()]
    assert better == sorted(better)


def test_a_query_over_eight_streams_is_decided_quickly() -> None:
    random = np.random.default_rng(8)
    inputs = tuple(
        JoinInput(str(i), float(random.uniform(10, 1000)), None, float(random.uniform(1, 60))) for i in range(8)
    )
    pairs = {frozenset((i, i + 1)): 0.001 for i in range(7)}
    query = JoinQuery(inputs, pairs, JoinCosts(1e-6, 1e-7), frozenset(pairs))
    best = best_plan(query)
    assert best.load <= heuristic(query).load

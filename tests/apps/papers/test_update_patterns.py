"""Golab and Özsu computed: results by definition, the touches of small buffers by hand, orderings that must hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.apps.papers.golab_ozsu import statements
from strandline.apps.papers.golab_ozsu.queries import QUERIES, facts, units_needed
from strandline.apps.papers.golab_ozsu.results import Elements, distinct, join, negate
from strandline.apps.papers.golab_ozsu.touches import SLOTS, MeasuredSpan
from strandline.apps.papers.golab_ozsu.trace import LINKS, generate, read

RECORDED = Path(__file__).parents[3] / "examples" / "network" / "connections.parquet"
LENGTH = 5


def window(values: list[int], turn: int, links: int = 2) -> Elements:
    start = np.arange(len(values), dtype=np.int64) * links + turn
    return Elements(np.array(values, dtype=np.int64), start, start + LENGTH * links)


def at(elements: Elements, time: int) -> Counter[int]:
    there = (elements.start <= time) & (time < elements.end)
    return Counter(elements.key[there].tolist())


values = st.lists(st.integers(0, 3), min_size=1, max_size=25)


@given(values, values)
@settings(max_examples=60)
def test_results_are_those_of_the_definition_at_every_instant(first: list[int], second: list[int]) -> None:
    left, right = window(first, 0), window(second, 1)
    joined, remaining, unique = join(left, right), negate(left, right), distinct(left)
    for time in range(2 * (max(len(first), len(second)) + LENGTH + 1)):
        here, there = at(left, time), at(right, time)
        assert at(joined, time) == Counter({v: here[v] * there[v] for v in here if there[v]})
        assert at(remaining.result, time) == here - there
        assert at(unique.output, time) == Counter(set(here))
    assert (remaining.result.end <= remaining.due).all()


@given(values)
@settings(max_examples=40)
def test_an_auxiliary_tuple_is_younger_than_the_output_tuple_of_its_value(rows: list[int]) -> None:
    found = distinct(window(rows, 0, links=1))
    for key, start, end in zip(found.auxiliary.key, found.auxiliary.start, found.auxiliary.end, strict=True):
        beside = (found.output.key == key) & (found.output.start < start) & (found.output.end == end)
        assert beside.sum() == 1


def test_negation_and_join_do_not_commute() -> None:
    """Two tuples of a value join two, and one is taken away: 2 · 2 − 1 = 3 results, but (2 − 1) · 2 = 2."""
    one, two, three = (
        Elements(np.full(count, 7), np.arange(count) * 3 + turn, np.full(count, 100))
        for turn, count in enumerate((2, 1, 2))
    )
    join_first, negation_first = negate(join(one, three), two).result, join(negate(one, two).result, three)
    assert at(join_first, 50) == {7: 3}
    assert at(negation_first, 50) == {7: 2}


def test_touches_of_a_join_by_hand() -> None:
    """Keys 1, 1 on the left at 0 and 2, key 1 on the right at 1; windows of 10, everything is counted."""
    left = Elements(np.array([1, 1]), np.array([0, 2]), np.array([10, 12]))
    right = Elements(np.array([1]), np.array([1]), np.array([11]))
    counted = MeasuredSpan(0, 100, 10)
    view = join(left, right)
    assert view.start.tolist() == [1, 2] and view.end.tolist() == [10, 11]
    # Three inserts, which read 0, 1 and 1 tuples of the other side, and three ends.
    assert counted.join_lists(left, right) == 3 + 2 + 3
    # Negative tuples read 1, 1 and 0 others, and find their own in slots of 2, 1 and 1.
    assert counted.join_negative(left, right) == 3 + 2 + 2 + (1.5 + 1 + 1)
    updates = np.array([0, 1, 2])
    assert counted.view_in_list(view, updates) == 2 + (0 + 0 + 1)
    # Partitions of five units: both results are due in the same one. One look per update, two ends.
    assert counted.view_in_partitions(view, updates, 2) == (0.5 + 1) + 2 + 3
    assert counted.view_in_hash(view) == 2 + (1.5 + 1)


def test_a_slot_is_one_of_ten() -> None:
    rows = Elements(np.arange(SLOTS * 4), np.zeros(SLOTS * 4, np.int64), np.full(SLOTS * 4, 10))
    assert MeasuredSpan(0, 100, 10).search_hash(rows, rows.where(rows.key == 3)) == (4 + 1) / 2


@pytest.fixture(scope="module")
def counts() -> statements.Counts:
    windows = (1_000, 4_000)
    trace = generate(units_needed(windows[-1]))
    return {name: {w: query(trace, w) for w in windows} for name, query in QUERIES.items()}


def test_distinct_with_an_auxiliary_tuple_stores_and_touches_least(counts: statements.Counts) -> None:
    for name in ("Q2 sources", "Q2 pairs", "Q4"):
        for found in counts[name].values():
            for other in ("NT", "DIRECT"):
                assert found["UPA(10)"].per_1000 < found[other].per_1000
                assert found["UPA(10)"].stored < found[other].stored


def test_more_partitions_touch_less(counts: statements.Counts) -> None:
    for measured in counts.values():
        for found in measured.values():
            assert found["UPA(50)"].per_1000 <= found["UPA(10)"].per_1000 and "UPA(50)" in found


def test_negative_tuples_double_the_work_of_a_join(counts: statements.Counts) -> None:
    for name in ("Q1 ftp", "Q1 telnet"):
        for found in counts[name].values():
            assert found["NT"].per_1000 > 1.9 * found["UPA(10)"].per_1000


def test_direct_has_no_plan_for_a_negation(counts: statements.Counts) -> None:
    for name, measured in counts.items():
        assert all(("DIRECT" in found) == (name not in ("Q3", "Q5")) for found in measured.values())


def test_statements_and_figures_name_every_figure_of_the_paper(counts: statements.Counts) -> None:
    made = statements.of_figures(counts)
    assert {statement.about.split(":")[0] for statement in made} == {str(n) for n in range(9, 18)}
    assert len(statements.figures_of(counts, "model")) == 9


def test_the_generated_trace_has_the_facts_that_the_paper_states() -> None:
    largest = 200_000
    trace = generate(units_needed(largest))
    assert [s.about for s in statements.of_trace(facts(trace, largest)) if not s.follows] == []


def test_traces_are_the_same_in_every_run() -> None:
    first, second = generate(500), generate(500)
    assert all(
        (a.source == b.source).all() and (a.protocol == b.protocol).all()
        for a, b in zip(first.links, second.links, strict=True)
    )


def test_the_recorded_trace_is_cut_into_links_of_equal_length() -> None:
    trace = read(RECORDED)
    assert len(trace.links) == LINKS and len({len(link) for link in trace.links}) == 1
    assert trace.units > 2_000 and "telnet" in trace.links[0].protocol
    for number, link in enumerate(trace.links):
        assert (link.destination % LINKS == number).all()

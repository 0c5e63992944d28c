"""Policies and release by the examples of Hammad et al., figures 2, 4 and 6.

Two new tuples, a11 and b12, meet three bands each, with one match in a band:

    a11   b8 | b4 | b0        b12   a9 | a5 | a1
          w1   w2   w3              w1   w2   w3
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.apps.papers.hammad.formulas import DISTRIBUTIONS
from strandline.runtime.scheduling.bands import Bands
from strandline.runtime.scheduling.policies import POLICIES, BandTasks, next_task, rank_tasks
from strandline.runtime.scheduling.release import ReleaseMode, may_release, oldest_unfinished, release_bounds

NAMES = ("a11", "b12")
PAIRS = (("a11b8", "a11b4", "a11b0"), ("a9b12", "a5b12", "a1b12"))
EVEN = Bands.of([4, 8, 12])
NARROW_MIDDLE = Bands.of([4, 6, 12])  # w2 - w1 < w1 < w3 - w2
NEEDED = np.array([1, 2, 3])  # bands of the three queries


def run(policy: str, bands: Bands, chunks: int = 2) -> Iterator[tuple[int, int, np.ndarray]]:
    """Tasks (chunk, band) in the order of a policy, all chunks waiting from the start; bands done after each."""
    done = np.zeros(chunks, np.int64)
    while (done < len(bands)).any():
        waiting = np.flatnonzero(done < len(bands))
        chunk = int(waiting[next_task(POLICIES[policy], BandTasks.of(waiting, done[waiting], bands))])
        done[chunk] += 1
        yield chunk, int(done[chunk]) - 1, done.copy()


def join_order(policy: str, bands: Bands) -> str:
    return " ".join(PAIRS[chunk][band] for chunk, band, _ in run(policy, bands))


def releases(policy: str, mode: ReleaseMode, bands: Bands = EVEN) -> list[str]:
    """After each task, what goes to each query: `a11b8 → 1 2 3`."""
    made, gone, steps = [0, 0], set(), []
    for chunk, _, done in run(policy, bands):
        made[chunk] += 1
        allowed = may_release(mode, done, NEEDED)
        step = []
        for owner in range(2):
            for band in range(made[owner]):
                to = [q for q in range(band, 3) if allowed[owner, q] and (owner, band, q) not in gone]
                gone |= {(owner, band, q) for q in to}
                if to:
                    step.append(f"{PAIRS[owner][band]} → {' '.join(str(q + 1) for q in to)}")
        steps.append(", ".join(step))
    return steps


def test_join_orders_of_figures_2_and_4() -> None:
    assert join_order("LWO", EVEN) == "a11b8 a11b4 a11b0 a9b12 a5b12 a1b12"
    assert join_order("SWF", EVEN) == "a11b8 a9b12 a11b4 a5b12 a11b0 a1b12"


def test_greedy_takes_the_narrow_band_at_once() -> None:
    """Figure 6: a11:w1, a11:(w2-w1), b12:w1, b12:(w2-w1), a11:(w3-w2), b12:(w3-w2)."""
    order = [f"{NAMES[chunk]}:{band + 1}" for chunk, band, _ in run("Greedy", NARROW_MIDDLE)]
    assert order == ["a11:1", "a11:2", "b12:1", "b12:2", "a11:3", "b12:3"]


def test_release_of_swf_as_printed() -> None:
    """Figure 4: the router sees a tuple when the tuple has run, and passes on what the rule allows at that moment."""
    gone: set[tuple[int, int, int]] = set()
    frontier = np.zeros(3, np.int64)
    made, steps = [0, 0], []
    for chunk, _, done in run("SWF", EVEN):
        made[chunk] += 1
        step: dict[int, list[str]] = {}
        for query in range(3):
            if chunk <= frontier[query]:
                new = [b for b in range(min(made[chunk], query + 1)) if (chunk, b, query) not in gone]
                gone |= {(chunk, b, query) for b in new}
                step |= {query + 1: [PAIRS[chunk][b] for b in new]} if new else {}
        steps.append(step)
        frontier = oldest_unfinished(done, NEEDED)
    assert steps == [
        {1: ["a11b8"], 2: ["a11b8"], 3: ["a11b8"]},
        {1: ["a9b12"]},
        {2: ["a11b4"], 3: ["a11b4"]},
        {2: ["a9b12", "a5b12"]},  # the text says Q3 once, which gets them in the last step
        {3: ["a11b0"]},
        {3: ["a9b12", "a5b12", "a1b12"]},
    ]


EXPECTED = {
    ("LWO", ReleaseMode.AS_SCANNED): [
        "a11b8 → 1 2 3", "a11b4 → 2 3", "a11b0 → 3", "a9b12 → 1 2 3", "a5b12 → 2 3", "a1b12 → 3"
    ],
    ("LWO", ReleaseMode.AT_COMPLETION): [
        "a11b8 → 1", "a11b8 → 2, a11b4 → 2", "a11b8 → 3, a11b4 → 3, a11b0 → 3",
        "a9b12 → 1", "a9b12 → 2, a5b12 → 2", "a9b12 → 3, a5b12 → 3, a1b12 → 3",
    ],
    ("SWF", ReleaseMode.AS_SCANNED): [
        "a11b8 → 1 2 3", "a9b12 → 1", "a11b4 → 2 3, a9b12 → 2", "a5b12 → 2",
        "a11b0 → 3, a9b12 → 3, a5b12 → 3", "a1b12 → 3",
    ],
    ("SWF", ReleaseMode.AT_COMPLETION): [
        "a11b8 → 1", "a9b12 → 1", "a11b8 → 2, a11b4 → 2", "a9b12 → 2, a5b12 → 2",
        "a11b8 → 3, a11b4 → 3, a11b0 → 3", "a9b12 → 3, a5b12 → 3, a1b12 → 3",
    ],
    ("Greedy", ReleaseMode.AS_SCANNED): [
        "a11b8 → 1 2 3", "a11b4 → 2 3", "a9b12 → 1 2", "a5b12 → 2",
        "a11b0 → 3, a9b12 → 3, a5b12 → 3", "a1b12 → 3",
    ],
    ("Greedy", ReleaseMode.AT_COMPLETION): [
        "a11b8 → 1", "a11b8 → 2, a11b4 → 2", "a9b12 → 1", "a9b12 → 2, a5b12 → 2",
        "a11b8 → 3, a11b4 → 3, a11b0 → 3", "a9b12 → 3, a5b12 → 3, a1b12 → 3",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("policy", "mode"), EXPECTED)
def test_releases_step_by_step(policy: str, mode: ReleaseMode) -> None:
    bands = NARROW_MIDDLE if policy == "Greedy" else EVEN
    assert releases(policy, mode, bands) == EXPECTED[policy, mode]


ORDERS = {
    "Uniform": [1, 2, 3, 4, 5, 6, 7],
    "Mostly-Small": [1, 2, 3, 4, 5, 6, 7],
    "Mostly-Large": [1, 7, 2, 6, 5, 4, 3],
    "Small-Large": [1, 2, 3, 7, 6, 5, 4],
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_order_of_greedys_queues_in_table_1(name: str) -> None:
    bands = Bands.of(DISTRIBUTIONS[name])
    ranks = rank_tasks(POLICIES["Greedy"], bands, 3)
    assert (np.argsort(ranks[0]) + 1).tolist() == ORDERS[name]
    assert (rank_tasks(POLICIES["SWF"], bands, 3)[0].argsort() + 1).tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_of_equal_widths_the_smaller_window_is_first() -> None:
    ranks = rank_tasks(POLICIES["Greedy"], EVEN, 2)
    assert ranks.tolist() == rank_tasks(POLICIES["SWF"], EVEN, 2).tolist()


def test_rate_goes_through_a_wide_band_to_many_queries() -> None:
    """Greedy leaves the band of 8 s for last; behind it 20 queries wait for a window that ends 1 s later."""
    bands = Bands.of([1, 3, 11, *[12] * 20])
    assert (np.argsort(rank_tasks(POLICIES["Greedy"], bands, 1)[0]) + 1).tolist() == [1, 4, 2, 3]
    assert (np.argsort(rank_tasks(POLICIES["rate"], bands, 1)[0]) + 1).tolist() == [4, 3, 2, 1]


lengths = st.lists(st.integers(1, 30), min_size=1, max_size=8)


@given(lengths, st.integers(1, 5), st.sampled_from(sorted(POLICIES)))
def test_a_band_is_done_in_the_order_of_the_chunks(windows: list[int], chunks: int, policy: str) -> None:
    bands = Bands.of(windows)
    assert (np.diff(rank_tasks(POLICIES[policy], bands, chunks), axis=0) > 0).all()
    order = [(band, chunk) for chunk, band, _ in run(policy, bands, chunks)]
    for band in range(len(bands)):
        assert [chunk for each, chunk in order if each == band] == list(range(chunks))


@given(lengths, st.integers(1, 5), st.sampled_from(sorted(POLICIES)), st.sampled_from(list(ReleaseMode)))
def test_every_query_has_its_results_once_and_in_order(
    windows: list[int], chunks: int, policy: str, mode: ReleaseMode
) -> None:
    bands = Bands.of(windows)
    needed = np.arange(1, len(bands) + 1)
    got: list[list[tuple[int, int]]] = [[] for _ in range(len(bands))]
    for _, _, done in run(policy, bands, chunks):
        allowed = may_release(mode, done, needed)
        for query, results in enumerate(got):
            made = [(c, b) for c in range(chunks) if allowed[c, query] for b in range(min(done[c], query + 1))]
            results += [each for each in made if each not in results]
    for query, results in enumerate(got):
        assert results == [(chunk, band) for chunk in range(chunks) for band in range(query + 1)]


def test_frontier_where_sides_have_bands_of_their_own() -> None:
    #  chunks   left, right, left; the first query needs 1 band of the right side and 2 of the left one
    needed = np.array([[1, 2], [2, 1], [1, 2]])
    assert oldest_unfinished(np.array([1, 2, 0]), needed).tolist() == [2, 0]
    assert oldest_unfinished(np.array([2, 2, 2]), needed).tolist() == [3, 3]
    assert oldest_unfinished(np.zeros(0, np.int64), np.array([1, 2])).tolist() == [0, 0]


def test_bounds_of_release_never_fall() -> None:
    completed = np.array([[2.0, 9.0], [3.0, 4.0], [1.0, 12.0]])
    assert release_bounds(ReleaseMode.AT_COMPLETION, completed).tolist() == [[2, 9], [3, 9], [3, 12]]
    assert release_bounds(ReleaseMode.AS_SCANNED, completed).tolist() == [[-np.inf] * 2, [2, 9], [3, 9]]

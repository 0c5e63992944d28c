"""Bands of several windows: borders, routing by prefixes, and the widths that policies compare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime.scheduling.bands import Bands

windows = st.lists(st.integers(1, 40), min_size=1, max_size=12)
distances = st.lists(st.integers(0, 50), max_size=60).map(lambda each: np.array(each, dtype=np.int64))


def test_windows_are_ascending_and_counted() -> None:
    bands = Bands.of([8, 4, 12, 8])
    assert bands.windows.tolist() == [4, 8, 12] and bands.queries.tolist() == [1, 2, 1]
    assert bands.widths.tolist() == [4, 4, 4]
    assert bands.band_of_window([12, 4, 8]).tolist() == [2, 0, 1]


def test_a_border_belongs_to_the_larger_window() -> None:
    #  distance  0 … 3 | 4 … 7 | 8 … 11 | 12
    assert Bands.of([4, 8, 12]).band_of(np.array([0, 3, 4, 7, 8, 11, 12])).tolist() == [0, 0, 1, 1, 2, 2, 3]


def test_pairs_of_the_first_example_go_to_the_queries_of_their_windows() -> None:
    """Figure 2 of Hammad et al.: a11 with b8, b4, b0, and b12 with a9, a5, a1."""
    names = ["a11b8", "a11b4", "a11b0", "a9b12", "a5b12", "a1b12"]
    routed = Bands.of([4, 8, 12]).route(np.array([3, 7, 11, 3, 7, 11]))
    results = [[names[place] for place in routed.of_band(band)] for band in range(3)]
    assert results[0] == ["a11b8", "a9b12"]
    assert results[1] == ["a11b8", "a9b12", "a11b4", "a5b12"]
    assert results[2] == ["a11b8", "a9b12", "a11b4", "a5b12", "a11b0", "a1b12"]


@given(windows, distances)
def test_a_prefix_has_the_pairs_that_are_closer_than_the_window(lengths: list[int], distance: np.ndarray) -> None:
    bands = Bands.of(lengths)
    routed = bands.route(distance)
    for band, window in enumerate(bands.windows):
        assert sorted(routed.of_band(band)) == np.flatnonzero(distance < window).tolist()
    assert sorted(routed.order) == list(range(len(distance)))


def test_sides_have_windows_of_their_own() -> None:
    """The later row is of the left side: only the window over the right one counts, and vice versa."""
    uses = [(10, 3), (2, 20)]  # windows over the left and the right side
    left, right = (Bands.of([use[side] for use in uses]) for side in (0, 1))
    of_use = [(int(left.band_of_window([a])[0]), int(right.band_of_window([b])[0])) for a, b in uses]
    assert of_use == [(1, 0), (0, 1)]
    assert right.band_of(np.array([2, 5])).tolist() == [0, 1]  # the first use has the closer pair only


@given(windows)
def test_width_per_query_is_the_least_over_the_bands_behind(lengths: list[int]) -> None:
    bands = Bands.of(lengths)
    width, queries = bands.widths, bands.queries
    expected = [
        min(width[first : last + 1].sum() / queries[first : last + 1].sum() for last in range(first, len(bands)))
        for first in range(len(bands))
    ]
    assert bands.widths_per_query == pytest.approx(expected)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=80), st.integers(2, 16))
def test_merged_bands_keep_the_ends_and_all_queries(lengths: list[int], most: int) -> None:
    bands = Bands.of(lengths)
    merged = bands.merge_narrow(most)
    assert len(merged) == min(most, len(bands))
    assert merged.windows[0] == bands.windows[0] and merged.windows[-1] == bands.windows[-1]
    assert set(merged.windows.tolist()) <= set(bands.windows.tolist())
    # A band completes the queries whose windows end in it.
    ends = np.searchsorted(merged.windows, bands.windows, side="left")
    assert merged.queries.tolist() == np.bincount(ends, weights=bands.queries).astype(int).tolist()


def test_neighbours_that_differ_least_are_merged() -> None:
    assert Bands.of([1, 10, 100, 101, 110, 1000]).merge_narrow(4).windows.tolist() == [1, 10, 110, 1000]


@pytest.mark.parametrize("lengths", [[], [0, 4], [-1]])
def test_there_is_no_window_without_length(lengths: list[int]) -> None:
    with pytest.raises(AssertionError, match="a window is longer than nothing"):
        Bands.of(lengths)

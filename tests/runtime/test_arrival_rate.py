"""Smoothed distances between rows: whatever the batches, and soon after the rate has changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.temporal import BEFORE_ALL, SECOND
from strandline.runtime.arrival_rate import smooth_distance
from strandline.runtime.kernels.batch import Times
from support import examples


def smoothed(time: Times, cuts: list[int]) -> float:
    distance: float | None = None
    rows, high = 0, BEFORE_ALL
    for part in np.split(time, cuts):
        if len(part):
            distance = smooth_distance(distance, rows, high, part)
            rows, high = rows + len(part), max(high, int(part.max()))
    assert distance is not None
    return distance


def test_a_change_of_the_rate_is_followed() -> None:
    slow, fast = np.arange(1000) * SECOND // 10, 100 * SECOND + np.arange(1000) * SECOND // 1000
    both = np.concatenate([slow, fast])
    for cuts in ([], [1000], [500, 1000, 1100], list(range(100, 2000, 100))):
        assert 1 / smoothed(both, cuts) == pytest.approx(1000, rel=0.15)
    assert 1 / smoothed(slow, [250]) == pytest.approx(10.0)


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_batches_make_no_difference(gaps: list[int], cuts: list[int]) -> None:
    time = np.cumsum(np.array(gaps, dtype=np.int64))
    assert smoothed(time, sorted(min(cut, len(time)) for cut in cuts)) == pytest.approx(smoothed(time, []), abs=1e-9)


def test_one_row_has_no_distance() -> None:
    assert smooth_distance(None, 0, BEFORE_ALL, np.array([5])) is None

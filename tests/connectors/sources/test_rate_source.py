"""The generated stream of a rate: equal or exponential distances, the same rows from any place on."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connectors.sources.base import open_source
from strandline.connectors.sources.poisson import BLOCK, PoissonProcess
from strandline.connectors.sources.rate import RateSource
from strandline.core.errors import SourceError
from strandline.core.temporal import SECOND, instant
from strandline.core.types import BIGINT, TIMESTAMP
from strandline.logical.catalog import Argument, BaseStream, ConnectorCall
from strandline.runtime.kernels.batch import FROM

START = "2024-01-01 00:00:00"
PINNED = [4245, 8607, 20917, 27087, 39894]  # microseconds
PINNED_LATER = [10_001_932_601, 10_001_941_361, 10_001_957_407]


def source(**options: Argument) -> RateSource:
    call = ConnectorCall("rate", (), {"start": START, **options})
    made = open_source(BaseStream("s", (("value", BIGINT), ("ts", TIMESTAMP)), call, "ts"))
    assert isinstance(made, RateSource)
    return made


def instants(made: RateSource, start: int, end: int) -> np.ndarray:
    rows = pl.concat([chunk.rows for chunk in made.read(start, end, frozenset({"value", "ts"}))])
    return rows[FROM].to_numpy() - instant(START)


@given(st.integers(0, 3 * BLOCK), st.integers(1, 2 * BLOCK), st.integers(0, 2**64 - 1))
@settings(max_examples=25)
def test_a_row_has_the_same_time_from_wherever_it_is_read(start: int, length: int, seed: int) -> None:
    process = PoissonProcess(seed)
    whole = process.arrivals(0, start + length)
    assert (process.arrivals(start, start + length) == whole[start:]).all()
    assert (np.diff(whole) >= 0).all() and whole[0] >= 0


def test_distances_are_exponential_and_independent() -> None:
    process = PoissonProcess(7)
    arrivals = process.arrivals(0, 400_000)
    gaps = np.diff(arrivals, prepend=0.0)
    assert gaps.mean() == pytest.approx(1, abs=0.006) and gaps.std() == pytest.approx(1, abs=0.01)
    for at in (0.1, 1.0, 3.0):
        assert (gaps > at).mean() == pytest.approx(np.exp(-at), abs=0.003)
    assert np.corrcoef(gaps[1:], gaps[:-1])[0, 1] == pytest.approx(0, abs=0.006)
    # Sums over many blocks have the variance of a Poisson process, too.
    counts = [PoissonProcess(seed).count_by(20_000.0) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(20_000, abs=30)
    assert np.var(counts) / 20_000 == pytest.approx(1, abs=0.25)


@given(st.floats(0, 1e5), st.integers(0, 100))
@settings(max_examples=30)
def test_the_number_of_rows_that_have_come_is_the_inverse(time: float, seed: int) -> None:
    process = PoissonProcess(seed)
    count = process.count_by(time)
    around = process.arrivals(max(count - 1, 0), count + 1)
    assert (around[0] <= time or count == 0) and around[-1] > time


def test_far_rows_have_their_place() -> None:
    far = 10**15
    arrivals = PoissonProcess(3).arrivals(far, far + 3)
    assert arrivals[0] == pytest.approx(far, rel=1e-6) and PoissonProcess(3).count_by(float(arrivals[2])) >= far + 3


def test_times_do_not_depend_on_machine_or_libraries() -> None:
    made = source(rows_per_second=100, arrivals="poisson", seed=5, pace=False)
    assert instants(made, 0, 5).tolist() == PINNED
    assert instants(made, 1_000_000, 1_000_003).tolist() == PINNED_LATER


def test_the_rate_holds_within_and_after_a_burst() -> None:
    made = source(rows_per_second=100, burst=5, burst_seconds=60, arrivals="poisson", pace=False)
    times = instants(made, 0, 60_000)
    early = int(np.searchsorted(times, 60 * SECOND))
    assert early == pytest.approx(30_000, rel=0.02)
    assert (times[-1] - times[early]) / (60_000 - early) == pytest.approx(SECOND / 100, rel=0.03)
    assert made.rows_by(60 * SECOND) == pytest.approx(early, abs=1)


def test_constant_distances_are_the_default() -> None:
    made = source(rows_per_second=4, pace=False)
    assert instants(made, 2, 5).tolist() == [SECOND // 2, 3 * SECOND // 4, SECOND]


def test_other_arrivals_are_refused_by_name() -> None:
    with pytest.raises(SourceError, match="constant or poisson, not 'bursty'"):
        source(arrivals="bursty")

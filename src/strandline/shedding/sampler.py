"""Sampling at the sources, and the history of sampling rates.

A row is selected by its hash, so a replayed batch drops the same rows, and a higher rate keeps a superset. The hash
includes the stream: samples of different streams are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.runtime.kernels.hashing import hash_rows, mix

# Sampling rates of a stream by query; a query that is not named keeps all.
SamplingRates: TypeAlias = tuple[tuple[str, float], ...]
# History of the sampling rates of a stream: each setting holds for the rows after an instant, up to the next setting.
RateHistory: TypeAlias = tuple[tuple[Instant, SamplingRates], ...]

MOST_SETTINGS: Final = 256  # length of the history; windows rarely span more changes


def sampling_rates_from(data: Iterable[Sequence[Any]]) -> SamplingRates:
    """Sampling rates as they come out of JSON."""
    return tuple((str(query), float(sampling_rate)) for query, sampling_rate in data)


def rate_history_from(data: Iterable[Sequence[Any]]) -> RateHistory:
    return tuple((int(since), sampling_rates_from(sampling_rates)) for since, sampling_rates in data)


def with_setting(before: RateHistory, since: Instant, sampling_rates: SamplingRates) -> RateHistory:
    """The history of a stream with the rate of a batch whose rows come after `since`."""
    if sampling_rates == (before[-1][1] if before else ()):
        return before
    return (*before, (since, sampling_rates))[-MOST_SETTINGS:]


def with_counts(before: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    return {**before, **{query: before.get(query, 0) + rows for query, rows in more.items()}}


def drop(
    rows: pl.DataFrame, stream: str, sampling_rates: Mapping[str, float]
) -> tuple[dict[str, pl.DataFrame], dict[str, int]]:
    """Sample rows for the queries with a rate below 1; returns the rows by query and the number of dropped ones."""
    reduced_rates = {query: sampling_rate for query, sampling_rate in sampling_rates.items() if sampling_rate < 1.0}
    if not reduced_rates:
        return {}, {}
    fractions = _places(rows, stream)
    kept = {query: rows.filter(pl.Series(fractions < sampling_rate)) for query, sampling_rate in reduced_rates.items()}
    return kept, {query: rows.height - frame.height for query, frame in kept.items()}


def _places(rows: pl.DataFrame, stream: str) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, determined by its content."""
    salt = np.uint64(crc32(stream.encode())) * np.uint64(0x9E3779B1)
    return (mix(hash_rows(rows, sorted(rows.columns)) ^ salt) >> np.uint64(11)).astype(np.float64) / 2.0**53


def mean_sampling_rate(
    settings: RateHistory, query: str, range_us: int | None, at: npt.NDArray[np.int64], origin: Instant
) -> npt.NDArray[np.float64]:
    """Mean sampling rate of a stream over the window that ends at each instant.

    Without a range the window begins with the stream. Each instant counts alike, however many rows it had.
    """
    if not any(name == query for _, sampling_rates in settings for name, _ in sampling_rates):
        return np.ones(len(at))
    begins = np.array([since + 1 if since > BEFORE_ALL else origin for since, _ in settings], np.int64)
    values = np.array([1.0, *(dict(sampling_rates).get(query, 1.0) for _, sampling_rates in settings)])
    now = values[np.searchsorted(begins, at, side="right")]
    if range_us == 0:
        return now
    # Integral of the rate over time, from the first setting on, by intervals; before it all was kept.
    spans = np.diff(begins, append=begins[-1]).astype(np.float64)
    sums = np.concatenate(([0.0], np.cumsum(spans * values[1:])))

    def up_to(instants: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        number = np.searchsorted(begins, instants, side="right")
        start = begins[np.maximum(number - 1, 0)]
        integral: npt.NDArray[np.float64] = sums[np.maximum(number - 1, 0)] + (instants - start) * values[number]
        return integral

    first = np.full(len(at), origin, np.int64) if range_us is None else np.maximum(at + 1 - range_us, origin)
    length = at + 1 - np.minimum(first, at)
    mean: npt.NDArray[np.float64] = (up_to(at + 1) - up_to(np.minimum(first, at))) / length
    return np.clip(mean, 0.0, 1.0)

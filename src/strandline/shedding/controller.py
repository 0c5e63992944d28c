"""Load-shedding controller: decides the sampling rates batch by batch, from the cost of earlier batches and the
arrivals.

A batch takes a fixed time and a time that grows with its rows. So busy is not overloaded: what counts is the variable
part, for the rows that arrive in a second. If that exceeds a second, or the usable part of it, the load models of the
queries (`shedding/load_model.py`) choose the rows to drop, so that the work shrinks accordingly.

The decision is part of a batch's position (`runtime/offsets.py`): a replayed batch drops the same rows.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.core.log import INFO, SHEDDING, log_event
from strandline.planner.planner import PlannedPipeline
from strandline.shedding.load_model import SheddingModel
from strandline.shedding.sampler import SamplingRates

RATE_AVERAGING_S: Final = 5.0  # seconds over which rates are averaged
COST_AVERAGING_S: Final = 10.0  # seconds over which costs are averaged
DRAIN_S: Final = 15.0  # seconds in which a backlog should be worked off
BATCH_S: Final = 1.0  # seconds of rows that a batch takes while rows are dropped: small ones waste time
MIN_LAG_S: Final = 1.0  # seconds of lag: below that nothing is dropped, whatever the load
TARGET_UTILISATION: Final = 0.9  # of the capacity, so that small errors do not pile up
MIN_RATE_CHANGE: Final = 0.05  # a relative change of a rate below this is not worth a new setting
FULL_RATE: Final = 0.97  # a rate above this is 1
MIN_RATE: Final = 0.001  # a minimum sample, so that the load stays observable
MAX_FORECAST_S: Final = 120.0  # seconds: a window that fills for longer is met as it fills
MIN_BATCH_ROWS: Final = 1000
MAX_HISTORY: Final = 600  # batches

Rates = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SheddableQuery:
    """A query's load model, and its minimum sampling rate per stream; 1 if it may not lose a row."""

    model: SheddingModel
    min_rate: float


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Measured load: the fraction of the time that all rows would take, their rates, and the backlog."""

    needed: float = 0.0
    rates: Rates = field(default_factory=dict)
    waiting: int = 0  # rows that have come and were not read yet

    @property
    def lag(self) -> float:
        """Seconds of rows that wait."""
        total = sum(self.rates.values())
        return self.waiting / total if total > 0 else 0.0


@dataclass(slots=True)
class _Batch:
    began: float
    rows: dict[str, int]  # totals when it began
    sampling_rates: dict[str, dict[str, float]]  # by query and stream
    ended: float | None = None


class SheddingController:
    """Controller of the sampling rates of a pipeline.

    `capacity` is the part of the time that may be used. A fresh pipeline begins with empty windows. `fixed` is what a
    batch takes at most in any case, in seconds, `batch_rows` how many rows it takes of a stream.
    """

    def __init__(
        self,
        queries: Mapping[str, SheddableQuery],
        capacity: float | None = None,
        fresh: bool = True,
        fixed: float = 0.0,
        batch_rows: float = math.inf,
    ) -> None:
        self.queries = queries
        self.given = capacity
        self.capacity = 1.0 if capacity is None else capacity
        self.load = MeasuredLoad()
        self.fresh = fresh
        self.sampling_rates = {
            query: dict.fromkeys(sheddable_query.model.streams, 1.0) for query, sheddable_query in queries.items()
        }
        self._batch: _Batch | None = None
        self._began: float | None = None  # when the last batch did
        self._last_observation: tuple[float, dict[str, int], dict[str, int]] | None = None
        self._rates: dict[str, float] = {}
        self._fixed = fixed
        self._batch_rows = batch_rows
        self._work = self._worth = 0.0  # seconds beyond the fixed ones, and rows as if all were kept, of late
        self._needed: float | None = None
        self._past: deque[tuple[float, dict[str, dict[str, float]]]] = deque(maxlen=MAX_HISTORY)
        self.lock = threading.Lock()

    def observe(self, now: float, rows: Mapping[str, int], left: Mapping[str, int | None]) -> None:
        """See what the last batch took and what has come since: by stream, `rows` is how many were taken in so far,
        dropped or not, and `left` how many wait, if that is known."""
        with self.lock:
            waiting = {stream: count or 0 for stream, count in left.items()}
            self._count(now, rows, waiting)
            self._last_observation = now, dict(rows), waiting
            batch, self._batch = self._batch, None
            if batch is None:
                return
            self._weigh((batch.ended or now) - batch.began, batch, rows)
            self.load = MeasuredLoad(self._needed or 0.0, dict(self._rates), sum(waiting.values()))

    def _count(self, now: float, rows: Mapping[str, int], waiting: dict[str, int]) -> None:
        """Let the rates follow what has come since the last observation."""
        if self._last_observation is None or now <= self._last_observation[0]:
            return
        then, rows_then, waiting_then = self._last_observation
        fade = math.exp((then - now) / RATE_AVERAGING_S)
        for stream, count in waiting.items():
            came = rows.get(stream, 0) - rows_then.get(stream, 0) + count - waiting_then.get(stream, 0)
            rate = max(came, 0) / (now - then)
            self._rates[stream] = fade * self._rates.get(stream, rate) + (1 - fade) * rate

    def _weigh(self, seconds: float, batch: _Batch, rows: Mapping[str, int]) -> None:
        """Cost of all rows, extrapolated from the sampled ones."""
        read = sum(rows.get(stream, 0) - count for stream, count in batch.rows.items())
        total = sum(self._rates.values())
        if read <= 0 or total <= 0:
            return
        self._fixed = min(self._fixed, seconds)
        part = self._part(batch)
        if part <= 0:
            return
        # Sums over many batches: a batch that was delayed by something else says little about its rows.
        fade = math.exp(-seconds / COST_AVERAGING_S)
        self._work = fade * self._work + max(seconds - self._fixed, 0.0)
        self._worth = fade * self._worth + read * part
        self._needed = self._work * total / self._worth

    def _part(self, batch: _Batch) -> float:
        """The work of a batch, as a fraction of that without drops."""
        whole = kept = 0.0
        for query, sheddable_query in self.queries.items():
            held = {
                s: self._held(query, s, batch.began, sheddable_query.model.window(s))
                for s in sheddable_query.model.streams
            }
            whole += sheddable_query.model.full_load(self._rates)
            kept += sheddable_query.model.load(self._rates, batch.sampling_rates[query], held)
        return kept / whole if whole > 0 else 1.0

    def _held(self, query: str, stream: str, now: float, window: float) -> float:
        """The mean sampling rate of the content of a window."""
        window = min(window, MAX_FORECAST_S)
        total = covered = 0.0
        until = now
        for since, sampling_rates in reversed(self._past):
            begin = max(since, now - window)
            if until > begin:
                covered += until - begin
                total += (until - begin) * sampling_rates[query].get(stream, 1.0)
            until = min(until, since)
            if since <= now - window:
                break
        # Before the first batch there was nothing, or the rates of an earlier run.
        uncovered = max(window - covered, 0.0)
        length = covered + uncovered
        return (total + (0.0 if self.fresh else uncovered)) / length if length > 0 else 1.0

    def decide(self, now: float) -> dict[str, SamplingRates]:
        """Sampling rates for the batch that begins now, by stream; a stream that is kept whole is not named."""
        with self.lock:
            new_rates = self._target_rates()
            changes = [
                (query, stream, before, rates[stream])
                for query, rates in sorted(new_rates.items())
                for stream, before in sorted(self.sampling_rates[query].items())
                if rates[stream] != before
            ]
            if any(_is_worth_it(before, after) for _, _, before, after in changes):
                self._log_changes(changes)
                self.sampling_rates = new_rates
            if not self._past or self._past[-1][1] != self.sampling_rates:
                self._past.append((now, {query: dict(rates) for query, rates in self.sampling_rates.items()}))
            rows = self._last_observation[1] if self._last_observation is not None else {}
            self._began = now
            self._batch = _Batch(now, dict(rows), self.sampling_rates)
            rates_by_stream: dict[str, list[tuple[str, float]]] = {}
            for query, sampling_rates in sorted(self.sampling_rates.items()):
                for stream, sampling_rate in sampling_rates.items():
                    if sampling_rate < 1.0:
                        rates_by_stream.setdefault(stream, []).append((query, sampling_rate))
            return {stream: tuple(listed) for stream, listed in rates_by_stream.items()}

    def _log_changes(self, changes: Iterable[tuple[str, str, float, float]]) -> None:
        load = {"needed": self.load.needed, "capacity": self.capacity, "lag_s": self.load.lag}
        for query, stream, before, after in changes:
            about = {"query": query, "stream": stream, "before": before, "after": after}
            log_event(SHEDDING, INFO, "sampling rate changed", **about, **load)

    def _target_rates(self) -> dict[str, dict[str, float]]:
        if self._needed is None or (self._is_whole() and self.given is None and self.load.lag < MIN_LAG_S):
            return self.sampling_rates
        rates = dict(self._rates)
        total = sum(rates.values())
        # The backlog is to be worked off, too: as additional input over the time in which it should be gone.
        excess_lag = self.load.lag - self._longest()
        backlog_factor = 1.0 + (excess_lag / DRAIN_S if total > 0 and excess_lag > 0 else 0.0)
        usable_capacity = TARGET_UTILISATION * self.capacity * max(0.1, 1.0 - self._fixed / self._longest())
        part = usable_capacity / (self._needed * backlog_factor) if self._needed > 0 else math.inf
        whole = {query: sheddable_query.model.full_load(rates) for query, sheddable_query in self.queries.items()}
        sheddable_load = sum(load for query, load in whole.items() if self.queries[query].min_rate < 1.0)
        fixed = sum(whole.values()) - sheddable_load
        sheddable_fraction = (
            max(part * (sheddable_load + fixed) - fixed, 0.0) / sheddable_load
            if part < 1.0 and sheddable_load > 0
            else math.inf
        )
        return {
            query: self._optimal_rates(sheddable_query, rates, sheddable_fraction)
            for query, sheddable_query in self.queries.items()
        }

    def _optimal_rates(self, sheddable_query: SheddableQuery, rates: Rates, part: float) -> dict[str, float]:
        if part >= 1.0 or sheddable_query.min_rate >= 1.0:
            return dict.fromkeys(sheddable_query.model.streams, 1.0)
        sampling_rates = sheddable_query.model.optimal_rates(rates, part, max(sheddable_query.min_rate, MIN_RATE))
        return {stream: 1.0 if rate >= FULL_RATE else rate for stream, rate in sampling_rates.items()}

    def max_rows(self, stream: str) -> float:
        """Maximum rows of a stream per batch, so that the next decision is not far away."""
        if self._needed is None or not self._rates.get(stream):
            return self._batch_rows
        return max(self._longest() * self._rates[stream], MIN_BATCH_ROWS)

    def is_too_early(self, now: float) -> bool:
        """True if it is too early for the next batch; asked only where there is no other work."""
        with self.lock:
            if self._batch is not None and self._batch.ended is None:
                self._batch.ended = now
            if self._began is None or (self.given is None and self._is_whole()):
                return False
            return self.load.lag < self._longest() and now - self._began < self._longest() / 2

    def _longest(self) -> float:
        """Maximum seconds of input per batch, so that its fixed cost is small and no stream exceeds its row limit."""
        fastest = max(self._rates.values(), default=0.0)
        fitting = self._batch_rows / fastest if fastest > 0 else math.inf
        return min(max(2 * BATCH_S, 10 * self._fixed), fitting)

    def _is_whole(self) -> bool:
        return all(rate == 1.0 for rates in self.sampling_rates.values() for rate in rates.values())

    def completeness(self, query: str) -> float:
        """Fraction of a query's results that remains, by its model, at the present rates."""
        with self.lock:
            return self.queries[query].model.completeness(self._rates, self.sampling_rates[query])

    def sampling_rates_of(self, query: str) -> dict[str, float]:
        """Present sampling rates of a query."""
        with self.lock:
            return dict(self.sampling_rates[query])


def _is_worth_it(before: float, after: float) -> bool:
    return (after == 1.0) != (before == 1.0) or abs(after - before) > MIN_RATE_CHANGE * before


def make_shedding_controller(
    planned: PlannedPipeline,
    max_dropped_fractions: Mapping[str, float | None],
    capacity: float | None,
    fresh: bool,
    fixed: float,
    batch_rows: float,
) -> SheddingController:
    """The controller of a pipeline whose queries may lose these fractions of their rows."""
    statistics, prices = planned.inputs.statistics, planned.inputs.prices
    queries = {
        query.name: SheddableQuery(
            SheddingModel(query.optimized, statistics, prices), 1.0 - (max_dropped_fractions[query.name] or 0.0)
        )
        for query in planned.queries
    }
    return SheddingController(queries, capacity, fresh, fixed, batch_rows)

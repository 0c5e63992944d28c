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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from strandline.core.log import INFO, SHEDDING, log_event
from strandline.shedding.sampler import Shares

SMOOTH: Final = 5.0  # seconds over which rates are averaged
STEADY: Final = 10.0  # seconds over which costs are averaged
DRAIN: Final = 15.0  # seconds in which a backlog should be worked off
PACE: Final = 1.0  # seconds of rows that a batch takes while rows are dropped: small ones waste time
LATE: Final = 1.0  # seconds of lag: below that nothing is dropped, whatever the load
ROOM: Final = 0.9  # of the capacity, so that small errors do not pile up
SAME: Final = 0.05  # a change of shares below this is not worth a new setting
WHOLE: Final = 0.97  # a share above this is all
FEWEST: Final = 0.001  # a minimum sample, so that the load stays observable
FORESEEN: Final = 120.0  # seconds: a window that fills for longer is met as it fills
FEWEST_ROWS: Final = 1000
HISTORY: Final = 600  # batches

Rates = Mapping[str, float]


class DropModel(Protocol):
    """Load model of a query, in units that the queries of a pipeline share."""

    @property
    def streams(self) -> frozenset[str]: ...

    def load(self, rates: Rates, now: Mapping[str, float], held: Mapping[str, float]) -> float:
        """The work per second for rows of which `now` is kept, where of those in the windows `held` was."""

    def settle(self, rates: Rates, part: float, least: float) -> dict[str, float]:
        """The shares, none below `least`, that leave the most results for this part of the work."""

    def completeness(self, rates: Rates, shares: Mapping[str, float]) -> float:
        """Fraction of the results that remains."""

    def window(self, stream: str) -> float:
        """Seconds that the rows of a stream are kept."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A query's load model, and its minimum sampling rate per stream; 1 if it may not lose a row."""

    model: DropModel
    least: float


@dataclass(frozen=True, slots=True)
class Load:
    """Measured load: the fraction of the time that all rows would take, and the usable fraction."""

    needed: float = 0.0
    capacity: float = 1.0
    fixed: float = 0.0
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
    shares: dict[str, dict[str, float]]  # by query and stream
    ended: float | None = None


class Shedder:
    """Controller of the sampling rates of a pipeline.

    `rows` returns the number of ingested rows per stream, dropped or not. `capacity` is the usable fraction of the
    time. A fresh pipeline begins with empty windows. `fixed` is the maximum fixed cost of a batch in seconds,
    `batch_rows` the maximum rows of a stream.
    """

    def __init__(
        self,
        queries: Mapping[str, Allowed],
        rows: Callable[[], Mapping[str, int]],
        capacity: float | None = None,
        fresh: bool = True,
        fixed: float = 0.0,
        batch_rows: float = math.inf,
    ) -> None:
        self.queries = queries
        self.given = capacity
        self.capacity = 1.0 if capacity is None else capacity
        self.load = Load(capacity=self.capacity)
        self.fresh = fresh
        self.shares = {query: dict.fromkeys(each.model.streams, 1.0) for query, each in queries.items()}
        self._rows = rows
        self._batch: _Batch | None = None
        self._began: float | None = None  # when the last batch did
        self._looked: tuple[float, dict[str, int], dict[str, int]] | None = None
        self._rates: dict[str, float] = {}
        self._fixed = fixed
        self._batch_rows = batch_rows
        self._work = self._worth = 0.0  # seconds beyond the fixed ones, and rows as if all were kept, of late
        self._needed: float | None = None
        self._past: deque[tuple[float, dict[str, dict[str, float]]]] = deque(maxlen=HISTORY)
        self.lock = threading.Lock()

    def look(self, now: float, left: Mapping[str, int | None]) -> None:
        """Measure the last batch and the arrivals since; `left` is the backlog by stream, if known."""
        with self.lock:
            rows = dict(self._rows())
            waiting = {stream: count or 0 for stream, count in left.items()}
            self._count(now, rows, waiting)
            self._looked = now, rows, waiting
            batch, self._batch = self._batch, None
            if batch is None:
                return
            self._weigh((batch.ended or now) - batch.began, batch, rows)
            self.load = Load(self._needed or 0.0, self.capacity, self._fixed, dict(self._rates), sum(waiting.values()))

    def _count(self, now: float, rows: dict[str, int], waiting: dict[str, int]) -> None:
        """Update the arrival rates."""
        if self._looked is None or now <= self._looked[0]:
            return
        then, rows_then, waiting_then = self._looked
        fade = math.exp((then - now) / SMOOTH)
        for stream, waits in waiting.items():
            came = rows.get(stream, 0) - rows_then.get(stream, 0) + waits - waiting_then.get(stream, 0)
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
        fade = math.exp(-seconds / STEADY)
        self._work = fade * self._work + max(seconds - self._fixed, 0.0)
        self._worth = fade * self._worth + read * part
        self._needed = self._work * total / self._worth

    def _part(self, batch: _Batch) -> float:
        """The work of a batch, as a fraction of that without drops."""
        whole = kept = 0.0
        for query, each in self.queries.items():
            held = {s: self._held(query, s, batch.began, each.model.window(s)) for s in each.model.streams}
            whole += each.model.load(self._rates, *_ones(each))
            kept += each.model.load(self._rates, batch.shares[query], held)
        return kept / whole if whole > 0 else 1.0

    def _held(self, query: str, stream: str, now: float, window: float) -> float:
        """The mean sampling rate of the content of a window."""
        window = min(window, FORESEEN)
        total = covered = 0.0
        until = now
        for since, shares in reversed(self._past):
            begin = max(since, now - window)
            if until > begin:
                covered += until - begin
                total += (until - begin) * shares[query].get(stream, 1.0)
            until = min(until, since)
            if since <= now - window:
                break
        # Before the first batch there was nothing, or the rates of an earlier run.
        rest = max(window - covered, 0.0)
        length = covered + rest
        return (total + (0.0 if self.fresh else rest)) / length if length > 0 else 1.0

    def decide(self, now: float) -> dict[str, Shares]:
        """Sampling rates for the batch that begins now, by stream; a stream that is kept whole is not named."""
        with self.lock:
            wanted = self._wanted()
            if self._differs(wanted):
                self._log_changes(wanted)
                self.shares = wanted
            if not self._past or self._past[-1][1] != self.shares:
                self._past.append((now, {query: dict(shares) for query, shares in self.shares.items()}))
            rows = self._looked[1] if self._looked is not None else dict(self._rows())
            self._began = now
            self._batch = _Batch(now, dict(rows), self.shares)
            found: dict[str, list[tuple[str, float]]] = {}
            for query, shares in sorted(self.shares.items()):
                for stream, share in shares.items():
                    if share < 1.0:
                        found.setdefault(stream, []).append((query, share))
            return {stream: tuple(listed) for stream, listed in found.items()}

    def _log_changes(self, wanted: Mapping[str, Mapping[str, float]]) -> None:
        """Log changes of the sampling rates."""
        for query, shares in sorted(wanted.items()):
            for stream, share in sorted(shares.items()):
                if share != (before := self.shares[query][stream]):
                    load = {"needed": self.load.needed, "capacity": self.capacity, "lag_s": self.load.lag}
                    about = {"query": query, "stream": stream, "before": before, "after": share}
                    log_event(SHEDDING, INFO, "kept share changed", **about, **load)

    def _wanted(self) -> dict[str, dict[str, float]]:
        if self._needed is None or (self._is_whole() and self.given is None and self.load.lag < LATE):
            return self.shares
        rates = dict(self._rates)
        total = sum(rates.values())
        # The backlog is to be worked off, too: as additional input over the time in which it should be gone.
        late = self.load.lag - self._longest()
        hurry = 1.0 + (late / DRAIN if total > 0 and late > 0 else 0.0)
        room = ROOM * self.capacity * max(0.1, 1.0 - self._fixed / self._longest())
        part = room / (self._needed * hurry) if self._needed > 0 else math.inf
        whole = {query: each.model.load(rates, *_ones(each)) for query, each in self.queries.items()}
        loose = sum(load for query, load in whole.items() if self.queries[query].least < 1.0)
        fixed = sum(whole.values()) - loose
        spared = max(part * (loose + fixed) - fixed, 0.0) / loose if part < 1.0 and loose > 0 else math.inf
        return {query: self._settled(each, rates, spared) for query, each in self.queries.items()}

    def _settled(self, each: Allowed, rates: Rates, part: float) -> dict[str, float]:
        if part >= 1.0 or each.least >= 1.0:
            return dict.fromkeys(each.model.streams, 1.0)
        shares = each.model.settle(rates, part, max(each.least, FEWEST))
        return {stream: 1.0 if share >= WHOLE else share for stream, share in shares.items()}

    def _differs(self, wanted: Mapping[str, Mapping[str, float]]) -> bool:
        return any(
            (share == 1.0) != (self.shares[query][stream] == 1.0)
            or abs(share - self.shares[query][stream]) > SAME * self.shares[query][stream]
            for query, shares in wanted.items()
            for stream, share in shares.items()
        )

    def most_rows(self, stream: str) -> float:
        """Maximum rows of a stream per batch, so that the next decision is not far away."""
        if self._needed is None or not self._rates.get(stream):
            return self._batch_rows
        return max(self._longest() * self._rates[stream], FEWEST_ROWS)

    def waits(self, now: float) -> bool:
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
        return min(max(2 * PACE, 10 * self._fixed), fitting)

    def _is_whole(self) -> bool:
        return all(share == 1.0 for shares in self.shares.values() for share in shares.values())

    def completeness(self, query: str) -> float:
        """Fraction of a query's results that remains, by its model, at the present rates."""
        with self.lock:
            return self.queries[query].model.completeness(self._rates, self.shares[query])

    def standing(self, query: str) -> dict[str, float]:
        """Present sampling rates of a query."""
        with self.lock:
            return dict(self.shares[query])


def _ones(each: Allowed) -> tuple[dict[str, float], dict[str, float]]:
    """Sampling rates of 1."""
    ones = dict.fromkeys(each.model.streams, 1.0)
    return ones, ones

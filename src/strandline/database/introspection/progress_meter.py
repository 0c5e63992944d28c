"""Progress line of a query: phase, rates, watermark, state."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from strandline.core.temporal import BEFORE_ALL, DAY, FOREVER, SECOND, Instant, instant, show_instant
from strandline.database.query import Query
from strandline.runtime.stage import OperatorCounters

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_RATE_SECONDS: Final = 5.0  # averaging time of rates
_MIN_BACKLOG_S: Final = 2.0  # seconds of input that lie ahead before we speak of catching up
_BAR: Final = 24


def spinner() -> str:
    """One sign that moves with the clock."""
    return _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)]


def bar(part: float) -> str:
    full = max(0, min(_BAR, int(part * _BAR)))
    return "█" * full + "░" * (_BAR - full)


class ProgressSample(NamedTuple):
    """Snapshot of the counters; `operators` are those of the first query."""

    at: float
    rows_in: int
    rows_out: int
    operators: Mapping[str, OperatorCounters]


@dataclass(slots=True)
class ProgressMeter:
    """Rates of some queries that run together or not, from looking at their counters now and then."""

    queries: Sequence[Query]
    seen: deque[ProgressSample] = field(default_factory=deque)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def look(self) -> None:
        self.metrics = [query.metrics() for query in self.queries]
        now = time.monotonic()
        self.seen.append(ProgressSample(now, self.rows_in, self.rows_out, self.queries[0].operators()))
        while len(self.seen) > 2 and now - self.seen[1].at > _RATE_SECONDS:
            self.seen.popleft()

    @property
    def rows_in(self) -> int:
        """Rows that were read; queries over one stream may share its reading, so it counts once."""
        rows: dict[str, int] = {}
        for metrics in self.metrics:
            for stream, count in metrics["rows_in"].items():
                rows[stream] = max(rows.get(stream, 0), count)
        return sum(rows.values())

    @property
    def rows_out(self) -> int:
        return sum(metrics["rows_out"] for metrics in self.metrics)

    @property
    def rows_left(self) -> int | None:
        row_counts = [metrics["rows_left"] for metrics in self.metrics if metrics["rows_left"] is not None]
        return max(row_counts) if row_counts else None

    def rates(self) -> tuple[float, float]:
        """Rows per second in and out."""
        if len(self.seen) < 2:
            return 0.0, 0.0
        first, last = self.seen[0], self.seen[-1]
        return (last.rows_in - first.rows_in) / self._seconds(), (last.rows_out - first.rows_out) / self._seconds()

    def passed(self, fragment: str, number: int) -> tuple[int, float]:
        """Elements that left an operator of the first query, in total and per second."""
        if not self.seen or fragment not in self.seen[-1].operators:
            return 0, 0.0
        now = self.seen[-1].operators[fragment].passed[number]
        earliest = self.seen[0].operators.get(fragment)
        return now, (now - (earliest.passed[number] if earliest is not None else 0)) / self._seconds()

    def _seconds(self) -> float:
        return max(self.seen[-1].at - self.seen[0].at, 1e-3)

    def phase(self) -> str | None:
        """Phase of the query: what it waits for; None if results keep pace with the rows."""
        if waiting := next((text for m in self.metrics if (text := m["waiting_for"])), None):
            return f"waiting for {waiting}"
        if any(query.progress == BEFORE_ALL for query in self.queries):
            return "first batch" if not any(m["batches"] for m in self.metrics) else "waiting for the first rows"
        left = self.rows_left
        if not left or left < max(1_000.0, _MIN_BACKLOG_S * self.rates()[0]):
            return None
        done = self.rows_in / (self.rows_in + left)
        return f"catching up, about {left:,} rows left  {bar(done)} {done:.0%}"

    def line(self) -> str:
        """Rates, progress, lag and state."""
        if not self.metrics:
            return ""
        rate_in, rate_out = self.rates()
        progress = min(query.progress for query in self.queries)
        facts = [f"{show_rate(rate_in)} in", f"{show_rate(rate_out)} out", _reached(progress)]
        if lag := show_lag(progress):
            facts.append(f"lag {lag}")
        facts.append(show_state(self.metrics))
        if since := [metrics["kept_since"] for metrics in self.metrics if metrics["kept_since"] is not None]:
            facts.append(f"retained from {_shown(instant(max(since)))}")
        return " │ ".join(fact for fact in facts if fact)


def _reached(progress: Instant) -> str:
    if progress >= FOREVER:
        return "complete"
    if progress == BEFORE_ALL:
        return ""
    return f"at {_shown(progress)}"


def _shown(at: Instant) -> str:
    """Tenths of a second are enough for a running clock, and today's date is omitted."""
    shown = show_instant(at - at % 100_000 if at > SECOND else at)
    return shown.removeprefix(time.strftime("%Y-%m-%d ", time.gmtime()))


def show_lag(progress: Instant) -> str | None:
    """Lag of the result behind the clock; empty for times unrelated to the clock."""
    behind = time.time_ns() // 1_000 - progress
    return f"{max(behind, 0) / SECOND:.1f} s" if abs(behind) < DAY else None


def show_state(metrics: Sequence[Mapping[str, Any]]) -> str:
    rows, size = (sum(m[name] for m in metrics) for name in ("state_rows", "state_bytes"))
    return f"state {rows:,} rows, {show_bytes(size)}" if rows or size else "no state"


def show_rate(rate: float) -> str:
    return f"{rate:,.0f} rows/s" if rate >= 10 or rate == 0 else f"{rate:.1f} rows/s"


def show_bytes(size: int) -> str:
    """A size in the unit that leaves one to three digits before the point."""
    if size < 1000:
        return f"{size} B"
    amount, unit = size / 1000, "KB"
    for larger in ("MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"

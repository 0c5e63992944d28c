"""Watermarks: the status of sources, and the watermark of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from strandline.core.temporal import BEFORE_ALL, EARLIEST, FOREVER, Instant
from strandline.runtime.edge_metrics import MetricSet, union_metrics
from strandline.runtime.operators.base import Watermark
from strandline.shedding.sampler import RateHistory, rate_history_from, with_counts


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Status of a source after a batch: its watermark and counters.

    `watermark`: no later row is accepted with a time before it. `low` and `high`: the earliest and
    latest time of an accepted row so far. The counts are totals since the query began: `read` rows, bad units included,
    is always the sum of the accepted `rows`, the `late` and the `rejected` ones.

    A source may have partitions, each ordered by itself. Then `partitions` has the watermark of each, and the slowest
    decides, except for idle ones in `resting`.

    `rate_history` has the sampling rates and their start times, `dropped` the accepted rows that sampling took, by
    query. `requested_metrics` are those that the present batch measures, `announced` the queries whose open elements it
    announces again. `distance` is the smoothed mean of seconds between two rows, except where partitions are
    interleaved. The watermark of a `table` is its promise: every later change takes effect there or after it. `base` is
    the end of its log when the query began, `rows` how far it was read, and `changed` the instant of the last change
    since then. `lateness` is by how many microseconds the latest of the late rows was behind the newest row before it:
    with a disorder of as much, none would be late.
    """

    stream: str
    watermark: Instant = BEFORE_ALL
    low: Instant = FOREVER
    high: Instant = BEFORE_ALL
    idle: bool = False
    ended: bool = False
    rows: int = 0
    late: int = 0
    rejected: int = 0
    partitions: Mapping[str, Instant] = field(default_factory=dict)
    resting: tuple[str, ...] = ()
    rate_history: RateHistory = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    requested_metrics: MetricSet = ()
    read: int = 0
    announced: tuple[str, ...] = ()
    distance: float | None = None
    table: bool = False
    base: int = -1
    changed: Instant = BEFORE_ALL
    lateness: int = 0

    @property
    def progress(self) -> Instant:
        """The watermark, by the name that `Query.heartbeats` had for it first."""
        return self.watermark

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SourceStatus:
        lists = {name: tuple(data.get(name, ())) for name in ("resting", "requested_metrics", "announced")}
        history = rate_history_from(data["rate_history"]) if data.get("rate_history") else ()
        return SourceStatus(**{**data, **lists, "rate_history": history})

    def slowest(self) -> Instant:
        """Watermark over all partitions that are not idle."""
        active = [reached for name, reached in self.partitions.items() if name not in self.resting]
        return min(active, default=BEFORE_ALL)

    def reject_accepted(self, rows: int) -> SourceStatus:
        """The same if some rows that were accepted prove to be bad."""
        return replace(self, rows=self.rows - rows, rejected=self.rejected + rows)

    def merge(self, other: SourceStatus) -> SourceStatus:
        """Merge the status of two tasks that have read different splits of the same batch."""
        partitions = dict(self.partitions)
        for name, reached in other.partitions.items():
            partitions[name] = max(reached, partitions.get(name, BEFORE_ALL))
        whole = replace(
            self,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            rows=self.rows + other.rows,
            late=self.late + other.late,
            rejected=self.rejected + other.rejected,
            lateness=max(self.lateness, other.lateness),
            partitions=partitions,
            rate_history=max(self.rate_history, other.rate_history, key=len),  # equal, or one lacks the latest entry
            dropped=with_counts(self.dropped, other.dropped),
            requested_metrics=union_metrics(self.requested_metrics, other.requested_metrics),
            read=self.read + other.read,
            distance=max(self, other, key=lambda status: (status.distance is not None, status.high)).distance,
        )
        # A task has the watermarks of its own partitions; the slowest follows from all tasks.
        return replace(whole, watermark=max(self.watermark, other.watermark, whole.slowest()))


def check_balance(status: SourceStatus) -> None:
    """Every row that a source delivered was accepted, late or rejected, and every dropped row was accepted first."""
    counted = status.rows + status.late + status.rejected
    most_dropped = max(status.dropped.values(), default=0)
    if status.read != counted or most_dropped > status.rows:
        raise AssertionError(
            f'stream "{status.stream}": {status.read} rows were read, but {status.rows} accepted, '
            f"{status.late} late and {status.rejected} rejected; {most_dropped} dropped"
        )


def merge_statuses(statuses: Iterable[SourceStatus]) -> dict[str, SourceStatus]:
    """One status per stream from those of all its splits."""
    merged: dict[str, SourceStatus] = {}
    for status in statuses:
        previous = merged.get(status.stream)
        merged[status.stream] = status if previous is None else previous.merge(status)
    return merged


def watermark_of(statuses: Mapping[str, SourceStatus], streams: Iterable[str]) -> Watermark:
    """Watermark of a query over `streams`, and the start of its result.

    The slowest active source decides. An idle source does not hold the others back; where none is active, the watermark
    is at least the latest row of any. When all have ended, everything is complete. Tables are complete up to their
    promises; they decide by themselves only where there is no stream.
    """
    known = [statuses.get(stream) or SourceStatus(stream) for stream in streams]
    tables = [status for status in known if status.table]
    read = [status for status in known if not status.table]
    if not read:
        return Watermark(min(status.watermark for status in tables), min(status.low for status in tables))
    watermark = _watermark_of_streams(read)
    if not tables:
        return watermark
    # No row of a stream is before EARLIEST, so what was there before may be used at once.
    promised = min(status.watermark for status in tables)
    return replace(watermark, time=min(max(watermark.time, EARLIEST), promised))


def _watermark_of_streams(read: Sequence[SourceStatus]) -> Watermark:
    active = [status.watermark for status in read if not status.idle and not status.ended]
    if active:
        time = min(active)
    elif all(status.ended for status in read):
        time = FOREVER
    else:
        time = max(status.high if status.high == BEFORE_ALL else status.high + 1 for status in read)
    history = {status.stream: status.rate_history for status in read if status.rate_history}
    return Watermark(time, min(status.low for status in read), history)

"""Watermarks: the status of sources, and the watermark of a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from strandline.core.temporal import BEFORE_ALL, EARLIEST, FOREVER, Instant
from strandline.runtime.edge_metrics import MetricSet, union_metrics
from strandline.runtime.kernels.batch import Times
from strandline.runtime.operators.base import Watermark
from strandline.shedding.sampler import RateHistory, rate_history_from, with_counts

StreamSet: TypeAlias = tuple[str, ...]  # the streams that queries wait for together, by name


def stream_set(streams: Iterable[str]) -> StreamSet:
    return tuple(sorted(streams))


@dataclass(frozen=True, slots=True)
class SetStatus:
    """What a source that may be idle is for the queries over a set of streams, where it differs from `SourceStatus`.

    `floor`: the watermark that these queries reached while the source was idle. A row before it is late for them, and
    may be in time for others. `late` counts the rows that are late for them and not for the stream by itself;
    `lateness` is that of these rows, `low` the earliest time of those that they accepted, `lows` from instants on.
    """

    streams: StreamSet
    floor: Instant = BEFORE_ALL
    low: Instant = FOREVER
    late: int = 0
    lateness: int = 0
    lows: Mapping[str, Instant] = field(default_factory=dict)

    def merge(self, other: SetStatus) -> SetStatus:
        return SetStatus(
            self.streams,
            max(self.floor, other.floor),
            min(self.low, other.low),
            self.late + other.late,
            max(self.lateness, other.lateness),
            _merge_lows(self.lows, other.lows),
        )


def lows_from(lows: Mapping[str, Instant], time: Times, instants: Iterable[Instant]) -> dict[str, Instant]:
    """The earliest times of rows from some instants on, with those of further rows."""
    return {
        str(since): min(lows.get(str(since), FOREVER), int(time[time >= since].min(initial=FOREVER)))
        for since in instants
    }


def _merge_lows(one: Mapping[str, Instant], two: Mapping[str, Instant]) -> dict[str, Instant]:
    return {since: min(one.get(since, FOREVER), two.get(since, FOREVER)) for since in {**one, **two}}


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
    with a disorder of as much, none would be late. `was_over`: it had ended before the present batch. `lows` has the
    earliest time of an accepted row from an instant on, by that instant, for queries that began there.

    All this is of the stream by itself. What it is for queries that wait for other streams too is in `by_set`, and
    `for_queries_over` shows it; only a source that may be idle has any.
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
    by_set: tuple[SetStatus, ...] = ()
    was_over: bool = False
    lows: Mapping[str, Instant] = field(default_factory=dict)

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
        by_set = tuple(SetStatus(**{**one, "streams": tuple(one["streams"])}) for one in data.get("by_set", ()))
        return SourceStatus(**{**data, **lists, "rate_history": history, "by_set": by_set})

    def for_queries_over(self, streams: Collection[str]) -> SourceStatus:
        """The status as the queries over a set of streams see it."""
        wanted = stream_set(streams) if self.by_set else ()
        own = next((one for one in self.by_set if one.streams == wanted), None)
        if own is None:
            return self
        return replace(
            self,
            watermark=max(self.watermark, own.floor),
            low=own.low,
            lows=own.lows,
            rows=self.rows - own.late,
            late=self.late + own.late,
            lateness=max(self.lateness, own.lateness),
            by_set=(),
        )

    def with_floors(self, sets: Iterable[StreamSet], before: Mapping[str, SourceStatus]) -> SourceStatus:
        """The status at the begin of a batch, with the floors of sets of streams by the statuses before it."""
        known = {one.streams: one for one in self.by_set}
        by_set = []
        for streams in sets:
            own = known.get(streams) or SetStatus(streams, low=self.low)
            reached = watermark_of(before, streams).time if self.idle else BEFORE_ALL
            by_set.append(replace(own, floor=max(own.floor, reached)) if reached < FOREVER else own)
        return replace(self, by_set=tuple(by_set))

    def low_since(self, since: Instant) -> Instant:
        """The earliest time of a row from an instant on."""
        return self.low if since == BEFORE_ALL else self.lows.get(str(since), FOREVER)

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
            lows=_merge_lows(self.lows, other.lows),
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
            by_set=tuple(one.merge(two) for one, two in zip(self.by_set, other.by_set, strict=True)),
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


def watermark_of(
    statuses: Mapping[str, SourceStatus], streams: Collection[str], since: Instant = BEFORE_ALL
) -> Watermark:
    """Watermark of a query over `streams`, and the start of its result, which has the rows from `since` on.

    The slowest active source decides. An idle source does not hold the others back; where none is active, the one that
    is ahead decides. When all have ended, everything is complete. Tables are complete up to their promises; they decide
    by themselves only where there is no stream.
    """
    known = _statuses_of(statuses, streams)
    return replace(_watermark_of(known, since), was_over=all(status.was_over for status in known))


def _watermark_of(known: Sequence[SourceStatus], since: Instant) -> Watermark:
    tables = [status for status in known if status.table]
    read = [status for status in known if not status.table]
    if not read:
        return Watermark(min(status.watermark for status in tables), min(status.low for status in tables))
    watermark = replace(_watermark_of_streams(read), origin=min(status.low_since(since) for status in read))
    if not tables:
        return watermark
    # No row of a stream is before EARLIEST, so what was there before may be used at once.
    promised = min(status.watermark for status in tables)
    return replace(watermark, time=min(max(watermark.time, EARLIEST), promised))


def watermark_beside_tables(statuses: Mapping[str, SourceStatus], streams: Collection[str]) -> Instant:
    """The watermark of a query by its streams alone, whatever its tables promise; `FOREVER` where it reads none."""
    read = [status for status in _statuses_of(statuses, streams) if not status.table]
    return _watermark_of_streams(read).time if read else FOREVER


def _statuses_of(statuses: Mapping[str, SourceStatus], streams: Collection[str]) -> list[SourceStatus]:
    return [(statuses.get(stream) or SourceStatus(stream)).for_queries_over(streams) for stream in streams]


def _watermark_of_streams(read: Sequence[SourceStatus]) -> Watermark:
    active = [status.watermark for status in read if not status.idle and not status.ended]
    if active:
        time = min(active)
    elif all(status.ended for status in read):
        time = FOREVER
    else:
        time = max(_latest(status) if status.ended else status.watermark for status in read)
    history = {status.stream: status.rate_history for status in read if status.rate_history}
    return Watermark(time, rate_history=history)


def _latest(status: SourceStatus) -> Instant:
    """How far the rows of a source reach that has ended."""
    return status.high if status.high == BEFORE_ALL else status.high + 1

"""Watermarks: the status of sources, and the watermark of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.runtime.edge_metrics import Wish, both
from strandline.runtime.operators.base import Progress
from strandline.shedding.sampler import Settings, settings_from


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Status of a source after a batch: its watermark and counters.

    `progress` is the watermark: no later row is accepted with a time before it. `low` and `high`: the earliest and
    latest time of an accepted row so far. The counts are totals since the query began: `read` rows, bad units included,
    is always the sum of the accepted `rows`, the `late` and the `rejected` ones.

    A source may have partitions, each ordered by itself. Then `partitions` has the watermark of each, and the slowest
    decides, except for idle ones in `resting`.

    `kept` is the history of sampling rates, and `dropped` the number of accepted rows that sampling removed, by query.
    `measure` are the requested edge statistics of the batch.
    """

    stream: str
    progress: Instant = BEFORE_ALL
    low: Instant = FOREVER
    high: Instant = BEFORE_ALL
    idle: bool = False
    ended: bool = False
    rows: int = 0
    late: int = 0
    rejected: int = 0
    partitions: Mapping[str, Instant] = field(default_factory=dict)
    resting: tuple[str, ...] = ()
    kept: Settings = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    measure: Wish = ()
    read: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Heartbeat:
        lists = {name: tuple(data.get(name, ())) for name in ("resting", "measure")}
        return Heartbeat(**{**data, **lists, "kept": settings_from(data.get("kept", ()))})

    def slowest(self) -> Instant:
        """Watermark over all partitions that are not idle."""
        active = [reached for name, reached in self.partitions.items() if name not in self.resting]
        return min(active, default=BEFORE_ALL)

    def with_piece(self, other: Heartbeat) -> Heartbeat:
        """Merge the status of two tasks that have read different splits of the same batch."""
        partitions = dict(self.partitions)
        for name, reached in other.partitions.items():
            partitions[name] = max(reached, partitions.get(name, BEFORE_ALL))
        whole = Heartbeat(
            self.stream,
            max(self.progress, other.progress),
            min(self.low, other.low),
            max(self.high, other.high),
            self.idle,
            self.ended,
            self.rows + other.rows,
            self.late + other.late,
            self.rejected + other.rejected,
            partitions,
            self.resting,
            max(self.kept, other.kept, key=len),  # both have the same, or one of them has not heard of the latest
            {q: self.dropped.get(q, 0) + other.dropped.get(q, 0) for q in {*self.dropped, *other.dropped}},
            both(self.measure, other.measure),
            self.read + other.read,
        )
        # A task has the watermarks of its own partitions; the slowest follows from all tasks.
        return replace(whole, progress=max(whole.progress, whole.slowest()))


def check_balance(beat: Heartbeat) -> None:
    """Every row that a source delivered was accepted, late or rejected, and every dropped row was accepted first."""
    counted = beat.rows + beat.late + beat.rejected
    most_dropped = max(beat.dropped.values(), default=0)
    if beat.read != counted or most_dropped > beat.rows:
        raise AssertionError(
            f'stream "{beat.stream}": {beat.read} rows were read, but {beat.rows} accepted, {beat.late} late and '
            f"{beat.rejected} rejected; {most_dropped} dropped"
        )


def together(beats: Iterable[Heartbeat]) -> dict[str, Heartbeat]:
    """One status per stream from those of all its splits."""
    found: dict[str, Heartbeat] = {}
    for beat in beats:
        known = found.get(beat.stream)
        found[beat.stream] = beat if known is None else known.with_piece(beat)
    return found


def progress_of(heartbeats: Mapping[str, Heartbeat], streams: Iterable[str]) -> Progress:
    """Watermark of a query over `streams`, and the start of its result.

    The slowest active source decides. An idle source does not hold the others back; where none is active, the watermark
    is at least the latest row of any. When all have ended, everything is complete.
    """
    beats = [heartbeats.get(stream) or Heartbeat(stream) for stream in streams]
    active = [b.progress for b in beats if not b.idle and not b.ended]
    if active:
        until = min(active)
    elif all(b.ended for b in beats):
        until = FOREVER
    else:
        until = max(b.high if b.high == BEFORE_ALL else b.high + 1 for b in beats)
    return Progress(until, min(b.low for b in beats), {b.stream: b.kept for b in beats if b.kept})

"""Offset planning: how far each batch reads the sources, decided once, in the driver, and persisted.

An offset has everything that makes a replayed batch identical: the position in each source, the input splits, whether a
source counted as idle, the arrival time of rows without a time column, and the requested metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

from strandline.connectors.sources.base import Source
from strandline.connectors.sources.clock import SteadyClock
from strandline.connectors.tables.source import TableSource
from strandline.core.durable import digest, other_format
from strandline.core.errors import damaged
from strandline.core.temporal import BEFORE_ALL, FOREVER, SECOND, Instant
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.announcements import Announcements
from strandline.runtime.catch_up import CatchUpPace, behind, follow
from strandline.runtime.checkpoint.records import RecordReference
from strandline.runtime.checkpoint.versions import VersionReference
from strandline.runtime.edge_metrics import MetricSet
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.scheduling.budget import UNLIMITED, WorkBudget
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from strandline.runtime.subscriptions import Subscriptions
from strandline.runtime.table_offsets import TableOffsets
from strandline.runtime.watermark import watermark_beside_tables
from strandline.shedding.controller import SheddingController
from strandline.shedding.sampler import SamplingRates, sampling_rates_from

TICK_US = SECOND  # interval of watermark updates of an arrival-time stream while nothing arrives


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Offset in a source after a batch; `split_points` are those of the batch.

    `arrived` is the time of the batch by the driver's clock, where the stream goes by that: later in every batch.
    `sampling_rates` are the fractions of the rows that the samplers of queries keep. `seal` is the digest of the
    source's own log up to here, if it has one.

    Of a table, `arrived` is the promise: every change after `at` takes effect there or later; `base` is the end of its
    log when the query was first planned, `seal` is the identity of the table.

    `log` is the stream whose log it is, where that is another one: of a second reader.

    `announcements` counts the batches so far in which open elements were announced again, `announced` are the queries
    for which this one does.
    """

    at: int = 0
    idle: bool = False
    ended: bool = False
    split_points: tuple[int, ...] = ()
    arrived: Instant = 0
    sampling_rates: SamplingRates = ()
    seal: str = ""
    base: int = -1
    log: str = ""
    announcements: int = 0
    announced: tuple[str, ...] = field(default=(), compare=False)
    requested_metrics: MetricSet = field(default=(), compare=False)  # it is no reason for a batch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SourceOffset:
        lists = {
            "split_points": tuple(data["split_points"]),
            "announced": tuple(data["announced"]),
            "requested_metrics": tuple(data["requested_metrics"]),
            "sampling_rates": sampling_rates_from(data["sampling_rates"]),
        }
        return SourceOffset(**{**data, **lists})


SourceOffsets: TypeAlias = dict[str, SourceOffset]

OFFSET_FORMAT: Final = 6


@dataclass(frozen=True, slots=True)
class PipelineOffset:
    """Offset of a batch: its number plus one, the position in each source, the record that it continues, the version of
    the graph that it runs with, the work that it does if some may wait, a checksum."""

    n: int
    positions: SourceOffsets
    after: RecordReference = field(default_factory=RecordReference)
    version: VersionReference = field(default_factory=VersionReference)
    budget: WorkBudget = UNLIMITED

    @property
    def batch(self) -> int:
        return self.n - 1

    def to_json(self) -> dict[str, Any]:
        sources = {name: position.to_json() for name, position in self.positions.items()}
        references = {"after": self.after.to_json(), "version": self.version.to_json()}
        body = {"format": OFFSET_FORMAT, "n": self.n, "sources": sources, **references}
        if self.budget != UNLIMITED:
            body["budget"] = self.budget.to_json()
        return {**body, "check": checksum_of(body)}

    @staticmethod
    def from_json(data: Mapping[str, Any], path: Path) -> PipelineOffset:
        """The offset of `to_json`; a file with another content is damaged."""
        try:
            body = {name: value for name, value in data.items() if name != "check"}
            if type(body["format"]) is int and body["format"] < OFFSET_FORMAT and data["check"] == checksum_of(body):
                raise other_format(path, str(body["format"]), OFFSET_FORMAT)
            if body["format"] != OFFSET_FORMAT or data["check"] != checksum_of(body):
                raise damaged(path)
            positions = {name: SourceOffset.from_json(position) for name, position in data["sources"].items()}
            after, version = RecordReference.from_json(data["after"]), VersionReference.from_json(data["version"])
            budget = WorkBudget.from_json(data["budget"]) if "budget" in data else UNLIMITED
            return PipelineOffset(data["n"], positions, after, version, budget)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise damaged(path) from None


def checksum_of(body: Mapping[str, Any]) -> str:
    return digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class InputSplit:
    """Input split: what one task reads of a source, from `start` to `end`, of a batch from `begin` to an offset.
    `number` is that of the task; the splits of a source follow each other."""

    stream: str
    begin: int
    start: int
    end: int
    after: SourceOffset
    number: int = 0


def plan_splits(before: Mapping[str, SourceOffset], after: Mapping[str, SourceOffset]) -> list[InputSplit]:
    """Input splits of a batch, at least one per source: a source status needs a sender even without new rows."""
    splits: list[InputSplit] = []
    for stream, end in after.items():
        begin = before.get(stream, SourceOffset()).at
        for start, stop in pairwise([begin, *end.split_points, end.at]):
            splits.append(InputSplit(stream, begin, start, stop, end, len(splits)))
    return splits


class OffsetPlanner:
    """Offset planner: polls the sources and plans the next batch.

    `sources` are by the names of their streams. A second reader of a log has the source of the first one.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        batch_rows: int,
        tasks: int,
        clock: Callable[[], Instant] | None = None,
        shedding_controller: SheddingController | None = None,
        metrics: PipelineMetrics | None = None,
        subscriptions: Subscriptions | None = None,
        announcements: Announcements | None = None,
        budgets: BudgetPlanner | None = None,
    ) -> None:
        self.sources = dict(sources)
        self.clock = clock or SteadyClock()
        self.shedding_controller = shedding_controller
        self.metrics = metrics
        self.subscriptions = subscriptions or Subscriptions()
        self.announcements = announcements or Announcements(())
        self.budgets = budgets or BudgetPlanner()
        self.batch_rows = batch_rows
        self.tasks = tasks
        self._last_row_times = dict.fromkeys(sources, time.monotonic())
        self.tables = {name: TableOffsets(s) for name, s in sources.items() if isinstance(s, TableSource)}
        self.rows_left: int | None = None  # about how many were not in a batch yet when the last one was decided on
        self.pace = CatchUpPace(batch_rows)
        self.catching_up = 0  # rows of the last batch that second readers read to catch up
        self.rows_behind: Mapping[str, int] = {}  # about how many they have yet to read after it, by their names
        self._reached_positions: Mapping[str, SourceOffset] = {}
        try:
            for name, source in self.sources.items():
                if not self._is_second(name):
                    source.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the planning."""
        for name, source in self.sources.items():
            if not self._is_second(name):
                source.close()

    def _is_second(self, name: str) -> bool:
        return self.sources[name].stream.name != name

    def is_level(self, name: str) -> bool:
        """Whether a second reader was where the first one was after the last batch."""
        if name not in self.sources or not self._is_second(name):
            return False
        own, first = (self._reached_positions.get(reader) for reader in (name, self.sources[name].stream.name))
        return own is not None and first is not None and (own.at, own.ended) == (first.at, first.ended)

    def add_reader(self, name: str, first: str) -> None:
        """Read the log of a stream once more, under another name, from the next batch on."""
        self.sources[name] = self.sources[first]
        self.rows_behind = behind(self.sources, {**self._reached_positions, name: SourceOffset()})

    def add_source(self, source: Source) -> None:
        """Read a further source, from the next batch on."""
        source.open()
        name = source.stream.name
        self.sources[name] = source
        self._last_row_times[name] = time.monotonic()
        if isinstance(source, TableSource):
            self.tables[name] = TableOffsets(source)

    def remove_source(self, name: str) -> None:
        """Read a source no more."""
        is_second, source = self._is_second(name), self.sources.pop(name)
        self.tables.pop(name, None)
        if not is_second:
            source.close()

    @property
    def has_work(self) -> bool:
        """Whether work was put off in the last batch, so that another one follows, also without new rows."""
        return self.metrics is not None and self.metrics.has_work

    def decide_budget(
        self, before: Mapping[str, SourceOffset], after: Mapping[str, SourceOffset], physical: Pipeline
    ) -> WorkBudget:
        """How much of the work that may wait the batch between two offsets does."""
        if self.budgets.target is None:
            return UNLIMITED
        rows = [
            source.count_rows(before[name].at if name in before else 0, after[name].at)
            for name, source in self.sources.items()
            if name not in self.tables and name in after
        ]
        return self.budgets.decide_on(physical, sum(rows), has_work=self.has_work)

    def beginning(self) -> SourceOffsets:
        return dict.fromkeys(self.sources, SourceOffset())

    def next(self, before: Mapping[str, SourceOffset], *, required: bool = False) -> SourceOffsets:
        """The positions after the next batch; the same as before if there is nothing new, and none is `required`. A
        source without a position
        before begins now; one that is not read any more has none after."""
        before = {name: before.get(name, SourceOffset()) for name in self.sources}
        controller = self.shedding_controller
        if controller is not None and not required and controller.is_too_early(time.monotonic()):
            return dict(before)
        after = self._next_offsets(before)
        left = {
            name: source.rows_left(before[name].at)
            for name, source in self.sources.items()
            if not self._is_second(name)
        }
        row_counts = [rows for rows in left.values() if rows is not None]
        self.rows_left = sum(row_counts) if row_counts else None
        if self.shedding_controller is not None:
            assert self.metrics is not None, "the shedding controller goes by the rows taken in"
            self.shedding_controller.observe(time.monotonic(), self.metrics.rows_taken(), left)
        # When everything has ended, nothing is open.
        announced = () if all(position.ended for position in before.values()) else self.announcements.due()
        if announced:
            after = {n: replace(p, announcements=p.announcements + 1) for n, p in after.items()}
        self.rows_behind, self._reached_positions = behind(self.sources, after), after
        self.catching_up = sum(
            self.sources[name].count_rows(before[name].at, after[name].at)
            for name, rows in behind(self.sources, before).items()
            if rows
        )
        if after == before and not required:
            return after
        if self.shedding_controller is not None:
            sampling_rates = self.shedding_controller.decide(time.monotonic())
            after = {n: replace(p, sampling_rates=sampling_rates.get(n, ())) for n, p in after.items()}
        after = self._split(before, after)
        requested_metrics = self.subscriptions.requested_metrics()
        return {
            name: replace(position, requested_metrics=requested_metrics, announced=announced)
            for name, position in after.items()
        }

    def _next_offsets(self, before: Mapping[str, SourceOffset]) -> SourceOffsets:
        """Offsets of streams, then of tables: a promise must not hold back what the streams bring in this batch."""
        loading = {name for name in self.tables if before[name].at < before[name].base or before[name].base < 0}
        pauses = any(self.sources[name].stream.base < 0 for name in loading)  # those of added queries hold nothing up
        streams = {name: source for name, source in self.sources.items() if name not in self.tables}
        changed = max([table.last_change() for table in self.tables.values()], default=BEFORE_ALL)
        after = {
            # What tables have is loaded first. Meanwhile the streams are not read: nothing of them is buffered.
            name: before[name] if pauses else self._next(name, source, before[name], changed)
            for name, source in streams.items()
            if not self._is_second(name)
        }
        after |= self._follow(before, after, pauses=bool(loading))
        arriving = [after[name].arrived + 1 for name, source in streams.items() if source.stream.time_column is None]
        reached = max([self._reached(), *arriving])
        has_news = after != {name: before[name] for name in streams}
        planned = {name: table.next(before[name], reached, self.batch_rows) for name, table in self.tables.items()}
        # Tables count as they are when the streams end. A long log takes several batches; the last ends everything.
        over = {name for name in self.tables if self._is_last(name, after)}
        ended = over if all(planned[name][1] for name in over) else set[str]()
        offsets = {name: replace(offset, ended=name in ended) for name, (offset, _) in planned.items()}
        if has_news or ended or any(t.has_news(before[n], offsets[n], reached) for n, t in self.tables.items()):
            after |= offsets
        else:
            after |= {name: before[name] for name in self.tables}
        return {name: after[name] for name in self.sources}

    def _is_last(self, table: str, after: Mapping[str, SourceOffset]) -> bool:
        """Whether the streams have ended after a batch that queries over a table read; of queries over tables alone,
        all streams. Where there are none, static tables end."""
        queries = () if self.metrics is None else self.metrics.physical.queries
        read = frozenset[str]().union(*(query.streams for query in queries if table in query.streams))
        beside = [offset for name, offset in after.items() if name in read] or list(after.values())
        if not beside:
            return all(table.is_static for table in self.tables.values())
        return all(offset.ended for offset in beside)

    def _follow(
        self, before: Mapping[str, SourceOffset], after: Mapping[str, SourceOffset], *, pauses: bool
    ) -> SourceOffsets:
        """The next offsets of second readers, by those of the first ones."""
        firsts = {name: source.stream.name for name, source in self.sources.items() if self._is_second(name)}
        late = [name for name, first in firsts.items() if before[name].at != before[first].at]
        rows = self.pace.share(len(late))
        return {
            name: before[name]
            if pauses
            else follow(self.sources[name], before[name], before[first], after[first], rows)
            for name, first in firsts.items()
        }

    def _split(self, before: Mapping[str, SourceOffset], after: SourceOffsets) -> SourceOffsets:
        """The offsets with split points: sources share the tasks by their rows. One without new rows has one split."""
        read = {
            name: (source, before[name].at, after[name].at)
            for name, source in self.sources.items()
            if name not in self.tables and source.brings_rows(before[name].at, after[name].at)
        }
        rows = {name: source.count_rows(start, end) for name, (source, start, end) in read.items()}
        every = max(1, sum(rows.values()))
        points = {
            name: source.split_points(start, end, max(1, round(self.tasks * rows[name] / every)))
            for name, (source, start, end) in read.items()
        }
        return {name: replace(offset, split_points=points.get(name, ())) for name, offset in after.items()}

    def _reached(self) -> Instant:
        """The watermark of the streams after the batch before, of the query that is ahead of the others."""
        if not self.tables or self.metrics is None or not self.metrics.statuses:
            return BEFORE_ALL
        statuses = self.metrics.statuses
        reached = [
            watermark_beside_tables(statuses, query.streams)
            for query in self.metrics.physical.queries
            if not query.streams.isdisjoint(self.tables)
        ]
        return max([time for time in reached if time < FOREVER], default=BEFORE_ALL)

    def _next(self, name: str, source: Source, before: SourceOffset, changed: Instant) -> SourceOffset:
        """The next offset of a stream. One without a time column reaches at once the instant at which a table was
        changed, so that the change is seen."""
        if before.ended:
            return before
        max_rows = self.batch_rows if self.shedding_controller is None else int(self.shedding_controller.max_rows(name))
        at, ended = source.advance(before.at, max_rows)
        seal = source.seal(at) if at > before.at else before.seal
        if source.stream.time_column is None:
            after = replace(before, at=at, idle=False, ended=ended, seal=seal)
            return self._by_arrival(before, after, changed)
        seconds = time.monotonic()
        if source.brings_rows(before.at, at):
            self._last_row_times[name] = seconds
            return replace(before, at=at, idle=False, ended=ended, seal=seal)
        if at > before.at:
            return replace(before, at=at, ended=ended, seal=seal)
        idle_after_us = source.stream.idle_after_us
        idle = (
            idle_after_us is not None and not ended and seconds - self._last_row_times[name] >= idle_after_us / SECOND
        )
        return replace(before, idle=idle, ended=ended)

    def _by_arrival(self, before: SourceOffset, after: SourceOffset, changed: Instant) -> SourceOffset:
        """Arrival time of a batch of rows without a time column.

        It grows from batch to batch, also where the clock is set back. Nothing can arrive earlier than now, so an idle
        stream advances the watermark from time to time.
        """
        if isinstance(self.clock, SteadyClock):
            self.clock.go_on_from(before.arrived)  # it may have been set back between two runs
        arrived = max(self.clock(), before.arrived + 1, changed)
        has_news = after.at > before.at or after.ended or before.arrived < changed
        return replace(after, arrived=arrived) if has_news or arrived - before.arrived >= TICK_US else before

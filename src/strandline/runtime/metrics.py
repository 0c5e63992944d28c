"""Counters and watermarks of a pipeline since its queries began, also across restarts."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, show_instant
from strandline.planner.physical.plan import Pipeline, QueryPlan
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.records import BatchRecord
from strandline.runtime.checkpoint.versions import SOURCE, GraphVersion
from strandline.runtime.edge_metrics import Measurements
from strandline.runtime.kernels.refused_values import Sample
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.watermark import SourceStatus, watermark_of


@dataclass(frozen=True, slots=True)
class Totals:
    """What had been counted before a batch."""

    rows_out: dict[str, int]
    announced: dict[str, Instant]
    passed: dict[str, list[int]]
    seconds: dict[str, list[float]]


class PipelineMetrics:
    """What was counted in all batches so far. A batch that runs again counts once."""

    def __init__(self, physical: Pipeline) -> None:
        self.physical = physical
        self.last_batch = -1
        self.batches = 0  # of this run
        self.statuses: Mapping[str, SourceStatus] = {}
        self.rows_out = dict.fromkeys((query.name for query in physical.queries), 0)
        self._plans = {query.name: query for query in physical.queries}
        self.announced: dict[str, Instant] = {}  # the watermark at the last announcement of open elements, by query
        self.last_result_batches: dict[str, int] = {}  # the last batch that brought rows, by query
        self.operators: Mapping[str, OperatorCounters] = {}  # by fragment: totals of what passed, and what is kept now
        self.reaches: Mapping[str, Instant] = {}  # of queries that wait for work: up to when their results are complete
        self.work_left = 0  # rows that wait, of shared window joins and of fragments
        self.measurements = Measurements()
        self._measured_before = self.measurements
        self._before_last = Totals(dict(self.rows_out), {}, {}, {})

    def snapshot(self) -> PipelineMetrics:
        """The counters as they are; later batches change others."""
        return copy(self)

    def adopt(self, physical: Pipeline) -> None:
        """Go on with another version of the graph: what is new begins with nothing, what is gone is forgotten."""
        self.physical = physical
        self._plans = {query.name: query for query in physical.queries}
        names = [query.name for query in physical.queries]  # in order: records are the same, byte by byte
        fragments = {fragment.id for fragment in physical.fragments}
        streams = {stream.name for stream in physical.streams}
        self.statuses = {name: status for name, status in self.statuses.items() if name in streams}
        self.rows_out = {name: self.rows_out.get(name, 0) for name in names}
        self.announced = {name: time for name, time in self.announced.items() if name in names}
        self.last_result_batches = {name: last for name, last in self.last_result_batches.items() if name in names}
        self.reaches = {name: reach for name, reach in self.reaches.items() if name in names}
        of_streams = {f"{SOURCE}{name}" for name in streams}
        kept = fragments | of_streams
        self.operators = {name: counts for name, counts in self.operators.items() if name in kept}
        base = self._before_last
        self._before_last = Totals(
            {name: base.rows_out.get(name, 0) for name in names},
            {name: time for name, time in base.announced.items() if name in names},
            {name: passed for name, passed in base.passed.items() if name in kept},
            {name: seconds for name, seconds in base.seconds.items() if name in kept},
        )

    def _refused(self, fragment: str, counts: OperatorCounters) -> dict[str, Sample]:
        """The first samples of the filters that have let nothing through up to now."""
        before = self.operators[fragment].refused if fragment in self.operators else {}
        return {number: one for number, one in {**counts.refused, **before}.items() if not counts.passed[int(number)]}

    def add(self, report: BatchReport) -> None:
        """Add up what a batch brought. One that runs again was counted, so its count begins before it."""
        again = report.batch == self.last_batch
        base = self._before_last if again else self._totals()
        self._before_last = base
        self.batches += 1
        self.rows_out = {name: count + report.rows_out.get(name, 0) for name, count in base.rows_out.items()}
        operators = dict(self.operators)
        known = {f"{SOURCE}{stream.name}" for stream in self.physical.streams}
        known |= {fragment.id for fragment in self.physical.fragments}
        for fragment, counts in report.operators.items():
            if fragment not in known:
                continue  # of a version that had it
            passed = map(operator.add, base.passed.get(fragment) or [0] * len(counts.passed), counts.passed)
            seconds = map(operator.add, base.seconds.get(fragment) or [0.0] * len(counts.passed), counts.seconds)
            total = replace(counts, passed=list(passed), seconds=list(seconds))
            total.refused = self._refused(fragment, total)
            operators[fragment] = total
        self.operators = operators  # a new one: others may be looking at the old one
        self._measured_before = self._measured_before if again else self.measurements
        self.measurements = self._measured_before.after(report.requested_metrics, report.measured)
        self.last_result_batches |= {name: report.batch for name, rows in report.rows_out.items() if rows}
        streams = {stream.name for stream in self.physical.streams}
        statuses = {**self.statuses, **report.statuses}  # a new one: others may be looking at the old one
        self.statuses = {name: status for name, status in statuses.items() if name in streams}
        self.reaches = {name: reach for name, reach in sorted(report.work.reaches.items()) if name in self._plans}
        self.work_left = report.work.left
        # A batch that runs again may have announced a query that was dropped since.
        announced = [query.name for query in self.physical.queries if query.name in report.announced]
        self.announced = base.announced | {name: self.watermark(name) for name in announced}
        self.last_batch = report.batch

    def _totals(self) -> Totals:
        passed = {fragment: counts.passed for fragment, counts in self.operators.items()}
        return Totals(
            self.rows_out,
            self.announced,
            passed,
            {fragment: counts.seconds for fragment, counts in self.operators.items()},
        )

    def announced_before(self, query: str, batch: int) -> Instant:
        """The watermark at the last announcement of the open elements of a query before a batch."""
        before = self._before_last.announced if batch == self.last_batch else self.announced
        return before.get(query, BEFORE_ALL)

    def to_json(self) -> dict[str, Any]:
        """The counters, for the record of a batch; `resume` reads them."""
        return {
            "rows_out": self.rows_out,
            "operators": {fragment: counts.to_json() for fragment, counts in self.operators.items()},
            "before": asdict(self._before_last),
            "answered": self.last_result_batches,
            "announced": self.announced,
            **({"reaches": self.reaches, "work_left": self.work_left} if self.has_work else {}),
        }

    def resume(self, record: BatchRecord, version: GraphVersion | None = None) -> None:
        """Continue after a batch, with a version that may be later than the record has; raises if the record has not
        the right form."""
        self.last_batch = record.batch
        self.statuses = {name: SourceStatus.from_json(status) for name, status in record.statuses.items()}
        totals = record.totals
        self.rows_out = dict(totals["rows_out"])
        self.operators = {fragment: OperatorCounters(**counts) for fragment, counts in totals["operators"].items()}
        self._before_last = Totals(**totals["before"])
        self.last_result_batches = dict(totals["answered"])
        self.announced = dict(totals["announced"])
        self.reaches, self.work_left = dict(totals.get("reaches", {})), int(totals.get("work_left", 0))
        if version is not None:  # what has only the name of an earlier query or source begins with nothing
            going_on, streams = (
                version.queries_since(record.version),
                version.positions_of(self.statuses, record.version),
            )
            self.statuses = streams
            self.forget(frozenset(query.name for query in version.queries) - going_on)
        self.adopt(self.physical)

    def forget(self, queries: Collection[str]) -> None:
        """Forget what was counted of queries: others may get their names."""
        base = self._before_last
        self.reaches = {name: reach for name, reach in self.reaches.items() if name not in queries}
        for counted in (self.rows_out, self.announced, self.last_result_batches, base.rows_out, base.announced):
            for name in queries:
                counted.pop(name, None)

    @property
    def state_rows(self) -> int:
        return sum(sum(counts.rows) for counts in self.operators.values())

    @property
    def state_bytes(self) -> int:
        return sum(sum(counts.bytes) for counts in self.operators.values())

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the operators since the queries began."""
        return sum(sum(counts.seconds) for counts in self.operators.values())

    @property
    def has_work(self) -> bool:
        """Whether some work was put off, so that another batch follows. A query may be behind although nothing waits:
        the instant up to which it went was chosen before it was known what the batch brings."""
        return self.work_left > 0 or bool(self.reaches)

    @property
    def ended(self) -> bool:
        """Whether all sources have ended, so that no row follows, and all work is done."""
        return (
            bool(self.statuses)
            and not self.has_work
            and all(
                (status := self.statuses.get(stream.name)) is not None and status.ended
                for stream in self.physical.streams
            )
        )

    def rows_taken(self) -> dict[str, int]:
        """How many rows of each stream were taken in so far, dropped or not."""
        return {stream: status.rows + status.late for stream, status in self.statuses.items()}

    def statuses_for(self, query: str) -> dict[str, SourceStatus]:
        """What is known of the streams of the pipeline, as the query sees them."""
        streams = self.streams_of(query)
        return {name: status.for_queries_over(streams) for name, status in self.statuses.items()}

    def statuses_of(self, query: str) -> dict[str, SourceStatus]:
        """The same of those that it reads, also of such as have no status yet."""
        known = self.statuses_for(query)
        return {name: known.get(name) or SourceStatus(name) for name in self.streams_of(query)}

    def readers_of(self, query: str) -> dict[str, str]:
        """The streams that a query reads, by the names by which they are declared."""
        streams = self.streams_of(query)
        return {stream.declared_name: stream.name for stream in self.physical.streams if stream.name in streams}

    def declared(self, query: str, statuses: Mapping[str, SourceStatus]) -> dict[str, SourceStatus]:
        """The statuses of streams by the names by which they are declared; of one that the query reads for itself, that
        of its own reader."""
        seconds = {stream.name for stream in self.physical.streams if stream.reader_of}
        known = {name: status for name, status in statuses.items() if name not in seconds}
        own = {name: reader for name, reader in self.readers_of(query).items() if reader in seconds}
        return known | {
            name: replace(statuses.get(reader) or SourceStatus(name), stream=name) for name, reader in own.items()
        }

    def watermark(self, query: str) -> Instant:
        """Up to which instant the results of a query are final."""
        if not self.statuses:
            return BEFORE_ALL
        return min(watermark_of(self.statuses, self.streams_of(query)).time, self.reaches.get(query, FOREVER))

    def watermarks(self) -> dict[str, Instant]:
        return {query.name: self.watermark(query.name) for query in self.physical.queries}

    def show_watermark(self) -> str:
        """Up to when the results of all queries are final, as one word."""
        return show_instant(min(self.watermarks().values())).replace(" ", "T")

    def now(self, query: str, watermark: Instant) -> Instant:
        """The instant of the current snapshot: the last complete one, or that of the last row if no row will follow."""
        if watermark < FOREVER:
            return watermark - 1
        statuses = self.statuses_of(query).values()
        return max([status.high for status in statuses if status.rows and not status.table], default=0)

    def streams_of(self, query: str) -> frozenset[str]:
        """The streams that a query reads and waits for."""
        return self.plan_of(query).streams

    def plan_of(self, query: str) -> QueryPlan:
        """What the graph has of a query."""
        return self._plans[query]

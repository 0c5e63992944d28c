"""A running query, as its user holds it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import polars as pl
import pyarrow as pa

from strandline.connectors.sinks import Memory, Sink
from strandline.core.arguments import checked, parse_instant, require_name, require_range
from strandline.core.errors import QueryError, StrandlineError
from strandline.core.foreign_methods import refuse_foreign_method
from strandline.core.notices import Notice, NoticeLog
from strandline.core.table import Form, in_form
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant, show_instant, to_datetime
from strandline.database.follow import Follower
from strandline.database.introspection.diagnose import explain_why
from strandline.database.introspection.explain import analyzed
from strandline.database.introspection.statistics import QueryCounters, QueryStatistics, statistics_of
from strandline.database.running_notices import RunningNotices
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.graph import build_operator_graph
from strandline.planner.physical.plan import Pipeline, has_whole_elements
from strandline.runtime.checkpoint.versions import Start
from strandline.runtime.exchange import to_table
from strandline.runtime.graph_changes import stop_query
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, net_changes
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import to_result
from strandline.runtime.result_buffer import ResultChunks
from strandline.runtime.stage import OperatorCounters
from strandline.runtime.subscriptions import Subscription, Subscriptions
from strandline.runtime.watermark import SourceStatus

END_SECONDS = 0.05  # interval of looks whether a query has ended while others go on
WAIT_SECONDS = 2.0  # a sink that takes longer for a batch keeps its query waiting


@dataclass(frozen=True, slots=True)
class Shed:
    """Load shedding of one stream of a query: the present sampling rate, the rows that arrived and those dropped so
    far. For the whole query: the fraction of the result that is left, and its lag in seconds."""

    stream: str
    kept: float
    rows: int
    dropped: int
    completeness: float
    lag: float


class Query:
    """A continuous query and its result so far.

    The result is exact for every instant before the watermark, `progress`: `snapshot(at)` is what the plain SQL query
    would return over the window contents at that instant.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        pipeline: RunningPipeline,
        reads: frozenset[str],
        notices: tuple[Notice, ...],
        log: NoticeLog,
    ) -> None:
        self.name = name
        self.reads = reads  # the streams and views that its text names
        self.columns = pipeline.metrics.plan_of(name).columns
        self.sink = sink
        self._pipeline = pipeline
        self.in_graph = pipeline.graph.version.query(name)  # as it was when it began, or was resumed
        self._number = self.in_graph.number
        # Together with those that were started with it, or alone; now; from the beginning of what others have read.
        self.start: Start = self.in_graph.start
        self._notices = notices  # of its statement
        self._running_notices = RunningNotices(name, pipeline, log)
        self._warned = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_foreign_method(self, name)

    def __repr__(self) -> str:
        first = f"<query {self.name}, complete up to {show_instant(self.progress)}>"
        return "\n".join([first, *map(str, self.notices())])

    @property
    def _running(self) -> RunningPipeline:
        """The pipeline that it runs in, or what is left of it if it was dropped from one that goes on."""
        return self._pipeline.left.get(self._number, self._pipeline)

    @property
    def runs_in(self) -> RunningPipeline:
        """The pipeline that it runs in, with others or alone."""
        return self._running

    @property
    def progress(self) -> Instant:
        """The watermark of the result, in microseconds since the epoch: it is final before that instant."""
        return self._running.results.watermark(self.name)

    @property
    def pipeline(self) -> Pipeline:
        """What runs: the physical plan that this query shares with those that were started together with it."""
        return self._running.physical

    @property
    def has_whole_elements(self) -> bool:
        """True if no element of the result is cut at a watermark."""
        return has_whole_elements(self.pipeline, self.name)

    @property
    def checkpoint(self) -> Path:
        """The directory from which a restart resumes."""
        return self._running.checkpoint

    @property
    def pipeline_metrics(self) -> PipelineMetrics:
        """Counters of the pipeline that it shares with the queries that were started together with it."""
        return self._running.metrics

    @property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions to metrics of the plan."""
        return self._running.subscriptions

    @property
    def ended(self) -> bool:
        return self._running.ended

    @property
    def has_sink(self) -> bool:
        """True if the result goes elsewhere than to the memory of this process."""
        return not isinstance(self.sink, Memory)

    @property
    def is_running(self) -> bool:
        """Whether something may still happen: it has not ended, and was neither stopped nor has it failed."""
        return self.state == "running"

    @property
    def state(self) -> Literal["running", "ended", "stopped", "failed"]:
        driver = self._running.driver
        try:
            if driver is not None and not driver.await_end(0):
                return "running"
        except StrandlineError:
            return "failed"
        return "ended" if self.ended else "stopped"

    @property
    def waiting_for(self) -> str | None:
        """Which sink keeps the query, or one that runs together with it, waiting, and for how long; None if none."""
        writers = self._running.writers.items()
        since = {name: at for name, writer in writers if (at := writer.writing_since) is not None}
        if not since or not self.is_running:
            return None
        name = min(since, key=lambda query: since[query])
        seconds = time.monotonic() - since[name]
        return f"the sink of {name} for {seconds:.0f} s" if seconds >= WAIT_SECONDS else None

    @property
    def rows_behind(self) -> int | None:
        """About how many rows it has yet to read of what others have read; None if it does not catch up."""
        planner = self._running.planner
        if self.start != "beginning" or planner is None:
            return None
        readers = self._running.metrics.readers_of(self.name).values()
        return sum(planner.rows_behind.get(reader, 0) for reader in readers)

    @checked()
    def results(self, form: Form = "arrow") -> Any:
        """The elements known so far, in order of `valid_from`. Where they may come in pieces, equal ones that touch are
        joined into one; elsewhere each has the interval of its row."""
        kept = self._all_kept()
        # What is open was valid up to the watermark; that is all that is known.
        until = pl.when(pl.col(UNTIL) == OPEN).then(kept.watermark).otherwise(pl.col(UNTIL))
        frame = self._frame(kept).with_columns(until.alias(UNTIL))
        if not self.has_whole_elements:
            frame = coalesce(frame, [c.id for c in self.columns])
        return in_form(to_result(frame.sort(FROM, maintain_order=True), self.columns), form)

    @checked()
    def snapshot(self, at: datetime | str | int | None = None, form: Form = "arrow") -> Any:
        """The result at an instant before the watermark; without `at`, at the last complete instant, or at that of the
        last row if no row will follow."""
        frame = self.rows_at(None if at is None else parse_instant("snapshot", "at", at))
        return in_form(to_result(frame, self.columns).select([c.name for c in self.columns]), form)

    def rows_at(self, at: Instant | None) -> pl.DataFrame:
        """The elements of the result that are valid at an instant, by column id; the instant is as for `snapshot`."""
        self.check()
        if isinstance(self.sink, Memory):
            return self._running.results.snapshot(self.name, partial(self._snapshot_time, at))
        kept = self._kept()
        snapshot_time = self._snapshot_time(at, kept.watermark, kept.since)
        frame = self._frame(kept)
        return frame.filter((pl.col(FROM) <= snapshot_time) & (pl.col(UNTIL) > snapshot_time))

    def _snapshot_time(self, at: Instant | None, progress: Instant, since: Instant) -> Instant:
        """The instant of a snapshot, which must be complete, and retained."""
        if progress == BEFORE_ALL:
            raise QueryError(
                f"the result of {self.name} is not complete at any instant yet",
                code="not-complete",
                hint="Wait for the first rows of its streams.",
            )
        snapshot_time = self._running.metrics.now(self.name, progress) if at is None else at
        if snapshot_time >= progress:
            raise QueryError(
                f"the result of {self.name} at {show_instant(snapshot_time)} is not complete yet",
                code="not-complete",
                hint=f"It is complete for instants before {show_instant(progress)}.",
            )
        if snapshot_time < since:
            raise QueryError(
                f"the result of {self.name} at {show_instant(snapshot_time)} is no longer retained",
                code="no-longer-kept",
                hint=f"It is retained from {show_instant(since)} on. {self._remedy()}",
            )
        return snapshot_time

    @checked()
    def changes(self, form: Form = "arrow") -> Any:
        """The changes of the result, in order: the payload, `time`, and `change` (+n rows inserted, -n deleted).

        Only changes before the watermark: later ones may still be revised by rows to come.
        """
        kept = self._all_kept()
        net = net_changes(self._frame(kept), [c.id for c in self.columns])
        if kept.watermark < FOREVER:
            net = net.filter(pl.col(TIME) < kept.watermark)
        named = net.select(
            *(pl.col(c.id).alias(c.name) for c in self.columns),
            pl.col(TIME).cast(pl.Datetime("us", "UTC")).alias("time"),
            pl.col(CHANGE).alias("change"),
        )
        return in_form(to_table(named), form)

    @checked()
    def follow(self) -> Follower:
        """The changes of the result in order, from the beginning on, as they become final: to iterate over, with `for`
        or `async for`, until the query ends or the loop is left. Only for results in memory."""
        if not isinstance(self.sink, Memory):
            raise QueryError(
                f"the result of {self.name} goes to {type(self.sink).__name__}, and cannot be followed here",
                code="not-kept",
                hint="Run the query without a sink, or with a Memory sink, to follow it.",
            )
        self.check()
        inbox, since = self._running.results.subscribe(self.name)
        self._warn_evicted(since)
        return Follower(self, inbox)

    @checked()
    def follow_async(self) -> Follower:
        """The same, for `async for`."""
        return self.follow()

    @property
    def kept_since(self) -> Instant:
        """The first instant whose snapshot is still whole; `BEFORE_ALL` if nothing was evicted."""
        buffer = self._running.results.buffers.get(self.name)
        return buffer.since if buffer is not None else BEFORE_ALL

    @checked()
    def pieces(self, after: int = 0) -> ResultChunks:
        """The chunks of the result from number `after` on, and the watermark with them: to follow a result
        without reading all of it again. Only for results in memory."""
        if not isinstance(self.sink, Memory):
            raise self._not_kept()
        return self._running.results.read(self.name, after)

    @checked()
    def late(self, stream: str, form: Form = "arrow") -> Any:
        """The rows of a stream that are late for this query; of one that it does not read, for any query that runs with
        it."""
        name = self._stream_name("late", stream)
        metrics = self._running.metrics
        own, reader = metrics.streams_of(self.name), metrics.readers_of(self.name).get(name, name)
        late = self._running.results.late.get(reader, ())
        return in_form(_joined([rows.of_queries_over(own) if reader in own else rows.table for rows in late]), form)

    @checked()
    def rejected(self, stream: str, form: Form = "arrow") -> Any:
        """The rejected rows of a stream: place, row number, reason, content."""
        name = self._stream_name("rejected", stream)
        reader = self._running.metrics.readers_of(self.name).get(name, name)
        return in_form(_joined(self._running.results.rejected.get(reader)), form)

    def _stream_name(self, called: str, stream: str) -> str:
        shared = {source.declared_name for source in self.pipeline.streams if source.table is None}
        # The plan may do without a stream that the text names, and has those of the queries that run together.
        names = sorted(shared | self.reads)
        return require_name(called, "stream", stream, names, what=f"{self.name} reads no stream")

    @checked()
    def metrics(self) -> dict[str, Any]:
        """Counters and gauges: rows read, applied, late, rejected and dropped by stream; rows of the result, progress,
        state, CPU time of the operators, batches. What was read was applied, late or rejected.

        `rows_left` is about how many rows the sources still hold; None where no source can tell. `forgotten` is
        how many rows of the result were evicted from memory, `kept_since` from when on it is whole; None for all of it.
        `waiting_for` is the sink that blocks the query, if one does. `start` is how it began: together with others, now
        or from the beginning; then `rows_behind` is about how many rows it has to read to be where others are.
        `response_p50`, `response_p99` and `response_max` are seconds from the decision on a batch to the delivery of
        the results that it made possible, in this run: the median, the 99th percentile and the longest; None without
        results. `work_left` is how many rows wait until a later batch has time for them, if the query waits
        for that.
        """
        counted, driver = self._running.metrics, self._running.driver
        statuses = counted.declared(self.name, counted.statuses_for(self.name))
        progress, since = self.progress, self.kept_since
        buffer = self._running.results.buffers.get(self.name)
        return {
            "query": self.name,
            "read": {name: status.read for name, status in statuses.items()},
            "rows_in": {name: status.rows for name, status in statuses.items()},
            "applied": {name: status.rows for name, status in statuses.items()},
            "rows_out": counted.rows_out.get(self.name, 0),
            "dropped": {name: status.dropped.get(self.name, 0) for name, status in statuses.items()},
            "late": {name: status.late for name, status in statuses.items()},
            "rejected": {name: status.rejected for name, status in statuses.items()},
            "progress": to_datetime(progress) if BEFORE_ALL < progress < FOREVER else None,
            "ended": self.ended,
            "state_rows": counted.state_rows,
            "state_bytes": counted.state_bytes,
            "cpu_seconds": counted.cpu_seconds,
            "batches": counted.batches,
            **self._running.responses.of(self.name).to_metrics(),
            "work_left": counted.work_left if self.name in counted.reaches else 0,
            "forgotten": buffer.evicted if buffer is not None else 0,
            "kept_since": to_datetime(since) if since > BEFORE_ALL else None,
            "rows_left": None if driver is None or self.ended else driver.rows_left(),
            "waiting_for": self.waiting_for,
            "start": self.start,
            "rows_behind": self.rows_behind,
        }

    @checked()
    def shedding(self) -> list[Shed]:
        """What is dropped of each stream, where rows may be; nothing for a query that may not lose any."""
        shedding_controller = self._running.shedding_controller
        if shedding_controller is None or shedding_controller.queries[self.name].min_rate >= 1.0:
            return []
        completeness, lag = shedding_controller.completeness(self.name), shedding_controller.load.lag
        statuses = self.heartbeats()
        shed = []
        for stream, sampling_rate in sorted(shedding_controller.sampling_rates_of(self.name).items()):
            rows, dropped = statuses[stream].rows, statuses[stream].dropped.get(self.name, 0)
            shed.append(Shed(stream, sampling_rate, rows, dropped, completeness, lag))
        return shed

    @checked()
    def heartbeats(self) -> dict[str, SourceStatus]:
        """What the query has heard of each of its streams: rows, progress, whether it is idle or has ended."""
        metrics = self._running.metrics
        return metrics.declared(self.name, metrics.statuses_of(self.name))

    @checked()
    def check(self) -> None:
        """Raise what made the query fail, if something did."""
        if self._running.driver is not None:
            self._running.driver.check()

    @checked()
    def batch_durations(self) -> list[dict[str, Any]]:
        """What recent batches took, by phase, in milliseconds."""
        return self._running.driver.durations() if self._running.driver is not None else []

    @checked()
    def explain(self, analyze: bool = False) -> str:
        """The plan that runs; with `analyze` what its operators did so far, and what was expected of them."""
        if not analyze:
            return show_pipeline(self.pipeline)
        results = build_operator_graph(self.pipeline).results[self.name]
        return analyzed(self.statistics(), results, self.heartbeats(), self.progress, self._running.expected())

    @checked()
    def operators(self) -> Mapping[str, OperatorCounters]:
        """What the operators of each fragment of `pipeline` did so far, and what they keep; what reading its streams
        took, under `source:name`."""
        return self._running.metrics.operators

    @checked()
    def statistics(self) -> QueryStatistics:
        """Statistics of each operator and of the streams between them. Rates within the plan, lengths, granules and
        counts of values need a subscription."""
        return statistics_of(self.name, self._running.metrics)

    @checked()
    def subscribe(
        self,
        callback: Callable[[QueryStatistics], None] | None = None,
        *,
        items: Iterable[str] | None = None,
        every: float = 1.0,
    ) -> Subscription:
        """Have the plan measured until the subscription is closed, and the callback called after a batch, at most once
        in `every` seconds, and after the last one.

        `items` are any of rate, distance, length, granule, distinct, selectivity, state and cost; all of them by
        default. Only subscribed items are measured. Queries that were started together share a plan, and what
        is measured of it.
        """
        require_range("subscribe", "every", every, 0)
        notify = None if callback is None else lambda: callback(self.statistics())
        return self._running.subscriptions.add(items, notify, every)

    @checked()
    def notices(self) -> list[Notice]:
        """What there is to know of the query as it is written and as it runs, each with a remedy."""
        self._running_notices.running = self._running
        return [*self._notices, *self._running_notices.current()]

    @checked()
    def show_notices(self) -> None:
        """Show the notices that are new: at the end all of them, before that those that have held for some time."""
        self._running_notices.running = self._running
        self._running_notices.show(is_over=self.ended or not self.is_running)

    @checked()
    def why(self) -> str:
        """The diagnosis of an empty result: idle sources, a stalled watermark, operators without output."""
        diagnosis = explain_why(QueryCounters.of(self.name, self._running.metrics))
        return f"{self.name} waits for {self.waiting_for}\n{diagnosis}" if self.waiting_for else diagnosis

    @checked()
    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended and the result is complete; false if the time ran out first."""
        require_range("await_end", "timeout", timeout, 0, threading.TIMEOUT_MAX)
        until = None if timeout is None else time.monotonic() + timeout
        while (driver := self._running.driver) is not None:  # that of the pipeline, which others may outlast
            left = END_SECONDS if until is None else min(END_SECONDS, max(0.0, until - time.monotonic()))
            if driver.await_end(left):
                break
            if until is not None and time.monotonic() >= until:
                return False
        self.show_notices()
        return True

    @checked()
    def stop(self) -> None:
        """End the query; those that run in one pipeline with it go on. What it has written stays."""
        stop_query(self._pipeline, self._number)
        self.show_notices()

    def _kept(self) -> ResultChunks:
        self.check()
        kept = self._running.read_results(self.name)
        if kept is None:
            raise self._not_kept()
        return kept

    def _all_kept(self) -> ResultChunks:
        """The retained result; warns once if a part was evicted."""
        kept = self._kept()
        self._warn_evicted(kept.since)
        return kept

    def _warn_evicted(self, since: Instant) -> None:
        if since > BEFORE_ALL and not self._warned:
            self._warned = True
            missing = f"the result of {self.name} before {show_instant(since)} is no longer retained"
            warnings.warn(f"{missing}. {self._remedy()}", stacklevel=4)

    def _frame(self, kept: ResultChunks) -> pl.DataFrame:
        return kept.frame(self.columns)

    def _remedy(self) -> str:
        if isinstance(self.sink, Memory) and self.sink.keep_us is not None:
            return "Keep more of the past: CREATE MATERIALIZED VIEW … KEEP 7 DAYS."
        limit = f"{self.sink.keep:,}" if isinstance(self.sink, Memory) else "so many"
        return (
            f"Memory keeps {limit} elements: pass a larger keep to connect() or `strandline shell`, "
            "or write the result to a Parquet sink."
        )

    def _not_kept(self) -> QueryError:
        return QueryError(
            f"the result of {self.name} went to {type(self.sink).__name__} and was not retained",
            code="not-kept",
            hint="Use a Memory, Parquet or Delta sink to read it here.",
        )


def stop_all(queries: Iterable[Query]) -> None:
    """Stop queries, each pipeline in a thread of its own: the slowest says how long it takes, not their number."""
    pipelines = {id(query._pipeline): query._pipeline for query in queries}
    threads = [threading.Thread(target=pipeline.stop, name="strandline-stop") for pipeline in pipelines.values()]
    if len(threads) < 2:
        for pipeline in pipelines.values():
            pipeline.stop()
        return
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _joined(tables: list[pa.Table] | None) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})

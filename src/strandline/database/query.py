"""A running query, as its user holds it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from strandline.connectors.sinks import Memory, Outlet, Sink
from strandline.core.errors import QueryError, StrandlineError
from strandline.core.interrupts import finishes_within
from strandline.core.log import SINK, WARNING, log_event
from strandline.core.table import Form, in_form
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant, instant, show_instant, to_datetime
from strandline.core.types import Schema
from strandline.database.introspection.diagnose import evidence_of, explain_why
from strandline.database.introspection.explain_analyze import Estimate, analyzed
from strandline.database.introspection.statistics import Statistics, statistics_of
from strandline.engines.backends import Run
from strandline.planner.physical.graph import flow_of
from strandline.planner.physical.plan import Pipeline, has_whole_elements
from strandline.runtime.commit import BatchReport, Delivery
from strandline.runtime.exchange import to_table
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, net_changes
from strandline.runtime.result import from_answer, to_answer
from strandline.runtime.result_buffer import Kept, Pieces, joined
from strandline.runtime.stage import Counts
from strandline.runtime.subscriptions import Subscription
from strandline.runtime.watermark import Heartbeat
from strandline.shedding.controller import Shedder

CLOSE_SECONDS = 1.0
WAIT_SECONDS = 2.0  # a sink that takes longer for a batch keeps its query waiting


@dataclass(slots=True)
class Group:
    """Queries that run together in one pipeline: what they share."""

    delivery: Delivery
    checkpoint: Path
    explanation: str
    outlets: Mapping[str, Outlet]  # by query
    run: Run | None = None  # None if everything was finished before
    shedder: Shedder | None = None  # where a query may lose rows
    on_stop: list[Callable[[], None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: dict[str, Kept] = field(default_factory=dict)  # those that stay in memory
    expected: Callable[[], Mapping[str, Estimate]] = dict  # of each step; asked for when somebody wants to know
    late: dict[str, list[pa.Table]] = field(default_factory=dict)
    rejected: dict[str, list[pa.Table]] = field(default_factory=dict)
    batches: int = 0
    _progress: dict[str, Instant] = field(init=False)

    def __post_init__(self) -> None:
        self._progress = self.delivery.all_progress()  # what a checkpoint remembers

    def progress(self, query: str) -> Instant:
        """How far the answer that is kept here reaches: time never runs ahead of the rows that belong to it."""
        with self.lock:
            return self._progress[query]

    def pieces(self, query: str, after: int) -> Pieces:
        """What came of an answer from number `after` on, with the progress that goes with it."""
        with self.lock:
            return self.answers[query].pieces(after, self._progress[query])

    def now(self, query: str, progress: Instant) -> Instant:
        """The instant of the current snapshot: the last complete one, or that of the last row if no row will follow."""
        if progress < FOREVER:
            return progress - 1
        return max([beat.high for beat in self.heartbeats(query).values() if beat.rows], default=0)

    def heartbeats(self, query: str) -> dict[str, Heartbeat]:
        streams = next(each.streams for each in self.delivery.pipeline.queries if each.name == query)
        return {name: self.delivery.heartbeats.get(name) or Heartbeat(name) for name in streams}

    def take(self, report: BatchReport) -> None:
        """Keep what stays in memory."""
        with self.lock:
            self.batches += 1
            self._progress = self.delivery.all_progress()
            for name, answer in self.answers.items():
                answer.add(report.answers.get(name, ()))
            for mine, theirs in ((self.late, report.late), (self.rejected, report.rejected)):
                for name, tables in theirs.items():
                    mine.setdefault(name, []).extend(tables)
        self._forget()

    def _forget(self) -> None:
        """Shorten what has become too long. Only `take` changes answers, so others may read them meanwhile."""
        for name, answer in self.answers.items():
            if answer.is_too_long and self._progress[name] > BEFORE_ALL:
                shorter = answer.shortened(self.now(name, self._progress[name]))
                with self.lock:
                    self.answers[name] = shorter

    def kept(self, query: str) -> Pieces | None:
        """The answer of a query, in memory or wherever its sink can read it again."""
        if query in self.answers:
            return self.pieces(query, 0)
        progress = self.progress(query)
        tables = self.outlets[query].kept()
        return None if tables is None else Pieces(tables, progress, len(tables), BEFORE_ALL, anew=False)

    def interrupt(self) -> None:
        """End what the sinks wait for."""
        for outlet in self.outlets.values():
            outlet.interrupt()

    def stop(self) -> None:
        if self.run is not None:
            self.interrupt()  # first: the run waits for them
            self.run.stop()
        for name, outlet in self.outlets.items():
            if not finishes_within(CLOSE_SECONDS, outlet.close):
                log_event(SINK, WARNING, "sink left behind", query=name, reason="it does not close its connection")
        while self.on_stop:
            self.on_stop.pop()()


@dataclass(frozen=True, slots=True)
class Shed:
    """What a query does without of one stream: the share that is kept now, the rows that came, and those of them that
    were dropped so far. For the query as a whole: which part of the answer is left, and how many seconds it is late."""

    stream: str
    kept: float
    rows: int
    dropped: int
    completeness: float
    lag: float


class Query:
    """A continuous query and its answer so far.

    The answer is exact for every instant before the progress: what `snapshot(at)` returns is what the plain SQL query
    would have returned over the window contents at that instant.
    """

    def __init__(self, name: str, columns: Schema, sink: Sink, group: Group, reads: frozenset[str]) -> None:
        self.name = name
        self.reads = reads  # the streams and views that its text names
        self.columns = columns
        self.sink = sink
        self._group = group
        self._warned = False

    def __repr__(self) -> str:
        return f"<query {self.name}, complete up to {show_instant(self.progress)}>"

    @property
    def progress(self) -> Instant:
        """Up to which instant the answer is complete, in microseconds since the epoch."""
        return self._group.progress(self.name)

    @property
    def pipeline(self) -> Pipeline:
        """What runs: the physical plan that this query shares with those that were started together with it."""
        return self._group.delivery.pipeline

    @property
    def has_whole_elements(self) -> bool:
        """Whether no element of the answer comes in pieces."""
        return has_whole_elements(self.pipeline, self.name)

    @property
    def checkpoint(self) -> Path:
        """Where its memory lies."""
        return self._group.checkpoint

    @property
    def ended(self) -> bool:
        return self._group.delivery.ended

    @property
    def has_sink(self) -> bool:
        """Whether the answer goes somewhere else than to this process' memory."""
        return not isinstance(self.sink, Memory)

    @property
    def is_running(self) -> bool:
        """Whether something may still happen: it has not ended, and was neither stopped nor has it failed."""
        return self.state == "running"

    @property
    def state(self) -> Literal["running", "ended", "stopped", "failed"]:
        run = self._group.run
        try:
            if run is not None and not run.await_end(0):
                return "running"
        except StrandlineError:
            return "failed"
        return "ended" if self.ended else "stopped"

    @property
    def waiting_for(self) -> str | None:
        """Which sink keeps the query, or one that runs together with it, waiting, and for how long; None if none."""
        outlets = self._group.outlets.items()
        since = {name: at for name, outlet in outlets if (at := outlet.taking_since) is not None}
        if not since or not self.is_running:
            return None
        name = min(since, key=lambda query: since[query])
        seconds = time.monotonic() - since[name]
        return f"the sink of {name} for {seconds:.0f} s" if seconds >= WAIT_SECONDS else None

    def results(self, form: Form = "arrow") -> Any:
        """The elements known so far, in order of `valid_from`. Where they may come in pieces, equal ones that touch are
        joined into one; elsewhere each has the interval of its row."""
        frame = self._frame(self._all_kept())
        if not self.has_whole_elements:
            frame = coalesce(frame, [c.id for c in self.columns])
        return in_form(to_answer(frame.sort(FROM, maintain_order=True), self.columns), form)

    def snapshot(self, at: datetime | str | int | None = None, form: Form = "arrow") -> Any:
        """The answer at an instant before the progress; without `at`, at the last complete instant, or at that of the
        last row if no row will follow."""
        kept = self._kept()
        progress = kept.progress
        wanted = self._group.now(self.name, progress) if at is None else instant(at)
        if wanted >= progress:
            raise QueryError(
                f"the result of {self.name} at {show_instant(wanted)} is not complete yet",
                code="not-complete",
                hint=f"It is complete for instants before {show_instant(progress)}.",
            )
        if wanted < kept.since:
            raise QueryError(
                f"the result of {self.name} at {show_instant(wanted)} is no longer retained",
                code="no-longer-kept",
                hint=f"It is retained from {show_instant(kept.since)} on. {self._remedy()}",
            )
        frame = self._frame(kept)
        valid = frame.filter((pl.col(FROM) <= wanted) & (pl.col(UNTIL) > wanted))
        return in_form(to_answer(valid, self.columns).select([c.name for c in self.columns]), form)

    def changes(self, form: Form = "arrow") -> Any:
        """What happened to the answer, in order: the payload, `time`, and `change` (+n copies came, -n went).

        Only changes before the progress: later ones may still be revised by rows to come.
        """
        kept = self._all_kept()
        net = net_changes(self._frame(kept), [c.id for c in self.columns])
        if kept.progress < FOREVER:
            net = net.filter(pl.col(TIME) < kept.progress)
        named = net.select(
            *(pl.col(c.id).alias(c.name) for c in self.columns),
            pl.col(TIME).cast(pl.Datetime("us", "UTC")).alias("time"),
            pl.col(CHANGE).alias("change"),
        )
        return in_form(to_table(named), form)

    @property
    def kept_since(self) -> Instant:
        """The first instant whose snapshot is still whole; `BEFORE_ALL` if nothing was forgotten."""
        return self._group.answers[self.name].since if self.name in self._group.answers else BEFORE_ALL

    def pieces(self, after: int = 0) -> Pieces:
        """The answer as it was delivered, from piece `after` on, and up to when it is complete with them: for whoever
        follows it without reading everything again. Only where it is kept in memory."""
        if not isinstance(self.sink, Memory):
            raise self._not_kept()
        return self._group.pieces(self.name, after)

    def late(self, stream: str, form: Form = "arrow") -> Any:
        """The rows of a stream that came later than it promised."""
        return in_form(_joined(self._group.late.get(stream)), form)

    def rejected(self, stream: str, form: Form = "arrow") -> Any:
        """The malformed rows of a stream: place, row number, reason, content."""
        return in_form(_joined(self._group.rejected.get(stream)), form)

    def metrics(self) -> dict[str, Any]:
        """Counters and gauges: rows read, applied, late, rejected and dropped by stream; rows of the answer, progress,
        state, CPU time of the operators, batches. What was read was applied, late or rejected.

        `rows_left` is about how many rows the sources still hold; None where none of them can tell. `forgotten` is how
        many rows of the answer memory no longer has, `kept_since` from when on it is whole; None for all of it.
        `waiting_for` is the sink that holds the query up, if one does.
        """
        delivery, run = self._group.delivery, self._group.run
        beats = delivery.heartbeats
        progress, since = self.progress, self.kept_since
        answer = self._group.answers.get(self.name)
        return {
            "query": self.name,
            "read": {name: beat.read for name, beat in beats.items()},
            "rows_in": {name: beat.rows for name, beat in beats.items()},
            "applied": {name: beat.rows for name, beat in beats.items()},
            "rows_out": delivery.rows_out.get(self.name, 0),
            "dropped": {name: beat.dropped.get(self.name, 0) for name, beat in beats.items()},
            "late": {name: beat.late for name, beat in beats.items()},
            "rejected": {name: beat.rejected for name, beat in beats.items()},
            "progress": to_datetime(progress) if BEFORE_ALL < progress < FOREVER else None,
            "ended": self.ended,
            "state_rows": delivery.state_rows,
            "state_bytes": delivery.state_bytes,
            "cpu_seconds": delivery.cpu_seconds,
            "batches": self._group.batches,
            "forgotten": answer.forgotten if answer is not None else 0,
            "kept_since": to_datetime(since) if since > BEFORE_ALL else None,
            "rows_left": None if run is None or self.ended else run.rows_left(),
            "waiting_for": self.waiting_for,
        }

    def shedding(self) -> list[Shed]:
        """What is dropped of each stream, where rows may be; nothing for a query that may not lose any."""
        shedder = self._group.shedder
        if shedder is None or shedder.queries[self.name].least >= 1.0:
            return []
        completeness, lag = shedder.completeness(self.name), shedder.load.lag
        beats = self.heartbeats()
        return [
            Shed(stream, share, beats[stream].rows, beats[stream].dropped.get(self.name, 0), completeness, lag)
            for stream, share in sorted(shedder.standing(self.name).items())
        ]

    def heartbeats(self) -> dict[str, Heartbeat]:
        """What the query has heard of each of its streams: rows, progress, whether it is idle or has ended."""
        return self._group.heartbeats(self.name)

    def check(self) -> None:
        """Raise what made the query fail, if something did."""
        if self._group.run is not None:
            self._group.run.check()

    def batch_durations(self) -> list[dict[str, Any]]:
        """What recent batches took, by phase, in milliseconds."""
        return self._group.run.durations() if self._group.run is not None else []

    def explain(self, analyze: bool = False) -> str:
        """The plan that runs; with `analyze` what its operators did so far, and what was expected of them."""
        if not analyze:
            return self._group.explanation
        answers = flow_of(self.pipeline).answers[self.name]
        return analyzed(self.statistics(), answers, self.heartbeats(), self.progress, self._group.expected())

    def operators(self) -> Mapping[str, Counts]:
        """What the operators of each fragment of `pipeline` did so far, and what they keep; what reading its streams
        took, under `source:name`."""
        return self._group.delivery.operators

    def statistics(self) -> Statistics:
        """What is known by now of each operator and of what flows between them. Rates inside of the plan, lengths,
        granules and counts of values are there if somebody subscribes."""
        return statistics_of(self.name, self._group.delivery)

    def subscribe(
        self,
        callback: Callable[[Statistics], None] | None = None,
        *,
        items: Iterable[str] | None = None,
        every: float = 1.0,
    ) -> Subscription:
        """Have the plan measured until the subscription is closed, and the callback called after a batch, at most once
        in `every` seconds, and after the last one.

        `items` are any of rate, distance, length, granule, distinct, selectivity, state and cost; all of them if
        nothing is said. What nobody asks for is not measured. Queries that were started together share a plan, and what
        is measured of it.
        """
        tell = None if callback is None else lambda: callback(self.statistics())
        return self._group.delivery.subscriptions.add(items, tell, every)

    def why(self) -> str:
        """What stands between the streams and the answer: for a query whose answer is empty."""
        told = explain_why(evidence_of(self.name, self._group.delivery))
        return f"{self.name} waits for {self.waiting_for}\n{told}" if self.waiting_for else told

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended and the answer is whole; false if the time ran out first."""
        return True if self._group.run is None else self._group.run.await_end(timeout)

    def stop(self) -> None:
        """End the query (and those that run in one pipeline with it). What it has written stays."""
        self._group.stop()

    def _kept(self) -> Pieces:
        self.check()
        kept = self._group.kept(self.name)
        if kept is None:
            raise self._not_kept()
        return kept

    def _all_kept(self) -> Pieces:
        """The same for those who expect everything: they are told, once, that it is not."""
        kept = self._kept()
        if kept.since > BEFORE_ALL and not self._warned:
            self._warned = True
            missing = f"the result of {self.name} before {show_instant(kept.since)} is no longer retained"
            warnings.warn(f"{missing}. {self._remedy()}", stacklevel=3)
        return kept

    def _frame(self, kept: Pieces | None = None) -> pl.DataFrame:
        return from_answer(joined((kept or self._kept()).tables, self.columns), self.columns)

    def _remedy(self) -> str:
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
    groups = {id(query._group): query._group for query in queries}
    threads = [threading.Thread(target=group.stop, name="strandline-stop") for group in groups.values()]
    if len(threads) < 2:
        for group in groups.values():
            group.stop()
        return
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _joined(tables: list[pa.Table] | None) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})

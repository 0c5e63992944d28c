"""What this process keeps of the results of a pipeline, for threads that read it while batches are committed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from strandline.connectors.sinks.stored_view import StoredViewWriter
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.lateness import LateRows
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.result_buffer import ResultBuffer, ResultChunks
from strandline.runtime.result_inbox import ResultInbox

# An instant by the watermark, and by the first instant that is retained.
ChooseInstant: TypeAlias = Callable[[Instant, Instant], Instant]


class PipelineResults:
    """Results that stay in memory, late and rejected rows, and the watermarks that go with them.

    Law  a watermark never runs ahead of the rows before it: both are read under one lock
    """

    def __init__(self, metrics: PipelineMetrics, buffers: dict[str, ResultBuffer]) -> None:
        self.buffers = buffers  # by query
        self.late: dict[str, list[LateRows]] = {}
        self.rejected: dict[str, list[pa.Table]] = {}
        self._metrics = metrics
        self._watermarks = metrics.watermarks()  # those of the checkpoint, at a restart
        self._last_batches: dict[str, int] = {}  # that the buffers have
        self._inboxes: dict[str, list[ResultInbox]] = {}  # of those that follow a result
        self._lock = threading.Lock()
        self._indexing = threading.Lock()  # for readers of snapshots, which must not keep batches waiting

    def restore(self, query: str, writer: StoredViewWriter, last_batch: int) -> None:
        """Fill the buffer of a view with what an earlier run has stored, up to a batch."""
        writer.restore(self.buffers[query])
        self._last_batches[query] = last_batch

    def add_query(self, query: str, buffer: ResultBuffer) -> None:
        """Keep the results of a further query, which has none yet."""
        with self._lock:
            self.buffers = {**self.buffers, query: buffer}
            self._inboxes.pop(query, None)
            self._last_batches.pop(query, None)

    def split_off(self, query: str, metrics: PipelineMetrics) -> PipelineResults:
        """The results of one query, which does not go on."""
        with self._lock:
            kept = {name: buffer for name, buffer in self.buffers.items() if name == query}
            self.buffers = {name: buffer for name, buffer in self.buffers.items() if name != query}
            left = PipelineResults(metrics, kept)
            left._watermarks = {query: self._watermarks.get(query, BEFORE_ALL)}
            self._watermarks = {name: time for name, time in self._watermarks.items() if name != query}
            left._inboxes = {query: self._inboxes.pop(query, [])}
            left.late, left.rejected = self.late, self.rejected
            return left

    def append(self, report: BatchReport) -> None:
        """Keep what a batch brought, and forget the oldest of what has become too long."""
        with self._lock:
            begins, self._watermarks = self._watermarks, self._metrics.watermarks()
            for name, buffer in self.buffers.items():
                begins.setdefault(name, BEFORE_ALL)
                if report.batch > self._last_batches.get(name, -1):  # one that is repeated has the same rows
                    tables = report.results.get(name, ())
                    buffer.add(tables, begins[name])
                    for inbox in tuple(self._inboxes.get(name, ())):
                        inbox.put(tables, begins[name], self._watermarks[name])
                self._last_batches[name] = report.batch
            for stream, late in report.late.items():
                self.late.setdefault(stream, []).extend(late)
            for stream, rejected in report.rejected.items():
                self.rejected.setdefault(stream, []).extend(rejected)
        # Only this thread changes buffers, so others may read the long one while it is shortened.
        for name, buffer in self.buffers.items():
            if buffer.exceeds_limit and self._watermarks[name] > BEFORE_ALL:
                shorter = buffer.trim(self._metrics.now(name, self._watermarks[name]))
                with self._lock:
                    self.buffers[name] = shorter

    def subscribe(self, query: str) -> tuple[ResultInbox, Instant]:
        """An inbox with a result that stays in memory, and everything that comes; and since when it is retained."""
        with self._lock:
            chunks = self.buffers[query].chunks(0, self._watermarks.get(query, BEFORE_ALL))
            inbox = ResultInbox(chunks)
            self._inboxes.setdefault(query, []).append(inbox)
            return inbox, chunks.since

    def unsubscribe(self, query: str, inbox: ResultInbox) -> None:
        # Without the lock, which the thread may hold that runs a finalizer.
        with contextlib.suppress(ValueError):
            self._inboxes[query].remove(inbox)

    def watermark(self, query: str) -> Instant:
        """Up to which instant the results that are kept here are final."""
        with self._lock:
            return self._watermarks.get(query, BEFORE_ALL)

    def snapshot(self, query: str, choose: ChooseInstant) -> pl.DataFrame:
        """What is valid, of a result in memory, at an instant that is chosen by the watermark and by the begin of what
        is retained. The work goes with the rows that came since the last snapshot, and with what is valid."""
        with self._indexing:
            with self._lock:
                buffer, watermark = self.buffers[query], self._watermarks.get(query, BEFORE_ALL)
                index = buffer.index
                tables, begins = buffer.tables[index.chunks :], buffer.begins[index.chunks :]
            at = choose(watermark, buffer.since)
            index.add(tables, begins)
            return index.at(at)

    def read(self, query: str, after: int = 0) -> ResultChunks:
        """What came of a result that stays in memory from number `after` on, with the watermark that goes with it."""
        with self._lock:
            return self.buffers[query].chunks(after, self._watermarks.get(query, BEFORE_ALL))

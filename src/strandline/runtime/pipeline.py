"""A pipeline at work: its checkpoint, its sinks, its results, and everything that a batch changes.

`RunningPipeline.open` validates and claims, an engine drives the batches, `RunningPipeline.commit` ends each of them.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sinks import Memory, ResumePoint, Sink, SinkBatch, SinkWriter
from strandline.connectors.sinks.parquet_parts import ParquetTarget
from strandline.connectors.sinks.stored_view import StoredViewWriter
from strandline.connectors.sources.base import Source
from strandline.core.errors import damaged
from strandline.core.interrupts import finishes_within
from strandline.core.log import BATCH, DEBUG, INFO, INPUT, RECOVERY, SINK, WARNING, log_event
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.catalog import Catalog
from strandline.planner.estimate import Estimate, estimate
from strandline.planner.physical.forms import has_open_elements
from strandline.planner.physical.graph import build_operator_graph
from strandline.planner.physical.plan import Pipeline, has_whole_elements
from strandline.planner.planner import PlannedPipeline, PlanningInputs
from strandline.runtime.announcements import Announcements
from strandline.runtime.bad_input import check_input
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint import verify
from strandline.runtime.checkpoint.chain import CheckpointChain, DeliveredFile, state_directory
from strandline.runtime.checkpoint.examine import write_outputs
from strandline.runtime.checkpoint.identity import Checkpoint
from strandline.runtime.checkpoint.replay import replayed_until
from strandline.runtime.exchange import Message
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.offsets import OffsetPlanner
from strandline.runtime.outputs import OutputDirectories, OutputFiles
from strandline.runtime.result import cut_open, result_schema
from strandline.runtime.result_buffer import ResultBuffer, ResultChunks
from strandline.runtime.results import PipelineResults
from strandline.runtime.statistics_store import StatisticsStore
from strandline.runtime.subscriptions import Subscriptions
from strandline.runtime.watermark import SourceStatus, watermark_of
from strandline.shedding.controller import SheddingController

BATCH_ROWS: Final = 1_000_000
CLOSE_SECONDS: Final = 1.0  # for a sink to let go of its connections
FLOW: Final = "flow.json"  # the operators, for `strandline why` in another process


class PipelineDriver(ABC):
    """What drives a running pipeline: Spark's query, or a thread of this process.

    Its end is an event: a Ctrl-C in `Thread.join` makes Python 3.11 believe that the thread has ended.
    """

    def __init__(self) -> None:
        self._over = threading.Event()

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended; raises what made the queries fail. False if the time ran out."""
        over = self._over.wait(timeout)
        self.check()
        return over

    @abstractmethod
    def check(self) -> None:
        """Raise what made the queries fail, if something did."""

    @abstractmethod
    def stop(self) -> None:
        """End the batches; nothing is written afterwards."""

    def durations(self) -> list[dict[str, Any]]:
        """What recent batches took, by phase, in milliseconds."""
        return []

    def rows_left(self) -> int | None:
        """About how many rows of the sources have not been read; None if they cannot tell."""
        return None


class RunningPipeline:
    """Queries that run together, and what they share.

    `chain` is the checkpoint that batches continue; None where nothing outlives the process. `side_outputs` is where
    late and rejected rows are kept, as part of `output_files`.
    """

    def __init__(
        self,
        physical: Pipeline,
        *,
        chain: CheckpointChain | None = None,
        side_outputs: Path | None = None,
        writers: Mapping[str, SinkWriter] | None = None,
        buffers: dict[str, ResultBuffer] | None = None,
        statistics_store: StatisticsStore | None = None,
        shedding_controller: SheddingController | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self.physical = physical
        self.name = "+".join(query.name for query in physical.queries)  # for the log
        self.chain = chain
        self.writers = dict(writers or {})  # by query
        directories = {name: path for name, writer in self.writers.items() if (path := writer.directory)}
        consumed = frozenset(name for name, writer in self.writers.items() if writer.consumed)
        self.output_files = OutputFiles(physical, OutputDirectories(directories, side_outputs, consumed))
        self.statistics_store = statistics_store or StatisticsStore(Catalog(), None)
        self.shedding_controller = shedding_controller
        self.batch_rows = batch_rows  # about how many rows of a stream a batch takes
        self.subscriptions = Subscriptions()
        self.metrics = PipelineMetrics(physical)
        self._resume()
        self.results = PipelineResults(self.metrics, buffers or {})
        self.driver: PipelineDriver | None = None  # None if everything was over before
        self.inputs: PlanningInputs | None = None
        self._checkpoint: Checkpoint | None = None
        self._forgets = False  # whether a sink loses results that are open with its process
        self._announced = self.metrics.announced  # the watermarks at the last announcements that sinks have, by query
        self._appended = frozenset[str]()  # queries with open elements whose sinks only append
        self.announcements = Announcements(())
        self._columns = {query.name: query.columns for query in physical.queries}
        self._streams = {query.name: query.streams for query in physical.queries}

    @staticmethod
    def open(
        planned: PlannedPipeline,
        sinks: Mapping[str, Sink],
        checkpoint: Checkpoint,
        statistics_store: StatisticsStore,
        side_outputs: Path | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> RunningPipeline:
        """Validate plan, checkpoint, sources and sinks while nothing is changed; then claim the checkpoint and open the
        sinks. Side outputs are kept in `side_outputs`, or beside the first result that is a directory."""
        physical = planned.physical
        checkpoint.recognise(planned, sinks)
        chain = verify.verify_chain(checkpoint.path, checkpoint.lease)
        verify.verify_sources(physical, chain)
        columns = {query.name: query.columns for query in physical.queries}
        writers = {name: sink.open(name, columns[name]) for name, sink in sinks.items()}
        for name, writer in writers.items():
            writer.in_fragments = not has_whole_elements(physical, name)
            writer.has_open_elements = has_open_elements(physical, name)
        pipeline = RunningPipeline(
            physical,
            chain=chain,
            side_outputs=side_outputs
            or next((near for sink in sinks.values() if (near := sink.side_output_directory)), None),
            writers=writers,
            buffers={
                name: sink.make_buffer(columns[name], in_fragments=writers[name].in_fragments)
                for name, sink in sinks.items()
                if isinstance(sink, Memory)
            },
            statistics_store=statistics_store,
            batch_rows=batch_rows,
        )
        pipeline.inputs, pipeline._checkpoint = planned.inputs, checkpoint
        pipeline._forgets = any(sink.takes_changes and sink.location is None for sink in sinks.values())
        pipeline._appended = frozenset(
            name for name, sink in sinks.items() if not sink.takes_changes and writers[name].has_open_elements
        )
        pipeline.announcements = Announcements(pipeline._appended, resumed=pipeline.last_batch >= 0)
        try:
            pipeline._claim(checkpoint, chain, sinks)
        except BaseException:
            pipeline.stop()
            raise
        return pipeline

    def _claim(self, checkpoint: Checkpoint, chain: CheckpointChain, sinks: Mapping[str, Sink]) -> None:
        resume_points = {
            name: ResumePoint(
                checkpoint.owner,
                checkpoint.fresh,
                self.metrics.last_batch,
                self.metrics.last_result_batches.get(name, -1),
                checkpoint.lease.epoch,
                replayed_until(checkpoint.path),
            )
            for name in sinks
        }
        for name, writer in self.writers.items():
            writer.validate(resume_points[name])
        outputs = self.output_files.directories
        delivered = verify.verify_delivered(chain, outputs)
        if chain.record is not None:
            count_before = chain.delivered_before(chain.before(chain.record.batch))
            self.output_files.resume(delivered, count_before, chain.record.batch)
        # From here on something is changed.
        checkpoint.claim()
        if not checkpoint.is_temporary:
            verify.make_ready(chain)
            kinds = {name: sink.kind for name, sink in sinks.items() if sink.identity is not None}
            write_outputs(checkpoint.path, outputs, kinds)
            (checkpoint.path / FLOW).write_text(json.dumps(build_operator_graph(self.physical).to_json()))
        for name, writer in self.writers.items():
            writer.prepare(resume_points[name])
            if isinstance(writer, StoredViewWriter):
                self.results.restore(name, writer, resume_points[name].batch)

    # ---- a batch -----------------------------------------------------------------------------------------------------

    def commit(self, batch: int, messages: Iterable[Message], began: float | None = None) -> BatchReport:
        """Everything that a batch changes, in order (docs/decisions/0012).

        Each step is without harm if it is repeated: after a crash the batch runs again, with the same rows. `began` is
        when the batch was planned, by `time.monotonic`, if that was in this run.
        """
        began = time.monotonic() if began is None else began
        if self.chain is not None:
            self.chain.lease.check()  # another run may have taken over the checkpoint
        report = BatchReport.from_messages(batch, messages)
        check_input(self.physical.streams, report.statuses, report.rejected)
        before, repeated = self.metrics.statuses, batch == self.metrics.last_batch
        begins = self.metrics.watermarks()
        self._sync_state(report)
        self._cut_open_elements(report)
        files = self.output_files.publish(report)  # staged rows become part of files with names
        self.metrics.add(report)
        self.output_files.publish_open(report, self.metrics.watermarks(), self.ended)
        self.results.append(report)
        self.statistics_store.learn(report, self.metrics, before)
        self._write_to_sinks(report, begins)
        self._note_announced(report)
        self._record(report, files)  # from here on a restart goes on after the batch
        self.subscriptions.publish(report.requested_metrics, self.ended)
        self._log_batch(report, before, repeated, time.monotonic() - began)
        return report

    def _sync_state(self, report: BatchReport) -> None:
        """Sync what tasks have written: nothing may refer to a file that a power cut could take away."""
        if self.chain is None:
            return
        files = [
            state_directory(self.chain.path, shard) / name
            for shard, version in report.state.items()
            for name in version.files
        ]
        self.chain.sync(report.batch, files)

    def _cut_open_elements(self, report: BatchReport) -> None:
        """Give the results for sinks that only append the form that they take."""
        for query in self._appended & report.results.keys():
            table = report.result(query)
            assert table is not None, "there are rows"
            watermark = watermark_of({**self.metrics.statuses, **report.statuses}, self._streams[query]).time
            since, announced = self.metrics.announced_before(query, report.batch), query in report.announced
            cut = cut_open(table, since, watermark, announced)
            report.opened[query] = table.num_rows - cut.num_rows if not announced else cut.num_rows
            report.results[query], report.rows_out[query] = [cut], cut.num_rows

    def _note_announced(self, report: BatchReport) -> None:
        """Note what the sinks have of open elements, now that they have it."""
        self._announced = self.metrics.announced
        self.announcements.add(report)

    def _write_to_sinks(self, report: BatchReport, begins: Mapping[str, Instant]) -> None:
        """Hand the results to the sinks, also those of a batch without rows: the watermark may have advanced."""
        for query, writer in self.writers.items():
            table = report.result(query)
            if table is None:
                table = result_schema(self._columns[query]).empty_table()
            writer.writing_since = time.monotonic()
            try:
                writer.write(SinkBatch(report.batch, table, self.metrics.watermark(query), begins[query]))
            finally:
                writer.writing_since = None

    def _record(self, report: BatchReport, files: list[DeliveredFile]) -> None:
        """Add the record of the batch to the chain of the checkpoint, the last act that a restart depends on."""
        if self.chain is None:
            return
        state = {shard: (version.manifest, version.digest) for shard, version in report.state.items()}
        statuses = {name: status.to_json() for name, status in self.metrics.statuses.items()}
        self.chain.commit(report.batch, state, files, statuses, self.metrics.to_json())

    def _log_batch(
        self, report: BatchReport, before: Mapping[str, SourceStatus], repeated: bool, seconds: float
    ) -> None:
        about = {"query": self.name, "batch": report.batch}
        if repeated:
            log_event(RECOVERY, INFO, "batch repeated", **about)
        for stream in sorted({*report.late, *report.rejected}):
            late, rejected = (sum(t.num_rows for t in kind.get(stream, ())) for kind in (report.late, report.rejected))
            if late or rejected:
                log_event(INPUT, INFO, "side outputs written", **about, stream=stream, late=late, rejected=rejected)
        if BATCH.isEnabledFor(DEBUG):
            rows_in = sum(
                status.read - before.get(name, SourceStatus(name)).read for name, status in report.statuses.items()
            )
            log_event(
                BATCH,
                DEBUG,
                "batch delivered",
                **about,
                watermark=self.metrics.show_watermark(),
                rows_in=None if repeated else rows_in,  # the counts of before include it
                rows_out=sum(report.rows_out.values()),
                seconds=seconds,
            )

    # ---- what engines and users ask for ------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        assert self.chain is not None, "it was opened with a checkpoint"
        return self.chain.path

    @property
    def last_batch(self) -> int:
        return self.metrics.last_batch

    @property
    def ended(self) -> bool:
        """Whether all sources have ended and their last batch is committed."""
        return self.metrics.ended

    @property
    def is_finished(self) -> bool:
        """Whether an earlier run has done everything, so that nothing is left to run."""
        return self.ended and self.chain is not None and self.chain.is_committed

    @property
    def targets(self) -> dict[str, ParquetTarget]:
        """Where tasks write results themselves, by query."""
        return {name: writer.target for name, writer in self.writers.items() if writer.target is not None}

    @property
    def announced_in(self) -> int | None:
        """The first batch after a restart, if open results must be sent again: to a sink that has lost them with its
        process. None if all sinks have kept them."""
        if self.chain is None or self.chain.record is None or not self._forgets:
            return None
        return first_batch(self.chain)

    def open_planner(self, sources: Mapping[str, Source], tasks: int) -> OffsetPlanner:
        """Open the sources and plan batches over them."""
        return OffsetPlanner(
            sources,
            self.batch_rows,
            tasks,
            shedding_controller=self.shedding_controller,
            metrics=self.metrics,
            subscriptions=self.subscriptions,
            announcements=self.announcements,
        )

    def expected(self) -> Mapping[str, Estimate]:
        """What is expected of each operator: by the figures of its plan, or by those that were measured since. When one
        of them is replaced, all operators above are estimated again."""
        assert self.inputs is not None, "it was planned"
        statistics = {**self.inputs.statistics, **self.statistics_store.catalog.statistics()}
        return estimate(self.physical, statistics, prices=self.inputs.prices).steps

    def read_results(self, query: str) -> ResultChunks | None:
        """The results of a query, in memory or wherever its sink can read them again; None where it cannot."""
        if query in self.results.buffers:
            return self.results.read(query)
        watermark, is_current = self.results.watermark(query), self.announcements.is_current(query)
        kept = self.writers[query].kept()
        if kept is None:
            return None
        if query in self._appended and watermark < FOREVER:
            # The sink has open elements as they were at the last announcement. They may be so still.
            announced = self._announced.get(query, BEFORE_ALL)
            known = kept.complete_until if query in self.targets else announced
            if known is None:
                known = BEFORE_ALL
            watermark = watermark if is_current and query in self.targets and known >= announced else known
        begins = [BEFORE_ALL] * len(kept.tables)  # every element is there once
        return ResultChunks(kept.tables, begins, watermark, len(kept.tables), BEFORE_ALL, reset=False)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End what the sinks wait for."""
        for writer in self.writers.values():
            writer.interrupt()

    def release(self) -> None:
        """Let another run continue from the checkpoint: nothing is written any more."""
        if self.chain is not None:
            self.chain.lease.release()

    def stop(self) -> None:
        """End the queries. What they have written stays."""
        if self.driver is not None:
            self.interrupt()  # first: the driver waits for them
            self.driver.stop()
        for name, writer in self.writers.items():
            if not finishes_within(CLOSE_SECONDS, writer.close):
                log_event(SINK, WARNING, "sink left behind", query=name, reason="it does not close its connection")
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            self.statistics_store.save()
            checkpoint.close()

    def _resume(self) -> None:
        if self.chain is None or self.chain.record is None:
            return
        try:
            self.metrics.resume(self.chain.record)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(self.chain.records.path(self.chain.head)) from None


def log_resumed(pipeline: RunningPipeline) -> None:
    """Log where queries resume: after which batch, up to when they were complete, and which batches run again."""
    assert pipeline.chain is not None, "only a checkpoint can be resumed"
    log_event(
        RECOVERY,
        INFO,
        "checkpoint resumed",
        name=pipeline.name,
        last_batch=pipeline.last_batch,
        watermark=pipeline.metrics.show_watermark(),
        replay=show_replay(pipeline.chain),
        checkpoint=pipeline.checkpoint,
    )


def first_batch(chain: CheckpointChain) -> int:
    """The batch that a run begins with."""
    if (offset := chain.last_offset) is None:
        return 0
    return offset.batch + 1 if chain.is_committed else offset.batch


def show_replay(chain: CheckpointChain) -> str:
    """Batches that run again as planned: one that a crash interrupted, and those that a repair discarded."""
    if (offset := chain.last_offset) is None:
        return "none"
    first = first_batch(chain)
    last = max(replayed_until(chain.path), offset.batch)
    if last < first:
        return "none"
    return f"{first}" if first == last else f"{first}-{last}"

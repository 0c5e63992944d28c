"""A pipeline at work: its checkpoint, its sinks, its results, and everything that a batch changes.

`RunningPipeline.open` validates and claims, an engine drives the batches, `RunningPipeline.commit` ends each of them.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sinks import Memory, ResumePoint, Sink, SinkBatch, SinkWriter
from strandline.connectors.sinks.parquet_parts import ParquetTarget
from strandline.connectors.sinks.stored_view import StoredViewWriter
from strandline.connectors.sources.base import Source
from strandline.core.durable import START
from strandline.core.errors import QueryError, StrandlineError, damaged
from strandline.core.faults import explain_fault
from strandline.core.interrupts import finishes_within
from strandline.core.log import BATCH, DEBUG, INFO, INPUT, RECOVERY, SINK, WARNING, log_event, log_failure
from strandline.core.security.allow import Allow
from strandline.core.security.redaction import redact
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.catalog import BaseStream, Catalog
from strandline.logical.udf import Definition, user_functions
from strandline.planner.estimate import Estimate, estimate
from strandline.planner.physical.forms import has_open_elements
from strandline.planner.physical.graph import build_operator_graph
from strandline.planner.physical.living import shrink
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
from strandline.runtime.checkpoint.versions import (
    Declared,
    FailedQuery,
    GraphQuery,
    GraphVersion,
    GraphVersions,
    VersionReference,
    declarations,
)
from strandline.runtime.exchange import Message
from strandline.runtime.graph import LivingGraph
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.offsets import OffsetPlanner
from strandline.runtime.outputs import OutputDirectories, OutputFiles
from strandline.runtime.response_times import ResponseClock
from strandline.runtime.result import cut_open, result_schema
from strandline.runtime.result_buffer import ResultBuffer, ResultChunks
from strandline.runtime.results import PipelineResults
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
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

    @property
    def is_over(self) -> bool:
        """Whether no batch follows."""
        return self._over.is_set()

    @abstractmethod
    def check(self) -> None:
        """Raise what made the queries fail, if something did."""

    @abstractmethod
    def stop(self) -> None:
        """End the batches; nothing is written afterwards."""

    def settle(self) -> None:
        """Wait until the last batch is over for the engine, too; it is as soon as it is committed by default."""
        return

    def rewire(self) -> None:
        """Run the newest version of the graph, also where it needs more than what runs; nothing to do by default."""
        return

    def durations(self) -> list[dict[str, Any]]:
        """What recent batches took, by phase, in milliseconds."""
        return []

    def rows_left(self) -> int | None:
        """About how many rows of the sources have not been read; None if they cannot tell."""
        return None


class EndedDriver(PipelineDriver):
    """What is left of the driver of a query that was dropped, or that has failed while others go on."""

    def __init__(self, failure: StrandlineError | None) -> None:
        super().__init__()
        self._failure = failure
        self._over.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        return


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
        graph: LivingGraph | None = None,
    ) -> None:
        self.graph = graph or LivingGraph(GraphVersion.first(physical))
        self.name = "+".join(query.name for query in physical.queries)  # for the log
        self.group = ""  # by SET PIPELINE; empty for the default
        self.chain = chain
        self.writers = dict(writers or {})  # by query
        self.output_files = OutputFiles(
            physical, self._output_directories(side_outputs), name=self.graph.version.name or None
        )
        self.planner: OffsetPlanner | None = None  # while batches are planned
        self.statistics_store = statistics_store or StatisticsStore(Catalog(), None)
        self.shedding_controller = shedding_controller
        self.batch_rows = batch_rows  # about how many rows of a stream a batch takes
        self.budgets = BudgetPlanner()  # how much work of shared window joins a batch does
        self.responses = ResponseClock()
        self.subscriptions = Subscriptions()
        self.metrics = PipelineMetrics(physical)
        self._resume()
        self.results = PipelineResults(self.metrics, buffers or {})
        self.driver: PipelineDriver | None = None  # None if everything was over before
        self.left: dict[int, RunningPipeline] = {}  # what is left of queries that were dropped, by their numbers
        self.inputs: PlanningInputs | None = None
        self.declared = Declared()  # what a stored version does not have
        self._repeated: Pipeline | None = None  # what a batch ran with that may run again, if that is another version
        self._checkpoint: Checkpoint | None = None
        self._sinks: dict[str, Sink] = {}
        self.stopping: set[str] = set()  # queries that end after the batch that is committed
        self._committing: threading.Thread | None = None
        self._is_whole = False  # whether it is what is left of a query that has its whole result
        self._forgets = False  # whether a sink loses results that are open with its process
        self._announced = self.metrics.announced  # the watermarks at the last announcements that sinks have, by query
        self._appended = frozenset[str]()  # queries with open elements whose sinks only append
        self.announcements = Announcements(())

    @property
    def label(self) -> str:
        """Its name in lists: that of SET PIPELINE, or else that of the query that it began with."""
        return self.group or self.graph.version.name or self.name

    @property
    def physical(self) -> Pipeline:
        """What runs from the next batch on."""
        return self.graph.version.pipeline

    @staticmethod
    def open(
        planned: PlannedPipeline,
        sinks: Mapping[str, Sink],
        checkpoint: Checkpoint,
        statistics_store: StatisticsStore,
        side_outputs: Path | None = None,
        batch_rows: int = BATCH_ROWS,
        described: Pipeline | None = None,
        queries: Sequence[GraphQuery] = (),
        allow: Allow | None = None,
        functions: Mapping[str, Definition] | None = None,
        replaced: Collection[str] = (),
        group: str | None = None,
    ) -> RunningPipeline:
        """Validate plan, checkpoint, sources and sinks while nothing is changed; then claim the checkpoint and open the
        sinks. Side outputs are kept in `side_outputs`, or beside the first result that is a directory.

        A checkpoint that has a graph goes on with it, whatever would be planned now; `planned` has the streams then,
        and `functions` are those that are registered. `described` is the plan by the rules alone, for a
        checkpoint that stays. `replaced` are queries of its graph that are not planned, since they will be dropped; the
        streams that only these read are as the graph has them. `group` is the name of SET PIPELINE for a new one.
        """
        checkpoint.recognise(described or planned.physical, queries, sinks, replaced, group or "")
        chain = verify.verify_chain(checkpoint.path, checkpoint.lease)
        known = planned.inputs.streams  # a table is what it was, wherever it is; another declaration is refused
        read = [*planned.physical.streams, *(s for s in known if s.table is not None)] if replaced else known
        streams = {stream.name: stream for stream in read}
        declared = Declared({**(functions or {}), **user_functions(planned.physical)}, streams, allow)
        graph = _open_graph(checkpoint, chain, planned.physical, queries, declared)
        physical = graph.version.pipeline
        verify.verify_sources(graph.version, chain)
        columns = {query.name: query.columns for query in physical.queries}
        writers = {name: _open_writer(name, sink, physical) for name, sink in sinks.items()}
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
            graph=graph,
        )
        pipeline.inputs, pipeline.declared, pipeline._checkpoint = planned.inputs, declared, checkpoint
        pipeline.group = checkpoint.group
        last = chain.last_offset
        if last is not None and not chain.is_committed and last.version != graph.reference and graph.versions:
            pipeline._repeated = graph.versions.read(last.version, declared).pipeline
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
        resume_points = {name: self._resume_point(name) for name in sinks}
        for name, writer in self.writers.items():
            writer.validate(resume_points[name])
        outputs = self.output_files.directories
        delivered = verify.verify_delivered(chain, outputs)
        if chain.record is not None:
            count_before = chain.delivered_before(chain.before(chain.record.batch))
            self.output_files.resume(delivered, count_before, chain.record.batch)
        # From here on something is changed.
        checkpoint.claim()
        if self.graph.reference.digest == START:
            self.graph.publish(self.graph.version)
        if not checkpoint.is_temporary:
            verify.make_ready(chain)
        self._sinks = dict(sinks)
        self.write_places()
        for name, writer in self.writers.items():
            writer.prepare(resume_points[name])
            if isinstance(writer, StoredViewWriter):
                self.results.restore(name, writer, resume_points[name].batch)

    def _resume_point(self, query: str) -> ResumePoint:
        """Where the sink of a query goes on."""
        checkpoint = self._checkpoint
        assert checkpoint is not None, "it is open"
        last, repeated = self.metrics.last_batch, replayed_until(checkpoint.path)
        owner, epoch, added = checkpoint.owner, checkpoint.lease.epoch, self.graph.version.query(query)
        if added.batch > max(last, 0):
            # It was added, and none of its batches is recorded. The first one may have been delivered.
            repeated = max(last + 1, repeated)
            return ResumePoint(owner, False, -1, -1, epoch, repeated, added.batch, added.replaces)
        last_rows = self.metrics.last_result_batches.get(query, -1)
        return ResumePoint(owner, checkpoint.fresh, last, last_rows, epoch, repeated, added.batch)

    # ---- queries that come and go -----------------------------------------------------------------------------------

    def open_writer(self, query: str, sink: Sink, physical: Pipeline, *, replaces: bool = False) -> SinkWriter:
        """The writer of a query that is going to be added; what it writes to fits, and was not changed."""
        writer = _open_writer(query, sink, physical)
        writer.validate(self._beginning(replaces))
        return writer

    def prepare_writer(self, query: str) -> None:
        """Prepare the sink of a query that was added."""
        self.writers[query].prepare(self._beginning(self.graph.version.query(query).replaces))

    def _beginning(self, replaces: bool) -> ResumePoint:
        """Where the sink of a query begins that is added; it may replace an earlier one of its name."""
        checkpoint, batch = self._checkpoint, self.metrics.last_batch + 1
        if checkpoint is None:
            return ResumePoint("", True, -1, -1, replayed_until=batch, first=batch)
        return ResumePoint(checkpoint.owner, True, -1, -1, checkpoint.lease.epoch, batch, batch, replaces)

    def attach(self, query: str, sink: Sink, writer: SinkWriter) -> None:
        """Take a query of the present version in: from the next batch on it has results."""
        self.writers[query] = writer
        self._sinks[query] = sink
        if not sink.takes_changes and writer.has_open_elements:
            self._appended |= {query}
            self.announcements.add_query(query)
        self._forgets |= sink.takes_changes and sink.location is None
        self.adopt_version()
        columns = self.metrics.plan_of(query).columns
        if isinstance(sink, Memory):
            self.results.add_query(query, sink.make_buffer(columns, in_fragments=writer.in_fragments))

    def detach(self, query: str, failure: StrandlineError | None = None, *, is_whole: bool = False) -> RunningPipeline:
        """Let a query go, with what it has so far, which may be all; its sink is closed."""
        writer, number = self.writers.pop(query), self.graph.version.query(query).number
        left = RunningPipeline(self.physical, writers={query: writer}, statistics_store=self.statistics_store)
        left.chain, left.metrics, left.inputs = self.chain, self.metrics.snapshot(), self.inputs
        left.graph.version = replace(left.graph.version, name=self.graph.version.name)
        left.group = self.group
        left.results, left.responses = self.results.split_off(query, left.metrics), self.responses
        left._announced, left._appended = self._announced, self._appended & {query}
        left.driver, left._is_whole = EndedDriver(failure), is_whole
        self.left[number] = left
        self._appended -= {query}
        self._sinks.pop(query, None)
        self.announcements.remove_query(query)
        _close_writer(query, writer)
        return left

    def drop(self, query: str, failure: StrandlineError | None = None, *, is_whole: bool = False) -> None:
        """Let a query go, and store a version without it; what nothing reads any more is closed."""
        graph, version = self.graph, self.graph.version
        self.detach(query, failure, is_whole=is_whole)
        remaining = shrink(version.pipeline, query, version.next_fragment)
        queries = [other for other in version.queries if other.name != query]
        failed = list(version.failed)
        if failure is not None:
            failed.append(FailedQuery(version.query(query), failure.code, redact(failure.message)))
        graph.publish(version.following(remaining, queries, self.metrics.last_batch + 1, failed=failed))
        read = {stream.name for stream in remaining.streams}
        for stream in version.pipeline.streams:
            if stream.name not in read:
                self.remove_source(stream.name)
        self.adopt_version()
        self.write_places()

    def adopt_version(self) -> None:
        """Go on with the newest version."""
        self.metrics.adopt(self.physical)
        side = self.output_files.directories.side_outputs
        self.output_files.adopt(self.physical, self._output_directories(side))

    def _output_directories(self, side_outputs: Path | None) -> OutputDirectories:
        """Where the results of the present version are."""
        directories = {name: path for name, writer in self.writers.items() if (path := writer.directory)}
        consumed = frozenset(name for name, writer in self.writers.items() if writer.consumed)
        return OutputDirectories(directories, side_outputs, consumed, self.graph.version.first_batches)

    def remove_source(self, stream: str) -> None:
        """Read a stream no more."""
        if self.planner is not None and stream in self.planner.sources:
            self.planner.remove_source(stream)

    def rewire(self) -> None:
        """Let the engine run what it is not wired for."""
        if self.driver is not None:
            self.driver.rewire()

    def write_places(self) -> None:
        """Say in the checkpoint where its results are, and what runs."""
        checkpoint = self._checkpoint
        if checkpoint is not None and not checkpoint.is_temporary:
            kinds = {name: sink.kind for name, sink in self._sinks.items() if sink.identity is not None}
            write_outputs(checkpoint.path, self.output_files.directories, kinds)
            (checkpoint.path / FLOW).write_text(json.dumps(build_operator_graph(self.physical).to_json()))

    # ---- a batch -----------------------------------------------------------------------------------------------------

    def commit(self, batch: int, messages: Iterable[Message], began: float | None = None) -> BatchReport:
        """Everything that a batch changes, in order (docs/decisions/0012).

        Each step is without harm if it is repeated: after a crash the batch runs again, with the same rows. `began` is
        when the batch was planned, by `time.monotonic`, if that was in this run.
        """
        began = time.monotonic() if began is None else began
        self._committing = threading.current_thread()
        try:
            report = self._commit(batch, messages, began)
        finally:
            self._committing = None
        ended = time.monotonic()
        self.budgets.observe(report.work, ended - began)
        self.responses.add(report, self.metrics, began, ended)
        self.graph.end_batch(batch)
        return report

    def _commit(self, batch: int, messages: Iterable[Message], began: float) -> BatchReport:
        if self.chain is not None:
            self.chain.lease.check()  # another run may have taken over the checkpoint
        report = BatchReport.from_messages(batch, messages)
        version = self.graph.version
        # A batch that runs again may have a version from before the present one.
        active = version.queries_since(version.number if report.version is None else report.version)
        failures = {name: error for name, error in report.failed.items() if name in active}
        if len(failures) == len(version.queries):
            raise next(iter(failures.values()))
        report.keep_results(active - failures.keys())
        check_input(self.physical.streams, report.statuses, report.rejected)
        before, repeated = self.metrics.statuses, batch == self.metrics.last_batch
        begins = self.metrics.watermarks()
        self._sync_state(report)
        self._cut_open_elements(report)
        files = self.output_files.publish(report)  # staged rows become part of files with names
        self.metrics.add(report)
        reached = self.metrics.watermarks()
        ended = frozenset(name for name, time in reached.items() if time == FOREVER and begins.get(name) != FOREVER)
        self.output_files.publish_open(report, reached, ended)
        self.results.append(report)
        self.statistics_store.learn(report, self.metrics, before)
        failures |= self._write_to_sinks(report, begins)
        self._note_announced(report)
        for name, error in failures.items():  # before the record: a restart must not go on with half a state
            if error.code == "sink-interrupted":  # it was stopped while its sink waited
                self.drop(name)
            else:
                log_failure("query failed", name, error)
                self.drop(name, error)
        self._record(report, files)  # from here on a restart goes on after the batch
        if self.planner is not None:
            self.planner.pace.observe(time.monotonic() - began, self.planner.catching_up)
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
            statuses = {**self.metrics.statuses, **report.statuses}
            watermark = watermark_of(statuses, self.metrics.plan_of(query).streams).time
            watermark = min(watermark, report.work.reaches.get(query, FOREVER))
            since, announced = self.metrics.announced_before(query, report.batch), query in report.announced
            cut = cut_open(table, since, watermark, announced)
            report.opened[query] = table.num_rows - cut.num_rows if not announced else cut.num_rows
            report.results[query], report.rows_out[query] = [cut], cut.num_rows

    def _note_announced(self, report: BatchReport) -> None:
        """Note what the sinks have of open elements, now that they have it."""
        self._announced = self.metrics.announced
        self.announcements.add(report)

    def _write_to_sinks(self, report: BatchReport, begins: Mapping[str, Instant]) -> dict[str, StrandlineError]:
        """Hand the results to the sinks, also those of a batch without rows: the watermark may have advanced. Returns
        why queries have failed; the error of the last one is raised."""
        failures: dict[str, StrandlineError] = {}
        for query, writer in self.writers.items():
            if not report.has_query(query):
                continue
            table = report.result(query)
            if table is None:
                table = result_schema(self.metrics.plan_of(query).columns).empty_table()
            writer.writing_since = time.monotonic()
            try:
                writer.write(SinkBatch(report.batch, table, self.metrics.watermark(query), begins[query]))
            except Exception as error:
                is_last = len(failures) + 1 == len(self.graph.version.queries)
                if self.graph.is_over or is_last or isinstance(error, MemoryError):
                    raise
                failures[query] = _explain(error)
            finally:
                writer.writing_since = None
        return failures

    def _record(self, report: BatchReport, files: list[DeliveredFile]) -> None:
        """Add the record of the batch to the chain of the checkpoint, the last act that a restart depends on."""
        if self.chain is None:
            return
        state = {shard: (version.manifest, version.digest) for shard, version in report.state.items()}
        graph_version = self.graph.version.number if report.version is None else report.version
        statuses = {name: status.to_json() for name, status in self.metrics.statuses.items()}
        self.chain.commit(report.batch, state, files, statuses, self.metrics.to_json(), graph_version)

    def _log_batch(
        self, report: BatchReport, before: Mapping[str, SourceStatus], repeated: bool, seconds: float
    ) -> None:
        about = {"query": self.name, "batch": report.batch}
        if repeated:
            log_event(RECOVERY, INFO, "batch repeated", **about)
        for stream in sorted({*report.late, *report.rejected}):
            late = sum(rows.table.num_rows for rows in report.late.get(stream, ()))
            rejected = sum(table.num_rows for table in report.rejected.get(stream, ()))
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
        """Whether all sources have ended, their last batch is committed, and each query has had a batch."""
        has_all = all(query.batch <= self.last_batch for query in self.graph.version.queries)
        return self._is_whole or (self.metrics.ended and has_all)

    def is_complete(self, query: str) -> bool:
        """Whether the streams of a query have ended, and it has its whole result."""
        return self.graph.version.query(query).batch <= self.last_batch and self.metrics.watermark(query) == FOREVER

    @property
    def is_temporary(self) -> bool:
        """Whether nothing of it outlives the process."""
        return self._checkpoint is None or self._checkpoint.is_temporary

    @property
    def is_over(self) -> bool:
        """Whether nothing runs any more."""
        return self.driver is None or self.driver.is_over

    @property
    def is_committing(self) -> bool:
        """Whether this thread is committing a batch."""
        return self._committing is threading.current_thread()

    @property
    def is_finished(self) -> bool:
        """Whether an earlier run has done everything, so that nothing is left to run."""
        return self.ended and self.chain is not None and self.chain.is_committed

    @property
    def targets(self) -> dict[str, ParquetTarget]:
        """Where tasks write results themselves, by query."""
        return {name: writer.target for name, writer in self.writers.items() if writer.target is not None}

    @property
    def needs(self) -> Declared:
        """What tasks need of this process, beside what a version stores."""
        functions: dict[str, Definition] = {}
        streams: dict[str, BaseStream] = {}
        for physical in self._wired():
            functions |= user_functions(physical)
            streams |= declarations(physical.streams)
        return replace(self.declared, functions=functions, streams=streams)

    @property
    def stages(self) -> int:
        """How many stages tasks need."""
        return max(physical.stages for physical in self._wired())

    def _wired(self) -> list[Pipeline]:
        """What may run: the newest version, and the one of the batch that was not over before a restart."""
        return [self.physical] if self._repeated is None else [self._repeated, self.physical]

    @property
    def announced_in(self) -> int | None:
        """The first batch after a restart, if open results must be sent again: to a sink that has lost them with its
        process. None if all sinks have kept them."""
        if self.chain is None or self.chain.record is None or not self._forgets:
            return None
        return first_batch(self.chain)

    def open_planner(self, sources: Mapping[str, Source], tasks: int) -> OffsetPlanner:
        """Open the sources and plan batches over them."""
        self.planner = OffsetPlanner(
            sources,
            self.batch_rows,
            tasks,
            shedding_controller=self.shedding_controller,
            metrics=self.metrics,
            subscriptions=self.subscriptions,
            announcements=self.announcements,
            budgets=self.budgets,
        )
        return self.planner

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
        self.graph.end()
        if self.chain is not None:
            self.chain.lease.release()

    def stop(self) -> None:
        """End the queries. What they have written stays."""
        self.graph.end()
        if self.driver is not None:
            self.interrupt()  # first: the driver waits for them
            self.driver.stop()
        for name, writer in self.writers.items():
            _close_writer(name, writer)
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            self.statistics_store.save()
            checkpoint.close()

    def _resume(self) -> None:
        if self.chain is None or self.chain.record is None:
            return
        try:
            self.metrics.resume(self.chain.record, self.graph.version)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(self.chain.records.path(self.chain.head)) from None


def _open_writer(query: str, sink: Sink, physical: Pipeline) -> SinkWriter:
    writer = sink.open(query, next(planned.columns for planned in physical.queries if planned.name == query))
    writer.in_fragments = not has_whole_elements(physical, query)
    writer.has_open_elements = has_open_elements(physical, query)
    return writer


def _explain(error: Exception) -> StrandlineError:
    """Why a sink has failed."""
    if isinstance(error, StrandlineError):
        return error
    return explain_fault(error) or QueryError(f"the query has failed: {error}", code="query-failed")


def _close_writer(query: str, writer: SinkWriter) -> None:
    if not finishes_within(CLOSE_SECONDS, writer.close):
        log_event(SINK, WARNING, "sink left behind", query=query, reason="it does not close its connection")


def _open_graph(
    checkpoint: Checkpoint,
    chain: CheckpointChain,
    planned: Pipeline,
    queries: Sequence[GraphQuery],
    declared: Declared,
) -> LivingGraph:
    """The newest version of the graph in a checkpoint, or the first one, which is stored when the checkpoint is
    claimed."""
    versions = GraphVersions(checkpoint.path, sync=not checkpoint.is_temporary)
    named = VersionReference() if chain.last_offset is None else chain.last_offset.version
    newest = versions.newest(named)
    if newest is None:
        return LivingGraph(GraphVersion.first(planned, queries), versions, VersionReference())
    return LivingGraph(versions.read(newest, declared), versions, newest)


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

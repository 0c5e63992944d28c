"""Drives a pipeline in one process, without Spark: for tests, documentation and `--engine local`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

from strandline.connectors.sinks.parquet_parts import open_result_writer
from strandline.connectors.sources.base import Source, open_source
from strandline.core.errors import CheckpointError, QueryError, StrandlineError
from strandline.core.faults import explain_fault, name_place
from strandline.core.interrupts import STOP_SECONDS
from strandline.core.log import ENGINE, WARNING, log_event, log_query_end
from strandline.engines.base import Engine, log_start
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.chain import source_directory
from strandline.runtime.checkpoint.versions import GraphVersion, VersionReference
from strandline.runtime.exchange import Message, decode, encode
from strandline.runtime.graph_changes import change_after_batch
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import InputSplit, plan_splits
from strandline.runtime.pipeline import PipelineDriver, RunningPipeline
from strandline.runtime.scheduling.budget import UNLIMITED
from strandline.runtime.stage import StageOutput, run_stage
from strandline.runtime.state.segments import States
from strandline.runtime.state.spill import spill
from strandline.runtime.watermark import SourceStatus


class LocalEngine(Engine):
    """A thread of this process per pipeline; state is in memory, the larger part of it mapped from files without a
    name."""

    def __init__(self, shards: int | None) -> None:
        self.shards = shards or 1

    def default_shards(self) -> int:
        return self.shards

    def check_restart(self, pipeline: RunningPipeline) -> None:
        if pipeline.last_batch >= 0:
            raise CheckpointError(
                "the local engine cannot resume an interrupted query: its state is in memory",
                code="local-restart",
                hint="Remove the results and start again, or use --engine spark.",
            )

    def run(self, pipeline: RunningPipeline) -> PipelineDriver:
        self.check_restart(pipeline)
        run = LocalRun(pipeline)
        log_start(pipeline, "local")
        return LocalDriver(run)


class LocalRun:
    """The batches of a pipeline: the same fragments, exchanges and messages as on Spark, one shard after the other."""

    def __init__(
        self, pipeline: RunningPipeline, *, sources: Mapping[str, Source] | None = None, tasks: int = 1
    ) -> None:
        self.pipeline = pipeline
        self.version = pipeline.graph.version  # that of the last batch, or of the first
        self.planner = pipeline.open_planner(
            sources
            or {
                stream.name: open_source(stream, source_directory(pipeline.checkpoint, stream.name))
                for stream in self.physical.streams
            },
            tasks,
        )
        self.positions = self.planner.beginning()
        self.statuses: dict[str, SourceStatus] = {}
        self.states: dict[tuple[int, int], States] = {}
        self.budget = UNLIMITED  # of the present batch
        self.batch = 0

    @property
    def physical(self) -> Pipeline:
        """What the last batch ran with."""
        return self.version.pipeline

    def batches(self) -> Iterator[BatchReport]:
        """Run batch after batch until all sources have ended."""
        while not self.pipeline.ended:
            if (report := self.step()) is not None:
                yield report
            else:
                time.sleep(0.01)

    def close(self) -> None:
        """Let go of the sources."""
        self.planner.close()

    def step(self) -> BatchReport | None:
        """One batch: offsets → ingest → stage → exchange → stage → commit; None if there was nothing new."""
        began = time.monotonic()
        graph = self.pipeline.graph
        with graph.planning() as is_free:
            if not is_free:
                return None
            before = graph.version.positions_of(self.positions, self.version.number)
            is_changed = graph.version is not self.version
            required = is_changed or self.planner.has_work
            after = self.planner.next(before, required=required)
            if after == self.positions and not required:
                return None
            self.budget = self.planner.decide_budget(before, after, graph.version.pipeline)
            self._take(graph.version)
            graph.runs_batch = True
        messages = self._run_stages(plan_splits(before, after))
        report = self.pipeline.commit(self.batch, messages, began)
        self.positions, self.statuses = after, report.statuses
        self.batch += 1
        change_after_batch(self.pipeline)
        return report

    def _take(self, version: GraphVersion) -> None:
        """Run the next batch with a version: what is kept of earlier ones is for what they have in common."""
        if version is not self.version:
            last, self.version = self.version.number, version
            self.statuses = version.positions_of(self.statuses, last)
            self.states = {shard: version.states_of(states, last) for shard, states in self.states.items()}

    def _run_stages(self, tasks: list[InputSplit]) -> list[Message]:
        """Read the splits of a batch and run all stages; gives the messages for the driver."""
        outputs: list[StageOutput] = []
        for number, split in enumerate(tasks):
            output = self._open_output(0, number)
            ingest(self.physical, self.planner.sources[split.stream], split, self.statuses, output)
            output.close()
            outputs.append(output)
        for_driver = [message for output in outputs for message in output.for_driver]
        for stage in range(1, self.physical.stages + 1):
            messages_by_shard = _exchange(outputs)
            outputs = []
            for shard in range(self.physical.shards):
                output = self._open_output(stage, shard)
                states = self.states.get((stage, shard), {})
                messages_in = messages_by_shard.get(shard, [])
                self.states[stage, shard] = run_stage(self.physical, stage, shard, messages_in, states, output)
                if self.pipeline.chain is not None:
                    arrived = sum(message.table.nbytes for message in messages_in if message.table is not None)
                    spill(self.states[stage, shard], arrived, self.pipeline.checkpoint)
                output.close()
                outputs.append(output)
                for_driver += output.for_driver
        return for_driver

    def _open_output(self, stage: int, task: int) -> StageOutput:
        write_result = open_result_writer(self.physical, self.pipeline.targets, self.batch, f"{stage}-{task}")
        version = VersionReference(self.version.number).to_facts()
        return StageOutput(self.physical.shards, task, write_result, version=version, budget=self.budget)


def _exchange(outputs: list[StageOutput]) -> dict[int, list[Message]]:
    """The messages of each shard. Messages are encoded and decoded as on Spark, so that tests see the same bytes."""
    messages_by_shard: dict[int, list[Message]] = {}
    for output in outputs:
        for shard, messages in output.by_shard.items():
            messages_by_shard.setdefault(shard, []).extend(decode(encode(messages)))
    return messages_by_shard


class LocalDriver(PipelineDriver):
    """A thread that runs batch after batch, so that a query runs while its user does other things."""

    def __init__(self, run: LocalRun) -> None:
        super().__init__()
        self._run = run
        self._pipeline = run.pipeline
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="strandline-local")
        self._thread.start()

    def _work(self) -> None:
        pipeline = self._pipeline
        try:
            while not self._stop.is_set() and not pipeline.ended:
                if self._run.step() is None:
                    self._stop.wait(0.01)
        except BaseException as error:
            # A stop interrupts a waiting sink: then the present batch was not committed.
            if not self._stop.is_set() and getattr(error, "code", None) != "sink-interrupted":
                fault = explain_fault(error)
                directories = [str(pipeline.checkpoint), *(target.directory for target in pipeline.targets.values())]
                self._failure = error if fault is None else name_place(fault, directories)
        finally:
            try:
                self._run.close()
            finally:
                pipeline.release()
                log_query_end(pipeline.name, self._failure, ended=pipeline.ended, last_batch=pipeline.last_batch)
                self._over.set()

    def check(self) -> None:
        if isinstance(self._failure, KeyboardInterrupt):
            # Native code may raise KeyboardInterrupt in this thread; it is raised again, once, in the caller's.
            # The present batch was not committed, so the result is whole up to its watermark.
            self._failure = None
            raise KeyboardInterrupt
        if isinstance(self._failure, StrandlineError):
            raise self._failure
        if self._failure is not None:
            raise QueryError(f"the query has failed: {self._failure}", code="query-failed") from self._failure

    def stop(self) -> None:
        self._stop.set()
        self._pipeline.interrupt()
        if threading.current_thread() is not self._thread and not self._over.wait(STOP_SECONDS):
            self._over.set()
            log_event(ENGINE, WARNING, "query left behind", name=self._pipeline.name, reason="it does not stop")

    def rows_left(self) -> int | None:
        return self._run.planner.rows_left

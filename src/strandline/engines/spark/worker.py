"""Code that runs in Spark's Python workers: the splits of stage 0 and the shards of the later stages."""

from __future__ import annotations

import os

# One task, one core: Spark runs as many workers as it has cores.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import base64
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from strandline.connectors.sinks.parquet_parts import ParquetTarget, open_result_writer
from strandline.connectors.sources.base import Source, open_source
from strandline.core.errors import StrandlineError, damaged
from strandline.engines.spark.failure import seal_error
from strandline.engines.spark.offset_server import read_offset
from strandline.engines.spark.pickling import packed
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.catch_up import with_log
from strandline.runtime.checkpoint.chain import STATE, source_directory
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.checkpoint.versions import Declared, GraphVersion, GraphVersions, VersionReference
from strandline.runtime.exchange import DRIVER, Message, decode, encode
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import PipelineOffset, plan_splits
from strandline.runtime.split_times import SplitTimes
from strandline.runtime.stage import StageOutput, run_stage
from strandline.runtime.state.segments import States
from strandline.runtime.state.store import StateStore
from strandline.runtime.watermark import SourceStatus

EXCHANGE = "exchange"  # exchange between workers of one machine; of no use to a restart


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same in all batches of a Spark query: the checkpoint, from which tasks read the version of the graph;
    what a version does not store; and where results go."""

    checkpoint: str
    stages: int  # of Spark's query: a version may have fewer
    declared: Declared
    targets: Mapping[str, ParquetTarget]
    uses_spool_files: bool  # whether workers pass large tables through files instead of Spark's shuffle
    secret: str  # of this run: authenticates errors and the planner's socket
    epoch: int  # of the writer of the checkpoint
    announced_in: int | None  # the batch in which open results are sent again, to sinks that have lost them

    def version(self, reference: VersionReference) -> GraphVersion:
        """The version of the graph that a batch runs with."""
        return _versions(self.checkpoint, self.epoch).read(self, reference)

    def source(self, pipeline: Pipeline, name: str) -> Source:
        stream = with_log(next(s for s in pipeline.streams if s.name == name))
        return open_source(stream, source_directory(Path(self.checkpoint), stream.name))

    @property
    def records(self) -> BatchRecords:
        return BatchRecords(Path(self.checkpoint))

    def open_output(self, pipeline: Pipeline, batch: int, stage: int, task: int) -> StageOutput:
        write_result = open_result_writer(pipeline, self.targets, batch, f"{stage}-{task}")
        return StageOutput(pipeline.shards, task, write_result)

    @contextmanager
    def sealing_errors(self) -> Iterator[None]:
        """Let our errors travel through the JVM."""
        try:
            yield
        except StrandlineError as error:
            raise RuntimeError(seal_error(error, self.secret)) from None

    def to_text(self) -> str:
        return base64.b64encode(packed(self, self.declared.functions.values())).decode()

    @staticmethod
    @lru_cache(maxsize=8)
    def from_text(text: str) -> Job:
        """The job, made once per process."""
        job = pickle.loads(base64.b64decode(text))
        assert isinstance(job, Job)
        return job


class _CachedVersions:
    """The last two versions of the graph of a checkpoint, read once per process."""

    def __init__(self, checkpoint: str) -> None:
        self._versions = GraphVersions(Path(checkpoint))
        self._cached: list[tuple[VersionReference, Declared, GraphVersion]] = []

    def read(self, job: Job, reference: VersionReference) -> GraphVersion:
        for named, declared, version in self._cached:
            if named == reference and declared is job.declared:  # a query that is started again brings its functions
                return version
        version = self._versions.read(reference, job.declared)
        self._cached = [*self._cached[-1:], (reference, job.declared, version)]
        return version


@lru_cache(maxsize=16)
def _versions(checkpoint: str, epoch: int) -> _CachedVersions:
    return _CachedVersions(checkpoint)


def read_split(job_text: str, number: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> pa.RecordBatch:
    """Stage 0: one split of the batch between two offsets."""
    job = Job.from_text(job_text)
    with job.sealing_errors():
        before, after = read_offset(start, Path(job.checkpoint)), read_offset(end, Path(job.checkpoint))
        version = job.version(after.version)
        positions = version.positions_of(before.positions, before.version.number)
        split = plan_splits(positions, after.positions)[number]
        source, position = job.source(version.pipeline, split.stream), after.positions[split.stream]
        source.check_seal(position.at, position.seal)
        # Batches are numbered by offsets, so that a replayed batch names its result files alike.
        out = job.open_output(version.pipeline, after.batch, 0, number)
        out.version = after.version.to_facts()
        statuses = _statuses(job, version, after)
        ingest(version.pipeline, source, split, statuses, out, _split_times(job, after.batch))
        out.close()
        return _rows(job, out, after.batch, stage=0, own=0)


def _statuses(job: Job, version: GraphVersion, offset: PipelineOffset) -> dict[str, SourceStatus]:
    """Source status after the preceding batch, in the record that the offset names."""
    if offset.after.batch < 0:
        return {}
    record = job.records.read(offset.after)
    statuses = version.positions_of(record.statuses, record.version)
    return {name: SourceStatus.from_json(status) for name, status in statuses.items()}


# Later stages.


def stage_function(job: Job, stage: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One micro-batch of one stage: Spark owns scheduling and retry, the operators own the algebra."""
    text = job.to_text()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = Job.from_text(text)
        context = TaskContext.get()
        assert context is not None, "stages run inside tasks"
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        messages_by_shard: dict[int, list[Message]] = {}
        for received in batches:
            for shard, data in zip(received["shard"].to_pylist(), received["data"], strict=True):
                messages_by_shard.setdefault(shard, []).extend(decode(data.as_buffer()))
        for shard in sorted(messages_by_shard):
            with job.sealing_errors():
                rows = _run_shard(job, stage, batch, shard, messages_by_shard[shard])
            yield rows

    return run


def _run_shard(job: Job, stage: int, batch: int, shard: int, messages_in: list[Message]) -> pa.RecordBatch:
    store = StateStore(Path(job.checkpoint) / STATE, stage, shard, job.epoch)
    named = next(message for message in messages_in if message.kind == "version" and message.stage != DRIVER)
    version = job.version(VersionReference(**named.facts))
    pipeline = version.pipeline
    out = job.open_output(pipeline, batch, stage, shard)
    before = _state_before(job, version, store, batch, stage, shard)
    announces = batch == job.announced_in
    last = job.stages
    states = run_stage(pipeline, stage, shard, messages_in, before, out, announces=announces, last_stage=last)
    stored = store.write(batch, states)
    out.close()
    out.for_driver.append(Message("state", f"{stage}/{shard}", DRIVER, facts=asdict(stored)))
    return _rows(job, out, batch, stage, own=shard)


def _state_before(job: Job, version: GraphVersion, store: StateStore, batch: int, stage: int, shard: int) -> States:
    """The state after the batch before, which its record names, of the operators that it had; nothing before the
    first."""
    if batch == 0:
        return {}
    record, reference = job.records.require(batch - 1, job.epoch)
    stored = record.state.get(f"{stage}/{shard}")
    if stored is None:
        ids = [operator for fragment in version.pipeline.at(stage) for operator in fragment.operators]
        if any(version.has_begun(operator, record.version) for operator in ids):
            raise damaged(job.records.path(reference))
        return {}
    return version.states_of(store.read(*stored), record.version)


def _rows(job: Job, out: StageOutput, batch: int, stage: int, own: int) -> pa.RecordBatch:
    """One row per shard; messages for the driver use the task's own shard until the last stage."""
    rows = {} if stage == job.stages else dict(out.by_shard)
    rows[own] = [*rows.get(own, []), *(replace(m, sender=out.sender) for m in out.for_driver)]
    spools = _spools(job, batch, stage, out.sender) if job.uses_spool_files else None
    values = [encode(messages, spools and spools / f"{batch}-{shard}") for shard, messages in rows.items()]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(rows), pa.int32()), pa.array(values, pa.binary())], names=["shard", "data"]
    )


def _spools(job: Job, batch: int, stage: int, sender: int) -> Path:
    """The directory of a sender's spool files."""
    return _exchanged(job, f"{stage}-{sender}", batch)


def _split_times(job: Job, batch: int) -> SplitTimes:
    return SplitTimes(_exchanged(job, "latest", batch), batch)


def _exchanged(job: Job, name: str, batch: int) -> Path:
    """A directory of files that tasks leave for others, without those that no replay can read.

    Spark repeats at most the current batch, so the files of the batch before the last are removed.
    """
    directory = Path(job.checkpoint) / EXCHANGE / str(job.epoch) / name
    if directory.is_dir():
        for file in os.listdir(directory):
            number = file.lstrip(".").split("-")[0]
            if number.isdigit() and int(number) < batch - 1:
                (directory / file).unlink(missing_ok=True)
    return directory

"""What runs inside Spark's Python workers: stage 0 as a data source, later stages as functions over Arrow batches."""

from __future__ import annotations

import os

# One task, one core: Spark runs as many workers as it has cores.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import base64
import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from strandline.errors import StrandlineError, damaged
from strandline.execution.ingest import ingest
from strandline.execution.progress import Heartbeat
from strandline.execution.runtime import Outbox, run_stage
from strandline.execution.sinks import ParquetTarget, answers_of
from strandline.execution.sources.base import Source, open_source
from strandline.execution.store import StateStore
from strandline.execution.wire import Message, decode, encode
from strandline.physical.plan import Pipeline
from strandline.temporal import SECOND

SCHEMA = "bucket int, data binary"
ERROR_MARK = "STRANDLINE-ERROR "
HEARTBEATS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a task must know: the pipeline, where state lives, where answers go."""

    pipeline: Pipeline
    checkpoint: str
    targets: Mapping[str, ParquetTarget]
    batch_rows: int
    spools: bool  # whether workers pass large tables through files instead of Spark's shuffle

    def source(self, name: str) -> Source:
        stream = next(s for s in self.pipeline.streams if s.name == name)
        return open_source(stream, Path(self.checkpoint) / "sources" / name)

    def to_text(self) -> str:
        return base64.b64encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_text(text: str) -> Job:
        job = pickle.loads(base64.b64decode(text))
        assert isinstance(job, Job)
        return job


def guarded(error: StrandlineError) -> RuntimeError:
    """An error that survives the way through the JVM as text; `failure.py` puts it together again."""
    data = base64.b64encode(pickle.dumps(error)).decode()
    return RuntimeError(f"{ERROR_MARK}{data} {error}")


# Stage 0: sources. An offset is {"n": count of batches, "sources": {name: {"at": position, "idle": …, "ended": …}}}.
# Heartbeats after offset n are kept in a file per source, so that the next batch can go on from them; a batch that is
# read again finds the same ones.


class SourcePartition(InputPartition):
    def __init__(self, stream: str, start: dict[str, Any], end: dict[str, Any], number: int) -> None:
        self.stream, self.start, self.end, self.number = stream, start, end, number


class PipelineSource(DataSource):
    """All sources of a pipeline as one Spark source: one offset, one planner, one task per stream."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> PipelineReader:
        return PipelineReader(Job.from_text(self.options["job"]))


class PipelineReader(DataSourceStreamReader):
    def __init__(self, job: Job) -> None:
        self.job = job
        self._sources: dict[str, Source] = {}
        self._last_rows: dict[str, float] = {}

    def initialOffset(self) -> dict[str, Any]:
        names = [stream.name for stream in self.job.pipeline.streams]
        return {"n": 0, "sources": {name: {"at": 0, "idle": False, "ended": False} for name in names}}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """How far every source has come; the decision that a source is idle is part of it, so a replay repeats it."""
        try:
            return self._advance(start)
        except StrandlineError as error:
            raise guarded(error) from None

    def _advance(self, start: dict[str, Any]) -> dict[str, Any]:
        positions: dict[str, dict[str, Any]] = {}
        for stream in self.job.pipeline.streams:
            before = start["sources"][stream.name]
            if stream.name not in self._sources:
                self._sources[stream.name] = self.job.source(stream.name)
                self._last_rows[stream.name] = time.monotonic()
            if before["ended"]:
                positions[stream.name] = before
                continue
            at, ended = self._sources[stream.name].advance(before["at"], self.job.batch_rows)
            if at > before["at"]:
                self._last_rows[stream.name] = time.monotonic()
            silent = time.monotonic() - self._last_rows[stream.name]
            patience = stream.idle_after_us
            idle = patience is not None and not ended and at == before["at"] and silent >= patience / SECOND
            positions[stream.name] = {"at": at, "idle": idle, "ended": ended}
        if positions == start["sources"]:
            return start
        return {"n": start["n"] + 1, "sources": positions}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        names = [stream.name for stream in self.job.pipeline.streams]
        return [SourcePartition(name, start, end, number) for number, name in enumerate(names)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SourcePartition)
        try:
            yield self._read(partition)
        except StrandlineError as error:
            raise guarded(error) from None

    def _read(self, partition: SourcePartition) -> pa.RecordBatch:
        job, name = self.job, partition.stream
        batch = partition.end["n"] - 1
        start, end = partition.start["sources"][name], partition.end["sources"][name]
        log = HeartbeatLog(job)
        before = log.after(partition.start["n"])
        # Batches are counted here by offsets, so that files of an answer are named alike when Spark runs one again.
        answer = answers_of(job.pipeline, job.targets, batch, f"0-{partition.number}")
        out = Outbox(job.pipeline.buckets, partition.number, answer)
        source = job.source(name)
        beat = ingest(job.pipeline, source, start["at"], end["at"], before, end["idle"], end["ended"], out)
        log.write(partition.end["n"], beat)
        out.close()
        return _rows(job, out, batch, stage=0, own=0)


class HeartbeatLog:
    """The heartbeat of each source after each batch, one small file each."""

    def __init__(self, job: Job) -> None:
        self.root = Path(job.checkpoint) / "sources"
        self.names = [stream.name for stream in job.pipeline.streams]

    def after(self, n: int) -> dict[str, Heartbeat]:
        if n == 0:
            return {}
        return {name: self._read(name, n) for name in self.names}

    def _read(self, name: str, n: int) -> Heartbeat:
        path = self._path(name, n)
        try:
            return Heartbeat.from_json(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            raise damaged(path) from None

    def write(self, n: int, beat: Heartbeat) -> None:
        path = self._path(beat.stream, n)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(beat.to_json()))
        os.replace(temporary, path)
        self._path(beat.stream, n - HEARTBEATS_KEPT).unlink(missing_ok=True)

    def _path(self, name: str, n: int) -> Path:
        return self.root / name / f"heartbeat-{n}.json"


# Later stages.


def stage_function(job: Job, stage: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One micro-batch of one stage: Spark owns scheduling and retry, the operators own the algebra."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "stages run inside tasks"
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        inboxes: dict[int, list[Message]] = {}
        for received in batches:
            for bucket, data in zip(received["bucket"].to_pylist(), received["data"], strict=True):
                inboxes.setdefault(bucket, []).extend(decode(data.as_buffer()))
        for bucket in sorted(inboxes):
            try:
                yield _run_bucket(job, stage, batch, bucket, inboxes[bucket])
            except StrandlineError as error:
                raise guarded(error) from None

    return run


def _run_bucket(job: Job, stage: int, batch: int, bucket: int, inbox: list[Message]) -> pa.RecordBatch:
    store = StateStore(Path(job.checkpoint) / "state", stage, bucket)
    answer = answers_of(job.pipeline, job.targets, batch, f"{stage}-{bucket}")
    out = Outbox(job.pipeline.buckets, bucket, answer)
    store.write(batch, run_stage(job.pipeline, stage, bucket, inbox, store.before(batch), out))
    out.close()
    return _rows(job, out, batch, stage, own=bucket)


def _rows(job: Job, out: Outbox, batch: int, stage: int, own: int) -> pa.RecordBatch:
    """One row per bucket; what is for the driver goes along the task's own bucket until the last stage."""
    rows = {} if stage == job.pipeline.stages else dict(out.by_bucket)
    rows[own] = [*rows.get(own, []), *(replace(m, origin=out.origin) for m in out.for_driver)]
    values: list[bytes] = []
    spools = _spools(job, batch, stage, out.origin) if job.spools else None
    for bucket, messages in rows.items():
        values.append(encode(messages, spools / f"{batch}-{bucket}" if spools is not None else None))
    return pa.RecordBatch.from_arrays(
        [pa.array(list(rows), pa.int32()), pa.array(values, pa.binary())], names=["bucket", "data"]
    )


def _spools(job: Job, batch: int, stage: int, origin: int) -> Path:
    """The directory of a sender's spool files, without those that nobody can ask for again.

    Spark repeats at most the batch that is under way, so the files of the batch before the last may go.
    """
    directory = Path(job.checkpoint) / "exchange" / f"{stage}-{origin}"
    if directory.is_dir():
        for name in os.listdir(directory):
            number = name.lstrip(".").split("-")[0]
            if number.isdigit() and int(number) < batch - 1:
                (directory / name).unlink(missing_ok=True)
    return directory

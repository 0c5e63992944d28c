"""What runs inside Spark's Python workers: the pieces of stage 0 and the buckets of the later stages."""

from __future__ import annotations

import os

# One task, one core: Spark runs as many workers as it has cores.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import base64
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from strandline.algebra.user import user_functions
from strandline.errors import StrandlineError, damaged
from strandline.execution.advance import Piece, Positions, pieces
from strandline.execution.ingest import ingest
from strandline.execution.progress import Heartbeat, together
from strandline.execution.runtime import Outbox, run_stage
from strandline.execution.sinks import ParquetTarget, answers_of
from strandline.execution.sources.base import Source, open_source
from strandline.execution.store import StateStore
from strandline.execution.wire import Message, decode, encode
from strandline.physical.plan import Pipeline
from strandline.spark.failure import seal_error
from strandline.spark.packing import packed
from strandline.spark.planner import positions

HEARTBEATS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a task must know: the pipeline, where state lives, where answers go."""

    pipeline: Pipeline
    checkpoint: str
    targets: Mapping[str, ParquetTarget]
    spools: bool  # whether workers pass large tables through files instead of Spark's shuffle
    secret: str  # of this run: authenticates errors and the planner's socket

    def source(self, name: str) -> Source:
        stream = next(s for s in self.pipeline.streams if s.name == name)
        return open_source(stream, Path(self.checkpoint) / "sources" / name)

    def to_text(self) -> str:
        return base64.b64encode(packed(self, user_functions(self.pipeline).values())).decode()

    @staticmethod
    def from_text(text: str) -> Job:
        job = pickle.loads(base64.b64decode(text))
        assert isinstance(job, Job)
        return job


def read_piece(job_text: str, number: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> pa.RecordBatch:
    """Stage 0: one piece of the batch between two offsets."""
    job = Job.from_text(job_text)
    try:
        return _read_piece(job, number, start, end)
    except StrandlineError as error:
        raise RuntimeError(seal_error(error, job.secret)) from None


def _read_piece(job: Job, number: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> pa.RecordBatch:
    before, after = positions(start), positions(end)
    piece = pieces(before, after)[number]
    log = HeartbeatLog(job)
    beats = log.after(start["n"], before)
    # Batches are counted here by offsets, so that files of an answer are named alike when Spark runs one again.
    batch = end["n"] - 1
    answer = answers_of(job.pipeline, job.targets, batch, f"0-{number}")
    out = Outbox(job.pipeline.buckets, number, answer)
    beat = ingest(job.pipeline, job.source(piece.stream), piece, beats, out)
    log.write(end["n"], piece, beat)
    out.close()
    return _rows(job, out, batch, stage=0, own=0)


class HeartbeatLog:
    """The heartbeat of each piece of each source after each batch, one small file each.

    The next batch goes on from them, and a batch that is read again finds the same ones.
    """

    def __init__(self, job: Job) -> None:
        self.root = Path(job.checkpoint) / "sources"

    def after(self, n: int, reached: Positions) -> dict[str, Heartbeat]:
        if n == 0:
            return {}
        return together(
            self._read(self._path(name, n, number))
            for name, position in reached.items()
            for number in range(len(position.cuts) + 1)
        )

    def _read(self, path: Path) -> Heartbeat:
        try:
            return Heartbeat.from_json(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            raise damaged(path) from None

    def write(self, n: int, piece: Piece, beat: Heartbeat) -> None:
        path = self._path(piece.stream, n, piece.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(beat.to_json()))
        os.replace(temporary, path)
        self._path(piece.stream, n - HEARTBEATS_KEPT, piece.number).unlink(missing_ok=True)

    def _path(self, name: str, n: int, number: int) -> Path:
        return self.root / name / f"heartbeat-{n}-{number}.json"


# Later stages.


def stage_function(job: Job, stage: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One micro-batch of one stage: Spark owns scheduling and retry, the operators own the algebra."""
    text = job.to_text()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = Job.from_text(text)
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
                raise RuntimeError(seal_error(error, job.secret)) from None

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

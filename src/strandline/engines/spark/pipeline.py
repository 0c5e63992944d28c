"""A pipeline as one Structured Streaming query."""

from __future__ import annotations

import re
import threading
import time
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import strandline
from strandline.core.errors import StrandlineError
from strandline.core.faults import explain_fault, name_place, worker_lost
from strandline.core.interrupts import STOP_SECONDS, finishes_within
from strandline.core.log import ENGINE, SPARK, WARNING, log_event, log_query_end
from strandline.engines.spark.failure import explain_failure
from strandline.engines.spark.launcher.session import is_broken_connection
from strandline.engines.spark.offset_server import OffsetServer
from strandline.engines.spark.source import SCHEMA, PipelineSource
from strandline.engines.spark.worker import Job, stage_function
from strandline.runtime.checkpoint.spark_log import SPARK as SPARK_LOG
from strandline.runtime.exchange import decode
from strandline.runtime.graph_changes import change_after_batch
from strandline.runtime.pipeline import PipelineDriver, RunningPipeline

_COMMIT_SECONDS = 5.0
_RESTARTS = 3  # of Spark's query in one batch, when processes of Spark's are lost


class SparkRun(PipelineDriver):
    """Source, exchanges, stages and delivery, wired and started.

    A watcher thread follows Spark's query and ends it. Callers wait for that thread, so that an interrupt never hits a
    call to the JVM.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        pipeline: RunningPipeline,
        log_file: str | None,
        lost: Callable[[bool], StrandlineError | None],
    ) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.name = pipeline.name
        self.log_file = log_file
        self.hung = False  # whether something in it did not end when it was stopped
        self._lost = lost  # why there is no JVM any more; its argument is whether a connection to it broke
        self._delivering = threading.Lock()
        self._wrote_last = threading.Event()
        self._failure: StrandlineError | None = None
        self._delivery_error: StrandlineError | None = None  # error while a batch was delivered
        self._stop_asked = threading.Event()
        self._closed = False  # whether it was stopped
        self._stopping = threading.Lock()
        self._wiring = threading.Lock()  # while Spark's query is replaced by another
        self._spark, self._job = spark, job
        self._restarts, self._restarted_after = 0, pipeline.last_batch
        spark.dataSource.register(PipelineSource)
        self.planner = OffsetServer(pipeline, job.secret)
        try:
            self.query = self._start()
        except BaseException as error:
            self.planner.close()  # sources are open by now
            # The JVM writes the first files of its log here. Errors of ours say what is wrong.
            if isinstance(error, Exception) and not isinstance(error, StrandlineError):
                raise self._explain(error) from error
            raise
        self._watcher = threading.Thread(target=self._watch, name="strandline-watch", daemon=True)
        self._watcher.start()

    def _start(self) -> StreamingQuery:
        job = self._job
        options = {"planner": self.planner.address, "secret": job.secret, "job": job.to_text()}
        frame = self._spark.readStream.format("strandline").options(**options).load()
        shards = self.pipeline.physical.shards
        for stage in range(1, job.stages + 1):
            frame = frame.repartitionById(shards, "shard")
            frame = frame.mapInArrow(stage_function(job, stage), SCHEMA)
        return (
            frame.writeStream.queryName(f"{self.name} {uuid.uuid4().hex[:8]}")  # Spark requires unique names
            .foreachBatch(self._deliver_unless_stopped)
            .option("checkpointLocation", str(Path(job.checkpoint) / "spark"))
            .start()
        )

    def _deliver_unless_stopped(self, frame: DataFrame, batch: int) -> None:
        """Deliver a batch while the query runs. Once it was stopped, another run may resume from its checkpoint."""
        with self._delivering:
            if self._stop_asked.is_set():
                raise InterruptedError("the query was stopped")
            try:
                self._deliver(frame, batch)
            except (OSError, MemoryError) as error:
                self._delivery_error = self._delivery_error or explain_fault(error)
                raise

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        column = frame.toArrow()["data"]
        try:
            messages = (m for value in column for m in decode(value.as_buffer()))
            self.pipeline.commit(batch, messages, self.planner.planned_at)
        except StrandlineError as error:  # it would come back from the JVM as text
            self._delivery_error = error
            raise
        change_after_batch(self.pipeline)
        if self.pipeline.ended:
            self._wrote_last.set()

    def _watch(self) -> None:
        try:
            failure = self._follow()
            while failure is not None and self._is_worth_a_restart(failure):
                failure = self._restart(failure)
            if not self._stop_asked.is_set():
                self._failure = failure
            self.stop()
        finally:
            self.pipeline.release()
            ended, last_batch = self.pipeline.ended, self.pipeline.last_batch
            log_query_end(self.name, self._failure, ended=ended, last_batch=last_batch)
            self._over.set()

    def _follow(self) -> StrandlineError | None:
        """Wait for the end of Spark's query; returns the error that ended it, if any."""
        try:
            while not self._wrote_last.wait(0.05) and self._is_active():
                pass
            if self._wrote_last.is_set():
                self.query.processAllAvailable()  # lets Spark commit the last batch
            if (error := self.query.exception()) is not None:
                return self._explain(error)
            if self._stop_asked.is_set() or self.pipeline.ended:
                return None
            text = "Spark terminated the query without an error message"
            return explain_failure(text, self._job.secret, self.log_file)
        except Exception as error:  # the JVM is gone, or reports an error of our last batch
            return self._explain(error)

    def _is_active(self) -> bool:
        with self._wiring:
            return bool(self.query.isActive)

    def rewire(self) -> None:
        """End Spark's query and start it on the same checkpoint, if the version needs more than it is wired for: more
        stages, or functions, streams and places of results that its tasks do not have. Called between two batches."""
        before, needs, targets = self._job, self.pipeline.needs, self.pipeline.targets
        stages = max(before.stages, self.pipeline.stages)
        has_all = needs.functions.keys() <= before.declared.functions.keys()
        has_all &= needs.streams.keys() <= before.declared.streams.keys()
        has_all &= targets.items() <= before.targets.items()
        if has_all and stages == before.stages:
            return
        with self._stopping, self._wiring:
            if self._closed:
                return
            self.settle()
            self.query.stop()
            try:
                self._job = replace(before, stages=stages, declared=needs, targets=targets)
                self.query = self._start()
            except BaseException:
                self._job = before
                self.query = self._start()
                raise

    def settle(self) -> None:
        """Wait until the last batch is over for Spark, too: else it would run again."""
        path = Path(self._job.checkpoint) / SPARK_LOG / "commits" / str(self.pipeline.last_batch)
        end = time.monotonic() + _COMMIT_SECONDS
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.005)

    def _explain(self, error: Exception) -> StrandlineError:
        if (lost := self._lost(is_broken_connection(error))) is not None:
            return lost
        if self._delivery_error is not None:
            return name_place(self._delivery_error, self._places)
        if _is_from_lost_planner(error):
            return worker_lost("Spark's planning process has ended.")
        text = f"{error}\n{getattr(error, 'desc', '')}\n{getattr(error, 'stackTrace', '')}"
        return name_place(explain_failure(text, self._job.secret, self.log_file), self._places)

    @property
    def _places(self) -> list[str]:
        """The directories that the query writes to."""
        return [self._job.checkpoint, *(target.directory for target in self._job.targets.values())]

    def _is_worth_a_restart(self, failure: StrandlineError) -> bool:
        """True if processes of Spark's were lost, but not repeatedly in the same batch."""
        if failure.code != "worker-lost" or self._stop_asked.is_set():
            return False
        if self.pipeline.last_batch > self._restarted_after:
            self._restarts, self._restarted_after = 0, self.pipeline.last_batch
        return self._restarts < _RESTARTS

    def _restart(self, failure: StrandlineError) -> StrandlineError | None:
        """Start Spark's query again, from its checkpoint, and follow it."""
        pause = 2.0**self._restarts
        self._restarts += 1
        log_event(
            SPARK,
            WARNING,
            "query restarted",
            name=self.name,
            code=failure.code,
            message=failure.message,
            restart=self._restarts,
            restarts=_RESTARTS,
            last_batch=self.pipeline.last_batch,
            pause_s=pause,
        )
        if self._stop_asked.wait(pause):
            return None
        try:
            with self._stopping:
                if self._closed:
                    return None
                self.query = self._start()
        except Exception as error:
            return self._explain(error)
        return self._follow()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the query. A hanging part is left behind, with a warning: see `hung`."""
        self._stop_asked.set()
        with self._stopping:
            if not self._closed:
                self._closed = True
                self.pipeline.interrupt()
                ended = finishes_within(STOP_SECONDS, self._stop_query)
                # Spark's thread may have ended while a batch is still being written to a sink.
                ended = ended and self._has_delivered(1.0)
                self.planner.close()
                if not ended:
                    self.hung = True
                    self._over.set()
                    log_event(ENGINE, WARNING, "query left behind", name=self.name, reason="it does not stop")
        if threading.current_thread() is not self._watcher:
            self._over.wait()

    def _has_delivered(self, seconds: float) -> bool:
        """Wait for the batch that is being delivered, if there is one."""
        free = self._delivering.acquire(timeout=seconds)
        if free:
            self._delivering.release()
        return free

    def _stop_query(self) -> None:
        if self._lost(False) is None:
            self.query.stop()

    def rows_left(self) -> int | None:
        return self.planner.rows_left

    def durations(self) -> list[dict[str, Any]]:
        try:
            return [{"batch": p["batchId"], **p["durationMs"]} for p in self.query.recentProgress]
        except Exception:
            if self._lost(True) is not None:
                return []
            raise


def ship_package(spark: SparkSession, directory: Path) -> None:
    """Send this package to executors that may not have it."""
    root = Path(strandline.__file__).parent
    archive = directory / "strandline-package.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, Path("strandline") / path.relative_to(root))
    spark.sparkContext.addPyFile(str(archive))


def _is_from_lost_planner(error: BaseException) -> bool:
    """True if the connection to Spark's planning process of the source broke."""
    stack = str(getattr(getattr(error, "_cause", None), "_stackTrace", ""))
    broken = re.match(r"java\.(?:net\.SocketException|io\.EOFException|io\.IOException: Broken pipe)", stack)
    return broken is not None and "PythonStreamingSourceRunner" in stack

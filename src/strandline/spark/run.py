"""A pipeline as one Structured Streaming query."""

from __future__ import annotations

import threading
import uuid
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import strandline
from strandline.errors import StrandlineError
from strandline.execution.advance import Offset
from strandline.execution.chain import CheckpointChain
from strandline.execution.delivery import Delivery
from strandline.execution.shedding import Shedder
from strandline.execution.wire import decode
from strandline.spark.failure import explain_failure
from strandline.spark.planner import Planner
from strandline.spark.source import SCHEMA, PipelineSource
from strandline.spark.worker import Job, stage_function


class SparkRun:
    """Source, exchanges, stages and delivery, wired and started.

    A thread of its own watches Spark's query and ends it. Whoever waits for the end waits for that thread, so that an
    interrupt never falls into a conversation with the JVM.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        chain: CheckpointChain,
        last_offset: Offset | None,
        batch_rows: int,
        delivery: Delivery,
        shedder: Shedder | None,
        name: str,
        log_file: str | None,
    ) -> None:
        self.delivery = delivery
        self.log_file = log_file
        self._wrote_last = threading.Event()
        self._over = threading.Event()
        self._failure: StrandlineError | None = None
        self._refusal: StrandlineError | None = None  # what a sink said
        self._stopped = False
        self._stopping = threading.Lock()
        spark.dataSource.register(PipelineSource)
        self._secret = job.secret
        self.planner = Planner(
            job.pipeline, chain, last_offset, batch_rows, job.secret, shedder, delivery.subscriptions.wish
        )
        try:
            self.query = self._start(spark, job, name)
        except BaseException:
            self.planner.close()  # sources are open by now
            raise
        self._watcher = threading.Thread(target=self._watch, name="strandline-watch", daemon=True)
        self._watcher.start()

    def _start(self, spark: SparkSession, job: Job, name: str) -> StreamingQuery:
        source = spark.readStream.format("strandline").option("planner", self.planner.address)
        source = source.option("secret", job.secret)
        frame = source.option("job", job.to_text()).load()
        for stage in range(1, job.pipeline.stages + 1):
            frame = frame.repartitionById(job.pipeline.buckets, "bucket")
            frame = frame.mapInArrow(stage_function(job, stage), SCHEMA)
        return (
            frame.writeStream.queryName(f"{name} {uuid.uuid4().hex[:8]}")  # Spark wants names to be unique
            .foreachBatch(self._deliver)
            .option("checkpointLocation", str(Path(job.checkpoint) / "spark"))
            .start()
        )

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        column = frame.toArrow()["data"]
        try:
            self.delivery.deliver(batch, (m for value in column for m in decode(value.as_buffer())))
        except StrandlineError as error:  # it would come back from the JVM as text
            self._refusal = error
            raise
        if self.delivery.ended:
            self._wrote_last.set()

    def _watch(self) -> None:
        try:
            while not self._wrote_last.wait(0.05) and self.query.isActive:
                pass
            if self._wrote_last.is_set():
                self.query.processAllAvailable()  # lets Spark commit the last batch
            if not self._stopped and (error := self.query.exception()) is not None:
                self._failure = self._refusal or self._explain(_message(error))
            elif not self._stopped and not self.delivery.ended:
                self._failure = self._explain("Spark terminated the query without an error message")
            self.stop()
        except Exception as error:  # the JVM is gone, or has something to say about our last batch
            if not self._stopped:
                self._failure = self._refusal or self._explain(_message(error))
        finally:
            self._release()
            self._over.set()

    def _release(self) -> None:
        """Nothing is written any more: another run may go on from the checkpoint."""
        if self.delivery.chain is not None:
            self.delivery.chain.release()

    def _explain(self, text: str) -> StrandlineError:
        return explain_failure(text, self._secret, self.log_file)

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended; raises what made the query fail. False if the time ran out."""
        over = self._over.wait(timeout)
        self.check()
        return over

    def check(self) -> None:
        """Raise what made the query fail, if something did."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        with self._stopping:
            if not self._stopped:
                self._stopped = True
                self.query.stop()
                self.planner.close()
        if threading.current_thread() is not self._watcher:
            self._over.wait()

    def rows_left(self) -> int | None:
        """About how many rows of the sources have not been read; None if they cannot tell."""
        return self.planner.rows_left

    def durations(self) -> list[dict[str, Any]]:
        """What recent batches took, by phase, in milliseconds."""
        return [{"batch": p["batchId"], **p["durationMs"]} for p in self.query.recentProgress]


def ship_package(spark: SparkSession, directory: Path) -> None:
    """Send this package to executors that may not have it."""
    root = Path(strandline.__file__).parent
    archive = directory / "strandline-package.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, Path("strandline") / path.relative_to(root))
    spark.sparkContext.addPyFile(str(archive))


def _message(error: BaseException) -> str:
    return f"{error}\n{getattr(error, 'desc', '')}\n{getattr(error, 'stackTrace', '')}"

"""A pipeline as one Structured Streaming query."""

from __future__ import annotations

import threading
import uuid
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import strandline
from strandline.errors import StrandlineError
from strandline.execution.delivery import Delivery
from strandline.execution.wire import decode
from strandline.spark.failure import explain_failure
from strandline.spark.planner import Planner
from strandline.spark.source import SCHEMA, PipelineSource
from strandline.spark.worker import Job, stage_function


class SparkRun:
    """Source, exchanges, stages and delivery, wired and started."""

    def __init__(
        self, spark: SparkSession, job: Job, batch_rows: int, delivery: Delivery, name: str, log_file: str | None
    ) -> None:
        self.delivery = delivery
        self.log_file = log_file
        self.ended = threading.Event()
        self._failure: StrandlineError | None = None
        self._stopped = False
        spark.dataSource.register(PipelineSource)
        self.planner = Planner(job.pipeline, Path(job.checkpoint), batch_rows)
        source = spark.readStream.format("strandline").option("planner", self.planner.address)
        frame = source.option("job", job.to_text()).load()
        for stage in range(1, job.pipeline.stages + 1):
            frame = frame.repartitionById(job.pipeline.buckets, "bucket")
            frame = frame.mapInArrow(stage_function(job, stage), SCHEMA)
        self.query = (
            frame.writeStream.queryName(f"{name} {uuid.uuid4().hex[:8]}")  # Spark wants names to be unique
            .foreachBatch(self._deliver)
            .option("checkpointLocation", str(Path(job.checkpoint) / "spark"))
            .start()
        )

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        column = frame.toArrow()["data"]
        self.delivery.deliver(batch, (m for value in column for m in decode(value.as_buffer())))
        if self.delivery.ended:
            self.ended.set()

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until all sources have ended; raises what made the query fail. False if the time ran out."""
        waited = 0.0
        while timeout is None or waited < timeout:
            if self.ended.wait(0.05):
                self._finish()
                return True
            waited += 0.05
            self.check()
            if self._stopped:
                return True
        return False

    def check(self) -> None:
        """Raise what made the query fail, if something did."""
        if self._failure is None and not self._stopped:
            error = self.query.exception()
            if error is not None:
                self._failure = explain_failure(_message(error), self.log_file)
            elif not self.query.isActive and not self.delivery.ended:
                self._failure = explain_failure("Spark has ended the query without a word", self.log_file)
        if self._failure is not None:
            raise self._failure

    def _finish(self) -> None:
        """Let Spark commit the last batch, then end."""
        if not self._stopped:
            self.query.processAllAvailable()
            self.stop()

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.query.stop()
            self.planner.close()

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

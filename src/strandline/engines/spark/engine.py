"""Spark, ours or the user's, as an engine."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from strandline.core.errors import StrandlineError
from strandline.core.log import SPARK, WARNING, log_event
from strandline.core.temporary import temporary_directory
from strandline.engines.base import Engine, Note, log_start
from strandline.runtime.pipeline import PipelineDriver, RunningPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.engines.spark.launcher.session import EmbeddedSpark
    from strandline.engines.spark.pipeline import SparkRun


class SparkEngine(Engine):
    """Spark, ours or the user's; started when first needed."""

    batch_seconds = 0.25

    def __init__(
        self, spark: SparkSession | None, master: str | None, config: Mapping[str, str] | None, shards: int | None
    ) -> None:
        self._given = spark
        self._master, self._config, self._shards = master, config, shards
        self._session: EmbeddedSpark | None = None
        self._starting = threading.Lock()
        self._shipped = False
        self._runs: WeakSet[SparkRun] = WeakSet()

    def session(self, note: Note = lambda phase: None) -> tuple[SparkSession, str | None]:
        """The session that queries run on; one of ours that was lost is started again."""
        if self._given is not None:
            return self._given, None
        with self._starting:
            if (lost := self.lost()) is not None:
                log_event(SPARK, WARNING, "spark lost", code=lost.code, message=lost.message, next="start again")
                self.close()
            if self._session is None:
                from strandline.engines.spark.launcher.session import start

                self._session = start(master=self._master, config=self._config, note=note)
            return self._session.spark, str(self._session.log_file)

    def lost(self) -> StrandlineError | None:
        session = self._session
        return session.lost() if session is not None else None

    def default_shards(self) -> int:
        if self._shards is None:
            with self._naming_loss():
                self._shards = max(1, self.session()[0].sparkContext.defaultParallelism)
        return self._shards

    def likely_shards(self) -> int:
        if self._shards is None and self._given is None and self._session is None:
            return self.cores()
        return self.default_shards()

    def cores(self) -> int:
        if self._given is None and self._session is None:
            return os.cpu_count() or 1
        with self._naming_loss():
            return max(1, self.session()[0].sparkContext.defaultParallelism)

    def run(self, pipeline: RunningPipeline) -> PipelineDriver:
        from strandline.engines.spark.failure import new_secret
        from strandline.engines.spark.launcher.session import given_session_lost
        from strandline.engines.spark.pipeline import SparkRun, ship_package
        from strandline.engines.spark.worker import EXCHANGE, Job

        shutil.rmtree(pipeline.checkpoint / EXCHANGE, ignore_errors=True)
        with self._naming_loss():
            spark, log_file = self.session()
            if self._given is not None and (lost := given_session_lost(spark)) is not None:
                raise lost
            session = self._session
            if not self._shipped and not str(spark.sparkContext.master).startswith("local["):
                ship_package(spark, temporary_directory("package"))
                self._shipped = True
            # On one machine workers hand tables over through its page cache; between machines there is Spark's shuffle.
            spools = str(spark.sparkContext.master).startswith("local")
            assert pipeline.chain is not None, "it was opened with a checkpoint"
            epoch = pipeline.chain.lease.epoch
            job = Job(
                str(pipeline.checkpoint),
                pipeline.stages,
                pipeline.needs,
                pipeline.targets,
                spools,
                new_secret(),
                epoch,
                pipeline.announced_in,
            )
            log_start(pipeline, "spark")
            run = SparkRun(spark, job, pipeline, log_file, lost=partial(_lost, session, spark))
            self._runs.add(run)
            return run

    @contextmanager
    def _naming_loss(self) -> Iterator[None]:
        """Name the loss of a JVM that ends in the middle of a conversation."""
        try:
            yield
        except Exception as error:
            from strandline.engines.spark.launcher.session import is_broken_connection

            session = self._session
            if session is not None and is_broken_connection(error) and (lost := session.lost(after_error=True)):
                raise lost from None
            raise

    def warm(self, note: Note) -> None:
        self.session(note)

    def log_file(self) -> Path | None:
        return self._session.log_file if self._session is not None else None

    def close(self) -> None:
        if self._session is not None:
            self._session.stop(hung=any(run.hung for run in self._runs))
            self._session = None
            self._shipped = False


def _lost(session: EmbeddedSpark | None, spark: SparkSession, after_error: bool) -> StrandlineError | None:
    """Why a run has no Spark any more: of a session that we started its process tells, else a question that fails."""
    if session is not None:
        return session.lost(after_error)
    from strandline.engines.spark.launcher.session import given_session_lost

    return given_session_lost(spark) if after_error else None

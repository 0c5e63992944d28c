"""Where pipelines run: on Spark, ours or the user's, or on the local driver in a thread."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.checkpoint.verify import VerifiedChain
from strandline.errors import CheckpointError, QueryError, StrandlineError
from strandline.execution.delivery import Delivery
from strandline.execution.shedding import Shedder
from strandline.execution.sinks import ParquetTarget
from strandline.physical.plan import Pipeline
from strandline.query import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.session import Session


# Told what is being waited for, in a few words.
Note: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Start:
    pipeline: Pipeline
    verified: VerifiedChain
    targets: Mapping[str, ParquetTarget]
    batch_rows: int
    delivery: Delivery
    shedder: Shedder | None = None

    @property
    def checkpoint(self) -> Path:
        return self.verified.chain.path


class Backend:
    batch_seconds = 0.02  # what a batch takes in any case, about

    def default_buckets(self) -> int:
        raise AssertionError("each backend says how parallel it is")

    def likely_buckets(self) -> int:
        """The same without starting anything."""
        return self.default_buckets()

    def cores(self) -> int:
        """How many cores pipelines may use; without starting anything."""
        return 1

    def run(self, start: Start) -> Run:
        raise AssertionError("each backend runs pipelines its own way")

    def warm(self, note: Note) -> None:
        return

    def log_file(self) -> Path | None:
        return None

    def close(self) -> None:
        return


class LocalBackend(Backend):
    def __init__(self, buckets: int | None) -> None:
        self.buckets = buckets or 1

    def default_buckets(self) -> int:
        return self.buckets

    def run(self, start: Start) -> Run:
        from strandline.execution.local import LocalRun

        if start.delivery.last_batch >= 0:
            raise CheckpointError(
                "the local engine keeps its state in memory and cannot continue an interrupted query",
                code="local-restart",
                hint="Remove the results and start again, or use --engine spark.",
            )
        run = LocalRun(
            start.pipeline,
            start.delivery,
            start.targets,
            start.batch_rows,
            source_directory=start.checkpoint / "sources",
            shedder=start.shedder,
        )
        return _Threaded(run)


class _Threaded:
    """The local driver in a thread, so that a query runs while its user does other things."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="strandline-local")
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and not self._run.delivery.ended:
                if self._run.step() is None:
                    self._stop.wait(0.01)
        except BaseException as error:
            if getattr(error, "code", None) != "sink-interrupted":  # a sink that was waiting when the query was stopped
                self._failure = error
        finally:
            self._run.close()
            if self._run.delivery.chain is not None:
                self._run.delivery.chain.release()

    def await_end(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        self.check()
        return not self._thread.is_alive()

    def check(self) -> None:
        if isinstance(self._failure, KeyboardInterrupt):
            # Array libraries hand Ctrl-C to whoever computes, here in the thread: it is for the user's thread to hear,
            # once. The batch at hand was not delivered, so the answer is whole as far as it goes.
            self._failure = None
            raise KeyboardInterrupt
        if isinstance(self._failure, StrandlineError):
            raise self._failure
        if self._failure is not None:
            raise QueryError(f"the query has failed: {self._failure}", code="query-failed") from self._failure

    def stop(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def durations(self) -> list[dict[str, Any]]:
        return []

    def rows_left(self) -> int | None:
        left: int | None = self._run.advance.rows_left
        return left


class SparkBackend(Backend):
    """Spark, ours or the user's; started when first needed."""

    batch_seconds = 0.25

    def __init__(
        self, spark: SparkSession | None, master: str | None, config: Mapping[str, str] | None, buckets: int | None
    ) -> None:
        self._given = spark
        self._master, self._config, self._buckets = master, config, buckets
        self._session: Session | None = None
        self._shipped = False

    def session(self, note: Note | None = None) -> tuple[SparkSession, str | None]:
        if self._given is not None:
            return self._given, None
        if self._session is None:
            from strandline.spark.session import start

            self._session = start(master=self._master, config=self._config, note=note)
        return self._session.spark, str(self._session.log_file)

    def default_buckets(self) -> int:
        if self._buckets is None:
            self._buckets = max(1, self.session()[0].sparkContext.defaultParallelism)
        return self._buckets

    def likely_buckets(self) -> int:
        if self._buckets is None and self._given is None and self._session is None:
            return self.cores()
        return self.default_buckets()

    def cores(self) -> int:
        if self._given is None and self._session is None:
            return os.cpu_count() or 1
        return max(1, self.session()[0].sparkContext.defaultParallelism)

    def run(self, start: Start) -> Run:
        from strandline.spark.failure import new_secret
        from strandline.spark.run import SparkRun, ship_package
        from strandline.spark.worker import EXCHANGE, Job

        shutil.rmtree(start.checkpoint / EXCHANGE, ignore_errors=True)
        spark, log_file = self.session()
        if not self._shipped and not str(spark.sparkContext.master).startswith("local["):
            ship_package(spark, Path(tempfile.mkdtemp(prefix="strandline-package-")))
            self._shipped = True
        # On one machine workers hand tables over through its page cache; between machines there is Spark's shuffle.
        spools = str(spark.sparkContext.master).startswith("local")
        epoch = start.verified.chain.lease.epoch
        job = Job(start.pipeline, str(start.checkpoint), start.targets, spools, new_secret(), epoch)
        name = "+".join(query.name for query in start.pipeline.queries)
        chain, last = start.verified.chain, start.verified.last_offset
        return SparkRun(spark, job, chain, last, start.batch_rows, start.delivery, start.shedder, name, log_file)

    def warm(self, note: Note) -> None:
        self.session(note)

    def log_file(self) -> Path | None:
        return self._session.log_file if self._session is not None else None

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

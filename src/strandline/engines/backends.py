"""Where pipelines run: on Spark, ours or the user's, or on the local driver in a thread."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakSet

from strandline.connectors.sinks.parquet_parts import ParquetTarget
from strandline.core.errors import CheckpointError, QueryError, StrandlineError
from strandline.core.faults import explain_fault, name_place
from strandline.core.interrupts import STOP_SECONDS
from strandline.core.log import ENGINE, INFO, RECOVERY, SPARK, WARNING, log_event, log_query_end
from strandline.core.temporary import temporary_directory
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.replay import replayed_until
from strandline.runtime.checkpoint.verify import VerifiedChain
from strandline.runtime.commit import Delivery
from strandline.shedding.controller import Shedder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.engines.spark.launcher.session import Session
    from strandline.engines.spark.pipeline import SparkRun

# Told what is being waited for, in a few words.
Note: TypeAlias = Callable[[str], None]


class Run(Protocol):
    """What drives a pipeline: Spark, or the local driver in a thread."""

    def await_end(self, timeout: float | None = None) -> bool: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...

    def durations(self) -> list[dict[str, Any]]: ...

    def rows_left(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Start:
    pipeline: Pipeline
    verified: VerifiedChain
    targets: Mapping[str, ParquetTarget]
    batch_rows: int
    delivery: Delivery
    shedder: Shedder | None = None
    interrupt: Callable[[], None] = lambda: None  # ends what the sinks wait for, when the run is stopped

    @property
    def name(self) -> str:
        return "+".join(query.name for query in self.pipeline.queries)

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

    def lost(self) -> StrandlineError | None:
        """Why the engine is gone, if it is; the next query starts it again."""
        return None

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
        from strandline.engines.local import LocalRun

        if start.delivery.last_batch >= 0:
            raise CheckpointError(
                "the local engine cannot resume an interrupted query: its state is in memory",
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
        _log_start(start, "local")
        return _Threaded(run, start)


class _Threaded:
    """The local driver in a thread, so that a query runs while its user does other things.

    Its end is an event: a Ctrl-C in `Thread.join` makes Python 3.11 believe that the thread has ended.
    """

    def __init__(self, run: Any, start: Start) -> None:
        self._run = run
        self._name, self._interrupt = start.name, start.interrupt
        self._places = [str(start.checkpoint), *(target.directory for target in start.targets.values())]
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="strandline-local")
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and not self._run.delivery.ended:
                if self._run.step() is None:
                    self._stop.wait(0.01)
        except BaseException as error:
            # Whoever asks for the end interrupts a sink that waits: then the batch at hand was not delivered.
            if not self._stop.is_set() and getattr(error, "code", None) != "sink-interrupted":
                fault = explain_fault(error)
                self._failure = error if fault is None else name_place(fault, self._places)
        finally:
            try:
                self._run.close()
            finally:
                if self._run.delivery.chain is not None:
                    self._run.delivery.chain.release()
                delivery = self._run.delivery
                log_query_end(self._name, self._failure, ended=delivery.ended, last_batch=delivery.last_batch)
                self._over.set()

    def await_end(self, timeout: float | None = None) -> bool:
        over = self._over.wait(timeout)
        self.check()
        return over

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
        self._interrupt()
        if threading.current_thread() is not self._thread and not self._over.wait(STOP_SECONDS):
            self._over.set()
            log_event(ENGINE, WARNING, "query left behind", name=self._name, reason="it does not stop")

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
        self._starting = threading.Lock()
        self._shipped = False
        self._runs: WeakSet[SparkRun] = WeakSet()

    def session(self, note: Note | None = None) -> tuple[SparkSession, str | None]:
        """The session that queries run on; one of ours that was lost is started again."""
        if self._given is not None:
            return self._given, None
        with self._starting:
            if (lost := self.lost()) is not None:
                log_event(SPARK, WARNING, "spark lost", code=lost.code, message=lost.message, next="start again")
                self._end_session()
            if self._session is None:
                from strandline.engines.spark.launcher.session import start

                self._session = start(master=self._master, config=self._config, note=note)
            return self._session.spark, str(self._session.log_file)

    def lost(self) -> StrandlineError | None:
        session = self._session
        return session.lost() if session is not None else None

    def default_buckets(self) -> int:
        if self._buckets is None:
            with self._naming_loss():
                self._buckets = max(1, self.session()[0].sparkContext.defaultParallelism)
        return self._buckets

    def likely_buckets(self) -> int:
        if self._buckets is None and self._given is None and self._session is None:
            return self.cores()
        return self.default_buckets()

    def cores(self) -> int:
        if self._given is None and self._session is None:
            return os.cpu_count() or 1
        with self._naming_loss():
            return max(1, self.session()[0].sparkContext.defaultParallelism)

    def run(self, start: Start) -> Run:
        with self._naming_loss():
            return self._run(start)

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

    def _run(self, start: Start) -> Run:
        from strandline.engines.spark.failure import new_secret
        from strandline.engines.spark.launcher.session import given_session_lost
        from strandline.engines.spark.pipeline import SparkRun, ship_package
        from strandline.engines.spark.worker import EXCHANGE, Job

        shutil.rmtree(start.checkpoint / EXCHANGE, ignore_errors=True)
        spark, log_file = self.session()
        if self._given is not None and (lost := given_session_lost(spark)) is not None:
            raise lost
        session = self._session
        if not self._shipped and not str(spark.sparkContext.master).startswith("local["):
            ship_package(spark, temporary_directory("package"))
            self._shipped = True
        # On one machine workers hand tables over through its page cache; between machines there is Spark's shuffle.
        spools = str(spark.sparkContext.master).startswith("local")
        chain = start.verified.chain
        job = Job(start.pipeline, str(start.checkpoint), start.targets, spools, new_secret(), chain.lease.epoch)
        _log_start(start, "spark")
        run = SparkRun(
            spark,
            job,
            chain,
            start.verified.last_offset,
            start.batch_rows,
            start.delivery,
            start.shedder,
            start.name,
            log_file,
            lost=partial(_lost, session, spark),
            interrupt=start.interrupt,
        )
        self._runs.add(run)
        return run

    def warm(self, note: Note) -> None:
        self.session(note)

    def log_file(self) -> Path | None:
        return self._session.log_file if self._session is not None else None

    def close(self) -> None:
        self._end_session()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.stop(hung=any(run.hung for run in self._runs))
            self._session = None
            self._shipped = False


def _lost(session: Session | None, spark: SparkSession, after_error: bool) -> StrandlineError | None:
    """Why a run has no Spark any more: of a session that we started its process tells, else a question that fails."""
    if session is not None:
        return session.lost(after_error)
    from strandline.engines.spark.launcher.session import given_session_lost

    return given_session_lost(spark) if after_error else None


def _log_start(start: Start, engine: str) -> None:
    shards = start.pipeline.buckets
    log_event(ENGINE, INFO, "query started", name=start.name, engine=engine, checkpoint=start.checkpoint, shards=shards)
    if start.verified.last_offset is not None or start.delivery.last_batch >= 0:
        log_resumed(start.name, start.verified, start.delivery)


def log_resumed(name: str, verified: VerifiedChain, delivery: Delivery) -> None:
    """Log where a query resumes: after which batch, up to when it was complete, and which batches run again."""
    log_event(
        RECOVERY,
        INFO,
        "checkpoint resumed",
        name=name,
        last_batch=delivery.last_batch,
        watermark=delivery.show_watermark(),
        replay=_show_replay(verified),
        checkpoint=verified.chain.path,
    )


def _show_replay(verified: VerifiedChain) -> str:
    """Batches that run again as planned: one that a crash interrupted, and those that a repair discarded."""
    if (offset := verified.last_offset) is None:
        return "none"
    first = offset.batch + 1 if verified.is_committed else offset.batch
    last = max(replayed_until(verified.chain.path), offset.batch)
    if last < first:
        return "none"
    return f"{first}" if first == last else f"{first}-{last}"

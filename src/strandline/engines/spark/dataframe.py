"""DataFrame source: a user's Spark DataFrame, streaming or not, as a stream.

A second Spark query runs beside the one of the pipeline: it computes the DataFrame, and `foreachBatch` writes each of
its micro-batches into the journal that the source reads. Spark repeats a micro-batch after a crash, under its number;
the journal has the number in the same file as the rows, so a repeated batch is skipped.

    <checkpoint>/sources/<stream>/spark/     Spark's offsets and commits of that query
    <checkpoint>/sources/<stream>/rows/      the journal
    <checkpoint>/sources/<stream>/runs/      the micro-batch that is being written
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.query import StreamingQuery

from strandline.connectors.sources.dataframe import ROWS
from strandline.connectors.sources.journal import Journal
from strandline.connectors.sources.sorted_runs import merged, write_runs
from strandline.core import types
from strandline.core.errors import CatalogError, SourceError, StrandlineError, damaged
from strandline.engines.spark.failure import summary
from strandline.engines.spark.launcher.session import is_broken_connection

MOST_WAITING = 4_000_000  # unread rows in the journal; then Spark's next micro-batch waits
_ENDING = ("availableNow", "once")  # triggers of queries that end by themselves

_SIMPLE: Mapping[type[spark_types.DataType], types.Type] = {
    spark_types.BooleanType: types.BOOLEAN,
    spark_types.ByteType: types.INT,
    spark_types.ShortType: types.INT,
    spark_types.IntegerType: types.INT,
    spark_types.LongType: types.BIGINT,
    spark_types.FloatType: types.DOUBLE,
    spark_types.DoubleType: types.DOUBLE,
    spark_types.StringType: types.VARCHAR,
    spark_types.CharType: types.VARCHAR,
    spark_types.VarcharType: types.VARCHAR,
    spark_types.DateType: types.DATE,
    spark_types.TimestampType: types.TIMESTAMP,
    spark_types.TimestampNTZType: types.TIMESTAMP,
}


def check_frame(name: str, frame: object) -> DataFrame:
    """Check that the rows of the DataFrame can come to this process."""
    if isinstance(frame, ClassicDataFrame):
        return frame
    raise CatalogError(
        f'cannot create stream "{name}" from a {type(frame).__module__}.{type(frame).__name__}',
        code="not-a-dataframe",
        hint="register() takes a DataFrame of a Spark session in this process, without Spark Connect. "
        "Give tables of pandas, Polars or Arrow to a stream of events() by append().",
    )


def columns_of(name: str, frame: DataFrame) -> tuple[tuple[str, types.Type], ...]:
    """The columns of a DataFrame with the types that they have here."""
    columns: dict[str, tuple[str, types.Type]] = {}
    for field in frame.schema.fields:
        if field.name.lower() in columns:
            raise CatalogError(
                f'duplicate column "{field.name}" in the DataFrame for stream "{name}"',
                code="duplicate-column",
                hint="Column names are case-insensitive. Rename one with withColumnRenamed, or drop it.",
            )
        kind = _type(field.dataType)
        if kind is None:
            raise CatalogError(
                f'column "{field.name}" of the DataFrame for stream "{name}" is {field.dataType.simpleString()}',
                code="dataframe-type",
                hint="This type is not supported. Unpack it, cast it, or drop the column: "
                f'frame.withColumn("{field.name}", …) or frame.drop("{field.name}").',
            )
        columns[field.name.lower()] = field.name, kind
    return tuple(columns.values())


def _type(kind: spark_types.DataType) -> types.Type | None:
    if isinstance(kind, spark_types.DecimalType):
        return types.decimal(kind.precision, kind.scale) if kind.scale >= 0 else None
    if isinstance(kind, spark_types.ArrayType):
        element = _type(kind.elementType)
        return types.array_of(element) if element is not None and element.element is None else None
    return _SIMPLE.get(type(kind))


@dataclass(eq=False)
class FrameFeed:
    """A DataFrame that waits for queries. Each pipeline that reads it computes it for itself, as with every source."""

    name: str
    frame: DataFrame
    columns: tuple[tuple[str, types.Type], ...]
    time: str | None
    trigger: Mapping[str, Any]
    log_file: Callable[[], Path | None]

    def __reduce__(self) -> tuple[object, ...]:
        # A worker gets the stream without it: there is no DataFrame there.
        return type(None), ()

    def start(self, directory: Path) -> Feeder:
        try:
            is_streaming = self.frame.isStreaming
        except Exception as error:
            if not is_broken_connection(error):
                raise
            raise SourceError(
                f'the Spark session of the DataFrame of stream "{self.name}" is gone',
                code="spark-lost",
                hint="DROP STREAM, make the DataFrame again from db.spark, and register it.",
            ) from None
        return StreamFeeder(self, directory) if is_streaming else TableFeeder(self, directory)

    def failed(self, error: BaseException) -> SourceError:
        """Spark's error as one line."""
        log = self.log_file()
        return SourceError(
            f'the DataFrame of stream "{self.name}" has failed: {summary(str(error))}',
            code="dataframe-failed",
            detail=f"See {log} for details." if log is not None else None,
            hint="Fix the DataFrame and restart the query; with a checkpoint it resumes where it stopped.",
        )


class Feeder(ABC):
    """Writes the micro-batches of a DataFrame into the journal of one pipeline."""

    def __init__(self, feed: FrameFeed, directory: Path) -> None:
        self.feed = feed
        self.directory = directory
        self.journal = Journal(directory / ROWS, may_be_truncated=True)
        self.journal.refresh()
        self.failure: StrandlineError | None = None
        self._read = threading.Condition()
        self._position: int | None = None  # the read position
        self._stopping = False

    def take(self, frame: DataFrame, number: int) -> None:
        """Write a micro-batch, unless it is there."""
        if number <= self.journal.last_batch:
            return
        self._await_room()
        try:
            runs = self._write_runs(frame)
            rows = sum(count for _, count in runs)
            paths = [self._runs / name for name, _ in runs]
            self._refuse_if_stopping()
            self.journal.append_batch(number, rows, merged(paths, self.feed.time) if rows else ())
        except Exception as error:
            # Raised here: an error that comes back through the JVM is wrapped several times.
            self.failure = error if isinstance(error, StrandlineError) else self.feed.failed(error)
            raise
        finally:
            shutil.rmtree(self._runs, ignore_errors=True)

    @property
    def _runs(self) -> Path:
        return self.directory / "runs"

    def _write_runs(self, frame: DataFrame) -> list[tuple[str, int]]:
        """Write sorted runs in the tasks that compute the rows; the driver never has them all."""
        shutil.rmtree(self._runs, ignore_errors=True)
        self._runs.mkdir(parents=True)
        directory, columns, time = str(self._runs), self.feed.columns, self.feed.time

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for name, rows in write_runs(batches, Path(directory), columns, time):
                yield pa.RecordBatch.from_pydict({"run": [name], "rows": [rows]})

        return [(row.run, row.rows) for row in frame.mapInArrow(write, "run STRING, rows BIGINT").collect()]

    def _await_room(self) -> None:
        """Wait while readers are far behind, so that the journal does not fill the disk."""
        with self._read:
            self._read.wait_for(lambda: self._stopping or self._waiting() < MOST_WAITING)
        self._refuse_if_stopping()

    def _waiting(self) -> int:
        return 0 if self._position is None else self.journal.reach - self._position

    def _refuse_if_stopping(self) -> None:
        # An unwritten batch must not look done to Spark.
        if self._stopping:
            raise InterruptedError("the stream is being stopped")

    def acknowledge(self, position: int) -> None:
        with self._read:
            self._position = position
            self._read.notify_all()

    @abstractmethod
    def check(self) -> None:
        """Raise what made the DataFrame fail, if something did."""

    def stop(self) -> None:
        with self._read:
            self._stopping = True
            self._read.notify_all()


class StreamFeeder(Feeder):
    """A streaming DataFrame: a Structured Streaming query that runs until stopped, unless its trigger ends it."""

    def __init__(self, feed: FrameFeed, directory: Path) -> None:
        super().__init__(feed, directory)
        location = directory / "spark"
        if self.journal.last_batch >= 0 and not (location / "metadata").exists():
            raise damaged(location / "metadata")  # Spark would count from zero, and new rows would be skipped
        self._query: StreamingQuery | None = None
        if self.journal.ended:
            return
        try:
            writer = feed.frame.writeStream.queryName(f"{feed.name} {uuid.uuid4().hex[:8]}").foreachBatch(self.take)
            if feed.trigger:
                writer = writer.trigger(**feed.trigger)
            self._query = writer.option("checkpointLocation", str(location)).start()
        except (PySparkException, TypeError, ValueError) as error:
            raise feed.failed(error) from None

    def check(self) -> None:
        if self._query is None or self._stopping or self._query.isActive:
            return
        if (error := self._query.exception()) is not None:
            raise self.failure or self.feed.failed(error)
        if not any(self.feed.trigger.get(kind) for kind in _ENDING):
            raise SourceError(
                f'the streaming query of the DataFrame of stream "{self.feed.name}" was stopped externally',
                code="dataframe-stopped",
                hint="Restart the query; with a checkpoint it resumes where it stopped.",
            )
        self.journal.close()

    def stop(self) -> None:
        super().stop()
        if self._query is not None:
            with contextlib.suppress(Exception):  # the JVM may be gone
                self._query.stop()


class TableFeeder(Feeder):
    """A DataFrame that is not streaming: one micro-batch, and then the stream ends."""

    def __init__(self, feed: FrameFeed, directory: Path) -> None:
        super().__init__(feed, directory)
        self._tag = f"strandline-{uuid.uuid4().hex}"
        self._context = feed.frame.sparkSession.sparkContext
        self._thread = threading.Thread(target=self._work, name=f"strandline-{feed.name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        if self.journal.ended:
            return
        with contextlib.suppress(Exception):  # `take` keeps the error
            self._context.addJobTag(self._tag)
            self.take(self.feed.frame, 0)
            self.journal.close()

    def check(self) -> None:
        if self.failure is not None and not self._stopping:
            raise self.failure

    def stop(self) -> None:
        super().stop()
        with contextlib.suppress(Exception):  # the JVM may be gone
            self._context.cancelJobsWithTag(self._tag)
        self._thread.join()

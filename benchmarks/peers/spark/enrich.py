"""The enrichment join in plain Spark.

A static DataFrame that is joined with a stream is as it was when the query began, since its files are listed once. A
table that changes is therefore read again in `foreachBatch`: each batch sees the rows as of its end, and not each row
the table at its own time.
"""

from __future__ import annotations

import time
from pathlib import Path

import fresh
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Delays, Job
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

COLUMNS = "t long, k long, v long"


def _table(spark: SparkSession, job: Job) -> DataFrame:
    reader = spark.read.schema(COLUMNS).option("header", job.kind == "csv")
    return reader.format(job.kind).load(f"{job.data}/pieces/d")


def stored(spark: SparkSession, job: Job, place: Path) -> str:
    """The table as a user of Spark has it: in Parquet files; the changes are further files."""
    target = str(place / "table")
    _table(spark, job).write.parquet(target)
    return target


def _latest(changes: DataFrame) -> DataFrame:
    """The last row of each key."""
    newest = F.row_number().over(Window.partitionBy("k").orderBy(F.desc("t")))
    return changes.withColumn("n", newest).where("n = 1").select("k", F.col("v").alias("dv"))


def _joined(rows: DataFrame, table: DataFrame) -> DataFrame:
    return rows.join(table, "k").select("k", F.col("v").alias("av"), "dv")


def run_static(spark: SparkSession, rows: DataFrame, job: Job, place: Path) -> None:
    """Stream–static join."""
    table = spark.read.parquet(stored(spark, job, place)).select("k", F.col("v").alias("dv"))
    writer = _joined(rows, table).writeStream.outputMode("append").format("parquet").option("path", str(place / "out"))
    writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def run_changing(spark: SparkSession, rows: DataFrame, job: Job, place: Path) -> None:
    """The table is read again with every batch."""
    path = stored(spark, job, place)

    def join(batch: DataFrame, _: int) -> None:
        end = batch.agg(F.max(F.unix_micros("t"))).first()[0]
        if end is not None:
            table = _latest(spark.read.parquet(path).where(F.col("t") <= end))
            _joined(batch, table).write.mode("append").parquet(str(place / "out"))

    writer = rows.writeStream.foreachBatch(join).option("checkpointLocation", str(place / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def run_fresh(spark: SparkSession, job: Job) -> Delays:
    """A change is a further file of the table; it is visible when `foreachBatch` has a result with it."""
    place = job.out / "fresh"
    path = Path(stored(spark, job, place))

    def commit(key: int, value: int) -> None:
        row = pa.table({"t": [time.time_ns() // 1000], "k": [key], "v": [value]})
        pq.write_table(row, place / "unfinished")
        (place / "unfinished").rename(path / f"change-{value}.parquet")

    changes = fresh.Changes(commit)

    def join(batch: DataFrame, _: int) -> None:
        values = _joined(batch, _latest(spark.read.schema(COLUMNS).parquet(str(path)))).select("dv").distinct()
        changes.receive(row.dv for row in values.collect())

    rate = spark.readStream.format("rate").option("rowsPerSecond", job.rate).load()
    rows = rate.select((F.col("value") % fresh.KEYS).alias("k"), F.col("value").alias("v"))
    query = rows.writeStream.foreachBatch(join).option("checkpointLocation", str(place / "checkpoint")).start()
    found = changes.run(job.paced_seconds)
    query.stop()
    return found

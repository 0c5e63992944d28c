"""Spark alone: Structured Streaming with its own operators, with the settings that serve it best, two cores."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parents[1]))

import harness
from harness import Job
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from works import WINDOW_US

from strandline.spark.session import start as start_spark
from strandline.spark.settings import SPARK_ALONE

FILES_PER_BATCH = 2  # of eight: four batches, as strandline has
STATE = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NEAR = "{0}k = {1}k AND {0}t > {1}t - INTERVAL 10 SECONDS AND {1}t > {0}t - INTERVAL 10 SECONDS"
_spark: SparkSession | None = None

Reader = Callable[[str], DataFrame]


def start() -> Callable[[], None]:
    global _spark
    session = start_spark(master="local[2]", config={"spark.driver.memory": "4g", **SPARK_ALONE})
    session.wait_warm()
    _spark = session.spark
    _spark.conf.set("spark.sql.shuffle.partitions", "2")
    return session.stop


def version() -> str:
    return version_of("pyspark")


def _side(read: Reader, stream: str) -> DataFrame:
    return read(stream).select(*(F.col(name).alias(stream + name) for name in "tkv"))


def join(read: Reader) -> DataFrame:
    pairs = _side(read, "a").join(_side(read, "b"), F.expr(NEAR.format("a", "b")))
    return pairs.select(F.col("ak").alias("k"), "av", "bv")


def join3(read: Reader) -> DataFrame:
    pairs = _side(read, "a").join(_side(read, "b"), F.expr(NEAR.format("a", "b")))
    triples = pairs.join(_side(read, "c"), F.expr(f"{NEAR.format('a', 'c')} AND {NEAR.format('b', 'c')}"))
    return triples.select(F.col("ak").alias("k"), "av", "bv", "cv")


class LastWindow(StatefulProcessor):
    """Spark's SQL has no window that moves with every event; its Python state has. Per key: the rows of the last 10 s,
    and prefix sums over them and the new ones."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getListState("kept", "t long, v long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        new = pd.concat(rows).sort_values("t", kind="stable")
        old = np.array(list(self.kept.get()), dtype=np.int64).reshape(-1, 2)
        t = np.concatenate([old[:, 0], new["t"].to_numpy()])
        v = np.concatenate([old[:, 1], new["v"].to_numpy()])
        first = np.searchsorted(t, t - WINDOW_US, side="right")
        last = np.searchsorted(t, t, side="right")
        sums = np.concatenate([[0], np.cumsum(v)])
        alive = t > t[-1] - WINDOW_US
        self.kept.put([(int(a), int(b)) for a, b in zip(t[alive], v[alive], strict=True)])
        found = pd.DataFrame({"k": key[0], "t": t, "n": last - first, "s": sums[last] - sums[first]})
        yield found.iloc[len(old) :]

    def close(self) -> None:
        pass


def aggregate(read: Reader) -> DataFrame:
    source = read("a").select("k", F.unix_micros("t").alias("t"), "v")
    return source.groupBy("k").transformWithStateInPandas(
        LastWindow(), outputStructType="k long, t long, n long, s long", outputMode="Append", timeMode="None"
    )


def distinct(read: Reader) -> DataFrame:
    """A key is present from its first row to 10 s after the last one that follows in time: a session."""
    sessions = read("a").groupBy(F.session_window("t", "10 seconds").alias("w"), "k").count()
    return sessions.select("k", F.unix_micros("w.start").alias("t"), F.unix_micros("w.end").alias("u"))


def filter_(read: Reader) -> DataFrame:
    return read("a").where("v < 100000").select("k", (F.col("v") * 2).alias("w"))


def _reader(job: Job) -> Reader:
    assert _spark is not None

    def read(stream: str) -> DataFrame:
        source = _spark.readStream.schema("t long, k long, v long").option("maxFilesPerTrigger", FILES_PER_BATCH)
        source = source.option("header", job.kind == "csv")
        rows = source.format(job.kind).load(f"{job.data}/pieces/{stream}")
        return rows.withColumn("t", F.timestamp_micros("t")).withWatermark("t", "0 seconds")

    return read


def _runner(query: Callable[[Reader], DataFrame]) -> Callable[[Job, Path], None]:
    def run(job: Job, place: Path) -> None:
        assert _spark is not None
        _spark.conf.set(STATE, ROCKS if query is aggregate else HDFS)  # Python state works with RocksDB only
        writer = query(_reader(job)).writeStream.outputMode("append").format("parquet").option("path", str(place / "out"))
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    return run


def _paced(job: Job) -> list[float]:
    """Rows come from Spark's generator; a result counts when `foreachBatch` has it."""
    assert _spark is not None
    delays: list[np.ndarray] = []
    keys = 100_000 if job.work == "join" else 1_000

    def read(stream: str) -> DataFrame:
        rows = _spark.readStream.format("rate").option("rowsPerSecond", job.rate).option("numPartitions", 1).load()
        key = F.expr(f"pmod(hash(value + {ord(stream)}000000007), {keys})").cast("long")
        return rows.select(F.col("timestamp").alias("t"), key.alias("k"), F.col("value").alias("v")).withWatermark(
            "t", "0 seconds"
        )

    def heard(frame: DataFrame, _: int) -> None:
        at = frame.toArrow()["at"].to_numpy()
        delays.append(time.time() * 1e3 - at / 1e3)

    if job.work == "join":
        pairs = _side(read, "a").join(_side(read, "b"), F.expr(NEAR.format("a", "b")))
        wanted = pairs.select(F.unix_micros(F.greatest("at", "bt")).alias("at"))
    else:
        wanted = aggregate(read).select(F.col("t").alias("at"))
    _spark.conf.set(STATE, ROCKS if job.work == "aggregate" else HDFS)
    query = wanted.writeStream.foreachBatch(heard).option("checkpointLocation", str(job.out / "paced")).start()
    time.sleep(8)  # the first batches are slower
    delays.clear()
    time.sleep(job.paced_seconds)
    query.stop()
    return list(np.concatenate(delays)) if delays else []


QUERIES = {"join": join, "join3": join3, "aggregate": aggregate, "distinct": distinct, "filter": filter_}
RUNS = {name: _runner(query) for name, query in QUERIES.items()}
PACED = {"join": _paced, "aggregate": _paced}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

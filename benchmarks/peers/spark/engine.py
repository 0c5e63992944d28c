"""Spark alone: Structured Streaming with its own operators, with the settings that serve it best, two cores."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version as version_of
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parents[1]))

import enrich
import harness
import nexmark
from harness import Delays, Job
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from works import TABLES, WINDOW_US

from strandline.engines.spark.launcher.session import start as start_spark
from strandline.engines.spark.launcher.settings import SPARK_ALONE

FILES_PER_BATCH = 2  # of eight: four batches, as strandline has
TOLD_WHEN_OVER = ("distinct", "q5", "q7", "q8")  # the last windows end when a later row has come: one more file
STATE = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
NEAR = "{0}k = {1}k AND {0}t > {1}t - INTERVAL 10 SECONDS AND {1}t > {0}t - INTERVAL 10 SECONDS"
_spark: SparkSession | None = None

Reader = Callable[[str], DataFrame]


def start() -> Callable[[], None]:
    global _spark
    session = start_spark(master="local[2]", config={"spark.driver.memory": "4g", **SPARK_ALONE})
    session.wait_warm()
    _spark = session.spark
    _spark.conf.set("spark.sql.shuffle.partitions", "2")
    _spark.conf.set(STATE, HDFS)  # RocksDB is several times slower where the state fits into memory
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
    # A stream of Spark's has one event time; the other one goes on as a number.
    pairs = pairs.select("at", "ak", "av", "bv", F.unix_micros("bt").alias("bu"))
    near = f"{NEAR.format('a', 'c')} AND abs(bu - unix_micros(ct)) < {WINDOW_US}"
    triples = pairs.join(_side(read, "c"), F.expr(near))
    return triples.select(F.col("ak").alias("k"), "av", "bv", "cv")


def last_window(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """For each new row of a key: count and sum of the last 10 s. The state is the rows that later ones may meet."""
    new = pd.concat(frames).sort_values("t", kind="stable")
    kept_t, kept_v = (np.frombuffer(kept, dtype=np.int64) for kept in (state.get if state.exists else (b"", b"")))
    t = np.concatenate([kept_t, new["t"].to_numpy()])
    v = np.concatenate([kept_v, new["v"].to_numpy()])
    first, last = np.searchsorted(t, t - WINDOW_US, side="right"), np.searchsorted(t, t, side="right")
    sums = np.concatenate([[0], np.cumsum(v)])
    alive = t > t[-1] - WINDOW_US
    state.update((t[alive].tobytes(), v[alive].tobytes()))
    found = pd.DataFrame({"k": key[0], "t": t, "n": last - first, "s": sums[last] - sums[first]})
    yield found.iloc[len(kept_t) :]


def aggregate(read: Reader) -> DataFrame:
    """Spark's SQL has no window that moves with every event; its state per key in Python has."""
    source = read("a").select("k", F.unix_micros("t").alias("t"), "v")
    return source.groupBy("k").applyInPandasWithState(
        last_window,
        outputStructType="k long, t long, n long, s long",
        stateStructType="t binary, v binary",  # arrays in the state of a key do not work in Spark 4.3
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
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
        columns = ", ".join(f"{name} {kind.replace('VARCHAR', 'STRING')}" for name, kind in TABLES[stream].items())
        source = _spark.readStream.schema(columns).option("maxFilesPerTrigger", FILES_PER_BATCH)
        source = source.option("header", job.kind == "csv")
        layout = "closed" if job.work in TOLD_WHEN_OVER else "pieces"
        rows = source.format(job.kind).load(f"{job.data}/{layout}/{stream}")
        time = "t" if "t" in TABLES[stream] else "date_time"
        return rows.withColumn(time, F.timestamp_micros(time)).withWatermark(time, "0 seconds")

    return read


def _runner(query: Callable[[Reader], DataFrame]) -> Callable[[Job, Path], None]:
    def run(job: Job, place: Path) -> None:
        assert _spark is not None
        writer = (
            query(_reader(job)).writeStream.outputMode("append").format("parquet").option("path", str(place / "out"))
        )
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    return run


def _enrich(job: Job, place: Path) -> None:
    assert _spark is not None
    run = enrich.run_static if job.work == "enrich_static" else enrich.run_changing
    run(_spark, _reader(job)("a"), job, place)


def _fresh(job: Job) -> Delays:
    assert _spark is not None
    return enrich.run_fresh(_spark, job)


def _paced(job: Job) -> Delays:
    """Rows come from Spark's generator; a result counts when `foreachBatch` has it."""
    assert _spark is not None
    found: Delays = []
    keys = 100_000 if job.work == "join" else 1_000

    def read(stream: str) -> DataFrame:
        rows = _spark.readStream.format("rate").option("rowsPerSecond", job.rate).option("numPartitions", 1).load()
        key = F.expr(f"pmod(hash(value + {ord(stream)}000000007), {keys})").cast("long")
        return rows.select(F.col("timestamp").alias("t"), key.alias("k"), F.col("value").alias("v")).withWatermark(
            "t", "0 seconds"
        )

    def heard(frame: DataFrame, _: int) -> None:
        due = frame.toArrow()["at"].to_numpy() / 1e3
        found.extend(zip(due.tolist(), (time.time() * 1e3 - due).tolist(), strict=True))

    if job.work == "join":
        pairs = _side(read, "a").join(_side(read, "b"), F.expr(NEAR.format("a", "b")))
        wanted = pairs.select(F.unix_micros(F.greatest("at", "bt")).alias("at"))
    else:
        wanted = aggregate(read).select(F.col("t").alias("at"))
    query = wanted.writeStream.foreachBatch(heard).option("checkpointLocation", str(job.out / "paced")).start()
    time.sleep(job.paced_seconds)
    query.stop()
    return found


QUERIES = {"join": join, "join3": join3, "aggregate": aggregate, "distinct": distinct, "filter": filter_}
QUERIES |= nexmark.QUERIES
UNABLE = nexmark.UNABLE
RUNS = {name: _runner(query) for name, query in QUERIES.items()}
RUNS |= {"enrich": _enrich, "enrich_static": _enrich}
PACED = {"join": _paced, "aggregate": _paced, "enrich": _fresh}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

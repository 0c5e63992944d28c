"""Benchmarks: strandline and plain Spark on the same work, in one run, with the results compared.

Each side writes its results to Parquet files. Times leave out the start of the JVM and include the start of the plan.
The machine may be noisy: each side runs several times and its best run counts; only ratios are meaningful.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import strandline
from strandline.apps.bench.changes import report_changes, run_changes
from strandline.apps.bench.costs import report_costs, run_costs
from strandline.apps.bench.enrich import report_enrich, run_enrich
from strandline.apps.bench.forms import report_forms, run_forms
from strandline.apps.bench.fragment_burst import report_strategies, run_strategies
from strandline.apps.bench.generated_streams import START
from strandline.apps.bench.measure import Cost, Figures, measured
from strandline.apps.bench.nexmark import nexmark, report_nexmark
from strandline.apps.bench.operators import report_operators, run_operators
from strandline.apps.bench.orders import report_orders, run_orders
from strandline.apps.bench.over import report_over, run_over
from strandline.apps.bench.shared_join import report_shared_join, run_shared_join
from strandline.apps.bench.shedding import report_shedding, run_shedding
from strandline.apps.bench.tables import report_tables, run_tables
from strandline.apps.console import print_table
from strandline.connectors.sinks import Callback, Parquet
from strandline.core.errors import StrandlineError
from strandline.core.temporal import SECOND
from strandline.database.query import Query
from strandline.engines.spark.launcher.session import EmbeddedSpark, start
from strandline.engines.spark.launcher.settings import SPARK_ALONE

MEMORY = {"spark.driver.memory": "4g"}
SPARK_STATE = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


class Bench:
    """A directory for data, how often to run, and the two kinds of Spark session, one at a time.

    Our own session is set up for small batches of large values. Spark's operators process rows and need its compilers:
    runs of plain Spark have a session with the best settings for them.
    """

    def __init__(
        self,
        directory: Path,
        rows: int | None,
        repeat: int,
        console: Console,
        queries: Sequence[str] = (),
        held_out: bool = False,
        seconds: float | None = None,
    ) -> None:
        self.directory, self.rows, self.repeat, self.console = directory, rows, repeat, console
        self.queries = queries  # of a benchmark that has several: which ones, or all
        self.held_out = held_out  # of costs: the shapes that the model was not improved with
        self.seconds = seconds  # of enrich: how long each run is
        self._number = 0
        self._kind = ""
        self._session: EmbeddedSpark | None = None

    def session(self, kind: str) -> SparkSession:
        """The warm session of a kind, "ours" or "alone"."""
        if self._session is None or self._kind != kind:
            self.close()
            self._kind = kind
            self._session = start(master="local[2]", config=MEMORY if kind == "ours" else {**MEMORY, **SPARK_ALONE})
            self._session.wait_warm()
            self._warm_up()
        return self._session.spark

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _warm_up(self) -> None:
        """A small query first, so that class loading and worker start do not count."""
        directory = self.fresh("warm")
        data = stream(directory / "data", 9, 20_000, 10_000, 100, files=2)
        if self._kind == "ours":
            sql = "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 SECOND) GROUP BY k"
            self.strandline(declare("s", data), sql, directory, 10_000)
        else:
            windows = self.read_stream(data, 1).withWatermark("t", "0 seconds").groupBy(F.window("t", "1 second"), "k")
            self.spark_alone(windows.count(), directory)
        self.say(f"{'strandline' if self._kind == 'ours' else 'spark alone'} is warm")

    def say(self, text: str) -> None:
        self.console.print(f"  {text}", markup=False, highlight=False)

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those of the queries of a benchmark that were asked for; all of them by default."""
        return [name for name in names if not self.queries or name in self.queries]

    def fresh(self, name: str) -> Path:
        """A new directory for one run."""
        self._number += 1
        return self.directory / f"{name}-{self._number}"

    def best(self, what: str, rows: int, run: Callable[[Path], Cost]) -> tuple[Figures, Path]:
        """The best of several runs, and where its results are."""
        runs: list[tuple[Cost, Path]] = []
        for _ in range(self.repeat):
            directory = self.fresh(what.split()[0])
            cost = run(directory)
            self.say(f"{what}: {rows / cost.seconds:,.0f} rows/s ({cost.seconds:.1f} s, {cost.cpu_seconds:.1f} CPU s)")
            runs.append((cost, directory))
        cost, directory = min(runs, key=lambda r: r[0].seconds)
        return {"what": what, "rows_per_s": round(rows / cost.seconds), **_rounded(asdict(cost))}, directory

    def strandline(
        self,
        streams: str,
        sql: str,
        directory: Path,
        batch_rows: int,
        look: Callable[[Query], object] = lambda query: None,
    ) -> Cost:
        """Run a query of ours over files to its end; `look` is called with it now and then."""
        spark = self.session("ours")
        with measured() as cost:
            database = strandline.connect(spark=spark, batch_rows=batch_rows, checkpoint=directory / "checkpoint")
            database.sql(streams)
            query: Query = database.sql(sql, sink=Parquet(directory / "out"), name="q")
            while not query.await_end(0.2):
                look(query)
        return cost

    def spark_alone(self, frame: DataFrame, directory: Path) -> Cost:
        """Run a streaming DataFrame over files to its end."""
        with measured() as cost:
            writer = frame.writeStream.outputMode("append").format("parquet").option("path", str(directory / "out"))
            writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
            writer.start().awaitTermination()
        return cost

    def best_spark(
        self, rows: int, files: Mapping[str, int], build: Callable[[int], DataFrame]
    ) -> tuple[Figures, Path, list[Figures]]:
        """Plain Spark with several numbers of files per batch: the best, where its results are, and all of them."""
        runs: list[tuple[Figures, Path]] = []
        for label, files_per_batch in files.items():

            def run(directory: Path, files_per_batch: int = files_per_batch) -> Cost:
                with self.settings(SPARK_STATE):
                    return self.spark_alone(build(files_per_batch), directory)

            runs.append(self.best(f"spark ({label})", rows, run))
        best, directory = max(runs, key=lambda run: run[0]["rows_per_s"])
        return best, directory, [figures for figures, _ in runs]

    def read_stream(self, directory: Path, files_per_batch: int) -> DataFrame:
        schema = "t timestamp, k long, v double"
        source = self.session("alone").readStream.schema(schema)
        return source.option("maxFilesPerTrigger", files_per_batch).parquet(str(directory))

    @contextmanager
    def settings(self, values: dict[str, str]) -> Iterator[None]:
        conf = self.session("alone").conf
        before = {name: conf.get(name, None) for name in values}
        for name, value in values.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    conf.unset(name)
                else:
                    conf.set(name, old)


def stream(directory: Path, seed: int, rows: int, rows_per_second: int, keys: int, files: int = 10) -> Path:
    """A stream as Parquet files: time t, key k, value v; in order of time."""
    directory.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    time = START + np.arange(rows, dtype=np.int64) * (SECOND // rows_per_second)
    table = pa.table(
        {
            "t": pa.array(time).cast(pa.timestamp("us", tz="UTC")),
            "k": draw.integers(0, keys, rows),
            "v": draw.random(rows),
        }
    )
    for number in range(files):
        first, last = rows * number // files, rows * (number + 1) // files
        pq.write_table(table.slice(first, last - first), directory / f"{number:03d}.parquet")
    return directory


def declare(name: str, directory: Path) -> str:
    """The statement that declares such a stream."""
    return f"CREATE STREAM {name} (t TIMESTAMP, k BIGINT, v DOUBLE) SOURCE file('{directory}/*.parquet') ORDERED BY t;"


def results(directory: Path) -> pl.DataFrame:
    return pl.read_parquet(str(directory / "out" / "*.parquet"))


def _same_rows(ours: Path, theirs: Path, columns: list[str]) -> bool:
    one, two = (results(directory).select(columns).sort(columns) for directory in (ours, theirs))
    return one.equals(two)


def join(bench: Bench) -> Figures:
    """Two streams, equal keys, 10 s windows, against Spark's stream–stream join."""
    rows = bench.rows or 2_000_000
    a = stream(bench.directory / "join-a", 1, rows, 100_000, rows // 2)
    b = stream(bench.directory / "join-b", 2, rows, 100_000, rows // 2)
    declared, sql = declare("a", a) + declare("b", b), _join_over(10)
    ours, our_place = bench.best("strandline", 2 * rows, lambda p: bench.strandline(declared, sql, p, rows // 2))

    def build(files: int) -> DataFrame:
        left, right = (
            bench.read_stream(d, files).withWatermark("t", "0 seconds").select(*(F.col(c).alias(s + c) for c in "tkv"))
            for d, s in ((a, "a"), (b, "b"))
        )
        near = F.expr("ak = bk AND at > bt - INTERVAL 10 SECONDS AND bt > at - INTERVAL 10 SECONDS")
        return left.join(right, near).select(F.col("ak").alias("k"), "av", "bv")

    batches = {"one batch, HDFS-backed state": 10, "four batches, HDFS-backed state": 3}
    spark, spark_place, others = bench.best_spark(2 * rows, batches, build)
    same = _same_rows(our_place, spark_place, ["k", "av", "bv"])
    return _compared("join", 2 * rows, ours, spark, same, {"other spark runs": others})


def _join_over(seconds: int) -> str:
    window = f"WINDOW(RANGE {seconds} SECONDS)"
    return f"SELECT a.k AS k, a.v AS av, b.v AS bv FROM a {window}, b {window} WHERE a.k = b.k"


def aggregate(bench: Bench) -> Figures:
    """COUNT, AVG and MAX per key over the last 10 s at every event, against Spark's hopping window 10 s / 1 s."""
    rows = bench.rows or 4_000_000
    directory = stream(bench.directory / "aggregate", 3, rows, 100_000, 1_000)
    declared = declare("s", directory)

    def ask(window: str) -> tuple[Figures, Path]:
        sql = f"SELECT k, COUNT(*) AS n, AVG(v) AS a, MAX(v) AS m FROM s WINDOW({window}) GROUP BY k"
        return bench.best(f"strandline ({window.lower()})", rows, lambda p: bench.strandline(declared, sql, p, rows))

    def build(files: int) -> DataFrame:
        source = bench.read_stream(directory, files).withWatermark("t", "0 seconds")
        hopping = source.groupBy(F.window("t", "10 seconds", "1 second"), "k")
        return hopping.agg(F.count("*").alias("n"), F.avg("v").alias("a"), F.max("v").alias("m"))

    ours, our_place = ask("RANGE 10 SECONDS")
    slides = [ask(f"RANGE 10 SECONDS SLIDE {slide}")[0] for slide in ("1 SECOND", "10 SECONDS")]
    spark, spark_place, others = bench.best_spark(rows, {"one batch": 10, "four batches": 3}, build)
    our_results, spark_results = results(our_place), results(spark_place)
    ours["results"], spark["results"] = our_results.height, spark_results.height
    same = _same_windows(our_results, spark_results)
    return _compared("aggregate", rows, ours, spark, same, {"with SLIDE": slides, "other spark runs": others})


def _same_windows(ours: pl.DataFrame, theirs: pl.DataFrame) -> bool:
    """Spark's window that ends at e is our result at the last instant before e."""
    theirs = theirs.select(pl.col("window").struct.field("end").dt.epoch("us").alias("end"), "k", "n", "a", "m")
    start, end = (ours.get_column(c).dt.epoch("us") for c in ("valid_from", "valid_until"))
    for at in sorted(theirs.get_column("end").unique())[:-1:7]:
        valid = ours.filter((start < at) & (end >= at)).select("k", "n", "a", "m").sort("k")
        expected = theirs.filter(pl.col("end") == at).drop("end").sort("k")
        if valid.height != expected.height or not valid.select("k", "n", "m").equals(expected.select("k", "n", "m")):
            return False
        if not np.allclose(valid["a"].to_numpy(), expected["a"].to_numpy(), rtol=1e-12):
            return False
    return theirs.height > 0


def filter_(bench: Bench) -> Figures:
    """One predicate and a projection."""
    rows = bench.rows or 4_000_000
    directory = stream(bench.directory / "filter", 4, rows, 100_000, 1_000)
    sql = "SELECT k, v * 2 AS w FROM s WHERE v < 0.1"
    declared = declare("s", directory)
    ours, our_place = bench.best("strandline", rows, lambda p: bench.strandline(declared, sql, p, rows))

    def build(files: int) -> DataFrame:
        return bench.read_stream(directory, files).where("v < 0.1").select("k", (F.col("v") * 2).alias("w"))

    spark, spark_place, others = bench.best_spark(rows, {"one batch": 10, "two batches": 5}, build)
    same = _same_rows(our_place, spark_place, ["k", "w"])
    return _compared("filter", rows, ours, spark, same, {"other spark runs": others})


def latency(bench: Bench) -> Figures:
    """From event to visible result: two paced streams of 10 k rows/s each, joined over 10 s."""
    seconds, rate = 20, 10_000
    total = bench.rows or seconds * rate
    streams = "".join(
        f"CREATE STREAM {name} (value BIGINT, key BIGINT, ts TIMESTAMP) SOURCE rate("
        f"rows_per_second => {rate}, total => {total}, keys => 100000, seed => {seed}) ORDERED BY ts;"
        for name, seed in (("a", 1), ("b", 2))
    )
    sql = """SELECT a.key AS key, a.value AS one, b.value AS two
               FROM a WINDOW(RANGE 10 SECONDS), b WINDOW(RANGE 10 SECONDS) WHERE a.key = b.key"""
    delays: list[np.ndarray[Any, Any]] = []

    def record_delays(batch: int, table: pa.Table) -> None:
        now = time.time() * SECOND
        delays.append(now - table["valid_from"].cast(pa.int64()).to_numpy())

    # The first batches of a session are slower; users of a running system do not see those.
    spark_session = bench.session("ours")
    for measuring in (False, True):
        delays.clear()
        with measured() as cost:
            database = strandline.connect(spark=spark_session, checkpoint=bench.fresh("latency"))
            database.sql(
                streams if measuring else streams.replace(f"total => {total}", f"total => {min(total, 3 * rate)}")
            )
            query: Query = database.sql(sql, sink=Callback(record_delays), name="q")
            query.await_end()
    ours = _delays("strandline", np.concatenate(delays), cost)
    batches = [d["triggerExecution"] for d in query.batch_durations()]
    ours["batches"], ours["batch_p50_ms"] = len(batches), statistics.median(batches) if batches else None
    bench.say(f"strandline: p50 {ours['p50_ms']} ms, p99 {ours['p99_ms']} ms, a batch {ours['batch_p50_ms']} ms")
    spark = _spark_latency(bench, total, rate)
    ratio = round(spark["p50_ms"] / ours["p50_ms"], 2)
    return {"bench": "latency", "strandline": ours, "spark": spark, "ratio_p50": ratio, "same_answer": None}


def _spark_latency(bench: Bench, total: int, rate: int) -> Figures:
    spark = bench.session("alone")
    delays: list[np.ndarray[Any, Any]] = []
    seen = threading.Event()

    def record_delays(frame: DataFrame, _: int) -> None:
        column = frame.select(F.unix_micros(F.greatest("ts", "us")).alias("at")).toArrow()["at"].to_numpy()
        if len(column):
            delays.append(time.time() * SECOND - column)
            seen.set()

    def side(seed: int, time_name: str, key: str) -> DataFrame:
        source = spark.readStream.format("rate")
        source = source.option("rowsPerSecond", rate).option("numPartitions", 1)
        keyed = source.load().select(
            F.col("timestamp").alias(time_name), F.expr(f"pmod(hash(value + {seed}000000007), 100000)").alias(key)
        )
        return keyed.withWatermark(time_name, "0 seconds")

    near = F.expr("k = j AND ts > us - INTERVAL 10 SECONDS AND us > ts - INTERVAL 10 SECONDS")
    joined = side(1, "ts", "k").join(side(2, "us", "j"), near)
    with bench.settings({"spark.sql.shuffle.partitions": "2"}), measured() as cost:
        checkpoint = str(bench.fresh("spark-latency"))
        query = joined.writeStream.foreachBatch(record_delays).option("checkpointLocation", checkpoint).start()
        seen.wait(120)
        delays.clear()
        time.sleep(max(total / rate, 1))
        query.stop()
    return _delays("spark", np.concatenate(delays) if delays else np.array([np.nan]), cost)


def _delays(what: str, delays: np.ndarray[Any, Any], cost: Cost) -> Figures:
    p50, p99 = (round(float(np.percentile(delays, p)) / 1000, 1) for p in (50, 99))
    return {"what": what, "results": len(delays), "p50_ms": p50, "p99_ms": p99, **_rounded(asdict(cost))}


def growth(bench: Bench) -> Figures:
    """Join throughput as windows, and with them the state, grow; about one match per row throughout."""
    return {"bench": "growth", "strandline": [_grown(bench, s) for s in (1, 10, 60)], "same_answer": None}


def _grown(bench: Bench, seconds: int) -> Figures:
    rows = bench.rows or max(2_000_000, 100_000 * (seconds + 20))
    keys = max(100_000 * seconds, 1)
    a = stream(bench.directory / f"growth-a-{seconds}", 5, rows, 100_000, keys, files=20)
    b = stream(bench.directory / f"growth-b-{seconds}", 6, rows, 100_000, keys, files=20)
    declared, sql = declare("a", a) + declare("b", b), _join_over(seconds)
    states: list[int] = []

    def run(directory: Path) -> Cost:
        return bench.strandline(declared, sql, directory, 500_000, lambda q: states.append(q.metrics()["state_rows"]))

    figures, directory = bench.best(f"strandline ({seconds} s windows)", 2 * rows, run)
    matches = results(directory).height
    figures |= {"window_s": seconds, "state_rows": max(states, default=0), "matches": matches}
    return figures | {"us_per_row": round(figures["seconds"] * 1e6 / (2 * rows), 3)}


def _compared(name: str, rows: int, ours: Figures, theirs: Figures, same: bool, more: Figures) -> Figures:
    return {
        "bench": name,
        "date": datetime.now().isoformat(timespec="seconds"),
        "rows": rows,
        "strandline": ours,
        "spark": theirs,
        "ratio": round(ours["rows_per_s"] / theirs["rows_per_s"], 2),
        "same_answer": same,
        **more,
    }


def _rounded(figures: Figures) -> Figures:
    return {name: round(value, 2) for name, value in figures.items()}


def report_sides(figures: Figures, console: Console) -> None:
    """A line for each run, of ours and of plain Spark."""
    sides = figures["strandline"] if isinstance(figures["strandline"], list) else [figures["strandline"]]
    sides = sides + figures.get("with SLIDE", [])
    sides += [figures["spark"]] if "spark" in figures else []
    keys = list(dict.fromkeys(key for side in sides for key in side))
    rows = [[_cell(side.get(key)) for key in keys] for side in sides]
    print_table(console, figures["bench"], [key.replace("_", " ") for key in keys], rows, left=("what",))
    if "ratio" in figures:
        console.print(f"strandline / spark: {figures['ratio']} times; same result: {figures['same_answer']}")
    if "ratio_p50" in figures:
        console.print(f"p50 of spark / p50 of strandline: {figures['ratio_p50']}")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)


BENCHES: dict[str, tuple[Callable[[Bench], Figures], Callable[[Figures, Console], None]]] = {
    "join": (join, report_sides),
    "aggregate": (aggregate, report_sides),
    "filter": (filter_, report_sides),
    "latency": (latency, report_sides),
    "growth": (growth, report_sides),
    "operators": (run_operators, report_operators),
    "changes": (run_changes, report_changes),
    "forms": (run_forms, report_forms),
    "costs": (run_costs, report_costs),
    "orders": (run_orders, report_orders),
    "shedding": (run_shedding, report_shedding),
    "nexmark": (nexmark, report_nexmark),
    "tables": (run_tables, report_tables),
    "enrich": (run_enrich, report_enrich),
    "over": (run_over, report_over),
    "shared-join": (run_shared_join, report_shared_join),
    "strategies": (run_strategies, report_strategies),
}


def run_bench(
    name: str,
    rows: int | None,
    repeat: int,
    console: Console,
    queries: Sequence[str] = (),
    held_out: bool = False,
    seconds: float | None = None,
) -> list[Figures]:
    if name != "all" and name not in BENCHES:
        raise StrandlineError(
            f'unknown benchmark "{name}"', code="usage", hint=f"Benchmarks are {', '.join(BENCHES)}, and all."
        )
    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    bench = Bench(directory, rows, repeat, console, queries, held_out, seconds)
    try:
        measurements = []
        for item in BENCHES if name == "all" else [name]:
            run, _ = BENCHES[item]
            console.print(f"{item}: {run.__doc__}", markup=False, highlight=False)
            measurements.append(run(bench))
        return measurements
    finally:
        bench.close()
        shutil.rmtree(directory, ignore_errors=True)


def report(measurements: list[Figures], console: Console) -> None:
    for figures in measurements:
        _, show = BENCHES[figures["bench"]]
        show(figures, console)

"""One run of the enrichment join in a process of its own, so that it can be killed and its memory is its own.

    python -m strandline.apps.bench.enrich_run job.json

The table `dim` has a key, a value that the query reads, and a text that it does not read. While the query runs, rows of
random keys are replaced, a thousand per second. The figures are in `job.out` when the measurement has ended; the query
then goes on until the process is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

import strandline
from strandline.apps.bench.measure import Figures
from strandline.connectors.sinks import Callback
from strandline.database.database import Database
from strandline.database.query import Query

CALL_ROWS: Final = 1_000_000
STREAM_ROWS_PER_SECOND: Final = 300_000  # of stream time; the rows come as fast as they are taken
WINDOW_ROWS: Final = 100_000
UPDATES_PER_SECOND: Final = 1_000
UPDATES_PER_CALL: Final = 100
FRESH_ROWS_PER_SECOND: Final = 10_000  # of a stream by the clock, as in the benchmark of latency
FRESH_KEYS: Final = 100  # each comes every 10 ms, so that what is measured is not the wait for a row
THREADS: Final = 8
KINDS: Final = {"lookup": "NON RETROACTIVE", "retroactive": "RETROACTIVE"}


@dataclass(frozen=True, slots=True)
class EnrichJob:
    """What to run, over which checkpoint, and where the figures go."""

    mode: str  # "throughput", "restart", "freshness" or "upserts"
    kind: str
    rows: int
    seconds: float
    checkpoint: str
    out: str
    engine: str = "spark"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def report(self, figures: Figures) -> None:
        """Write the figures at once as a whole: the reader waits for the file."""
        unfinished = Path(self.out).with_suffix(".unfinished")
        unfinished.write_text(json.dumps(figures))
        unfinished.rename(self.out)

    def read_figures(self) -> Figures:
        figures: Figures = json.loads(Path(self.out).read_text())
        return figures


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a query after a batch, and when they were read."""

    at: float
    rows: int
    cpu_seconds: float
    batches: int


def make_rows(keys: np.ndarray[Any, np.dtype[np.int64]], version: int) -> pl.DataFrame:
    """Rows of the table for some keys. The value is below 1 and differs from version to version."""
    key = pl.Series("k", keys)
    value = (key * 7_919 + version * 104_729) % 1_000_003 / 1_000_003
    return pl.select(
        key, value.alias("v"), pl.lit(version, pl.Int64).alias("version"), pl.format("name {}", key).alias("name")
    )


def open_database(job: EnrichJob) -> Database:
    if job.engine == "local":
        return strandline.connect(engine="local", checkpoint=job.checkpoint)
    return strandline.connect(checkpoint=job.checkpoint, master="local[2]", config={"spark.driver.memory": "4g"})


def fill_table(database: Database, job: EnrichJob) -> float:
    """Declare the table and insert what is missing of its rows: the seconds that this took."""
    began = time.perf_counter()
    database.sql(
        "CREATE TABLE IF NOT EXISTS dim (k BIGINT PRIMARY KEY, v DOUBLE, version BIGINT, name VARCHAR) "
        + KINDS[job.kind]
    )
    for begin in range(len(database.table("dim")), job.rows, CALL_ROWS):
        database.table("dim").insert(make_rows(np.arange(begin, min(job.rows, begin + CALL_ROWS)), 0))
    return time.perf_counter() - began


def start_query(database: Database, job: EnrichJob, receive: Callable[[pa.Table], None]) -> Query:
    """The join as fast as rows are taken; about one row in 800 is in the result.

    The condition has columns of both sides, so that no filter is left to do before the join.
    """
    database.sql(
        f"CREATE STREAM s (key BIGINT, random DOUBLE, ts TIMESTAMP) SOURCE rate(rows_per_second => "
        f"{STREAM_ROWS_PER_SECOND}, keys => {job.rows}, pace => false) ORDERED BY ts"
    )
    sql = f"SELECT s.key, d.v FROM s {window(job)} JOIN dim d ON s.key = d.k"
    return _start(database, f"{sql} WHERE s.random + d.v < 0.05", receive)


def start_fresh_query(database: Database, job: EnrichJob, receive: Callable[[pa.Table], None]) -> Query:
    """The join with a stream by the clock that reads few keys of the table often."""
    database.sql(
        f"CREATE STREAM s (key BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => {FRESH_ROWS_PER_SECOND}, "
        f"keys => {min(FRESH_KEYS, job.rows)}) ORDERED BY ts"
    )
    sql = f"SELECT s.key, d.version FROM s {window(job)} JOIN dim d ON s.key = d.k"
    return _start(database, sql, receive)


def _start(database: Database, sql: str, receive: Callable[[pa.Table], None]) -> Query:
    query: Query = database.sql(sql, sink=Callback(lambda _, table: receive(table)), name="enriched")
    return query


def window(job: EnrichJob) -> str:
    """A look-up has no window; a change of a retroactive table concerns the rows in one."""
    milliseconds = WINDOW_ROWS * 1000 // STREAM_ROWS_PER_SECOND
    return f"WINDOW(RANGE {milliseconds} MILLISECONDS)" if job.kind == "retroactive" else ""


class Updates:
    """Replacements of random rows by the clock, from a thread of their own."""

    def __init__(self, database: Database, rows: int) -> None:
        self.table, self.rows, self.count = database.table("dim"), rows, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        draw = np.random.default_rng(1)
        began = time.monotonic()
        while not self._stop.is_set():
            keys = np.unique(draw.integers(0, self.rows, UPDATES_PER_CALL))
            self.table.upsert(make_rows(keys, 1 + self.count))
            self.count += UPDATES_PER_CALL
            self._stop.wait(max(began + self.count / UPDATES_PER_SECOND - time.monotonic(), 0))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def read_counters(query: Query) -> Reading:
    metrics = query.metrics()
    return Reading(time.time(), metrics["rows_in"].get("s", 0), metrics["cpu_seconds"], metrics["batches"])


def measure_throughput(job: EnrichJob) -> None:
    """Rows per second, time of the first result, and state, while the table changes."""
    database = open_database(job)
    load_seconds = fill_table(database, job)
    first = threading.Event()
    began = time.time()
    query = start_query(database, job, lambda table: first.set() if table.num_rows else None)
    _await(first, query)
    first_at = time.time()
    updates = Updates(database, job.rows)
    readings = [read_counters(query)]
    loaded_rows, loaded_bytes = _join_state(query)
    while time.time() < first_at + job.seconds or len(readings) < 3:
        query.check()
        time.sleep(0.05)
        reading = read_counters(query)
        if reading.batches > readings[-1].batches:
            readings.append(reading)
    begin, end = readings[0], readings[-1]
    rows = max(end.rows - begin.rows, 1)
    kept_rows, kept_bytes = _join_state(query)
    live_rows = job.rows + (WINDOW_ROWS if job.kind == "retroactive" else 0)
    job.report(
        {
            "load_s": round(load_seconds, 1),
            "first_result_s": round(first_at - began, 1),
            "rows_per_s": round(rows / (end.at - begin.at)),
            "updates_per_s": round(updates.count / (time.time() - first_at)),
            "us_per_row": round((end.cpu_seconds - begin.cpu_seconds) * 1e6 / rows, 3),
            "batches": end.batches - begin.batches,
            "join_rows": kept_rows,
            "beyond_table_rows": kept_rows - job.rows,
            "join_bytes": kept_bytes,
            "state_per_live": round(kept_bytes / (loaded_bytes / loaded_rows * live_rows), 3),
            "bytes_per_row": round(kept_bytes / kept_rows, 1),
            "first_at": first_at,
            "end_at": time.time(),
        }
    )
    _await_kill(query)


def _join_state(query: Query) -> tuple[int, int]:
    """Rows and bytes that the join keeps: the table, and the window of the stream; without the reorder buffers."""
    joins = [operator for operator in query.statistics().operators if operator.kind.endswith("Join")]
    return sum(join.state_rows for join in joins), sum(join.state_bytes for join in joins)


def measure_restart(job: EnrichJob) -> None:
    """The first result of a process that continues after another was killed."""
    database = open_database(job)
    fill_table(database, job)
    first = threading.Event()
    query = start_query(database, job, lambda table: first.set() if table.num_rows else None)
    _await(first, query)
    job.report({"first_at": time.time()})
    _await_kill(query)


def measure_freshness(job: EnrichJob) -> None:
    """From the return of a statement to the first result that has its value; then upserts without a query."""
    database = open_database(job)
    fill_table(database, job)
    seen: dict[int, float] = {}

    def receive(table: pa.Table) -> None:
        now = time.time()
        for version in table["version"].unique().to_pylist():
            seen.setdefault(version, now)

    query = start_fresh_query(database, job, receive)
    while not seen:
        query.check()
        time.sleep(0.05)
    time.sleep(min(job.seconds / 2, 5))  # the first batches of a session are slower
    committed = _commit_versions(database, job, query)
    time.sleep(2)
    query.stop()
    delays = [max(seen[version] - at, 0) * 1000 for version, at in committed.items() if version in seen]
    figures: Figures = {"committed": len(committed), "visible": len(delays)}
    figures |= {f"p{p}_ms": round(float(np.percentile(delays, p)), 1) for p in (50, 99)} if delays else {}
    job.report(figures)
    database.close()


def _commit_versions(database: Database, job: EnrichJob, query: Query) -> dict[int, float]:
    """Single-row upserts of the keys that the stream reads, one after the other: when each had returned."""
    committed: dict[int, float] = {}
    end = time.time() + job.seconds
    while time.time() < end:
        query.check()
        version = len(committed) + 1
        database.table("dim").upsert(make_rows(np.array([version % min(FRESH_KEYS, job.rows)]), version))
        committed[version] = time.time()
        time.sleep(0.037)  # not a divisor of the time of a batch
    return committed


def measure_upserts(job: EnrichJob) -> None:
    """Single-row upserts per second from several threads: as SQL text, and as calls of Python."""
    with open_database(job) as database:
        fill_table(database, job)
        keys = np.random.default_rng(2).integers(0, job.rows, 4096)
        table = database.table("dim")
        frames = [make_rows(keys[number : number + 1], 1) for number in range(len(keys))]
        texts = [
            f"INSERT INTO dim VALUES ({key}, 0.5, 1, 'name {key}') ON CONFLICT (k) DO UPDATE SET v = excluded.v, "
            "version = excluded.version, name = excluded.name"
            for key in keys
        ]
        job.report(
            {
                "by_sql": round(_per_second(lambda n: database.sql(texts[n % len(texts)]), job.seconds)),
                "by_call": round(_per_second(lambda n: table.upsert(frames[n % len(frames)]), job.seconds)),
            }
        )


def _per_second(work: Callable[[int], object], seconds: float) -> float:
    counts = [0] * THREADS
    began = time.perf_counter()

    def repeat(thread: int) -> None:
        while time.perf_counter() < began + seconds:
            work(counts[thread] * THREADS + thread)
            counts[thread] += 1

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def _await(first: threading.Event, query: Query) -> None:
    while not first.wait(0.01):
        query.check()


def _await_kill(query: Query) -> None:
    """Go on until the process is killed, or its parent has ended."""
    parent = os.getppid()
    while os.getppid() == parent:
        query.check()
        time.sleep(0.2)


MODES: Final = {
    "throughput": measure_throughput,
    "restart": measure_restart,
    "freshness": measure_freshness,
    "upserts": measure_upserts,
}


def main() -> None:
    job = EnrichJob(**json.loads(Path(sys.argv[1]).read_text()))
    MODES[job.mode](job)


if __name__ == "__main__":
    main()

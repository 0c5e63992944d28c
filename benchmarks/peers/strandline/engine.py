"""strandline on Spark, two cores; results in Parquet files."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from importlib.metadata import version as version_of
from pathlib import Path

import polars as pl
import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parents[1]))

import fresh
import harness
from harness import Delays, Job
from works import NEXMARK, TABLES, WORKS
from works import WINDOW_US as W

import strandline as sl
from strandline.connectors.sinks import Callback, Parquet
from strandline.engines.spark.launcher.session import EmbeddedSpark
from strandline.engines.spark.launcher.session import start as start_spark

BATCHES = 4
TABLE_BATCH_ROWS = 1_000_000  # what users have: a table is loaded in batches of the size of a stream's
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "nexmark"
_session: EmbeddedSpark | None = None

QUERIES = {
    "join": """SELECT a.k AS k, a.v AS av, b.v AS bv
                 FROM a WINDOW(RANGE 10 SECONDS), b WINDOW(RANGE 10 SECONDS) WHERE a.k = b.k""",
    "join3": """SELECT a.k AS k, a.v AS av, b.v AS bv, c.v AS cv
                  FROM a WINDOW(RANGE 10 SECONDS), b WINDOW(RANGE 10 SECONDS), c WINDOW(RANGE 10 SECONDS)
                 WHERE a.k = b.k AND b.k = c.k""",
    "aggregate": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k",
    "over": f"""SELECT k, t,
                       AVG(v) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN {W} PRECEDING AND CURRENT ROW) AS average,
                       LAG(t) OVER (PARTITION BY k ORDER BY t) AS earlier
                  FROM a""",
    "distinct": "SELECT DISTINCT k FROM a WINDOW(RANGE 10 SECONDS)",
    "filter": "SELECT k, v * 2 AS w FROM a WHERE v < 100000",
    "enrich": "SELECT a.k AS k, a.v AS av, d.v AS dv FROM a JOIN d ON a.k = d.k",
    "enrich_static": "SELECT a.k AS k, a.v AS av, d.v AS dv FROM a JOIN d ON a.k = d.k",
}


def start() -> Callable[[], None]:
    global _session
    _session = start_spark(master="local[2]", config={"spark.driver.memory": "4g"})
    _session.wait_warm()
    return _session.stop


def version() -> str:
    return f"{version_of('strandline')}, PySpark {version_of('pyspark')}"


def _run(job: Job, place: Path) -> None:
    assert _session is not None
    work = WORKS[job.work]
    batch_rows = job.rows // (1 if work.nexmark else len(work.streams)) // BATCHES  # bids are nearly all of NEXMark
    if work.table:
        batch_rows = TABLE_BATCH_ROWS
    database = sl.connect(spark=_session.spark, batch_rows=max(batch_rows, 1), checkpoint=place / "checkpoint")
    *before, query = _nexmark(job) if work.nexmark else [*_declared(job), QUERIES[job.work]]
    for statement in before:
        database.sql(statement)
    if work.table:
        _fill(database, job)
    database.sql(query, sink=Parquet(place / "out"), name="q").await_end()


def _fill(database: sl.Database, job: Job, changing: bool = True) -> None:
    """The table as statements change it: its rows first, then a statement for each instant of the changes."""
    kind = "CONSTANT" if job.work == "enrich_static" else "NON RETROACTIVE"
    database.sql(f"CREATE TABLE d (k BIGINT PRIMARY KEY, v BIGINT) {kind}")
    read = pl.read_csv if job.kind == "csv" else pl.read_parquet
    changes = pl.concat(read(path) for path in job.files("pieces", "d"))
    first = changes["t"].min()
    table = database.table("d")
    table.insert(changes.filter(pl.col("t") == first).select("k", "v"), at=first)
    later = changes.filter(pl.col("t") > first if changing else False)
    for (at,), rows in later.group_by("t", maintain_order=True):
        table.upsert(rows.select("k", "v"), at=at)


def _declared(job: Job) -> list[str]:
    return [f"CREATE STREAM {name} {_files(job, name)} ORDERED BY t" for name in WORKS[job.work].streams]


def _files(job: Job, stream: str) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in TABLES[stream].items())
    return f"({columns}) SOURCE file('{job.data}/pieces/{stream}/*.{job.kind}')"


def _nexmark(job: Job) -> list[str]:
    """The statements of our example, over the files instead of the generator."""
    text = re.sub(r"--.*", "", (EXAMPLES / f"{job.work}.sql").read_text())
    text = re.sub(r"(CREATE STREAM (\w+)) SOURCE nexmark\([^)]*\)", lambda m: f"{m[1]} {_files(job, m[2])}", text)
    text = re.sub(r"(\.\w+'\))\s*;", r"\1 ORDERED BY date_time;", text)
    return [statement for statement in map(str.strip, text.split(";")) if statement]


def _paced(job: Job) -> Delays:
    """Rows come from the generator as their time comes; a result counts when the user's function has it."""
    assert _session is not None
    query = QUERIES[job.work].replace(".k", ".key").replace(".v", ".value").replace("SELECT k", "SELECT key")
    query = query.replace("SUM(v)", "SUM(value)").replace("GROUP BY k", "GROUP BY key")
    keys = 100_000 if job.work == "join" else 1_000
    found: Delays = []

    def heard(_: int, table: pa.Table) -> None:
        now = time.time() * 1e3
        due = table["valid_from"].cast(pa.int64()).to_numpy() / 1e3
        found.extend(zip(due.tolist(), (now - due).tolist(), strict=True))

    database = sl.connect(spark=_session.spark, checkpoint=job.out / "paced")
    for seed, name in enumerate(WORKS[job.work].streams):
        database.sql(
            f"CREATE STREAM {name} (value BIGINT, key BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => {job.rate}, "
            f"total => {job.rate * job.paced_seconds}, keys => {keys}, seed => {seed}) ORDERED BY ts"
        )
    database.sql(query, sink=Callback(heard), name="q").await_end()
    return found


def _fresh(job: Job) -> Delays:
    """A change counts as committed when the call has returned, as visible when the user's function has a result."""
    assert _session is not None
    database = sl.connect(spark=_session.spark, checkpoint=job.out / "paced")
    _fill(database, job, changing=False)
    table = database.table("d")
    changes = fresh.Changes(lambda key, value: table.upsert([(key, value)]) and None)
    database.sql(
        f"CREATE STREAM a (key BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => {job.rate}, keys => {fresh.KEYS}) "
        "ORDERED BY ts"
    )
    sink = Callback(lambda _, rows: changes.receive(rows["v"].unique().to_pylist()))
    query = database.sql("SELECT a.key, d.v FROM a JOIN d ON a.key = d.k", sink=sink, name="q")
    found = changes.run(job.paced_seconds)
    query.stop()
    return found


RUNS = dict.fromkeys([*QUERIES, *(name for name, *_ in NEXMARK)], _run)
PACED = {"join": _paced, "aggregate": _paced, "enrich": _fresh}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

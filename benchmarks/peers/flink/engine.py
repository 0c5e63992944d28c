"""Apache Flink through PyFlink: SQL in streaming mode, parallelism 2, in a cluster inside its JVM.

The jars that PyFlink brings read and write CSV and JSON, not Parquet. Seconds are those that Flink reports for the job:
from its start in the cluster to its end, without the start of the cluster.
"""

from __future__ import annotations

import csv
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version as version_of
from pathlib import Path

# As much as Spark gets; for a large table with its versions twelve, since they do not fit into less.
os.environ.setdefault("JVM_ARGS", "-Xmx12g" if "enrich" in sys.argv[-1] else "-Xmx4g")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import fresh
import harness
from harness import Delays, Job
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment
from works import TABLES, WINDOW_MS, WORKS

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "256m",
    "pipeline.object-reuse": "true",
    "pipeline.auto-watermark-interval": "50 ms",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",  # holds rows together where operators aggregate without time
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
}
LESS = f"INTERVAL '{(WINDOW_MS - 1) / 1000}' SECOND"  # less than 10 s, in whole milliseconds
NEAR = "{0}.k = {1}.k AND {0}.rt BETWEEN {1}.rt - " + LESS + " AND {1}.rt + " + LESS
BID = "auction BIGINT, bidder BIGINT, {0}, date_time BIGINT, extra STRING"
HOPS = "TABLE(HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
TUMBLE = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(rt), INTERVAL '10' SECOND))"
END = "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', CAST({0} AS TIMESTAMP(3))) AS BIGINT) * 1000000"
ENRICHED = "FROM a JOIN versions FOR SYSTEM_TIME AS OF a.rt AS d ON a.k = d.k"
QUERIES = {
    "join": ("k BIGINT, av BIGINT, bv BIGINT", f"SELECT a.k, a.v, b.v FROM a JOIN b ON {NEAR.format('a', 'b')}"),
    "join3": (
        "k BIGINT, av BIGINT, bv BIGINT, cv BIGINT",
        f"SELECT a.k, a.v, b.v, c.v FROM a JOIN b ON {NEAR.format('a', 'b')}"
        f" JOIN c ON {NEAR.format('a', 'c')} AND {NEAR.format('b', 'c')}",
    ),
    "aggregate": (
        "k BIGINT, t BIGINT, n BIGINT, s BIGINT",
        f"""SELECT k, t, COUNT(*) OVER w, SUM(v) OVER w FROM a
            WINDOW w AS (PARTITION BY k ORDER BY rt RANGE BETWEEN {LESS} PRECEDING AND CURRENT ROW)""",
    ),
    # All functions of a SELECT are over one window in Flink; an AVG of BIGINT is a BIGINT.
    "over": (
        "k BIGINT, t BIGINT, average DOUBLE, earlier BIGINT",
        f"""SELECT k, t, average, LAG(t) OVER (PARTITION BY k ORDER BY rt)
              FROM (SELECT k, t, rt, AVG(CAST(v AS DOUBLE)) OVER w AS average FROM a WINDOW w AS
                    (PARTITION BY k ORDER BY rt
                     RANGE BETWEEN INTERVAL '{WINDOW_MS // 1000}' SECOND PRECEDING AND CURRENT ROW))""",
    ),
    # A key is present from its first row to 10 s after the last one that follows in time: a session.
    "distinct": (
        "k BIGINT, t BIGINT, u BIGINT",
        f"""SELECT k, MIN(t), MAX(t) + {WINDOW_MS * 1000}
              FROM TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(rt), INTERVAL '{WINDOW_MS // 1000}' SECOND))
             GROUP BY k, window_start, window_end""",
    ),
    # A view of the last row of each key is a versioned table, and the join one by event time.
    **dict.fromkeys(
        ("enrich", "enrich_static"),
        (
            "k BIGINT, av BIGINT, dv BIGINT",
            f"SELECT a.k, a.v, d.v {ENRICHED}",
        ),
    ),
    "filter": ("k BIGINT, w BIGINT", "SELECT k, v * 2 FROM a WHERE v < 100000"),
    "q0": (BID.format("price BIGINT"), "SELECT auction, bidder, price, date_time, extra FROM bid"),
    "q1": (
        BID.format("euro DECIMAL(23, 3)"),
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)), date_time, extra FROM bid",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT",
        """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
            WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    "q5": (
        "auction BIGINT, num BIGINT, u BIGINT",
        f"""SELECT c.auction, c.num, {END.format("c.window_end")}
              FROM (SELECT auction, COUNT(*) AS num, window_start, window_end FROM {HOPS}
                     GROUP BY auction, window_start, window_end) AS c
              JOIN (SELECT MAX(num) AS most, window_start, window_end
                      FROM (SELECT COUNT(*) AS num, window_start, window_end FROM {HOPS}
                             GROUP BY auction, window_start, window_end)
                     GROUP BY window_start, window_end) AS m
                ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most""",
    ),
    "q7": (
        "auction BIGINT, price BIGINT, bidder BIGINT, date_time BIGINT, u BIGINT",
        f"""SELECT b.auction, b.price, b.bidder, b.date_time, {END.format("b.window_end")}
              FROM (SELECT * FROM {TUMBLE.format("bid")}) AS b
              JOIN (SELECT MAX(price) AS most, window_start, window_end FROM {TUMBLE.format("bid")}
                     GROUP BY window_start, window_end) AS m
                ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.most""",
    ),
    "q8": (
        "id BIGINT, name STRING, u BIGINT",
        f"""SELECT p.id, p.name, {END.format("p.window_end")}
              FROM (SELECT id, name, window_start, window_end FROM {TUMBLE.format("person")}
                     GROUP BY id, name, window_start, window_end) AS p
              JOIN (SELECT seller, window_start, window_end FROM {TUMBLE.format("auction")}
                     GROUP BY seller, window_start, window_end) AS a
                ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    ),
}
VERSIONS = """CREATE VIEW versions AS SELECT k, v, rt FROM
    (SELECT k, v, rt, ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt DESC) AS n FROM d) WHERE n = 1"""
UNABLE = {
    "q4": "the file sinks that PyFlink brings take no rows that are taken back",
    "q6": "Flink refuses a window over rows that may be taken back",
}
_tables: TableEnvironment | None = None


def start() -> None:
    global _tables
    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    _tables = TableEnvironment.create(settings)


def version() -> str:
    return version_of("apache-flink")


def declare(name: str, columns: str, options: dict[str, str]) -> None:
    assert _tables is not None
    _tables.execute_sql(f"DROP TABLE IF EXISTS {name}")
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    _tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def files(path: Path) -> dict[str, str]:
    return {"connector": "filesystem", "path": path.as_uri(), "format": "csv"}


def execute(query: str) -> float:
    """The seconds that the job took, on Flink's clock."""
    assert _tables is not None
    client = _tables.execute_sql(f"INSERT INTO answer {query}").get_job_client()
    assert client is not None
    return float(client.get_job_execution_result().result().get_net_runtime()) / 1000


def _columns(stream: str) -> str:
    listed = ", ".join(f"{name} {'STRING' if kind == 'VARCHAR' else kind}" for name, kind in TABLES[stream].items())
    time = "t" if "t" in TABLES[stream] else "date_time"
    return f"{listed}, rt AS TO_TIMESTAMP_LTZ({time} / 1000, 3), WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND"


def _run(job: Job, place: Path) -> float:
    assert _tables is not None
    for stream in WORKS[job.work].inputs:
        declare(stream, _columns(stream), files(job.data / "lanes" / stream))
    if WORKS[job.work].table:
        _tables.execute_sql("DROP VIEW IF EXISTS versions")
        _tables.execute_sql(VERSIONS)
    columns, query = QUERIES[job.work]
    declare("answer", columns, files(place / "out"))
    return execute(query)


def _paced(job: Job) -> Delays:
    """Rows come from Flink's generator; a result counts when it leaves the operator that made it."""
    for stream in WORKS[job.work].streams:
        declare(
            stream,
            "k BIGINT, v BIGINT, made TIMESTAMP_LTZ(3), rt AS made, WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND",
            {
                "connector": "datagen",
                "rows-per-second": str(job.rate),
                "number-of-rows": str(job.rate * job.paced_seconds),
                "fields.k.min": "0",
                "fields.k.max": str(99_999 if job.work == "join" else 999),
            },
        )
    declare("answer", "seen TIMESTAMP_LTZ(3), due TIMESTAMP_LTZ(3)", files(job.out / "paced"))
    if job.work == "join":
        latest = "CASE WHEN a.made > b.made THEN a.made ELSE b.made END"
        execute(f"SELECT CURRENT_ROW_TIMESTAMP(), {latest} FROM a JOIN b ON {NEAR.format('a', 'b')}")
    else:
        execute(
            f"""SELECT CURRENT_ROW_TIMESTAMP(), made FROM
                (SELECT made, COUNT(*) OVER w AS n, SUM(v) OVER w AS s FROM a
                 WINDOW w AS (PARTITION BY k ORDER BY rt RANGE BETWEEN {LESS} PRECEDING AND CURRENT ROW))
                WHERE n > 0 AND s IS NOT NULL"""
        )
    return _delays(job.out / "paced")


def _delays(place: Path) -> Delays:
    found = []
    for path in place.rglob("*"):
        if path.is_file():
            with path.open() as file:
                for seen, due in csv.reader(file):
                    one, two = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (seen, due))
                    found.append((two.timestamp() * 1000, (one - two).total_seconds() * 1000))
    return found


def _fresh(job: Job) -> Delays:
    """A change is a further file, for which Flink looks ten times a second; the client receives each value once."""
    assert _tables is not None
    _tables.get_config().set("table.exec.source.idle-timeout", "100 ms")  # else the table holds the stream back
    place = job.out / "fresh" / "d"
    place.mkdir(parents=True)
    for path in job.files("lanes", "d"):
        os.link(path, place / Path(path).name)

    def commit(key: int, value: int) -> None:
        unfinished = place.parent / "unfinished"
        unfinished.write_text(f"{time.time_ns() // 1000},{key},{value}\n")
        unfinished.rename(place / f"change-{value}.csv")

    declare("d", _columns("d"), {**files(place), "source.monitor-interval": "100 ms"})
    _tables.execute_sql("DROP VIEW IF EXISTS versions")
    _tables.execute_sql(VERSIONS)
    generator = {"connector": "datagen", "rows-per-second": str(job.rate), "fields.k.min": "0"}
    columns = "k BIGINT, made TIMESTAMP_LTZ(3), rt AS made, WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND"
    declare("a", columns, {**generator, "fields.k.max": str(fresh.KEYS - 1)})
    result = _tables.execute_sql(f"SELECT DISTINCT dv FROM (SELECT d.v AS dv {ENRICHED})")
    changes = fresh.Changes(commit)
    threading.Thread(target=lambda: [changes.receive([row[0]]) for row in result.collect()], daemon=True).start()
    found = changes.run(job.paced_seconds)
    client = result.get_job_client()
    assert client is not None
    client.cancel().result()
    return found


RUNS: dict[str, Callable[[Job, Path], float]] = dict.fromkeys(QUERIES, _run)
PACED = {"join": _paced, "aggregate": _paced, "enrich": _fresh}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

"""DuckDB as a limit: all input at once, one SQL statement, two threads. It also defines the answers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import duckdb
import harness
from harness import Job
from works import WINDOW_US as W

STREAMS = {"join": "ab", "join3": "abc"}
QUERIES = {
    "join": f"SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND abs(a.t - b.t) < {W}",
    "join3": f"""SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv
                   FROM a JOIN b ON a.k = b.k AND abs(a.t - b.t) < {W}
                          JOIN c ON a.k = c.k AND abs(a.t - c.t) < {W} AND abs(b.t - c.t) < {W}""",
    "aggregate": f"""SELECT k, t, count(*) OVER last_w AS n, CAST(sum(v) OVER last_w AS BIGINT) AS s FROM a
                     WINDOW last_w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {W - 1} PRECEDING AND CURRENT ROW)""",
    "distinct": f"""WITH marked AS (SELECT k, t, t - lag(t) OVER w > {W} AS gap FROM a WINDOW w AS (PARTITION BY k ORDER BY t)),
                       islands AS (SELECT k, t, count(*) FILTER (gap) OVER (PARTITION BY k ORDER BY t) AS island FROM marked)
                    SELECT k, min(t) AS t, max(t) + {W} AS u FROM islands GROUP BY k, island""",
    "filter": "SELECT k, v * 2 AS w FROM a WHERE v < 100000",
}


def start() -> None:
    return None


def version() -> str:
    return duckdb.__version__


def _run(job: Job, place: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = false")
        for stream in STREAMS.get(job.work, "a"):
            connection.execute(f"CREATE VIEW {stream} AS FROM '{job.data}/pieces/{stream}/*.{job.kind}'")
        connection.execute(f"COPY ({QUERIES[job.work]}) TO '{place}/out.parquet' (FORMAT parquet)")


RUNS = dict.fromkeys(QUERIES, _run)
PACED: dict[str, object] = {}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

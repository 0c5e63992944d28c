"""DuckDB as a limit: all input at once, one SQL statement, two threads. It also defines the answers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import duckdb
import harness
from harness import Job
from works import TABLES, WORKS
from works import WINDOW_US as W

WON = """SELECT a.id, a.category, a.seller, a.expires, max(b.price) AS final FROM auction AS a JOIN bid AS b
             ON a.id = b.auction AND b.date_time >= a.date_time AND b.date_time < a.expires GROUP BY ALL"""
QUERIES = {
    "join": f"SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND abs(a.t - b.t) < {W}",
    "join3": f"""SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv
                   FROM a JOIN b ON a.k = b.k AND abs(a.t - b.t) < {W}
                          JOIN c ON a.k = c.k AND abs(a.t - c.t) < {W} AND abs(b.t - c.t) < {W}""",
    "aggregate": f"""SELECT k, t, count(*) OVER last_w AS n, CAST(sum(v) OVER last_w AS BIGINT) AS s FROM a
                     WINDOW last_w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {W - 1} PRECEDING AND CURRENT ROW)""",
    "over": f"""SELECT k, t, avg(v) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN {W} PRECEDING AND CURRENT ROW)
                         AS average, lag(t) OVER (PARTITION BY k ORDER BY t) AS earlier FROM a""",
    "distinct": f"""WITH marked AS (SELECT k, t, t - lag(t) OVER w > {W} AS gap FROM a
                                     WINDOW w AS (PARTITION BY k ORDER BY t)),
                         islands AS (SELECT k, t, count(*) FILTER (gap) OVER w AS island FROM marked
                                     WINDOW w AS (PARTITION BY k ORDER BY t))
                    SELECT k, min(t) AS t, max(t) + {W} AS u FROM islands GROUP BY k, island""",
    "filter": "SELECT k, v * 2 AS w FROM a WHERE v < 100000",
    "enrich": "SELECT a.k, a.v AS av, d.v AS dv FROM a ASOF JOIN d ON a.k = d.k AND a.t >= d.t",
    "enrich_static": "SELECT a.k, a.v AS av, d.v AS dv FROM a JOIN d ON a.k = d.k",
    "q0": "FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS euro, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
              WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, avg(final) AS average FROM ({WON}) GROUP BY category",
    "q5": """WITH counts AS (SELECT auction, count(*) AS num, (date_time // 2000000 + n) * 2000000 AS u
                               FROM bid, range(1, 6) AS windows(n) GROUP BY auction, u)
             SELECT auction, num, u FROM counts QUALIFY num = max(num) OVER (PARTITION BY u)""",
    "q6": f"""WITH won AS ({WON}),
                   latest AS (FROM won QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC)
                                      < 11)
              SELECT seller, avg(final) AS average FROM latest GROUP BY seller""",
    "q7": """SELECT auction, price, bidder, date_time, (date_time // 10000000 + 1) * 10000000 AS u FROM bid
             QUALIFY price = max(price) OVER (PARTITION BY date_time // 10000000)""",
    "q8": """SELECT DISTINCT p.id, p.name, (p.date_time // 10000000 + 1) * 10000000 AS u FROM person AS p
               JOIN auction AS a ON p.id = a.seller AND p.date_time // 10000000 = a.date_time // 10000000""",
}


def start() -> None:
    return None


def version() -> str:
    return duckdb.__version__


def _run(job: Job, place: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = false")
        for stream in WORKS[job.work].inputs:
            files = f"'{job.data}/pieces/{stream}/*.{job.kind}'"
            reader = f"read_csv({files}, header = true, columns = {TABLES[stream]})" if job.kind == "csv" else files
            connection.execute(f"CREATE VIEW {stream} AS FROM {reader}")
        connection.execute(f"COPY ({QUERIES[job.work]}) TO '{place}/out.parquet' (FORMAT parquet)")


RUNS = dict.fromkeys(QUERIES, _run)
PACED: dict[str, object] = {}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])

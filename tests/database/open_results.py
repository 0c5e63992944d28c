"""Queries whose results have elements without a known end, and how tests feed them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pyarrow as pa

from strandline.database.database import Database
from strandline.database.query import Query

KEYS = 200
START = datetime(2024, 1, 1)
STREAMS = """
CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM o (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
"""
QUERIES = {
    "range": "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY k",
    "unbounded": "SELECT k, SUM(v) AS n FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k",
    "extreme": "SELECT k, MAX(v) AS n, MIN(v) AS m FROM s WINDOW(RANGE 1 HOUR) GROUP BY k",
    "last row": "SELECT k, v FROM s WINDOW(PARTITION BY k ROWS 1)",
    "anti join": "SELECT k, v FROM s WINDOW(RANGE UNBOUNDED) a WHERE NOT EXISTS "
    "(SELECT 1 FROM o WINDOW(RANGE 1 SECOND) b WHERE a.k = b.k)",
}


# Operators that cut elements at the watermark.
CUT = {
    "top-k": "SELECT k, v FROM s WINDOW(RANGE 1 HOUR) ORDER BY v DESC LIMIT 5",
    "session": "SELECT k, v FROM s WINDOW(PARTITION BY k SESSION 1 HOUR)",
    "join with counts": "SELECT a.k, n FROM s WINDOW(RANGE 1 HOUR) a JOIN "
    "(SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY k) c ON a.k = c.k",
    "largest count": "SELECT MAX(n) AS m FROM (SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 HOUR) GROUP BY k) c",
}


def rows(at: float, *pairs: tuple[int, int]) -> pa.Table:
    """Rows of keys and values, all at one time, in seconds from the start."""
    times = [START + timedelta(seconds=at)] * len(pairs)
    return pa.table(
        {
            "k": pa.array([k for k, _ in pairs], pa.int64()),
            "v": pa.array([v for _, v in pairs], pa.int64()),
            "ts": pa.array(times, pa.timestamp("us")),
        }
    )


def advance(db: Database, query: Query, to: float) -> None:
    """Let both streams be complete up to a time, and wait until the result is, and its sink has it."""
    for moment in (
        START + timedelta(seconds=to),
        START + timedelta(seconds=to + 0.001),
    ):  # then the batch before is done
        for stream in ("s", "o"):
            db.advance(stream, moment)
        end = time.monotonic() + 30
        while (reached := query.metrics()["progress"]) is None or reached.replace(tzinfo=None) < moment:
            assert time.monotonic() < end, f"the result is complete up to {reached} only"
            query.check()
            time.sleep(0.01)

"""A program whose Spark is lost again and again; prints what it sees, one line each. See test_faults.py.

python losing.py DIRECTORY
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import psutil

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query

STREAM = "CREATE STREAM s (value BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
EPOCH = datetime(2024, 1, 1)
TEXT = "SELECT value % 7 AS k, COUNT(*) AS n FROM s WINDOW(RANGE 1 SECOND) GROUP BY value % 7"


def java() -> psutil.Process:
    return next(child for child in psutil.Process().children() if child.name() == "java")


def show(*facts: object) -> None:
    print(*facts, flush=True)


def code_of(query: Query) -> str:
    try:
        query.await_end(30)
    except StrandlineError as error:
        return f"{error.code}: {error.message}"
    return "no error"


def give(database: Database, first: int) -> None:
    """A thousand rows, one per millisecond."""
    database.append("s", [(n, EPOCH + timedelta(milliseconds=n)) for n in range(first, first + 1000)])


def started(database: Database, place: Path, first: int) -> Query:
    """The query, which has read the rows up to `first`, and is going to read those that follow."""
    query = database.sql(TEXT, name="q", sink=sl.Parquet(place / "out"))
    while query.metrics()["rows_in"].get("s", 0) < first and query.is_running:
        time.sleep(0.05)
    give(database, first)
    return query


def main() -> None:
    place = Path(sys.argv[1])
    with sl.connect(checkpoint=place / "checkpoint", shards=2) as database:
        database.sql(STREAM)
        give(database, 0)
        query = started(database, place, 1000)
        java().send_signal(signal.SIGKILL)
        show("while it runs,", code_of(query))
        show(query.state, query.batch_durations(), database.engine_lost is not None)

        query = started(database, place, 2000)
        show("again,", query.state, database.engine_lost)
        query.stop()
        fill_memory(database)
        while database.engine_lost is None:
            time.sleep(0.05)
        show("while it is idle,", database.engine_lost.message)

        database.warm()
        threading.Timer(0.3, lambda: java().send_signal(signal.SIGKILL)).start()
        try:
            show("while it starts,", code_of(started(database, place, 3000)))
        except StrandlineError as error:
            show("while it starts,", f"{error.code}: {error.message}")
            give(database, 3000)

        query = started(database, place, 4000)
        database.end("s")
        show("at last,", code_of(query), query.state)
        ours = query.results("polars").sort(pl.all())
    with sl.connect(engine="local") as database:
        database.sql(STREAM)
        for number in range(5):
            give(database, number * 1000)
        database.end("s")
        right = database.sql(TEXT, name="q")
        right.await_end()
        show("as it should be:", ours.equals(right.results("polars").sort(pl.all())))


def fill_memory(database: Database) -> None:
    gateway = database.spark.sparkContext._gateway
    with contextlib.suppress(Exception):  # nobody answers
        gateway.new_array(gateway.jvm.long, 2**31 - 1)


if __name__ == "__main__":
    main()
    show("left")

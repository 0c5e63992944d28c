"""Measuring on Spark: the wish reaches the workers with the batch, and a restart keeps the plan that it began with."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

import strandline as sl
from strandline.database.database import Database
from strandline.database.introspection.statistics import QueryStatistics
from strandline.database.query import Query
from strandline.logical.catalog import StreamStatistics

pytestmark = pytest.mark.spark

ROWS = "rows_per_second => 1000, total => {}, pace => false, start => '2024-01-01 00:00:00'"
CREATE = "CREATE STREAM {} (value BIGINT, key BIGINT, ts TIMESTAMP) SOURCE rate({}) ORDERED BY ts"
CHAIN = """SELECT a.value FROM a WINDOW(RANGE 1 SECOND) JOIN b WINDOW(RANGE 1 SECOND) ON a.key = b.key
  JOIN c WINDOW(RANGE 1 SECOND) ON b.value = c.value"""


def until(query: Query, batches: int) -> None:
    end = time.monotonic() + 60
    while query.metrics()["batches"] < batches:
        query.check()
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def test_workers_measure_while_somebody_subscribes(spark_database: Database) -> None:
    database = sl.connect(spark=spark_database.spark, batch_rows=2_000)
    database.sql(CREATE.format("r", ROWS.format(100_000)))
    query = database.sql("SELECT key, COUNT(*) AS n FROM r WINDOW(RANGE 5 SECONDS) WHERE value % 2 = 0 GROUP BY key")
    heard: list[QueryStatistics] = []
    subscription = query.subscribe(heard.append, every=0)
    until(query, 1)
    while not heard:
        until(query, query.metrics()["batches"] + 1)
    subscription.close()
    query.stop()
    edges = {edge.begin: edge for edge in heard[-1].edges}
    assert edges["source:r"].rate == pytest.approx(1000, rel=0.01)
    windowed = next(o.step for o in heard[-1].operators if o.kind == "TimeWindow")
    assert edges[windowed].length == pytest.approx(5.0)
    assert edges[windowed].rate == pytest.approx(500, rel=0.01)
    costs = database.sql("SELECT kind, cpu_seconds, us_per_row FROM sys.operators ORDER BY cpu_seconds").results(
        "polars"
    )
    assert set(costs["kind"]) >= {"Read", "Filter", "TimeWindow", "IncrementalAggregate"}
    assert costs.filter(kind="IncrementalAggregate")["cpu_seconds"].item() > 0
    assert costs.filter(kind="Read")["us_per_row"].item() > 0


def test_a_restart_keeps_its_plan_whatever_was_learned_since(spark_database: Database, tmp_path: Path) -> None:
    def begin(measured: dict[str, StreamStatistics]) -> Query:
        database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path, batch_rows=500)
        for name in "abc":
            database.sql(CREATE.format(name, ROWS.format(4_000)))
        database.catalog.measured.update(measured)
        # The rate of these sources is known, so nothing that is measured counts: take the declaration away.
        for name in "abc":
            database.catalog._streams[name] = replace(database.catalog.get(name), statistics=StreamStatistics())
        plans.append(database.sql(f"EXPLAIN {CHAIN}"))
        return database.sql(CHAIN, name="q")

    plans: list[str] = []
    first = begin({})
    until(first, 1)
    first.stop()
    assert not first.ended
    slow = {"a": StreamStatistics(5000.0), "b": StreamStatistics(5000.0), "c": StreamStatistics(0.1)}
    again = begin(slow)
    assert plans[0] != plans[1], "what was learned makes a difference for a new query"
    assert again.explain() == first.explain()
    assert again.await_end(120)
    again.stop()

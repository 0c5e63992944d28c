"""What sources know reaches the planner: after what is declared and measured, before what is assumed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.connectors.sources.sampled_values import estimate_distinct
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.logical.catalog import StreamStatistics

START = datetime(2024, 1, 1)
COUNT = 5_000


@pytest.fixture
def db() -> Any:
    with sl.connect(engine="local") as database:
        database.catalog.notices.show = None
        yield database


def write(path: Path, kind: str, count: int = COUNT) -> None:
    """Ten rows per second; 20 keys, and a column with as many values as rows."""
    dice = Random(1)
    rows = [
        {"k": f"k{dice.randrange(20)}", "id": n, "ts": START + timedelta(milliseconds=100 * n)} for n in range(count)
    ]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=1_000)
    elif kind == "csv":
        path.write_text("k,id,ts\n" + "".join(f"{r['k']},{r['id']},{r['ts']}\n" for r in rows))
    else:
        path.write_text("".join(json.dumps({**r, "ts": str(r["ts"])}) + "\n" for r in rows))


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files(db: Database, tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"a.{kind}", kind)
    db.sql(f"CREATE STREAM s (k VARCHAR, id BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/a.{kind}') ORDERED BY ts")
    statistics = db.catalog.statistics()["s"]
    assert statistics.rate == pytest.approx(10, rel=0.02)
    assert statistics.values == {"k": 20.0, "id": pytest.approx(COUNT, rel=0.02)}
    text = db.sql("EXPLAIN SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE] GROUP BY k")
    assert "from the source: s has 10 rows/s, 20 distinct values of k" in text and "assumed" not in text


def test_what_is_declared_or_measured_is_used_first(db: Database, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv")
    source = f"(k VARCHAR, id BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/a.csv') ORDERED BY ts"
    db.sql(f"CREATE STREAM s {source} WITH (rate = 7)")
    db.catalog.measured["s"] = StreamStatistics(3.0, {"k": 15.0})
    statistics = db.catalog.statistics()["s"]
    assert statistics.rate == 7 and statistics.values["k"] == 15 and "id" in statistics.values
    text = db.sql("EXPLAIN SELECT k, id, COUNT(*) AS n FROM s [RANGE 1 MINUTE] GROUP BY k, id")
    assert "measured: s has 15 distinct values of k" in text
    assert "from the source: s has 5,000 distinct values of id" in text


def test_few_rows_say_nothing(db: Database, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", 50)
    db.sql(f"CREATE STREAM s (k VARCHAR, id BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/a.csv') ORDERED BY ts")
    assert db.catalog.statistics()["s"] == StreamStatistics()


def test_rate_and_rows(db: Database) -> None:
    db.sql("CREATE STREAM r (key BIGINT, key2 BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 50, keys => (7, 9)) ORDERED BY ts")  # fmt: skip # noqa: E501
    assert db.catalog.statistics()["r"] == StreamStatistics(50.0, {"key": 7.0, "key2": 9.0}, steady=True)
    rows = ", ".join(f"({n % 4}, {n * 500_000})" for n in range(200))
    db.sql(f"CREATE STREAM w (k INT, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts")
    statistics = db.catalog.statistics()["w"]
    assert statistics.values == {"k": 4.0} and statistics.rate == pytest.approx(2, rel=0.02)


def test_estimates_of_distinct_values() -> None:
    assert estimate_distinct(pl.Series([1, 2, 1, 2]), 1_000) == 2
    assert estimate_distinct(pl.Series([1, 2, 3, 4]), 1_000) == 1_000
    assert 3 <= estimate_distinct(pl.Series([1, 1, 2, 3]), 1_000) <= 1_000
    assert estimate_distinct(pl.Series([None], dtype=pl.Int64), 1_000) == 0


def test_a_restart_runs_the_plan_that_was_made_at_the_start(tmp_path: Path) -> None:
    """Other rates would now give another plan: it is not made, since the state belongs to the stored one."""
    for name in "abc":
        write(tmp_path / f"{name}.csv", "csv", 40)

    def run(rates: tuple[int, int, int], checkpoint: Path | None) -> Query:
        with sl.connect(engine="local", checkpoint=checkpoint) as db:
            for name, rate in zip("abc", rates, strict=True):
                db.sql(
                    f"CREATE STREAM {name} (k VARCHAR, id BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/{name}.csv') "
                    f"ORDERED BY ts WITH (rate = {rate}, DISTINCT (k) = 20)"
                )
            windows = ", ".join(f"{name} WINDOW(RANGE 10 SECONDS)" for name in "abc")
            query: Query = db.sql(f"SELECT a.id FROM {windows} WHERE a.k = b.k AND b.k = c.k", name="q")
            assert query.await_end(60)
            return query

    first = run((1, 10, 5_000), tmp_path / "c")
    assert run((5_000, 10, 1), None).pipeline.fragments != first.pipeline.fragments
    assert run((5_000, 10, 1), tmp_path / "c").pipeline.fragments == first.pipeline.fragments

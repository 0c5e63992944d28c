"""Arrays on their way out: derived streams, results in every form, and answers as files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.database.database import Database

STREAMS = """
    CREATE STREAM s (k VARCHAR, n INT, x DECIMAL(6, 2), ts BIGINT) SOURCE rows(
      ('a', 2, 0.5, 0), ('b', NULL, 1.5, 1), ('a', 1, -1.0, 2), ('a', NULL, NULL, 2)) ORDERED BY ts;
    CREATE STREAM d AS SELECT k, ARRAY_AGG(n) AS ns, ARRAY_AGG(x) AS xs, ARRAY_AGG(k) AS ks
      FROM s [RANGE 2 MICROSECONDS] GROUP BY k"""
ROWS = [
    ("a", [2], [Decimal("0.50")], ["a"]),
    ("b", [None], [Decimal("1.50")], ["b"]),
    ("a", [1, None], [Decimal("-1.00"), None], ["a", "a"]),
]


@pytest.fixture
def database() -> Database:
    database = sl.connect(engine="local", shards=3)
    database.sql(STREAMS)
    return database


def test_results_in_every_form(database: Database) -> None:
    query = database.sql("SELECT * FROM d")
    query.await_end()
    assert query.results("polars").drop("valid_from", "valid_until").rows() == ROWS
    table: pa.Table = query.results("arrow")
    assert table.schema.field("ns").type == pa.large_list(pa.int32())
    assert table.schema.field("xs").type == pa.large_list(pa.decimal128(6, 2))
    frame = query.results("pandas")
    assert [list(value) for value in frame["ks"]] == [row[3] for row in ROWS]


def test_answers_as_files(database: Database, tmp_path: Path) -> None:
    query = database.sql("SELECT * FROM d", sink=sl.Parquet(tmp_path / "out"))
    query.await_end()
    frame = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert frame.schema["xs"] == pl.List(pl.Decimal(6, 2))
    assert frame.sort("valid_from", "k").drop("valid_from", "valid_until").unique(maintain_order=True).rows() == ROWS


def test_a_stream_of_arrays_is_described(database: Database) -> None:
    assert "xs    DECIMAL(6,2)[]" in str(database.sql("DESCRIBE d"))


def test_a_value_for_each_array_is_refused(database: Database) -> None:
    """It would be computed for each combination of what it reads, and these would have to be compared."""
    with pytest.raises(sl.StrandlineError, match="correlated reference to an array"):
        database.sql("SELECT (SELECT COUNT(*) FROM s WHERE array_contains(d.ns, s.n)) AS n FROM d")
    found = database.sql("SELECT k FROM d WHERE EXISTS (SELECT 1 FROM s WHERE array_contains(d.ns, s.n))")
    found.await_end()
    assert found.results("polars")["k"].to_list() == ["a", "a"]

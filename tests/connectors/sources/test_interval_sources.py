"""Files whose rows say themselves how long they are valid."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.sources import file as file_source
from strandline.connectors.sources.base import open_source
from strandline.database.query import Query
from strandline.sql import ast
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.parser.statements import parse_one

DECLARED = "CREATE STREAM s (k VARCHAR, a TIMESTAMP, b TIMESTAMP) SOURCE file('{}') VALID FROM a UNTIL b"


def moments(*seconds: int | None) -> pl.Series:
    return pl.Series([None if s is None else s * 1_000_000 for s in seconds], dtype=pl.Int64).cast(pl.Datetime("us"))


def finished(file: Path, declared: str = DECLARED) -> Query:
    database = sl.connect(engine="local", batch_rows=2)
    database.sql(declared.format(file))
    query: Query = database.sql("SELECT k FROM s")
    assert query.await_end(30)
    return query


def intervals(query: Query) -> list[tuple[object, int, int | None]]:
    frame = query.results("polars").with_columns(pl.col("valid_from", "valid_until").dt.epoch("s"))
    rows: list[tuple[object, int, int | None]] = frame.rows()
    return rows


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_every_format_brings_intervals(tmp_path: Path, ending: str) -> None:
    frame = pl.DataFrame({"k": list("abcde"), "a": moments(1, 2, 4, None, 9), "b": moments(3, None, 4, 7, 12)})
    path = tmp_path / f"in.{ending}"
    match ending:
        case "parquet":
            frame.write_parquet(path, row_group_size=2)
        case "csv":
            frame.write_csv(path)
        case _:
            frame.write_ndjson(path)
    query = finished(path)
    assert intervals(query) == [("a", 1, 3), ("b", 2, None), ("e", 9, 12)]
    rejected = sorted((row["row"], row["reason"]) for row in query.rejected("s").to_pylist())
    first = 4 if ending == "csv" else 3  # the header counts
    assert rejected == [(first, "b: the end is not after a"), (first + 1, "a: the time is NULL")]


def test_a_line_that_is_no_row_does_not_disturb_the_others(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("k,a,b\na,1970-01-01 00:00:01,1970-01-01 00:00:02\nb,1\nc,1970-01-01 00:00:03,\n")
    query = finished(path)
    assert intervals(query) == [("a", 1, 2), ("c", 3, None)]
    assert [row["reason"] for row in query.rejected("s").to_pylist()] == ["2 fields instead of 3"]


def test_days_are_valid_from_midnight_to_midnight(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("k,a,b\na,2024-01-01,2024-01-03\nb,2024-01-02,9999-12-31\n")
    query = finished(path, "CREATE STREAM s (k VARCHAR, a DATE, b DATE) SOURCE file('{}') VALID FROM a UNTIL b")
    shown = [(row["k"], f"{row['valid_from']:%Y-%m-%d}", f"{row['valid_until']:%Y-%m-%d}") for row in rows(query)]
    assert shown == [("a", "2024-01-01", "2024-01-03"), ("b", "2024-01-02", "9999-12-31")]


def rows(query: Query) -> list[dict[str, object]]:
    found: list[dict[str, object]] = query.results().to_pylist()
    return found


def test_a_malformed_interval_makes_nobody_late_in_another_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece asks for the latest time before it, and a row that is rejected has none."""
    frame = pl.DataFrame({"k": list("abcd"), "a": moments(1, 900, 2, 3), "b": moments(9, 800, 9, 9)})
    path = tmp_path / "in.parquet"
    frame.write_parquet(path, row_group_size=1)
    statement = parse_one(DECLARED.format(path))
    assert isinstance(statement, ast.CreateStream)
    source = open_source(bind_create_stream(statement))
    monkeypatch.setattr(file_source, "TASK_ROWS", 1)
    end, ended = source.advance(0, 100)
    assert (end, ended, source.split_points(0, end, 4)) == (5, True, (2, 3, 4))  # the first entry lists the files
    assert source.latest(0, 3) == 1_000_000

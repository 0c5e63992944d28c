"""Answers as Delta tables, with the real library."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.sinks import ResumePoint, SinkBatch, SinkWriter
from strandline.core.errors import SinkError, StrandlineError
from strandline.core.temporal import to_datetime
from strandline.core.types import BIGINT, NULL, VARCHAR, Column

COLUMNS = (Column("k", "k", VARCHAR), Column("n", "n", BIGINT), Column("x", "x", NULL))
INSTANT = pa.timestamp("us", tz="UTC")


def batch(number: int, *rows: tuple[str, int, int, int]) -> SinkBatch:
    """Rows are k, n and the interval."""
    k, n, start, end = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {
        "k": pa.array(k, pa.large_string()),
        "n": pa.array(n, pa.int64()),
        "x": pa.nulls(len(rows)),
        "valid_from": pa.array(map(to_datetime, start), INSTANT),
        "valid_until": pa.array(map(to_datetime, end), INSTANT),
    }
    return SinkBatch(number, pa.table(columns), 100 * number)


def opened(path: Path, last: int = -1, last_result_batch: int = -1, owner: str = "me") -> SinkWriter:
    writer = sl.Delta(path).open("q", COLUMNS)
    resume_point = ResumePoint(owner, last < 0, last, last_result_batch)
    writer.validate(resume_point)
    writer.prepare(resume_point)
    return writer


def rows(path: Path) -> list[tuple[str, int]]:
    table = deltalake.DeltaTable(path).to_pyarrow_table()
    return sorted((row["k"], row["n"]) for row in table.to_pylist())


def refusal(path: Path, last: int, last_result_batch: int, owner: str = "me") -> StrandlineError:
    with pytest.raises(SinkError) as caught:
        opened(path, last, last_result_batch, owner)
    return caught.value


def test_batches_come_once_however_often_they_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = opened(path)
    writer.write(batch(0))
    assert not path.exists(), "a batch without rows is no version"
    writer.write(batch(1, ("a", 1, 0, 5), ("a", 1, 0, 5)))
    opened(path, 0).write(batch(1, ("a", 1, 0, 5), ("a", 1, 0, 5)))
    writer = opened(path, 1, 1)
    writer.write(batch(1, ("a", 1, 0, 5), ("a", 1, 0, 5)))
    writer.write(batch(2))
    writer.write(batch(3, ("b", 2, 5, 9)))
    assert rows(path) == [("a", 1), ("a", 1), ("b", 2)]
    table = deltalake.DeltaTable(path)
    assert table.version() == 1
    newest = table.history(1)[0]
    assert newest["strandline.batch"] == "3" and newest["strandline.complete_until"] == "1970-01-01 00:00:00.0003"


def test_the_checkpoint_must_fit_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert refusal(path, 4, 4).code == "results-missing"
    writer = opened(path)
    for number in (0, 1, 3):
        writer.write(batch(number, ("a", number, 0, 5)))
    assert refusal(path, 1, 1).code == "results-ahead"
    assert refusal(path, 4, 4).code == "results-missing"
    assert refusal(path, -1, -1, owner="another").code == "results-exist"
    for last in (2, 3, 4):
        opened(path, last, 1 if last == 2 else 3)
    with pytest.raises(SinkError) as caught:
        sl.Delta(path).open("q", COLUMNS[:1]).validate(ResumePoint("me", False, 3, 3))
    assert caught.value.code == "sink-columns"


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": ["mine"]}))
    assert refusal(tmp_path / "t", -1, -1).code == "results-exist"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert refusal(tmp_path / "other", -1, -1).code == "results-exist"


def test_a_query_into_a_delta_table_and_back(tmp_path: Path) -> None:
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql("""CREATE STREAM s (k VARCHAR, m DECIMAL(10, 2), t TIMESTAMP, ts BIGINT) SOURCE
            rows(('a', 1.5, '2024-01-01 00:00:00', 0), (NULL, NULL, NULL, 3), ('a', 2, '2024-01-01', 4))
            ORDERED BY ts""")
        text = "SELECT k, SUM(m) AS m, ARRAY_AGG(t) AS ts FROM s WINDOW(RANGE 5 MICROSECONDS) GROUP BY k"
        there = database.sql(f"CREATE SINK there INTO delta('{tmp_path}/t') AS {text}")
        here = database.sql(text)
        assert there.await_end(60) and here.await_end(60)
        assert there.results().equals(here.results())
        assert here.results().num_rows > 2

"""What only Spark can show: damage that workers find, stopping, the user's own session, idle sources, sinks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.core.errors import CheckpointError, QueryError, SourceError
from strandline.core.temporal import SECOND
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.runtime import offsets as advance

pytestmark = pytest.mark.spark

RATE = "CREATE STREAM r (value BIGINT, key BIGINT, ts TIMESTAMP) SOURCE rate({}) ORDERED BY ts"
STEADY = "rows_per_second => 1000, total => {}, pace => false, start => '2024-01-01 00:00:00'"
COUNTS = "SELECT key, COUNT(*) AS n FROM r WINDOW(RANGE 5 SECONDS) GROUP BY key"


def until(condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def last_number(log: Path) -> int:
    return max(int(path.name) for path in log.iterdir() if path.name.isdigit())


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_a_damaged_segment_is_refused_by_name_and_nothing_is_overwritten(
    spark_database: Database, tmp_path: Path
) -> None:
    spark = spark_database.spark

    def begin() -> Query:
        database = sl.connect(spark=spark, checkpoint=tmp_path / "c", batch_rows=500)
        database.sql(RATE.format(STEADY.format(20_000)))
        return database.sql(COUNTS, name="q", sink=sl.Parquet(tmp_path / "out" / "q"))

    logs = tmp_path / "c" / "q" / "spark"
    while True:
        query = begin()
        until(lambda query=query: query.metrics()["batches"] >= 4)
        query.stop()
        # A batch that was stopped in its middle runs again, in the same workers, which remember the state before it.
        if last_number(logs / "commits") == last_number(logs / "offsets"):
            break
    state = tmp_path / "c" / "q" / "state"
    segments = sorted((state / "1" / "0").glob("s*.arrow"))
    for segment in segments:
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
    before = contents(tmp_path / "out" / "q")
    with pytest.raises(CheckpointError) as caught:
        begin()
    assert caught.value.code == "checkpoint-damaged"
    assert any(segment.name in caught.value.message for segment in segments)
    assert "Traceback" not in caught.value.render() and "org.apache" not in caught.value.render()
    assert before == contents(tmp_path / "out" / "q")


def test_a_stopped_query_goes_on_from_its_checkpoint(spark_database: Database, tmp_path: Path) -> None:
    def begin(batch_rows: int) -> Query:
        database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "c", batch_rows=batch_rows)
        database.sql(RATE.format(STEADY.format(6_000)))
        return database.sql(COUNTS, name="q", sink=sl.Parquet(tmp_path / "out" / "q"))

    query = begin(700)
    until(lambda: query.metrics()["batches"] >= 3)
    query.stop()
    again = begin(1_900)
    assert again.await_end(120)
    metrics = again.metrics()
    assert metrics["rows_in"] == {"r": 6_000} and metrics["ended"]
    reference = sl.connect(engine="local")
    reference.sql(RATE.format(STEADY.format(6_000)))
    expected = reference.sql(COUNTS, name="q")
    expected.await_end(60)
    assert again.results().sort_by([("valid_from", "ascending"), ("key", "ascending")]) == expected.results().sort_by(
        [("valid_from", "ascending"), ("key", "ascending")]
    )


def test_a_change_feed_keeps_its_live_elements_over_a_restart(spark_database: Database, tmp_path: Path) -> None:
    """A deletion after the restart ends what was inserted before; one that deletes nothing is rejected once."""
    (tmp_path / "in").mkdir()
    columns = "(k INT, op VARCHAR, ts BIGINT)"

    def arrive(name: str, *rows: tuple[int, str, int]) -> None:
        (tmp_path / "in" / f".{name}").write_text("k,op,ts\n" + "".join(f"{k},{op},{ts}\n" for k, op, ts in rows))
        (tmp_path / "in" / f".{name}").rename(tmp_path / "in" / f"{name}.csv")

    def begin() -> Query:
        database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "c", shards=2)
        database.sql(
            f"""CREATE STREAM s {columns} SOURCE file('{tmp_path}/in/*.csv', follow => true)
                  ORDERED BY ts CHANGES IN op"""
        )
        return database.sql("SELECT k FROM s", name="q", sink=sl.Parquet(tmp_path / "out" / "q"))

    arrive("a", *((k, "+", 1) for k in range(20)), (99, "-", 2), (3, "-", 3), (50, "+", 4))
    query = begin()
    until(lambda: query.metrics()["rejected"] == {"s": 1})
    query.stop()
    arrive("b", *((k, "-", 7) for k in range(10) if k != 3), (3, "-", 8), (3, "+", 9))
    (tmp_path / "in" / "_END").touch()
    again = begin()
    assert again.await_end(120)
    assert again.metrics()["rejected"] == {"s": 2}
    assert again.metrics()["rows_in"] == {"s": 32}
    found = {
        (
            row["k"],
            row["valid_from"].microsecond,
            None if row["valid_until"] is None else row["valid_until"].microsecond,
        )
        for row in again.results().to_pylist()
    }
    ends = {k: 3 if k == 3 else 7 for k in range(10)}
    assert found == {*((k, 1, ends.get(k)) for k in range(20)), (50, 4, None), (3, 9, None)}


def test_an_idle_source_does_not_hold_the_others_back(spark_database: Database, tmp_path: Path) -> None:
    (tmp_path / "quiet").mkdir()
    database = sl.connect(spark=spark_database.spark, batch_rows=500)
    database.sql(RATE.format(STEADY.format(2_000)))
    database.sql(
        f"""CREATE STREAM quiet (k BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/quiet/*.parquet', follow => true)
              ORDERED BY ts IDLE AFTER 1 SECOND"""
    )
    query = database.sql(
        """SELECT COUNT(*) AS n FROM (SELECT key AS k FROM r WINDOW(RANGE 1 SECOND)
             UNION ALL SELECT k FROM quiet WINDOW(RANGE 1 SECOND)) u"""
    )
    until(lambda: query.metrics()["progress"] is not None and query.metrics()["state_rows"] > 0)
    table = pa.table({"k": [1, 2], "ts": pa.array([0, 4_102_444_800_000_000], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "quiet" / ".a")
    (tmp_path / "quiet" / ".a").rename(tmp_path / "quiet" / "a.parquet")
    (tmp_path / "quiet" / "_END").touch()
    assert query.await_end(60)
    assert query.metrics()["late"] == {"r": 0, "quiet": 1}, "what the others have not waited for comes too late"
    assert query.late("quiet")["k"].to_pylist() == [1]
    assert query.snapshot(datetime(2100, 1, 1, tzinfo=UTC))["n"].to_pylist() == [1]


def test_callbacks_and_snapshots_while_a_query_runs(spark_database: Database) -> None:
    heard: list[tuple[int, pa.Table]] = []
    database = sl.connect(spark=spark_database.spark, batch_rows=400)
    database.sql(RATE.format(STEADY.format(4_000)))
    called = database.sql(COUNTS, sink=sl.Callback(lambda batch, table: heard.append((batch, table))))
    watched = database.sql(COUNTS)
    until(lambda: watched.metrics()["batches"] >= 2)
    early = watched.snapshot()
    assert early.num_rows > 0 and sum(early["n"].to_pylist()) <= 4_000
    with pytest.raises(QueryError, match="not complete yet"):
        watched.snapshot("2099-01-01")
    assert called.await_end(60) and watched.await_end(60)
    assert sum(table.num_rows for _, table in heard) == called.metrics()["rows_out"]
    with pytest.raises(QueryError, match="was not retained"):
        called.results()
    changes = watched.changes("polars")
    assert changes["change"].sum() == 0, "everything that came has gone"
    assert watched.batch_durations()


def test_an_error_of_a_worker_arrives_under_its_name(spark_database: Database, tmp_path: Path) -> None:
    """A file that changes after it was planned and before it is read: the worker finds another checksum."""
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / "in" / f"{number:02}.csv").write_text(f"k,ts\n1,2024-01-01 00:00:{number:02}\n")
    database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "c", batch_rows=1)
    database.sql(f"CREATE STREAM f (k BIGINT, ts TIMESTAMP) SOURCE file('{tmp_path}/in/*.csv') ORDERED BY ts")

    def start() -> Query:
        return database.sql("SELECT k FROM f", name="q", sink=sl.Parquet(tmp_path / "out"))

    query = start()
    until(lambda: query.metrics()["batches"] >= 2)
    query.stop()
    log = tmp_path / "c" / "q" / "spark"
    planned = int(last_number(log / "offsets"))
    if planned == int(last_number(log / "commits")):
        (log / "commits" / str(planned)).unlink()  # as if the last batch had not come to its end
    for path in (tmp_path / "in").iterdir():
        path.write_text(path.read_text().replace("1,2024", "2,2024"))
    again = start()
    with pytest.raises(SourceError) as caught:
        again.await_end(60)
    again.stop()
    assert caught.value.code == "file-changed" and ".csv" in caught.value.message


def test_rows_keep_the_time_of_their_arrival_when_a_batch_runs_again(
    spark_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "TICK_US", 3_600 * SECOND)  # no batches but those with rows
    (tmp_path / "in").mkdir()
    log = tmp_path / "c" / "q" / "spark"

    def numbers(kind: str) -> list[int]:
        return sorted(int(path.name) for path in (log / kind).glob("[0-9]*"))

    def arrive(name: str, values: list[int]) -> None:
        pq.write_table(pa.table({"x": pa.array(values, pa.int32())}), tmp_path / "in" / f".{name}")
        (tmp_path / "in" / f".{name}").rename(tmp_path / "in" / f"{name}.parquet")

    def begin() -> Query:
        database = sl.connect(spark=spark_database.spark, checkpoint=tmp_path / "c")
        database.sql(f"CREATE STREAM s (x INT) SOURCE file('{tmp_path}/in/*.parquet', follow => true)")
        return database.sql("SELECT x FROM s", name="q", sink=sl.Parquet(tmp_path / "out" / "q"))

    def times(query: Query) -> dict[int, datetime]:
        rows = query.results().to_pylist()
        assert len({row["x"] for row in rows}) == len(rows), "each row once"
        return {row["x"]: row["valid_from"] for row in rows}

    arrive("a", [1, 2])
    query = begin()
    until(lambda: len(times(query)) == 2)
    arrive("b", [3])
    until(lambda: len(times(query)) == 3 and numbers("commits") == numbers("offsets"))
    query.stop()
    before = times(query)
    assert before[1] == before[2] < before[3] < datetime.now(UTC)
    # Spark forgets that the last batch, the one with the 3, was over: as if it had been killed. It runs it again.
    last = numbers("commits")[-1]
    (log / "commits" / f"{last}").unlink()
    (log / "commits" / f".{last}.crc").unlink(missing_ok=True)
    again = begin()
    until(lambda: last in numbers("commits"))
    arrive("c", [4])
    (tmp_path / "in" / "_END").touch()
    assert again.await_end(60)
    after = times(again)
    assert {x: after[x] for x in before} == before
    assert before[3] < after[4]

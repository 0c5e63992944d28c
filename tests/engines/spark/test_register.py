"""Spark's DataFrames as streams: their rows arrive, each once, also after kill -9, and mistakes are told in a line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import strandline as sl
from strandline.database.database import Database
from support import LONG, kill_tree

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v INT, ts TIMESTAMP"
START = datetime(2024, 1, 1)


@pytest.fixture(params=["local", "spark"])
def database(request: pytest.FixtureRequest, spark_database: Database) -> Iterator[Database]:
    """Either engine takes a DataFrame: the rows come through files."""
    session = spark_database.spark if request.param == "spark" else None
    with sl.connect(engine=request.param, spark=session) as database:
        yield database


@pytest.fixture
def spark(spark_database: Database) -> SparkSession:
    return spark_database.spark


def write(directory: Path, number: int, rows: list[tuple[Any, ...]], names: str = "k v ts") -> None:
    """A file that is there at once; those with higher numbers are newer."""
    directory.mkdir(exist_ok=True)
    columns = dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True))
    hidden = directory / f".{number:04d}"
    pq.write_table(
        pa.table({n: pa.array(c, pa.int32()) if n in "kv" else pa.array(c) for n, c in columns.items()}), hidden
    )
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    os.replace(hidden, directory / f"{number:04d}.parquet")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def files(spark: SparkSession, directory: Path) -> DataFrame:
    directory.mkdir(exist_ok=True)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(directory.as_uri())


def until(condition: Any, query: Any, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        query.check()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_rows_of_a_streaming_frame_arrive_as_spark_makes_them(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    frame = files(spark, tmp_path / "in").where("v <> 13").select("k", F.expr("v * 2").alias("double"), "ts")
    database.register("s", frame, ordered_by="ts", within="2 SECONDS")
    query = database.sql("SELECT k, SUM(double) AS total FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k")
    # Inside of a micro-batch the order of rows is sorted out; the next one is a second behind, two are allowed.
    write(tmp_path / "in", 0, [(1, 5, at(9)), (1, 1, at(2)), (2, 13, at(3)), (2, 7, at(1))])
    write(tmp_path / "in", 1, [(2, 1, at(8)), (1, 1, at(20))])
    until(lambda: query.metrics()["rows_in"] == {"s": 5}, query)
    until(lambda: query.metrics()["progress"] is not None and query.metrics()["late"] == {"s": 0}, query)
    until(lambda: query.progress > 1_704_067_209_000_000, query)
    assert query.snapshot(at(9)).sort_by("k").to_pylist() == [{"k": 1, "total": 12}, {"k": 2, "total": 16}]
    # Ten seconds behind the latest: late, as in any stream.
    write(tmp_path / "in", 2, [(2, 1, at(10))])
    until(lambda: query.metrics()["late"] == {"s": 1}, query)
    query.stop()
    assert not [each for each in spark.streams.active if each.name.startswith("s ")], "Spark's query goes with ours"


def test_a_frame_that_is_not_streaming_is_a_stream_that_ends(database: Database, spark: SparkSession) -> None:
    rows = [
        Row(b=True, n=1, f=0.5, d=Decimal("1.25"), t="ä", day=date(2024, 1, 2), a=[1, None], w=datetime(2024, 1, 1, 5)),
        Row(b=None, n=2, f=None, d=None, t=None, day=None, a=None, w=None),
    ]
    kinds = "b BOOLEAN, n SMALLINT, f FLOAT, d DECIMAL(8,2), t STRING, day DATE, a ARRAY<INT>, w TIMESTAMP_NTZ"
    frame = spark.createDataFrame(rows, kinds).withColumn("ts", F.expr("timestamp_seconds(1704067200 - n)"))
    database.register("s", frame, ordered_by="ts")
    told = dict(zip(*(database.sql("DESCRIBE s").table[c].to_pylist() for c in ("name", "value")), strict=True))
    assert {name: told[name] for name in ("n", "f", "d", "a", "w")} == {
        "n": "INT",
        "f": "DOUBLE",
        "d": "DECIMAL(8,2)",
        "a": "INT[]",
        "w": "TIMESTAMP",
    }
    query = database.sql("SELECT * FROM s")
    assert query.await_end(90)
    found = query.results().drop_columns(["valid_from", "valid_until"]).to_pylist()
    zero = dict.fromkeys(("b", "f", "d", "t", "day", "a", "w"))
    assert found == [
        {**zero, "n": 2, "ts": START - timedelta(seconds=2)},
        {**rows[0].asDict(), "ts": START - timedelta(seconds=1)},
    ]
    # Another query over it starts from its beginning.
    again = database.sql("SELECT COUNT(*) AS n FROM s WINDOW(RANGE UNBOUNDED)")
    assert again.await_end(90)
    assert again.snapshot(START).to_pylist() == [{"n": 2}]


def test_a_zone_of_the_session_does_not_move_instants(database: Database, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        database.register("s", spark.range(1).selectExpr("timestamp_seconds(1704067200) AS ts"), ordered_by="ts")
        query = database.sql("SELECT ts FROM s")
        assert query.await_end(90)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert query.results()["ts"].to_pylist() == [START]


def test_many_rows_are_merged_in_order(spark: SparkSession) -> None:
    frame = spark.range(0, 1_300_000, 1, 5).selectExpr("id", "timestamp_micros((id * 7919) % 1300000) AS ts")
    with sl.connect(engine="local") as database:
        database.register("s", frame, ordered_by="ts")
        query = database.sql("SELECT COUNT(*) AS n, SUM(id) AS total FROM s WINDOW(RANGE UNBOUNDED)")
        assert query.await_end(120)
        assert query.metrics()["late"] == {"s": 0}
        n = 1_300_000
        assert query.snapshot("1970-01-02").to_pylist() == [{"n": n, "total": Decimal(n * (n - 1) // 2)}]


def test_available_now_ends_the_stream(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, [(1, 5, at(0))])
    write(tmp_path / "in", 1, [(1, 6, at(1))])
    database.register("s", files(spark, tmp_path / "in"), ordered_by="ts", trigger={"availableNow": True})
    query = database.sql("SELECT k, SUM(v) AS v FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k")
    assert query.await_end(90)
    assert query.snapshot(at(1)).to_pylist() == [{"k": 1, "v": 11}]


def test_a_join_is_what_duckdb_says(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    draws = [((i * 7) % 5, (i * 37) % 101, at((i * 13) % 60)) for i in range(60)]
    for number in range(4):
        write(
            tmp_path / "in",
            number,
            [row for row in draws if number * 15 <= (row[2] - START).seconds < number * 15 + 15],
        )
    other = [((i * 3) % 5, f"n{i}", at((i * 11) % 60 + 0.5)) for i in range(40)]
    database.register("s", files(spark, tmp_path / "in"), ordered_by="ts", trigger={"availableNow": True})
    database.sql("CREATE STREAM o (k INT, name VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    query = database.sql(
        "SELECT a.k, a.v, b.name FROM s WINDOW(RANGE 7 SECONDS) a JOIN o WINDOW(RANGE 4 SECONDS) b ON a.k = b.k"
    )
    database.append("o", sorted(other, key=lambda row: row[2]))
    database.end("o")
    assert query.await_end(120)
    judge = duckdb.connect()
    judge.execute("CREATE TABLE a (k INT, v INT, ts TIMESTAMP)").executemany("INSERT INTO a VALUES (?, ?, ?)", draws)
    judge.execute("CREATE TABLE b (k INT, name VARCHAR, ts TIMESTAMP)")
    judge.executemany("INSERT INTO b VALUES (?, ?, ?)", other)
    text = """SELECT a.k, a.v, b.name FROM a JOIN b ON a.k = b.k
               WHERE a.ts <= $1 AND $1 < a.ts + INTERVAL 7 SECOND AND b.ts <= $1 AND $1 < b.ts + INTERVAL 4 SECOND
               ORDER BY ALL"""
    nonempty = 0
    for half in range(140):
        wanted = judge.execute(text, [at(half / 2)]).fetchall()
        ours = sorted(tuple(row.values()) for row in query.snapshot(at(half / 2)).to_pylist())
        assert ours == wanted, at(half / 2)
        nonempty += bool(wanted)
    assert nonempty > 50


def test_mistakes_are_told_at_once(database: Database, spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id", "timestamp_seconds(id) AS ts", "named_struct('a', id) AS pair")
    plain = frame.drop("pair")
    for wrong, given, options in [
        ("from a builtins.list", [1, 2], {}),
        ('column "pair" .* is struct<a:bigint>', frame, {}),
        ('column "tz" does not exist', plain, {"ordered_by": "tz"}),
        (
            'the time column "name" cannot be of type VARCHAR',
            plain.withColumn("name", F.lit("x")),
            {"ordered_by": "name"},
        ),
        ('duplicate column "ID"', plain.withColumns({}).selectExpr("id", "id AS `ID`"), {}),
        ("WITHIN needs ORDERED BY", plain, {"within": "1 SECOND"}),
        ("Write VALID FROM column UNTIL column", plain, {"until": "ts"}),
        ("must not be negative", plain, {"ordered_by": "ts", "within": timedelta(seconds=-1)}),
    ]:
        with pytest.raises(sl.StrandlineError, match=wrong):
            database.register("s", given, **options)  # type: ignore[arg-type]
    database.register("s", plain, ordered_by="ts", within=timedelta(seconds=1), idle_after="10 SECONDS")
    with pytest.raises(sl.StrandlineError, match="already exists"):
        database.register("s", plain, ordered_by="ts")
    with pytest.raises(sl.StrandlineError, match="cannot name a DataFrame in SQL"):
        database.sql("CREATE STREAM d (x INT) SOURCE dataframe()")
    with pytest.raises(sl.StrandlineError, match="cannot append rows"):
        database.append("s", [(1, START)])
    database.sql("DROP STREAM s")
    database.register("s", plain)  # without a time rows have that of their arrival
    query = database.sql("SELECT id FROM s")
    assert query.await_end(90)
    assert sorted(query.results()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_frame_that_fails_is_told_in_a_line(
    database: Database, spark: SparkSession, tmp_path: Path, streaming: bool
) -> None:
    write(tmp_path / "in", 0, [(1, 5, at(0))])
    write(tmp_path / "in", 1, [(1, 0, at(1))])
    frame = files(spark, tmp_path / "in") if streaming else spark.read.parquet((tmp_path / "in").as_uri())
    database.register("s", frame.withColumn("x", F.expr("10 / v")), ordered_by="ts")
    query = database.sql("SELECT k, x FROM s")
    with pytest.raises(sl.StrandlineError) as caught:
        query.await_end(90)
    assert caught.value.code == "dataframe-failed"
    told = caught.value.render()
    assert 'the DataFrame of stream "s" has failed: [DIVIDE_BY_ZERO]' in told
    assert "Traceback" not in told and "org.apache" not in told and "hint: Fix the DataFrame" in told
    assert query.metrics()["rows_in"].get("s", 0) == (1 if streaming else 0), "what came before counts"


def test_a_frame_that_spark_refuses_is_told_when_a_query_starts(database: Database, spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    database.register("s", rate.groupBy("value").count())
    with pytest.raises(sl.StrandlineError, match="STREAMING_OUTPUT_MODE"):
        database.sql("SELECT value FROM s")
    database.register("r", rate, ordered_by="timestamp")
    query = database.sql("SELECT value FROM r")
    until(lambda: [each for each in spark.streams.active if each.name.startswith("r ")], query)
    next(each for each in spark.streams.active if each.name.startswith("r ")).stop()
    with pytest.raises(sl.StrandlineError, match="was stopped externally"):
        query.await_end(90)


def test_a_restart_takes_no_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's commit is taken away, as a crash before it does: it repeats the batch, and the journal passes it over."""
    total = "SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k"
    out = sl.Parquet(tmp_path / "out")
    write(tmp_path / "in", 0, [(1, 5, at(0)), (2, 5, at(1))])
    write(tmp_path / "in", 1, [(1, 5, at(2))])

    def opened(trigger: dict[str, Any]) -> Database:
        database = sl.connect(spark=spark, checkpoint=tmp_path / "checkpoint")
        database.register("s", files(spark, tmp_path / "in"), ordered_by="ts", trigger=trigger)
        return database

    with opened({}) as database:
        query = database.sql(total, name="q", sink=out)
        until(lambda: query.metrics()["rows_in"] == {"s": 3}, query)
    place = tmp_path / "checkpoint" / "q" / "sources" / "s"
    for crumb in (place / "spark" / "commits").glob("*1*"):
        crumb.unlink()
    write(tmp_path / "in", 2, [(1, 5, at(4))])
    with opened({"availableNow": True}) as database:
        query = database.sql(total, name="q", sink=out)
        assert query.await_end(90)
        assert query.metrics()["rows_in"] == {"s": 4}
        assert query.snapshot(at(5)).sort_by("k").to_pylist() == [{"k": 1, "n": 3}, {"k": 2, "n": 1}]


KILLED = """
import sys
from pathlib import Path
import strandline as sl
place = Path(sys.argv[1])
with sl.connect(checkpoint=place / "checkpoint") as db:
    frame = db.spark.readStream.schema("k INT, v INT, ts TIMESTAMP").option("maxFilesPerTrigger", 2)
    ends = {"availableNow": True} if len(sys.argv) > 2 else {}
    db.register("s", frame.parquet((place / "in").as_uri()), ordered_by="ts", trigger=ends)
    q = db.sql("SELECT k, v FROM s", name="q", sink=sl.Parquet(place / "out"))
    q.await_end()
"""


def test_kill_9_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    numbers, per_file = 30, 20

    def entries() -> set[str]:
        return {path.name for path in tmp_path.glob("checkpoint/q/sources/s/rows/[0-9]*")}

    def write_all() -> None:
        for number in range(numbers):
            write(tmp_path / "in", number, [(number, v, at(number + v / per_file)) for v in range(per_file)])
            time.sleep(0.5)

    (tmp_path / "in").mkdir()
    writer = threading.Thread(target=write_all, daemon=True)
    writer.start()
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    for kill in range(3 if LONG else 2):
        before, end = entries(), time.monotonic() + 120
        process = subprocess.Popen(command, start_new_session=True)
        # Each time a little later after the first micro-batch: in the midst of the next one, or of what follows.
        while entries() == before and process.poll() is None and len(before) < numbers and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.05 + 0.3 * kill)
        kill_tree(process)
    writer.join()
    process = subprocess.Popen([*command, "ends"], start_new_session=True)
    try:
        assert process.wait(240) == 0
    finally:
        if process.poll() is None:
            kill_tree(process)
    found = pq.read_table(tmp_path / "out")
    pairs = sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert pairs == [(k, v) for k in range(numbers) for v in range(per_file)]

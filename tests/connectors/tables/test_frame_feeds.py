"""DataFrames of Spark as tables, and tables with sources in queries on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from feed_testing import content, history, results

import strandline as sl
from source_testing import wait_for
from strandline.core.errors import StrandlineError
from strandline.database.database import Database

pytestmark = pytest.mark.spark


def test_a_dataframe_is_a_table(spark_database: Database, tmp_path: Path) -> None:
    spark = spark_database.spark
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, city STRING")
    for rows, changes in (([(1, "a"), (2, "b")], 2), ([(2, "b"), (3, "c")], 3), ([(2, "b"), (3, "c")], 3)):
        with sl.connect(spark=spark, checkpoint=tmp_path / "checkpoint") as db:
            db.register_table("c", spark.createDataFrame(rows, "id INT, city STRING"), key="id")
            assert content(db, "c") == rows
            assert len(history(db, "c")) == changes
    with sl.connect(spark=spark) as db:
        with pytest.raises(StrandlineError) as refused:
            db.register_table("c", frame, key=["nr"])
        assert refused.value.code == "unknown-column"


def test_a_streaming_dataframe_feeds_a_table(spark_database: Database, tmp_path: Path) -> None:
    spark = spark_database.spark
    source = tmp_path / "files"
    source.mkdir()
    (source / "1.json").write_text('{"id": 1, "city": "a"}\n{"id": 2, "city": "b"}\n')

    def frame() -> object:
        return spark.readStream.schema("id INT, city STRING").json(str(source))

    with sl.connect(spark=spark, checkpoint=tmp_path / "checkpoint") as db:
        db.register_table("c", frame(), key="id")  # type: ignore[arg-type]
        wait_for(lambda: content(db, "c") == [(1, "a"), (2, "b")], 60)
    (source / "2.json").write_text('{"id": 1, "city": "c"}\n')
    with sl.connect(spark=spark, checkpoint=tmp_path / "checkpoint") as db:
        db.register_table("c", frame(), key="id")  # type: ignore[arg-type]
        wait_for(lambda: content(db, "c") == [(1, "c"), (2, "b")], 60)
        assert len(history(db, "c")) == 3


def test_fed_tables_on_spark(spark_database: Database, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("k,ts\n1,2024-01-01 00:00:15\n1,2024-01-01 00:00:25\n2,2024-01-01 00:00:25\n")
    (tmp_path / "c.csv").write_text("k,name\n1,one\n2,two\n")
    (tmp_path / "p.csv").write_text(
        "k,price,a,b\n1,6,2024-01-01 00:00:20,\n1,5,2024-01-01 00:00:10,2024-01-01 00:00:20\n"
    )
    (tmp_path / "e.csv").write_text(
        "op,k,v,ts\ninsert,1,x,2024-01-01 00:00:12\ninsert,2,z,2024-01-01 00:00:13\nu,1,y,2024-01-01 00:00:25\n"
    )
    with sl.connect(spark=spark_database.spark) as db:
        db.sql(f"CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE file('{tmp_path}/s.csv') ORDERED BY ts")
        db.sql(f"CREATE TABLE c (k INT PRIMARY KEY, name VARCHAR) SOURCE file('{tmp_path}/c.csv') CONSTANT")
        columns = "k INT, price INT, a TIMESTAMP, b TIMESTAMP"
        db.sql(f"CREATE TABLE p ({columns}) SOURCE file('{tmp_path}/p.csv') VALID FROM a UNTIL b")
        columns = "op VARCHAR, k INT, v VARCHAR, ts TIMESTAMP, PRIMARY KEY (k)"
        db.sql(f"CREATE TABLE e ({columns}) SOURCE file('{tmp_path}/e.csv') CHANGES IN op ORDERED BY ts")
        query = (
            "SELECT s.k, c.name, p.price, e.v FROM s JOIN c ON s.k = c.k JOIN e ON s.k = e.k LEFT JOIN p ON s.k = p.k"
        )
        found = results(db, query, ["k", "name", "price", "v"])
        assert found == [(1, "one", 5, "x"), (1, "one", 6, "y"), (2, "two", None, "z")]

"""Change feeds from sources: what is rejected, what stops, and what a live feed shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script, start_script

COLUMNS = "(k INT, v INT, op VARCHAR, ts BIGINT)"
HEAD = "k,v,op,ts\n"
ROWS = "1,10,insert,1\n2,20,+I,2\n1,10,DELETE,5\n3,3,d,6\n2,20,update_before,7\n2,21,update_after,7\n"


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        yield database


def declared(db: Database, source: str, clauses: str = "CHANGES IN op") -> None:
    db.sql(f"CREATE STREAM s {COLUMNS} SOURCE {source} ORDERED BY ts {clauses}")


def run(db: Database, text: str = "SELECT * FROM s", **options: Any) -> Query:
    query: Query = db.sql(text, **options)
    assert query.await_end(30)
    return query


def elements(query: Query) -> list[tuple[object, ...]]:
    rows = query.results("polars").sort("valid_from", "k").rows()
    return [(*row[:-2], *(None if at is None else at.microsecond for at in row[-2:])) for row in rows]


EXPECTED = [(1, 10, 1, 5), (2, 20, 2, 7), (2, 21, 7, None)]


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_files_of_changes(db: Database, tmp_path: Path, format_: str) -> None:
    rows = [line.split(",") for line in ROWS.split()]
    table = pa.table(
        {
            "k": pa.array([int(k) for k, *_ in rows], pa.int32()),
            "v": pa.array([int(v) for _, v, *_ in rows], pa.int32()),
            "op": [op for _, _, op, _ in rows],
            "ts": [int(ts) for *_, ts in rows],
        }
    )
    path = tmp_path / f"changes.{format_}"
    if format_ == "parquet":
        pq.write_table(table, path)
    else:
        json = "\n".join(str(row).replace("'", '"') for row in table.to_pylist())
        path.write_text(HEAD + ROWS if format_ == "csv" else json)
    declared(db, f"file('{path}')")
    query = run(db)
    assert elements(query) == EXPECTED
    assert query.metrics()["rejected"] == {"s": 1}
    assert query.metrics()["rows_in"] == {"s": 5}
    assert query.rejected("s").to_pylist() == [
        {
            "place": "s",
            "row": None,
            "reason": "the row that it deletes at 1970-01-01 00:00:00.000006 is not there",
            "content": '{"k":3,"v":3,"op":"d"}',
        }
    ]


def test_what_is_no_change_is_rejected_with_its_place(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    path.write_text(HEAD + "1,1,insert,1\n1,1,remove,2\n1,1,,3\n1,2,u,4\n")
    declared(db, f"file('{path}')")
    query = run(db)
    rejected = query.rejected("s").to_pylist()
    assert [row["row"] for row in rejected] == [3, 4, 5]
    assert rejected[0]["reason"].startswith("op: not one of insert, +")
    assert [row["reason"] for row in rejected[1:]] == [
        "op: the operation is NULL",
        "op: an update without the row before it needs a PRIMARY KEY",
    ]
    assert elements(query) == [(1, 1, 1, None)]


def test_a_key_is_not_null(db: Database) -> None:
    declared(db, "rows((NULL, 1, 'c', 1), (1, 1, 'c', 1), (1, 2, 'u', 2))", "CHANGES IN op PRIMARY KEY (k)")
    query = run(db)
    assert [row["reason"] for row in query.rejected("s").to_pylist()] == ["k: the key is NULL"]
    assert elements(query) == [(1, 1, 1, 2), (1, 2, 2, None)]


def test_bad_changes_stop_a_stream_that_is_declared_so(db: Database) -> None:
    declared(db, "rows((1, 1, '+', 1), (2, 2, '-', 2))", "CHANGES IN op ON BAD INPUT STOP")
    query = db.sql("SELECT * FROM s")
    with pytest.raises(StrandlineError) as caught:
        query.await_end(30)
    assert caught.value.code == "bad-input"
    assert caught.value.detail == (
        "First in this batch: s: the row that it deletes at 1970-01-01 00:00:00.000002 is not there"
    )


def test_two_queries_of_a_pipeline_report_a_bad_change_once(db: Database, tmp_path: Path) -> None:
    script = read_script(
        db,
        f"CREATE STREAM s {COLUMNS} SOURCE rows((1, 1, '+', 1), (2, 2, '-', 2)) ORDERED BY ts CHANGES IN op;\n"
        "CREATE STREAM one AS SELECT k FROM s; CREATE STREAM two AS SELECT COUNT(*) AS n FROM s;",
    )
    for query in start_script(db, script, tmp_path / "out", None):
        assert query.await_end(30)
        assert query.metrics()["rejected"] == {"s": 1}
        assert query.rejected("s").num_rows == 1


def test_rows_of_a_change_feed_are_never_shed(db: Database) -> None:
    declared(db, "rows((1, 1, '+', 1))")
    for text in ("SELECT k FROM s ALLOW SHEDDING", "CREATE STREAM q AS SELECT k FROM s ALLOW SHEDDING UP TO 5 PERCENT"):
        with pytest.raises(StrandlineError) as caught:
            db.sql(text)
        assert caught.value.code == "shedding-changes"
    db.sql("SET SHEDDING UP TO 50 PERCENT")
    assert "kept_share" not in run(db).results().column_names


def test_the_operation_and_the_time_are_not_columns(db: Database) -> None:
    declared(db, "rows((1, 1, '+', 1))")
    for column in ("op", "ts"):
        with pytest.raises(StrandlineError) as caught:
            db.sql(f"SELECT {column} FROM s")
        assert caught.value.code == "unknown-column"
    described = {(row["property"], row["name"]) for row in db.sql("DESCRIBE s").results().to_pylist()}
    assert {("column", "k"), ("changes in", "op"), ("time", "ts")} <= described
    assert ("column", "op") not in described


def test_a_window_over_a_change_feed_is_refused_by_name(db: Database) -> None:
    declared(db, "rows((1, 1, '+', 1))")
    with pytest.raises(StrandlineError) as caught:
        db.sql("SELECT k FROM s WINDOW(ROWS 2)")
    assert caught.value.code == "window-over-intervals"
    assert "until its deletion" in str(caught.value)
    assert elements(run(db, "SELECT * FROM s WINDOW(NOW)")) == [(1, 1, 1, None)]


def test_a_live_feed_sends_each_change_once(db: Database) -> None:
    declared(db, "events()", "CHANGES IN op PRIMARY KEY (k)")
    sent: list[tuple[int, int]] = []
    query = db.sql("SELECT k, v FROM s", sink=sl.Callback(lambda _, table: sent.extend(_pairs(table))))
    db.append("s", [(key, key, "c", 1) for key in range(100)])
    for number in range(10):
        db.append("s", [(7, 100 + number, "u", 2 + number)])
        db.advance("s", 3 + number)
        end = time.monotonic() + 30
        while query.progress < 3 + number:
            query.check()
            assert time.monotonic() < end
            time.sleep(0.01)
    # Announced once; a change ends one element and begins another. The first may be over within its batch.
    assert 100 + 2 * 10 - 1 <= len(sent) <= 100 + 2 * 10
    assert Counter(sent)[7, 105] == 2 and Counter(sent)[8, 8] == 1


def _pairs(table: pa.Table) -> list[tuple[int, int]]:
    return [(row["k"], row["v"]) for row in table.to_pylist()]

"""SHOW TABLES, DESCRIBE and sys.tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from source_testing import wait_for
from strandline.core.errors import StrandlineError


@pytest.fixture
def database() -> Any:
    with sl.connect(engine="local") as database:
        yield database


def rows(database: Any, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in database.sql(text).results("arrow").to_pylist()]


def test_sys_tables_count_rows_changes_and_bytes(database: Any) -> None:
    database.sql("CREATE TABLE t (k INT, v VARCHAR, PRIMARY KEY (k)); CREATE TABLE u (k INT) CONSTANT")
    listed = "SELECT name, kind, key, rows, changes, last_change, retained_since, source FROM sys.tables ORDER BY name"
    assert rows(database, listed) == [
        ("t", "retroactive", "k", 0, 0, None, None, None),
        ("u", "constant", None, 0, 0, None, None, None),
    ]
    database.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b') AT TIMESTAMP '2024-01-01 00:00:00'")
    [(before,)] = rows(database, "SELECT log_bytes FROM sys.tables WHERE name = 't'")
    database.sql("UPDATE t SET v = 'c' WHERE k = 1 AT TIMESTAMP '2024-01-01 00:00:05'")
    [(count, changes, last)] = rows(database, "SELECT rows, changes, last_change FROM sys.tables WHERE name = 't'")
    assert (count, changes, str(last)) == (2, 4, "2024-01-01 00:00:05")
    [(after,)] = rows(database, "SELECT log_bytes FROM sys.tables WHERE name = 't'")
    assert after > before > 0  # type: ignore[operator]
    database.sql("DROP TABLE t")
    assert rows(database, "SELECT name FROM sys.tables") == [("u",)]


def test_tables_are_no_streams(database: Any) -> None:
    database.sql("CREATE TABLE t (k INT)")
    assert rows(database, "SELECT name FROM sys.streams") == []
    assert rows(database, "SHOW STREAMS") == []
    assert rows(database, "SHOW TABLES") == [("t", "retroactive", "k INT", None, 0, None, None, None, None)]


def test_sys_tables_count_the_rows_of_a_source(database: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,v\n1,a\n2,b\nx,c\n")
    path = str(tmp_path / "t.csv")
    database.sql(f"CREATE TABLE t (k INT, v VARCHAR, PRIMARY KEY (k)) SOURCE file('{path}') CONSTANT")
    listed = "SELECT name, kind, rows, read, rejected, late, state, error FROM sys.tables"
    assert rows(database, listed) == [("t", "constant", 2, 3, 1, 0, "ended", None)]
    assert rows(database, "SELECT source FROM sys.tables") == [(f"file('{path}')",)]


def test_the_state_of_a_source_is_shown_until_it_fails(database: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as origin:
        origin.execute("CREATE TABLE t (k INTEGER)")
    database.sql(f"CREATE TABLE t (k INT) SOURCE sqlite('{path}', table => 't', every => '20 milliseconds')")
    database.sql("CREATE TABLE plain (k INT)")
    states = "SELECT name, state, error FROM sys.tables ORDER BY name"
    assert rows(database, states) == [("plain", None, None), ("t", "running", None)]
    described = {row[0]: row[2] for row in rows(database, "DESCRIBE t")}
    assert described["state"] == "running" and not {"error", "remedy"} & described.keys()
    with sqlite3.connect(path) as origin:
        origin.execute("DROP TABLE t")
    wait_for(lambda: rows(database, states)[1][1] == "failed")
    error = rows(database, states)[1][2]
    assert isinstance(error, str) and error.startswith("table-unreadable: cannot read ")
    described = {row[0]: row[2] for row in rows(database, "DESCRIBE t")}
    assert (described["state"], described["error"]) == ("failed", error)
    [(remedy,)] = rows(database, "SELECT remedy FROM sys.tables WHERE name = 't'")
    assert described["remedy"] == remedy and str(remedy).endswith("the table resumes where it stopped.")
    with pytest.raises(StrandlineError) as caught:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 0)) ORDERED BY ts")
        database.sql("SELECT s.k FROM s JOIN t ON s.k = t.k").await_end(60)
    assert (caught.value.code, caught.value.hint) == ("feed-failed", remedy)
    assert rows(database, "SELECT remedy FROM sys.tables WHERE name = 'plain'") == [(None,)]
    shown = database.sql("SHOW TABLES").results("arrow").to_pylist()
    assert [(row["source"], str(row["error"])[:16]) for row in shown] == [
        ("failed", "table-unreadable"),
        (None, "None"),
    ]


def test_what_a_column_requires_is_described(database: Any) -> None:
    database.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT NOT NULL, b VARCHAR DEFAULT 'it''s' NOT NULL, c DOUBLE)")
    columns = [row[1:] for row in rows(database, "DESCRIBE t") if row[0] == "column"]
    assert columns == [("k", "INT"), ("a", "INT NOT NULL"), ("b", "VARCHAR NOT NULL DEFAULT 'it''s'"), ("c", "DOUBLE")]


def test_a_table_that_is_not_there_is_called_a_table(database: Any) -> None:
    with pytest.raises(StrandlineError) as caught:
        database.sql("DROP TABLE stok")
    assert caught.value.code == "unknown-table" and "CREATE TABLE" in str(caught.value.hint)
    database.sql("CREATE TABLE stock (k INT); DROP TABLE IF EXISTS stok")
    with pytest.raises(StrandlineError) as caught:
        database.sql("DROP TABLE stok")
    assert caught.value.hint == 'Did you mean "stock"?' and caught.value.span is not None

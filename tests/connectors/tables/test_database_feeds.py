"""Tables of other databases as sources of tables: a consistent snapshot, then polling."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import polars as pl
import psycopg
import pytest
from feed_testing import connect, content, history

from source_testing import wait_for
from strandline.core.errors import StrandlineError
from strandline.core.security.allow import Allow

Execute: TypeAlias = Callable[..., Any]
FAST = "every => '20 milliseconds'"


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Execute]:
    """How another database is called in SQL, up to its options, and how statements are run there."""
    if request.param == "sqlite":
        path = tmp_path / "other.db"

        def execute(*statements: str) -> Any:
            with sqlite3.connect(path) as connection:
                rows = [connection.execute(statement).fetchall() for statement in statements]
            connection.close()
            return rows[-1]

        return f"sqlite('{path}'", execute
    dsn = request.getfixturevalue("dsn")

    def run(*statements: str) -> Any:
        with psycopg.connect(dsn) as connection:
            found = [connection.execute(statement) for statement in statements]
            return found[-1].fetchall() if found[-1].description else None

    return f"postgresql('{dsn}'", run


def test_the_content_is_that_of_the_other_database(other: tuple[str, Execute]) -> None:
    call, execute = other
    execute(
        "CREATE TABLE c (id INTEGER PRIMARY KEY, city TEXT, rate DOUBLE PRECISION, since TIMESTAMP)",
        "INSERT INTO c VALUES (1, 'Oslo', 0.1, '2024-01-01 10:00:00'), (2, '', 1e-17, NULL), (3, NULL, NULL, NULL)",
    )
    with connect() as db:
        db.sql(
            "CREATE TABLE c (id BIGINT PRIMARY KEY, city VARCHAR, rate DOUBLE, since TIMESTAMP)"
            f" SOURCE {call}, table => 'c', {FAST})"
        )
        assert content(db, "c") == [
            (1, "Oslo", 0.1, datetime(2024, 1, 1, 10)),
            (2, "", 1e-17, None),
            (3, None, None, None),
        ]
        execute("INSERT INTO c VALUES (4, 'Rom', 4, NULL)", "DELETE FROM c WHERE id = 1", "UPDATE c SET city = 'x\"y'")
        wait_for(lambda: [row[:2] for row in content(db, "c")] == [(2, 'x"y'), (3, 'x"y'), (4, 'x"y')])
        changes = len(history(db, "c"))
        execute("UPDATE c SET rate = 5 WHERE id = 4")
        wait_for(lambda: content(db, "c")[-1][2] == 5.0)
        assert len(history(db, "c")) == changes + 1  # only what differs is written


def test_columns_may_be_left_out(other: tuple[str, Execute]) -> None:
    call, execute = other
    execute(
        "CREATE TABLE c (id INTEGER, ok BOOLEAN, day DATE, t TEXT)", "INSERT INTO c VALUES (1, TRUE, '2024-02-03', 'x')"
    )
    with connect() as db:
        db.sql(f"CREATE TABLE c SOURCE {call}, table => 'c') CONSTANT")
        assert [(row[1], str(row[2]), row[3]) for row in content(db, "c")] == [(True, "2024-02-03", "x")]
        execute("DELETE FROM c")
        assert len(content(db, "c")) == 1  # it was loaded as a whole


def test_numbers_of_postgresql_keep_their_type(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE n (a numeric(12, 3), z timestamptz, b bigint, u uuid)")
        connection.execute("INSERT INTO n VALUES (1.250, '2024-01-01 12:00:00+02', 9007199254740993, NULL)")
    with connect() as db:
        db.sql(f"CREATE TABLE n SOURCE postgresql('{dsn}', table => 'public.n')")
        assert content(db, "n") == [(Decimal("1.250"), datetime(2024, 1, 1, 10), 9007199254740993, None)]


def test_by_version_later_rows_replace_earlier_ones(other: tuple[str, Execute]) -> None:
    call, execute = other
    execute(
        "CREATE TABLE c (id INTEGER PRIMARY KEY, city TEXT, v INTEGER)",
        "INSERT INTO c VALUES (1, 'a', 1), (2, 'b', 2)",
    )
    declared = f"SOURCE {call}, table => 'c', version => 'v', {FAST})"
    with connect() as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c (id INT, city VARCHAR) {declared}")
        assert refused.value.code == "no-key"
        db.sql(f"CREATE TABLE c (id INT PRIMARY KEY, city VARCHAR) {declared}")
        execute("INSERT INTO c VALUES (3, 'c', 2)", "UPDATE c SET city = 'd', v = 3 WHERE id = 1")
        wait_for(lambda: content(db, "c") == [(1, "d"), (2, "b"), (3, "c")])
        assert len(history(db, "c")) == 4


def test_what_was_changed_meanwhile_is_seen_after_a_restart(other: tuple[str, Execute], tmp_path: Path) -> None:
    call, execute = other
    execute("CREATE TABLE c (id INTEGER, city TEXT)", "INSERT INTO c VALUES (1, 'a'), (2, 'b'), (2, 'b')")
    declared = f"CREATE TABLE c (id INT, city VARCHAR) SOURCE {call}, table => 'c', {FAST})"
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declared)
    execute("DELETE FROM c WHERE id = 1", "INSERT INTO c VALUES (5, 'e')")
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declared)
        assert content(db, "c") == [(2, "b"), (2, "b"), (5, "e")]


def test_a_table_that_is_gone_fails_the_queries_over_it(other: tuple[str, Execute]) -> None:
    call, execute = other
    execute("CREATE TABLE c (id INTEGER)", "INSERT INTO c VALUES (1)")
    with connect() as db:
        db.sql(f"CREATE TABLE c (id INT) SOURCE {call}, table => 'c', {FAST})")
        db.sql("CREATE TABLE d (id INT)")
        db.sql("CREATE STREAM e (id INT) SOURCE events()")
        over_c = db.sql("SELECT e.id FROM e WINDOW(RANGE 1 HOUR) JOIN c ON e.id = c.id", name="over_c")
        over_d = db.sql("SELECT e.id FROM e WINDOW(RANGE 1 HOUR) JOIN d ON e.id = d.id", name="over_d")
        execute("DROP TABLE c")
        with pytest.raises(StrandlineError) as failed:
            over_c.await_end(20)
        assert failed.value.code == "feed-failed" and "table" in str(failed.value)
        with pytest.raises(StrandlineError) as refused:
            db.sql("SELECT * FROM c")
        assert refused.value.code == "feed-failed"
        assert "failed" in str(db.sql("SHOW TABLES"))
        assert over_d.is_running


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("table => 'nothing'", "missing-table"),
        ("table => 'c', every => 'often'", "source-argument"),
        ("table => 'c', shows => 'all'", "source-argument"),
    ],
)
def test_what_cannot_work_is_refused(other: tuple[str, Execute], options: str, code: str) -> None:
    call, execute = other
    execute("CREATE TABLE c (id INTEGER)")
    with connect() as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c (id INT) SOURCE {call}, {options})")
        assert refused.value.code == code
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c (nr INT) SOURCE {call}, table => 'c')")
        assert refused.value.code == "missing-column"
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c (id BIGINT) SOURCE {call}, table => 'c') ORDERED BY id")
        assert refused.value.code == "not-supported"
    with connect(allow=Allow()) as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c (id INT) SOURCE {call}, table => 'c')")
        assert refused.value.code == "not-allowed"


def test_versions_of_a_delta_table_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "delta"

    def write(rows: dict[str, list[object]], mode: Any) -> None:
        deltalake.write_deltalake(str(path), pl.DataFrame(rows).to_arrow(), mode=mode)

    write({"id": [1, 2], "city": ["a", "b"]}, "append")
    with connect(tmp_path / "checkpoint") as db:
        db.sql(f"CREATE TABLE c SOURCE delta('{path}', {FAST})")
        assert content(db, "c") == [(1, "a"), (2, "b")]
        write({"id": [3], "city": ["c"]}, "append")
        wait_for(lambda: content(db, "c") == [(1, "a"), (2, "b"), (3, "c")])
        deltalake.DeltaTable(str(path)).delete("id = 1")
        wait_for(lambda: content(db, "c") == [(2, "b"), (3, "c")])
        assert len(history(db, "c")) == 3
    write({"id": [7], "city": ["z"]}, "overwrite")
    with connect(tmp_path / "checkpoint") as db:
        db.sql(f"CREATE TABLE c SOURCE delta('{path}', {FAST})")
        assert content(db, "c") == [(7, "z")]
    with connect() as db:
        with pytest.raises(StrandlineError) as refused:
            db.sql(f"CREATE TABLE c SOURCE delta('{tmp_path}/nothing')")
        assert refused.value.code == "missing-table"

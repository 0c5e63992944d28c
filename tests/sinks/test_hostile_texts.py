"""Texts and names that a database could take for something else."""

from __future__ import annotations

import pytest
from places import Server

import strandline as sl
from strandline.core.errors import StrandlineError

TEXTS = [
    "\\.",
    "before\n\\.\nafter",
    "\n\\.\n",
    "\\.\n",
    "\\N",
    "",
    " ",
    "NULL",
    '"',
    "a,b\tc",
    "\r\n",
    "\\",
    "\\\\n",
    "\\x41",
    "tab\\tno",
    "é☃\U0001f600",
    "'; DROP TABLE t; --",
    "{a,b}",
    "x" * 100_000,
]


def written(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("shows", ["elements", "snapshot"])
def test_every_text_comes_back_as_it_was(postgresql: Server, shows: str) -> None:
    rows = ", ".join(f"({written(text)}, {number}, {number})" for number, text in enumerate(TEXTS))
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (t VARCHAR, n INT, ts BIGINT) SOURCE rows({rows}, (NULL, -1, 99)) ORDERED BY ts")
        query = database.sql(
            f"CREATE SINK x INTO {postgresql.call('t', shows)} AS"
            " SELECT t, n, t || t AS twice FROM s WINDOW(RANGE UNBOUNDED)"
        )
        assert query.await_end(60)
    back = {n: (t, twice) for t, n, twice in postgresql.rows("SELECT t, n, twice FROM t")}
    assert back == {**{n: (t, t + t) for n, t in enumerate(TEXTS)}, -1: (None, None)}


def test_texts_in_arrays_come_back(postgresql: Server) -> None:
    rows = ", ".join(f"({written(text)}, {number})" for number, text in enumerate(TEXTS[:-1]))
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (t VARCHAR, ts BIGINT) SOURCE rows({rows}) ORDERED BY ts")
        query = database.sql(f"CREATE SINK x INTO {postgresql.call('t')} AS SELECT ARRAY_AGG(t) AS a FROM s")
        assert query.await_end(60)
    back = [a for (a,) in postgresql.rows("SELECT a FROM t WHERE a IS NOT NULL ORDER BY valid_from")]
    assert back == [[t] for t in TEXTS[:-1]]


def test_one_column_of_hostile_texts(postgresql: Server) -> None:
    """A row that is nothing but a text: an empty line, or the end of the data."""
    import polars as pl
    import psycopg

    from strandline.connectors.sinks.postgresql import _PostgreSQLStore
    from strandline.connectors.sinks.sql_table import TableSpec
    from strandline.core.types import VARCHAR

    server = _PostgreSQLStore(lambda: postgresql.dsn, psycopg, "")
    table = TableSpec("t", (("x", VARCHAR),))
    with server.transaction():
        server.create(table)
        server.append(table, pl.DataFrame({"x": [*TEXTS, None]}))
    server.close()
    assert [x for (x,) in postgresql.rows("SELECT x FROM t")] == [*TEXTS, None]


LONG = "n" * 63


@pytest.mark.parametrize(
    ("table", "column", "shows", "fits"),
    [
        (LONG, "k", "elements", True),
        (LONG + "a", "k", "elements", False),
        ("ä" * 32, "k", "elements", False),
        ("ä" * 31, "k", "elements", True),
        ("n" * 54, "k", "snapshot", True),
        ("n" * 55, "k", "snapshot", False),
        ("t", LONG, "elements", True),
        ("t", LONG + "a", "elements", False),
        (f"public.{LONG}", "k", "elements", True),
        (f"public.{LONG}a", "k", "elements", False),
        (f"{LONG}a.t", "k", "elements", False),
    ],
)
def test_names_that_would_be_cut_off_are_refused(
    postgresql: Server, table: str, column: str, shows: str, fits: bool
) -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 1)) ORDERED BY ts")
        statement = f"CREATE SINK x INTO {postgresql.call(table, shows)} AS SELECT k AS {column} FROM s"
        if fits:
            assert database.sql(statement).await_end(60)
            return
        with pytest.raises(StrandlineError) as caught:
            database.sql(statement)
    assert caught.value.code == "name-too-long"
    assert postgresql.rows("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)], "nothing was made"


@pytest.mark.parametrize("dsn", ["host=h password hunter2", "postgresql://u:hunter2@h:notaport/x", "hunter2"])
def test_a_connection_string_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 1)) ORDERED BY ts")
        with pytest.raises(StrandlineError) as caught:
            database.sql("SELECT k FROM s", sink=sl.PostgreSQL(dsn, "t"))
    assert "hunter2" not in str(caught.value)


def test_a_password_comes_from_the_environment(postgresql: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", postgresql.dsn)
    monkeypatch.setenv("DB_PASSWORD", "p w'd\\")
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 1)) ORDERED BY ts")
        query = database.sql(
            "CREATE SINK x INTO postgresql(secret('env:DB'), table => 't', password => secret('env:DB_PASSWORD'))"
            " AS SELECT k FROM s"
        )
        assert query.await_end(60)
        assert "p w" not in repr(query.sink) + str(database.sql("SHOW SINKS"))
    assert postgresql.rows("SELECT k FROM t") == [(1,)]

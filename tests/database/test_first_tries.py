"""Statements that people type first: SELECT without FROM, a look at some rows, now(), CREATE OR REPLACE, SHOW."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.database.database import Database
from strandline.database.query import Query

START = datetime(2024, 1, 1)


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql("""
            CREATE STREAM s (k VARCHAR, a INT, ts TIMESTAMP)
              SOURCE rows(('x', 1, '2024-01-01 00:00:00'), ('y', 2, '2024-01-01 00:00:05'),
                          ('x', 3, '2024-01-01 00:00:20'))
              ORDERED BY ts;
            CREATE TABLE t (k VARCHAR PRIMARY KEY, a INT);
            INSERT INTO t VALUES ('x', 1), ('y', 2);
        """)
        yield database


def rows(database: Database, text: str) -> list[tuple[object, ...]]:
    result = database.sql(text)
    assert not isinstance(result, Query), "it is executed at once"
    return [tuple(row.values()) for row in result.results().to_pylist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", [(1,)]),
        ("SELECT 1 + 1 AS two, 'a' || 'b' AS text;", [(2, "ab")]),
        ("SELECT 1 WHERE FALSE", []),
        ("SELECT COUNT(*) AS n", [(1,)]),
        ("VALUES (1, 'a'), (2, NULL)", [(1, "a"), (2, None)]),
        (
            "SELECT id, upper(name) AS name FROM (VALUES (1, 'one'), (2, 'two')) AS v(id, name) WHERE id > 1",
            [(2, "TWO")],
        ),
        ("SELECT column2 FROM (VALUES (1, 'a'))", [("a",)]),
        ("WITH x AS (SELECT 2 AS a) SELECT a * 2 AS b FROM x", [(4,)]),
        ("SELECT k FROM t WHERE a = 1 UNION ALL SELECT 'z'", [("x",), ("z",)]),
        ("TABLE t", [("x", 1), ("y", 2)]),
        ("SELECT `k` FROM `t` WHERE a = 2", [("y",)]),
        ("SELECT k FROM t WHERE a > 5 FETCH FIRST 3 ROWS ONLY", []),
    ],
)
def test_at_once(database: Database, text: str, expected: list[tuple[object, ...]]) -> None:
    assert sorted(rows(database, text), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "text", ["SELECT a", "SELECT *", "SELECT 1 UNION ALL SELECT a FROM s", "CREATE VIEW v AS SELECT 1"]
)
def test_without_from_there_are_no_columns_and_no_stream(database: Database, text: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        database.sql(text)
    assert caught.value.code == "missing-from"


# ---- a look ----------------------------------------------------------------------------------------------------------


def test_a_look_ends_when_its_rows_have_come(database: Database) -> None:
    database.sql(
        "CREATE STREAM endless (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 1000) ORDERED BY ts"
    )
    result = database.sql("SELECT value FROM endless LIMIT 5")
    assert result.results().to_pydict() == {"value": [0, 1, 2, 3, 4]}
    assert "the first 5 rows; the query has ended" in str(result)
    assert not database.queries, "it leaves no query behind"


def test_a_look_at_fewer_rows_than_there_are_to_see(database: Database) -> None:
    result = database.sql("WITH x AS (SELECT k FROM s WHERE k = 'x') SELECT * FROM x LIMIT 10")
    assert result.results().to_pydict() == {"k": ["x", "x"]}
    assert "2 rows; the sources have ended" in str(result)


@pytest.mark.parametrize(
    "text", ["CREATE STREAM v AS SELECT k FROM s LIMIT 2", "SELECT k FROM (SELECT k FROM s LIMIT 2) AS x"]
)
def test_a_part_of_a_continuous_query_is_no_look(database: Database, text: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        database.sql(text)
    assert caught.value.code == "not-supported"


# ---- now() -----------------------------------------------------------------------------------------------------------


def test_the_clock_of_a_statement_is_one_instant(database: Database) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    ((first, second, day),) = rows(database, "SELECT now() AS a, CURRENT_TIMESTAMP AS b, CURRENT_DATE AS c")
    assert first == second
    assert isinstance(first, datetime)
    assert before <= first.replace(tzinfo=None) <= datetime.now(UTC).replace(tzinfo=None)
    assert day == first.date()


CONDITIONS: dict[str, Callable[[float, float], bool] | None] = {
    "ts > now() - INTERVAL '10 seconds'": lambda ts, t: ts > t - 10,
    "ts >= now() - INTERVAL '10 seconds'": lambda ts, t: ts >= t - 10,
    "now() - INTERVAL '10 seconds' < ts": lambda ts, t: ts > t - 10,
    "ts BETWEEN now() - INTERVAL '10 seconds' AND now()": lambda ts, t: ts >= t - 10,
    "ts + INTERVAL '10 seconds' > now()": lambda ts, t: ts > t - 10,
    "mz_now() <= ts + INTERVAL '10 seconds'": lambda ts, t: ts >= t - 10,
    "now() - ts < INTERVAL '10 seconds'": lambda ts, t: ts > t - 10,
    "now() - ts <= INTERVAL '10 seconds' AND ts > now() - INTERVAL '7 seconds'": lambda ts, t: ts > t - 7,
    "ts > now() - INTERVAL '10 seconds' AND s.a <> 3": None,
}


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=15, deadline=None)
@given(times=st.lists(st.integers(0, 40), min_size=1, max_size=6), at=st.integers(0, 60))
def test_a_condition_on_now_is_the_window_of_the_stream(condition: str, times: list[int], at: int) -> None:
    """At every instant t, now() is t: what the condition says of the rows that have come by then."""
    holds = CONDITIONS[condition] or (lambda ts, t: ts > t - 10)
    listed = [(place, ts) for place, ts in enumerate(sorted(times))]
    values = ", ".join(f"({place}, '{START + timedelta(seconds=ts)}')" for place, ts in listed)
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (a INT, ts TIMESTAMP) SOURCE rows({values}) ORDERED BY ts")
        query = database.sql(f"SELECT a FROM s WHERE {condition}")
        assert query.await_end(60)
        for microsecond in (-1, 0, 1):
            t = at + microsecond / 1e6
            shown = query.snapshot(START + timedelta(seconds=at, microseconds=microsecond)).to_pydict()["a"]
            known = [place for place, ts in listed if ts <= t and holds(ts, t)]
            assert sorted(shown) == [a for a in known if a != 3 or CONDITIONS[condition] is not None]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT now() FROM s",
        "SELECT k FROM s WHERE ts < now()",
        "SELECT k FROM s WHERE ts < now() - INTERVAL '1 hour'",
        "SELECT k FROM s WINDOW(RANGE 1 HOUR) WHERE ts > now() - INTERVAL '1 hour'",
        "SELECT x.k FROM s x LEFT JOIN s y ON x.k = y.k WHERE y.ts > now() - INTERVAL '1 hour'",
        "SELECT k FROM (SELECT k, ts FROM s) x WHERE ts > now() - INTERVAL '1 hour'",
        "SELECT k FROM s WHERE ts > now() - INTERVAL '1 hour' OR a = 1",
    ],
)
def test_other_uses_of_now_in_a_continuous_query(database: Database, text: str) -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        database.sql(text)
    assert caught.value.code == "clock-continuous"


# ---- CREATE OR REPLACE, IF NOT EXISTS --------------------------------------------------------------------------------


def test_replace_a_table_by_a_query_over_itself(database: Database) -> None:
    database.sql("CREATE OR REPLACE TABLE t AS SELECT k, a + 1 AS b FROM t")
    assert sorted(rows(database, "SELECT * FROM t")) == [("x", 2), ("y", 3)]


def test_a_replacement_that_fails_leaves_the_old_one(database: Database) -> None:
    for text in (
        "CREATE OR REPLACE TABLE t (k VARCHAR) SOURCE file('missing.csv') CONSTANT",
        "CREATE OR REPLACE TABLE t AS SELECT missing FROM t",
        "CREATE OR REPLACE STREAM t AS SELECT k FROM s",
    ):
        with pytest.raises(sl.StrandlineError):
            database.sql(text)
    assert sorted(rows(database, "SELECT * FROM t")) == [("x", 1), ("y", 2)]


def test_replace_a_stream_unless_something_reads_it(database: Database) -> None:
    database.sql("CREATE OR REPLACE STREAM d AS SELECT k FROM s; CREATE OR REPLACE STREAM d AS SELECT a FROM s")
    assert rows(database, "SHOW COLUMNS FROM d") == [("a", "INT")]
    with pytest.raises(sl.StrandlineError, match="read by"):
        database.sql("CREATE OR REPLACE STREAM s (k VARCHAR, ts TIMESTAMP) SOURCE rows() ORDERED BY ts")
    with pytest.raises(sl.StrandlineError, match="refer to itself"):
        database.sql("CREATE OR REPLACE STREAM d AS SELECT a FROM d")


def test_replace_a_materialized_view(database: Database) -> None:
    database.sql("CREATE MATERIALIZED VIEW v AS SELECT MAX(a) AS a FROM s WINDOW(RANGE UNBOUNDED)").await_end()
    database.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT MIN(a) AS b FROM s WINDOW(RANGE UNBOUNDED)"
    ).await_end()
    assert rows(database, "SELECT * FROM v") == [(1,)]
    assert [query.name for query in database.queries] == ["v"]


def test_if_not_exists(database: Database) -> None:
    for kind, rest in (("STREAM", "AS SELECT k FROM s"), ("VIEW", "AS SELECT k FROM s")):
        assert database.sql(f"CREATE {kind} IF NOT EXISTS s {rest}") is None
    assert rows(database, "SHOW COLUMNS FROM s")[0] == ("k", "VARCHAR")
    with pytest.raises(sl.StrandlineError) as caught:
        database.sql("CREATE OR REPLACE STREAM IF NOT EXISTS s AS SELECT k FROM s")
    assert caught.value.code == "conflicting-clauses"


def test_lists(database: Database) -> None:
    assert rows(database, "DESCRIBE SELECT k, COUNT(*) AS n FROM s GROUP BY k") == [("k", "VARCHAR"), ("n", "BIGINT")]
    assert str(database.sql("DESC t")) == str(database.sql("DESCRIBE TABLE t")) == str(database.sql("DESCRIBE t"))
    assert ("abs", "abs(x)") in [row[:2] for row in rows(database, "SHOW FUNCTIONS")]
    assert "Scan s" in database.sql("EXPLAIN PLAN FOR SELECT k FROM s")
    assert database.sql("-- nothing but a comment\n;") is None

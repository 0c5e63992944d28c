"""Notices of statements: where a window or an order was probably forgotten, and where it was not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import strandline as sl
from strandline.database.database import Database

CREATE = """CREATE STREAM a (k INT, x DOUBLE, ts TIMESTAMP) SOURCE rows() ORDERED BY ts;
CREATE STREAM b (k INT, y DOUBLE, ts TIMESTAMP) SOURCE rows() ORDERED BY ts;
CREATE STREAM v (k INT, begin TIMESTAMP, stop TIMESTAMP) SOURCE rows() VALID FROM begin UNTIL stop;
CREATE TABLE t (k INT PRIMARY KEY, n VARCHAR)"""


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.catalog.notices.show = None
        database.sql(CREATE)
        assert database.catalog.notices.take() == []
        yield database


FORGOTTEN = [
    ("SELECT k, count(*) AS n FROM a GROUP BY k", "a is read without a window: an aggregate meets only rows of the"),
    ("SELECT count(*) AS n FROM a WHERE x > 1", "a is read without a window: an aggregate"),
    ("SELECT count(*) AS n FROM a AS late", "late is read without a window"),
    ("SELECT t.n, count(*) AS c FROM a JOIN t ON a.k = t.k GROUP BY t.n", "a is read without a window: an aggregate"),
    ("SELECT s.k, sum(s.x) AS n FROM (SELECT k, x FROM a WHERE x > 1) s GROUP BY s.k", "s is read without a window"),
    ("WITH w AS (SELECT k, count(*) AS c FROM a GROUP BY k) SELECT * FROM w", "a is read without a window"),
    ("SELECT a.k FROM a, b WHERE a.k = b.k", "a and b are read without a window: rows meet only rows of the same"),
    ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k", "a and b are read without a window"),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "a and b are read without a window"),
    ("SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)", "a and b are read without a window"),
    ("SELECT k FROM a WHERE x > (SELECT avg(y) FROM b)", "b is read without a window: an aggregate"),
    ("SELECT DISTINCT k FROM a", "a is read without a window: DISTINCT"),
    ("SELECT k, x FROM a ORDER BY x DESC LIMIT 3", "a is read without a window: ORDER BY"),
    ("SELECT k FROM a EXCEPT SELECT k FROM b", "a and b are read without a window: rows"),
    ("SELECT k FROM a INTERSECT ALL SELECT k FROM b", "a and b are read without a window: rows"),
    ("SELECT k FROM t EXCEPT SELECT k FROM a", "a is read without a window: each"),
    ("SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = t.k)", "a is read without a window: each"),
    ("SELECT k FROM t WHERE k IN (SELECT k FROM a)", "a is read without a window: each"),
    ("SELECT t.k, a.x FROM t LEFT JOIN a ON a.k = t.k", "a is read without a window: each"),
    ("SELECT c.k, a.x FROM b WINDOW(RANGE 1 HOUR) c LEFT JOIN a ON a.k = c.k", "a is read without a window: each"),
    ("SELECT k, sum(x) OVER () AS n FROM a", "a is read without a window: an aggregate"),
    ("SELECT k, sum(x) OVER (PARTITION BY k) AS n FROM a AS p", "p is read without a window: an aggregate"),
]

MEANT = [
    "SELECT k, x FROM a WHERE x > 3",
    "SELECT k, count(*) AS n FROM a WINDOW(NOW) GROUP BY k",
    "SELECT k, count(*) AS n FROM a [NOW] GROUP BY k",
    "SELECT k, count(*) AS n FROM a WINDOW(RANGE 1 HOUR) GROUP BY k",
    "SELECT k, count(*) AS n FROM a WINDOW(ROWS 10) GROUP BY k",
    "SELECT ts, count(*) AS n FROM a GROUP BY ts",
    "SELECT s.at, count(*) AS n FROM (SELECT k, ts AS at FROM a WHERE x > 1) s GROUP BY s.at",
    "SELECT a.k FROM a JOIN b ON a.k = b.k AND a.ts = b.ts",
    "SELECT a.k FROM a, b WHERE a.k = b.k AND a.ts = b.ts",
    "SELECT a.k FROM a JOIN b WINDOW(RANGE 1 HOUR) ON a.k = b.k",
    "SELECT a.k FROM a LEFT JOIN b WINDOW(RANGE 1 HOUR) ON a.k = b.k",
    "SELECT a.k, count(*) AS n FROM a, b WINDOW(RANGE 1 HOUR) WHERE a.k = b.k GROUP BY a.k",
    "SELECT a.k FROM a JOIN t ON a.k = t.k",
    "SELECT a.k FROM a JOIN v ON a.k = v.k",
    "SELECT k, count(*) AS n FROM v GROUP BY k",
    "SELECT k FROM a WHERE x > (SELECT avg(y) FROM b WINDOW(RANGE 1 HOUR))",
    "SELECT k FROM a WHERE x > (SELECT avg(y) FROM b WINDOW(RANGE 1 HOUR) WHERE b.y < a.x)",
    "SELECT k FROM a UNION ALL SELECT k FROM b",
    "SELECT k FROM a EXCEPT SELECT k FROM t",
    "SELECT k FROM t INTERSECT SELECT k FROM a",
    "SELECT k FROM t EXCEPT SELECT k FROM a WINDOW(RANGE 1 HOUR)",
    "SELECT k FROM t EXCEPT SELECT k FROM a WINDOW(NOW)",
    "SELECT a.k FROM a LEFT JOIN t ON a.k = t.k",
    "SELECT t.k FROM t JOIN a ON a.k = t.k",
    "SELECT k, sum(x) OVER () AS n FROM a WINDOW(RANGE 1 HOUR)",
    "SELECT k, sum(x) OVER (PARTITION BY k ORDER BY ts) AS n FROM a",
    "SELECT k, sum(x) OVER (PARTITION BY ts) AS n FROM a",
    "SELECT count(*) AS n FROM ISTREAM(SELECT k FROM a WINDOW(RANGE 1 HOUR)) i",
]


@pytest.mark.parametrize(("sql", "text"), FORGOTTEN)
def test_a_forgotten_window_is_said_with_what_to_write(db: Database, sql: str, text: str) -> None:
    query = db.sql(sql)
    [notice] = [notice for notice in db.catalog.notices.take() if notice.code != "no-rows"]  # the streams are empty
    assert notice.code == "no-window"
    assert notice.text.startswith(text)
    assert notice.remedy is not None and "WINDOW(RANGE 10 MINUTES)" in notice.remedy
    assert notice in query.notices()


@pytest.mark.parametrize("sql", MEANT)
def test_nothing_is_said_where_it_is_meant(db: Database, sql: str) -> None:
    db.sql(f"EXPLAIN {sql}")
    assert db.catalog.notices.take() == []


@pytest.mark.parametrize(
    "key", ["date_trunc('month', ts)", "extract(hour FROM ts)", "date_bin(INTERVAL '1 hour', ts, ts)"]
)
def test_groups_of_times_that_are_no_intervals_of_fixed_length(db: Database, key: str) -> None:
    db.sql(f"EXPLAIN SELECT {key} AS h, count(*) AS n FROM a GROUP BY {key}")
    [notice] = db.catalog.notices.take()
    assert notice.code == "time-groups"
    assert notice.remedy is not None
    window = "WINDOW(RANGE 1 HOUR SLIDE 1 HOUR)" if "date_bin" in key else "WINDOW(RANGE UNBOUNDED)"
    assert f"FROM a {window}" in notice.remedy
    db.sql(f"EXPLAIN SELECT {key} AS h, count(*) AS n FROM a {window} GROUP BY {key}")
    assert db.catalog.notices.take() == []


@pytest.mark.parametrize(
    ("sql", "window"),
    [
        (
            "SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM a GROUP BY date_trunc('hour', ts)",
            "1 HOUR SLIDE 1 HOUR",
        ),
        ("SELECT date_trunc('day', ts) AS d, k, count(*) AS n FROM a GROUP BY 1, 2", "1 DAY SLIDE 1 DAY"),
        ("SELECT date_trunc('week', ts) AS w, count(*) AS n FROM a GROUP BY w", "7 DAYS SLIDE 7 DAYS OFFSET 4 DAYS"),
        ("SELECT ts::date AS d, count(*) AS n FROM a GROUP BY d", "1 DAY SLIDE 1 DAY"),
        ("SELECT time_bucket(INTERVAL '6 hours', ts) AS b, sum(x) AS n FROM a GROUP BY ALL", "6 HOURS SLIDE 6 HOURS"),
        (
            "SELECT date_bin('15 minutes', ts, '2001-01-01 00:05:00') AS b, count(*) AS n FROM a GROUP BY b",
            "15 MINUTES SLIDE 15 MINUTES OFFSET 5 MINUTES",
        ),
        (
            "SELECT date_trunc('day', ts) AS d, date_trunc('hour', ts) AS h, count(*) AS n FROM a GROUP BY 1, 2",
            "1 HOUR SLIDE 1 HOUR",
        ),
    ],
)
def test_the_window_of_groups_of_times_follows_from_group_by(db: Database, sql: str, window: str) -> None:
    derived = db.sql(f"EXPLAIN {sql}")
    [notice] = db.catalog.notices.take()
    assert notice.code == "derived-windows"
    assert notice.text == f"the window follows from GROUP BY: a WINDOW(RANGE {window})"
    assert db.sql("EXPLAIN " + sql.replace(" FROM a ", f" FROM a WINDOW(RANGE {window}) ")) == derived
    assert db.catalog.notices.take() == []


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        # Another stream would be read when an hour ends, and not at the instants of the rows.
        ("SELECT date_trunc('hour', a.ts) AS h, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY h", "no-window"),
        (
            "SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM a"
            " WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) GROUP BY h",
            "no-window",
        ),
        # The total of all rows is no group of an hour.
        (
            "SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM a GROUP BY ROLLUP (date_trunc('hour', ts))",
            "time-groups",
        ),
    ],
)
def test_no_window_follows_where_the_groups_would_be_others(db: Database, sql: str, code: str) -> None:
    db.sql(f"EXPLAIN {sql}")
    assert code in [notice.code for notice in db.catalog.notices.take()]


@pytest.mark.parametrize(
    "sql", ["SELECT k, x FROM a ORDER BY x DESC", "WITH w AS (SELECT k FROM a) SELECT k FROM w ORDER BY 1"]
)
def test_an_order_without_a_limit_is_left_out_and_said(db: Database, sql: str) -> None:
    plan = db.sql(f"EXPLAIN {sql}")
    assert [notice.code for notice in db.catalog.notices.take()] == ["unordered-result"]
    assert db.sql(f"EXPLAIN {sql.partition(' ORDER BY')[0]}") == plan
    assert db.catalog.notices.take() == []


def test_the_time_of_a_stream_as_a_local_time_of_a_zone(db: Database) -> None:
    db.sql("EXPLAIN SELECT k, ts AT TIME ZONE 'America/New_York' AS there FROM a")
    [notice] = db.catalog.notices.take()
    assert notice.code == "time-zone"
    assert notice.remedy is not None and "ts AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York'" in notice.remedy
    db.sql("EXPLAIN SELECT k, ts AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York' AS there FROM a")
    assert db.catalog.notices.take() == []


def test_a_derived_stream_says_it_when_it_is_declared_and_its_query_keeps_it(db: Database) -> None:
    db.sql("CREATE STREAM counts AS SELECT k, count(*) AS n FROM a GROUP BY k")
    assert [notice.code for notice in db.catalog.notices.take()] == ["no-window"]
    query = db.query("counts")
    assert db.catalog.notices.take() == [] or query.ended  # an ended one may say that it has no row
    assert "no-window" in [notice.code for notice in query.notices()]


def test_every_statement_says_it_again(db: Database) -> None:
    for _ in range(2):
        db.sql("EXPLAIN SELECT count(*) AS n FROM a")
        assert [notice.code for notice in db.catalog.notices.take()] == ["no-window"]


def test_a_materialized_view_is_bound_twice_and_says_it_once(db: Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM a GROUP BY k")
    assert [notice.code for notice in db.catalog.notices.take()].count("no-window") == 1

"""Statements over stored relations, executed at once: order, types, keys, the past, and system tables beside them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.tables.store import TableStore
from strandline.core.errors import ArgumentError, StrandlineError
from strandline.core.table import TextTable
from strandline.core.temporal import DAY, instant
from strandline.core.types import INT, VARCHAR
from strandline.database.database import Database
from strandline.logical.catalog import Table

TABLES = """
CREATE TABLE t (k INT, d DATE, ts TIMESTAMP, m DECIMAL(6, 2), w VARCHAR, PRIMARY KEY (k));
CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 0)) ORDERED BY ts;
"""
FIRST = """INSERT INTO t VALUES
  (1, '2024-01-02', '2024-01-02 03:04:05.000006', 1.50, 'b'), (2, NULL, NULL, NULL, NULL), (3, '1969-12-31',
   '1969-12-31 23:59:59', -0.01, 'a') AT TIMESTAMP '2024-01-01'"""


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(TABLES)
        database.sql(FIRST)
        yield database


def rows(database: Database, text: str) -> list[tuple[object, ...]]:
    result = database.sql(text)
    assert isinstance(result, TextTable)
    return [tuple(row.values()) for row in result.results().to_pylist()]


def code_of(database: Database, text: str) -> str:
    with pytest.raises(StrandlineError) as caught:
        database.sql(text)
    return caught.value.code


def test_values_come_in_their_types(database: Database) -> None:
    assert rows(database, "SELECT * FROM t ORDER BY k") == [
        (1, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 6), Decimal("1.50"), "b"),
        (2, None, None, None, None),
        (3, date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59), Decimal("-0.01"), "a"),
    ]
    frame = database.sql("SELECT d, m FROM t WHERE k = 3").results("polars")
    assert frame.rows() == [(date(1969, 12, 31), Decimal("-0.01"))]
    assert database.sql("SELECT w FROM t").results("pandas").shape == (3, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k FROM t ORDER BY w DESC NULLS LAST", [(1,), (3,), (2,)]),
        ("SELECT w FROM t ORDER BY m NULLS FIRST", [(None,), ("a",), ("b",)]),
        ("SELECT k FROM t ORDER BY k DESC LIMIT 2", [(3,), (2,)]),
        ("SELECT k IS NULL AS n FROM t ORDER BY n LIMIT 1", [(False,)] * 3),  # with ties
        ("SELECT COUNT(*) AS n FROM t LIMIT 5", [(3,)]),
        ("SELECT COUNT(*) AS n FROM t WHERE k > 100", [(0,)]),
        ("SELECT a.k, b.k AS j FROM t a JOIN t b ON a.k = b.k - 1 ORDER BY 1", [(1, 2), (2, 3)]),
        ("SELECT k FROM t WHERE k IN (SELECT k FROM t WHERE w IS NULL)", [(2,)]),
        ("WITH x AS (SELECT k FROM t) SELECT k FROM x WHERE k = 1 UNION ALL SELECT k FROM x WHERE k = 3", [(1,), (3,)]),
        ("SELECT k FROM t WHERE 2 = k AND w IS NULL", [(2,)]),
        ("SELECT k FROM t WHERE k = 2 AND k = 3", []),
        ("SELECT k FROM t WHERE k = 4000000000", []),
        ("SELECT k FROM t WHERE k = 2.5", []),
    ],
)
def test_the_language_over_tables(database: Database, text: str, expected: list[tuple[object, ...]]) -> None:
    assert rows(database, text) == expected


def test_a_limit_without_an_order_takes_any_rows(database: Database) -> None:
    assert len(rows(database, "SELECT k FROM t LIMIT 2")) == 2
    assert len(rows(database, "WITH x AS (SELECT k FROM t) SELECT k FROM x LIMIT 1")) == 1
    database.sql("CREATE TABLE two AS SELECT k FROM t ORDER BY k DESC LIMIT 2")
    assert sorted(rows(database, "SELECT k FROM two")) == [(2,), (3,)]


def test_a_key_is_looked_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableStore, "content", lambda store: pytest.fail("the whole table is read"))
    assert rows(database, "SELECT w FROM t WHERE k = 1 AND m > 0") == [("b",)]
    assert rows(database, "SELECT w FROM (SELECT k + 0 AS j, k, w FROM t) x WHERE x.k = 3") == [("a",)]


def test_the_past_is_read_at_its_instant(database: Database) -> None:
    database.sql("UPDATE t SET w = 'c' WHERE k = 1 AT TIMESTAMP '2024-01-03'")
    database.sql("DELETE FROM t WHERE k = 3 AT TIMESTAMP '2024-01-04'")
    past = rows(database, "SELECT k, w FROM t AT TIMESTAMP '2024-01-02' WHERE k <> 2 ORDER BY k")
    assert past == [(1, "b"), (3, "a")]
    assert rows(database, "SELECT w FROM t FOR SYSTEM_TIME AS OF '2024-01-03' WHERE k = 1") == [("c",)]
    assert rows(database, "SELECT k FROM t AT TIMESTAMP '2023-12-31'") == []
    joined = "SELECT n.w, o.w AS old FROM t n JOIN t AT TIMESTAMP '2024-01-02' AS o ON n.k = o.k WHERE n.k = 1"
    assert rows(database, joined) == [("c", "b")]


def test_rows_of_a_temporal_table_have_periods(database: Database) -> None:
    database.sql("CREATE TABLE p (x INT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b")
    database.sql("INSERT INTO p VALUES (1, '2024-01-01', '2024-01-02'), (2, '2024-01-02', NULL)")
    assert rows(database, "SELECT x FROM p ORDER BY x") == [(1,), (2,)]
    assert rows(database, "SELECT x FROM p AT TIMESTAMP '2024-01-01 12:00:00'") == [(1,)]
    assert rows(database, "SELECT x FROM p AT TIMESTAMP '2024-01-02'") == [(2,)]


def test_system_tables_are_read_beside_tables(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k, w FROM t WHERE k < 3")
    text = "SELECT s.name, v.k FROM sys.streams s JOIN v ON v.k = 1 ORDER BY s.name LIMIT 1"
    assert rows(database, text) == [("s", 1)]
    database.sql("CREATE TABLE streams AS SELECT name, kind FROM sys.streams")
    assert ("s", "source") in rows(database, "SELECT name, kind FROM streams")
    assert code_of(database, "SELECT * FROM sys.streams, t, s") == "system-and-streams"


def test_a_stream_is_not_read_at_once(database: Database) -> None:
    assert code_of(database, "INSERT INTO t (k) SELECT k FROM s") == "not-a-table"


def test_a_table_of_a_query_is_there_as_a_whole_or_not_at_all(database: Database) -> None:
    assert str(database.sql("CREATE TABLE u (j, w) AS SELECT k + 1, w FROM t WHERE k > 1")).startswith(
        "2 rows inserted"
    )
    assert rows(database, "SELECT j, w FROM u ORDER BY j") == [(3, None), (4, "a")]
    assert database.sql("CREATE TABLE IF NOT EXISTS u AS SELECT k FROM t") is None
    assert code_of(database, "CREATE TABLE U AS SELECT k FROM t") == "stream-exists"
    database.function("fails", lambda k: 1 / 0, arguments=["INT"], returns="INT")
    with pytest.raises(Exception, match=r"fails|division"):
        database.sql("CREATE TABLE x AS SELECT fails(k) AS k FROM t")
    assert "x" not in database.catalog
    database.sql("CREATE TABLE x AS SELECT k FROM t")
    assert len(database.table("x")) == 3


def test_an_insertion_of_a_query_is_one_change(database: Database) -> None:
    change = database.sql("INSERT INTO t (k, w) SELECT k + 10, w FROM t")
    assert (change.inserted, change.deleted) == (3, 0)
    assert code_of(database, "INSERT INTO t (k) SELECT k + 1 FROM t") == "duplicate-key"
    assert rows(database, "SELECT COUNT(*) AS n FROM t") == [(6,)]


def test_changes_from_python(database: Database) -> None:
    assert str(database.insert("T", [(4, None, None, None, "x")], at="2024-02-01")) == (
        "1 row inserted at 2024-02-01 00:00:00"
    )
    assert database.upsert("t", [{"k": 4, "w": "y"}, {"k": 5, "w": "z"}]).inserted == 2
    changed = database.update("t", {"w": "upper(w) -- loud", "m": "k + 0.5"}, where="k >= 4 -- new")
    assert str(changed).startswith("2 rows replaced at ")
    assert rows(database, "SELECT w, m FROM t WHERE k >= 4 ORDER BY k") == [
        ("Y", Decimal("4.50")),
        ("Z", Decimal("5.50")),
    ]
    later = instant(changed.at) + 1_000_000
    assert database.delete("t", "w = 'Y'", at=later).at == later
    assert str(database.delete("t", "w = 'Y'")) == "nothing changed"
    assert database.delete("t").deleted == 4
    with pytest.raises(StrandlineError) as caught:
        database.insert("s", [(1, 1)])
    assert caught.value.code == "not-a-table"
    database.sql('CREATE TABLE "odd ""name" ("a b" INT)')
    database.insert('odd "name', [(1,)])
    assert database.update('odd "name', {"a b": '"a b" + 1'}).inserted == 1


def test_values_that_must_be_there_and_defaults_from_python(database: Database) -> None:
    database.sql("CREATE TABLE n (k INT PRIMARY KEY, a INT NOT NULL, b VARCHAR DEFAULT 'x')")
    database.upsert("n", [{"k": 1, "a": 1}, {"k": 2, "a": 2, "b": None}])
    assert rows(database, "SELECT k, a, b FROM n ORDER BY k") == [(1, 1, "x"), (2, 2, None)]
    for given in ([(3, 3, "y"), (4, None, "z")], pl.DataFrame({"k": [3, 4], "a": [3, None], "b": ["y", "z"]})):
        with pytest.raises(StrandlineError) as caught:
            database.insert("n", given)
        assert caught.value.code == "null-value" and "Row 2 is (4, None, 'z')" in str(caught.value)
    with pytest.raises(StrandlineError) as caught:
        database.update("n", {"a": "CASE WHEN k = 1 THEN a END"})
    assert caught.value.code == "null-value" and "^" in str(caught.value)
    assert code_of(database, "INSERT INTO n VALUES (1, nullif(1, 1), 'y') ON CONFLICT DO NOTHING") == "null-value"
    assert code_of(database, "INSERT INTO n SELECT k, nullif(a, 2), b FROM n ON CONFLICT DO NOTHING") == "null-value"
    assert rows(database, "SELECT k, a FROM n ORDER BY k") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("form", ["polars", "arrow", "batch", "pandas"])
def test_frames_may_leave_out_columns_that_have_a_value_without_them(database: Database, form: str) -> None:
    database.sql("""CREATE TABLE n (k INT PRIMARY KEY, a INT NOT NULL, b VARCHAR NOT NULL DEFAULT 'x', m DECIMAL(6, 2)
                    DEFAULT 1.50, d DATE DEFAULT '2024-01-02', w VARCHAR)""")

    def frame(**columns: list[Any]) -> Any:
        table = pa.table(columns)
        forms = {"polars": pl.from_arrow, "pandas": pa.Table.to_pandas, "batch": lambda each: each.to_batches()[0]}
        return forms.get(form, lambda each: each)(table)

    table = database.table("n")
    assert table.insert(frame(a=[1, 2], k=[1, 2])).inserted == 2
    assert table.insert(frame(w=["w"], k=[3], m=[Decimal("2.00")], a=[3])).inserted == 1
    others = ("x", Decimal("1.50"), date(2024, 1, 2))
    assert rows(database, "SELECT k, a, b, m, d, w FROM n ORDER BY k") == [
        (1, 1, *others, None),
        (2, 2, *others, None),
        (3, 3, "x", Decimal("2.00"), date(2024, 1, 2), "w"),
    ]
    refused = (
        (table.insert, {"k": [4]}, "missing columns: a"),  # NOT NULL, and without a default
        (table.insert, {"a": [4], "key": [4]}, "missing columns: k; unknown columns: key"),
        (table.upsert, {"k": [1], "a": [9]}, "missing columns: b, m, d, w"),  # they would lose what they have
        (table.replace, {"k": [1], "a": [9], "b": ["y"]}, "missing columns: m, d, w"),
    )
    for change, columns, message in refused:
        with pytest.raises(StrandlineError) as caught:
            change(frame(**columns))
        assert caught.value.code == "unfit-rows" and message in caught.value.message
    assert len(table) == 3


def test_a_table_of_a_query_is_filled_once(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k INT); CREATE TABLE u AS SELECT COUNT(*) AS n FROM t"
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(script)
        database.sql("INSERT INTO t VALUES (1)")
    with sl.connect(engine="local", checkpoint=tmp_path) as database:
        database.sql(script)
        assert rows(database, "SELECT n FROM u") == [(0,)]


def test_a_table_of_a_query_has_what_other_tables_have(database: Database) -> None:
    database.sql("CREATE TABLE u PRIMARY KEY (k) NON RETROACTIVE KEEP 1 DAY AS SELECT k, w FROM t")
    declared = database.catalog.get("u")
    assert isinstance(declared, Table) and declared.key == ("k",) and declared.keep_us == DAY
    assert not declared.retroactive and declared.columns == (("k", INT), ("w", VARCHAR))
    database.sql("INSERT INTO u VALUES (1, 'new') ON CONFLICT DO UPDATE SET w = excluded.w")
    assert rows(database, "SELECT k, w FROM u ORDER BY k") == [(1, "new"), (2, None), (3, "a")]
    database.sql("CREATE TABLE v (n PRIMARY KEY, x NOT NULL DEFAULT 'x') AS SELECT k, w FROM t WHERE w IS NOT NULL")
    database.sql("INSERT INTO v (n) VALUES (9)")
    assert rows(database, "SELECT n, x FROM v ORDER BY n") == [(1, "b"), (3, "a"), (9, "x")]
    for text, code in (
        ("CREATE TABLE y PRIMARY KEY (one) AS SELECT 1 AS one FROM t", "duplicate-key"),
        ("CREATE TABLE y PRIMARY KEY (w) AS SELECT w FROM t", "null-key"),
        ("CREATE TABLE y (w NOT NULL) AS SELECT w FROM t", "null-value"),
    ):
        assert code_of(database, text) == code
    assert "y" not in database.catalog  # all or nothing


def test_a_query_makes_a_temporal_table(database: Database) -> None:
    database.sql("""CREATE TABLE rates (k, a, b) VALID FROM a UNTIL b AS
                    SELECT k, TIMESTAMP '1970-01-01', TIMESTAMP '1970-01-01 00:00:01' FROM t WHERE k < 3""")
    query = database.sql("SELECT s.k, r.a FROM s JOIN rates r ON s.k = r.k")
    assert query.await_end(60) and query.results().num_rows == 1
    assert rows(database, "SELECT k FROM rates AT TIMESTAMP '1970-01-01 00:00:00.5' ORDER BY k") == [(1,), (2,)]
    assert rows(database, "SELECT k FROM rates AT TIMESTAMP '1970-01-01 00:00:01'") == []


def test_the_history_between_two_instants(database: Database) -> None:
    database.sql("CREATE TABLE h (k INT, v VARCHAR, PRIMARY KEY (k))")
    for second, value in enumerate("abcd"):
        database.upsert("h", [(1, value), (second + 10, value)], at=f"2024-01-01 00:00:0{second}")

    def values(**bounds: Any) -> list[tuple[str, bool]]:
        rows = database.table("h").history(**bounds).to_pylist()
        return [(row["v"], row["valid_until"] is None) for row in rows if row["k"] == 1]

    assert values() == [("a", False), ("b", False), ("c", False), ("d", True)]
    assert values(since="2024-01-01 00:00:02") == [("c", False), ("d", True)]
    assert values(until="2024-01-01 00:00:02") == [("a", False), ("b", True)]
    assert values(since="2024-01-01 00:00:01", until="2024-01-01 00:00:03") == [("b", False), ("c", True)]
    with pytest.raises(ArgumentError, match="since of history"):
        values(since="2024-01-01 00:00:03", until="2024-01-01 00:00:03")
    with pytest.raises(ArgumentError, match="until of history"):
        values(until="tomorrow")

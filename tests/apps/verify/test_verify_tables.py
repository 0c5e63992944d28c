"""`strandline verify` of queries over tables: the elements of a table come from its log, look-ups go by row times."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.apps.verify import script as scripts
from strandline.apps.verify import shrink
from strandline.apps.verify.check import Verdict
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.record import record_table
from strandline.apps.verify.report import render
from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.errors import not_replayable
from strandline.connectors.tables.source import TableSource
from strandline.connectors.tables.store import TableStore
from strandline.core.temporal import ALWAYS, FOREVER, OPEN, SECOND
from strandline.core.types import VARCHAR
from strandline.logical.catalog import Table
from strandline.runtime.kernels.batch import FROM, UNTIL

HISTORY = """
CREATE STREAM s (k INT, v VARCHAR, ts TIMESTAMP) SOURCE rows(
  (1, 'a', '2024-01-01 00:00:01'), (2, 'b', '2024-01-01 00:00:02'), (1, 'c', '2024-01-01 00:00:05'),
  (3, 'd', '2024-01-01 00:00:06'), (1, 'e', '2024-01-01 00:00:09')) ORDERED BY ts;
CREATE TABLE n (k INT, p VARCHAR, PRIMARY KEY (k)) NON RETROACTIVE;
CREATE TABLE r (k INT, p VARCHAR, PRIMARY KEY (k));
CREATE TABLE c (k INT) CONSTANT;
INSERT INTO c VALUES (1), (1), (4);
CREATE TABLE d (k INT, p INT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b;
INSERT INTO d VALUES (1, 7, '2024-01-01 00:00:00', '2024-01-01 00:00:03'), (1, 8, '2024-01-01 00:00:03', NULL);
INSERT INTO n VALUES (1, 'p'), (2, 'x') AT TIMESTAMP '2023-12-31 00:00:00';
INSERT INTO r VALUES (1, 'p'), (2, 'x');
UPDATE n SET p = 'q' WHERE k = 1 AT TIMESTAMP '2024-01-01 00:00:04';
DELETE FROM n WHERE k = 1 AT TIMESTAMP '2024-01-01 00:00:07';
"""
QUERIES = """
SELECT s.k, s.v, n.p FROM s [RANGE 4 SECONDS] JOIN n ON s.k = n.k;
SELECT s.k, s.v, r.p FROM s [RANGE 4 SECONDS] JOIN r ON s.k = r.k;
SELECT s.k, n.p FROM s [ROWS 2] LEFT JOIN n USING (k);
SELECT s.k, n.p FROM n RIGHT JOIN s [RANGE 3 SECONDS] ON s.k = n.k;
SELECT s.k, EXISTS (SELECT 1 FROM n WHERE n.k = s.k) AS e FROM s [RANGE 4 SECONDS];
SELECT s.k, (SELECT MAX(p) FROM n WHERE n.k = s.k) AS e FROM s [RANGE 4 SECONDS];
SELECT s.k, t.p FROM s [RANGE 3 SECONDS] JOIN r FOR SYSTEM_TIME AS OF s.ts AS t ON s.k = t.k;
SELECT q.k, m.c FROM (SELECT k FROM s [RANGE 3 SECONDS] UNION ALL SELECT k + 1 FROM s [RANGE 1 SECOND]) q
  JOIN (SELECT COUNT(*) AS c FROM n) m ON q.k >= m.c;
SELECT a.k, n.p FROM s [RANGE 3 SECONDS] a JOIN s [RANGE 6 SECONDS] b ON a.k = b.k, n WHERE n.k = a.k;
SELECT x.p, COUNT(*) AS many FROM (SELECT n.p FROM s JOIN n ON s.k = n.k) x [RANGE 5 SECONDS] GROUP BY x.p;
SELECT k FROM r EXCEPT SELECT k FROM s [RANGE 2 SECONDS];
SELECT s.k FROM s [RANGE 3 SECONDS] ANTI JOIN n ON s.k = n.k;
SELECT COUNT(*) AS many FROM c RIGHT JOIN s [RANGE 2 SECONDS] ON c.k = s.k;
SELECT s.v, d.p FROM s [RANGE 4 SECONDS] LEFT JOIN d ON s.k = d.k;
ISTREAM(SELECT s.k, n.p FROM s [RANGE 3 SECONDS] JOIN n ON s.k = n.k);
"""


def judged(text: str, database: OracleDatabase) -> list[Verdict]:
    with sl.connect(engine="local", batch_rows=2, shards=2) as ours:
        return scripts.verify(ours, text, database)


@pytest.mark.parametrize("name", ["duckdb", "postgresql"])
def test_queries_over_tables_are_equal_at_every_instant(name: str, request: pytest.FixtureRequest) -> None:
    verdicts = judged(HISTORY + QUERIES, request.getfixturevalue(name))
    assert len(verdicts) == QUERIES.count(";")
    wrong = [v for v in verdicts if not (v.equal and v.complete and v.instants_with_rows > 2)]
    assert not wrong, render(wrong, name)


def test_a_look_up_at_another_time_is_found_and_made_small(
    duckdb: OracleDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if what ends were there for two more seconds.
    read = TableSource.read_changes

    def read_late(*arguments: Any) -> pl.DataFrame:
        ends = pl.when(pl.col(UNTIL) == OPEN).then(OPEN).otherwise(pl.col(UNTIL) + 2 * SECOND)
        return read(*arguments).with_columns(ends.alias(UNTIL))

    monkeypatch.setattr(TableSource, "read_changes", read_late)
    asked: list[tuple[Any, ...]] = []
    smallest = shrink.smallest_failing

    def keep(*arguments: Any) -> Any:
        asked.append(arguments)
        return smallest(*arguments)

    monkeypatch.setattr(scripts, "smallest_failing", keep)
    [verdict] = judged(HISTORY + "SELECT s.k, n.p FROM s [RANGE 4 SECONDS] JOIN n ON s.k = n.k", duckdb)
    assert verdict.differences[0].only_here == ((1, "p"),)
    again = smallest(*asked[0])  # the table is closed by now
    for found in (verdict.smallest, again):
        small = {recorded.stream.name: recorded.rows.height for recorded in found or ()}
        assert small == {"s": 1, "n": 1}, render([verdict], "DuckDB")


def test_grouping_sets_at_the_time_of_another_row_are_for_postgresql(
    duckdb: OracleDatabase, postgresql: OracleDatabase
) -> None:
    """Where no row is there, DuckDB takes GROUPING for NULL in the group of all rows."""
    text = """
        CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01 00:00:01'), (0, '2024-01-01 00:00:02'))
          ORDERED BY ts;
        CREATE TABLE d (p INT, a TIMESTAMP, b TIMESTAMP) NON RETROACTIVE VALID FROM a UNTIL b;
        INSERT INTO d VALUES (7, '2024-01-01 00:00:05', NULL);
        SELECT s.k FROM s [RANGE 4 SECONDS]
          ANTI JOIN (SELECT GROUPING(p) AS g FROM d GROUP BY ROLLUP (p)) t ON s.k = t.g;
        """
    [verdict] = judged(text, duckdb)
    assert verdict.unchecked == "grouping sets at the time of another row"
    [verdict] = judged(text, postgresql)
    assert verdict.equal and verdict.complete and verdict.instants_with_rows, render([verdict], "PostgreSQL")


def test_changes_by_the_clock_while_a_query_runs(duckdb: OracleDatabase) -> None:
    """τ and the position at which a query began are recorded, so that changes by the clock can be judged."""
    text = """
        CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
        CREATE TABLE t (k INT, p INT, PRIMARY KEY (k));
        CREATE TABLE n (k INT, p INT, PRIMARY KEY (k)) NON RETROACTIVE;
        INSERT INTO t VALUES (1, 0), (2, 0);
        INSERT INTO n VALUES (1, 0), (2, 0);
        SELECT s.k, t.p FROM s [RANGE 50 MILLISECONDS] JOIN t ON s.k = t.k;
        SELECT s.k, n.p FROM s [RANGE 50 MILLISECONDS] LEFT JOIN n ON s.k = n.k;
        """
    with sl.connect(engine="local", batch_rows=3, shards=2) as ours:

        def change() -> None:
            while not ours.queries:
                time.sleep(0.005)
            for number in range(1, 30):
                ours.append("s", [(number % 4, datetime.now(UTC))])
                for table in "tn":
                    ours.sql(
                        f"INSERT INTO {table} VALUES ({number % 3}, {number}) ON CONFLICT DO UPDATE SET p = {number}"
                    )
                    if number % 5 == 0:
                        ours.sql(f"DELETE FROM {table} WHERE k = 1")
                time.sleep(0.004)
            ours.end("s")

        changing = threading.Thread(target=change)
        changing.start()
        verdicts = scripts.verify(ours, text, duckdb)
        changing.join()
        tables = {name: ours.table(name) for name in "tn"}
        assert all(len(table) for table in tables.values())
    assert all(v.equal and v.complete and v.instants_with_rows > 50 for v in verdicts), render(verdicts, "DuckDB")


def test_what_was_changed_before_a_query_began_counts_from_the_last_given_time_on() -> None:
    """By the clock at 1 and 2, given at 5, by the clock at 7 and 8: each by the time of the last given change."""
    table = Table("t", (("k", VARCHAR),), directory="t")
    rows = [
        ("a", 0, 1, OPEN, ALWAYS, OPEN),
        ("b", 1, 2, OPEN, ALWAYS, OPEN),
        ("a", 0, 1, 5, ALWAYS, 5),
        ("c", 3, 7, OPEN, 5, OPEN),
        ("b", 1, 2, 8, ALWAYS, 5),
    ]
    log = pl.DataFrame(rows, schema=["k", ID, FROM, UNTIL, SINCE, CEASED], orient="row")

    def elements(base: int) -> set[tuple[object, ...]]:
        return set(record_table(table, log, base).rows.rows())

    assert elements(0) == {("a", 1, 5), ("b", 2, 8), ("c", 7, FOREVER)}
    assert elements(2) == {("a", ALWAYS, 5), ("b", ALWAYS, 8), ("c", 7, FOREVER)}
    assert elements(5) == {("a", ALWAYS, 5), ("b", ALWAYS, 5), ("c", 5, FOREVER)}
    constant = record_table(replace(table, kind="constant"), log.head(4), 4).rows.rows()
    assert set(constant) == {("b", ALWAYS, FOREVER), ("c", ALWAYS, FOREVER)}


def test_a_past_that_is_no_longer_kept_cannot_be_judged(
    duckdb: OracleDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TableStore.read

    def read_kept(store: TableStore, start: int, end: int) -> list[pl.DataFrame]:
        if store.table.name == "n":
            raise not_replayable(store.directory, start, 3)
        return read(store, start, end)

    monkeypatch.setattr(TableStore, "read", read_kept)
    text = HISTORY + "SELECT s.k, n.p FROM s JOIN n ON s.k = n.k; SELECT s.k, r.p FROM s JOIN r ON s.k = r.k"
    folded, whole = judged(text, duckdb)
    assert folded.unchecked is not None and 'the log of table "n" cannot be read again' in folded.unchecked
    assert whole.equal and whole.complete

"""Temporal tables under random statements: refused if a row has no period, or if periods of a key overlap; read at any
instant, the rows that are valid then."""

from __future__ import annotations

from random import Random

import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.core.table import TextTable
from strandline.database.database import Database
from support import moment

Row = tuple[int, int | None, int | None]  # key, start, end


def is_allowed(rows: list[Row], keyed: bool) -> bool:
    """By the definition: each row has a period, and a key is in one row at an instant."""
    if any(start is None or (end is not None and end <= start) for _, start, end in rows):
        return False
    instants = [(key, t) for key, start, end in rows for t in range(start or 0, 40 if end is None else end)]
    return not keyed or len(set(instants)) == len(instants)


def rows_of(db: Database, query: str) -> list[tuple[object, ...]]:
    result = db.sql(query)
    assert isinstance(result, TextTable)
    return [tuple(row.values()) for row in result.results().to_pylist()]


def text(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def changed(dice: Random, rows: list[Row]) -> tuple[str, list[Row]]:
    """A statement, and the rows after it."""
    key, start = dice.randint(0, 2), dice.choice((*range(12), None) if dice.random() < 0.1 else range(12))
    end = dice.choice((None, *((start or 0) + length for length in (0, 1, 1, 2, 4, 9))))
    match dice.choice(("insert", "insert", "start", "end", "key", "merge", "delete")):
        case "insert":
            return f"INSERT INTO t VALUES ({key}, {text(start)}, {text(end)})", [*rows, (key, start, end)]
        case "start":
            changes = [(k, start if k == key else a, b) for k, a, b in rows]
            return f"UPDATE t SET a = {text(start)} WHERE k = {key}", changes
        case "end":
            changes = [(k, a, end if a == start else b) for k, a, b in rows]
            return f"UPDATE t SET b = {text(end)} WHERE a = {text(start)}", rows if start is None else changes
        case "key":
            return f"UPDATE t SET k = {key} WHERE b IS NULL", [(key if b is None else k, a, b) for k, a, b in rows]
        case "merge":
            merged = [(k, start, end) if k == key else (k, a, b) for k, a, b in rows]
            merged += [] if any(k == key for k, _, _ in rows) else [(key, start, end)]
            values = f"k, {text(start)}, {text(end)}"
            return (
                f"MERGE INTO t USING (VALUES ({key})) AS s (k) ON s.k = t.k WHEN MATCHED THEN UPDATE SET "
                f"a = {text(start)}, b = {text(end)} WHEN NOT MATCHED THEN INSERT VALUES (s.{values})"
            ), merged
        case _:
            return f"DELETE FROM t WHERE k = {key}", [row for row in rows if row[0] != key]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_temporal_table_has_the_rows_that_are_valid(keyed: bool) -> None:
    dice, refused, compared = Random(17 + keyed), 0, 0
    with sl.connect(engine="local") as db:
        for _ in range(12):
            db.sql(f"CREATE OR REPLACE TABLE t (k INT, a BIGINT, b BIGINT{', PRIMARY KEY (k)' if keyed else ''}) "
                   "VALID FROM a UNTIL b")  # fmt: skip
            rows: list[Row] = []
            for _ in range(20):
                statement, after = changed(dice, rows)
                if is_allowed(after, keyed):
                    db.sql(statement)
                    rows = after
                else:
                    refused += 1
                    with pytest.raises(StrandlineError) as error:
                        db.sql(statement)
                    assert error.value.code in ("unfit-rows", "duplicate-key"), statement
            order = sorted(rows, key=str)
            assert sorted(rows_of(db, "SELECT k, a, b FROM t"), key=str) == order
            for t in {t + near for _, a, b in rows for t in (a, b) if t is not None for near in (-1, 0, 1)}:
                valid = [row for row in order if row[1] is not None and row[1] <= t and (row[2] is None or t < row[2])]
                seen = rows_of(db, f"SELECT k, a, b FROM t AT TIMESTAMP '{moment(t)}'")
                assert sorted(seen, key=str) == valid
                compared += 1
    assert refused > 5 and compared > 20


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE t SET b = a", "b: the end is not after a"),
        ("UPDATE t SET a = NULL", "a: the time is NULL"),
        ("MERGE INTO t USING (VALUES (1)) AS s (k) ON s.k = t.k WHEN MATCHED THEN UPDATE SET b = 0", "not after a"),
        ("INSERT INTO t SELECT k, b, a FROM t", "b: the end is not after a"),
    ],
)
def test_no_statement_leaves_a_row_without_a_period(statement: str, reason: str) -> None:
    with sl.connect(engine="local") as db:
        db.sql("CREATE TABLE t (k INT, a BIGINT, b BIGINT) VALID FROM a UNTIL b")
        db.sql("INSERT INTO t VALUES (1, 3, 7)")
        with pytest.raises(StrandlineError, match=reason) as error:
            db.sql(statement)
        assert error.value.code == "unfit-rows"
        assert rows_of(db, "SELECT k, a, b FROM t") == [(1, 3, 7)]

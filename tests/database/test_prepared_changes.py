"""Statements that differ in their literals are prepared once, with the effects and errors of those that are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.prepared_changes import PreparedChanges
from support import LONG

DECLARATION = """
CREATE TABLE t (k INT, j VARCHAR, a BIGINT, d DOUBLE, m DECIMAL(8, 2), w VARCHAR NOT NULL DEFAULT 'w', b BOOLEAN,
                ts TIMESTAMP, PRIMARY KEY (k, j));
CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR)
"""
# i stands for an integer, n for a number, s for a text, x for a time, c for TRUE or NULL.
FORMS = (
    "INSERT INTO t VALUES (?i, ?s, ?i, ?n, ?n, ?s, ?c, ?x)",
    "INSERT INTO t VALUES (?i, ?s, ?i, ?n, ?n, ?s, TRUE, NULL) ON CONFLICT DO NOTHING",
    "INSERT INTO t (k, j, a, m) VALUES (?i, ?s, -?i, ?n), (?i, ?s, ?i, - ?n) ON CONFLICT DO UPDATE SET a = excluded.a",
    "insert into u values (?i, ?s) on conflict do update set v = excluded.v",
    "INSERT INTO u VALUES (?i, ?s) ON CONFLICT DO UPDATE SET v = ?s",
    "INSERT INTO u (v, id) VALUES (DEFAULT, ?i)",
    "UPDATE t SET a = ?i, d = ?n, m = -?n, ts = ?x WHERE k = ?i AND j = ?s",
    "UPDATE t SET w = ?s, b = FALSE WHERE j = ?s AND k = ?i",
    "UPDATE u SET v = ?s WHERE id = ?i",
    "UPDATE u SET v = ?s WHERE id > ?i",
    "UPDATE u SET id = ?i WHERE id = ?i",
    "DELETE FROM u WHERE id = ?i",
    "DELETE FROM u WHERE v = ?s",
    "DELETE FROM t WHERE k = ?i AND j = ?s",
    "DELETE FROM t WHERE k = ?i AND k = ?i",
    "DELETE FROM t WHERE k = ?i OR j = ?s",
    "UPDATE u SET v = ?s /* ?s */ WHERE id = ?i -- ?s",
    """UPDATE "u" SET "v" = ?s WHERE u.id = ?i""",
)
FITTING = {
    "i": ("1", "2", "3", "4", "007"),
    "n": ("1", "0", "2.50", ".5", "123.456"),
    "s": ("'a'", "'b'", "'it''s'", "'ä'"),
    "x": ("'2024-01-02 03:04:05'", "NULL"),
    "c": ("TRUE", "NULL"),
}
LITERALS = (
    "0", "1", "2", "3", "007", "1.5", "2.", ".5", "1e2", "1e400", "2147483647", "2147483648", "9223372036854775808",
    "123456.789", "99999999", "0.0", "'a'", "'a'", "'b'", "''", "'it''s'", "'1'", "'2.5'", "'x--y'", "'\"'", "'ä'",
    "'2024-01-02 03:04:05'", "'/* '", "'true'", "NULL", "1 + 1", "-1", "- 2", "12x", "'open",
)  # fmt: skip


@pytest.fixture
def databases() -> Iterator[tuple[Database, Database]]:
    with sl.connect(engine="local") as fast, sl.connect(engine="local") as slow:
        slow._prepared.find = lambda text: None  # type: ignore[method-assign]
        for database in (fast, slow):
            database.tables.clock = iter(range(10**6, 10**9)).__next__
            database.sql(DECLARATION)
        yield fast, slow


def outcome(database: Database, text: str) -> Any:
    try:
        return str(database.sql(text))
    except StrandlineError as error:
        return str(error)


def content(database: Database) -> list[Any]:
    return [sorted(map(repr, database.table(name).snapshot(form="arrow").to_pylist())) for name in ("t", "u")]


@pytest.mark.parametrize("seed", range(60 if LONG else 2))
def test_prepared_statements_have_the_effect_and_the_errors_of_others(
    seed: int, databases: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, slow = databases
    draw = Random(seed)
    found, find = [0, 0], PreparedChanges.find

    def counted(self: PreparedChanges, text: str) -> Any:
        result = find(self, text)
        found[result is not None] += 1
        return result

    monkeypatch.setattr(PreparedChanges, "find", counted)
    for _ in range(300):
        text = re.sub(r"\?(\w)", lambda match: draw_literal(draw, match[1]), draw.choice(FORMS))
        assert without_time(outcome(fast, text)) == without_time(outcome(slow, text)), text
        assert content(fast) == content(slow), text
    assert found[True] > 60


def draw_literal(draw: Random, kind: str) -> str:
    return draw.choice(LITERALS if draw.random() < 0.05 else FITTING[kind])


def without_time(text: str) -> str:
    return text.split(" at 19")[0]


def test_a_statement_is_prepared_again_for_another_table_of_the_name(databases: tuple[Database, Database]) -> None:
    fast, _ = databases
    for number in range(3):
        fast.sql(f"INSERT INTO u VALUES ({number}, 'x')")
    fast.sql("DROP TABLE u; CREATE TABLE u (v VARCHAR, id INT)")
    assert outcome(fast, "INSERT INTO u VALUES (7, 'x')").startswith("error[invalid-literal]")
    fast.sql("DROP TABLE u; CREATE TABLE u (id BIGINT, v VARCHAR)")
    fast.sql("INSERT INTO u VALUES (7, 'x')")
    assert fast.table("u").snapshot(form="arrow").to_pylist() == [{"id": 7, "v": "x"}]


def test_an_error_of_a_prepared_statement_has_its_place(databases: tuple[Database, Database]) -> None:
    fast, slow = databases
    for database in (fast, slow):
        database.sql("INSERT INTO u VALUES (1, 'x')")
    assert fast._prepared.find("INSERT INTO u VALUES (1, 'longer')") is not None
    assert outcome(fast, "INSERT INTO u VALUES (1, 'longer')") == outcome(slow, "INSERT INTO u VALUES (1, 'longer')")
    assert "^" in outcome(fast, "INSERT INTO u VALUES (1, 'longer')")
    for text in ("INSERT INTO u VALUES (99999999999999999999, 'x')", "INSERT INTO u VALUES ('a', 'x')"):
        assert outcome(fast, text) == outcome(slow, text)
        assert "^" in outcome(fast, text)

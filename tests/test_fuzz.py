"""A small fixed run of `fuzz.py`, the questions that were once answered wrongly, and the completeness of the judges."""

from __future__ import annotations

from pathlib import Path

import pytest

import strandline as sl
import user_functions as users
from fuzz import KEPT, Tally, ask, normalised
from fuzz_coverage import GROUPS, cells
from strandline.apps.verify import on_duckdb, on_postgresql
from strandline.apps.verify.dialect import Dialect
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.report import render
from strandline.apps.verify.script import verify
from strandline.core.types import BOOLEAN, INT
from strandline.functions.aggregates import AGGREGATES, AggregateFunction
from strandline.functions.registry import FUNCTIONS
from strandline.functions.signatures import Function
from strategies import Question
from support import Cuts, arrange

QUESTIONS = 75


def test_duckdb_agrees_at_every_instant(duckdb: OracleDatabase) -> None:
    tally = Tally()
    for seed in range(1_000_000, 1_000_000 + QUESTIONS):
        ask(seed, [duckdb], tally, keep=False)
    assert tally.wrong == []
    assert sum(tally.unchecked.values()) <= QUESTIONS // 25, "DuckDB itself fails in about one in a hundred"
    refused = {reason: count for reason, count in tally.unchecked.items() if "INTERNAL Error" not in reason}
    assert sum(refused.values()) <= QUESTIONS // 50, refused
    assert tally.instants["DuckDB"] > 10 * QUESTIONS
    assert tally.answered["DuckDB"] > tally.instants["DuckDB"] / 4, "there is something to compare"
    assert len(tally.plans) > 0.9 * QUESTIONS
    # Few questions cannot be in every cell; what they miss altogether must be the exception, one cell in ten.
    missed = [cell for group, names in GROUPS.items() for cell in names if not tally.cells[f"{group}: {cell}"]]
    assert len(missed) < sum(map(len, GROUPS.values())) / 10, missed


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.sql")), ids=lambda path: path.stem)
@pytest.mark.parametrize(("batch_rows", "shards"), [(1, 2), (3, 1), (1000, 3)])
def test_what_was_wrong_once_stays_right(duckdb: OracleDatabase, path: Path, batch_rows: int, shards: int) -> None:
    with sl.connect(engine="local", batch_rows=batch_rows, shards=shards) as ours:
        users.bring(ours.catalog)
        verdicts = verify(ours, path.read_text(), duckdb)
    assert all(verdict.complete and verdict.equal for verdict in verdicts), render(verdicts, "DuckDB")


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.sql")), ids=lambda path: path.stem)
def test_and_for_postgresql(postgresql: OracleDatabase, path: Path) -> None:
    with sl.connect(engine="local", batch_rows=2, shards=2) as ours:
        users.bring(ours.catalog)
        verdicts = verify(ours, path.read_text(), postgresql)
    assert all(verdict.equal for verdict in verdicts), render(verdicts, "PostgreSQL")


@pytest.mark.parametrize("dialect", [on_duckdb.DIALECT, on_postgresql.DIALECT], ids=lambda dialect: dialect.name)
def test_the_dialect_knows_every_function(dialect: Dialect) -> None:
    declared: list[Function | AggregateFunction] = [*FUNCTIONS.values(), *AGGREGATES.values()]
    assert [function.name for function in declared if not (function.sql or dialect.own(function))] == []


def test_cells_are_seen_in_the_question_itself() -> None:
    text = """CREATE STREAM v AS SELECT i AS c1 FROM s0;
              SELECT DISTINCT t1.i, t1.i NOT IN (SELECT t2.c1 FROM v [RANGE 1 SECOND SLIDE 2 SECONDS] t2
                WHERE EXISTS (SELECT 1 FROM s0 [PARTITION BY i ROWS 2 SLIDE 2] t3 WHERE t3.i > t1.i))
              FROM s0 t1 NATURAL FULL JOIN s0 t4 SEMI JOIN s0 t5 ON t5.i < t1.i
              EXCEPT STRICT SELECT COUNT(*) FILTER (WHERE TRUE), TRUE FROM s0 HAVING TRUE"""
    assert cells(Question((), text), Cuts((), 2)) == {
        "windows: now",
        "windows: slide beyond the range",
        "windows: partitioned rows",
        "windows: rows with slide",
        "windows over: a stream",
        "windows over: a named query",
        "joins: natural",
        "joins: full",
        "joins: semi",
        "joins: self",
        "joins: theta",
        "sets: except strict",
        "names: a derived stream",
        "names: used",
        "subqueries: not in",
        "subqueries: exists",
        "subqueries: in SELECT",
        "subqueries: in WHERE",
        "subqueries: correlated",
        "subqueries: nested",
        "subqueries: two levels out",
        "aggregates: count",
        "aggregates: filter",
        "expressions: comparison",
        "outputs: distinct",
        "outputs: plain",
        "outputs: having",
        "outputs: without groups",
        "cuts: one row per batch",
        "cuts: several buckets",
    }


def test_cells_of_grouping_sets_and_boundaries() -> None:
    text = """SELECT t1.i, GROUPING(t1.i), SUM(DISTINCT t1.i) FROM s0 [RANGE 2 MICROSECONDS SLIDE 2 MICROSECONDS] t1
              GROUP BY t1.o, GROUPING SETS (t1.i, ROLLUP (t1.i)) HAVING GROUPING(t1.o) = 0 AND NOT EXISTS
                (SELECT COUNT(*) FILTER (WHERE t2.i IS NULL) FROM s0 t2 GROUP BY CUBE (t2.i))"""
    rows = [(at, 0, (1, True)) for at in (1, 3)]
    found = cells(Question((arrange("s0", {"i": INT, "o": BOOLEAN}, rows, 0),), text), Cuts(((),), 1))
    assert {cell for cell in found if cell.startswith(("grouping", "boundary", "subqueries"))} == {
        "grouping: grouping sets",
        "grouping: rollup",
        "grouping: cube",
        "grouping: beside ordinary keys",
        "grouping: the empty set",
        "grouping: a set twice",
        "grouping: GROUPING in SELECT",
        "grouping: GROUPING in HAVING",
        "grouping: sets and distinct values",
        "grouping: sets and filter",
        "boundary instants: one row comes as another goes",
        "subqueries: not exists",
        "subqueries: in HAVING",
    }


def test_numbers_and_texts_make_no_other_plan() -> None:
    assert normalised("Filter x#2 > 10 AND y = 'a'") == normalised("Filter x#7 > 9 AND y = 'bc'")
    assert normalised("Filter x > 1") != normalised("Filter x < 1")

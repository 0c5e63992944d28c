"""`strandline verify`: that it finds what is wrong, says what it could not compare, and makes failures small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import strandline as sl
import user_functions as users
from strandline.apps.cli import app
from strandline.apps.verify import script as scripts
from strandline.apps.verify import shrink
from strandline.apps.verify.check import Verdict
from strandline.apps.verify.compare import at_instants, differences
from strandline.apps.verify.oracle import OracleDatabase
from strandline.apps.verify.record import too_late
from strandline.apps.verify.report import DIFFERENT, EQUAL, INCOMPLETE, exit_code
from strandline.apps.verify.shrink import smallest
from strandline.core.errors import QueryError, SetupError
from strandline.engines.local import LocalRun
from strandline.runtime.kernels.batch import FROM
from support import examples

TRADES = """
CREATE STREAM trades (sym VARCHAR, price DECIMAL(10,2), weight DOUBLE, ts TIMESTAMP)
  SOURCE rows(('a', '10.50', '0.1', '2024-01-01 00:00:00'), ('b', '99.00', 'NaN', '2024-01-01 00:00:03'),
              ('a', '10.75', '0.2', '2024-01-01 00:00:02'), ('late', '1', '1', '2023-12-31 00:00:00'),
              ('a', 'broken', '1', '2024-01-01 00:00:05'), ('b', '1', '-Infinity', '2024-01-01 00:00:06'))
  ORDERED BY ts WITHIN 2 SECONDS;
"""
SCRIPT = f"""{TRADES}
CREATE STREAM per_sym AS
  SELECT sym, COUNT(*) AS n, SUM(price) AS total, SUM(weight) AS w FROM trades WINDOW(RANGE 5 SECONDS) GROUP BY sym;
SELECT sym FROM trades [PARTITION BY sym ROWS 1] WHERE price > 5;
"""


def judged(text: str, database: OracleDatabase, **options: object) -> list[Verdict]:
    with sl.connect(engine="local", batch_rows=2, shards=2) as ours:
        return scripts.verify(ours, text, database, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["duckdb", "postgresql"])
def test_a_right_answer_is_equal_at_every_instant(name: str, request: pytest.FixtureRequest) -> None:
    verdicts = judged(SCRIPT, request.getfixturevalue(name))
    assert [v.name for v in verdicts] == ["per_sym", "q1"]
    assert all(v.equal and v.complete and v.instants > 10 for v in verdicts)
    assert exit_code(verdicts) == EQUAL


WHOLE = {
    "named queries in windows": """
        CREATE STREAM cheap AS SELECT sym, price * 2 AS twice FROM trades WHERE price < 50;
        SELECT c.sym, MAX(c.twice) AS top FROM cheap [RANGE 4 SECONDS SLIDE 3 SECONDS] c GROUP BY c.sym;
        SELECT sym, twice FROM cheap [ROWS 2 SLIDE 2]""",
    "joined by names": """
        SELECT * FROM trades [RANGE 2 SECONDS] a FULL JOIN trades [RANGE 5 SECONDS] b USING (sym);
        SELECT * FROM trades [RANGE 2 SECONDS] a NATURAL LEFT JOIN (SELECT sym, 1 AS one FROM trades) b;
        SELECT a.sym, b.price FROM trades [RANGE 2 SECONDS] a FULL JOIN trades [RANGE 9 SECONDS] b ON a.price < b.price;
        SELECT a.sym FROM (trades [RANGE 9 SECONDS] a ANTI JOIN trades b ON a.sym = b.sym)
          LEFT JOIN trades [RANGE 1 SECOND] c ON a.sym = c.sym""",
    "sets that SQL has not": """
        SELECT sym FROM trades [RANGE 5 SECONDS] UNION MAX SELECT sym FROM trades [RANGE 2 SECONDS];
        SELECT sym FROM trades [RANGE 5 SECONDS] EXCEPT STRICT SELECT sym FROM trades""",
    "sessions, granules and changes": """
        SELECT sym, price FROM trades [PARTITION BY sym SESSION 2 SECONDS];
        SELECT COUNT(*) AS n FROM trades [SESSION 1500 MILLISECONDS];
        SELECT sym, COUNT(*) AS n FROM trades [RANGE 5 SECONDS] GRANULARITY(2 SECONDS) GROUP BY sym;
        SELECT x.sym, COUNT(*) AS n FROM (SELECT sym FROM trades [RANGE 3 SECONDS] GRANULARITY(1 SECOND) g)
          WINDOW(RANGE 2 SECONDS) x GROUP BY x.sym;
        SELECT y.sym FROM (SELECT sym FROM trades [RANGE 3 SECONDS] GRANULARITY(1 SECOND) g) y [ROWS 3];
        ISTREAM(SELECT COUNT(*) AS n FROM trades [RANGE 5 SECONDS]);
        SELECT d.sym FROM DSTREAM(SELECT sym FROM trades [RANGE 2 SECONDS]) AS d WINDOW(ROWS 2)""",
    "first rows, names and intervals": """
        CREATE VIEW cheap (name, cost) AS SELECT sym, price FROM trades WHERE price < 50;
        WITH cheap AS (SELECT name AS n, cost FROM cheap [RANGE 4 SECONDS]), two (a) AS (SELECT cost FROM cheap)
          SELECT n, cost, (SELECT MAX(a) FROM two) AS top FROM cheap ORDER BY cost DESC, 1 LIMIT 1;
        SELECT sym FROM trades [RANGE 9 SECONDS] GROUP BY sym ORDER BY COUNT(*) DESC NULLS LAST LIMIT 1;
        CREATE STREAM spans (x INT, f TIMESTAMP, u TIMESTAMP) SOURCE rows(
          (1, '2024-01-01 00:00:01', '2024-01-01 00:00:04'), (2, '2024-01-01 00:00:02', NULL)) VALID FROM f UNTIL u;
        SELECT t.sym, s.x FROM trades [RANGE 3 SECONDS] t LEFT JOIN spans s ON s.x < t.price""",
    "windows that are written in another way": """
        SELECT sym, price FROM trades [PARTITION BY sym RANGE 3 SECONDS];
        SELECT sym, COUNT(*) AS n FROM trades [PARTITION BY sym ROWS UNBOUNDED] GROUP BY sym;
        CREATE STREAM spans (x INT, f TIMESTAMP, u TIMESTAMP) SOURCE rows(
          (1, '2024-01-01 00:00:01', '2024-01-01 00:00:04'), (2, '2024-01-01 00:00:02', NULL)) VALID FROM f UNTIL u;
        SELECT DSTREAM(x) FROM spans;
        SELECT x FROM spans [RANGE 1 MICROSECOND];
        SELECT x FROM spans [NOW];
        SELECT y.n FROM (SELECT COUNT(*) AS n FROM trades [RANGE 4 SECONDS]) y [RANGE 1 MICROSECOND]""",
    "change feeds": """
        CREATE STREAM stock (item VARCHAR, n INT, op VARCHAR, ts TIMESTAMP) SOURCE rows(
          ('a', 1, 'insert', '2024-01-01 00:00:01'), ('a', 1, 'insert', '2024-01-01 00:00:02'),
          ('b', 2, '-', '2024-01-01 00:00:02'), ('a', 1, 'delete', '2024-01-01 00:00:04'),
          ('b', 3, '+', '2024-01-01 00:00:04'), ('c', 9, 'u', '2024-01-01 00:00:04'),
          ('a', 2, 'c', '2024-01-01 00:00:03')) ORDERED BY ts WITHIN 1 SECOND CHANGES IN op;
        CREATE STREAM prices (sym VARCHAR, price INT, op VARCHAR, ts TIMESTAMP) SOURCE rows(
          ('a', 1, 'c', '2024-01-01 00:00:00'), ('a', 2, 'u', '2024-01-01 00:00:02'),
          ('a', 3, 'u', '2024-01-01 00:00:02'), ('b', 7, 'r', '2024-01-01 00:00:03'),
          ('a', NULL, 'd', '2024-01-01 00:00:05'), ('b', 8, 'u', '2024-01-01 00:00:06'))
          ORDERED BY ts CHANGES IN op PRIMARY KEY (sym);
        SELECT * FROM stock;
        SELECT item, COUNT(*) AS k, SUM(n) AS total FROM stock GROUP BY item;
        SELECT t.sym, p.price AS now, t.price FROM trades [RANGE 3 SECONDS] t LEFT JOIN prices p ON p.sym = t.sym;
        SELECT COUNT(*) AS n FROM prices [NOW]""",
    "subqueries of at most one row": """
        SELECT sym, (SELECT price FROM trades [ROWS 1]) AS p FROM trades [RANGE 4 SECONDS];
        SELECT sym, (SELECT u.price + t.price FROM trades [PARTITION BY sym ROWS 1] u WHERE u.sym = t.sym) AS p
          FROM trades [RANGE 4 SECONDS] t;
        SELECT sym FROM trades [RANGE 4 SECONDS]
          WHERE price > (SELECT price FROM trades [PARTITION BY sym ROWS 1] WHERE sym = 'b');
        SELECT sym, (SELECT price FROM trades [RANGE 9 SECONDS] ORDER BY sym, price DESC LIMIT 1) AS p FROM trades;
        SELECT sym, (WITH x AS (SELECT sym FROM trades [RANGE 9 SECONDS]) SELECT sym FROM x ORDER BY sym LIMIT 1) AS p
          FROM trades [RANGE 2 SECONDS]""",
    "subqueries": """
        SELECT sym FROM trades [RANGE 4 SECONDS] t WHERE price >= ALL (SELECT price FROM trades [RANGE 9 SECONDS] u
          WHERE u.sym = t.sym AND u.sym IN (SELECT sym FROM trades [ROWS 3] v WHERE v.price > u.price))""",
    "a query over nothing": "SELECT COUNT(*) AS n, MIN(sym) AS s, AVG(weight) AS a FROM trades WHERE price < 0",
    "text, time and casts": """
        SELECT upper(sym) || '-' || price AS label, CAST(ts AS DATE) + 1 AS day, date_trunc('minute', ts) AS m,
          price / 3 AS third, ts - INTERVAL '1' SECOND AS before, sym LIKE 'a%' AS a, CAST(price AS INT) % 3 AS r,
          round(weight) AS w, substring(sym, 0, 2) AS s, epoch(ts) AS e, CAST('x' AS INT) AS nothing
        FROM trades [RANGE 3 SECONDS]""",
    "grouping sets and windows without an end": """
        SELECT sym, price > 10 AS dear, COUNT(*) AS n, GROUPING(sym) AS g FROM trades [RANGE UNBOUNDED]
          GROUP BY ROLLUP (sym, price > 10);
        SELECT sym, COUNT(*) AS n FROM trades [RANGE 2 SECONDS] GROUP BY GROUPING SETS ((sym), ());
        SELECT quarter(ts) AS q, week(ts) AS w, reverse(sym) AS r, sym LIKE 'a!%' ESCAPE '!' AS l FROM trades""",
    "arrays": """
        SELECT sym, ARRAY_AGG(price) AS p, ARRAY_AGG(DISTINCT weight ORDER BY weight DESC NULLS LAST) AS w,
          ARRAY_AGG(sym ORDER BY price) FILTER (WHERE price > 5) AS s, cardinality(ARRAY_AGG(price)) AS n,
          ARRAY_AGG(price ORDER BY ts DESC)[2] AS second, ARRAY_AGG(price)[0] AS none
        FROM trades [RANGE 6 SECONDS] GROUP BY sym;
        SELECT a, COUNT(*) AS n FROM (SELECT ARRAY_AGG(price > 9) AS a FROM trades [RANGE 3 SECONDS] GROUP BY sym) q
          GROUP BY a""",
    "every aggregate": """
        SELECT sym, COUNT(DISTINCT price) AS n, STDDEV(price) AS d, MEDIAN(DISTINCT weight) AS m, LAST(price) AS l,
          VAR_POP(DISTINCT price) FILTER (WHERE price > 0) AS v, COUNT(sym) AS rows,
          PERCENTILE_CONT(0.3) WITHIN GROUP (ORDER BY price) AS c, FIRST(sym ORDER BY price DESC NULLS LAST) AS f,
          PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY price DESC) AS p, STRING_AGG(sym, '+' ORDER BY price) AS t,
          MODE() WITHIN GROUP (ORDER BY price) AS o, SUM(DISTINCT weight) FILTER (WHERE price > 5) AS s
        FROM trades [RANGE 6 SECONDS] GROUP BY sym HAVING COUNT(*) > 0""",
}  # fmt: skip


@pytest.mark.parametrize("queries", WHOLE)
@pytest.mark.parametrize("name", ["duckdb", "postgresql"])
def test_the_whole_language_is_translated(name: str, queries: str, request: pytest.FixtureRequest) -> None:
    verdicts = judged(TRADES + WHOLE[queries], request.getfixturevalue(name))
    for verdict in verdicts:
        assert verdict.unchecked is None and verdict.equal and verdict.complete, verdict


def test_what_the_database_does_not_have_is_said_and_is_no_success(duckdb: OracleDatabase) -> None:
    [verdict] = judged(f"{TRADES} SELECT substring(sym FROM 'a(x*)?') AS x FROM trades", duckdb)
    assert verdict.unchecked == "a group that may be empty or missing, which are the same to DuckDB"
    assert exit_code([verdict]) == INCOMPLETE


def test_rows_that_count_when_they_arrive_cannot_be_judged(duckdb: OracleDatabase) -> None:
    [verdict] = judged("CREATE STREAM a (x INT) SOURCE rows((1)); SELECT x FROM a", duckdb)
    assert verdict.unchecked is not None and "on arrival" in verdict.unchecked


def test_fewer_instants_are_no_success_either(duckdb: OracleDatabase) -> None:
    [verdict] = judged(f"{TRADES} SELECT sym FROM trades [RANGE 5 SECONDS]", duckdb, most=7)
    assert (verdict.instants, verdict.equal) == (7, True) and verdict.total_instants > 7
    assert exit_code([verdict]) == INCOMPLETE


def test_only_one_query(duckdb: OracleDatabase) -> None:
    assert [v.name for v in judged(SCRIPT, duckdb, only="Per_Sym")] == ["per_sym"]
    with pytest.raises(QueryError, match=r"no query \"per\"[\s\S]*per_sym, q1"):
        judged(SCRIPT, duckdb, only="per")


def test_a_growing_source_is_compared_as_far_as_it_came(duckdb: OracleDatabase) -> None:
    text = """CREATE STREAM g (value BIGINT, key INT, ts TIMESTAMP) SOURCE rate(rows_per_second => 40, keys => 3)
                ORDERED BY ts IDLE AFTER 1 SECOND;
              SELECT key, COUNT(*) AS n FROM g [RANGE 300 MILLISECONDS] GROUP BY key"""
    [verdict] = judged(text, duckdb, seconds=1.5)
    assert verdict.equal and verdict.complete and verdict.instants_with_rows > 20


def test_a_run_that_has_come_nowhere_is_no_success(duckdb: OracleDatabase) -> None:
    text = """CREATE STREAM g (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 40)
                ORDERED BY ts WITHIN 1 DAY;
              CREATE STREAM e (value INT, ts TIMESTAMP) SOURCE rate(rows_per_second => 0.001) ORDERED BY ts;
              SELECT g.value FROM g JOIN e [RANGE 1 SECOND] ON TRUE"""
    [verdict] = judged(text, duckdb, seconds=0.3)
    assert verdict.unchecked == "no instant was complete when the run was stopped"
    assert exit_code([verdict]) == INCOMPLETE


def test_ctrl_c_ends_the_run_and_not_the_comparison(duckdb: OracleDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a library hands it to the thread that computes."""
    steps = count()
    real = LocalRun.step

    def step(run: LocalRun) -> object:
        if next(steps) > 30:
            raise KeyboardInterrupt
        return real(run)

    monkeypatch.setattr(LocalRun, "step", step)
    text = """CREATE STREAM g (value BIGINT, ts TIMESTAMP) SOURCE rate(pace => false) ORDERED BY ts;
              SELECT COUNT(*) AS n FROM g [RANGE 50 MILLISECONDS]"""
    [verdict] = judged(text, duckdb)
    assert verdict.equal and verdict.complete and verdict.instants > 50


# ---- planted errors --------------------------------------------------------------------------------------------------


def spoiled(real: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
    """An engine that forgets a group of two."""

    def spoil(*arguments: object, **options: object) -> pl.DataFrame:
        frame = real(*arguments, **options)
        return frame.filter(pl.nth(1) != 2) if frame.width == 6 else frame

    return spoil


def test_a_wrong_answer_is_found_and_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duckdb: OracleDatabase
) -> None:
    monkeypatch.setattr(scripts, "_elements", spoiled(scripts._elements))
    monkeypatch.setattr(shrink, "rerun", spoiled(shrink.rerun))
    (tmp_path / "script.sql").write_text(SCRIPT)
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "script.sql")])
    assert done.exit_code == DIFFERENT
    lines = done.stdout.splitlines()
    assert lines[0].startswith("per_sym: ") and lines[0].endswith("DIFFER")
    assert lines[1] == "  at 2024-01-01 00:00:02"
    assert lines[2] == "    only DuckDB  ('a', 2, 21.25, 0.30000000000000004)"
    begin = lines.index("  smallest failing input, in order of arrival:")
    assert len({line.split(",")[0] for line in lines[begin + 1 : begin + 3]}) == 1, "two rows of one group"
    assert lines[begin + 3].startswith("q1: ") and lines[begin + 3].endswith(": equal")


def test_an_error_at_one_instant_is_found(duckdb: OracleDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """One microsecond too long is wrong."""
    real = scripts._elements

    def longer(query: object) -> pl.DataFrame:
        frame = real(query)  # type: ignore[arg-type]
        first = pl.int_range(pl.len()) == 0
        return frame.with_columns(pl.when(first).then(pl.col("@until") + 1).otherwise(pl.col("@until")).alias("@until"))

    monkeypatch.setattr(scripts, "_elements", longer)
    [verdict] = judged(f"{TRADES} SELECT sym FROM trades [RANGE 1 SECOND]", duckdb)
    assert len(verdict.differences) == 1
    assert verdict.smallest is None, "the engine itself is right"


# ---- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "library"), [("duckdb", "duckdb"), ("postgresql", "psycopg")])
def test_a_library_that_is_missing_is_named(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with (
        pytest.raises(SetupError, match=r"pip install 'strandline\[verify\]'"),
        scripts.open_oracle(name, "host=nowhere"),
    ):
        pass


def test_a_server_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.apps.verify.server.installed", lambda: None)
    with pytest.raises(SetupError, match="apt install postgresql"), scripts.open_oracle("postgresql", None):
        pass
    with pytest.raises(SetupError, match="--dsn"), scripts.open_oracle("postgresql", "host=/nowhere/at/all"):
        pass
    with pytest.raises(SetupError, match="duckdb and postgresql"), scripts.open_oracle("oracle", None):
        pass


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_bags_are_compared_with_copies_nulls_and_nan() -> None:
    rows = [(1, None, float("nan")), (1, None, float("nan")), (2, "a", 0.0), (3, "b", 1e16)]
    here = pl.DataFrame(rows, schema={"t": pl.Int64, "x": pl.String, "y": pl.Float64}, orient="row")
    there = here.with_columns(pl.when(pl.col("y") == 0).then(-0.0).otherwise(pl.col("y") * (1 + 1e-12)).alias("y"))
    assert differences(here, there.sample(fraction=1, shuffle=True, seed=1)) == []
    [found] = differences(here, there.slice(1))
    assert (found.instant, len(found.only_here), found.only_there) == (1, 1, ())
    [found] = differences(here, there.with_columns(pl.col("y") + 1e-3))
    assert (found.instant, found.only_here, found.only_there) == (2, (("a", 0.0),), (("a", 1e-3),))


def test_decimals_must_be_equal() -> None:
    kinds: dict[str, Any] = {"t": pl.Int64, "x": pl.Decimal(38, 2)}
    one, two = (pl.DataFrame({"t": [1], "x": [Decimal(x)]}, schema=kinds) for x in ("0.01", "0.02"))
    assert len(differences(one, two)) == 1


def test_rows_are_valid_from_their_start_up_to_their_end() -> None:
    #   t    0 1 2 3 4
    #   a      [===)
    #   b          [ …
    frame = pl.DataFrame({"x": ["a", "b"]})
    found = at_instants(frame, np.array([1, 3]), np.array([3, 2**63 - 1]), np.arange(5))
    assert found.rows() == [(1, "a"), (2, "a"), (3, "b"), (4, "b")]


@given(st.lists(st.integers(-9, 9), max_size=12), st.integers(0, 4))
def test_late_rows_are_behind_the_latest_before_them(moments: list[int], disorder: int) -> None:
    rows = pl.DataFrame({FROM: moments}, schema={FROM: pl.Int64})
    expected = [bool(n) and t < max(moments[:n]) - disorder for n, t in enumerate(moments)]
    assert too_late(rows, disorder).tolist() == expected


@settings(max_examples=examples(30))
@given(st.sets(st.integers(0, 40), min_size=1, max_size=5), st.integers(41, 60))
def test_shrinking_leaves_what_is_needed(needed: set[int], count: int) -> None:
    assert set(smallest(range(count), lambda items: needed <= set(items))) == needed


def test_shrinking_ends_when_time_is_up() -> None:
    assert smallest([1, 2, 3], lambda items: True, patience_s=0) == [1, 2, 3]
    assert smallest([1, 2, 3], lambda items: True) == []


def test_instants_before_the_first_row_are_not_asked_about(duckdb: OracleDatabase) -> None:
    """SQL has one row for an aggregate without groups at all times; here it begins with the first element."""
    [verdict] = judged(f"{TRADES} SELECT COUNT(*) AS n FROM trades WHERE price > 50", duckdb)
    assert verdict.equal and verdict.instants_with_rows == verdict.instants
    [verdict] = judged("CREATE STREAM e (x INT, ts TIMESTAMP) SOURCE rows() ORDERED BY ts; SELECT x FROM e", duckdb)
    assert verdict.equal and verdict.complete and verdict.instants == 0


# ---- functions of the user's -----------------------------------------------------------------------------------------

OF_THE_USER = """
CREATE STREAM s (k VARCHAR, i INT, x DOUBLE, ts BIGINT)
  SOURCE rows(('b', 3, 1.0, 0), ('a', 4, 2.0, 1), ('b', 4, NULL, 1), (NULL, NULL, 2.5, 3)) ORDERED BY ts;
CREATE VIEW v AS SELECT halved(x) AS half, initial(k) AS k, i FROM s [RANGE 3 MICROSECONDS];
SELECT half, k FROM v WHERE halved(half) < 1;
SELECT i, tally(i) AS n, tally(DISTINCT i) AS m, in_line(k ORDER BY half DESC) FILTER (WHERE i > 3) AS ks
  FROM v GROUP BY ROLLUP (i);
SELECT tally(i) AS n FROM s [ROWS 2];
"""


def test_duckdb_runs_what_is_the_users(duckdb: OracleDatabase) -> None:
    with sl.connect(engine="local", batch_rows=1, shards=2) as ours:
        users.bring(ours.catalog)
        verdicts = scripts.verify(ours, OF_THE_USER, duckdb)
    assert [(v.unchecked, v.equal, v.instants_with_rows > 3) for v in verdicts] == [(None, True, True)] * 3


def test_a_function_that_is_defined_anew_is_taken_anew(duckdb: OracleDatabase) -> None:
    text = "CREATE STREAM s (x DOUBLE, ts BIGINT) SOURCE rows((1.0, 0)) ORDERED BY ts; SELECT f(x) AS y FROM s;"
    asked = []
    for factor in (2.0, 3.0):
        with sl.connect(engine="local") as ours:
            ours.function("f", lambda x, by=factor: pc.multiply(x, by), arguments=["DOUBLE"], returns="DOUBLE")
            asked += scripts.verify(ours, text, duckdb)
    assert all(verdict.complete and verdict.equal for verdict in asked)


def test_postgresql_says_that_it_cannot_run_them(postgresql: OracleDatabase) -> None:
    with sl.connect(engine="local") as ours:
        users.bring(ours.catalog)
        verdicts = scripts.verify(ours, OF_THE_USER, postgresql)
    reasons = [verdict.unchecked for verdict in verdicts]
    assert reasons == ["halved, a function of the user's"] * 2 + ["tally, an aggregate of the user's"]

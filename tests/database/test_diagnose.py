"""Why an answer is empty: each cause is named, with the place where it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.apps.cli import app
from strandline.database.database import Database
from strandline.database.query import Query

CREATE = """CREATE STREAM a (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM b (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITHIN 5 SECONDS"""
JOIN = "SELECT a.k FROM a WINDOW(RANGE 5 SECONDS) JOIN b WINDOW(RANGE 5 SECONDS) ON a.k = b.k"


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", shards=2) as database:
        database.sql(CREATE)
        yield database


def give(database: Database, query: Query, **streams: list[tuple[object, int]]) -> str:
    """Append rows (key, second), wait until they are seen, and ask."""
    for stream, rows in streams.items():
        database.append(stream, [(k, f"2024-01-01 00:{second // 60:02d}:{second % 60:02d}") for k, second in rows])
        deadline = time.monotonic() + 30
        while (status := query.heartbeats()[stream]).rows + status.late + status.rejected < len(rows):
            assert time.monotonic() < deadline
            query.check()
            time.sleep(0.01)
    return query.why()


def marked(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "← here" in line]


def test_nothing_has_arrived(database: Database) -> None:
    assert database.sql(JOIN).why().startswith("q1 has no result: no row has arrived yet\n")


def test_a_silent_stream_holds_the_others(database: Database) -> None:
    text = give(database, database.sql(JOIN), a=[(1, 0), (2, 1)])
    assert text.startswith("q1 has no result: b has sent no row and has no watermark\n")
    assert marked(text) == ["b  no row   ← here"]
    assert text.endswith("hint: If it may stay idle, declare b with IDLE AFTER n SECONDS.")


def test_time_that_stands_names_who_holds_it(database: Database) -> None:
    text = give(database, database.sql(JOIN), b=[(1, 0)], a=[(1, 3), (1, 20)])
    assert text.startswith("q1 has no result: the watermark is held at 2023-12-31 23:59:55 by b\n")


def test_a_filter_that_passes_nothing(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a WINDOW(RANGE 1 SECOND) WHERE k > 100"), a=[(1, 0), (2, 1)])
    assert text.startswith('q1 has no result: the filter "a.k > 100" lets nothing through\n')
    assert marked(text) == ["Filter a.k > 100            0   ← here"]
    assert "Read a                    2" in text
    assert text.endswith("In the first 2 rows, a.k was from 1 to 2. Compare its units and spelling with the data.")


def test_a_filter_says_which_values_came_instead(database: Database) -> None:
    database.sql("CREATE STREAM c (k VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    query = database.sql("SELECT k FROM c WHERE k = 'x'")
    text = give(database, query, c=[("a", 0), ("b", 1), ("a", 2), (None, 3)])
    assert "the most frequent values of c.k were 'a'" in text
    assert "hint: No row satisfies it so far. In the" in text


def test_the_values_are_those_of_the_filter_that_empties_the_answer(database: Database) -> None:
    query = database.sql("SELECT count(*) AS n FROM a WINDOW(RANGE 1 SECOND) WHERE k > 1 HAVING count(*) > 5")
    assert "a.k was 1" in give(database, query, a=[(1, 0)])
    assert "a.k was" not in give(database, query, a=[(2, 1), (3, 2)])


def test_a_join_without_a_pair(database: Database) -> None:
    query = database.sql(JOIN)
    text = give(database, query, a=[(1, 0), (1, 30)], b=[(2, 0), (2, 35)])
    assert text.startswith('q1 has no result: "HashJoin on a.k = b.k" has found no match\n')
    assert "Compare the spelling of the keys on both sides." in text


def test_streams_that_do_not_overlap_in_time(database: Database) -> None:
    text = give(database, database.sql(JOIN), a=[(1, 0), (1, 1)], b=[(1, 30), (1, 60)])
    assert "the watermark is held at 2024-01-01 00:00:01 by a" in text
    database.end("a")
    query = database.queries[0]
    while not query.heartbeats()["a"].ended or not query.metrics()["progress"]:
        time.sleep(0.01)
    assert "a ends at 2024-01-01 00:00:01, b begins at 2024-01-01 00:00:30" in query.why()


def test_rows_that_are_all_malformed(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a"), a=[("x", 0), ("y", 1)])
    assert text.startswith("q1 has no result: every row of a was rejected\n")
    assert 'query.rejected("a")' in text


def test_a_query_with_results_says_so(database: Database) -> None:
    text = give(database, database.sql("SELECT k FROM a"), a=[(1, 0), (2, 1)])
    assert text.startswith("q1 has 2 results\n")
    assert "← here" not in text


def test_another_process_can_ask(tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(
        "CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-01'), (2, '2024-01-02')) ORDERED BY ts;"
        "CREATE STREAM big AS SELECT k FROM s WHERE k > 2;"
    )
    runner = CliRunner()
    assert runner.invoke(app, ["run", str(script), "--out", str(tmp_path / "out"), "--engine", "local"]).exit_code == 0
    result = runner.invoke(app, ["why", "big", "--out", str(tmp_path / "out")])
    assert result.output.startswith('big has no result: the filter "s.k > 2" lets nothing through\n')
    assert "In the first 2 rows, s.k was from 1 to 2." in result.output
    with pytest.raises(sl.StrandlineError, match='unknown query "small"') as caught:
        runner.invoke(app, ["why", "small", "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert caught.value.hint == "There is big."


# ---- the operator that empties the answer ----------------------------------------------------------------------------

# Streams that end: a has keys 1 and 2, b keys 2 and 3, c key 1 a day later; e has no row, l and r no row that counts.
ENDED = """CREATE STREAM a (k INT, ts TIMESTAMP)
  SOURCE rows((1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:02')) ORDERED BY ts;
CREATE STREAM b (k INT, ts TIMESTAMP)
  SOURCE rows((2, '2024-01-01 00:00:01'), (3, '2024-01-01 00:00:02')) ORDERED BY ts;
CREATE STREAM c (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-02 00:00:01')) ORDERED BY ts;
CREATE STREAM e (k INT, ts TIMESTAMP) SOURCE rows() ORDERED BY ts;
CREATE STREAM r (k INT, ts TIMESTAMP) SOURCE rows((NULL, NULL), (1, NULL)) ORDERED BY ts;
CREATE TABLE t (k INT PRIMARY KEY, n VARCHAR);
CREATE TABLE filled (k INT PRIMARY KEY, n VARCHAR);
INSERT INTO filled VALUES (7, 'x')"""
W = "WINDOW(RANGE 10 SECONDS)"
ANTI = f"SELECT a.k FROM a {W} ANTI JOIN b {W} ON a.k = b.k"

EMPTYING = [
    # A filter above a join, below it, and on the side that an anti, left or mark join does not need.
    (f"SELECT k FROM a {W} WHERE k > 100", 'the filter "a.k > 100" lets nothing through'),
    (f"SELECT a.k FROM a {W} JOIN b {W} ON a.k = b.k WHERE a.k > 100", 'the filter "a.k > 100" lets nothing through'),
    (
        f"SELECT a.k FROM a {W} ANTI JOIN (SELECT k FROM b {W} WHERE k > 100) s ON a.k = s.k WHERE a.k > 50",
        'the filter "a.k > 50" lets nothing through',
    ),
    (
        f"SELECT a.k FROM a {W} LEFT JOIN (SELECT k FROM b {W} WHERE k > 100) s ON a.k = s.k WHERE a.k > 50",
        'the filter "a.k > 50" lets nothing through',
    ),
    (
        f"SELECT a.k FROM a {W} LEFT JOIN e {W} ON a.k = e.k WHERE a.k > 50",
        'the filter "a.k > 50" lets nothing through',
    ),
    (f"SELECT a.k FROM a {W} WHERE a.k > 50 AND a.k NOT IN (SELECT k FROM e {W})", 'the filter "a.k > 50" lets'),
    # Joins.
    (f"SELECT a.k FROM a {W} JOIN b {W} ON a.k = b.k + 10", "has found no match"),
    (f"SELECT a.k FROM a {W} SEMI JOIN b {W} ON a.k = b.k + 10", "has found no match"),
    (f"SELECT a.k FROM a {W} JOIN b {W} ON a.k < b.k - 10", "has found no match"),
    (f"SELECT a.k FROM a {W} JOIN e {W} ON a.k = e.k", "e ended without a row"),
    (f"SELECT a.k FROM a {W} SEMI JOIN e {W} ON a.k = e.k", "e ended without a row"),
    (f"SELECT e.k FROM e {W} LEFT JOIN a {W} ON a.k = e.k", "e ended without a row"),
    (f"SELECT e.k FROM e {W} FULL JOIN (SELECT k FROM a {W} WHERE k > 9) s ON s.k = e.k", "e ended without a row"),
    (f"SELECT k FROM a {W} ANTI JOIN a AS a2 WINDOW(RANGE 20 SECONDS) ON a.k = a2.k", "finds a match for every row"),
    ("SELECT a.k FROM a JOIN t ON a.k = t.k", "table t is empty"),
    ("SELECT a.k FROM a JOIN filled ON a.k = filled.k", "has found no match"),
    ("SELECT a.k FROM a JOIN filled FOR SYSTEM_TIME AS OF a.ts ON a.k = filled.k", "has found no match"),
    ("SELECT a.k FROM a LEFT JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k WHERE a.k > 50", 'the filter "a.k > 50"'),
    # Other operators.
    (f"SELECT k, count(*) AS n FROM a {W} GROUP BY k HAVING count(*) > 5", 'the filter "count_all > 5" lets nothing'),
    (f"SELECT k FROM a {W} INTERSECT SELECT k + 10 FROM b {W}", "lets nothing through"),
    (f"SELECT k FROM a {W} EXCEPT SELECT k FROM a WINDOW(RANGE 20 SECONDS)", "lets nothing through"),
    (f"SELECT k FROM e {W} UNION ALL SELECT k FROM a {W} WHERE k > 50", "e ended without a row"),
    ("SELECT DISTINCT k FROM e WINDOW(ROWS 5)", "its streams ended without a row"),
    # Streams.
    (f"SELECT k FROM r {W}", "every row of r was rejected"),
    (f"SELECT a.k FROM a {W} JOIN r {W} ON a.k = r.k", "every row of r was rejected"),
]


@pytest.mark.parametrize(("sql", "cause"), EMPTYING)
def test_the_operator_that_empties_the_answer_is_named(sql: str, cause: str) -> None:
    with sl.connect(engine="local", shards=2) as database:
        database.catalog.notices.show = None
        database.sql(ENDED)
        query = database.sql(sql)
        assert query.await_end(30)
        assert query.results().num_rows == 0
        text = query.why()
        first = text.partition("\n")[0]
        assert first.startswith("q1 has no result: ") and cause in first
        assert len(marked(text)) == 1


@pytest.mark.parametrize("join", ["JOIN", "SEMI JOIN"])
def test_a_join_of_other_times_says_so(join: str) -> None:
    with sl.connect(engine="local") as database:
        database.catalog.notices.show = None
        database.sql(ENDED)
        query = database.sql(f"SELECT a.k FROM a {W} {join} c {W} ON a.k = c.k")
        assert query.await_end(30)
        assert "a ends at 2024-01-01 00:00:02, c begins at 2024-01-02 00:00:01" in query.why()


def test_rows_that_are_all_late(database: Database) -> None:
    query = database.sql("SELECT k FROM a")
    database.advance("a", "2025-01-01")
    text = give(database, query, a=[(1, 0), (2, 1)])
    assert text.startswith("q1 has no result: every row of a was late\n")
    assert "Check WITHIN." in text

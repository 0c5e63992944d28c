"""Statements as a database and a script run them: views, what may be dropped, names of queries, SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.core.table import TextTable
from strandline.core.temporal import DAY
from strandline.core.types import BIGINT, VARCHAR
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.database.script import read_script, start_script
from strandline.logical.catalog import Table
from strandline.sql import ast
from strandline.sql.binder.binder import bind_materialized_view
from strandline.sql.parser.statements import parse_one

STREAMS = """
CREATE STREAM s (k VARCHAR, v INT, ts BIGINT) SOURCE rows(('a', 1, 0), ('b', 2, 3)) ORDERED BY ts WITHIN 2 SECONDS;
CREATE STREAM endless (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 50) ORDERED BY ts IDLE AFTER 1 HOUR;
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(STREAMS)
        yield database


def error_of(database: Database, text: str) -> StrandlineError:
    with pytest.raises(StrandlineError) as caught:
        database.sql(text)
    return caught.value


def answer(query: Query) -> list[tuple[object, ...]]:
    assert query.await_end(30)
    return [tuple(row.values())[:-2] for row in query.results().to_pylist()]


# ---- views -----------------------------------------------------------------------------------------------------------


def test_a_view_is_read_like_a_stream_and_takes_a_window(database: Database) -> None:
    database.sql("CREATE VIEW v (key, twice) AS SELECT k, v * 2 FROM s WHERE v > 1")
    assert answer(database.sql("SELECT key, twice FROM v [RANGE 5 MICROSECONDS]")) == [("b", 4)]


def test_a_view_does_not_run(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k FROM s")
    with pytest.raises(StrandlineError) as caught:
        database.query("v")
    assert caught.value.code == "not-a-query"
    assert database.queries == []


def test_streams_and_views_share_their_names(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k FROM s")
    assert error_of(database, "CREATE STREAM V AS SELECT k FROM s").message == 'view "v" already exists'
    assert error_of(database, "CREATE VIEW s AS SELECT k FROM v").message == 'stream "s" already exists'


def test_drop_says_what_a_thing_is(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k FROM s")
    assert error_of(database, "DROP STREAM v").render().splitlines() == [
        'error[other-kind]: "v" is a view, not a stream',
        "  DROP STREAM v",
        "              ^",
        "hint: Write DROP VIEW v.",
    ]
    assert error_of(database, "DROP VIEW IF EXISTS s").code == "other-kind"
    database.sql("DROP VIEW v; DROP VIEW IF EXISTS v")
    assert error_of(database, "DROP VIEW v").code == "unknown-stream"


def test_replace_changes_what_later_queries_read(database: Database) -> None:
    database.sql("CREATE OR REPLACE VIEW v AS SELECT v FROM s; CREATE OR REPLACE VIEW v AS SELECT v * 10 AS v FROM s")
    assert answer(database.sql("SELECT v FROM v")) == [(10,), (20,)]


# ---- dropping --------------------------------------------------------------------------------------------------------


def test_what_a_running_query_reads_is_not_dropped(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT value FROM endless; CREATE VIEW w AS SELECT value FROM v")
    query = database.sql("SELECT COUNT(*) AS n FROM w", name="counting")
    refused = error_of(database, "DROP STREAM endless CASCADE")
    assert refused.render().splitlines() == [
        'error[stream-in-use]: cannot drop stream "endless": it is read by view "v"',
        "  DROP STREAM endless CASCADE",
        "              ^^^^^^^",
        'Indirectly, it is also read by view "w", running query "counting".',
        "hint: Stop the running queries first.",
    ]
    assert error_of(database, "CREATE OR REPLACE VIEW w AS SELECT value FROM v").code == "stream-in-use"
    query.stop()
    database.sql("DROP STREAM endless CASCADE")
    assert [stream.name for stream in database.catalog] == ["s"]


def test_a_query_that_has_ended_keeps_nothing(database: Database) -> None:
    query = database.sql("SELECT k FROM s")
    assert answer(query) == [("a",), ("b",)]
    database.sql("DROP STREAM s")
    assert answer(query) == [("a",), ("b",)]


def test_a_derived_stream_that_runs_is_in_use(database: Database) -> None:
    database.sql("CREATE STREAM d AS SELECT value FROM endless")
    query = database.query("d")
    assert error_of(database, "DROP STREAM d").message == 'cannot drop stream "d": it is read by running query "d"'
    query.stop()
    database.sql("DROP STREAM d")


def test_a_script_does_not_drop_what_its_select_reads(database: Database) -> None:
    with pytest.raises(StrandlineError) as caught:
        read_script(database, "CREATE VIEW v AS SELECT k FROM s; SELECT k FROM v; DROP STREAM s CASCADE")
    assert caught.value.detail == 'Indirectly, it is also read by running query "SELECT".'


def test_a_script_does_not_start_what_it_drops(database: Database) -> None:
    script = read_script(
        database,
        """CREATE STREAM one AS SELECT k FROM s; CREATE STREAM two AS SELECT k FROM one;
           CREATE VIEW three AS SELECT value FROM endless; SELECT v FROM s; DROP STREAM One CASCADE""",
    )
    assert [query.name for query in script.queries] == ["q1"]


# ---- names of queries ------------------------------------------------------------------------------------------------


def test_a_name_is_one_running_query(database: Database) -> None:
    first = database.sql("SELECT value FROM endless", name="mine")
    with pytest.raises(StrandlineError) as caught:
        database.sql("SELECT k FROM s", name="Mine")
    assert caught.value.code == "query-exists"
    assert caught.value.message == 'query "Mine" is already running'
    first.stop()
    assert answer(database.sql("SELECT k FROM s", name="mine")) == [("a",), ("b",)]


def test_a_derived_stream_runs_once(database: Database) -> None:
    database.sql("CREATE STREAM d AS SELECT value FROM endless")
    database.query("d")
    with pytest.raises(StrandlineError) as caught:
        database.query("D")
    assert caught.value.code == "query-exists"


def test_names_that_nobody_gave_avoid_those_that_somebody_did(database: Database) -> None:
    database.sql("CREATE VIEW q2 AS SELECT k FROM s")
    database.sql("SELECT k FROM s", name="Q1")
    assert [database.sql("SELECT k FROM s").name for _ in range(2)] == ["q3", "q4"]


def test_a_script_beside_running_queries_finds_names_of_its_own(database: Database, tmp_path: Path) -> None:
    database.sql("SELECT value FROM endless", name="q1")
    script = read_script(database, "SELECT k FROM s; SELECT v FROM s")
    assert [query.name for query in start_script(database, script, tmp_path, None)] == ["q2", "q3"]


# ---- SHOW and DESCRIBE -----------------------------------------------------------------------------------------------


def told(database: Database, text: str) -> list[dict[str, object]]:
    listing = database.sql(text)
    assert isinstance(listing, TextTable)
    rows: list[dict[str, object]] = listing.results().to_pylist()
    return rows


def test_show_streams_and_views(database: Database) -> None:
    assert told(database, "SHOW VIEWS") == []
    database.sql("CREATE STREAM d AS SELECT k, COUNT(*) AS n\n FROM s GROUP BY k; CREATE VIEW v AS SELECT n FROM d")
    assert told(database, "SHOW STREAMS") == [
        {
            "name": "s",
            "kind": "source",
            "columns": "k VARCHAR, v INT, ts BIGINT",
            "definition": "rows(('a', 1, 0), ('b', 2, 3))",
        },
        {
            "name": "endless",
            "kind": "source",
            "columns": "value BIGINT, ts TIMESTAMP",
            "definition": "rate(rows_per_second => 50)",
        },
        {
            "name": "d",
            "kind": "query",
            "columns": "k VARCHAR, n BIGINT",
            "definition": "SELECT k, COUNT(*) AS n FROM s GROUP BY k",
        },
    ]
    view = {"name": "v", "kind": "view", "columns": "n BIGINT", "definition": "SELECT n FROM d"}
    assert told(database, "SHOW VIEWS") == [view]


def test_show_queries(database: Database) -> None:
    done, running = database.sql("SELECT k FROM s"), database.sql("SELECT value FROM endless, s", name="endless_one")
    done.await_end()
    one, two = told(database, "SHOW QUERIES")
    shown = {"name": "q1", "state": "ended", "pipeline": "q1", "reads": "s", "rows_out": 2, "progress": None}
    assert one == shown
    assert (two["name"], two["state"], two["reads"]) == ("endless_one", "running", "endless, s")
    running.stop()
    assert [row["state"] for row in told(database, "SHOW QUERIES")] == ["ended", "stopped"]


def test_describe(database: Database) -> None:
    database.sql("CREATE VIEW v AS SELECT k, v + 0.5 AS w FROM s")
    facts = [tuple(row.values()) for row in told(database, "DESCRIBE S")]
    assert facts == [
        ("kind", None, "stream from a source"),
        ("column", "k", "VARCHAR"),
        ("column", "v", "INT"),
        ("column", "ts", "BIGINT"),
        ("source", None, "rows(('a', 1, 0), ('b', 2, 3))"),
        ("time", "ts", None),
        ("disorder", None, "2 SECONDS"),
        ("idle", None, "never"),
    ]
    assert ("idle", None, "after 1 HOUR") in [tuple(row.values()) for row in told(database, "DESCRIBE endless")]
    assert [tuple(row.values()) for row in told(database, "DESCRIBE v")] == [
        ("kind", None, "view"),
        ("column", "k", "VARCHAR"),
        ("column", "w", "DECIMAL(12,1)"),
        ("reads", None, "s"),
        ("query", None, "SELECT k, v + 0.5 AS w FROM s"),
    ]
    assert error_of(database, "DESCRIBE nothing").code == "unknown-stream"


def test_a_listing_comes_in_every_form(database: Database) -> None:
    listing = database.sql("SHOW STREAMS")
    assert listing.results("pandas")["name"].tolist() == ["s", "endless"]
    assert listing.results("polars").get_column("name").to_list() == ["s", "endless"]
    assert [line.split()[0] for line in str(listing).splitlines()] == ["name", "s", "endless"]


def test_a_script_shows_what_waits_for_its_end(database: Database) -> None:
    script = read_script(
        database,
        "CREATE STREAM d AS SELECT k FROM s; SET PIPELINE p; SELECT v FROM s; SHOW QUERIES; DESCRIBE d",
    )
    queries, described = script.outputs
    assert [line.split() for line in queries.splitlines()] == [
        ["name", "state", "pipeline", "reads", "rows_out", "progress"],
        ["d", "waiting", "s", "0"],
        ["SELECT", "waiting", "p", "s", "0"],
    ]
    assert described.splitlines()[1].split() == ["kind", "stream", "from", "a", "query"]


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_show_and_describe_tables(database: Database) -> None:
    assert told(database, "SHOW TABLES") == []
    columns = (("sym", VARCHAR), ("price", BIGINT))
    database.catalog.add(Table("stock", columns, key=("sym",), retroactive=False, keep_us=7 * DAY))
    [table] = told(database, "SHOW TABLES")
    assert {name: table[name] for name in ("name", "kind", "columns", "key")} == {
        "name": "stock",
        "kind": "non-retroactive",
        "columns": "sym VARCHAR, price BIGINT",
        "key": "sym",
    }
    facts = [(row["property"], row["name"], row["value"]) for row in told(database, "DESCRIBE stock")]
    assert facts == [
        ("kind", None, "non-retroactive table"),
        ("column", "sym", "VARCHAR"),
        ("column", "price", "BIGINT"),
        ("primary key", "sym", None),
        ("time of a change", None, "by the clock"),
        ("past", None, "7 DAYS"),
    ]
    assert "stock" not in {row["name"] for row in told(database, "SHOW STREAMS")}


def test_materialized_views_are_views(database: Database) -> None:
    statement = parse_one("CREATE MATERIALIZED VIEW v AS SELECT k FROM s KEEP 1 HOUR")
    assert isinstance(statement, ast.CreateMaterializedView)
    database.catalog.add(bind_materialized_view(statement, database.catalog))
    [view] = told(database, "SHOW VIEWS")
    assert view == {"name": "v", "kind": "materialized view", "columns": "k VARCHAR", "definition": "SELECT k FROM s"}
    assert "v" not in {row["name"] for row in told(database, "SHOW STREAMS")}
    facts = {row["property"]: row["value"] for row in told(database, "DESCRIBE v")}
    assert (facts["kind"], facts["query"], facts["past"]) == ("materialized view", "SELECT k FROM s", "1 HOUR")
    assert error_of(database, "DROP VIEW v").code == "other-kind"
    database.sql("DROP MATERIALIZED VIEW v")
    assert told(database, "SHOW VIEWS") == []

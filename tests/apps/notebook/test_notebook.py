"""Notebooks: the magic, what cells show, and widgets that follow a query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

import strandline as sl
from strandline.apps.notebook.html import query_html
from strandline.database.database import Database
from strandline.notebook import LiveChart, LiveTable

ROOT = Path(__file__).resolve().parents[3]
CREATE = "CREATE STREAM s (k VARCHAR, x DOUBLE, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
TOTAL = "SELECT k, SUM(x) AS total FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k"


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql(CREATE)
        yield database


@pytest.fixture
def shell(database: Database) -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "strandline.notebook")
    shell.user_ns["db"] = database
    yield shell
    InteractiveShell.clear_instance()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def rows(*given: tuple[str, float, int]) -> list[tuple[str, float, str]]:
    return [(k, x, f"2024-01-01 00:00:{second:02d}") for k, x, second in given]


def test_a_table_follows_its_query(database: Database) -> None:
    table = LiveTable(database.sql(TOTAL), rows=1, every=0.02)
    assert (table.columns, table.rows) == (["k", "total"], [])
    database.append("s", rows(("a", 1.0, 0), ("a", float("inf"), 1)))
    database.advance("s", "2024-01-01 00:00:02")
    until(lambda: table.rows == [["a", "inf"]])
    database.append("s", rows(("b", 2.0, 5), ("a", 2.0, 20), ("b", 2.0, 20)))
    database.advance("s", "2024-01-01 00:00:21")
    until(lambda: table.more == 1)
    assert "complete up to 2024-01-01 00:00:21" in table.status
    database.end("s")
    until(lambda: "q1 · ended · complete · 5 rows in" in table.status)


def test_a_chart_draws_the_steps_of_an_answer(database: Database) -> None:
    chart = LiveChart(database.sql(TOTAL), y="total", line="k", every=0.02)
    database.append("s", rows(("a", 1.0, 0), ("b", 4.0, 2), ("a", 2.0, 3)))
    database.advance("s", "2024-01-01 00:00:05")
    zero = 1704067200000.0
    until(lambda: len(chart.lines.get("a", [])) == 2)
    assert chart.lines == {
        "a": [[zero, zero + 3000, 1.0], [zero + 3000, zero + 5000, 3.0]],
        "b": [[zero + 2000, zero + 5000, 4.0]],
    }
    recent = LiveChart(database.queries[0], y="total", line="k", last=1.5)
    assert recent.lines["a"] == [[zero + 3000, zero + 5000, 3.0]]
    for wrong, y, line in (
        ("does not exist", "x", None),
        ("does not exist", "total", "z"),
        ("must be a number", "k", None),
    ):
        with pytest.raises(sl.StrandlineError, match=wrong):
            LiveChart(database.queries[0], y=y, line=line)


def test_a_closed_widget_looks_no_more(database: Database) -> None:
    table = LiveTable(database.sql(TOTAL), every=0.01)
    table.close()
    database.append("s", rows(("a", 1.0, 0)))
    database.end("s")
    database.queries[0].await_end()
    time.sleep(0.1)
    assert table.rows == []


def test_the_magic_runs_statements_and_names_queries(shell: InteractiveShell, database: Database) -> None:
    query = shell.run_cell_magic("sql", "totals", TOTAL)
    assert shell.user_ns["totals"] is query and query.name == "totals"
    assert "totals" in str(shell.run_cell_magic("sql", "", "SHOW QUERIES"))
    assert isinstance(shell.run_cell_magic("sql", "--live", TOTAL), LiveTable)
    assert isinstance(shell.run_cell_magic("sql", "c --chart total --line k", TOTAL), LiveChart)
    database.append("s", rows(("<b>", 1.0, 0)))
    database.end("s")
    whole = shell.run_cell_magic("sql", "w --wait", TOTAL)
    assert whole.ended
    assert "<td>&lt;b&gt;</td><td>1.0</td>" in query_html(whole)


def test_a_mistake_is_shown_with_its_place(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell_magic("sql", "", "SELECT y FROM s") is None
    assert 'column "y" does not exist' in capsys.readouterr().err
    shell.user_ns["other"] = 7
    assert shell.run_cell_magic("sql", "--db other", "SHOW STREAMS") is None
    assert 'the variable "other" is not a database' in capsys.readouterr().err


def test_the_example_notebook_runs() -> None:
    read: Any = nbformat.read
    notebook = read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in kinds and "text/html" in kinds
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_a_chart_of_an_ended_answer_ends_a_little_after_its_last_change(database: Database) -> None:
    query = database.sql("SELECT k, SUM(x) AS total FROM s WINDOW(RANGE UNBOUNDED) GROUP BY k")
    database.append("s", rows(("a", 1.0, 0), ("a", float("inf"), 20), ("b", 2.0, 40)))
    database.end("s")
    assert query.await_end(30)
    zero = 1704067200000.0
    assert LiveChart(query, y="total", line="k").lines == {  # what is infinite cannot be drawn, nor sent as JSON
        "a": [[zero, zero + 20_000, 1.0]],
        "b": [[zero + 40_000, zero + 42_000, 2.0]],
    }


def test_integers_that_javascript_cannot_hold_are_texts(database: Database) -> None:
    database.sql("CREATE STREAM big (n BIGINT, d DECIMAL(5,2), ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    query = database.sql("SELECT n, d FROM big WINDOW(RANGE UNBOUNDED)")
    database.append("big", [(2**53 + 1, "1.50", "2024-01-01"), (7, None, "2024-01-01")])
    database.end("big")
    assert query.await_end(30)
    table = LiveTable(query)
    assert sorted(table.rows, key=str) == [["9007199254740993", "1.50"], [7, None]]
    assert table.numbers == [True, True]


def test_cells_change_tables_while_a_live_table_follows(shell: InteractiveShell, database: Database) -> None:
    shell.run_cell_magic("sql", "", "CREATE TABLE t (k VARCHAR, n INT, PRIMARY KEY (k))")
    change = shell.run_cell_magic("sql", "", "INSERT INTO t VALUES ('a', 1) AT TIMESTAMP '2024-01-01 00:00:00'")
    shown = shell.display_formatter.format(change)[0]["text/plain"]
    assert shown == "1 row inserted at 2024-01-01 00:00:00"
    query = shell.run_cell_magic("sql", "joined", "SELECT s.k, t.n FROM s [RANGE 1 DAY] JOIN t ON s.k = t.k")
    table = LiveTable(query, rows=5, every=0.02)
    now = datetime.now(UTC)
    database.append("s", [("a", 1.0, now), ("b", 1.0, now + timedelta(seconds=1))])
    database.advance("s", now + timedelta(seconds=2))
    until(lambda: table.rows == [["a", 1]])
    shell.run_cell_magic("sql", "", "UPDATE t SET n = 2; INSERT INTO t VALUES ('b', 3)")
    database.advance("s", now + timedelta(seconds=3))
    until(lambda: sorted(table.rows) == [["a", 2], ["b", 3]])


def test_a_cell_may_be_run_again(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """Its streams, and its query, replace those that it made before; what others have made is not touched."""
    database = shell.user_ns["db"]
    declare = "CREATE STREAM r (k VARCHAR, x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts"
    for _ in range(2):
        shell.run_cell_magic("sql", "", declare)
        shell.run_cell_magic("sql", "", "CREATE STREAM d AS SELECT k FROM r")
        query = shell.run_cell_magic("sql", "", "SELECT k, x FROM r")
        named = shell.run_cell_magic("sql", "total", "SELECT SUM(x) AS x FROM r [RANGE UNBOUNDED]")
        assert [q.name for q in database.queries] == [query.name, "total"] and shell.user_ns["total"] is named
        assert query.is_running and named.is_running
    shell.run_cell_magic("sql", "", declare.replace("x INT", "x DOUBLE"))
    assert "d read r, and went with it" in capsys.readouterr().err
    assert not query.is_running and "d" not in database.catalog and not database.queries
    assert str(dict(database.catalog.get("r").columns)["x"]) == "DOUBLE"
    shell.run_cell_magic("sql", "", CREATE)  # it was not made by a cell
    assert "already exists" in capsys.readouterr().err


def test_a_line_is_a_statement(shell: InteractiveShell) -> None:
    shell.run_cell("listing = %sql SHOW STREAMS")
    assert shell.user_ns["listing"].table.column("name").to_pylist() == ["s"]
    shell.run_cell("query = %sql SELECT k FROM s WHERE x > 1")
    assert shell.user_ns["query"].is_running

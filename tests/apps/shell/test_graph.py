"""The picture of the graphs that run: each operator once, with the queries that share it, as SHOW GRAPH lists them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import strandline as sl
from strandline.apps.shell.graph import draw, draw_all
from strandline.database.database import Database
from strandline.database.introspection.progress_meter import ProgressMeter
from strandline.database.introspection.running_graph import graph_operators
from strandline.database.script import read_script, start_script

SCRIPT = """
CREATE STREAM a AS SELECT k, count(*) AS n FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k;
CREATE STREAM b AS SELECT k, count(*) AS m FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k;
CREATE STREAM c AS SELECT k, max(v) AS v FROM s WINDOW(RANGE 5 SECONDS) GROUP BY k HAVING count(*) > 1;
CREATE STREAM d AS SELECT x.k, x.n, y.v FROM a x JOIN c y ON x.k = y.k;
SET PIPELINE apart;
CREATE STREAM e AS SELECT v FROM s;
"""


@pytest.fixture
def db() -> Iterator[Database]:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM s (k VARCHAR, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        start_script(database, read_script(database, SCRIPT), None, None)
        database.append("s", [("x", 1, "2024-01-01 00:00:00"), ("x", 2, "2024-01-01 00:00:01")])
        wait_for(lambda: all(query.progress > 0 for query in database.queries))
        yield database


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def picture(db: Database) -> list[str]:
    return draw_all([(query, ProgressMeter([query])) for query in db.queries]).plain.splitlines()


def test_all_graphs_show_what_show_graph_lists(db: Database) -> None:
    lines = picture(db)
    drawn = [line for line in lines if "▲ " in line and not line.endswith("as above")]
    operators = [operator for operator in graph_operators(db.queries) if operator.kind != "Input"]
    assert len(drawn) == len(operators) > 5
    for operator in operators:
        (line,) = [line for line in drawn if f"▲ {operator.text} " in f"{line} "][:1]
        assert line
    shared = sorted(line.split("shared by ")[1] for line in drawn if "shared by" in line)
    assert shared == sorted(", ".join(o.queries) for o in operators if len(o.queries) > 1)
    assert "a, b, d" in shared
    assert [line for line in lines if line.startswith("pipeline")] == ["pipeline a", "pipeline apart"]
    assert [line.split("   ")[0] for line in lines if line.startswith("result of")] == [
        f"result of {n}" for n in "abcde"
    ]
    streams = [line for line in lines if "● Read s" in line]
    assert sum("rows" in line for line in streams) == 2  # read once in each pipeline


def test_one_query_names_those_that_it_shares_with(db: Database) -> None:
    one = next(query for query in db.queries if query.name == "b")
    text = draw(one, ProgressMeter([one])).plain
    assert "shared by a, b" in text and "as above" not in text and "result of a" not in text


def test_a_query_that_was_dropped_is_in_no_picture(db: Database) -> None:
    before = len(picture(db))
    next(query for query in db.queries if query.name == "e").stop()
    running = [query for query in db.queries if query.is_running]
    lines = draw_all([(query, ProgressMeter([query])) for query in running]).plain.splitlines()
    assert len(lines) < before and "pipeline a" not in lines

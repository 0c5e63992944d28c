"""The benchmark of NEXMark's queries: the same input for both sides, and a comparison that can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import strandline as sl
from strandline.apps.bench.nexmark import EXAMPLES, over_files, report_nexmark, same_answer, write_events
from strandline.apps.bench.nexmark_spark import SPARK, Alone
from strandline.apps.bench.run import run_bench
from strandline.connectors.sinks import Memory
from strandline.database.script import read_script

EVENTS = 2000


def answer(text: str) -> pl.DataFrame:
    with sl.connect(engine="local") as database:
        (bound,) = read_script(database, text).queries
        (query,) = database.start([replace(bound, sink=Memory())], None)
        query.await_end()
        frame: pl.DataFrame = query.results("polars")
        return frame.sort(frame.columns)


@pytest.mark.parametrize("name", ["q2", "q3", "q5", "q9", "short_auctions"])
def test_files_have_the_events_of_the_generator(name: str, tmp_path: Path) -> None:
    data = write_events(tmp_path, EVENTS)
    text = (EXAMPLES / f"{name}.sql").read_text()
    generated = text.replace("events => 100000, rate => 1000", f"events => {EVENTS}, rate => 10000")
    assert "nexmark(" not in over_files(text, data)
    found = answer(over_files(text, data))
    assert found.height and found.equals(answer(generated))


def test_a_stream_by_arrival_stays_one(tmp_path: Path) -> None:
    text = over_files((EXAMPLES / "q12.sql").read_text(), tmp_path)
    assert f"CREATE STREAM bid (bidder BIGINT) SOURCE file('{tmp_path}/bid/*.parquet');" in text


def test_every_query_of_the_benchmark_is_compared_or_says_why_not() -> None:
    assert list(SPARK) == [f"q{n}" for n in range(23)]
    assert all(isinstance(each, Alone) or each for each in SPARK.values())


OURS = pl.DataFrame(
    {"k": [1, 2, 2], "n": [5, 5, 6], "valid_from": [9, 9, 19], "valid_until": [19, 19, None]},
    schema_overrides={"n": pl.Int32},
)


def compared(kind: str, theirs: dict[str, list[int]]) -> bool | None:
    return same_answer(OURS, pl.DataFrame(theirs), Alone(lambda s: s["bid"], kind, keys=1))  # type: ignore[arg-type]


def test_answers_that_differ_are_seen() -> None:
    assert compared("rows", {"k": [2, 1, 2], "n": [6, 5, 5]})
    assert not compared("rows", {"k": [2, 1, 2], "n": [6, 5, 6]})
    assert not compared("rows", {"k": [2, 1], "n": [6, 5]})
    assert compared("windows", {"k": [1, 2, 2], "n": [5, 5, 6], "end": [10, 10, 20]})
    assert not compared("windows", {"k": [1, 2], "n": [5, 6], "end": [10, 20]})
    assert compared("one of windows", {"k": [1, 2], "n": [5, 6], "end": [10, 20]})
    assert not compared("one of windows", {"k": [3, 2], "n": [5, 6], "end": [10, 20]})
    assert compared("last", {"k": [2, 2], "n": [5, 6], "batch": [0, 1]})
    assert not compared("last", {"k": [2, 2], "n": [6, 5], "batch": [0, 1]})
    assert compared("rows", {"k": [], "n": []}) is None


def test_the_table_has_a_line_for_each_query() -> None:
    side = {"rows_per_s": 10, "cpu_seconds": 1.0}
    figures = {
        "events": 10,
        "queries": [
            {"query": "q1", "strandline": side, "spark": side, "note": "", "same_answer": True}
            | {"ratio": 1.0, "cpu_ratio": 1.0},
            {"query": "q6", "strandline": side, "note": "no windows over rows"},
        ],
    }
    console = Console(record=True, width=160)
    report_nexmark(figures, console)
    shown = console.export_text()
    assert "cannot" in shown and "no windows over rows" in shown and "q1" in shown


@pytest.mark.spark
@pytest.mark.slow
def test_every_query_runs_beside_spark_alone() -> None:
    (figures,) = run_bench("nexmark", 250_000, 1, Console(quiet=True))
    assert [each["query"] for each in figures["queries"]] == list(SPARK)
    assert [each["query"] for each in figures["queries"] if each.get("same_answer") is False] == []

"""Results that a run has written, as other processes read them, and rows that `strandline run` prints."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from open_results import CUT, QUERIES, STREAMS, advance, rows

import strandline as sl
from strandline.apps.row_printer import PrintedRows, RowPrinter
from strandline.core.types import Schema
from strandline.database.database import Database
from strandline.runtime import announcements
from strandline.runtime.result import to_result

ALL = QUERIES | CUT
SCRIPT = """
CREATE STREAM readings (sensor VARCHAR, celsius DOUBLE, at TIMESTAMP)
  SOURCE rows(('hall', 19.5, '2024-01-02 09:00:00'), ('roof', 4.0, '2024-01-02 09:01:00'),
              ('hall', 20.0, '2024-01-02 09:05:00'), ('hall', 26.5, '2024-01-02 09:07:00'))
  ORDERED BY at;
CREATE STREAM means AS
  SELECT sensor, AVG(celsius) AS mean FROM readings WINDOW(RANGE 5 MINUTES) GROUP BY sensor;
"""
TOTAL = "CREATE STREAM total AS SELECT COUNT(*) AS n FROM readings [RANGE UNBOUNDED];"
MEANS = """\
sensor   mean  valid on 2024-01-02
hall     19.5  [09:00, 09:05)
roof      4.0  [09:01, 09:06)
hall     20.0  [09:05, 09:07)
hall    23.25  [09:07, 09:10)
hall     26.5  [09:10, 09:12)
"""


class CollectingPrinter(RowPrinter):
    """Keeps the rows that would be printed."""

    def __init__(self) -> None:
        super().__init__("table", None, several=False)
        self.frames: list[pl.DataFrame] = []

    def print_rows(self, query: str, frame: pl.DataFrame, columns: Schema) -> None:
        self.frames.append(pl.DataFrame(to_result(frame.clear() if not frame.height else frame, columns)))


def feed(db: Database, number: int) -> None:
    db.append("s", rows(number, (number % 3, number % 5), (number % 2, number)))
    if number % 4 == 1:
        db.append("o", rows(number, (number % 3, 0)))


def multiset(frame: pl.DataFrame) -> list[str]:
    return sorted(" ".join(map(str, row)) for row in frame.rows())


@pytest.mark.parametrize("name", ALL)
def test_every_element_is_read_and_printed_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(announcements, "MAX_SECONDS", 0.05)
    printer = CollectingPrinter()
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        kept = db.sql(ALL[name], name="kept")
        written = db.sql(ALL[name], name="q", sink=sl.Parquet(tmp_path / "q"))
        printed = db.sql(ALL[name], name="printed", sink=PrintedRows(printer))
        for number in range(12):
            feed(db, number)
            for query in (kept, written, printed):
                advance(db, query, number + 0.9)
        for stream in ("s", "o"):
            db.end(stream)
        assert all(query.await_end(30) for query in (kept, written, printed))
        expected = multiset(kept.results("polars"))
        assert multiset(pl.DataFrame(sl.read(tmp_path / "q"))) == expected
        assert multiset(pl.DataFrame(sl.read(tmp_path, "q", changes=True))) == multiset(kept.changes("polars"))
        assert multiset(pl.concat(printer.frames)) == expected


def strandline(*words: str | Path, code: int = 0) -> tuple[str, str]:
    command = [sys.executable, "-m", "strandline", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two queries."""
    directory = tmp_path_factory.mktemp("run")
    (directory / "two.sql").write_text(SCRIPT + TOTAL)
    strandline("run", directory / "two.sql", "--engine", "local", "--out", directory / "out")
    return directory / "out"


def test_results_are_shown_as_a_table_by_default(run: Path) -> None:
    out, err = strandline("results", run / "means")
    assert out == MEANS
    assert err == "means: 5 elements, complete up to the end\n"


def test_results_at_an_instant_and_as_changes(run: Path) -> None:
    assert strandline("results", run / "means", "--at", "2024-01-02 09:05:59")[0] == (
        "sensor  mean\nroof     4.0\nhall    20.0\n"
    )
    assert strandline("results", run / "means", "--at", "last")[0] == "sensor   mean\nhall    23.25\n"
    changes = strandline("results", run, "means", "--changes")[0].splitlines()
    assert changes[1:4] == [
        "+  09:00               hall     19.5",
        "+  09:01               roof      4.0",
        "-  09:05               hall     19.5",
    ]


def test_results_in_formats_of_programs(run: Path, tmp_path: Path) -> None:
    lines = strandline("results", run / "means", "--format", "json", "--limit", "1")[0].splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "sensor": "hall",
            "mean": 19.5,
            "valid_from": "2024-01-02T09:00:00.000000Z",
            "valid_until": "2024-01-02T09:05:00.000000Z",
        }
    ]
    assert strandline("results", run / "total", "--format", "csv")[0].splitlines()[-1] == (
        "4,2024-01-02T09:07:00.000000Z,"
    )
    strandline("results", run / "means", "--out", tmp_path / "means.parquet")
    assert pq.read_table(tmp_path / "means.parquet").num_rows == 5
    strandline("results", run / "means", "--out", tmp_path / "means.csv")
    assert (tmp_path / "means.csv").read_text().startswith("sensor,mean,valid_from,valid_until\n")


def test_the_directory_of_a_run_lists_its_queries(run: Path) -> None:
    listed = strandline("results", run)[0].splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["means", "5"], ["total", "4"]]
    with pytest.raises(sl.StrandlineError, match="has the results of 2 queries") as error:
        sl.read(run)
    assert str(run / "means") in (error.value.hint or "")
    assert sl.read(run, "total").num_rows == 4
    assert sl.read(run, "total", at="2024-01-02 09:05:30").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    "words", [("--at", "last"), ("--changes",), ("--format", "csv"), ("--out", "x.csv"), ("--limit", "1"), ("-x",)]
)
def test_options_of_one_query_are_refused_for_a_list(run: Path, words: tuple[str, ...]) -> None:
    shown = strandline("results", run, *words, code=1)[1]
    option = words[0].replace("-x", "--expand")
    assert f"error[usage]: {option} is for one query, and {run} has the results of 2" in shown
    assert f"hint: Name one: {run / 'means'}, {run / 'total'}." in shown


def test_what_is_not_there_is_named(run: Path) -> None:
    assert "has the results of means, total" in strandline("results", run / "menas", code=1)[1]
    assert (
        "Formats are table, csv, json and parquet" in strandline("results", run / "means", "--format", "x", code=1)[1]
    )
    assert "invalid instant 'noon'" in strandline("results", run / "means", "--at", "noon", code=1)[1]


def test_an_instant_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    with sl.connect(engine="local") as db:
        db.sql(STREAMS)
        query = db.sql(QUERIES["range"], name="q", sink=sl.Parquet(tmp_path / "q"))
        feed(db, 0)
        advance(db, query, 0.9)
        deadline = time.monotonic() + 30
        while not (tmp_path / "_open" / "q.parquet").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(sl.StrandlineError, match="is not complete yet"):
            sl.read(tmp_path / "q", at="2024-01-01 00:30:00")


def test_run_without_out_prints_rows(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT)
    out, err = strandline("run", script, "--engine", "local")
    assert out == MEANS
    assert "--out DIR writes the results to files" in err
    out, _ = strandline("run", script, "--engine", "local", "--format", "json", "--limit", "2")
    assert [json.loads(line)["mean"] for line in out.splitlines()] == [19.5, 4.0]
    out, _ = strandline("run", script, "--engine", "local", "--limit", "2")
    assert out.splitlines()[-1] == "… more rows follow; --limit 0 prints all of them, --out DIR writes them to files"


def test_rows_of_several_queries_have_their_names(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT + TOTAL)
    out, _ = strandline("run", script, "--engine", "local")
    assert out.startswith("means:\n") and "\n\ntotal:\nn  valid" in out
    assert out.splitlines()[-1].startswith("4  [") and out.splitlines()[-1].endswith("09:07, …)")
    out, _ = strandline("run", script, "--engine", "local", "--format", "json")
    assert {json.loads(line)["query"] for line in out.splitlines()} == {"means", "total"}
    assert "Use --format json" in strandline("run", script, "--engine", "local", "--format", "csv", code=1)[1]


def test_queries_of_a_script_say_once_what_they_share(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    late = "CREATE STREAM late (k INT, ts TIMESTAMP) SOURCE rows((1, '2024-01-02'), (2, '2024-01-01')) ORDERED BY ts;"
    script.write_text(late + "SELECT k FROM late WHERE k > 0; SELECT k FROM late WINDOW(ROWS 1);")
    _, err = strandline("run", script, "--engine", "local")
    assert err.count("notice[late-rows]") == 1


def test_a_sink_needs_a_checkpoint(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT + f"CREATE SINK s INTO parquet('{tmp_path}/s') AS SELECT * FROM readings;")
    assert "Add --checkpoint DIR" in strandline("run", script, "--engine", "local", code=1)[1]
    strandline("run", script, "--engine", "local", "--checkpoint", tmp_path / "c")
    assert sl.read(tmp_path / "s").num_rows == 4

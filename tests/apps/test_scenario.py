"""Scenario files: what they say is played, what differs is shown, what cannot be read is pointed at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.apps.cli import app
from strandline.apps.scenario.play import Outcome, play
from strandline.apps.scenario.report import corrected, render
from strandline.apps.scenario.text import Expect, ScenarioEvents, read_scenario, split_cells
from strandline.core.errors import ScenarioError, StrandlineError
from strandline.database.database import Database

VOLUME = Path(__file__).resolve().parents[2] / "docs" / "examples" / "volume.scn"
HEAD = """CREATE STREAM s (k VARCHAR, x DOUBLE, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITHIN 1 SECOND;
CREATE STREAM q AS SELECT k, x FROM s WINDOW(RANGE 5 SECONDS);
DAY 2024-01-01
"""


def played(text: str, **options: Any) -> list[Outcome]:
    with sl.connect(engine="local", **options) as database:
        return play(read_scenario(text), database)


@pytest.mark.parametrize(("batch_rows", "shards"), [(1, 1), (2, 3), (1000, 2)])
def test_the_example_holds_whatever_the_batches(batch_rows: int, shards: int) -> None:
    outcomes = played(VOLUME.read_text(), batch_rows=batch_rows, shards=shards)
    assert len(outcomes) == 6
    assert all(outcome.met for outcome in outcomes)


@pytest.mark.spark
def test_the_example_holds_on_spark(spark_database: Database) -> None:
    with sl.connect(spark=spark_database.spark, shards=2) as database:
        outcomes = play(read_scenario(VOLUME.read_text()), database)
    assert [outcome.met for outcome in outcomes] == [True] * 6


def test_a_difference_is_shown_and_can_be_taken_over() -> None:
    text = (
        HEAD + "EVENTS s\n  a | 1 | 00:00:01\n  b | 0.1 | 00:00:02\nEND\nEXPECT q AT 00:00:02\n  a | 2.0\n  b | 0.1\n"
    )
    scenario = read_scenario(text)
    outcomes = played(text)
    assert render("f.scn", scenario, outcomes) == (
        "f.scn: 1 expectation, 1 failed\n  line 8: EXPECT q AT 00:00:02\n    - a | 2.0\n    + a | 1.0"
    )
    better = corrected(scenario, outcomes)
    assert better.endswith("EXPECT q AT 00:00:02\n  a | 1.0\n  b | 0.1\n")
    assert all(outcome.met for outcome in played(better))


def test_elements_are_compared_by_what_is_valid_when() -> None:
    """Two ways to cut the same snapshots are the same expectation; a snapshot that differs is not."""
    events = HEAD + "EVENTS s\n  a | 1 | 00:00:01\n  a | 1 | 00:00:03\nEND\nEXPECT q\n"
    assert played(events + "  a | 1  [00:00:01, 00:00:06)\n  a | 1 [00:00:03, 00:00:08)\n")[0].met
    assert played(events + "  a | 1 | [00:00:01, 00:00:08)\n  a | 1  [00:00:03, 00:00:06)\n")[0].met
    assert not played(events + "  a | 1  [00:00:01, 00:00:08)\n")[0].met


def test_elements_end_where_time_has_come_to() -> None:
    text = HEAD + "EVENTS s\n  a | 1 | 00:00:01\nADVANCE TO 00:00:04\nEXPECT q\n  a | 1  [00:00:01, 00:00:04)\n"
    assert played(text)[0].met


def test_an_instant_that_is_not_complete_is_no_empty_snapshot() -> None:
    text = HEAD + "EVENTS s\n  a | 1 | 00:00:01\nADVANCE TO 00:00:04\nEXPECT q AT 00:00:04\n"
    (outcome,) = played(text)
    assert not outcome.met
    assert outcome.why == "q is complete until 2024-01-01 00:00:04 only: ADVANCE the watermark first"


def test_time_may_advance_in_one_stream_alone() -> None:
    text = """CREATE STREAM a (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM b (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE STREAM q AS SELECT a.k FROM a WINDOW(RANGE 5 SECONDS) JOIN b WINDOW(RANGE 5 SECONDS) ON a.k = b.k;
DAY 2024-01-01
EVENTS a
  1 | 00:00:01
EVENTS b
  1 | 00:00:02
ADVANCE a TO 00:00:09
EXPECT q COMPLETE UNTIL 00:00:02
ADVANCE b TO 00:00:05
EXPECT q COMPLETE UNTIL 00:00:05
END a
ADVANCE TO 00:00:07
"""
    with pytest.raises(sl.StrandlineError, match="has ended") as caught:
        played(text)
    assert "ADVANCE TO 00:00:07" in caught.value.render(), "the step that cannot be done is pointed at"
    assert [o.met for o in played(text.replace("ADVANCE TO 00:00:07", "EXPECT q COMPLETE UNTIL 00:00:05"))] == [
        True
    ] * 3


def test_cells() -> None:
    assert split_cells(" a | 'b | c' | it's | it's  -- hm") == ["a", "'b | c'", "it's", "it's"]
    assert split_cells("  '' | x--y |  ") == ["''", "x--y", ""]
    text = (
        HEAD
        + "EVENTS s\n  'NULL' | NULL | 00:00:01\n  'a | ''b' | 1e300 | 00:00:02\n  '' | NaN | 2024-01-01 00:00:03\n"
    )
    steps = read_scenario(text).steps
    assert isinstance(steps[0], ScenarioEvents)
    assert [row.cells[:2] for row in steps[0].rows] == [("NULL", None), ("a | 'b", "1e300"), ("", "NaN")]
    outcomes = played(text + "END\nEXPECT q AT 00:00:03\n  '' | NaN\n  'NULL' | NULL\n  'a | ''b' | 1e300\n")
    assert outcomes[0].met
    expect = read_scenario(text + "EXPECT q AT 00:00:03\n").steps[1]
    assert isinstance(expect, Expect)
    # What is written as found reads as the same again.
    found = played(text + "END\nEXPECT q AT 00:00:03\n")
    assert played(corrected(read_scenario(text + "END\nEXPECT q AT 00:00:03\n"), found))[0].met


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("EVENT s\n", "expected a step", "EVENT s"),
        ("ADVANCE 00:00:01\n", "invalid ADVANCE", "ADVANCE 00:00:01"),
        ("ADVANCE TO yesterday\n", 'invalid time "yesterday"', "ADVANCE TO yesterday"),
        ("END s\n  a\n", "END has no rows", "a"),
        ("EXPECT q\n  a | 1\n", "must have a validity interval", "a | 1"),
        ("EXPECT LATE s AT 00:00:01\n", "LATE rows cannot have a time", "EXPECT LATE s AT 00:00:01"),
        ("EVENTS s\n  a | 1\n", "2 cells, the stream 3 columns", "a | 1"),
        ("EVENTS t\n  a | 1\n", 'stream "t" does not exist', "EVENTS t"),
        ("END\nEXPECT r AT 00:00:01\n", 'unknown query "r"', "EXPECT r AT 00:00:01"),
        ("END\nEXPECT q AT 00:00:01\n  a | b\n", "'b' is not DOUBLE", "a | b"),
        ("EXPECT LATE t\n", 'stream "t" does not exist', "EXPECT LATE t"),
    ],
)
def test_mistakes_are_pointed_at(text: str, message: str, marked: str) -> None:
    text = HEAD.replace("DAY", "-- nothing yet\nDAY") + "EVENTS s\n  z | 0 | 00:00:00\n" + text
    with pytest.raises(sl.StrandlineError, match=message) as caught:
        played(text)
    span = caught.value.span
    assert span is not None
    assert span.text[span.start : span.end] == marked


def test_a_mistake_in_the_sql_is_pointed_at() -> None:
    with pytest.raises(sl.StrandlineError) as caught:
        played(HEAD.replace("SELECT k, x", "SELECT k, y"))
    assert "line 2:" in caught.value.render() and caught.value.code == "unknown-column"
    with pytest.raises(sl.StrandlineError, match="the scenario has no query"):
        played("DAY 2024-01-01\n")
    assert issubclass(ScenarioError, sl.StrandlineError)


def test_the_command_says_all_and_leaves_with_its_verdict(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.scn"
    wrong.write_text(HEAD + "EVENTS s\n  a | 1 | 00:00:01\nEND\nEXPECT q AT 00:00:02\n")
    runner = CliRunner()
    result = runner.invoke(app, ["test", str(VOLUME), str(wrong)])
    assert result.exit_code == 1
    assert "volume.scn: 6 expectations, all passed" in result.output
    assert "+ a | 1.0" in result.output
    assert runner.invoke(app, ["test", str(wrong), "--update"]).exit_code == 0
    assert wrong.read_text().endswith("EXPECT q AT 00:00:02\n  a | 1.0\n")
    assert runner.invoke(app, ["test", str(wrong)]).exit_code == 0


# ---- tables ----------------------------------------------------------------------------------------------------------

TABLE = """CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts;
CREATE TABLE t (k INT, p VARCHAR, PRIMARY KEY (k));
CREATE TABLE n (k INT, p VARCHAR, PRIMARY KEY (k)) NON RETROACTIVE;
INSERT INTO t VALUES (1, 'p'); INSERT INTO n VALUES (1, 'p');
CREATE STREAM joined AS SELECT t.p FROM s [RANGE 10 SECONDS] JOIN t ON s.k = t.k;
CREATE STREAM looked_up AS SELECT n.p FROM s [RANGE 10 SECONDS] JOIN n ON s.k = n.k;
DAY 2024-01-01
"""


@pytest.mark.parametrize(("batch_rows", "shards"), [(1, 1), (2, 3), (1000, 2)])
def test_tables_change_at_times_of_the_scenario(batch_rows: int, shards: int) -> None:
    outcomes = played(
        TABLE
        + """EVENTS s
  1 | 00:00:00
CHANGE AT 00:00:04
  UPDATE t SET p = 'q' WHERE k = 1; UPDATE n SET p = 'q'
    WHERE k = 1
EVENTS s
  1 | 00:00:04
ADVANCE TO 00:00:05
EXPECT joined AT 00:00:03.999999
  p
EXPECT joined AT 00:00:04
  q
  q
CHANGE AT 00:00:07
  DELETE FROM t; DELETE FROM n
END
EXPECT joined
  p [00:00:00, 00:00:04)
  q [00:00:04, 00:00:07)
  q [00:00:04, 00:00:07)
EXPECT looked_up
  p [00:00:00, 00:00:10)
  q [00:00:04, 00:00:14)
""",
        batch_rows=batch_rows,
        shards=shards,
    )
    assert [outcome.met for outcome in outcomes] == [True] * 4


@pytest.mark.parametrize(
    ("steps", "code", "pointed"),
    [
        ("ADVANCE TO 00:00:05\nCHANGE AT 00:00:04\n  DELETE FROM t", "change-too-old", "t"),
        ("CHANGE AT 00:00:04\n  DELETE FROM t\nCHANGE AT 00:00:03\n  DELETE FROM n; INSERT INTO t VALUES (3, 'x')",
         "change-too-old", "t"),
        ("CHANGE AT 00:00:04", "scenario", "CHANGE AT 00:00:04"),
        ("CHANGE 00:00:04\n  DELETE FROM t", "scenario", "CHANGE 00:00:04"),
        ("CHANGE AT 00:00:04\n  SELECT k FROM t", "scenario", "SELECT k FROM t"),
        ("CHANGE AT 00:00:04\n  DELETE FROM t AT TIMESTAMP '2024-01-01'", "scenario",
         "DELETE FROM t AT TIMESTAMP '2024-01-01'"),
        ("CHANGE AT 00:00:04\n  DELETE FROM s", "not-a-table", "s"),
        ("CHANGE AT 00:00:04\n  DELETE FROM t WHERE\n    x = 1", "unknown-column", "x"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_pointed_at(steps: str, code: str, pointed: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        played(TABLE + steps + "\n")
    assert caught.value.code == code
    span = caught.value.span
    assert span is not None and span.text[span.start : span.end] == pointed

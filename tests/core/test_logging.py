"""The log: a line for each event that an on-call engineer needs, searchable, without secrets, and only on demand."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import strandline as sl
from strandline.core.errors import SourceError, StrandlineError
from strandline.core.log import DEBUG, ENGINE, INFO, log_event, log_failure, parse_level
from strandline.database.query import Query
from strandline.runtime.checkpoint.replay import DIRECTORY
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.pipeline import RunningPipeline, show_replay
from strandline.shedding.controller import SheddableQuery, SheddingController

ROWS = "k,ts\n1,2024-01-01 00:00:00\n2,2024-01-01 00:00:09\n3,2024-01-01 00:00:01\nx,2024-01-01 00:00:10\n"
COUNT = "SELECT COUNT(*) AS n FROM s WINDOW(RANGE 1 SECOND)"


def stream_of(file: Path, bad_input: str = "") -> str:
    return f"CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE file('{file}') ORDERED BY ts WITHIN 1 SECOND{bad_input}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four rows, of which the third is late and the fourth malformed."""
    path = tmp_path / "in.csv"
    path.write_text(ROWS)
    return path


class Lines:
    """What was logged, as `area: message`."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, area: str) -> list[str]:
        return [r.getMessage() for r in self._caplog.records if r.name == f"strandline.{area}"]

    def levels(self, area: str) -> set[str]:
        return {r.levelname for r in self._caplog.records if r.name == f"strandline.{area}"}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    with caplog.at_level(DEBUG, "strandline"):
        yield Lines(caplog)


def facts_of(line: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))


def run_count(file: Path, checkpoint: Path | None = None, bad_input: str = "") -> Query:
    with sl.connect(engine="local", batch_rows=1, shards=2, checkpoint=checkpoint) as database:
        database.sql(stream_of(file, bad_input))
        query: Query = database.sql(COUNT, name="totals")
        query.await_end(60)
        return query


def test_a_query_is_logged_from_start_to_end(file: Path, lines: Lines) -> None:
    query = run_count(file)
    started, ended = lines.of("engine")
    assert re.fullmatch(r"query started name=totals engine=local checkpoint=\S+ shards=2", started)
    assert ended == f"query ended name=totals last_batch={query.metrics()['batches'] - 1}"
    assert lines.levels("engine") == {"INFO"}
    assert lines.of("recovery") == []


def test_each_batch_is_a_line_at_debug(tmp_path: Path, lines: Lines) -> None:
    for number, second in enumerate(("01", "09", "20")):
        (tmp_path / f"{number}.csv").write_text(f"k,ts\n1,2024-01-01 00:00:{second}\n")
    query = run_count(tmp_path / "*.csv")
    batches = [facts_of(line) for line in lines.of("batch")]
    assert [batch["batch"] for batch in batches] == [str(n) for n in range(query.metrics()["batches"])]
    for batch in batches:
        assert list(batch) == ["query", "batch", "watermark", "rows_in", "rows_out", "seconds"]
    assert sum(int(batch["rows_in"]) for batch in batches) == 3
    assert sum(int(batch["rows_out"]) for batch in batches) == query.metrics()["rows_out"]
    assert "2024-01-01T00:00:08" in {batch["watermark"] for batch in batches}
    assert batches[-1]["watermark"] == "forever"
    assert all(0 <= float(batch["seconds"]) < 60 for batch in batches)
    assert lines.levels("batch") == {"DEBUG"}


def test_batches_are_not_formatted_at_info(
    file: Path, lines: Lines, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelineMetrics, "show_watermark", lambda self: pytest.fail("a line was made for nobody"))
    with caplog.at_level(INFO, "strandline"):
        run_count(file)
    assert lines.of("batch") == []
    assert lines.of("engine")[-1].startswith("query ended"), lines.of("engine")


def test_late_and_rejected_rows_are_counted_in_one_line_per_batch_and_stream(file: Path, lines: Lines) -> None:
    query = run_count(file)
    assert (query.metrics()["late"], query.metrics()["rejected"]) == ({"s": 1}, {"s": 1})
    set_aside = [facts_of(line) for line in lines.of("input")]
    assert len({(line["batch"], line["stream"]) for line in set_aside}) == len(set_aside)
    assert sum(int(line["late"]) for line in set_aside) == 1
    assert sum(int(line["rejected"]) for line in set_aside) == 1
    assert lines.levels("input") == {"INFO"}


def test_a_query_that_ended_before_says_where_its_checkpoint_stands(
    file: Path, tmp_path: Path, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    last = run_count(file, tmp_path / "checkpoint").metrics()["batches"] - 1
    caplog.clear()
    run_count(file, tmp_path / "checkpoint")
    place = tmp_path / "checkpoint" / "totals"
    assert lines.of("recovery") == [
        f"checkpoint resumed name=totals last_batch={last} watermark=forever replay=none checkpoint={place}"
    ]
    assert lines.of("engine") == [f"query ended name=totals last_batch={last}"]


def test_a_query_that_cannot_resume_is_an_error(tmp_path: Path, lines: Lines) -> None:
    """The local engine has no state to resume from."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(ROWS)
    for expected in ("query stopped name=totals", "query not started name=totals code=local-restart message="):
        with sl.connect(engine="local", checkpoint=tmp_path / "checkpoint") as database:
            database.sql(stream_of(tmp_path / "in" / "*.csv").replace("')", "', follow => true)"))
            if "stopped" in expected:
                query = database.sql(COUNT, name="totals")
                while not query.metrics()["batches"]:
                    query.await_end(0.05)
            else:
                with pytest.raises(StrandlineError):
                    database.sql(COUNT, name="totals")
        assert lines.of("engine")[-1].startswith(expected), lines.of("engine")
    assert lines.levels("engine") == {"INFO", "ERROR"}


@pytest.mark.parametrize(
    ("offset", "committed", "repaired", "expected"),
    [
        (None, True, None, "none"),
        (7, True, None, "none"),
        (7, False, None, "7"),
        (7, True, 9, "8-9"),
        (7, False, 9, "7-9"),
    ],
)
def test_batches_that_a_restart_runs_again_are_named(
    offset: int | None, committed: bool, repaired: int | None, expected: str, tmp_path: Path
) -> None:
    if repaired is not None:
        (tmp_path / DIRECTORY).mkdir()
        (tmp_path / DIRECTORY / f"{repaired}.json").touch()
    last = None if offset is None else SimpleNamespace(batch=offset)
    chain: Any = SimpleNamespace(path=tmp_path, last_offset=last, is_committed=committed)
    assert show_replay(chain) == expected


def test_a_batch_that_is_delivered_again_says_so(file: Path, lines: Lines) -> None:
    running = RunningPipeline(run_count(file).pipeline)
    for _ in range(2):
        running.commit(0, ())
    assert lines.of("recovery") == ["batch repeated query=totals batch=0"]
    assert "rows_in" not in facts_of(lines.of("batch")[-1])


def test_a_failure_is_an_error_with_its_code(file: Path, lines: Lines) -> None:
    with pytest.raises(SourceError):
        run_count(file, bad_input=" ON BAD INPUT STOP")
    failed = lines.of("engine")[-1]
    assert failed.startswith("query failed name=totals code=bad-input message="), failed
    assert "last_batch" in facts_of(failed)
    assert lines.levels("engine") == {"INFO", "ERROR"}


def test_a_changed_share_is_logged_once(lines: Lines) -> None:
    model: Any = SimpleNamespace(
        streams=frozenset({"s"}),
        load=lambda rates, now, held: 10.0 * now["s"],
        full_load=lambda rates: 10.0,
        optimal_rates=lambda rates, part, least: {"s": max(part, least)},
        window=lambda stream: 1.0,
    )
    rows = {"s": 0}
    shedding_controller = SheddingController({"q": SheddableQuery(model, 0.0)}, fresh=False)
    for second in range(20):  # of each 1000 rows that come in a second only 250 are read
        shedding_controller.observe(float(second), rows, {"s": 750 * second})
        shedding_controller.decide(float(second))
        rows["s"] += 250
    changes = [facts_of(line) for line in lines.of("shedding")]
    assert changes and changes[0]["before"] == "1.000"
    assert all(one["after"] == two["before"] for one, two in pairwise(changes))
    assert all(change["before"] != change["after"] and change["stream"] == "s" for change in changes)


def test_values_are_one_word_or_quoted_and_have_no_secrets(lines: Lines) -> None:
    log_event(ENGINE, INFO, "query started", name="a b=c\nd", share=0.5, absent=None)
    log_failure("query failed", "q", OSError("postgresql://me:hunter2@host/db is gone"))
    log_failure("query failed", "q", OSError("password=hunter2 is wrong"))
    started, *failed = lines.of("engine")
    assert started == 'query started name="a b=c\\nd" share=0.500'
    assert failed[0] == 'query failed name=q code=OSError message="postgresql://me:***@host/db is gone"'
    assert "hunter2" not in failed[1]


def test_levels_have_names() -> None:
    assert [parse_level(name) for name in ("debug", "INFO", "warning", "error")] == [10, 20, 30, 40]
    with pytest.raises(StrandlineError) as caught:
        parse_level("loud")
    assert caught.value.code == "log-level"


def test_importing_installs_no_handler() -> None:
    assert [type(handler) for handler in logging.getLogger("strandline").handlers] == [logging.NullHandler]


# Processes: what they write, and where


def run_python(*arguments: str, setting: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "STRANDLINE_LOG"}
    if setting is not None:
        environment["STRANDLINE_LOG"] = setting
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def run_script(file: Path, *options: str, setting: str | None = None) -> subprocess.CompletedProcess[str]:
    script = file.with_name("q.sql")
    script.write_text(f"{stream_of(file)};\nCREATE STREAM totals AS {COUNT};")
    arguments = ("run", str(script), "--engine", "local", "--out", str(file.with_name("out")))
    return run_python("-m", "strandline", *arguments, *options, setting=setting)


def without_notices(text: str) -> str:
    """The input has a late and a rejected row, which are said in any case."""
    assert "notice[late-rows]" in text or "WITHIN" not in text
    return "".join(line for line in text.splitlines(True) if not line.startswith("notice["))


def test_the_command_line_writes_nothing_by_default_and_the_level_that_is_asked_for(file: Path) -> None:
    assert without_notices(run_script(file).stderr) == ""
    done = run_script(file, "--out", str(file.with_name("out2")), "--log-level", "debug")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\S+ \S+ DEBUG   strandline\.batch: batch delivered query=totals batch=0 ", done.stderr, re.M)
    lines = run_script(file, "--log-level", "warning").stderr.splitlines()
    assert len(lines) == 2 and all(" WARNING strandline.notice: notice code=" in line for line in lines)
    assert "unknown log level" in run_script(file, "--log-level", "loud").stderr


def test_options_precede_the_environment_variable(file: Path) -> None:
    log = file.with_name("log")
    done = run_script(file, "--log-level", "error", setting=f"debug:{log}")
    assert (done.returncode, without_notices(done.stderr), log.read_text()) == (0, "", "")
    other = file.with_name("other")
    done = run_script(file, "--out", str(file.with_name("out2")), "--log", str(other), setting=f"debug:{log}")
    assert (done.returncode, without_notices(done.stderr), log.read_text()) == (0, "", "")
    assert "batch delivered" in other.read_text() and "query started" in other.read_text()


def test_connect_follows_the_environment_variable(file: Path) -> None:
    program = f"""
import strandline as sl
for _ in range(2):
    with sl.connect(engine="local") as database:
        database.sql({stream_of(file)!r})
        database.sql({COUNT!r}).await_end(60)
"""
    log = file.with_name("log")
    done = run_python("-c", program, setting=f"info:{log}")
    assert (done.returncode, done.stdout, without_notices(done.stderr)) == (0, "", "")
    assert log.read_text().count("query started") == 2, "a second connect() must not double the lines"
    assert "batch delivered" not in log.read_text()
    assert "query started" in run_python("-c", program, setting="info").stderr
    assert "error[log-level]" in run_python("-c", program, setting="loud").stderr

"""Working on a script: a changed one shows its difference, `--fresh` starts over, `--watch` runs it again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import strandline as sl

STREAM = """
CREATE STREAM readings (sensor VARCHAR, celsius INT, at TIMESTAMP)
  SOURCE rows(('hall', 19, '2024-01-02 09:00:00'), ('roof', 4, '2024-01-02 09:01:00')) ORDERED BY at;
"""
WARM = "CREATE STREAM warm AS SELECT sensor FROM readings WINDOW(RANGE 5 MINUTES) WHERE celsius > 10;"
COLD = "CREATE STREAM cold AS SELECT sensor FROM readings WINDOW(RANGE 5 MINUTES) WHERE celsius < 10;"
COMMAND = [sys.executable, "-m", "strandline"]


def run(script: Path, text: str, *words: str | Path, code: int = 0) -> str:
    return run_both(script, text, *words, code=code)[1]


def run_both(script: Path, text: str, *words: str | Path, code: int = 0) -> tuple[str, str]:
    """What a run writes to standard output, and to standard error."""
    script.write_text(text)
    command = [*COMMAND, "run", str(script), "--engine", "local", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_a_changed_script_shows_what_differs(tmp_path: Path) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    run(script, STREAM + WARM + COLD, "--out", out)
    declared = STREAM.replace("ORDERED BY at", "ORDERED BY at WITHIN 2 SECONDS")
    listed, shown = run_both(script, declared + WARM.replace("> 10", "> 15"), "--out", out, code=1)
    assert listed.split("\n")[:3] == [
        "query  change   place   begins              remark",
        "warm   changed  line 4  from the beginning  its statement, the time of readings",
        "cold   gone                                 what it has written stays",
    ]
    assert "error[script-changed]" in shown and "--update" in shown and "--fresh" in shown
    assert f"warm has changed:\n  - {WARM[:-1]}\n  + {WARM[:-1].replace('> 10', '> 15')}\n" in shown
    assert "the time of readings:\n    - ORDERED BY at\n    + ORDERED BY at WITHIN 2 SECONDS\n" in shown
    listed, shown = run_both(script, STREAM + WARM, "--checkpoint", out / ".strandline/checkpoint", code=1)
    assert listed == "" and "cold   gone" in shown  # standard output is for rows
    shown = run(script, STREAM + WARM, "--out", out, "--update", code=1)
    assert "error[local-restart]" in shown


def test_fresh_starts_over_and_says_what_it_deletes(tmp_path: Path) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    table = "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1);"
    run(script, table + STREAM + WARM + COLD, "--out", out)
    (out / "notes.txt").write_text("mine")
    shown = run(script, table + STREAM + WARM.replace("> 10", "> 1"), "--out", out, "--fresh")
    for kind, path in (
        ("checkpoint", ".strandline/checkpoint/warm"),
        ("results", "warm"),
        ("results", "cold"),
        ("table", ".strandline/tables/t"),
    ):
        assert f"--fresh deletes {kind}: {out / path}\n" in shown
    assert sl.read(out, "warm").num_rows == 2 and not (out / "cold").exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert "--fresh deletes" not in run(script, STREAM + WARM, "--fresh", "--out", tmp_path / "other")


def test_fresh_deletes_results_of_queries_that_an_update_has_replaced(tmp_path: Path) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    run(script, STREAM + WARM, "--out", out)
    shutil.copytree(out / "warm", out / "_former/warm/1")
    shutil.copytree(out / "warm", out / "gone")
    run(tmp_path / "o.sql", STREAM + COLD, "--out", out)
    shutil.copytree(out / "cold", out / "_former/cold/1")
    shown = run(script, STREAM + WARM, "--out", out, "--fresh")
    for path in ("_former/warm/1", "gone"):
        assert f"--fresh deletes former results: {out / path}\n" in shown and not (out / path).exists()
    assert (out / "_former/cold/1").exists() and (out / "cold").exists()


def test_fresh_leaves_what_belongs_to_others(tmp_path: Path) -> None:
    script, other, out = tmp_path / "s.sql", tmp_path / "o.sql", tmp_path / "out"
    run(other, STREAM + COLD, "--out", out)
    shown = run(script, STREAM + WARM, "--out", out, "--fresh")
    assert "--fresh deletes" not in shown and sl.read(out, "cold").num_rows == 1
    shown = run(script, STREAM + WARM, "--out", out, "--checkpoint", tmp_path / "c", "--fresh", code=1)
    assert f"the results in {out / 'warm'} belong to another checkpoint" in shown
    assert sl.read(out, "warm").num_rows == 1


def test_fresh_refuses_what_another_run_writes(tmp_path: Path) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    live = STREAM.replace("SOURCE rows", "SOURCE file('x/*.csv', follow => true) ORDERED BY at; --")
    (tmp_path / "x").mkdir()
    live = live.replace("'x/", f"'{tmp_path}/x/")
    script.write_text(live + WARM)
    writing = subprocess.Popen([*COMMAND, "run", script, "--engine", "local", "--out", out], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not (out / "warm" / ".strandline.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "error[checkpoint-busy]" in run(script, live + WARM, "--out", out, "--fresh", code=1)
        assert (out / "warm").is_dir()
    finally:
        writing.terminate()
        writing.wait()


class Watching:
    """A run with --watch, and what it prints."""

    def __init__(self, script: Path, *words: str | Path) -> None:
        command = [*COMMAND, "run", str(script), "--engine", "local", "--watch", *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.lines: IO[str] = self.process.stdout

    def until(self, what: str) -> str:
        seen = ""
        for line in self.lines:
            seen += line
            if what in line:
                return seen
        raise AssertionError(seen)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[list[Watching]]:
    started: list[Watching] = []
    yield started
    for each in started:
        each.process.terminate()
        each.process.wait()


def test_watch_runs_a_script_whenever_its_statements_change(tmp_path: Path, watching: list[Watching]) -> None:
    script = tmp_path / "s.sql"
    script.write_text(STREAM + WARM)
    watching.append(watched := Watching(script))
    assert "hall" in watched.until("waiting for")
    script.write_text(f"-- a remark\n{STREAM}{WARM}")  # no statement has changed
    time.sleep(0.6)
    script.write_text(STREAM + COLD.replace("sensor", "sensro"))
    seen = watched.until("waiting for")
    assert seen.count("has changed") == 1 and 'column "sensro" does not exist' in seen
    script.write_text(STREAM + COLD)
    assert "roof" in watched.until("waiting for")


def test_watch_with_fresh_starts_over_where_the_plan_differs(tmp_path: Path, watching: list[Watching]) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    script.write_text(STREAM + WARM)
    watching.append(watched := Watching(script, "--out", out, "--fresh"))
    watched.until("waiting for")
    script.write_text(STREAM.replace("4,", "14,") + WARM)
    seen = watched.until("waiting for")
    assert "the source of readings:" in seen and f"--fresh deletes results: {out / 'warm'}" in seen
    assert sl.read(out).num_rows == 2


def test_watch_alone_deletes_nothing_without_a_terminal(tmp_path: Path, watching: list[Watching]) -> None:
    script, out = tmp_path / "s.sql", tmp_path / "out"
    script.write_text(STREAM + WARM)
    watching.append(watched := Watching(script, "--out", out))
    watched.until("waiting for")
    script.write_text(STREAM + WARM.replace("> 10", "> 1"))
    assert (
        "+ CREATE STREAM warm AS SELECT sensor FROM readings WINDOW(RANGE 5 MINUTES) WHERE celsius > 1"
        in watched.until("waiting for")
    )
    assert sl.read(out).num_rows == 1

"""The short form of `make attack`: what once failed, and one trial of some kinds, in a process of its own."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import strandline as sl
from attack import soak, tree
from attack.kinds import all_kinds
from attack.report import BEGIN, END, PAGE
from attack.run import SHORT, plan, read_seeds
from attack.verdict import Tally, Verdict, has_trace, judge_refusal
from attack.world import differ
from strandline.database.script import read_script, start_script

HERE = Path(__file__).parent


@pytest.mark.spark
def test_no_violation_in_the_short_form() -> None:
    command = [sys.executable, str(HERE / "run.py"), "--short", "--processes", "1"]
    done = subprocess.run(
        [*command, "--scenarios", "csv,case-arrivals"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_seeds_and_short_form_are_of_kinds_that_exist() -> None:
    known = all_kinds()
    assert all(trial.kind in known for trial in read_seeds())
    assert all(plan([pattern], 0, 0.0) for pattern in SHORT)
    assert sum(kind.trials for kind in known.values()) >= 2_000 and len(known) >= 40


def test_trials_are_drawn_from_the_seed() -> None:
    assert plan(["kill/*"], 1, 1.0) == plan(["kill/*"], 1, 1.0)
    assert plan(["kill/*"], 1, 1.0) != plan(["kill/*"], 2, 1.0)


def test_damage_changes_a_file(tmp_path: Path) -> None:
    for name, damage in tree.DAMAGES.items():
        path = tmp_path / "file"
        path.write_text("one 1\ntwo 22\n")
        before = tree.digest(tmp_path)
        assert damage(path, random.Random(name)), name
        assert tree.changes(before, tree.digest(tmp_path)), name
        path.unlink(missing_ok=True)


def test_verdicts_on_errors() -> None:
    allowed = frozenset({"checkpoint-damaged"})

    def judge(code: str, text: str, changes: list[str]) -> str:
        return judge_refusal(code, text, allowed, ("offsets/3",), changes).name

    assert judge("checkpoint-damaged", "…/offsets/3 is damaged", []) == "refused"
    assert judge("checkpoint-damaged", "…/offsets/3 is damaged", ["+x"]) == "changed"
    assert judge("checkpoint-damaged", "something is damaged", []) == "unnamed"
    assert judge("missing-file", "…/offsets/3 is damaged", []) == "misnamed"
    assert judge("query-failed", "…/offsets/3 is damaged", []) == "internal"
    assert judge("checkpoint-damaged", "offsets/3\n\tat org.apache.spark.X", []) == "trace"
    assert has_trace("Traceback (most recent call last):") and not has_trace("at once")


def test_verdicts_are_counted() -> None:
    tally = Tally()
    for name in ("exact", "refused", "wrong", "skipped"):
        tally.add(Verdict(name))
    assert (tally.trials, tally.exact, tally.refused, tally.skipped, tally.violations) == (3, 1, 1, 1, {"wrong": 1})


def test_results_that_differ_are_told_apart() -> None:
    assert not differ({"a": ["x"]}, {"a": ["x"]})
    assert differ({"a": ["x"]}, {"a": ["y"]}) and differ({}, {"a": ["x"]}) and differ({"a": ["x"]}, {})


def test_the_page_has_its_marks() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)


def test_the_judge_of_the_soak_notices_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(25):
        pq.write_table(soak.rows_of(number, 2_000, seed=1), tmp_path / "in" / f"{number:06d}-000.parquet")
    (tmp_path / "in" / "_END").touch()
    text = soak.SCRIPT.format(directory=tmp_path, window=soak.WINDOW_S)
    with sl.connect(engine="local", batch_rows=10_000) as database:
        for query in start_script(database, read_script(database, text), tmp_path / "out", None):
            assert query.await_end(60)
    assert soak.judge(tmp_path) == []
    for name in ("per_key", "few", "_late/t"):
        file = sorted((tmp_path / "out" / name).glob("*.parquet"))[0]
        whole = file.read_bytes()
        pq.write_table(pq.read_table(file)[:-1], file)
        assert [flaw for flaw in soak.judge(tmp_path) if "missing" in flaw], name
        file.write_bytes(whole)


def test_growth_is_told_from_noise() -> None:
    flat = [(float(minute), 1000.0 + minute % 3 * 20) for minute in range(5, 30, 2)]
    rising = [(float(minute), 1000.0 + minute * 30) for minute in range(5, 30, 2)]
    assert not soak.grows(flat) and soak.grows(rising)

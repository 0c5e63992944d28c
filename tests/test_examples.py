"""The examples: an independent database agrees with their answers, and their pictures show what they answer now."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest

import strandline as sl
from strandline.apps.verify.report import render
from strandline.apps.verify.script import open_oracle, verify

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("network/network.sql", "flights/flights.sql")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_database_agrees(script: str) -> None:
    text = (ROOT / "examples" / script).read_text()
    with (
        contextlib.chdir(ROOT),
        open_oracle("duckdb", None) as theirs,
        sl.connect(engine="local", batch_rows=700) as ours,
    ):
        verdicts = verify(ours, text, theirs, most=150)
    assert all(verdict.unchecked is None and verdict.equal for verdict in verdicts), render(verdicts, "DuckDB")
    assert all(verdict.instants_with_rows > 5 for verdict in verdicts)


def test_pictures_show_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "examples")
    module = importlib.import_module("pictures")
    for script in SCRIPTS:
        answers = module.answers(script)
        for picture in module.PICTURES:
            if picture.script == script:
                assert picture.path.read_text() == module.draw(picture, answers[picture.query]), (
                    f"{picture.path.name} is old: run examples/pictures.py and look at it"
                )


def test_the_page_shows_every_picture() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    for picture in (ROOT / "examples").glob("*/*.svg"):
        assert f"({picture.parent.name}/{picture.name})" in page

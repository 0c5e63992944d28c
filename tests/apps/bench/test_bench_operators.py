"""The bench of the operators runs the plans that it names, and counts what comes out of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from strandline.apps.bench import operators
from strandline.apps.bench.operators import FAMILIES, measure, report_operators, run_operators
from strandline.apps.bench.run import Bench

# What a row gives on average, by the numbers of keys and rows in the window. Where pieces are cut at each batch there
# is no such number.
EXPECTED = {"filter": 0.1, "join": 1.0, "aggregate": 2.0}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "BATCH_ROWS", 10_000)
    monkeypatch.setattr(operators, "STATES", (2_000, 5_000))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs(name: str) -> None:
    figures = measure(FAMILIES[name], 20_000, 50_000)
    assert figures["rows_per_s"] > 0
    assert figures["results_per_row"] == pytest.approx(EXPECTED.get(name, figures["results_per_row"]), rel=0.1)
    assert figures["results_per_row"] > 0
    assert (figures["state_rows"] == 0) == (name == "filter")


def test_the_state_grows_with_the_window() -> None:
    small, large = (measure(FAMILIES["join"], state, 20_000)["state_rows"] for state in (5_000, 20_000))
    assert large > 3 * small


def test_factors_are_those_of_the_same_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_operators(Bench(tmp_path, 10_000, 1, Console(quiet=True)))
    assert len(found["operators"]) == 2 * len(FAMILIES)
    for each in found["operators"]:
        if each["operator"] in ("join", "aggregate"):
            assert each[f"times_{each['operator']}"] == 1.0
    report_operators(found, Console(width=160))
    assert "outer join" in capsys.readouterr().out

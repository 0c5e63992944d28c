"""The bench of forms compares the default with both fixed forms, and equal plans do not differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from strandline.apps.bench import forms, operators
from strandline.apps.bench.form_strategies import STRATEGIES, fastest_runs, plan_strategies, times_best
from strandline.apps.bench.forms import report_forms, run_forms
from strandline.apps.bench.generated_streams import statistics_of
from strandline.apps.bench.run import Bench
from strandline.planner.physical.forms import form_of
from strandline.planner.physical.plan import Pipeline


@dataclass(frozen=True)
class Run:
    seconds: float


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "BATCH_ROWS", 5_000)
    monkeypatch.setattr(operators, "STATES", (2_000,))


def strategies(name: str) -> dict[str, Pipeline]:
    family = operators.FAMILIES[name]
    streams = family.streams_for(2_000)
    return plan_strategies(family.text_for(2_000), [made.stream for made in streams], statistics_of(streams))


def test_the_default_is_compared_with_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_forms(Bench(tmp_path, 5_000, 1, Console(quiet=True), ("join", "aggregate", "look-up")))
    assert [item["query"].partition(",")[0] for item in found["queries"]] == ["join", "aggregate", "look-up", "look-up"]
    assert all(item["times_best"] >= 1.0 for item in found["queries"])
    report_forms(found, Console(width=160))
    assert "default / best" in capsys.readouterr().out


def test_all_results_have_the_form_that_sinks_take() -> None:
    for pipeline in strategies("aggregate").values():
        assert form_of(pipeline.fragments[-1].root) == "changes"


def test_equal_plans_share_their_runs() -> None:
    """Of a filter there is one plan; a slow second run of it must not count."""
    seconds = iter((1.0, 3.0))
    runs = fastest_runs(strategies("filter"), lambda pipeline: Run(next(seconds)), 2)
    assert [runs[name].seconds for name in STRATEGIES] == [1.0] * len(STRATEGIES)
    assert times_best(runs) == 1.0


def test_the_queries_of_both_papers_are_compared() -> None:
    names = [name for name, _ in forms._comparisons(1_000)]
    assert sum(name.startswith("golab-ozsu") for name in names) == 8 * len(forms.LINK_WINDOWS)
    assert sum(name.startswith("kraemer-pna") for name in names) == 7 * 3

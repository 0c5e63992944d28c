"""The benchmark of a burst: all policies have the same results, and small windows do not wait for large ones."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from strandline.apps.bench import join_burst
from strandline.apps.bench.join_burst import WINDOWS, measure_burst, report_burst
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator


def test_burst(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In small: batches of a few rows, of which each has a task's time."""
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 50)
    monkeypatch.setattr(join_burst, "BATCH_SECONDS", 0.002)
    figures = measure_burst(rate=500, scale=0.01)
    by_policy = figures["policies"]
    assert len({tuple(each["results"]) for each in by_policy.values()}) == 1
    assert all(np.diff(each["results"]).min() >= 0 for each in by_policy.values()), "larger windows have more"
    assert by_policy["Greedy"]["p99"][0] <= by_policy["Greedy"]["p99"][-1]
    report_burst(figures, Console(width=200))
    printed = capsys.readouterr().out
    assert printed.count(" s ") >= len(WINDOWS) and "Greedy p99" in printed

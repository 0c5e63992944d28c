"""Response times by query, also of results that came later than the batch that made them possible."""

from __future__ import annotations

import pytest

from strandline.core.temporal import FOREVER
from strandline.core.types import INT
from strandline.engines.local import LocalRun
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.stages import optimize
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.response_times import ResponseTimes
from strandline.runtime.scheduling.budget import WorkBudget
from strandline.runtime.scheduling.budget_planner import BudgetPlanner
from support import MemorySource, arrange, bind


def test_quantiles() -> None:
    times = ResponseTimes()
    assert set(times.to_metrics().values()) == {None}
    times.add(0.010, 98)
    times.add(1.0, 2)
    shown = times.to_metrics()
    assert shown["response_p50"] == pytest.approx(0.010, rel=0.05)
    assert shown["response_p99"] == shown["response_max"] == 1.0
    times.add(1e9, 1)
    assert times.quantile(1.0) > 1000


class OneTask(BudgetPlanner):
    """Each batch does one task."""

    def decide(self, rows: int, parts: int, *, has_work: bool) -> WorkBudget:
        return WorkBudget(0, "SWF")


def test_what_is_put_off_counts_from_the_batch_that_made_it_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedWindowJoinOperator, "chunk_rows", 3)
    streams = [arrange(name, {"a": INT}, [(time, 0, (0,)) for time in range(12)], 0) for name in ("s", "t")]
    declared = [stream.declared for stream in streams]
    text = "SELECT p.a FROM s WINDOW(RANGE {0} MICROSECONDS) p JOIN t WINDOW(RANGE {0} MICROSECONDS) q ON p.a = q.a"
    plans = [optimize(bind(text.format(window), streams)) for window in (1, 9)]
    parts = [lower(f"q{number}", plan, declared, 1) for number, plan in enumerate(plans)]
    running = RunningPipeline(combine(parts, declared, ["", ""]))
    running.budgets = OneTask(1.0)
    seconds = iter(range(1000))
    monkeypatch.setattr("strandline.runtime.pipeline.time.monotonic", lambda: float(next(seconds)))
    sizes = (6, 6)
    run = LocalRun(running, sources={stream.name: MemorySource(stream, sizes) for stream in streams})
    watermarks, waited = [], 0
    while not running.ended:
        if run.step() is None:
            continue
        watermarks.append((running.metrics.watermark("q0"), running.metrics.watermark("q1")))
        waited += running.metrics.work_left > 0
    assert waited > 5
    assert all(small >= large for small, large in watermarks)
    assert watermarks[-1] == (FOREVER, FOREVER)
    small, large = (running.responses.of(name) for name in ("q0", "q1"))
    assert small.counts.sum() == running.metrics.rows_out["q0"] == 12
    assert large.counts.sum() == running.metrics.rows_out["q1"] > 12
    assert large.longest > small.longest, "the large window is late"
    assert not running.responses._open, "nothing is left"

"""A pipeline ends when its streams have, and all that was put off is done."""

from __future__ import annotations

import pytest

from strandline.core.types import INT
from strandline.planner.physical.lowering import lower
from strandline.planner.stages import optimize
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.watermark import SourceStatus
from support import arrange, bind

STREAM = arrange("s", {"k": INT}, [], 0)


@pytest.mark.parametrize(("reaches", "left"), [({}, 0), ({"q": 5}, 0), ({"q": 5}, 3)])
def test_a_query_that_is_behind_has_another_batch(reaches: dict[str, int], left: int) -> None:
    """Also if nothing waits: up to where it went was decided before its batch was read."""
    metrics = PipelineMetrics(lower("q", optimize(bind("SELECT k FROM s", [STREAM])), [STREAM.declared], 1))
    metrics.statuses = {"s": SourceStatus("s", ended=True)}
    metrics.reaches, metrics.work_left = reaches, left
    assert metrics.has_work == bool(reaches)
    assert metrics.ended == (not reaches)
    resumed = metrics.to_json()
    assert ("reaches" in resumed) == bool(reaches)

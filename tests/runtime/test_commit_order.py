"""The order in which a batch changes things: a replay after a crash at any place must find what decision 0012 says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.connectors.sinks import SinkWriter
from strandline.core.lease import Lease
from strandline.runtime.checkpoint.chain import CheckpointChain
from strandline.runtime.metrics import PipelineMetrics
from strandline.runtime.outputs import OutputFiles
from strandline.runtime.results import PipelineResults
from strandline.runtime.statistics_store import StatisticsStore
from strandline.runtime.subscriptions import Subscriptions

STEPS: tuple[tuple[Any, str], ...] = (
    (Lease, "check"),
    (CheckpointChain, "sync"),
    (OutputFiles, "publish"),
    (PipelineMetrics, "add"),
    (PipelineResults, "append"),
    (StatisticsStore, "learn"),
    (SinkWriter, "write"),
    (CheckpointChain, "commit"),
    (Subscriptions, "publish"),
)


def test_a_batch_changes_things_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def recording(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread().name == "strandline-local":  # the lease has a thread of its own
                calls.append(name)
            return original(*arguments, **named)

        return wrapper

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, recording(name, getattr(owner, name)))
    with sl.connect(engine="local", checkpoint=tmp_path / "checkpoint") as database:
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE rows((1, 10), (2, 3), (3, 11)) ORDERED BY ts")
        query = database.sql("SELECT k FROM s", sink=sl.Parquet(tmp_path / "out"), name="q")
        query.await_end(30)
        batches = query.metrics()["batches"]
    expected = [name for _, name in STEPS]
    expected.insert(expected.index("commit") + 1, "check")  # the lease once more, right before the record
    assert calls == expected * batches
    assert list(tmp_path.rglob("_late/s/*.parquet")), "the row at 3 came late"

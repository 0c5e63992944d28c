"""The benchmark of queries that come and go: what it asks, what it counts, and a small run of each part on Spark."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import strandline as sl
from strandline.apps.bench import living_queries
from strandline.apps.bench.living_queries import (
    ADDED,
    Deliveries,
    declare_streams,
    measure_changes,
    measure_many,
    query_texts,
    report_living_changes,
    report_many,
)
from strandline.apps.bench.run import Bench
from strandline.core.errors import QueryError


def test_each_query_has_another_window_or_selection() -> None:
    texts = query_texts(windows=10, selections=4)
    assert len(set(texts)) == 40
    assert [text.count("RANGE 3000 MILLISECONDS") for text in texts[:4]] == [2] * 4
    assert [text.count("RANGE 30000 MILLISECONDS") for text in texts[-4:]] == [2] * 4


def test_queries_that_come_are_planned() -> None:
    with sl.connect(engine="local") as database:
        declare_streams(database, rate=10)
        for text_of in ADDED.values():
            assert len({text_of(number) for number in range(5)}) == 5
            assert database.sql(f"EXPLAIN {text_of(3)}")


def test_a_batch_lasts_from_one_delivery_to_the_next() -> None:
    deliveries = Deliveries()
    deliveries.times, deliveries.lags = [1.0, 1.5, 3.5], [0.1]
    assert deliveries.batches() == [0.5, 2.0]
    deliveries.forget()
    deliveries.receive(7, pa.table({}))
    assert len(deliveries.batches()) == 1 and not deliveries.lags, "the last delivery begins the first batch"
    deliveries.forget()
    with pytest.raises(QueryError, match="no batch"):
        deliveries.batches()


@pytest.mark.slow
def test_small_runs_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(living_queries, "WARM", 6.0)
    monkeypatch.setattr(living_queries, "CHANGES", 2)
    output = io.StringIO()
    console = Console(file=output, width=200)
    bench = Bench(tmp_path, rows=100, repeat=1, console=console, seconds=6.0)
    try:
        many, changes = measure_many(bench), measure_changes(bench)
    finally:
        bench.close()
    assert many["queries"] == 100 and many["batches"] > 0 and many["results"] > 0
    assert [item["what"] for item in changes["changes"]] == list(ADDED)
    assert all(0 < item["batch_p50_s"] <= item["batch_max_s"] for item in changes["changes"])
    report_many(many, console)
    report_living_changes(changes, console)
    assert "add one s" in output.getvalue() and "one more window" in output.getvalue()

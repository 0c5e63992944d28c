"""The benchmark of the enrichment join: its runs are the ones it names, and what it derives from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import strandline as sl
from strandline.apps.bench import enrich, enrich_run
from strandline.apps.bench.enrich_run import EnrichJob, make_rows
from strandline.apps.bench.run import run_bench
from strandline.core.errors import StrandlineError


def job(place: Path, mode: str, kind: str = "lookup") -> EnrichJob:
    return EnrichJob(mode, kind, 2_000, 1.0, str(place / "db"), str(place / "figures"), "local")


def test_a_replaced_row_has_another_value() -> None:
    keys = np.arange(1000)
    one, two = (make_rows(keys, version)["v"] for version in (0, 1))
    assert (one != two).all() and one.is_between(0, 1, closed="left").all()


@pytest.mark.parametrize("kind", enrich_run.KINDS)
def test_the_table_is_filled_once(tmp_path: Path, kind: str) -> None:
    for _ in range(2):
        with enrich_run.open_database(job(tmp_path, "throughput", kind)) as database:
            enrich_run.fill_table(database, job(tmp_path, "throughput", kind))
            assert len(database.table("dim")) == 2_000
            assert sorted(database.table("dim").snapshot()["k"].to_pylist()) == list(range(2_000))


def test_freshness_is_measured_for_every_change(tmp_path: Path) -> None:
    enrich_run.measure_freshness(job(tmp_path, "freshness"))
    found = json.loads((tmp_path / "figures").read_text())
    assert found["visible"] == found["committed"] > 5
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_upserts_are_counted_by_text_and_by_call(tmp_path: Path) -> None:
    enrich_run.measure_upserts(job(tmp_path, "upserts"))
    found = json.loads((tmp_path / "figures").read_text())
    assert found["by_sql"] > 0 and found["by_call"] > 0
    with sl.connect(engine="local", checkpoint=tmp_path / "db") as database:
        enrich_run.fill_table(database, job(tmp_path, "upserts"))
        assert 1 in database.table("dim").snapshot()["version"].to_pylist()


def test_growth_leaves_the_first_third_out() -> None:
    samples = [(float(at), 50.0 if at < 30 else 100.0 if at < 60 else 110.0) for at in range(91)]
    assert enrich.memory_growth(samples, 0, 90) == pytest.approx(0.1)
    assert enrich.memory_growth([], 0, 90) == 0


def test_a_run_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    run = enrich.EnrichProcess(job(tmp_path, "no such mode"))
    with pytest.raises(StrandlineError, match="KeyError: 'no such mode'"):
        run.await_figures()


def test_the_report_has_every_run_and_the_ratio_of_the_work() -> None:
    runs = [
        {"kind": "lookup", "rows": rows, "rows_per_s": 7, "us_per_row": cost} for rows, cost in ((10, 2.0), (100, 3.0))
    ]
    figures = {
        "runs": runs,
        "freshness": [{"kind": "lookup", "p50_ms": 5.0, "p99_ms": 9.0}],
        "upserts": {"by_sql": 4321},
    }
    console = Console(record=True, width=200)
    enrich.report_enrich(figures, console)
    shown = console.export_text()
    assert "1.5 times" in shown and "9.0 ms" in shown and "4,321" in shown


@pytest.mark.spark
@pytest.mark.slow
def test_a_small_run_on_spark_survives_its_kill() -> None:
    (figures,) = run_bench("enrich", 20_000, 1, Console(quiet=True), ("lookup",), seconds=2)
    small, large = figures["runs"]
    assert (small["rows"], large["rows"]) == (2_000, 20_000)
    assert large["restart_s"] > 0 and large["rows_per_s"] > 0
    assert large["join_rows"] >= 20_000

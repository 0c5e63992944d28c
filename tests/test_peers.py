"""The benchmark beside peers: engines agree, and what goes wrong in one of them is told and stops nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

PEERS = Path(__file__).resolve().parents[1] / "benchmarks" / "peers"
WINDOWED = ("join", "join3", "aggregate", "distinct", "filter")


def figures(place: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(PEERS / "run.py"), "--repeat", "1", "--no-latency", "--place", str(place)]
    subprocess.run([*command, "--json", str(place / "found.json"), *arguments], check=True, capture_output=True)
    return json.loads((place / "found.json").read_text())["figures"]


def test_the_limits_agree(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "duckdb,polars", "--work", "join,aggregate,distinct", "--rows", "3000")
    assert [(each["engine"], each["work"], each["same"]) for each in found] == [
        (engine, work, True) for work in ("join", "aggregate", "distinct") for engine in ("duckdb", "polars")
    ]
    assert all(each["results"] > 200 for each in found)


def test_an_engine_that_takes_too_long_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "duckdb,polars", "--work", "filter", "--rows", "1000", "--timeout", "0.001")
    assert [each["problem"] for each in found] == ["stopped after 0 s"] * 2


def test_fingerprints_tell_bags_apart_and_not_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    import check  # type: ignore[import-not-found]

    rows = pl.DataFrame({"k": [1, 1, 2, 3], "v": [5, 5, 6, 7]})
    assert check.fingerprint(rows) == check.fingerprint(rows.reverse())
    others = [rows[1:], rows.with_columns(v=pl.Series([5, 6, 5, 7])), pl.concat([rows, rows[:1]])]
    assert all(check.fingerprint(other) != check.fingerprint(rows) for other in others)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("work", WINDOWED)
def test_strandline_and_spark_alone_agree_with_the_limits(tmp_path: Path, work: str) -> None:
    found = figures(tmp_path, "--only", "strandline,spark,duckdb,polars", "--work", work, "--rows", "6000")
    assert [(each["engine"], each.get("problem"), each.get("same")) for each in found] == [
        (engine, None, True) for engine in ("strandline", "spark", "duckdb", "polars")
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_window_functions_agree_with_the_limit(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "strandline,duckdb", "--work", "over", "--rows", "6000")
    assert [(each["engine"], each.get("problem"), each.get("same"), each.get("results")) for each in found] == [
        (engine, None, True, 6000) for engine in ("strandline", "duckdb")
    ]

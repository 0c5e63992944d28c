"""Benchmark of load shedding: a join of three streams at twice the capacity of the machine, for minutes.

First the capacity is measured: the highest rates at which a query without shedding does not fall behind. Then the same
query gets twice these rates: without shedding, with shedding, and with shedding from the plan that is cheapest while
nothing is dropped. After the overload, results are compared with the join of all rows in the windows.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np
import polars as pl
from pyspark.sql import SparkSession
from rich.console import Console

import strandline
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.connectors.sinks import Parquet
from strandline.connectors.sources.base import open_source
from strandline.core.temporal import SECOND
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.planner.planner import PlanningInputs
from strandline.planner.stages import optimize
from strandline.runtime.kernels.batch import FROM
from strandline.shedding.load_model import SheddingModel
from strandline.sql.binder.binder import bind_query
from strandline.sql.parser.statements import parse_one

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

Say = Callable[[str], None]

RATES: Final = {"a": 8_000.0, "b": 8_000.0, "c": 160_000.0}  # rows per second, times the scale that is searched for
# The values of the keys: how many a.key = b.key, b.key2 = c.key and a.key2 = c.key2 have.
AB, BC, AC = 3_300, 300, 63_500
WINDOW: Final = 10  # seconds
CALM: Final = 0.25  # of the overload: the rates after it
SETTLE: Final = 40  # seconds after it
STEP: Final = 1.1  # ratio of a feasible to an infeasible rate
TRY: Final = 30  # seconds
BEHIND: Final = 2.0  # seconds behind after a try: too much
TEXT: Final = (
    "SELECT a.value AS a, b.value AS b, c.value AS c "
    f"FROM a [RANGE {WINDOW} SECONDS], b [RANGE {WINDOW} SECONDS], c [RANGE {WINDOW} SECONDS] "
    "WHERE a.key = b.key AND a.key2 = c.key2 AND b.key2 = c.key"
)


def run_shedding(bench: Bench) -> Figures:
    """A join at twice the capacity: without shedding, with it, and with it from the cheapest plan."""
    spark, directory, seconds, say = bench.session("ours"), bench.fresh("shedding"), bench.rows or 300, bench.say
    scale = _capacity(spark, directory, say)
    say(f"capacity: {scale:.2f} times {', '.join(f'{n} {r:,.0f}' for n, r in RATES.items())} rows per second")
    best = optimum(scale)

    def run(what: str, allow: str = "ALLOW SHEDDING") -> Figures:
        say(f"{what}: twice as much for {seconds} s")
        directory_of_run = directory / what.replace(" ", "-")
        return {"what": what, **_run(spark, directory_of_run, scale, seconds, best, say, allow)}

    sides = [run("without shedding", allow=""), run("with shedding")]
    with _cheapest_plan():
        sides.append(run("from the cheapest plan"))
    shedding = {"capacity_scale": round(scale, 2), "optimum_per_s": round(best), "sides": sides}
    return {"bench": "shedding", "shedding": shedding, "same_answer": None}


def optimum(scale: float) -> float:
    """Results per second of the model at twice the rates, with the capacity of the machine at `scale`."""
    whole = dict.fromkeys(RATES, 1.0)
    with strandline.connect(engine="local") as db:
        _declare(db, 2 * scale, 1.0, 0, None)
        plan = _planned(db, limited=True)
        cheap = _planned(db, limited=False)
    rates = {name: 2 * scale * rate for name, rate in RATES.items()}
    at_capacity = {name: rate / 2 for name, rate in rates.items()}
    capacity = cheap.load(at_capacity, whole, whole)
    sampling_rates = plan.optimal_rates(rates, min(1.0, capacity / plan.load(rates, whole, whole)), 0.0)
    return plan.completeness(rates, sampling_rates) * _results(rates)


def _results(rates: dict[str, float]) -> float:
    """All results per second: each has one row that is new and two of their windows."""
    product = float(np.prod(list(rates.values())))
    return 3 * product * WINDOW**2 / (AB * AC * BC)


def _planned(db: Database, limited: bool) -> SheddingModel:
    statistics = db.catalog.statistics()
    plan = bind_query(parse_one(TEXT), db.catalog)  # type: ignore[arg-type]
    return SheddingModel(optimize(plan, statistics, 1e-9 if limited else None), statistics)


def _capacity(spark: SparkSession, directory: Path, say: Say) -> float:
    """The highest scale at which a query without shedding stays in time, to within a tenth."""
    low, high = 0.0, math.inf
    scale = 1.0
    while not low or high / low > STEP:
        lag = _try(spark, directory / f"try-{scale:.2f}", scale)
        shutil.rmtree(directory / f"try-{scale:.2f}", ignore_errors=True)  # gigabytes
        say(f"{scale:.2f} times: {lag:.1f} s behind after {TRY} s")
        low, high = (scale, high) if lag <= BEHIND else (low, scale)
        scale = low * 1.5 if high == math.inf else high / 1.5 if not low else math.sqrt(low * high)
    return low


def _try(spark: SparkSession, directory: Path, scale: float) -> float:
    with strandline.connect(spark=spark, checkpoint=directory / "checkpoint") as db:
        _declare(db, scale, 1.0, 0, scale)
        query: Query = db.sql(TEXT, sink=Parquet(directory / "out"), name="q")
        time.sleep(TRY)
        return _lag(query, scale)


def _declare(db: Database, scale: float, burst: float, burst_seconds: int, declared: float | None) -> None:
    keys = {"a": (AB, AC), "b": (AB, BC), "c": (BC, AC)}
    for seed, (name, rate) in enumerate(RATES.items()):
        said = rate * (scale if declared is None else declared)
        db.sql(
            f"CREATE STREAM {name} (key BIGINT, key2 BIGINT, value BIGINT, ts TIMESTAMP) SOURCE rate("
            f"rows_per_second => {rate * scale}, keys => {keys[name]}, seed => {seed}, burst => {burst}, "
            f"burst_seconds => {burst_seconds}) ORDERED BY ts "
            f"WITH (rate = {said}, distinct(key) = {keys[name][0]}, distinct(key2) = {keys[name][1]})"
        )


def _lag(query: Query, scale: float) -> float:
    """Lag in seconds of waiting rows."""
    left = query.metrics()["rows_left"] or 0
    return float(left) / (scale * sum(RATES.values()))


def _run(
    spark: SparkSession, directory: Path, scale: float, seconds: int, best: float, say: Say, allow: str
) -> Figures:
    """Twice the capacity for some seconds, then little; lags are seconds behind, results those of the second half."""
    offered = 2 * scale
    with strandline.connect(spark=spark, checkpoint=directory / "checkpoint") as db:
        _declare(db, CALM * offered, 1 / CALM, seconds, offered)
        query: Query = db.sql(f"{TEXT} {allow}", sink=Parquet(directory / "out"), name="q")
        lags: list[float] = []
        half = 0
        began = time.monotonic()
        for second in range(1, seconds + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            lags.append(_lag(query, offered))
            if second == seconds // 2:
                half, at = query.metrics()["rows_out"], time.monotonic()
            if second % 30 == 0:
                kept = {item.stream: round(item.kept, 2) for item in query.shedding()}
                say(f"  {second} s: {lags[-1]:.1f} s behind, {query.metrics()['rows_out']:,} results {kept or ''}")
        results = (query.metrics()["rows_out"] - half) / (time.monotonic() - at)
        figures = {
            "lag_half_s": round(lags[len(lags) // 2], 1),
            "lag_end_s": round(lags[-1], 1),
            "lag_most_s": round(max(lags), 1),
            "results_per_s": round(results),
            "of_optimum": round(results / best, 2),
            "kept": " ".join(f"{item.stream} {item.kept:.2f}" for item in query.shedding()),
            "after_it": _after(query, directory / "out") if allow else "",
        }
    shutil.rmtree(directory, ignore_errors=True)
    return figures


def _after(query: Query, out: Path) -> str:
    """True if results are exact again one window after the last drop."""
    time.sleep(SETTLE)
    statuses = query.heartbeats().values()
    if any(status.rate_history and status.rate_history[-1][1] for status in statuses):
        return "still dropping"
    since = max(status.rate_history[-1][0] for status in statuses if status.rate_history) + WINDOW * SECOND
    until = query.progress - 1
    if since >= until:
        return "not long enough"
    instants = [since + (until - since) * part // 3 for part in (1, 2, 3)]
    results = pl.scan_parquet(out / "*.parquet")
    for t in instants:
        moment = pl.lit(t).cast(pl.Datetime("us", "UTC"))
        here = (pl.col("valid_from") <= moment) & (pl.col("valid_until") > moment)
        result = results.filter(here).select("a", "b", "c").collect().sort("a", "b", "c")
        if not result.equals(_joined(query, t).sort("a", "b", "c")):
            return "wrong"
    return f"exact at {len(instants)} instants"


def _joined(query: Query, t: int) -> pl.DataFrame:
    """The join of everything that lies in the windows at an instant."""
    inside = {stream.name: _window(query, stream.name, t) for stream in query.pipeline.streams}
    pairs = inside["a"].join(inside["b"], on="key", suffix="_b")
    triples = pairs.join(inside["c"], left_on=["key2", "key2_b"], right_on=["key2", "key"], suffix="_c")
    return triples.select(pl.col("value").alias("a"), pl.col("value_b").alias("b"), pl.col("value_c").alias("c"))


def _window(query: Query, name: str, t: int) -> pl.DataFrame:
    stream = next(item for item in query.pipeline.streams if item.name == name)
    source = open_source(stream, query.checkpoint / "sources" / name)
    rows = query.heartbeats()[name].rows
    reach = int(10 * SETTLE * RATES[name])
    frames = [chunk.rows for chunk in source.read(max(0, rows - reach), rows, frozenset())]
    return pl.concat(frames).filter((pl.col(FROM) <= t) & (pl.col(FROM) > t - WINDOW * SECOND))


@contextmanager
def _cheapest_plan() -> Iterator[None]:
    """Plans are made as if nothing were dropped."""
    planning_inputs = Database._planning_inputs

    def without_limits(database: Database, *arguments: Any) -> PlanningInputs:
        return replace(planning_inputs(database, *arguments), limits={})

    with patch.object(Database, "_planning_inputs", without_limits):
        yield


def report_shedding(figures: Figures, console: Console) -> None:
    shedding = figures["shedding"]
    sides = shedding["sides"]
    rows = [[f"{value:,}" if isinstance(value, int | float) else value for value in side.values()] for side in sides]
    heads = [key.replace("_", " ") for key in sides[0]]
    print_table(console, "shedding, twice the capacity", heads, rows, left=("what", "kept", "after it"))
    scale, best = shedding["capacity_scale"], shedding["optimum_per_s"]
    rates = ", ".join(f"{name} {scale * rate:,.0f}" for name, rate in RATES.items())
    console.print(
        f"capacity: {rates} rows per second; optimum of the model at twice as many: {best:,} results per second"
    )

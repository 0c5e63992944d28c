"""Micro-benchmark of operators: rows per CPU second on one core, as the state grows.

Only operators run, as they run in a worker: no reading, no exchange, no Spark. First the state is filled, then rows are
counted. Times are CPU seconds of this process, all threads together: what a core does in a second, and other work on
the machine does not count.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from strandline.apps.bench.generated_streams import START, GeneratedStream, TimedRun, bound
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.core.temporal import SECOND
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

ROWS_PER_S = 100_000  # of stream time, both streams together
BATCH_ROWS = 100_000
STATES = (20_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Family:
    """A query over the streams a and b, or a alone; `{w}` is its window. There are `keys` keys per row of state."""

    query: str
    keys: float

    @property
    def streams(self) -> tuple[str, ...]:
        return ("a", "b") if " b " in self.query else ("a",)

    def streams_for(self, state: int) -> list[GeneratedStream]:
        """The streams of a query whose window has `state` rows."""
        rate, keys = ROWS_PER_S // len(self.streams), max(int(state * self.keys), 1)
        return [GeneratedStream(name, rate, {"k": keys}) for name in self.streams]

    def text_for(self, state: int) -> str:
        return self.query.replace("{w}", f"WINDOW(RANGE {state * SECOND // ROWS_PER_S} MICROSECONDS)")


_ON = "a {w} {0} JOIN b {w} ON a.k = b.k"
FAMILIES: dict[str, Family] = {
    "filter": Family("SELECT k, v * 2 AS w FROM a {w} WHERE v < 0.1", 0.01),
    "join": Family(f"SELECT a.k, a.v, b.v AS w FROM {_ON.format('INNER', w='{w}')}", 0.5),
    "aggregate": Family("SELECT k, COUNT(*) AS n, AVG(v) AS a, MAX(v) AS m FROM a {w} GROUP BY k", 0.01),
    "distinct": Family("SELECT DISTINCT k FROM a {w}", 0.5),
    "except": Family("SELECT k FROM a {w} EXCEPT ALL SELECT k FROM b {w}", 0.5),
    "intersect": Family("SELECT k FROM a {w} INTERSECT SELECT k FROM b {w}", 0.5),
    "outer join": Family(f"SELECT a.k, a.v, b.v AS w FROM {_ON.format('LEFT', w='{w}')}", 0.5),
    "semi join": Family(f"SELECT a.k, a.v FROM {_ON.format('SEMI', w='{w}')}", 0.5),
    "anti join": Family(f"SELECT a.k, a.v FROM {_ON.format('ANTI', w='{w}')}", 0.5),
    "rows": Family("SELECT k, v FROM a WINDOW(PARTITION BY k ROWS 10)", 0.1),
}


def measure(family: Family, state: int, rows: int) -> Figures:
    """Fill the state, a window of `state` rows, then count rows per CPU second."""
    streams = family.streams_for(state)
    plan = optimize(bound(family.text_for(state), streams))
    run, counted = run_filled(lower("q", plan, [made.stream for made in streams], shards=1), streams, state, rows)
    return {
        "rows_per_s": round(counted / sum(run.seconds().values())),
        "results_per_row": round(run.results / counted, 2),
        "window_rows": state,
        "state_rows": sum(run.state_rows().values()),
    }


def run_filled(pipeline: Pipeline, streams: Sequence[GeneratedStream], state: int, rows: int) -> tuple[TimedRun, int]:
    """Fill the windows of a pipeline with `state` rows, then run at least `rows` further ones; gives the run with the
    figures of those, and their number."""
    run = TimedRun(pipeline)
    batch_seconds = BATCH_ROWS / ROWS_PER_S
    fill, counted = -(-state // BATCH_ROWS) + 1, -(-rows // BATCH_ROWS)
    for number in range(fill + counted):
        if number == fill:
            run.forget()
        until = START + round((number + 1) * batch_seconds * SECOND)
        run.step({made.name: made.rows(number, batch_seconds) for made in streams}, until)
    return run, counted * BATCH_ROWS


def run_operators(bench: Bench) -> Figures:
    """Throughput of each operator on one core as its state grows, relative to join and aggregate."""
    measurements: list[Figures] = []
    for name, family in FAMILIES.items():
        measure(family, STATES[0], BATCH_ROWS)  # the first use of a library does not count
        for state in STATES:
            gc.collect()
            runs = [measure(family, state, bench.rows or 1_000_000) for _ in range(bench.repeat)]
            figures = {"operator": name, **max(runs, key=lambda run: run["rows_per_s"])}
            bench.say(f"{name}, {state:,} rows in the window: {figures['rows_per_s']:,} rows/s per core")
            measurements.append(figures)
    return {"bench": "operators", "operators": _with_factors(measurements), "same_answer": None}


def _with_factors(measurements: list[Figures]) -> list[Figures]:
    """Slowdown against the join and the aggregate with as many rows in the window."""
    speed = {(item["operator"], item["window_rows"]): item["rows_per_s"] for item in measurements}
    for item in measurements:
        for other in ("join", "aggregate"):
            reference = speed.get((other, item["window_rows"]))
            item[f"times_{other}"] = None if reference is None else round(reference / item["rows_per_s"], 2)
    return measurements


def report_operators(figures: Figures, console: Console) -> None:
    heads = ("operator", "window rows", "state rows", "rows/s per core", "results per row", "× join", "× aggregate")
    keys = ("window_rows", "state_rows", "rows_per_s", "results_per_row", "times_join", "times_aggregate")
    rows = [
        (item["operator"], *("" if item[key] is None else f"{item[key]:,}" for key in keys))
        for item in figures["operators"]
    ]
    print_table(console, "operators", heads, rows, left=("operator",))
    console.print("× join: how many times as long as the join takes for a row; below 1 it is faster.")

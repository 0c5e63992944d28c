"""Benchmark of a burst over queries that cost differently: response times by the strategy of fragments.

Three queries over two streams: one that counts, one that groups what it joins, in two stages, and one that joins with a
large fan-out. Rows come at half of what this machine can do, five times as fast for a while, and at half again; the
clock is that of `join_burst.py`. Without a strategy a batch is as long as all of its work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.console import Console

from strandline.apps.bench.generated_streams import START, GeneratedStream, bound, statistics_of
from strandline.apps.bench.join_burst import (
    BURST,
    CALM_SECONDS,
    IDLE,
    Clock,
    PacedSource,
    TimedPlanner,
    cpu_seconds,
    paced_rows,
)
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.core.temporal import SECOND
from strandline.engines.local import LocalRun
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.response_times import ResponseTimes
from strandline.runtime.scheduling.strategies import STRATEGIES

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

WINDOW: Final = 4  # seconds, the largest one
BURST_SECONDS: Final = 10
AFTER_SECONDS: Final = 40
BATCH_SECONDS: Final = 0.3
MATCHES: Final = 40  # of a row in the largest window, on average
QUICK: Final = 0.2  # of the lengths, for a quick run
QUERIES: Final[Mapping[str, str]] = {
    "counted": "SELECT g, COUNT(*) AS n FROM a [RANGE 1 SECONDS SLIDE 100 MILLISECONDS] GROUP BY g",
    "grouped": (
        "SELECT a.g, COUNT(*) AS n FROM a [RANGE 1 SECONDS SLIDE 100 MILLISECONDS] "
        "JOIN b [RANGE 1 SECONDS SLIDE 100 MILLISECONDS] ON a.m = b.m GROUP BY a.g"
    ),
    "joined": f"SELECT a.k, a.v, b.v AS w FROM a [RANGE {WINDOW} SECONDS] JOIN b [RANGE {WINDOW} SECONDS] ON a.k = b.k",
}


@dataclass(slots=True)
class Measured:
    """What a run did since the burst began: responses by query, and how many rows have waited at most, and for how many
    seconds in sum."""

    responses: dict[str, ResponseTimes] = field(default_factory=lambda: {name: ResponseTimes() for name in QUERIES})
    cpu_seconds: float = 0.0
    batches: int = 0
    longest: float = 0.0  # of the batches
    most_waiting: int = 0
    row_seconds: float = 0.0


def plan_queries(streams: Sequence[GeneratedStream]) -> Pipeline:
    declared = [made.stream for made in streams]
    parts, first = [], 0
    for name, text in QUERIES.items():
        part = lower(name, optimize(bound(text, streams), statistics_of(streams)), declared, 1, first=first)
        first += len(part.fragments)
        parts.append(part)
    return combine(parts, declared, [""] * len(parts))


def make_streams(rate: int) -> list[GeneratedStream]:
    keys = {"k": max(1, rate * WINDOW // MATCHES), "m": max(1, rate // 2), "g": 20}
    return [GeneratedStream(name, rate, keys) for name in ("a", "b")]


def run_strategy(strategy: str | None, rate: int, scale: float, burst: float = BURST) -> Measured:
    """One run; without a strategy nothing is put off."""
    streams = make_streams(rate)
    fill = WINDOW + CALM_SECONDS * scale
    paces = [(fill, 1.0), (BURST_SECONDS * scale, burst), (AFTER_SECONDS * scale, 1.0)]
    clock = Clock(START)
    sources = {made.name: PacedSource(made, paced_rows(made, paces), clock) for made in streams}
    running = RunningPipeline(plan_queries(streams))
    if strategy is not None:
        running.budgets = TimedPlanner(BATCH_SECONDS, strategy=strategy, statistics=statistics_of(streams))
    run = LocalRun(running, sources=sources)
    for number in range(round(fill)):  # the windows are filled: the clock does not count
        clock.now = START + (number + 1) * SECOND
        run.step()
    measured, burst_from = Measured(), START + round(fill * SECOND)
    clock.now = max(clock.now, burst_from)
    while not running.ended:
        began = cpu_seconds()
        report = run.step()
        seconds = cpu_seconds() - began
        clock.now += round((seconds if report is not None else max(IDLE * scale, seconds)) * SECOND)
        if report is None:
            continue
        measured.cpu_seconds += seconds
        measured.batches += 1
        measured.longest = max(measured.longest, seconds)
        measured.most_waiting = max(measured.most_waiting, report.work.left)
        measured.row_seconds += report.work.left * seconds
        for name, responses in measured.responses.items():
            table = report.result(name)
            if table is not None:
                starts = table.column("valid_from").cast(pa.int64()).to_numpy()
                responses.add_all((clock.now - starts[starts >= burst_from]) / SECOND)
    run.close()
    return measured


def find_rate(seconds: float = 4.0, rate: int = 1_000) -> int:
    """Half the rows per second of each stream that this machine can do, measured at about that."""
    for _ in range(3):
        streams = make_streams(rate)
        clock = Clock(START)
        sources = {made.name: PacedSource(made, paced_rows(made, [(WINDOW + seconds, 1.0)]), clock) for made in streams}
        run = LocalRun(RunningPipeline(plan_queries(streams)), sources=sources)
        clock.now = START + WINDOW * SECOND
        run.step()
        began = cpu_seconds()
        for number in range(round(seconds / BATCH_SECONDS)):
            clock.now = START + round((WINDOW + (number + 1) * BATCH_SECONDS) * SECOND)
            run.step()
        run.close()
        rate = max(100, round(rate * min(4.0, 0.5 * seconds / (cpu_seconds() - began))))
    return rate


def run_strategies(bench: Bench) -> Figures:
    """A burst over queries that cost differently, with each strategy of fragments and without."""
    return measure_strategies(bench.rows, 1.0 if bench.rows is None else QUICK)


def measure_strategies(rate: int | None = None, scale: float = 1.0) -> Figures:
    """All strategies, one after the other, over the same rows."""
    rate = rate or find_rate()
    figures: Figures = {"bench": "strategies", "date": datetime.now().isoformat(timespec="seconds")}
    figures |= {"rate": rate, "scale": scale, "strategies": {}}
    for strategy in (None, *STRATEGIES):
        measured = run_strategy(strategy, rate, scale)
        figures["strategies"][strategy or "none"] = {
            "p50": {name: round(each.quantile(0.5), 4) for name, each in measured.responses.items()},
            "p99": {name: round(each.quantile(0.99), 4) for name, each in measured.responses.items()},
            "max": {name: round(each.longest, 4) for name, each in measured.responses.items()},
            "results": {name: int(each.counts.sum()) for name, each in measured.responses.items()},
            "cpu_seconds": round(measured.cpu_seconds, 2),
            "batches": measured.batches,
            "longest_batch_s": round(measured.longest, 3),
            "most_waiting": measured.most_waiting,
            "row_seconds": round(measured.row_seconds),
        }
    return figures


def report_strategies(figures: Figures, console: Console) -> None:
    found = figures["strategies"]
    rows = [
        (query, *(f"{found[strategy][figure][query]:.2f}" for strategy in found for figure in ("p50", "p99", "max")))
        for query in QUERIES
    ]
    heads = ("query", *(f"{strategy} {figure}" for strategy in found for figure in ("p50", "p99", "max")))
    seconds = BURST_SECONDS * figures["scale"]
    title = f"response times, seconds: {figures['rate']:,} rows/s of each stream, {BURST} × for {seconds:g} s"
    print_table(console, title, heads, rows, left=("query",))
    facts = [
        (
            strategy,
            f"{f['cpu_seconds']:.1f}",
            str(f["batches"]),
            f"{f['longest_batch_s']:.2f}",
            f"{f['most_waiting']:,}",
            f"{f['row_seconds']:,}",
        )
        for strategy, f in found.items()
    ]
    heads = ("strategy", "CPU s", "batches", "longest batch s", "most rows wait", "row seconds")
    print_table(console, "what it took", heads, facts, left=("strategy",))

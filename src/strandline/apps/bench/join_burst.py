"""Benchmark of a burst over a shared window join: response times of its windows by the policy of what is put off.

Seven queries join two streams in windows that are a tenth of Small-Large (Hammad et al., table 1). Rows come at half of
what this machine can do, five times as fast for a while, and then at half again. Rows have the time at which they come;
a result's response is its delivery less its start. The clock is the CPU time of this process, so that other programs do
not matter: it goes on by what a batch takes, and by a bit where there is nothing to do. It runs SLOWDOWN times as fast,
as if this machine were slower: then the whole takes minutes, and what a batch takes in any case counts as much as it
does on Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import polars as pl
import pyarrow as pa
from rich.console import Console

from strandline.apps.bench.generated_streams import START, GeneratedStream, bound, statistics_of
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.apps.papers.hammad.formulas import DISTRIBUTIONS
from strandline.connectors.sources.base import REJECT_SCHEMA, Chunk, Source
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import SECOND, Instant
from strandline.engines.local import LocalRun
from strandline.planner.physical.lowering import combine, lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.kernels.batch import FROM
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.response_times import ResponseTimes
from strandline.runtime.scheduling.budget import WorkBudget, WorkReport
from strandline.runtime.scheduling.budget_planner import BudgetPlanner

POLICIES: Final = ("LWO", "SWF", "Greedy")
WINDOWS: Final = tuple(window / 10 for window in DISTRIBUTIONS["Small-Large"])  # seconds
SMALL: Final = 3  # of them are small
BURST: Final = 5
BURST_SECONDS: Final = 20
AFTER_SECONDS: Final = 60
CALM_SECONDS: Final = 5
MATCHES: Final = 40  # of a row in the largest window, on average
BATCH_SECONDS: Final = 0.3
SLOWDOWN: Final = 4.0
IDLE: Final = 0.01  # seconds between two looks where there is nothing


@dataclass(slots=True)
class Clock:
    now: Instant


class PacedSource(Source):
    """Rows that come at their times, by a clock; position n is after n rows."""

    traits: ClassVar[Traits] = Traits(True, True, True, "made for a benchmark")

    def __init__(self, made: GeneratedStream, rows: pl.DataFrame, clock: Clock) -> None:
        super().__init__(made.stream, None)
        self.rows, self.clock = rows, clock
        self._times = rows.get_column(FROM).to_numpy()

    def check(self, span: Span | None) -> None:
        return

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        end = int(np.searchsorted(self._times, self.clock.now, side="right"))
        return min(max(end, position), position + limit_rows), position >= len(self._times)

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        part = self.rows.slice(start, end - start)
        yield Chunk(part.select(*(c for c in part.columns if c in columns), FROM), pl.DataFrame(schema=REJECT_SCHEMA))


class TimedPlanner(BudgetPlanner):
    """Budgets by the CPU time of batches."""

    def decide(self, rows: int, parts: int, *, has_work: bool) -> WorkBudget:
        self.began = cpu_seconds()
        return super().decide(rows, parts, has_work=has_work)

    def observe(self, work: WorkReport, seconds: float) -> None:
        super().observe(work, cpu_seconds() - self.began)


def cpu_seconds() -> float:
    """CPU seconds of this process, on the machine that is slower."""
    return time.process_time() * SLOWDOWN


@dataclass(slots=True)
class Measured:
    """What a run did since the burst began: responses by window, and how much has waited at most."""

    responses: list[ResponseTimes] = field(default_factory=lambda: [ResponseTimes() for _ in WINDOWS])
    cpu_seconds: float = 0.0
    batches: int = 0
    waiting: float = 0.0  # bytes of chunks and of pairs, as a share of the rows of both sides
    longest: float = 0.0  # of the batches


def paced_rows(made: GeneratedStream, paces: Sequence[tuple[float, float]]) -> pl.DataFrame:
    """Rows of a stream: so many seconds at so many times its rate, one after the other."""
    draw = np.random.default_rng(list(made.name.encode()))
    parts, begin = [], 0.0
    for seconds, pace in paces:
        count = round(seconds * pace * made.rate)
        parts.append(begin + np.sort(draw.random(count)) * seconds)
        begin += seconds
    at = START + (np.concatenate(parts) * SECOND).astype(np.int64)
    keys = {name: draw.integers(0, values, len(at)) for name, values in made.keys.items()}
    return pl.DataFrame({**keys, "v": draw.random(len(at)), "t": at, FROM: at}).with_columns(
        pl.col("t").cast(pl.Datetime("us"))
    )


def plan_windows(streams: Sequence[GeneratedStream], scale: float) -> Pipeline:
    declared = [made.stream for made in streams]
    parts = []
    for number, seconds in enumerate(WINDOWS):
        window = f"[RANGE {round(seconds * scale * 1000)} MILLISECONDS]"
        text = f"SELECT a.k, a.v, b.v AS w FROM a {window} JOIN b {window} ON a.k = b.k"
        plan = optimize(bound(text, streams), statistics_of(streams))
        parts.append(lower(f"q{number}", plan, declared, 1, first=number * 3))
    return combine(parts, declared, [""] * len(parts))


def make_streams(rate: int, scale: float) -> list[GeneratedStream]:
    keys = max(1, round(rate * WINDOWS[-1] * scale / MATCHES))
    return [GeneratedStream(name, rate, {"k": keys}) for name in ("a", "b")]


def run_burst(policy: str | None, rate: int, scale: float, burst: float = BURST) -> Measured:
    """One run; without a policy nothing is put off."""
    streams = make_streams(rate, scale)
    fill = (WINDOWS[-1] + CALM_SECONDS) * scale
    paces = [(fill, 1.0), (BURST_SECONDS * scale, burst), (AFTER_SECONDS * scale, 1.0)]
    clock = Clock(START)
    sources = {made.name: PacedSource(made, paced_rows(made, paces), clock) for made in streams}
    running = RunningPipeline(plan_windows(streams, scale))
    if policy is not None:
        running.budgets = TimedPlanner(BATCH_SECONDS, policy)
    run = LocalRun(running, sources=sources)
    for number in range(round(fill / scale)):  # the windows are filled: the clock does not count
        clock.now = START + round((number + 1) * scale * SECOND)
        run.step()
    measured, burst_from = Measured(), START + round(fill * SECOND)
    clock.now = max(clock.now, burst_from)
    while not running.ended:
        began = cpu_seconds()
        report = run.step()
        seconds = cpu_seconds() - began
        clock.now += round((seconds if report is not None else max(IDLE * scale, seconds)) * SECOND)
        if report is not None:
            measured.cpu_seconds += seconds
            measured.batches += 1
            measured.longest = max(measured.longest, seconds)
            _note(measured, report, clock.now, burst_from)
            measured.waiting = max(measured.waiting, _waiting_share(run))
    run.close()
    return measured


def _note(measured: Measured, report: BatchReport, now: Instant, since: Instant) -> None:
    for number, responses in enumerate(measured.responses):
        table = report.result(f"q{number}")
        if table is not None:
            starts = table.column("valid_from").cast(pa.int64()).to_numpy()
            responses.add_all((now - starts[starts >= since]) / SECOND)


def _waiting_share(run: LocalRun) -> float:
    """Bytes of what waits, as a share of the rows of both sides that a shared join keeps."""
    waiting, kept = 0, 1
    for states in run.states.values():
        for state in states.values():
            sizes = {name: sum(s.stored.size for s in segments) for name, segments in state.segments.items()}
            if "chunks" in sizes:
                waiting += sizes["chunks"] + sizes["pairs"]
            if "left" in sizes:
                kept += sizes["left"] + sizes["right"]
    return waiting / kept


def find_rate(scale: float, seconds: float = 4.0, rate: int = 2_000) -> int:
    """Half the rows per second of each stream that this machine can join, measured at about that."""
    for _ in range(3):
        streams = make_streams(rate, scale)
        fill = WINDOWS[-1] * scale
        clock = Clock(START)
        paces = [(fill + seconds, 1.0)]
        sources = {made.name: PacedSource(made, paced_rows(made, paces), clock) for made in streams}
        run = LocalRun(RunningPipeline(plan_windows(streams, scale)), sources=sources)
        clock.now = START + round(fill * SECOND)
        run.step()
        began = cpu_seconds()
        for number in range(round(seconds / BATCH_SECONDS)):
            clock.now = START + round((fill + (number + 1) * BATCH_SECONDS) * SECOND)
            run.step()
        run.close()
        load = (cpu_seconds() - began) / seconds
        rate = max(100, round(rate * min(4.0, 0.5 / load)))
    return rate


def measure_burst(rate: int | None = None, scale: float = 1.0) -> Figures:
    """All policies, one after the other, over the same rows."""
    rate = rate or find_rate(scale)
    figures: Figures = {"rate": rate, "scale": scale, "windows": [window * scale for window in WINDOWS], "policies": {}}
    for policy in POLICIES:
        measured = run_burst(policy, rate, scale)
        figures["policies"][policy] = {
            "p50": [round(each.quantile(0.5), 4) for each in measured.responses],
            "p99": [round(each.quantile(0.99), 4) for each in measured.responses],
            "max": [round(each.longest, 4) for each in measured.responses],
            "results": [int(each.counts.sum()) for each in measured.responses],
            "cpu_seconds": round(measured.cpu_seconds, 2),
            "batches": measured.batches,
            "longest_batch_s": round(measured.longest, 3),
            "waiting_share": round(measured.waiting, 3),
        }
    return figures


def report_burst(figures: Figures, console: Console) -> None:
    heads = ("window", *(f"{policy} {name}" for policy in POLICIES for name in ("p50", "p99", "max")))
    rows = [
        (
            f"{window:g} s",
            *(f"{figures['policies'][p][name][number]:.2f}" for p in POLICIES for name in ("p50", "p99", "max")),
        )
        for number, window in enumerate(figures["windows"])
    ]
    title = f"response times, seconds: {figures['rate']:,} rows/s of each stream, {BURST} × for {BURST_SECONDS} s"
    print_table(console, title, heads, rows, left=("window",))
    facts = [
        (
            policy,
            f"{f['cpu_seconds']:.1f}",
            str(f["batches"]),
            f"{f['longest_batch_s']:.2f}",
            f"{f['waiting_share']:.0%}",
        )
        for policy, f in figures["policies"].items()
    ]
    print_table(
        console,
        "what it took",
        ("policy", "CPU s", "batches", "longest batch s", "waits, of state"),
        facts,
        left=("policy",),
    )

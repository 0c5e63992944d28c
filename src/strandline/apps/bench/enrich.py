"""Benchmark of the enrichment join: a stream joined with a large table that changes all the time, on Spark.

Each run has a process of its own (`enrich_run.py`) and ends by a kill, as a machine fails; one of them is continued.
Memory is the resident memory of the process and its descendants; pages that they share count for each of them.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil
from rich.console import Console

from strandline.apps.bench.enrich_run import KINDS, THREADS, UPDATES_PER_SECOND, WINDOW_ROWS, EnrichJob
from strandline.apps.bench.measure import Figures
from strandline.apps.console import print_table
from strandline.core.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

ROWS: Final = 10_000_000
SECONDS: Final = 10.0
SMALLER: Final = 10  # the other table has a tenth of the rows: the work per row must not depend on it
SMALLER_SECONDS: Final = 30.0  # and at most this long a run
PATIENCE_SECONDS: Final = 600.0  # beyond the length of a run: to load, to start, for the first result
PARTS: Final = (*KINDS, "freshness", "upserts")


@dataclass
class EnrichProcess:
    """A run in a process of its own, and its memory over time."""

    job: EnrichJob
    began: float = field(default_factory=time.time)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = Path(self.job.out).with_suffix(".job")
        self.job.write(path)
        self.log = Path(self.job.out).with_suffix(".log")
        with self.log.open("w") as file:
            command = [sys.executable, "-m", "strandline.apps.bench.enrich_run", str(path)]
            self.process = psutil.Popen(command, stdout=file, stderr=file)

    def await_figures(self) -> Figures:
        """The figures of the run, once it has written them."""
        out = Path(self.job.out)
        while not out.exists():
            if self.process.poll() is not None and not out.exists():
                raise self._error(f"ended with exit code {self.process.returncode}")
            if time.time() > self.began + self.job.seconds + PATIENCE_SECONDS:
                raise self._error(f"has no figures after {PATIENCE_SECONDS:.0f} seconds")
            self.memory_mb.append((time.time(), _memory_mb(self._tree())))
            time.sleep(0.25)
        return self.job.read_figures()

    def kill(self) -> None:
        """kill -9 of the process and of its descendants."""
        for process in self._tree():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()

    def _tree(self) -> list[psutil.Process]:
        try:
            return [*self.process.children(recursive=True), self.process]
        except psutil.NoSuchProcess:
            return []

    def _error(self, what: str) -> StrandlineError:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return StrandlineError(
            f"the run {what}: {lines[-1] if lines else 'no output'}",
            code="bench-run",
            hint="Free memory and disk, or use fewer --rows.",
        )


def _memory_mb(processes: list[psutil.Process]) -> float:
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total / 2**20


def memory_growth(samples: list[tuple[float, float]], begin: float, end: float) -> float:
    """By how much the memory grows after the first third of a run: its last quarter against the first one of the rest.

    Medians, because garbage collection makes waves.
    """
    settled = [memory for at, memory in samples if begin + (end - begin) / 3 <= at <= end]
    quarter = max(len(settled) // 4, 1)
    return float(np.median(settled[-quarter:]) / np.median(settled[:quarter]) - 1) if settled else 0.0


def run_enrich(bench: Bench) -> Figures:
    """A stream joined with a table of 10 M rows, of which 1,000 are replaced per second."""
    rows, seconds = bench.rows or ROWS, bench.seconds or SECONDS
    parts = bench.chosen(PARTS)
    figures: Figures = {"bench": "enrich", "rows": rows, "seconds": seconds, "runs": []}
    for kind in (kind for kind in KINDS if kind in parts):
        for size, length in ((max(rows // SMALLER, 1), min(seconds, SMALLER_SECONDS)), (rows, seconds)):
            figures["runs"].append(_measure_join(bench, kind, size, length, restart=size == rows))
    if "freshness" in parts:
        for kind in KINDS:
            found = _measure(bench, kind, "freshness", rows, min(seconds, SMALLER_SECONDS))
            figures.setdefault("freshness", []).append({"kind": kind, **found})
            bench.say(f"{kind}: visible after {found.get('p50_ms')} ms, p99 {found.get('p99_ms')} ms")
    if "upserts" in parts:
        figures["upserts"] = _measure(bench, "lookup", "upserts", rows, min(seconds, 5), engine="local")
        bench.say(
            f"upserts per second: {figures['upserts']['by_sql']:,} by SQL, {figures['upserts']['by_call']:,} by call"
        )
    return figures


def _measure(bench: Bench, kind: str, mode: str, rows: int, seconds: float, engine: str = "spark") -> Figures:
    place = bench.fresh(f"enrich-{mode}")
    place.mkdir(parents=True)
    run = EnrichProcess(EnrichJob(mode, kind, rows, seconds, str(place / "db"), str(place / "figures"), engine))
    try:
        return run.await_figures()
    finally:
        run.kill()


def _measure_join(bench: Bench, kind: str, rows: int, seconds: float, restart: bool) -> Figures:
    place = bench.fresh(f"enrich-{kind}")
    place.mkdir(parents=True)
    run = EnrichProcess(EnrichJob("throughput", kind, rows, seconds, str(place / "db"), str(place / "figures")))
    try:
        found = run.await_figures()
    finally:
        run.kill()
    found |= {"kind": kind, "rows": rows, "peak_mb": round(max(memory for _, memory in run.memory_mb))}
    growth = memory_growth(run.memory_mb, found.pop("first_at"), found.pop("end_at"))
    found["growth_percent"] = round(100 * growth, 1)
    if restart:
        found["restart_s"] = _measure_restart(run.job, place)
    bench.say(f"{kind}, {rows:,} rows: {found['rows_per_s']:,} rows/s, first result after {found['first_result_s']} s")
    return found


def _measure_restart(killed: EnrichJob, place: Path) -> float:
    """Seconds from the start of the process that continues to its first result, with the start of Spark."""
    job = EnrichJob("restart", killed.kind, killed.rows, killed.seconds, killed.checkpoint, str(place / "restarted"))
    run = EnrichProcess(job)
    try:
        return round(float(run.await_figures()["first_at"]) - run.began, 1)
    finally:
        run.kill()


COLUMNS: Final = {
    "kind": "join",
    "rows": "table rows",
    "rows_per_s": "rows/s",
    "us_per_row": "CPU µs/row",
    "updates_per_s": "updates/s",
    "load_s": "load s",
    "first_result_s": "first result s",
    "restart_s": "after kill s",
    "state_per_live": "state/live",
    "beyond_table_rows": "rows beyond table",
    "peak_mb": "peak MB",
    "growth_percent": "growth %",
}


def report_enrich(figures: Figures, console: Console) -> None:
    if figures["runs"]:
        rows = [[_cell(run.get(name, "")) for name in COLUMNS] for run in figures["runs"]]
        print_table(console, "enrich", list(COLUMNS.values()), rows, left=("join",))
        console.print(
            f"{UPDATES_PER_SECOND:,} rows replaced per second; a window of {WINDOW_ROWS:,} rows if retroactive"
        )
        for kind, ratio in work_ratios(figures).items():
            console.print(f"{kind}: work per row of the larger table is {ratio} times that of the smaller one")
    others = [
        (f"{found['kind']}: a change visible in a result, {name}", f"{found.get(f'{name}_ms', '')} ms")
        for found in figures.get("freshness", [])
        for name in ("p50", "p99")
    ]
    names = {"by_sql": "SQL text", "by_call": "Table.upsert"}
    others += [
        (f"single-row upserts per second, {THREADS} threads, {names[name]}", f"{value:,}")
        for name, value in figures.get("upserts", {}).items()
    ]
    if others:
        print_table(console, "changes", ("what", "figure"), others, left=("what",))


def work_ratios(figures: Figures) -> dict[str, float]:
    """CPU time of the operators per row of the stream: of the larger table to that of the smaller one, by kind."""
    found: dict[str, list[float]] = {}
    for run in figures["runs"]:
        found.setdefault(run["kind"], []).append(run["us_per_row"])
    return {kind: round(costs[-1] / costs[0], 2) for kind, costs in found.items() if len(costs) > 1 and costs[0]}


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)

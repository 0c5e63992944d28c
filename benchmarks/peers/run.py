"""Strandline beside its peers: the same work, the same files, the answers compared.

    python benchmarks/peers/run.py [--only flink,strandline] [--work join] [--rows 100000] [--repeat 2]

Every engine runs every workload in a process of its own, in its own environment. An engine that cannot be installed,
fails, or takes too long is reported with the reason, and the rest goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))  # at the end: a directory here has the name of a package

import check
import data
import report
from envs import NotInstallable, python_of
from works import ENGINES, WORKS, Work

Figures = dict[str, Any]
WARM_ROWS = 20_000
PATIENCE_SECONDS = 15  # after a longer run there is no second one
RATE, PACED_SECONDS = 10_000, 20


@dataclass(frozen=True)
class Plan:
    """What to run, and where."""

    engines: list[str]
    works: list[Work]
    rows: int | None
    repeat: int
    kind: str
    latency: bool
    timeout: float
    place: Path

    @property
    def whole(self) -> bool:
        return (
            self.engines == list(ENGINES) and self.works == list(WORKS.values()) and self.rows is None and self.latency
        )


def run(plan: Plan) -> list[Figures]:
    """All engines on all workloads: a row of figures, or a reason, for each."""
    found = []
    for work in plan.works:
        print(f"{work.name}: {work.answer}", flush=True)
        rows = plan.rows or work.rows
        try:
            inputs, warm = (
                data.write(work, size, plan.place / f"{work.name}-{size}-{plan.kind}", plan.kind)
                for size in (rows, min(rows, WARM_ROWS))
            )
        except Exception as problem:  # the other workloads have inputs of their own
            print(f"  no input: {problem}", flush=True)
            found += [
                {"work": work.name, "engine": engine, "rows": 0, "problem": f"no input: {problem}"}
                for engine in plan.engines
            ]
            continue
        short = str(data.write_short(inputs, work, rows, plan.kind)) if work.table else ""
        answers: dict[str, check.Fingerprint] = {}
        engines = [engine for engine in plan.engines if not work.engines or engine in work.engines]
        for engine in dict.fromkeys(["duckdb", *engines]):  # DuckDB's answer is the one to compare with
            out = plan.place / "out" / f"{engine}-{work.name}"
            job = {
                "work": work.name, "data": str(inputs), "warm": str(warm), "out": str(out), "kind": plan.kind,
                "rows": data.rows_in(inputs, work, plan.kind), "repeat": plan.repeat, "patience": PATIENCE_SECONDS,
                "rate": RATE, "paced_seconds": PACED_SECONDS, "short": short, "short_rows": data.short_rows(rows),
            }  # fmt: skip
            figures = {"work": work.name, "engine": engine, "rows": job["rows"], **_figures(plan, engine, work, job)}
            if "best" in figures:
                _judge(figures, answers, out, work, inputs, plan.kind)
            if "problem" not in figures:
                shutil.rmtree(out, ignore_errors=True)  # else its log tells more
            if engine in plan.engines:
                found.append(figures)
                print("  " + report.line(figures), flush=True)
    return found


def _figures(plan: Plan, engine: str, work: Work, job: Figures) -> Figures:
    figures = _process(engine, "run", job, plan.timeout)
    if plan.latency and work.latency and ENGINES[engine].streams and "problem" not in figures:
        paced = _process(engine, "paced", job, plan.timeout)
        figures["latency"] = {name: paced[name] for name in ("p50_ms", "p99_ms", "problem") if name in paced}
    return figures


def _process(engine: str, mode: str, job: Figures, timeout: float) -> Figures:
    """One engine in a process group of its own, so that its children end with it."""
    out = Path(job["out"])
    if mode == "run":
        shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    told, answer, log = out / "job.json", out / f"{mode}.json", out / f"{mode}.log"
    told.write_text(json.dumps(job))
    answer.unlink(missing_ok=True)
    try:
        python = python_of(engine)
    except NotInstallable as problem:
        return {"problem": f"not installable: {problem}"}
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src") if python == sys.executable else ""}
    with log.open("w") as file:
        command = [python, str(HERE / engine / "engine.py"), mode, str(told)]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return {"problem": f"stopped after {timeout:.0f} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not answer.exists():
        return {"problem": f"ended with exit code {process.returncode}: {_last_words(log)}"}
    return json.loads(answer.read_text())


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "without a word"


def _judge(
    figures: Figures, answers: dict[str, check.Fingerprint], out: Path, work: Work, inputs: Path, kind: str
) -> None:
    """Count and hash the answer of the run that counts, and compare with DuckDB's."""
    engine = figures["engine"]
    try:
        answer = check.fingerprint(check.read(out / figures["best"], engine, work.name, work.columns, inputs, kind))
    except Exception as problem:  # whatever the files of an engine are, the others are still to be measured
        figures["same"], figures["problem"] = False, f"its answer cannot be read: {problem}"
        return
    answers[engine] = answer
    figures["results"] = answer[0]
    figures["same"] = answer == answers.get("duckdb")


def main() -> None:
    parser = argparse.ArgumentParser(description="strandline beside its peers")
    parser.add_argument("--only", default="", help=f"engines, of {', '.join(ENGINES)}")
    parser.add_argument("--work", default="", help=f"workloads, of {', '.join(WORKS)}")
    parser.add_argument("--rows", type=int, help="rows of each stream")
    parser.add_argument("--repeat", type=int, default=2, help="runs; the best counts")
    parser.add_argument("--format", default="csv", choices=("csv", "parquet"))
    parser.add_argument("--no-latency", action="store_true")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for an engine on a workload")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--place", type=Path, default=HERE / ".data", help="where input and results go")
    told = parser.parse_args()
    engines, works = _chosen(parser, told.only, ENGINES), _chosen(parser, told.work, WORKS)
    chosen = [WORKS[name] for name in works]
    latency = not told.no_latency
    plan = Plan(engines, chosen, told.rows, told.repeat, told.format, latency, told.timeout, told.place)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an orderly end: the running engine ends as well
    began = time.time()
    found = run(plan)
    document = {
        "machine": report.machine(),
        "seconds": round(time.time() - began),
        "repeat": plan.repeat,
        "figures": found,
    }
    if told.json or plan.whole:
        (told.json or HERE / "figures.json").write_text(json.dumps(document, indent=1) + "\n")
    text = report.tables(document)
    print(text)
    if plan.whole:
        report.write(text, HERE.parents[1] / "docs" / "benchmarks.md")


def _chosen(parser: argparse.ArgumentParser, told: str, known: dict[str, Any]) -> list[str]:
    wanted = [name for name in told.split(",") if name] or list(known)
    for name in wanted:
        if name not in known:
            parser.error(f"there is no {name}; there are {', '.join(known)}")
    return [name for name in known if name in wanted]


if __name__ == "__main__":
    main()

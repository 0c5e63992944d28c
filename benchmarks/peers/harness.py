"""What runs inside an engine's own environment: one workload, several times, and what each run cost.

An engine is a module with `start()`, which brings its runtime up and may return what ends it, and `RUNS`: functions
`run(job, place)` by workload, which read the input below `job.data` and leave their results in `place`. A run may
return its own seconds where the engine's clock tells better than ours when the work began. `PACED` has functions
`run(job)` by workload, which feed it `job.rate` rows per second of each stream. `UNABLE` says why a workload is in
neither.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
LEAST_DIFFERENCE = 0.1  # of the seconds of loading
SETTLE_SECONDS = 8  # of a paced run: nobody's first batches count
Delays = list[tuple[float, float]]  # when a result was due, and how much later it came, in milliseconds


@dataclass(frozen=True)
class Job:
    work: str
    data: Path  # the input, below it pieces/ and lanes/
    warm: Path  # the same in small
    out: Path
    kind: str  # csv or parquet
    rows: int  # of all streams together
    repeat: int
    patience: float  # seconds; after a longer run there is no second one
    rate: int  # rows per second of each stream when paced
    paced_seconds: int
    short: str  # beside a table: the beginning of the streams with the whole table
    short_rows: int

    def files(self, layout: str, stream: str, data: Path | None = None) -> list[str]:
        return sorted(str(path) for path in (data or self.data).joinpath(layout, stream).glob(f"*.{self.kind}"))


def _measure() -> ModuleType:
    """The project's own meter; it needs psutil and nothing else, so it can be loaded where strandline is not."""
    path = HERE.parents[1] / "src" / "strandline" / "apps" / "bench" / "measure.py"
    spec = importlib.util.spec_from_file_location("measure", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = module
    spec.loader.exec_module(module)
    return module


def _timed(run: Callable[[Job, Path], float | None], job: Job, place: Path) -> dict[str, float]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with _measure().measured() as cost:
        own = run(job, place)
    seconds = cost.seconds if own is None else own
    return {"seconds": seconds, "cpu_seconds": cost.cpu_seconds, "peak_memory_mb": cost.peak_memory_mb}


def _runs(module: ModuleType, job: Job) -> dict[str, Any]:
    if job.work not in module.RUNS:
        return {"problem": f"cannot express it: {module.UNABLE[job.work]}"}
    run = module.RUNS[job.work]
    small = Job(**{**job.__dict__, "data": job.warm})
    _timed(run, small, job.out / "warm")  # nobody pays for loading classes or for the first use of a library
    found: list[dict[str, float]] = []
    for number in range(job.repeat):
        found.append(_timed(run, job, job.out / f"run{number}"))
        if found[-1]["seconds"] > job.patience:
            break
    best = min(range(len(found)), key=lambda number: found[number]["seconds"])
    figures = {name: round(value, 3) for name, value in found[best].items()}
    all_seconds = [round(each["seconds"], 3) for each in found]
    figures |= {"runs": all_seconds, "best": f"run{best}"}
    return figures | (_beside_table(run, job, figures["seconds"]) if job.short else _rate(job.rows, figures["seconds"]))


def _rate(rows: int, seconds: float) -> dict[str, Any]:
    return {"rows_per_s": round(rows / seconds)}


def _beside_table(run: Callable[[Job, Path], float | None], job: Job, seconds: float) -> dict[str, Any]:
    """Rows per second after the table is loaded: a run over the beginning of the stream is what loading costs.

    There is no figure where the two runs differ by less than loading varies; it would be one of chance.
    """
    loading = _timed(run, Job(**{**job.__dict__, "data": Path(job.short)}), job.out / "short")["seconds"]
    if seconds - loading < LEAST_DIFFERENCE * loading:
        return {"load_seconds": round(loading, 3), "problem": "too few rows to tell their time from that of loading"}
    return {"load_seconds": round(loading, 3), **_rate(job.rows - job.short_rows, seconds - loading)}


def _paced(module: ModuleType, job: Job) -> dict[str, Any]:
    found = module.PACED[job.work](job)
    settled = min((due for due, _ in found), default=0) + SETTLE_SECONDS * 1000
    delays = sorted(delay for due, delay in found if due >= settled)
    if not delays:
        raise RuntimeError("no result came in the paced run")
    p50, p99 = (round(delays[min(int(len(delays) * part), len(delays) - 1)], 1) for part in (0.5, 0.99))
    return {"results": len(delays), "p50_ms": p50, "p99_ms": p99, "rate": job.rate}


def _reason(problem: BaseException) -> str:
    """One line: for what Java said its first cause, which comes last."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else f"{type(problem).__name__}: {lines[0] if lines else ''}")[:300]


def main(module: ModuleType) -> None:
    """Do the job that the runner wrote down, and write the figures, or why there are none, beside it."""
    mode, path = sys.argv[1], Path(sys.argv[2])
    told = json.loads(path.read_text())
    job = Job(**{**told, "data": Path(told["data"]), "warm": Path(told["warm"]), "out": Path(told["out"])})
    try:
        began = time.perf_counter()
        stop = module.start()
        start_seconds = round(time.perf_counter() - began, 2)
        figures = _runs(module, job) if mode == "run" else _paced(module, job)
        figures |= {"start_seconds": start_seconds, "version": module.version()}
        if stop is not None:
            stop()
    except BaseException as problem:
        traceback.print_exc()
        figures = {"problem": _reason(problem)}
    (job.out / f"{mode}.json").write_text(json.dumps(figures))

"""A run under load that is killed again and again: `make soak MINUTES=30`.

A generator writes files at a given rate of rows per second, `strandline run` follows them on Spark, and all its
processes are killed every two minutes and started again. At random moments DuckDB and pyarrow read the results, which
must have no row twice and none that was there before and is gone. In the end they must be those that DuckDB computes
from the same files, and neither the memory of all processes nor the number of files in the checkpoint may have grown
after minute 5. Result files must be at most two per shard and minute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

HERE: Final = Path(__file__).parent
if not __package__:
    sys.path.insert(0, str(HERE.parent))

import strandline as sl  # noqa: E402
from attack.hook import family  # noqa: E402
from attack.process_kinds import kill_family  # noqa: E402

SECOND: Final = 1_000_000
BEGIN: Final = 1_700_000_000 * SECOND  # a multiple of the window
WINDOW_S: Final = 10
KEYS: Final = 100
LATE_EVERY: Final = 1_000  # rows; such a row is later than its stream promises
SETTLED_MINUTES: Final = 5.0
SETTLED_RUN_MINUTES: Final = 1.0  # a run that is killed earlier was still starting or catching up: it shows no trend
QUERIES: Final = ("per_key", "few")

SCRIPT: Final = """
CREATE STREAM t (k BIGINT, v BIGINT, ts BIGINT)
  SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts WITHIN 2 SECONDS;
CREATE STREAM per_key AS SELECT k, COUNT(*) AS n, SUM(v) AS total
  FROM t WINDOW(RANGE {window} SECONDS SLIDE {window} SECONDS) GROUP BY k;
CREATE STREAM few AS SELECT k, v FROM t WHERE v < 20;
"""


# ---- input -----------------------------------------------------------------------------------------------------------


def rows_of(number: int, rate: int, seed: int) -> pa.Table:
    """The rows of second `number`: out of order by up to a second, some late by ten."""
    draw = np.random.default_rng([seed, number])
    times: npt.NDArray[np.int64] = BEGIN + number * SECOND + np.sort(draw.integers(0, SECOND, rate))
    times = times - draw.integers(0, SECOND // 2, rate)
    if number >= 12:
        times[LATE_EVERY - 1 :: LATE_EVERY] -= 10 * SECOND
    return pa.table({"k": draw.integers(0, KEYS, rate), "v": draw.integers(0, 1_000_000, rate), "ts": times})


class Generator(threading.Thread):
    """Writes some files per second, each by a rename; then the mark of the end."""

    def __init__(self, directory: Path, rate: int, seconds: int, per_second: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.directory, self.rate, self.seconds, self.seed = directory, rate, seconds, seed
        self.per_second = per_second

    def run(self) -> None:
        began = time.monotonic()
        for number in range(self.seconds):
            table = rows_of(number, self.rate, self.seed)
            size = -(-self.rate // self.per_second)
            for part in range(self.per_second):
                temporary = self.directory / f".{number:06d}"
                pq.write_table(table.slice(part * size, size), temporary, compression="zstd")
                time.sleep(max(0.0, began + number + part / self.per_second - time.monotonic()))
                os.replace(temporary, self.directory / f"{number:06d}-{part:03d}.parquet")
        (self.directory / "_END").touch()


class Reader(threading.Thread):
    """Reads the results at random moments, as anybody can who has the directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.directory, self.dice = directory, random.Random(seed)
        self.over = threading.Event()
        self.reads, self.flaws = 0, list[str]()
        self._seen = 0

    def run(self) -> None:
        while not self.over.wait(self.dice.expovariate(0.5)):
            files = f"{self.directory}/*.parquet"
            if not list(self.directory.glob("*.parquet")):
                continue
            try:
                if self.dice.random() < 0.5:
                    with duckdb.connect() as database:
                        rows, different = _required(
                            database.execute(
                                f"SELECT COUNT(*), COUNT(DISTINCT (k, v, valid_from)) FROM read_parquet('{files}')"
                            ).fetchone()
                        )
                else:
                    table = pq.read_table(self.directory, columns=["k", "v", "valid_from"])
                    rows, different = table.num_rows, table.group_by(table.column_names).aggregate([]).num_rows
            except Exception as error:
                self.flaws.append(f"a reader failed: {error}")
                continue
            self.reads += 1
            if rows != different:
                self.flaws.append(f"a reader saw {rows - different} rows twice")
            if rows < self._seen:
                self.flaws.append(f"a reader saw {rows} rows after {self._seen}")
            self._seen = rows


def _required(row: Any) -> Any:
    assert row is not None
    return row


# ---- what is observed ------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    minute: float
    run: int
    megabytes: float
    files: int


@dataclass
class Watch:
    """Memory of all processes and files of the checkpoint, every few seconds."""

    checkpoint: Path
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    def look(self, run: int, pid: int) -> None:
        used = 0
        for member in family(pid):
            with contextlib.suppress(psutil.Error):
                used += psutil.Process(member).memory_full_info().pss
        files = sum(len(names) for _, _, names in os.walk(self.checkpoint))
        self.samples.append(Sample((time.monotonic() - self.began) / 60, run, used / 2**20, files))

    def peaks(self, value: str) -> list[tuple[float, float]]:
        """The largest value of each run that lasted, with its time, once the first minutes are over."""
        runs: dict[int, list[Sample]] = {}
        for sample in self.samples:
            runs.setdefault(sample.run, []).append(sample)
        peaks = []
        for samples in runs.values():
            settled = [sample for sample in samples if sample.minute >= SETTLED_MINUTES]
            if settled and samples[-1].minute - samples[0].minute >= SETTLED_RUN_MINUTES:
                peak = max(settled, key=lambda sample: float(getattr(sample, value)))
                peaks.append((peak.minute, float(getattr(peak, value))))
        return peaks


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Growth per minute by least squares; 0 for fewer than three points."""
    if len(points) < 3:
        return 0.0
    minutes, values = np.array(points).T
    return float(np.polyfit(minutes, values, 1)[0])


def grows(points: Sequence[tuple[float, float]]) -> bool:
    """Whether the trend amounts to more than a tenth over the whole time."""
    if len(points) < 3:
        return False
    values = [value for _, value in points]
    whole = points[-1][0] - points[0][0]
    return slope(points) * whole > 0.1 * float(np.mean(values))


# ---- the judge -------------------------------------------------------------------------------------------------------


def judge(directory: Path) -> list[str]:
    """Compare results with those of DuckDB over the same files; what differs, in words."""
    slide = WINDOW_S * SECOND
    with duckdb.connect() as database:
        database.execute(
            f"""
            CREATE VIEW rows AS SELECT *, regexp_extract(filename, '(\\d+)-\\d+\\.parquet', 1)::BIGINT AS second
              FROM read_parquet('{directory}/in/*.parquet', filename => true);
            -- A row is late if it is more than two seconds behind: by construction those that are ten behind.
            CREATE VIEW applied AS SELECT k, v, ts FROM rows WHERE ts >= {BEGIN} + second * {SECOND} - 2 * {SECOND};
            CREATE TABLE wanted AS SELECT k, COUNT(*) AS n, SUM(v)::HUGEINT AS total, (ts // {slide}) AS w
              FROM applied GROUP BY ALL;
            CREATE TABLE found AS SELECT k, n, total::HUGEINT AS total,
              epoch_us(valid_from) AS b, epoch_us(valid_until) AS e
              FROM read_parquet('{directory}/out/per_key/*.parquet');
            -- The content of window w is valid from a microsecond before its end, for a slide. Elements come in pieces,
            -- and equal ones that touch may be one: what counts is that all of the slide is covered, once.
            CREATE TABLE cut AS SELECT *, UNNEST(range((b + 1) // {slide} - 1, (e + {slide}) // {slide} - 1)) AS w
              FROM found;
            CREATE TABLE pieces AS SELECT k, n, total, w FROM cut GROUP BY ALL
              HAVING SUM(least(e, (w + 2) * {slide} - 1) - greatest(b, (w + 1) * {slide} - 1)) = {slide};
            CREATE TABLE others AS SELECT k, n, total, w FROM cut GROUP BY ALL
              HAVING SUM(least(e, (w + 2) * {slide} - 1) - greatest(b, (w + 1) * {slide} - 1)) <> {slide};
            """
        )
        flaws = []
        for name, query in {
            "rows of per_key that are missing": "SELECT * FROM wanted EXCEPT ALL SELECT k, n, total, w FROM pieces",
            "rows of per_key that are wrong": "SELECT k, n, total, w FROM pieces EXCEPT ALL SELECT * FROM wanted",
            "rows of per_key that last too long or too short": "SELECT * FROM others",
            "rows of few that are missing": _few(directory, "wanted"),
            "rows of few that are wrong": _few(directory, "found"),
            "late rows that are missing": _late(directory, "wanted"),
            "late rows that are wrong": _late(directory, "found"),
        }.items():
            row = database.execute(f"SELECT COUNT(*) FROM ({query})").fetchone()
            if row is not None and row[0]:
                flaws.append(f"{row[0]:,} {name}")
        return flaws


def _few(directory: Path, first: str) -> str:
    wanted = "SELECT k, v, ts FROM applied WHERE v < 20"
    found = f"SELECT k, v, epoch_us(valid_from) FROM read_parquet('{directory}/out/few/*.parquet')"
    return f"{wanted} EXCEPT ALL {found}" if first == "wanted" else f"{found} EXCEPT ALL {wanted}"


def _late(directory: Path, first: str) -> str:
    wanted = f"SELECT k, v, ts FROM rows WHERE ts < {BEGIN} + second * {SECOND} - 2 * {SECOND}"
    found = f"SELECT k, v, ts FROM read_parquet('{directory}/out/_late/*/*.parquet')"
    return f"{wanted} EXCEPT ALL {found}" if first == "wanted" else f"{found} EXCEPT ALL {wanted}"


# ---- the run ---------------------------------------------------------------------------------------------------------


def start(directory: Path, log: Any) -> subprocess.Popen[str]:
    source = str(Path(sl.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-m", "strandline", "run", str(directory / "script.sql"), "--out", str(directory / "out")],
        env={**os.environ, "PYTHONPATH": source, "STRANDLINE_COSTS": "built-in"},
        stdout=log,
        stderr=log,
        text=True,
        start_new_session=True,
    )


def soak(
    directory: Path, minutes: float, rate: int, per_second: int, every: float, seed: int
) -> tuple[list[str], Watch, int, int]:
    """Run, kill, start again, until the input ends; the flaws, what was observed, the numbers of kills and reads."""
    dice = random.Random(seed)
    (directory / "in").mkdir(parents=True)
    (directory / "script.sql").write_text(SCRIPT.format(directory=directory, window=WINDOW_S))
    watch = Watch(directory / "out" / ".strandline")
    generator = Generator(directory / "in", rate, round(minutes * 60), per_second, seed)
    generator.start()
    reader = Reader(directory / "out" / "few", seed)
    reader.start()
    kills, flaws = 0, []
    with (directory / "log").open("w") as log:
        process = start(directory, log)
        try:
            blow = time.monotonic() + every * dice.uniform(0.5, 1.5)
            end = time.monotonic() + minutes * 60 + 600
            while process.poll() is None and time.monotonic() < end:
                time.sleep(5)
                watch.look(kills, process.pid)
                if time.monotonic() > blow and generator.is_alive():
                    kill_family(process)
                    kills += 1
                    process = start(directory, log)
                    blow = time.monotonic() + every * dice.uniform(0.5, 1.5)
            if process.poll() is None:
                flaws.append("the run has not ended ten minutes after its input")
            elif process.returncode != 0:
                flaws.append(f"exit code {process.returncode}: {(directory / 'log').read_text()[-500:]}")
        finally:
            kill_family(process)
            reader.over.set()
            reader.join()
    flaws += reader.flaws[:5]
    text = (directory / "log").read_text()
    if "Traceback" in text or "error[" in text:
        flaws.append(f"an error or a trace on the screen: {text[-500:]}")
    return flaws, watch, kills, reader.reads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=50_000, help="rows per second")
    parser.add_argument("--per-second", type=int, default=1, help="files per second")
    parser.add_argument("--every", type=float, default=120.0, help="seconds from kill to kill, about")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-soak-") as name:
        directory = Path(name)
        began = time.monotonic()
        flaws, watch, kills, reads = soak(
            directory, options.minutes, options.rate, options.per_second, options.every, options.seed
        )
        flaws += judge(directory) if not flaws else []
        taken = (time.monotonic() - began) / 60
        per_minute = {name: len(list((directory / "out" / name).glob("*.parquet"))) / taken for name in QUERIES}
    if max(per_minute.values()) > 2 * (os.cpu_count() or 1):
        flaws.append("too many result files")
    memory, files = watch.peaks("megabytes"), watch.peaks("files")
    if grows(memory):
        flaws.append("memory grows")
    if grows(files):
        flaws.append("the files of the checkpoint grow")
    rows = options.rate * round(options.minutes * 60)
    for label, value in {
        "rows": f"{rows:,} at {options.rate:,} per second",
        "minutes": f"{taken:.1f}",
        "kills": f"{kills}",
        "reads of results at random moments": f"{reads}",
        "result files per minute": ", ".join(f"{name} {files:.1f}" for name, files in per_minute.items()),
        "results": "exact" if not flaws else "; ".join(flaws),
        "memory, peak of a run after minute 5": _shown(memory, "MB"),
        "files of the checkpoint, peak of a run": _shown(files, "files"),
    }.items():
        print(f"{label:40} {value}")
    return 1 if flaws else 0


def _shown(points: Sequence[tuple[float, float]], unit: str) -> str:
    if not points:
        return "too short to tell"
    values = [value for _, value in points]
    return f"{min(values):,.0f} to {max(values):,.0f} {unit}, {slope(points):+.1f} {unit} per minute"


if __name__ == "__main__":
    sys.exit(main())

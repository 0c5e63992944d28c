"""A stream joined with a table that is larger than the memory of the process; says what memory each phase took.

    python tests/connectors/tables/larger_than_memory.py --rows 8000000 --limit 650

Each phase is a process of its own: `load` fills the table, call by call, `lookup` and `retroactive` open it again and
join it. What is measured is the anonymous memory of the process, and of each worker with `--engine spark`; the program
fails if it was more than `--limit` MB. Results are compared with what the rows say.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

import strandline
from strandline.connectors.sinks import Callback
from strandline.database.database import Database, EngineName

CALL_ROWS: Final = 200_000
STREAM_ROWS: Final = 200_000
CHANGED: Final = 20_000  # keys that get another row in the middle of the stream
WINDOW_SECONDS: Final = 10
SECONDS: Final = 100  # of the stream
BEGIN: Final = pl.datetime(2100, 1, 1, time_unit="us")  # later than the clock, by which the table is filled
CHANGE_AT: Final = "2100-01-01 00:00:50"
TABLE: Final = "CREATE TABLE dim (k BIGINT PRIMARY KEY, a BIGINT, b DOUBLE, street VARCHAR, remark VARCHAR) RETROACTIVE"
PHASES: Final = ("load", "lookup", "retroactive")
Figures = dict[str, Any]


def table_rows(keys: pl.Series, version: int) -> pl.DataFrame:
    """Rows of about 200 bytes that follow from their key and version."""
    text = pl.format("{} {} ", keys * 7_919 % 1_000_003, pl.lit(version))
    many = pl.concat_str([text] * 5)
    return pl.select(
        keys.alias("k"),
        (keys * 3 + version).alias("a"),
        (keys * 0.5).alias("b"),
        pl.concat_str(pl.format("street and number {} ", keys), many).alias("street"),
        pl.concat_str(pl.format("what is known of {}: ", keys), many, many).alias("remark"),
    )


def stream_rows(rows: int) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    step = SECONDS * 1_000_000 // STREAM_ROWS
    times = pl.lit(pl.Series("us", np.arange(STREAM_ROWS, dtype=np.int64) * step))
    return pl.select(
        pl.Series("k", draw.integers(0, rows + rows // 50, STREAM_ROWS)),  # some have no row in the table
        (BEGIN + pl.duration(microseconds=times)).alias("ts"),
    )


def changed_keys(rows: int) -> pl.Series:
    return pl.Series("k", np.arange(0, rows, max(1, rows // CHANGED), dtype=np.int64))


def expected(kind: str, rows: int) -> pl.DataFrame:
    """The result by definition: key, value and interval, of each row of the stream with each row of the table that it
    meets."""
    stream = stream_rows(rows).filter(pl.col("k") < rows)
    at = pl.lit(CHANGE_AT).str.to_datetime(time_unit="us")
    end = pl.col("ts") + (pl.duration(seconds=WINDOW_SECONDS) if kind == "retroactive" else pl.duration(microseconds=1))
    changes = stream.join(changed_keys(rows).to_frame(), on="k", how="semi")
    is_cut = (pl.col("ts") < at) & (end > at)
    same = stream.join(changes.select("k").unique(), on="k", how="anti").select("k", v=0, begin="ts", end=end)
    parts = [
        same,
        changes.filter(pl.col("ts") < at).select("k", v=0, begin="ts", end=pl.min_horizontal(end, at)),
        changes.filter(pl.col("ts") >= at).select("k", v=1, begin="ts", end=end),
        changes.filter(is_cut).select("k", v=1, begin=at, end=end),
    ]
    typed = [part.with_columns(pl.col("v").cast(pl.Int64)) for part in parts]
    return pl.concat(typed).with_columns(a=pl.col("k") * 3 + pl.col("v")).sort("k", "begin", "end", "a")


def check(kind: str, rows: int, found: pl.DataFrame) -> None:
    """Compare a result with the definition, its texts with what they must be."""
    found = found.filter(pl.col("valid_until").is_not_null()).sort("k", "valid_from", "valid_until", "a")
    wanted = expected(kind, rows)
    same = {"k": "k", "a": "a", "valid_from": "begin", "valid_until": "end"}
    for mine, theirs in same.items():
        assert found[mine].cast(pl.Int64).equals(wanted[theirs].cast(pl.Int64)), (kind, mine, found.height)
    texts = pl.concat([table_rows(part["k"], v) for (v,), part in wanted.group_by("v")])
    columns = ["k", "a", "street", "remark"]
    assert found.select(columns).sort(columns).equals(texts.select(columns).sort(columns)), (kind, "texts")


# Memory


def anonymous_mb(process: int) -> float:
    """Anonymous memory of a process: what the system cannot take back. Mapped pages and the page cache do not count."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)


def python_workers() -> list[int]:
    """The Python processes below this one: the workers of Spark, but not its JVM, whose heap has a size of its own."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            name, _, rest = file.read_text().partition("(")[2].rpartition(")")
            process = int(file.parent.name)
            names[process], parents[process] = name, int(rest.split()[1])
    below = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return [process for process in below - {os.getpid()} if names[process].startswith(("python", "pyspark"))]


class MemoryProbe:
    """The largest anonymous memory of the process, phase by phase, and of each of its workers."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self.phase = "start"

    def start(self) -> None:
        for task in (self._watch, self._watch_workers):
            threading.Thread(target=task, daemon=True).start()

    def _note(self, phase: str, process: int) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            self.peaks[phase] = max(self.peaks.get(phase, 0.0), anonymous_mb(process))

    def _watch(self) -> None:
        while True:
            self._note(self.phase, os.getpid())
            time.sleep(0.01)

    def _watch_workers(self) -> None:
        while True:
            for process in python_workers():
                self._note("a worker", process)
            time.sleep(0.1)


# Phases


def fill(database: Database, rows: int, probe: MemoryProbe) -> None:
    table = database.table("dim")
    probe.phase = "insert"
    for begin in range(0, rows, CALL_ROWS):
        keys = pl.Series("k", np.arange(begin, min(rows, begin + CALL_ROWS)))
        table.insert(table_rows(keys, 0))
    probe.phase = "upsert"
    table.upsert(table_rows(changed_keys(rows), 1), at=CHANGE_AT)
    probe.phase = "filled"
    time.sleep(0.2)


def join(database: Database, kind: str, stream: Path, probe: MemoryProbe) -> list[pa.Table]:
    database.sql(f"CREATE STREAM s (k BIGINT, ts TIMESTAMP) SOURCE file('{stream}') ORDERED BY ts")
    found: list[pa.Table] = []
    window = f"WINDOW(RANGE {WINDOW_SECONDS} SECONDS)" if kind == "retroactive" else ""
    as_of = "" if kind == "retroactive" else "FOR SYSTEM_TIME AS OF s.ts"
    probe.phase = "join"
    query = database.sql(
        f"SELECT s.k, d.a, d.b, d.street, d.remark FROM s {window} JOIN dim {as_of} d ON s.k = d.k",
        sink=Callback(lambda _, table: found.append(table)),
        name=kind,
    )
    query.await_end()
    return found


def run_phase(phase: str, rows: int, place: Path, out: Path, engine: EngineName) -> None:
    probe = MemoryProbe()
    probe.start()
    began, cpu = time.perf_counter(), time.process_time()
    figures: Figures = {"phase": phase, "rows": rows}
    probe.phase = "open"
    with strandline.connect(engine=engine, checkpoint=str(place / "db")) as database:
        database.sql(TABLE)
        if phase == "load":
            fill(database, rows, probe)
        else:
            found = join(database, phase, place / "stream.parquet", probe)
            figures["result_rows"] = sum(table.num_rows for table in found)
    figures |= {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    figures |= {"peaks": probe.peaks, "peak_mb": max(probe.peaks.values())}
    out.write_text(json.dumps(figures))
    if phase != "load":
        pl.DataFrame(pa.concat_tables(found)).write_parquet(out.with_suffix(".parquet"))


def measure(rows: int, place: Path, engine: EngineName = "local", phases: Sequence[str] = PHASES) -> list[Figures]:
    """Run phases; returns the figures of each."""
    stream_rows(rows).write_parquet(place / "stream.parquet")
    figures: list[Figures] = []
    for phase in phases:
        out = place / f"{phase}.json"
        arguments = ["--phase", phase, "--rows", str(rows), "--place", str(place), "--engine", engine]
        subprocess.run([sys.executable, __file__, *arguments], check=True)
        measured: Figures = json.loads(out.read_text())
        if phase != "load":
            check(phase, rows, pl.read_parquet(out.with_suffix(".parquet")))
        log = sum(file.stat().st_size for file in (place / "db").rglob("*.log"))
        figures.append({**measured, "log_mb": log / 2**20})
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--limit", type=int, help="MB of anonymous memory that a process may take")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        out = options.place / f"{options.phase}.json"
        run_phase(options.phase, options.rows, options.place, out, options.engine)
        return
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        figures = measure(options.rows, Path(place), options.engine)
    sys.stdout.writelines(json.dumps(phase) + "\n" for phase in figures)
    if options.limit and (most := max(phase["peak_mb"] for phase in figures)) > options.limit:
        sys.exit(f"{most:.0f} MB of anonymous memory, of which {options.limit} are allowed")


if __name__ == "__main__":
    main()

"""Input files: the same rows in every run, cut in the two ways in which engines can read a stream in order.

`pieces/` has one file after the other in time, for engines that take a stream batch by batch. `lanes/` has two files
side by side, each in order of time and each with its own keys, for engines with two readers that go row by row;
as text without a line of names, which Flink cannot skip.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from works import ROWS_PER_MS, TABLES, WINDOW_MS, Work

START_US = 1_704_067_200_000_000  # 2024-01-01 00:00:00 UTC
LEAST_MS = 3 * WINDOW_MS
PIECES = 8
LANES = 2
BURST_MS, BURST_ROWS = 100, 100  # of a table: 1,000 rows are replaced per second
SHORT = 100  # the short input has this part of the rows


def rows_of(work: Work, stream: str, rows: int) -> pa.Table:
    """A stream: time t, key k, value v. No key comes twice in one millisecond, so that (t, k) names a row."""
    draw = np.random.default_rng(zlib.crc32(f"{work.name} {stream}".encode()))
    span, keys = span_of(rows), keys_of(work, rows)
    moment = np.arange(rows, dtype=np.int64) * span // max(rows, 1)
    place = np.arange(rows) - np.searchsorted(moment, moment)
    first = draw.integers(0, keys, span)
    # A step that shares no factor with the number of keys walks through all of them before it meets one again.
    steps = np.array([step for step in range(1, 1000) if np.gcd(step, keys) == 1])
    step = draw.choice(steps, span)
    keys_drawn = (first[moment] + place * step[moment]) % keys
    return pa.table({"t": START_US + moment * 1000, "k": keys_drawn, "v": draw.integers(0, 1_000_000, rows)})


def span_of(rows: int) -> int:
    """Milliseconds from the first row to the last. A small input is a thin stream: its windows move on as well."""
    return max(rows // ROWS_PER_MS, LEAST_MS)


def keys_of(work: Work, rows: int) -> int:
    return max(work.keys * rows // (span_of(rows) * ROWS_PER_MS), 10)


def table_of(work: Work, rows: int) -> pa.Table:
    """The changes of the table: a row for each key before the stream begins, then bursts that replace rows."""
    draw = np.random.default_rng(zlib.crc32(f"{work.name} {work.table}".encode()))
    keys = keys_of(work, rows)
    bursts = 0 if work.name == "enrich_static" else span_of(rows) // BURST_MS
    replaced = min(BURST_ROWS, keys)
    first = draw.integers(0, keys, bursts)
    replaced_keys = (first[:, None] + np.arange(replaced) * max(keys // replaced, 1)) % keys
    moments = np.repeat(START_US + np.arange(1, bursts + 1, dtype=np.int64) * BURST_MS * 1000, replaced)
    times = np.concatenate([np.full(keys, START_US - 1_000_000, dtype=np.int64), moments])
    every_key = np.concatenate([np.arange(keys, dtype=np.int64), replaced_keys.ravel().astype(np.int64)])
    return pa.table({"t": times, "k": every_key, "v": draw.integers(0, 1_000_000, len(times))})


def short_rows(rows: int) -> int:
    return rows // SHORT


def write_short(directory: Path, work: Work, rows: int, kind: str) -> Path:
    """The beginning of the streams beside the whole table: what a run costs that only loads the table."""
    short = directory.parent / f"{directory.name}-short"
    if (short / ".complete").exists():
        return short
    shutil.rmtree(short, ignore_errors=True)
    for stream in work.streams:
        write_stream(rows_of(work, stream, rows).slice(0, short_rows(rows)), short, stream, kind)
    for layout in ("pieces", "lanes", "closed"):
        (short / layout / work.table).symlink_to(directory / layout / work.table)
    (short / ".complete").touch()
    return short


def write(work: Work, rows: int, directory: Path, kind: str) -> Path:
    """The streams of a workload under a directory; what is there already stays."""
    done = directory / ".complete"
    if done.exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    for stream in work.streams:
        if work.nexmark:
            write_stream(_nexmark(stream, rows), directory, stream, kind, "auction" if stream == "bid" else "id")
        else:
            write_stream(rows_of(work, stream, rows), directory, stream, kind)
    if work.table:
        write_stream(table_of(work, rows), directory, work.table, kind)
    done.touch()
    return directory


def _nexmark(stream: str, events: int) -> pa.Table:
    """The rows of one kind among so many events of strandline's generator, 1,000 events a second of stream time."""
    import strandline

    database = strandline.connect(
        engine="local", keep=events
    )  # by default memory keeps fewer, and the input lacks rows
    database.sql(f"CREATE STREAM {stream} SOURCE nexmark('{stream}', events => {events}, rate => 1000)")
    query = database.sql(f"SELECT {', '.join(TABLES[stream])} FROM {stream}", name="rows")
    query.await_end()
    rows = query.results().select(list(TABLES[stream]))
    moments = {name: rows[name].cast(pa.int64()) for name in ("date_time", "expires") if name in rows.column_names}
    return pa.table({name: moments.get(name, rows[name]) for name in rows.column_names}).sort_by("date_time")


def rows_in(directory: Path, work: Work, kind: str) -> int:
    """How many rows the streams have together."""
    files = [path for stream in work.streams for path in directory.joinpath("lanes", stream).glob(f"*.{kind}")]
    if kind == "parquet":
        return sum(pq.ParquetFile(path).metadata.num_rows for path in files)
    return sum(path.read_bytes().count(b"\n") for path in files)


def write_stream(table: pa.Table, directory: Path, stream: str, kind: str, key: str = "k") -> None:
    rows = table.num_rows
    for number in range(PIECES):
        first, last = rows * number // PIECES, rows * (number + 1) // PIECES
        _write(
            table.slice(first, last - first), directory / "pieces" / stream / f"{number:03d}.{kind}", kind, names=True
        )
    _write_closed(table, directory, stream, kind)
    if "id" in table.column_names:  # Pathway's rows have an id of their own
        renamed = table.rename_columns(["uid" if name == "id" else name for name in table.column_names])
        _write(renamed, directory / "uids" / stream / f"000.{kind}", kind, names=True)
    lane = table[key].to_numpy() % LANES
    for number in range(LANES):
        _write(
            table.filter(pa.array(lane == number)),
            directory / "lanes" / stream / f"{number:03d}.{kind}",
            kind,
            names=False,
        )


def _write_closed(table: pa.Table, directory: Path, stream: str, kind: str) -> None:
    """The pieces and a row an hour later, for Spark: it tells a window only when a later row has come."""
    for path in sorted(directory.joinpath("pieces", stream).iterdir()):
        target = directory / "closed" / stream / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
    time = "t" if "t" in table.column_names else "date_time"
    later = pc.max(table[time]).as_py() + 3_600_000_000 if table.num_rows else 0
    nobody = -1 if stream == "auction" else -2  # so that the last rows of two streams do not meet
    row = {
        name: later if name in (time, "expires") else "nobody" if column == "VARCHAR" else nobody
        for name, column in TABLES[stream].items()
    }
    last = pa.Table.from_pylist([row], schema=table.schema)
    _write(last, directory / "closed" / stream / f"{PIECES:03d}.{kind}", kind, names=True)


def _write(table: pa.Table, path: Path, kind: str, names: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(include_header=names, quoting_style="needed"))
    # Spark takes files in the order of their times, and small ones are written within the same millisecond.
    written = 1_700_000_000 + int(path.stem)
    os.utime(path, (written, written))

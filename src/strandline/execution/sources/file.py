"""Files: Parquet, CSV and JSON lines, a finished set or a directory that grows.

Input is counted in units: some row groups of a Parquet file, a range of lines of a text file. The units are listed in a
log next to the checkpoint, in the order in which the files were found; a position is a number of units.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from strandline.catalog import BaseStream, SourceCall
from strandline.errors import SourceError, Span, damaged
from strandline.execution.batch import FROM, times
from strandline.execution.sources.base import REJECT_SCHEMA, Arguments, Chunk, Source
from strandline.execution.sources.conform import conform, converts_always
from strandline.execution.sources.lines import conform_lines, no_rows
from strandline.plugins import Traits
from strandline.security.allow import FilePath, Reach, glob_reaches
from strandline.temporal import BEFORE_ALL, Instant

TEXT_UNIT_BYTES = 16 * 2**20
PIECE_ROWS = 50_000  # fewer are not worth a task of their own
ROW_BYTES_GUESS = 64  # text files do not say how many rows they have
SETTLE_SECONDS = 2.0
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a file: row groups or bytes `begin` to `end`; `row` is the number of its first row, from 1."""

    path: str
    size: int  # of the file when it was found; another size later means that it was changed
    begin: int
    end: int
    row: int
    rows: int
    problem: str | None = None
    fits: bool = False  # whether every column converts for sure, so that only its time can make a row malformed


class FileSource(Source):
    """`file('trades/*.parquet', format => 'parquet', header => true, follow => false, end_marker => '_END')`.

    Without `follow` the files that match at the start are read, in order of their names, and then the stream ends. With
    `follow => true` new files are picked up as they appear, until a file named by `end_marker` lies in the directory.
    A file must appear complete (write it elsewhere, then rename it); names that begin with `.` or `_` are ignored.
    """

    traits = Traits(True, True, True, "files in the order in which they appeared; changed ones are refused")

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = Arguments(stream)
        self.pattern = str(arguments.positional(0, "a path or a glob, as in file('trades/*.parquet')"))
        self.format = arguments.option("format", str, None)
        self.header = bool(arguments.option("header", bool, True))
        self.follow = bool(arguments.option("follow", bool, False))
        self.end_marker = str(arguments.option("end_marker", str, "_END"))
        arguments.done(most=1)
        if os.path.isdir(self.pattern):
            self.pattern = os.path.join(self.pattern, "*")
        self.units: list[Unit] = []
        self._known: set[str] = set()
        self._unreadable: dict[str, tuple[int, float]] = {}  # path -> size and when it was first seen so
        self._complete = False

    @classmethod
    def reaches(cls, call: SourceCall) -> list[Reach]:
        pattern = str(next(iter(call.arguments), ""))
        pattern = os.path.join(pattern, "*") if os.path.isdir(pattern) else pattern
        marker = os.path.join(os.path.dirname(_static_prefix(pattern)), str(call.options.get("end_marker", "_END")))
        return [*glob_reaches(pattern), FilePath(marker)]

    def check(self, span: Span | None) -> None:
        arguments = Arguments(self.stream, span)
        folder = os.path.dirname(_static_prefix(self.pattern)) or "."
        if not os.path.isdir(folder):
            raise SourceError(
                f"the directory {folder} does not exist",
                code="missing-file",
                hint=f"Paths are relative to {os.getcwd()}.",
                span=span,
            )
        files = self._matching()
        if not files and not self.follow:
            raise SourceError(
                f"no file matches {self.pattern}",
                code="missing-file",
                hint="Use follow => true for a directory that fills up later.",
                span=span,
            )
        for path in files:
            self._format_of(path, arguments)

    # On the driver: what there is to read.

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        self._load_log()
        if not self._complete:
            self._discover()
        end, rows = position, 0
        while end < len(self.units) and (rows == 0 or rows + self.units[end].rows <= limit_rows):
            rows += max(self.units[end].rows, 1)
            end += 1
        return end, self._complete and end == len(self.units)

    def rows_left(self, position: int) -> int | None:
        return sum(unit.rows for unit in self.units[position:])

    def _discover(self) -> None:
        """Add the units of new files to the log."""
        # The marker first: a file that comes after this look belongs to the next one.
        folder = os.path.dirname(_static_prefix(self.pattern))
        marked = os.path.exists(os.path.join(folder, self.end_marker))
        waiting = False
        for path in self._matching():
            if path in self._known:
                continue
            units = self._units_of(path)
            if units is None:
                waiting = True
                continue
            self._known.add(path)
            self.units += units
            self._append_log(units)
        if not waiting and (marked or not self.follow):
            self._complete = True
            self._append_log([], complete=True)

    def _matching(self) -> list[str]:
        found = sorted(glob.glob(self.pattern, recursive=True))
        if self.stream.source.allow is not None:
            self.stream.source.allow.check("file", False, map(FilePath, filter(os.path.isfile, found)), None)
        names = ((os.path.basename(path), path) for path in found if os.path.isfile(path))
        return [path for name, path in names if name[0] not in "._" and not name.endswith(".tmp")]

    def _units_of(self, path: str) -> list[Unit] | None:
        """The units of a file; None if it is not readable yet but may become so."""
        size = os.path.getsize(path)
        kind = self._format_of(path, Arguments(self.stream))
        try:
            return self._parquet_units(path, size) if kind == "parquet" else _text_units(path, size, kind, self.header)
        except (pa.ArrowException, OSError) as error:
            if self.follow and not self._has_settled(path, size):
                return None
            return [Unit(path, size, 0, 0, 1, 1, problem=f"the file cannot be read as {kind}: {error}")]

    def _parquet_units(self, path: str, size: int) -> list[Unit]:
        with pq.ParquetFile(path) as file:
            types = _column_types(file)
            rows = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        fits = all(name in types and converts_always(types[name], kind) for name, kind in self.stream.columns)
        first = 1 + np.cumsum([0, *rows])
        return [Unit(path, size, i, i + 1, int(first[i]), rows[i], fits=fits) for i in range(len(rows))]

    def cuts(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        units = self.units[start:end]
        if not all(unit.fits for unit in units):
            return ()
        ends = np.cumsum([unit.rows for unit in units])
        tasks = min(tasks, int(ends[-1]) // PIECE_ROWS)
        goals = ends[-1] * np.arange(1, tasks) / max(tasks, 1)
        found = start + 1 + np.searchsorted(ends, goals)
        return tuple(sorted({int(cut) for cut in found if start < cut < end}))

    def _has_settled(self, path: str, size: int) -> bool:
        """Whether an unreadable file has stopped growing: then it is broken and not just unfinished."""
        known_size, since = self._unreadable.setdefault(path, (size, time.monotonic()))
        if known_size != size:
            self._unreadable[path] = (size, time.monotonic())
            return False
        return time.monotonic() - since > SETTLE_SECONDS

    def _format_of(self, path: str, arguments: Arguments) -> str:
        name = path[:-3] if path.endswith(".gz") else path
        kind = self.format or _FORMATS.get(os.path.splitext(name)[1].lower())
        if kind not in ("parquet", "csv", "json"):
            raise arguments.error(f"the format of {path} is not known; add format => 'parquet', 'csv' or 'json'")
        return str(kind)

    @property
    def _log(self) -> Path | None:
        return self.directory / "units.jsonl" if self.directory is not None else None

    def _load_log(self) -> None:
        if self.units or self._log is None or not self._log.exists():
            return
        for line in self._log.read_text().splitlines():
            try:
                entry = json.loads(line)
                if entry.get("complete"):
                    self._complete = True
                else:
                    self.units.append(Unit(**entry))
            except (ValueError, TypeError, AttributeError):
                raise damaged(self._log) from None
        self._known = {unit.path for unit in self.units}

    def _append_log(self, units: list[Unit], complete: bool = False) -> None:
        if self._log is None:
            return
        self._log.parent.mkdir(parents=True, exist_ok=True)
        entries = [asdict(unit) for unit in units] + ([{"complete": True}] if complete else [])
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        kept = self._log.read_text() if self._log.exists() else ""
        temporary = self._log.with_suffix(".tmp")
        temporary.write_text(kept + lines)
        os.replace(temporary, self._log)

    # On a worker: reading it.

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        self._load_log()
        if end > len(self.units):
            self.units, self._known = [], set()
            self._load_log()
        for unit in self.units[start:end]:
            yield from self._read_unit(unit, columns)

    def latest(self, start: int, end: int) -> Instant:
        self._load_log()
        # All columns of these units convert for sure, so the times alone say which rows are well-formed.
        names = self.stream.time_columns
        only_time = replace(self.stream, columns=tuple((name, self.stream.column_type(name)) for name in names))
        highs = [BEFORE_ALL]
        for unit in self.units[start:end]:
            _refuse_changed(unit)
            rows = self._read_row_groups(unit, list(names), only_time).rows
            highs.append(int(times(rows, FROM).max(initial=BEFORE_ALL)))
        return max(highs)

    def _read_unit(self, unit: Unit, columns: frozenset[str]) -> Iterator[Chunk]:
        if unit.problem is not None:
            yield Chunk(no_rows(self.stream), _rejects(unit.path, [(0, unit.problem, "")]))
            return
        _refuse_changed(unit)
        kind = self._format_of(unit.path, Arguments(self.stream))
        if kind == "parquet":
            yield self._read_parquet(unit, columns)
        elif kind == "csv":
            yield from self._read_csv(unit)
        else:
            yield from self._read_json(unit)

    def _read_parquet(self, unit: Unit, columns: frozenset[str]) -> Chunk:
        types = _file_types(unit.path)
        wanted: list[str] = []
        for name, kind in self.stream.columns:
            if name not in types:
                raise self._missing(name, unit.path, list(types))
            # Columns that nobody needs are read all the same if some of their values might not fit.
            if name in columns or name in self.stream.time_columns or not converts_always(types[name], kind):
                wanted.append(name)
        wanted = wanted or [self.stream.columns[0][0]]  # without a column nobody knows how many rows there are
        chunk = self._read_row_groups(unit, wanted, self.stream)
        every = frozenset(name for name, _ in self.stream.columns)
        if len(wanted) == len(every):
            return chunk
        return replace(chunk, whole=lambda: self._read_parquet(unit, every).rows)

    def _read_row_groups(self, unit: Unit, columns: list[str], stream: BaseStream) -> Chunk:
        return conform(_row_groups(unit, columns), stream, unit.path, unit.row)

    def _read_csv(self, unit: Unit) -> Iterator[Chunk]:
        names = _csv_names(unit.path) if self.header else [name for name, _ in self.stream.columns]
        for name, _ in self.stream.columns:
            if name not in names:
                raise self._missing(name, unit.path, names)
        invalid: list[tuple[int, str, str]] = []

        def remember(row: pa_csv.InvalidRow) -> str:
            reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
            invalid.append(((row.number or 1) - 1 + unit.row, reason, row.text))
            return "skip"

        data = _bytes_of(unit)
        if data.strip():
            table = pa_csv.read_csv(
                io.BytesIO(data),
                read_options=pa_csv.ReadOptions(column_names=names, use_threads=False),
                parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=remember),
                convert_options=pa_csv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                    include_columns=[name for name, _ in self.stream.columns],
                ),
            )
            frame = pl.from_arrow(table, rechunk=True)
            assert isinstance(frame, pl.DataFrame)
            every = np.arange(unit.row, unit.row + frame.height + len(invalid))
            parsed = np.setdiff1d(every, [number for number, _, _ in invalid], assume_unique=True)
            yield conform(frame, self.stream, unit.path, pl.Series(parsed))
        if invalid:
            yield Chunk(no_rows(self.stream), _rejects(unit.path, invalid))

    def _read_json(self, unit: Unit) -> Iterator[Chunk]:
        data = _bytes_of(unit).removesuffix(b"\n")
        if data.strip():
            numbers = pl.int_range(unit.row, unit.row + data.count(b"\n") + 1, eager=True)
            yield from conform_lines(data, self.stream, unit.path, numbers, skip_empty=True)

    def _missing(self, name: str, path: str, there: list[str]) -> SourceError:
        return SourceError(
            f'column "{name}" of stream "{self.stream.name}" is not in {path}',
            code="missing-column",
            hint=f"The file has {', '.join(there)}.",
        )


def _static_prefix(pattern: str) -> str:
    """The part of a glob before its first wildcard."""
    cut = min((pattern.index(c) for c in "*?[" if c in pattern), default=len(pattern))
    return pattern[:cut]


def _row_groups(unit: Unit, columns: list[str]) -> pl.DataFrame:
    """Some columns of a unit. Polars takes half the time of Arrow, but takes some types for others: a Date for a
    Datetime, say. What it does not see as the file declares it is read by way of Arrow."""
    types = _file_types(unit.path)
    scan = pl.scan_parquet(unit.path, glob=False, hive_partitioning=False, parallel="none", use_statistics=False)
    try:
        alike = all(scan.collect_schema().get(name) == types[name] for name in columns)
    except pl.exceptions.PolarsError:  # a type that it does not know, perhaps of a column that nobody wants
        alike = False
    if alike:
        return scan.slice(unit.row - 1, unit.rows).select(columns).collect()
    with pq.ParquetFile(unit.path, memory_map=True) as file:
        table = file.read_row_groups(list(range(unit.begin, unit.end)), columns=columns, use_threads=False)
    frame = pl.from_arrow(table, rechunk=True)
    assert isinstance(frame, pl.DataFrame)
    return frame


@lru_cache(maxsize=64)
def _types_of(path: str, size: int, changed: int) -> Mapping[str, pl.DataType]:
    with pq.ParquetFile(path, memory_map=True) as file:
        return _column_types(file)


def _file_types(path: str) -> Mapping[str, pl.DataType]:
    """The types of a file's columns; read once, unless the file was changed."""
    status = os.stat(path)
    return _types_of(path, status.st_size, status.st_mtime_ns)


def _column_types(file: pq.ParquetFile) -> Mapping[str, pl.DataType]:
    empty = pl.from_arrow(file.schema_arrow.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def _refuse_changed(unit: Unit) -> None:
    try:
        changed = os.path.getsize(unit.path) != unit.size
    except OSError as error:
        raise SourceError(
            f"{unit.path} has disappeared while the query runs", code="missing-file", detail=str(error)
        ) from None
    if changed:
        raise SourceError(
            f"{unit.path} has changed since it was found",
            code="file-changed",
            hint="A followed directory takes new files; write them elsewhere and rename them into place.",
        )


def _text_units(path: str, size: int, kind: str, header: bool) -> list[Unit]:
    """Ranges of whole lines. A line break inside quotes of a CSV file does not end a line."""
    if path.endswith(".gz"):
        return [Unit(path, size, 0, -1, 1, size // (ROW_BYTES_GUESS // 4))]
    data = np.memmap(path, dtype=np.uint8, mode="r") if size else np.zeros(0, dtype=np.uint8)
    units: list[Unit] = []
    begin, row, quoted = 0, 1, False
    if kind == "csv" and header and size:
        begin = _header_end(path)
        row = 2
    scanned = begin
    while scanned < size:
        block = data[scanned : scanned + TEXT_UNIT_BYTES]
        breaks = np.flatnonzero(block == ord("\n"))
        if kind == "csv":
            quotes = np.cumsum(block == ord('"'))
            breaks = breaks[(quotes[breaks] + quoted) % 2 == 0]
            quoted = bool((int(quotes[-1]) + quoted) % 2)
        scanned += len(block)
        if scanned >= size:
            units.append(Unit(path, size, begin, size, row, (size - begin) // ROW_BYTES_GUESS))
        elif len(breaks):
            end = scanned - len(block) + int(breaks[-1]) + 1
            units.append(Unit(path, size, begin, end, row, (end - begin) // ROW_BYTES_GUESS))
            begin, row = end, row + len(breaks)
    return units


def _header_end(path: str) -> int:
    with open(path, "rb") as file:
        file.readline()
        return file.tell()


def _csv_names(path: str) -> list[str]:
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        return next(csv.reader([file.readline().decode("utf-8-sig")]), [])


def _bytes_of(unit: Unit) -> bytes:
    if unit.path.endswith(".gz"):
        with gzip.open(unit.path, "rb") as compressed:
            data: bytes = compressed.read()
        return data
    with open(unit.path, "rb") as file:
        file.seek(unit.begin)
        return file.read(unit.end - unit.begin)


def _rejects(place: str, rows: list[tuple[int, str, str]]) -> pl.DataFrame:
    return pl.DataFrame([(place, *row) for row in rows], schema=REJECT_SCHEMA, orient="row")

"""Files: Parquet, CSV and JSON lines, a finished set or a directory that grows.

Input is counted in entries of a log next to the checkpoint, which are planned on the driver (`files/planning.py`) in
the order in which files were found (`files/tracking.py`): some row groups of a Parquet file, some lines of a text file,
or something that cannot be read. A worker reads units, and makes sure that they have the content that was planned.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk, Source, SourceArguments, split_evenly
from strandline.connectors.sources.conversion import EPOCH_UNITS, conform, converts_always, reject, show_bytes
from strandline.connectors.sources.files import parquet
from strandline.connectors.sources.files.checks import check_columns, missing_keys
from strandline.connectors.sources.files.content import FileFormat, file_changed, known_encoding, read_range
from strandline.connectors.sources.files.csv_rows import read_csv
from strandline.connectors.sources.files.footers import footer_checksum
from strandline.connectors.sources.files.inference import infer_schema
from strandline.connectors.sources.files.parallel import cores, in_parallel
from strandline.connectors.sources.files.planning import FileOptions
from strandline.connectors.sources.files.records import too_long
from strandline.connectors.sources.files.statistics import file_statistics
from strandline.connectors.sources.files.tracking import (
    FileTracker,
    FollowedDirectory,
    missing_directory,
    missing_file,
    static_base,
)
from strandline.connectors.sources.files.units import FileUnit, FileUnitLog, ListedFile, shared_log
from strandline.connectors.sources.json_lines import conform_lines
from strandline.connectors.sources.profile import read_profile
from strandline.connectors.traits import Traits
from strandline.core.errors import SourceError, Span
from strandline.core.notices import Notice
from strandline.core.security.allow import FilePath, Reach, glob_reaches
from strandline.core.temporal import BEFORE_ALL, Instant, round_up
from strandline.logical.catalog import BaseStream, ConnectorCall, SourceSchema, StreamStatistics
from strandline.runtime.kernels.batch import FROM, times

TASK_ROWS: Final = 50_000  # fewer are not worth a task of their own
ROW_BYTES_GUESS: Final = 64  # the number of rows of text files is unknown
# Bytes of files whose times are all read at the declaration, to see how far rows come out of order.
MEASURED_TEXT, MEASURED_PARQUET = 2**25, 2**28
_MOST_LINE: Final = 2**30


class FileSource(Source):
    """`file('trades/*.parquet', format => 'parquet', header => true, follow => false, end_marker => '_END',
    compression => 'gzip', encoding => 'utf-8', max_line => 16777216, delimiter => ',', nulls => 'NA', epoch => 'ms')`.

    Without `follow` the files that match at the start are read, in order of their names, up to the sizes that they have
    then, and the stream ends. With `follow => true` new files are picked up as they appear, and text files are read on
    as they grow, until a file named by `end_marker` lies in the directory. Names with `.` or `_` in front are ignored.
    """

    traits = Traits(True, True, True, "files in the order in which they appeared; input is pinned by a checksum")
    shares_log = True

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = SourceArguments(stream.source)
        self.pattern = str(arguments.positional(0, "a path or a glob, as in file('trades/*.parquet')"))
        self.follow = arguments.option("follow", bool, False)
        self.end_marker = arguments.option("end_marker", str, "_END")
        self.options = _options(stream, arguments, self.follow)
        arguments.done(most=1)
        if os.path.isdir(self.pattern):
            self.pattern = os.path.join(self.pattern, "*")
        self.folder = FollowedDirectory(self.pattern, self.options, stream.source.allow)
        self.log = FileUnitLog(directory / "units.log" if directory is not None else None)
        self._tracker: FileTracker | None = None
        self._rows: list[int] = [0]  # how many rows the log has up to each position

    def identity(self) -> dict[str, object]:
        options = self.options
        identity: dict[str, object] = {
            "function": "file",
            "files": self.folder.wildcards,
            "format": options.format,
            "header": options.header,
            "follow": self.follow,
            "end_marker": self.end_marker,
            "compression": options.compression,
            "encoding": options.encoding,
            "max_line": options.max_line,
        }
        further = {"delimiter": ",", "nulls": None, "epoch": None}  # as they were before there were such options
        given = self.stream.source.options
        return identity | {
            name: given[name] for name, default in further.items() if given.get(name, default) != default
        }

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        pattern = str(next(iter(call.arguments), ""))
        pattern = os.path.join(pattern, "*") if os.path.isdir(pattern) else pattern
        marker = os.path.join(static_base(pattern), str(call.options.get("end_marker", "_END")))
        return [*glob_reaches(pattern), FilePath(marker)]

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        source = cls(BaseStream("", (), call, None), None)
        files = source._find_files(None)
        if not files:
            return None
        schema = infer_schema(source.folder, source.options, files)
        if schema.time_column is None or source.follow or not _is_small(source.options, files):
            return schema
        # The times alone, as they will be read.
        declared = replace(call, options={**schema.options, **call.options})
        times = tuple(column for column in schema.columns if column[0] == schema.time_column)
        if not source.options.header:
            times = schema.columns
        profile = read_profile(cls(BaseStream("", times, declared, schema.time_column), None))
        return replace(schema, disorder_us=round_up(profile.disorder_us))

    def _find_files(self, span: Span | None) -> list[ListedFile]:
        folder = self.folder.base or "."
        if not os.path.isdir(folder):
            raise missing_directory(folder, span)
        files = self.folder.list_files()
        if not files and not self.follow:
            raise missing_file(self.pattern, self.folder.allow, span)
        return files

    def check(self, span: Span | None) -> None:
        files = [file.path for file in self._find_files(span)]
        for path in files:
            if self.options.kind_of(path) is None:
                message = f"unknown format of {self.folder.full(path)}; add format => 'parquet', 'csv' or 'json'"
                raise SourceArguments(self.stream.source, span).error(message)
        if files and not self.follow:
            check_columns(self.folder, self.options, files, span)

    def remarks(self) -> Sequence[Notice]:
        return missing_keys(self.folder, self.options, self._present_files())

    def statistics(self) -> StreamStatistics:
        return file_statistics(self.folder, self.options, self._present_files())

    def _present_files(self) -> list[ListedFile]:
        """The files that are there now, for what is good to know and not needed."""
        try:
            return self.folder.list_files()
        except SourceError:
            return []

    # On the driver.

    def seal(self, position: int) -> str:
        return self._shared().digest(position)

    def verify(self, position: int, seal: str) -> None:
        self.log.verify(position, seal)

    def resume(self, position: int) -> None:
        self.log.cut(position)
        self._tracker = None

    def check_seal(self, position: int, seal: str) -> None:
        self._shared().verify(position, seal)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        tracker = self._tracked()
        if self.follow:
            tracker.poll()
        waiting = self._rows[-1] - self._rows[min(position, len(self._rows) - 1)]
        if waiting < limit_rows and not tracker.is_complete:
            self.log.append(tracker.plan(limit_rows - waiting))
            self._count_rows()
        end = self._end_of_batch(position, limit_rows)
        return end, tracker.is_complete and end == len(self.log)

    def _end_of_batch(self, position: int, limit_rows: int) -> int:
        """End of the entries with at least this many rows together, at least one with rows."""
        if position >= len(self.log):
            return position
        before = self._rows[position]
        first = min(bisect_right(self._rows, before, lo=position), len(self.log))
        return max(first, bisect_right(self._rows, before + limit_rows, lo=position) - 1)

    def _tracked(self) -> FileTracker:
        """State of the tracked files; after a restart, from the log."""
        if self._tracker is None:
            self.log.load()
            self._rows = [0]
            self._count_rows()
            self._tracker = FileTracker(self.folder, self.end_marker)
            if not self.follow and self.log.listing is None:
                self.log.append_listing(self.folder.list_files())
                self._count_rows()
            units = (unit for unit in self.log.units if unit is not None)
            self._tracker.restore(units, None if self.follow else self.log.listing)
        return self._tracker

    def _count_rows(self) -> None:
        for unit in self.log.units[len(self._rows) - 1 :]:
            self._rows.append(self._rows[-1] + (0 if unit is None else max(unit.rows, 1)))

    def rows_left(self, position: int) -> int | None:
        tracker = self._tracked()
        planned = self._rows[-1] - self._rows[min(position, len(self._rows) - 1)]
        return planned + tracker.bytes_left // ROW_BYTES_GUESS

    def count_rows(self, start: int, end: int) -> int:
        return self._rows[min(end, len(self._rows) - 1)] - self._rows[min(start, len(self._rows) - 1)]

    def brings_rows(self, start: int, end: int) -> bool:
        return self.count_rows(start, end) > 0

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        units = self.log.units[start:end]
        # Changes of a key are in one order, and only its values tell whether a row is a change.
        if self.stream.changes is not None or not all(unit is None or unit.is_divisible for unit in units):
            return ()
        work = [0 if unit is None else max(unit.rows, unit.text_bytes // ROW_BYTES_GUESS) for unit in units]
        return split_evenly(work, start, end, tasks, TASK_ROWS)

    # On a worker: reading it.

    def _shared(self) -> FileUnitLog:
        """The log: that of the driver in its own process, else one shared by the tasks of this process."""
        if self._tracker is not None or self.directory is None:
            return self.log
        return shared_log(self.directory / "units.log")

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        units = self._shared().between(start, end)
        if all(unit.is_seekable_text for unit in units):
            for chunks in in_parallel(lambda unit: list(self._read_unit(unit, columns)), units, self._threads):
                yield from chunks
        else:
            for unit in units:
                yield from self._read_unit(unit, columns)

    @property
    def _threads(self) -> int:
        """Threads that parse units side by side: as many as Polars has, which is one in a worker of Spark, where tasks
        share the reading. Changes are read by one task."""
        return pl.thread_pool_size() if self.stream.changes is None else cores()

    def latest(self, start: int, end: int) -> Instant:
        highs = [BEFORE_ALL]
        for unit in self._shared().between(start, end):
            if unit.kind == "parquet" and unit.problem is None:
                highs.append(self._latest_of(self._path_of_parquet(unit), unit))
            elif unit.problem is None:
                highs += [chunk.latest for chunk in self._read_unit(unit, frozenset())]
        return max(highs)

    def latest_by_reading(self, start: int, end: int) -> bool:
        # Whether a line of text is a row depends on all of its fields.
        return any(unit.is_seekable_text and unit.problem is None for unit in self._shared().between(start, end))

    def _latest_of(self, path: str, unit: FileUnit) -> Instant:
        """Latest usable time of a row group, whatever else is wrong with it. All its other columns convert for sure, so
        the times alone decide which rows are well-formed."""
        names = self.stream.time_columns
        only_time = replace(self.stream, columns=tuple((name, self.stream.column_type(name)) for name in names))
        try:
            raw = parquet.read_row_groups(path, unit, names)
        except parquet.READ_ERRORS:
            return BEFORE_ALL
        return int(times(conform(raw, only_time, unit.path, unit.row).rows, FROM).max(initial=BEFORE_ALL))

    def _read_unit(self, unit: FileUnit, columns: frozenset[str]) -> Iterator[Chunk]:
        location = self.folder.full(unit.path)
        if unit.problem is not None:
            yield reject(self.stream, location, [(unit.row, unit.problem, unit.raw)])
        elif unit.kind == "parquet":
            yield self._read_parquet(unit, location, columns)
        elif unit.kind == "csv":
            names = list(unit.header) if self.options.header else [name for name, _ in self.stream.columns]
            yield from read_csv(self._bytes_of(unit), self.stream, names, location, unit.row, self.options)
        else:
            yield from self._read_json(unit, location)

    def _read_json(self, unit: FileUnit, location: str) -> Iterator[Chunk]:
        data = self._bytes_of(unit)
        if b"\r" in data:  # JSON has no line break within texts
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data = data.removesuffix(b"\n")
        numbers = pl.int_range(unit.row, unit.row + data.count(b"\n") + 1, eager=True)
        if unit.overlong:
            longest = self.options.max_line
            lines = data.split(b"\n")
            overlong = np.array([len(line) > longest for line in lines], np.bool_)
            problem = too_long(longest)
            entries = [(numbers[n], problem, show_bytes(lines[n])) for n in np.flatnonzero(overlong).tolist()]
            yield reject(self.stream, location, entries)
            data = b"\n".join(line for line, is_long in zip(lines, overlong, strict=True) if not is_long)
            numbers = numbers.filter(pl.Series(~overlong))
        if data.strip():
            yield from conform_lines(data, self.stream, location, numbers, skip_empty=True)

    def _bytes_of(self, unit: FileUnit) -> bytes:
        """The content of a unit, in UTF-8. It is the one that was planned, wherever the file lies by now."""
        form = FileFormat(unit.compression, unit.encoding, unit.skips)
        for path in self._places_of(unit):
            with contextlib.suppress(OSError):
                data = read_range(path, form, unit.begin, unit.end)
                if len(data) == unit.end - unit.begin and zlib.crc32(data) == unit.checksum:
                    return form.decode(data)
        raise file_changed(self.folder.full(unit.path))

    def _places_of(self, unit: FileUnit) -> Iterator[str]:
        """Where the file of a unit may lie: under its name, or under the one that it has been given since."""
        yield self.folder.full(unit.path)
        if (renamed := self.folder.named_by_inode(unit.path, unit.inode)) is not None:
            yield self.folder.full(renamed)

    # Parquet.

    def _path_of_parquet(self, unit: FileUnit) -> str:
        """Present location of the file of a unit, with the footer that was planned."""
        for path in self._places_of(unit):
            with contextlib.suppress(OSError):
                if footer_checksum(path) == unit.checksum:
                    return path
        raise file_changed(self.folder.full(unit.path))

    def _read_parquet(self, unit: FileUnit, location: str, columns: frozenset[str]) -> Chunk:
        path = self._path_of_parquet(unit)
        try:
            types = parquet.types_of(path)
            # Unread columns are read all the same if some of their values might not fit.
            chosen = [
                name
                for name, kind in self.stream.columns
                if name in columns or name in self.stream.time_columns or not converts_always(types[name], kind)
            ]
            chosen = chosen or [self.stream.columns[0][0]]  # without a column the number of rows is unknown
            raw = parquet.read_row_groups(path, unit, chosen)
            chunk = conform(raw, self.stream, location, unit.row)
        except parquet.READ_ERRORS as error:
            problem = f"row group {unit.begin} with {unit.rows:,} rows cannot be read: {parquet.why_unreadable(error)}"
            reached = self._latest_of(path, unit) if self.stream.time_column is not None else BEFORE_ALL
            return replace(reject(self.stream, location, [(unit.row, problem, "")]), reached=reached)
        every = frozenset(name for name, _ in self.stream.columns)
        if len(chosen) == len(every):
            return chunk
        return replace(chunk, whole=lambda: self._read_parquet(unit, location, every).rows)


def _is_small(options: FileOptions, files: list[ListedFile]) -> bool:
    """Whether all times of some files are soon read: text is parsed for it, of Parquet one column is read."""
    most = MEASURED_PARQUET if options.kind_of(files[0].path) == "parquet" else MEASURED_TEXT
    return sum(max(file.size, 0) for file in files) <= most


def _options(stream: BaseStream, arguments: SourceArguments, follow: bool) -> FileOptions:
    format_ = arguments.option("format", str, None)
    if format_ not in (None, "parquet", "csv", "json"):
        raise arguments.error(f"format of file() must be 'parquet', 'csv' or 'json', not '{format_}'")
    compression = arguments.option("compression", str, None)
    if compression not in (None, "none", "gzip", "zstd", "bz2"):
        raise arguments.error(f"compression of file() must be 'gzip', 'zstd', 'bz2' or 'none', not '{compression}'")
    name = arguments.option("encoding", str, None)
    encoding = None if name is None else known_encoding(name)
    if name is not None and encoding is None:
        raise arguments.error(f"unknown encoding '{name}' of file(); examples are 'utf-8', 'latin-1', 'utf-16'")
    header = arguments.option("header", bool, True)
    max_line = arguments.option("max_line", int, 16_777_216)
    if not 1 <= max_line <= _MOST_LINE:
        raise arguments.error(f"max_line of file() must be a number of bytes from 1 to {_MOST_LINE:,}")
    delimiter = arguments.option("delimiter", str, ",").replace("\\t", "\t")
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise arguments.error("delimiter of file() must be a single character of ASCII, such as ';'")
    nulls = arguments.option("nulls", str, None)
    epoch = arguments.option("epoch", str, None)
    if epoch not in (None, *EPOCH_UNITS):
        raise arguments.error(f"epoch of file() must be 's', 'ms', 'us' or 'ns', not '{epoch}'")
    return FileOptions(stream, format_, header, compression, encoding, max_line, follow, delimiter, nulls)

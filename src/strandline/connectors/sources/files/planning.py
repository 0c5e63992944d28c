"""Split a file into units, on the driver: one pass over a text file, the footer of a Parquet file.

A plan is made step by step: nothing is scanned before a batch may need it, and memory holds one block. What cannot be
read becomes a unit with a problem. Files that can only be read from their beginning are planned as a whole, since a
compressed file proves at its end that it is sound.
"""

from __future__ import annotations

import csv
import io
import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sources.conversion import SHOWN_LENGTH, converts_always, show_bytes
from strandline.connectors.sources.files.content import (
    ByteStream,
    DamagedContent,
    FileFormat,
    compression_of,
    fingerprint,
    form_of,
    open_content,
    without_compression,
)
from strandline.connectors.sources.files.footers import RowGroup, footer_checksum, read_row_groups_of
from strandline.connectors.sources.files.parquet import READ_ERRORS, column_names, column_types
from strandline.connectors.sources.files.records import split, too_long
from strandline.connectors.sources.files.units import FileUnit
from strandline.logical.catalog import BaseStream

TEXT_UNIT_BYTES = 4 * 2**20  # so small that the units of a batch can be divided among tasks
STREAM_UNIT_BYTES = 64 * 2**20  # of sequential content: fewer units, fewer reads from the beginning
LONGEST_HEADER: Final = 2**20
MOST_ROWS_OF_GROUP: Final = 100_000_000
_FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of `file(…)` for all its files."""

    stream: BaseStream
    format: str | None = None
    header: bool = True
    compression: str | None = None
    encoding: str | None = None
    max_line: int = 16 * 2**20
    follow: bool = False
    delimiter: str = ","
    nulls: str | None = None  # a text that stands for NULL, beside an empty field

    def kind_of(self, path: str) -> str | None:
        """parquet, csv or json; None if neither the options nor the name decide."""
        if self.format is not None:
            return self.format
        return _FORMATS.get(os.path.splitext(without_compression(path))[1].lower())


@dataclass(slots=True)
class InputFile:
    """A file, and how far it was planned."""

    path: str  # relative, as in units
    inode: int = 0
    size: int = 0
    changed: int = 0
    offset: int = 0  # of the content, or row groups
    row: int = 1
    header: tuple[str, ...] = ()
    mark: int | None = None  # the fingerprint of the planned part
    is_done: bool = False  # nothing more is expected of it
    is_rejected: bool = False  # as a whole: it is read when it is corrected
    grows: bool = True
    is_parquet: bool = False
    is_rotated: bool = False  # it was renamed: its present content is all
    since: float = 0.0  # when it was first seen as it is, by the clock of this process
    is_queued: bool = False
    units: Iterator[FileUnit] | None = field(default=None, repr=False)

    def take_over(self, unit: FileUnit) -> None:
        """Continue after a unit that is in the log."""
        self.inode, self.size, self.changed = unit.inode, unit.size, unit.changed
        self.offset, self.header, self.mark = unit.end, unit.header, unit.mark
        self.row = unit.row + unit.rows
        self.is_done, self.is_rejected = unit.last, unit.whole
        if unit.kind:
            self.is_parquet = unit.kind == "parquet"
            self.grows = not self.is_parquet and FileFormat(unit.compression, unit.encoding).seekable

    def start_over(self) -> None:
        """Plan the file again from its beginning."""
        self.offset, self.row, self.mark, self.units, self.is_done = 0, 1, None, None, False

    def facts(self) -> FileUnit:
        """A unit with only the identity of the file."""
        return FileUnit(
            self.path,
            begin=self.offset,
            end=self.offset,
            row=self.row,
            inode=self.inode,
            size=self.size,
            changed=self.changed,
            mark=self.mark or 0,
            header=self.header,
        )

    def problem(self, reason: str, raw: bytes = b"", *, whole: bool = False, last: bool = True) -> FileUnit:
        """Unit that represents unreadable input."""
        return replace(self.facts(), problem=reason, raw=show_bytes(raw), whole=whole, last=last)

    def is_alike(self, path: str) -> bool:
        """True if a file, like this one of those that do not grow, has the content that was planned."""
        try:
            mark = footer_checksum(path) if self.is_parquet else fingerprint(path, os.path.getsize(path))
        except OSError:
            return False
        return mark == self.mark


class IncompleteFile(ValueError):
    """A file that breaks off; it may still be written."""


def plan_file(file: InputFile, path: str, options: FileOptions, final: bool, settled: bool) -> Iterator[FileUnit]:
    """Units of a file after its planned part; `path` is its present location. With `final` nothing will be appended to
    it, so its last line is one also without a line break. One that breaks off raises IncompleteFile, unless it
    has settled. Raises PLAN_ERRORS, before the first unit, where the file cannot be read."""
    kind = options.kind_of(file.path)
    if kind is None:
        yield file.problem("unknown format; add format => 'parquet', 'csv' or 'json'", whole=True)
        return
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        yield file.problem(f"this is {what}", whole=True)
        return
    if kind == "parquet":
        file.grows = False
        yield from _plan_parquet(file, path, options.stream)
        return
    form = form_of(path, compression_of(file.path, options.compression), options.encoding)
    file.grows = form.seekable
    if form.seekable:
        yield from _plan_text(file, path, form, kind, options, final)
    else:
        yield from _plan_stream(file, path, form, kind, options, settled)


# Parquet


def _plan_parquet(file: InputFile, path: str, stream: BaseStream) -> Iterator[FileUnit]:
    with pq.ParquetFile(path) as parquet:
        names = Counter(column_names(parquet.schema_arrow))
        types = column_types(parquet.schema_arrow, [name for name, _ in stream.columns if names[name] == 1])
    groups = read_group_sizes(path, declared_paths(stream), file.size)
    problem = _column_problem(stream, names)
    if problem is not None:
        yield file.problem(problem, whole=True)
        return
    checksum = footer_checksum(path)
    file.is_parquet = True
    # The times are read in any case. That an operation is one, only its values tell.
    fits = stream.changes is None and all(
        name in stream.time_columns or converts_always(types[name], kind) for name, kind in stream.columns
    )
    facts = replace(file.facts(), kind="parquet", checksum=checksum, mark=checksum, fits=fits)
    row = 1
    for number, (count, problem) in enumerate(groups):
        last = number == len(groups) - 1
        if number >= file.offset:
            unit = replace(facts, begin=number, end=number + 1, row=row, rows=count, last=last)
            if problem is not None:
                unit = replace(
                    unit, rows=0, problem=f"row group {number} with {count:,} rows cannot be read: {problem}"
                )
            yield unit
        row += max(count, 0)


def declared_paths(stream: BaseStream) -> set[str]:
    """The columns of a file that a stream reads: its own, and the structs that they lie in."""
    return {part for name, _ in stream.columns for part in (name, name.partition(".")[0])}


def read_group_sizes(path: str, declared: set[str], size: int) -> list[tuple[int, str | None]]:
    """Rows of each row group by the footer, and the problem of the group."""
    return [(group.rows, _problem_of(group, declared, size)) for group in read_row_groups_of(path)]


def _problem_of(group: RowGroup, declared: set[str], size: int) -> str | None:
    """What is wrong with a row group in the footer: libraries trust it, and abort or allocate all memory."""
    if not 0 <= group.rows <= MOST_ROWS_OF_GROUP:
        return f"at most {MOST_ROWS_OF_GROUP:,} rows are read at once"
    for chunk in group.columns:
        if not {chunk.path, chunk.path.partition(".")[0]}.isdisjoint(declared) and not (
            chunk.begin >= 0 and chunk.length >= 0 and chunk.begin + chunk.length <= size
        ):
            return f"the pages of column {chunk.path} lie outside of the file"
    return None


def _column_problem(stream: BaseStream, names: Counter[str]) -> str | None:
    for name, _ in stream.columns:
        if not names[name]:
            listed = ", ".join(list(names)[:20])
            hint = ""
            if any("\0" in other for other in names):
                hint = "; it looks like UTF-16: write encoding => 'utf-16'"
            return f"column {name} is missing; the file has {listed}{hint}"[:SHOWN_LENGTH]
        if names[name] > 1:
            return f"column {name} occurs {names[name]} times"
    return None


# Text


def _plan_text(
    file: InputFile, path: str, form: FileFormat, kind: str, options: FileOptions, final: bool
) -> Iterator[FileUnit]:
    """The units of a file that can be read from anywhere."""
    with open(path, "rb") as opened:
        raw = opened.read(SHOWN_LENGTH)
        begin = max(file.offset, form.skips)
        opened.seek(begin)
        stream = _Content(opened, None if options.follow else file.size - begin)
        names = file.header
        if kind == "csv" and options.header and file.offset == 0:
            header = stream.read_header(form, final, options)
            if isinstance(header, str):
                yield file.problem(header, raw, whole=True)
                return
            if header is None:
                return
            names, begin = header[0], begin + header[1]
            file.row = 2
        facts = replace(file.facts(), begin=begin, kind=kind, header=names, encoding=form.encoding, skips=form.skips)
        pending = None
        for unit in _scan(stream, facts, form, options, final, TEXT_UNIT_BYTES):
            if pending is not None:
                yield pending
            mark = fingerprint(path, unit.end) if options.follow else 0
            pending = replace(unit, mark=mark or 0)
        if pending is not None:
            yield replace(pending, last=final and not options.follow)


def _plan_stream(
    file: InputFile, path: str, form: FileFormat, kind: str, options: FileOptions, settled: bool
) -> Iterator[FileUnit]:
    """The units of a file that can only be read from its beginning: all of them, or one for the whole if it is damaged,
    since a checksum at its end speaks of all its content."""
    with open(path, "rb") as opened:
        raw = opened.read(SHOWN_LENGTH)
        if options.follow and os.fstat(opened.fileno()).st_size == 0:
            return
        stream = _Content(open_content(opened, form, 0))
        names: tuple[str, ...] = ()
        begin, row = 0, 1
        if kind == "csv" and options.header:
            header = stream.read_header(form, True, options)
            if isinstance(header, str):
                yield file.problem(header, raw, whole=True)
                return
            names, begin = header or ((), 0)
            row = 2
        facts = replace(
            file.facts(),
            begin=begin,
            end=begin,
            row=row,
            kind=kind,
            header=names,
            compression=form.compression,
            encoding=form.encoding,
            skips=form.skips,
            mark=fingerprint(path, file.size) or 0,
        )
        units = list(_scan(stream, facts, form, options, True, STREAM_UNIT_BYTES))
    if stream.damage is not None:
        if not stream.damage.rest_only:
            yield file.problem(stream.damage.reason, raw, whole=True)
            return
        if not settled:
            raise IncompleteFile(file.path)
        last = units[-1] if units else facts
        problem = f"{stream.damage.reason} after {last.end:,} bytes of content"
        rest = replace(facts, begin=last.end, end=last.end, row=last.row + last.rows)
        units.append(replace(rest, problem=problem, raw=show_bytes(raw)))
    if units:
        units[-1] = replace(units[-1], last=True)
    yield from (unit for unit in units if unit.end > file.offset or (unit.problem is not None and not file.is_done))


class _Content:
    """Content that is planned: up to a size, and up to where it is damaged."""

    def __init__(self, stream: ByteStream, size: int | None = None) -> None:
        self._stream, self._left = stream, size
        self._ready = b""
        self.damage: DamagedContent | None = None

    def read(self, size: int, /) -> bytes:
        if self._ready:
            data, self._ready = self._ready[:size], self._ready[size:]
            return data
        if self.damage is not None:
            return b""
        try:
            data = self._stream.read(size if self._left is None else max(0, min(size, self._left)))
        except DamagedContent as damage:
            self.damage = damage
            return b""
        if self._left is not None:
            self._left -= len(data)
        return data

    def read_header(
        self, form: FileFormat, final: bool, options: FileOptions
    ) -> tuple[tuple[str, ...], int] | str | None:
        """Column names, and the length of the header; a text is the problem; None if there is nothing, or not all of
        it."""
        data = b""
        while len(data) < LONGEST_HEADER and (more := self.read(2**16)):
            data += more
            if b"\n" in more:
                break
        header = parse_header(data, form, final or len(data) >= LONGEST_HEADER, options.delimiter)
        if not isinstance(header, tuple):
            return header
        self._ready = data[header[1] :] + self._ready
        # A file that breaks off in its header has another problem than its columns.
        return header if self.damage is not None else _column_problem(options.stream, Counter(header[0])) or header


def parse_header(
    data: bytes, form: FileFormat, final: bool, delimiter: str = ","
) -> tuple[tuple[str, ...], int] | str | None:
    records = split(data, delimiter, LONGEST_HEADER, final)
    if not len(records):
        return None
    line = data[: int(records.ends[0])]
    if records.overlong[0] or records.unclosed[0]:
        return "the header is not closed" if records.unclosed[0] else "the header has no end"
    try:
        text = form.decode(line).decode().rstrip("\r\n")
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False), [])
    except (UnicodeDecodeError, csv.Error) as error:
        return f"the header cannot be read: {error}"
    return tuple(names), len(line)


def _scan(
    stream: ByteStream, facts: FileUnit, form: FileFormat, options: FileOptions, final: bool, block: int
) -> Iterator[FileUnit]:
    """Units of about a block each, from the beginning of `facts` on. Without `final` an incomplete last record is
    left."""
    longest_line, delimiter = options.max_line, options.delimiter if facts.kind == "csv" else None
    offset, row, buffer = facts.begin, facts.row, b""
    while True:
        data, at_end = _fill(stream, block)
        buffer += data
        records = split(buffer, delimiter, longest_line, final and at_end)
        if len(records):
            unit = replace(
                facts,
                begin=offset,
                end=offset + records.end,
                row=row,
                rows=len(records),
                checksum=zlib.crc32(memoryview(buffer)[: records.end]),
                overlong=int(records.overlong.sum()),
            )
            yield unit
            offset, row, buffer = unit.end, row + unit.rows, buffer[records.end :]
        if at_end:
            return
        if len(buffer) > longest_line and _break_in(buffer[: longest_line + 1]) < 0:
            raw = show_bytes(form.decode(buffer[:SHOWN_LENGTH]))
            length, buffer = _skip_line(stream, buffer, final)
            if length is None:
                return
            end = offset + length
            yield replace(facts, begin=offset, end=end, row=row, rows=1, problem=too_long(longest_line), raw=raw)
            offset, row = end, row + 1


def _fill(stream: ByteStream, size: int) -> tuple[bytes, bool]:
    """Up to this many bytes, and whether the stream has ended."""
    parts, left = list[bytes](), size
    while left > 0:
        data = stream.read(left)
        if not data:
            return b"".join(parts), True
        parts.append(data)
        left -= len(data)
    return b"".join(parts), False


def _break_in(data: bytes) -> int:
    """Position of the first line break; -1 if there is none."""
    breaks = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
    return min(breaks, default=-1)


def _skip_line(stream: ByteStream, buffer: bytes, final: bool) -> tuple[int | None, bytes]:
    """Pass over a line that is too long without keeping it: its length, and what follows. None if its end is not there
    yet."""
    passed = 0
    at = _break_in(buffer)
    while at < 0:
        passed += len(buffer)
        buffer, at_end = _fill(stream, 2**20)
        if not buffer and at_end:
            return (passed if final else None), b""
        at = _break_in(buffer)
    if buffer[at : at + 1] == b"\r" and at + 1 == len(buffer):
        buffer += _fill(stream, 1)[0]
        if at + 1 == len(buffer) and not final:
            return None, b""
    length = 2 if buffer[at : at + 2] == b"\r\n" else 1
    return passed + at + length, buffer[at + length :]


PLAN_ERRORS: Final = (OSError, pa.ArrowException, ValueError, pl.exceptions.PolarsError, *READ_ERRORS)

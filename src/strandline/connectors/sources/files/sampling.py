"""Samples of text files: some rows of the beginning, the middle and the end, as texts by column.

A sample is bounded by bytes, however large a file is. A block from the middle begins after a line break; where that may
lie in quotes, the reading that gives more rows with the right number of fields is taken.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from strandline.connectors.sources.files.content import (
    DamagedContent,
    FileFormat,
    compression_of,
    form_of,
    open_content,
)
from strandline.connectors.sources.files.planning import FileOptions, parse_header
from strandline.connectors.sources.files.records import split

BLOCK: Final = 2**17  # bytes of a block; a sample has up to three of a file
COUNTED: Final = 2**26  # bytes of a file whose rows are counted, and not estimated
_DELIMITERS: Final = (",", ";", "\t", "|")


@dataclass
class Sample:
    """Texts by column, and how many rows were read of how many. Values of JSON that are no texts are in `kinds`."""

    columns: dict[str, pl.Series] = field(default_factory=dict)
    rows: int = 0
    total: int = 0
    is_counted: bool = True
    delimiter: str = ","
    kinds: dict[str, set[str]] = field(default_factory=dict)
    first_line: tuple[str, ...] = ()  # the header of CSV


def sample_file(path: str, kind: str, options: FileOptions) -> Sample:
    """Rows of a file of CSV or JSON lines. Raises OSError, DamagedContent or ValueError where it cannot be read."""
    form = form_of(path, compression_of(path, options.compression), options.encoding)
    first, *others = _blocks(path, form)
    sample = _sample_csv(first, others, form, options) if kind == "csv" else _sample_json([first, *others])
    if sample.total < 0:
        sample.total, sample.is_counted = _count_rows(path, form, sample, kind == "csv" and options.header)
    return sample


@dataclass(frozen=True)
class _Block:
    """A part of a file: at its beginning, and up to its end, or not."""

    data: bytes
    at_start: bool
    at_end: bool


def _blocks(path: str, form: FileFormat) -> list[_Block]:
    """The beginning, the middle and the end of a file; of one that is not seekable, the beginning."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        if not form.seekable or size <= 3 * BLOCK:
            stream, data = open_content(file, form, 0), b""
            try:
                while len(data) <= 3 * BLOCK and (more := stream.read(3 * BLOCK)):
                    data += more
            except DamagedContent:
                if not data:
                    raise
            return [_Block(form.decode(data), True, len(data) <= 3 * BLOCK)]
        blocks: list[_Block] = []
        for offset in (form.skips, size // 2, size - BLOCK):
            file.seek(offset)
            data = file.read(BLOCK)
            if offset > form.skips:
                data = data[data.find(b"\n") + 1 :]
            blocks.append(_Block(form.decode(data), offset == form.skips, offset + BLOCK >= size))
        return blocks


def _count_rows(path: str, form: FileFormat, sample: Sample, has_header: bool) -> tuple[int, bool]:
    """Rows of a file: its lines where it is not too large, else by the length of those in the sample."""
    size = os.path.getsize(path)
    if form.seekable and size <= COUNTED:
        lines, last = 0, b"\n"
        with open(path, "rb") as file:
            while data := file.read(2**20):
                lines, last = lines + data.count(b"\n"), data
        return lines + (not last.endswith(b"\n")) - has_header, True
    read = min(size, 3 * BLOCK)
    return max(sample.rows, sample.rows * size // max(read, 1)), False


# ---- CSV -------------------------------------------------------------------------------------------------------------


def _sample_csv(first: _Block, others: list[_Block], form: FileFormat, options: FileOptions) -> Sample:
    line = parse_header(first.data, FileFormat(), True, options.delimiter)
    if not isinstance(line, tuple):
        raise ValueError(line or "the file is empty")
    delimiter = options.delimiter
    if len(line[0]) == 1 and delimiter == ",":
        header = line[0][0]
        delimiter = max(_DELIMITERS, key=header.count)
        line = parse_header(first.data, FileFormat(), True, delimiter)
        assert isinstance(line, tuple), "the header has been read"
    names, length = line
    data = first.data[length:] if options.header else first.data
    frames = [_parse_block(data, len(names), delimiter, first.at_end, options)]
    for block in others:
        readings = [block.data] if b'"' not in block.data else [block.data, b'"' + block.data]
        parsed = [_parse_block(reading, len(names), delimiter, block.at_end, options) for reading in readings]
        frames.append(max(parsed, key=len))
    frame = pl.concat(frames)
    columns: dict[str, pl.Series] = {}
    for position, name in enumerate(names if options.header else _numbered(len(names))):
        if name and name not in columns:
            columns[name] = frame.get_column(str(position))
    total = frame.height if first.at_end and not others else -1
    return Sample(columns, frame.height, total, delimiter=delimiter, first_line=names if options.header else ())


def _numbered(count: int) -> list[str]:
    return [f"column{number}" for number in range(1, count + 1)]


def _parse_block(data: bytes, fields: int, delimiter: str, at_end: bool, options: FileOptions) -> pl.DataFrame:
    """The complete records of a block that have the right number of fields."""
    names = [str(position) for position in range(fields)]
    records = split(data, delimiter, options.max_line, final=at_end)
    content = data[: records.end].decode("utf-8", "replace").encode()
    if not content.strip():
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String()))
    marks = ["", *([] if options.nulls is None else [options.nulls])]
    try:
        table = pa_csv.read_csv(
            io.BytesIO(content),
            read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(content) + 2**20),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=marks,
            ),
        )
    except pa.ArrowException:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String()))
    return pl.DataFrame(table).cast(pl.String)


# ---- JSON lines ------------------------------------------------------------------------------------------------------


def _sample_json(blocks: list[_Block]) -> Sample:
    rows: list[dict[str, Any]] = []
    for block in blocks:
        lines = block.data.replace(b"\r", b"\n").split(b"\n")
        for line in lines if block.at_end else lines[:-1]:
            try:
                value = json.loads(line) if line.strip() else None
            except ValueError:
                continue
            if isinstance(value, dict):
                rows.append(dict(_flatten(value)))
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(_kind_of(value))
    # What is an object in one row and a value in another is read as one text.
    parents = {name for name, found in kinds.items() if found - {"null"}}
    names = [name for name in kinds if not any(name.startswith(f"{other}.") for other in parents)]
    columns = {name: pl.Series([_text_of(row.get(name)) for row in rows], dtype=pl.String) for name in names}
    total = len(rows) if len(blocks) == 1 and blocks[0].at_end else -1
    return Sample(columns, len(rows), total, kinds={name: kinds[name] for name in names})


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _kind_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "text", type(None): "null"}
    return names.get(type(value), "other")


def _text_of(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)

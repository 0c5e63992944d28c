"""The records of CSV to rows. Arrow parses whole blocks; records that it must not see are taken out before."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from strandline.connectors.sources.base import Chunk
from strandline.connectors.sources.conversion import conform, reject, show_bytes
from strandline.connectors.sources.files.planning import FileOptions
from strandline.connectors.sources.files.records import Records, blank, keep, not_text, record_bytes, split, too_long
from strandline.core import types
from strandline.logical.catalog import BaseStream
from strandline.runtime.kernels.batch import Index

_NOT_READ = "cannot be read as CSV"
NO_TYPES: Final[Mapping[str, pa.DataType]] = {}


def read_csv(
    data: bytes, stream: BaseStream, names: list[str], location: str, row: int, options: FileOptions
) -> Iterator[Chunk]:
    """The rows of whole records, of which the first has the number `row`. `names` are the columns of the file."""
    max_line = options.max_line
    records = split(data, options.delimiter, max_line, final=True)
    if not len(records):
        return
    no_text, empty = not_text(data, records), blank(data, records)
    bad = no_text | records.unclosed | records.overlong
    parsed = ~(bad | empty)
    reasons = {
        int(number): _reason(no_text[number], records.overlong[number], max_line) for number in np.flatnonzero(bad)
    }
    numbers = np.flatnonzero(parsed)
    if len(numbers):
        columns = _columns(names, stream)
        content = keep(data, records, parsed)
        if (chunk := _read_typed(content, columns, len(numbers), location, row, options)) is not None:
            yield chunk
        else:
            frame, invalid = _parse_or_halve(content, numbers, data, records, columns, options)
            reasons |= invalid
            if frame is not None:
                sound = np.setdiff1d(numbers, np.fromiter(invalid, np.int64, len(invalid)), assume_unique=True)
                yield conform(frame, stream, location, pl.Series(sound + row))
    if reasons:
        rejected = [
            (row + number, reason, show_bytes(record_bytes(data, records, number)))
            for number, reason in sorted(reasons.items())
        ]
        yield reject(stream, location, rejected)


def _reason(no_text: bool, overlong: bool, max_line: int) -> str:
    if overlong:
        return too_long(max_line)
    return "not text in the encoding of the file" if no_text else "a quote that is never closed"


def _columns(names: list[str], stream: BaseStream) -> list[str]:
    """Names under which a file's columns are parsed: undeclared ones may be duplicates."""
    declared = {name for name, _ in stream.columns}
    return [name if name in declared else f"@{number}" for number, name in enumerate(names)]


# Types that Arrow parses by itself, in half the time.
_PARSED: Final = {types.BIGINT: pa.int64(), types.INT: pa.int32(), types.DOUBLE: pa.float64()}


def _read_typed(
    content: bytes, columns: list[str], count: int, location: str, row: int, options: FileOptions
) -> Chunk | None:
    """Rows whose numbers Arrow has parsed, where all are well-formed; else None, and the texts are cast.

    It takes no text that a cast rejects but hexadecimal numbers, and DOUBLEs that are too large, or no numbers.
    """
    parsed_types = {name: _PARSED[kind] for name, kind in options.stream.columns if kind in _PARSED}
    if not parsed_types or b"x" in content or b"X" in content:
        return None
    result = _parse(content, columns, options, parsed_types)
    if result is None or result[1] or result[0].height != count:
        return None
    frame = result[0]
    doubles = [frame.get_column(name) for name, kind in parsed_types.items() if kind == pa.float64()]
    if not all(column.is_finite().all() for column in doubles):
        return None
    chunk = conform(frame, options.stream, location, row)
    return None if chunk.rejected.height else chunk  # as texts, rejected rows are shown as they were


def _parse_or_halve(
    content: bytes, numbers: Index, data: bytes, records: Records, columns: list[str], options: FileOptions
) -> tuple[pl.DataFrame | None, dict[int, str]]:
    """The rows of some records, and the numbers of those that are none, with the reason. Where Arrow finds other
    records than we do, or none at all, the halves are parsed apart, down to the record that is to blame."""
    result = _parse(content, columns, options)
    if result is not None:
        frame, invalid = result
        if frame.height + len(invalid) == len(numbers):
            return frame, {int(numbers[position]): reason for position, reason in invalid.items()}
    if len(numbers) == 1:
        return None, {int(numbers[0]): _NOT_READ}
    frames, reasons = [], dict[int, str]()
    for half in np.array_split(numbers, 2):
        chosen = np.zeros(len(records), np.bool_)
        chosen[half] = True
        frame_of_half, invalid_of_half = _parse_or_halve(
            keep(data, records, chosen), half, data, records, columns, options
        )
        reasons |= invalid_of_half
        if frame_of_half is not None:
            frames.append(frame_of_half)
    return (pl.concat(frames) if frames else None), reasons


def _parse(
    content: bytes, columns: list[str], options: FileOptions, parsed_types: Mapping[str, pa.DataType] = NO_TYPES
) -> tuple[pl.DataFrame, dict[int, str]] | None:
    """The rows of records, as texts but for some types, and which of them have another number of fields; None if Arrow
    gives up."""
    invalid: dict[int, str] = {}

    def remember(row: pa_csv.InvalidRow) -> str:
        invalid[(row.number or 1) - 1] = f"{row.actual_columns} fields instead of {row.expected_columns}"
        return "skip"

    try:
        table = pa_csv.read_csv(
            io.BytesIO(content),
            # One block: a record that lies in two of them would have to be shorter than a block.
            read_options=pa_csv.ReadOptions(
                column_names=columns, use_threads=False, block_size=min(len(content) + 2**20, 2**31 - 1)
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=options.delimiter, newlines_in_values=True, invalid_row_handler=remember
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: parsed_types.get(name, pa.string()) for name in columns},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", *([] if options.nulls is None else [options.nulls])],
                include_columns=[name for name, _ in options.stream.columns],
            ),
        )
    except (pa.ArrowException, OSError):
        return None
    return pl.DataFrame(table), invalid

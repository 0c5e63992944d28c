"""Row groups of a Parquet file to frames; one that is damaged is rejected as a whole, and the others are read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.execution.sources.files.units import Unit

# What libraries raise where a page, a footer or a value is damaged. A panic of Polars is no Exception.
READ_ERRORS: Final = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
)


def read_row_groups(path: str, unit: Unit, columns: Sequence[str]) -> pl.DataFrame:
    """Some columns of a unit. Polars takes half the time of Arrow, but takes some types for others: a Date for a
    Datetime, say. What it does not see as the file declares it is read by way of Arrow."""
    types = types_of(path)
    scan = pl.scan_parquet(path, glob=False, hive_partitioning=False, parallel="none", use_statistics=False)
    try:
        alike = all(scan.collect_schema().get(name) == types[name] for name in columns)
    except pl.exceptions.PolarsError:  # a type that it does not know, perhaps of a column that nobody wants
        alike = False
    if alike:
        frame = scan.slice(unit.row - 1, unit.rows).select(columns).collect()
    else:
        with pq.ParquetFile(path, memory_map=True) as file:
            table = file.read_row_groups(list(range(unit.begin, unit.end)), columns=list(columns), use_threads=False)
        converted = pl.from_arrow(table, rechunk=True)
        assert isinstance(converted, pl.DataFrame)
        frame = converted
    if frame.height != unit.rows:
        raise ValueError(f"{frame.height} rows instead of {unit.rows}")
    return frame


def column_types(schema: pa.Schema, columns: Sequence[str]) -> Mapping[str, pl.DataType]:
    """The types of some columns, as Polars has them."""
    empty = pl.from_arrow(pa.schema([schema.field(name) for name in columns]).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


@lru_cache(maxsize=64)
def _types_of(path: str, size: int, changed: int) -> Mapping[str, pl.DataType]:
    with pq.ParquetFile(path, memory_map=True) as file:
        names = file.schema_arrow.names
        return column_types(file.schema_arrow, [name for name in names if names.count(name) == 1])


def types_of(path: str) -> Mapping[str, pl.DataType]:
    """The types of a file's columns; read once, unless the file was changed."""
    status = os.stat(path)
    return _types_of(path, status.st_size, status.st_mtime_ns)


_TAIL: Final = 8  # the length of the footer and "PAR1"
_LONGEST_FOOTER: Final = 2**24


@lru_cache(maxsize=1024)
def _checksum_of(path: str, size: int, changed: int, inode: int) -> int:
    with open(path, "rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read(_TAIL)
        length = min(int.from_bytes(tail[:4], "little"), _LONGEST_FOOTER, max(0, size - _TAIL))
        file.seek(size - len(tail) - length)
        return zlib.crc32(file.read(length + len(tail)), size & 0xFFFFFFFF)


def footer_checksum(path: str) -> int:
    """A checksum over the footer of a Parquet file and its size: its row groups, their places and statistics."""
    status = os.stat(path)
    return _checksum_of(path, status.st_size, status.st_mtime_ns, status.st_ino)

"""Page headers of Parquet files, which are checked before Polars reads the pages.

A number of values or a size that is not possible makes Polars ask for memory that nobody has, and end the process. The
headers are structs in Thrift's compact protocol: a byte for each field, its distance from the one before and its type,
and then its value.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import pyarrow.parquet as pq

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_UNCOMPRESSED, _COMPRESSED = 2, 3  # fields of a header
_COUNTS_OF_DATA: Final = ((5, 1), (8, 1))  # of values, in the headers of data pages of both versions
_COUNTS: Final = (*_COUNTS_OF_DATA, (7, 1))  # and of a dictionary
_SLACK: Final = 100  # bytes that the length of a column lacks in files of old writers
_DEPTH: Final = 8
_LONGEST: Final = 10  # bytes of a number

_Place: TypeAlias = tuple[int, ...]  # the ids of a field and of those around it


class _Chunk(NamedTuple):
    """The values of a column in a row group: where its pages are, and what they have together."""

    path: str  # of the column
    begin: int
    length: int
    uncompressed: int
    values: int


def check_pages(path: str, groups: range, columns: Collection[str]) -> None:
    """Raise if a page of some columns, in some row groups, has a header that is not possible."""
    status = os.stat(path)
    chunks = _chunks_of(path, status.st_size, status.st_mtime_ns)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for group in groups:
            for chunk in chunks[group]:
                if not {chunk.path, chunk.path.partition(".")[0]}.isdisjoint(columns):
                    _check_chunk(data, chunk)


@lru_cache(maxsize=64)
def _chunks_of(path: str, size: int, changed: int) -> list[list[_Chunk]]:
    with pq.ParquetFile(path, memory_map=True) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    found: list[list[_Chunk]] = []
    for group in groups:
        parts = [group.column(number) for number in range(group.num_columns)]
        found.append([
            _Chunk(
                part.path_in_schema,
                min(part.data_page_offset, part.dictionary_page_offset or part.data_page_offset),
                part.total_compressed_size,
                part.total_uncompressed_size,
                part.num_values,
            )
            for part in parts
        ])  # fmt: skip
    return found


def _check_chunk(data: mmap.mmap, chunk: _Chunk) -> None:
    at, end, values = chunk.begin, chunk.begin + chunk.length + _SLACK, 0
    while at < end and values < chunk.values:
        try:
            header, at = _read_struct(data, at)
        except IndexError:
            raise ValueError("a page header is damaged") from None
        uncompressed, compressed = header.get((_UNCOMPRESSED,), -1), header.get((_COMPRESSED,), -1)
        counts = [header[place] for place in _COUNTS if place in header]
        sizes_fit = 0 <= compressed <= end - at and 0 <= uncompressed <= chunk.uncompressed
        if not sizes_fit or any(not 0 <= count <= chunk.values for count in counts):
            raise ValueError("a page header is damaged")
        values += sum(header[place] for place in _COUNTS_OF_DATA if place in header)
        at += compressed
    if values != chunk.values:
        raise ValueError("the pages of a column have another number of values")


def _read_struct(data: mmap.mmap, at: int, around: _Place = ()) -> tuple[dict[_Place, int], int]:
    """The numbers in a struct, and where it ends."""
    found: dict[_Place, int] = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            field += step
        else:
            field, at = _read_number(data, at)
        if kind in _INTEGERS:
            found[*around, field], at = _read_number(data, at)
        elif kind == _STRUCT and len(around) < _DEPTH:
            inner, at = _read_struct(data, at, (*around, field))
            found |= inner
        elif kind == _BINARY:
            length, at = _read_varint(data, at)
            at += length
        elif kind == _BYTE:
            at += 1
        elif kind == _DOUBLE:
            at += 8
        elif kind not in _BOOLEANS:  # a page header has no lists or maps
            raise ValueError("a page header is damaged")
    return found, at + 1


def _read_number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A signed number: zigzag, so that the last bit is the sign."""
    value, at = _read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _read_varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _LONGEST, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a page header is damaged")

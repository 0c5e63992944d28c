"""Page headers of Parquet files, which are checked before Polars reads the pages.

A number of values or a size that is not possible makes Polars ask for more memory than there is, and end the process.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from strandline.connectors.sources.files.footers import ColumnChunk, RowGroup, read_row_groups_of
from strandline.connectors.thrift import Struct, read_struct_at

_UNCOMPRESSED, _COMPRESSED, _DICTIONARY = 2, 3, 7  # fields of a header
_DATA_PAGES: Final = (5, 8)  # the headers of data pages of both versions
_COUNT: Final = 1  # of values, in each of these
_SLACK: Final = 100  # bytes that the length of a column lacks in files of old writers


def check_pages(path: str, groups: range, columns: Collection[str]) -> None:
    """Raise if a page of some columns, in some row groups, has a header that is not possible."""
    status = os.stat(path)
    row_groups = _row_groups_of(path, status.st_size, status.st_mtime_ns)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for group in groups:
            for chunk in row_groups[group].columns:
                if not {chunk.path, chunk.path.partition(".")[0]}.isdisjoint(columns):
                    _check_chunk(data, chunk)


@lru_cache(maxsize=64)
def _row_groups_of(path: str, size: int, changed: int) -> list[RowGroup]:
    return read_row_groups_of(path)


def _check_chunk(data: mmap.mmap, chunk: ColumnChunk) -> None:
    at, end, values = chunk.begin, chunk.begin + chunk.length + _SLACK, 0
    while at < end and values < chunk.values:
        header, at = read_struct_at(data, at)
        uncompressed, compressed = _number(header, _UNCOMPRESSED), _number(header, _COMPRESSED)
        count = sum(_number(header.get(kind), _COUNT) for kind in _DATA_PAGES if kind in header.fields)
        # A dictionary may have more values than the column, but each takes a byte at least.
        words = _number(header.get(_DICTIONARY), _COUNT) if _DICTIONARY in header.fields else 0
        sizes_fit = 0 <= compressed <= end - at and 0 <= uncompressed <= chunk.uncompressed
        if not sizes_fit or not 0 <= count <= chunk.values - values or not 0 <= words <= uncompressed:
            raise ValueError("a page header is damaged")
        values += count
        at += compressed
    if values != chunk.values:
        raise ValueError("the pages of a column have another number of values")


def _number(part: object, field: int) -> int:
    """A number in a part of a header; one that is missing, or something else, is not possible."""
    value = part.get(field) if isinstance(part, Struct) else None
    return value if isinstance(value, int) else -1

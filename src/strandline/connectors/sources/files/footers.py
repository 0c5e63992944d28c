"""Footers of Parquet files: row groups, and where the pages of their columns are.

They are parsed here, since Arrow ends the process over some damaged fields.
"""

from __future__ import annotations

import os
import zlib
from functools import lru_cache
from typing import Final, NamedTuple

from strandline.connectors.thrift import Struct, read_struct

# Fields of the footer, of a row group, of a chunk of a column, and of its metadata.
_ROW_GROUPS: Final = 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_METADATA: Final = 3
_PATH, _VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 3, 5, 6, 7, 9, 11


class ColumnChunk(NamedTuple):
    """A column in a row group: where its pages are, and what they have together."""

    path: str  # of the column
    begin: int
    length: int
    uncompressed: int
    values: int


class RowGroup(NamedTuple):
    rows: int
    columns: tuple[ColumnChunk, ...]


def read_row_groups_of(path: str) -> list[RowGroup]:
    """The row groups by the footer of a file. Raises ValueError where it is damaged."""
    try:
        return [_row_group(group) for group in read_struct(read_footer(path))[_ROW_GROUPS].items]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the footer of the file is damaged") from None


def _row_group(group: Struct) -> RowGroup:
    chunks = [chunk[_CHUNK_METADATA] for chunk in group[_GROUP_COLUMNS].items]
    return RowGroup(group[_GROUP_ROWS], tuple(map(_column_chunk, chunks)))


def _column_chunk(column: Struct) -> ColumnChunk:
    path = b".".join(column[_PATH].items).decode()
    begin = column.get(_DICTIONARY_PAGE) or column[_DATA_PAGE]
    chunk = ColumnChunk(path, begin, column[_COMPRESSED], column[_UNCOMPRESSED], column[_VALUES])
    if not all(isinstance(number, int) for number in chunk[1:]):
        raise ValueError("the footer of the file is damaged")
    return chunk


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


def read_footer(path: str) -> bytes:
    """The footer of a Parquet file, without its length and the mark at the end."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or length > size - 12:
            raise ValueError("no Parquet footer")
        file.seek(size - 8 - length)
        return file.read(length)


def footer_checksum(path: str) -> int:
    """A checksum over the footer of a Parquet file and its size: its row groups, their places and statistics."""
    status = os.stat(path)
    return _checksum_of(path, status.st_size, status.st_mtime_ns, status.st_ino)

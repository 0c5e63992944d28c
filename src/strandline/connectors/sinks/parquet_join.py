"""Concatenate Parquet files of one schema without reading a row.

The data pages of the other parts are appended to the first; the footers become one, whose offsets are shifted by the
position of each part. A footer is a structure in Thrift's compact protocol (`connectors/thrift.py`): unknown fields are
copied as they are.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.connectors.thrift import List, Struct, read_struct, write_struct
from strandline.core.durable import write_all

_MAGIC: Final = b"PAR1"
_BLOCK: Final = 2**20

# Fields of the footer that matter here, by structure.
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_OFFSETS = (2, 4, 6)  # of the chunk, its offset index, its column index
_CHUNK_METADATA = 3
_METADATA_OFFSETS = (9, 10, 11, 14)  # of data pages, index page, dictionary page, Bloom filter


@dataclass(frozen=True, slots=True)
class PartSums:
    """Size and CRC-32 of a Parquet file, and of the part before its footer."""

    size: int
    checksum: int
    body: int
    body_checksum: int


def sum_part(path: Path) -> PartSums:
    """Read a file once for its checksums."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        body = _find_footer(file.fileno(), size)
        checksum = at = 0
        while at < body:
            block = file.read(min(_BLOCK, body - at))
            checksum, at = zlib.crc32(block, checksum), at + len(block)
        return PartSums(size, zlib.crc32(file.read(), checksum), body, checksum)


def join_parquet(parts: Sequence[tuple[Path, PartSums]]) -> tuple[int, int]:
    """Append the rows of the other parts to the first one and sync it; returns its size and its CRC-32.

    The kernel copies the pages, and the checksum follows from those of the parts: nothing is read here but footers.
    """
    (first, sums), *others = parts
    with open(first, "r+b", buffering=0) as out:
        whole = _read_footer(out.fileno(), sums)
        at, checksum = sums.body, sums.body_checksum
        for path, sums in others:
            with open(path, "rb", buffering=0) as file:
                _append(whole, _read_footer(file.fileno(), sums), distance=at - len(_MAGIC))
                pages = sums.body - len(_MAGIC)
                _copy(file.fileno(), len(_MAGIC), out.fileno(), at, pages)
                checksum = combine_crc(checksum, _without_magic(sums), pages)
                at += pages
        content = bytearray()
        write_struct(whole, content)
        tail = bytes(content) + struct.pack("<I", len(content)) + _MAGIC
        out.truncate(at)
        out.seek(at)
        write_all(out.fileno(), tail)
        os.fsync(out.fileno())
    return at + len(tail), zlib.crc32(tail, checksum)


def _copy(source: int, start: int, target: int, at: int, length: int) -> None:
    """Copy bytes from file to file, within the kernel where the file system can do that."""
    while length:
        try:
            copied = os.copy_file_range(source, target, length, start, at)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            copied = os.pwrite(target, os.pread(source, min(_BLOCK, length), start), at)
        assert copied, "a part was written whole"
        start, at, length = start + copied, at + copied, length - copied


def _find_footer(file: int, size: int) -> int:
    tail = os.pread(file, 8, size - 8)
    (length,) = struct.unpack("<I", tail[:4])
    assert tail[4:] == _MAGIC, "a part was written whole"
    return int(size - 8 - length)


def _read_footer(file: int, sums: PartSums) -> Struct:
    return read_struct(os.pread(file, sums.size - 8 - sums.body, sums.body))


# Checksums of files that are put together: a CRC is a remainder of polynomials over two elements, so that of A and B
# is that of A times x to the bits of B, plus that of B. The lowest bit of a number is the highest power.

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31


def combine_crc(first: int, second: int, second_length: int) -> int:
    """The CRC-32 of two sequences of bytes, one after the other, from their own."""
    return _multiply(_power(8 * second_length), first) ^ second


def _without_magic(sums: PartSums) -> int:
    """The checksum of the pages of a part."""
    return combine_crc(zlib.crc32(_MAGIC), sums.body_checksum, sums.body - len(_MAGIC))


def _multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _power(exponent: int) -> int:
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _multiply(result, square)
        square, exponent = _multiply(square, square), exponent >> 1
    return result


def _append(whole: Struct, footer: Struct, distance: int) -> None:
    """Add the row groups of a part whose pages have been moved."""
    groups: List = footer[_FILE_ROW_GROUPS]
    for group in groups.items:
        group.shift((_GROUP_OFFSET,), distance)
        for chunk in group[_GROUP_COLUMNS].items:
            chunk.shift(_CHUNK_OFFSETS, distance)
            chunk[_CHUNK_METADATA].shift(_METADATA_OFFSETS, distance)
    together: List = whole[_FILE_ROW_GROUPS]
    for group in groups.items:
        if _GROUP_ORDINAL in group.fields:
            group.replace(_GROUP_ORDINAL, len(together.items))
        together.items.append(group)
    whole.replace(_FILE_ROWS, whole[_FILE_ROWS] + footer[_FILE_ROWS])

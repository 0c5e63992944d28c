"""Concatenate Parquet files of one schema without reading a row, and let a file grow by row groups.

The data pages of the other parts are appended to the first; the footers become one, whose offsets are shifted by the
position of each part. A footer is a structure in Thrift's compact protocol (`connectors/thrift.py`): unknown fields are
copied as they are.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from strandline.connectors.thrift import BINARY, LIST, STRUCT, List, Struct, read_struct, write_struct
from strandline.core.durable import write_all

_MAGIC: Final = b"PAR1"
_BLOCK: Final = 2**20

# Fields of the footer that matter here, by structure.
_FILE_ROWS, _FILE_ROW_GROUPS, _FILE_METADATA = 3, 4, 5
_GROUP_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSETS = (2, 4, 6)  # of the chunk, its offset index, its column index
_CHUNK_METADATA = 3
_METADATA_OFFSETS = (9, 10, 11, 14)  # of data pages, index page, dictionary page, Bloom filter
_PAGE_OFFSETS = (9, 11)


@dataclass(frozen=True, slots=True)
class PartSums:
    """Size and CRC-32 of a Parquet file, and of the part before its footer."""

    size: int
    checksum: int
    body: int
    body_checksum: int


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file of row groups, and its footer: `groups` are encoded, so that more of them can be added without reading
    and writing those that are there."""

    sums: PartSums
    head: Struct
    groups: tuple[bytes, ...]
    rows: int


def sum_part(path: Path) -> PartSums:
    """Read a file once for its checksums."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        body = _find_footer(file.fileno(), size)
        checksum = _sum_bytes(file.fileno(), body)
        return PartSums(size, zlib.crc32(os.pread(file.fileno(), size - body, body), checksum), body, checksum)


def join_parquet(
    parts: Sequence[tuple[Path, PartSums]], metadata: Mapping[bytes, bytes] = MappingProxyType({})
) -> JoinedFile:
    """Append the rows of the other parts to the first one, add metadata for readers, and sync it.

    The kernel copies the pages, and the checksum follows from those of the parts: nothing is read here but footers.
    """
    (first, sums), *others = parts
    with open(first, "r+b", buffering=0) as out:
        whole = _read_joined(out.fileno(), sums)
        for key, value in metadata.items():
            pair = Struct({1: (BINARY, key), 2: (BINARY, value)})
            whole.head.fields.setdefault(_FILE_METADATA, (LIST, List(STRUCT, [])))[1].items.append(pair)
        return _add_parts(out.fileno(), whole, others)


def append_parquet(path: Path, before: JoinedFile, parts: Sequence[tuple[Path, PartSums]], target: Path) -> JoinedFile:
    """Write, as another file, a version of a file with further parts; what is before the footer stays as it is."""
    with open(path, "rb", buffering=0) as file, open(target, "w+b", buffering=0) as out:
        _copy(file.fileno(), 0, out.fileno(), 0, before.sums.body)
        return _add_parts(out.fileno(), before, parts)


def read_version(path: Path, groups: int) -> JoinedFile | None:
    """The version of a file that had this many row groups, from the file as it is now; None if it is damaged or has
    fewer. A caller compares its size and its checksum with those that it had."""
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            body = _find_footer(file.fileno(), size)
            footer = read_struct(os.pread(file.fileno(), size - 8 - body, body))
            present: list[Struct] = footer[_FILE_ROW_GROUPS].items
            if not 0 < groups <= len(present):
                return None
            if groups < len(present):
                body = min(_offsets(present[groups]))
            checksum = _sum_bytes(file.fileno(), body)
            rows = sum(group[_GROUP_ROWS] for group in present[:groups])
            head, encoded = _without_groups(footer), tuple(_encode(group) for group in present[:groups])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, AssertionError):
        return None
    tail = _footer_bytes(head, encoded, rows)
    return JoinedFile(PartSums(body + len(tail), zlib.crc32(tail, checksum), body, checksum), head, encoded, rows)


def write_version(path: Path, version: JoinedFile, target: Path) -> None:
    """Write an earlier version of a file as another file, and sync it."""
    append_parquet(path, version, (), target)


def _add_parts(out: int, whole: JoinedFile, parts: Sequence[tuple[Path, PartSums]]) -> JoinedFile:
    at, checksum = whole.sums.body, whole.sums.body_checksum
    groups, rows = list(whole.groups), whole.rows
    for path, sums in parts:
        with open(path, "rb", buffering=0) as file:
            footer = _read_footer(file.fileno(), sums)
            groups += _moved_groups(footer, len(groups), distance=at - len(_MAGIC))
            rows += footer[_FILE_ROWS]
            pages = sums.body - len(_MAGIC)
            _copy(file.fileno(), len(_MAGIC), out, at, pages)
            checksum = combine_crc(checksum, _without_magic(sums), pages)
            at += pages
    tail = _footer_bytes(whole.head, groups, rows)
    os.truncate(out, at)
    os.lseek(out, at, os.SEEK_SET)
    write_all(out, tail)
    os.fsync(out)
    return JoinedFile(
        PartSums(at + len(tail), zlib.crc32(tail, checksum), at, checksum), whole.head, tuple(groups), rows
    )


def _read_joined(file: int, sums: PartSums) -> JoinedFile:
    footer = _read_footer(file, sums)
    groups = tuple(_encode(group) for group in footer[_FILE_ROW_GROUPS].items)
    return JoinedFile(sums, _without_groups(footer), groups, footer[_FILE_ROWS])


def _without_groups(footer: Struct) -> Struct:
    """The footer with an empty list of row groups, to be filled in."""
    head = Struct(dict(footer.fields))
    head.replace(_FILE_ROW_GROUPS, List(footer[_FILE_ROW_GROUPS].kind, []))
    return head


def _footer_bytes(head: Struct, groups: Sequence[bytes], rows: int) -> bytes:
    """A footer with its length and the mark of the end of a file."""
    footer = Struct(dict(head.fields))
    footer.replace(_FILE_ROWS, rows)
    footer.replace(_FILE_ROW_GROUPS, List(head[_FILE_ROW_GROUPS].kind, list(groups)))
    content = _encode(footer)
    return content + struct.pack("<I", len(content)) + _MAGIC


def _encode(value: Struct) -> bytes:
    content = bytearray()
    write_struct(value, content)
    return bytes(content)


def _sum_bytes(file: int, length: int) -> int:
    """The CRC-32 of the first bytes of a file."""
    checksum = at = 0
    while at < length:
        block = os.pread(file, min(_BLOCK, length - at), at)
        if not block:
            raise ValueError("the file ends early")
        checksum, at = zlib.crc32(block, checksum), at + len(block)
    return checksum


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


def _moved_groups(footer: Struct, count: int, distance: int) -> list[bytes]:
    """The row groups of a part whose pages have been moved, for a file that has `count` of them."""
    groups: List = footer[_FILE_ROW_GROUPS]
    for ordinal, group in enumerate(groups.items, count):
        group.shift((_GROUP_OFFSET,), distance)
        for chunk in group[_GROUP_COLUMNS].items:
            chunk.shift(_CHUNK_OFFSETS, distance)
            chunk[_CHUNK_METADATA].shift(_METADATA_OFFSETS, distance)
        if _GROUP_ORDINAL in group.fields:
            group.replace(_GROUP_ORDINAL, ordinal)
    return [_encode(group) for group in groups.items]


def _offsets(group: Struct) -> list[int]:
    """Where the pages of a row group begin, by column."""
    metadata = [chunk[_CHUNK_METADATA] for chunk in group[_GROUP_COLUMNS].items]
    return [
        min(meta[number] for number in _PAGE_OFFSETS if meta.fields.get(number, (0, 0))[1] > 0) for meta in metadata
    ]

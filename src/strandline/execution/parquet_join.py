"""Several Parquet files of one schema joined into one, without reading a row.

The data pages of the parts are copied one part after the other; the footers become one, whose offsets are moved by
where each part has come to lie. A footer is a structure in Thrift's compact protocol, which is read and written here as
a tree of fields: what is not known is copied as it is.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_MAGIC: Final = b"PAR1"
_BLOCK: Final = 2**20

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Fields of the footer that matter here, by structure.
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_OFFSETS = (2, 4, 6)  # of the chunk, its offset index, its column index
_CHUNK_METADATA = 3
_METADATA_OFFSETS = (9, 10, 11, 14)  # of data pages, index page, dictionary page, Bloom filter


@dataclass(slots=True)
class Struct:
    """The fields of a structure, by number: type and value."""

    fields: dict[int, tuple[int, Any]]

    def __getitem__(self, number: int) -> Any:
        return self.fields[number][1]

    def replace(self, number: int, value: Any) -> None:
        self.fields[number] = self.fields[number][0], value

    def shift(self, numbers: Sequence[int], distance: int) -> None:
        for number in numbers:
            if number in self.fields and self[number] > 0:
                self.replace(number, self[number] + distance)


@dataclass(slots=True)
class List:
    kind: int
    items: list[Any]


def join_parquet(parts: Sequence[Path], target: Path) -> tuple[int, int]:
    """Write the rows of all parts to `target` and sync it; returns its size and its CRC-32."""
    with open(target, "wb", buffering=0) as out:
        checksum = zlib.crc32(_MAGIC)
        at = _write(out.write, _MAGIC)
        whole: Struct | None = None
        for part in parts:
            with open(part, "rb", buffering=0) as file:
                footer, body_end = _read_footer(file.fileno())
                distance = at - len(_MAGIC)
                os.lseek(file.fileno(), len(_MAGIC), os.SEEK_SET)
                left = body_end - len(_MAGIC)
                while left:
                    block = file.read(min(_BLOCK, left))
                    checksum = zlib.crc32(block, checksum)
                    at += _write(out.write, block)
                    left -= len(block)
            whole = _append(whole, footer, distance)
        assert whole is not None, "there is something to join"
        content = bytearray()
        _write_struct(whole, content)
        tail = bytes(content) + struct.pack("<I", len(content)) + _MAGIC
        checksum = zlib.crc32(tail, checksum)
        at += _write(out.write, tail)
        os.fsync(out.fileno())
    return at, checksum


def _write(write: Callable[[bytes | memoryview], int], data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[write(left) :]
    return len(data)


def _read_footer(file: int) -> tuple[Struct, int]:
    """The footer of a file, and where its data ends."""
    size = os.fstat(file).st_size
    tail = os.pread(file, 8, size - 8)
    (length,) = struct.unpack("<I", tail[:4])
    assert tail[4:] == _MAGIC, "a part was written whole"
    return _Reader(os.pread(file, length, size - 8 - length)).read_struct(), size - 8 - length


def _append(whole: Struct | None, footer: Struct, distance: int) -> Struct:
    groups: List = footer[_FILE_ROW_GROUPS]
    for group in groups.items:
        group.shift((_GROUP_OFFSET,), distance)
        for chunk in group[_GROUP_COLUMNS].items:
            chunk.shift(_CHUNK_OFFSETS, distance)
            chunk[_CHUNK_METADATA].shift(_METADATA_OFFSETS, distance)
    if whole is None:
        return footer
    together: List = whole[_FILE_ROW_GROUPS]
    for group in groups.items:
        if _GROUP_ORDINAL in group.fields:
            group.replace(_GROUP_ORDINAL, len(together.items))
        together.items.append(group)
    whole.replace(_FILE_ROWS, whole[_FILE_ROWS] + footer[_FILE_ROWS])
    return whole


# The compact protocol


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read_struct(self) -> Struct:
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while (head := self._byte()) != 0:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            fields[number] = kind, (kind == _TRUE) if kind in (_TRUE, _FALSE) else self._value(kind)
        return Struct(fields)

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # in a list; a field has a truth value in its head
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._unsigned())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 != 15 else self._unsigned()
                return List(head & 15, [self._value(head & 15) for _ in range(count)])
            case 12:
                return self.read_struct()
        raise AssertionError(f"a footer has no field of type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def _write_struct(value: Struct, out: bytearray) -> None:
    last = 0
    for number, (kind, content) in sorted(value.fields.items()):
        if kind in (_TRUE, _FALSE):
            kind = _TRUE if content else _FALSE
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_signed(number, out)
        if kind not in (_TRUE, _FALSE):
            _write_value(kind, content, out)
        last = number
    out.append(0)


def _write_value(kind: int, value: Any, out: bytearray) -> None:
    match kind:
        case 1 | 2 | 3:
            out.append(value)
        case 4 | 5 | 6:
            _write_signed(value, out)
        case 7:
            out += value
        case 8:
            _write_unsigned(len(value), out)
            out += value
        case 9 | 10:
            if len(value.items) < 15:
                out.append(len(value.items) << 4 | value.kind)
            else:
                out.append(15 << 4 | value.kind)
                _write_unsigned(len(value.items), out)
            for item in value.items:
                _write_value(value.kind, item, out)
        case _:
            _write_struct(value, out)


def _write_unsigned(value: int, out: bytearray) -> None:
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_signed(value: int, out: bytearray) -> None:
    _write_unsigned(value << 1 if value >= 0 else (-value << 1) - 1, out)

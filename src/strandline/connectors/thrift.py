"""Thrift's compact protocol, read and written as a tree of fields: enough for footers of Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_LONGEST = 10  # bytes of a number


@dataclass(slots=True)
class Struct:
    """The fields of a structure, by number: type and value."""

    fields: dict[int, tuple[int, Any]]

    def __getitem__(self, number: int) -> Any:
        return self.fields[number][1]

    def get(self, number: int, default: Any = None) -> Any:
        return self[number] if number in self.fields else default

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


def read_struct(data: bytes) -> Struct:
    """The structure at the beginning of some bytes. Raises ValueError if they are none."""
    return read_struct_at(data, 0)[0]


def read_struct_at(data: bytes | mmap, at: int) -> tuple[Struct, int]:
    """The structure at a place in some bytes, and where it ends. Raises ValueError if there is none."""
    reader = _Reader(data, at)
    try:
        return reader.read_struct(), reader.at
    except (IndexError, RecursionError):
        raise ValueError("not a structure of the Thrift compact protocol") from None


class _Reader:
    def __init__(self, data: bytes | mmap, at: int) -> None:
        self.data, self.at = data, at

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
        raise ValueError(f"unsupported Thrift field type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError(f"a Thrift number of more than {_LONGEST} bytes")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def write_struct(value: Struct | bytes, out: bytearray) -> None:
    """Append a structure; one that was written before may come as its bytes."""
    if isinstance(value, bytes):
        out += value
        return
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
            write_struct(value, out)


def _write_unsigned(value: int, out: bytearray) -> None:
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_signed(value: int, out: bytearray) -> None:
    _write_unsigned(value << 1 if value >= 0 else (-value << 1) - 1, out)

"""Text to records: the lines of JSON, the records of CSV; and which of them are no text at all.

Where a record ends depends on the bytes before it and on at most `QUOTED_SPAN` bytes and a line after it, never on how
the content was cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.batch import Index, Mask
from strandline.runtime.kernels.records import OVERLONG, UNCLOSED, quoted_records

QUOTED_SPAN: Final = 2**20  # bytes from the start of a record within which a quoted field may go over line breaks
_LINE_FEED: Final = 10
_CARRIAGE_RETURN: Final = 13
_GROUP: Final = 512  # records that are decoded together where some are no UTF-8


@dataclass(frozen=True, slots=True)
class Records:
    """Complete records of some data, from its first byte on: where each ends, with its line break, and whether it is
    the beginning of a quoted field that is never closed, or a line that is too long."""

    ends: Index
    unclosed: Mask
    overlong: Mask

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def end(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def starts(self) -> Index:
        return np.concatenate((np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]))


def split(data: bytes, delimiter: str | None, longest_line: int, final: bool) -> Records:
    """Records of data that begins with one. Without `final` more may follow, and an incomplete record is left out.

    Lines end with a line feed, a carriage return, or both. With a `delimiter` of fields a record continues over
    line breaks in quotes.
    """
    array = np.frombuffer(data, np.uint8)
    if delimiter is not None and b'"' in data:
        ends, flags = quoted_records(array, ord(delimiter), longest_line, QUOTED_SPAN, final)
        return Records(ends, flags == UNCLOSED, flags == OVERLONG)
    ends = _line_ends(data, array, final)
    if final and len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    records = Records(ends, np.zeros(len(ends), np.bool_), np.zeros(len(ends), np.bool_))
    if len(data) <= longest_line:
        return records
    lengths = ends - records.starts
    if not len(lengths) or lengths.max() <= longest_line:
        return records
    has_break = np.isin(array[ends - 1], (_LINE_FEED, _CARRIAGE_RETURN))
    crlf = (lengths > 1) & (array[ends - 1] == _LINE_FEED) & (array[np.maximum(ends - 2, 0)] == _CARRIAGE_RETURN)
    return Records(ends, records.unclosed, lengths - has_break - crlf > longest_line)


def _line_ends(data: bytes, array: npt.NDArray[np.uint8], final: bool) -> Index:
    ends: Index = np.flatnonzero(array == _LINE_FEED) + 1
    if b"\r" not in data:
        return ends
    returns = np.flatnonzero(array == _CARRIAGE_RETURN)
    if returns[-1] == len(data) - 1 and not final:
        returns = returns[:-1]  # a line feed may follow
    following = np.append(array, 0)[returns + 1]
    alone = returns[following != _LINE_FEED] + 1
    return np.sort(np.concatenate((ends, alone))) if len(alone) else ends


def too_long(longest_line: int) -> str:
    """The reason for which an overlong line is rejected."""
    return f"a line of more than {longest_line:,} bytes"


def not_text(data: bytes, records: Records) -> Mask:
    broken = np.zeros(len(records), np.bool_)
    if data.isascii() or _is_text(data):
        return broken
    starts, ends = records.starts.tolist(), records.ends.tolist()
    for first in range(0, len(ends), _GROUP):
        last = min(first + _GROUP, len(ends))
        if not _is_text(data[starts[first] : ends[last - 1]]):
            for number in range(first, last):
                broken[number] = not _is_text(data[starts[number] : ends[number]])
    return broken


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def blank(data: bytes, records: Records) -> Mask:
    """Mask of records that are empty lines: only a line break, or the end of the data."""
    first = np.frombuffer(data, np.uint8)[records.starts]
    empty: Mask = (first == _LINE_FEED) | (first == _CARRIAGE_RETURN)
    return empty


def keep(data: bytes, records: Records, chosen: Mask) -> bytes:
    """The bytes of some records, one after the other."""
    if chosen.all():
        return data[: records.end]
    marks = np.repeat(chosen, records.ends - records.starts)
    return np.frombuffer(data, np.uint8, count=records.end)[marks].tobytes()


def record_bytes(data: bytes, records: Records, number: int) -> bytes:
    start = int(records.ends[number - 1]) if number else 0
    return data[start : int(records.ends[number])].rstrip(b"\r\n")

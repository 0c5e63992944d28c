"""The meaning of window functions over the rows of one partition in their order: slow and obvious."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.core.temporal import Instant
from strandline.functions.aggregates import aggregate, compare_rows
from strandline.logical.expressions import Frame, SortKey, Value, WindowCall

Timed = tuple[Instant, Mapping[str, Value]]  # a row with its time


def call_value(call: WindowCall, rows: Sequence[Timed], at: int, order: Sequence[SortKey]) -> Value:
    """The value of a window function for the row at a place of its partition; `order` is that within an instant."""
    peers = [place for place in range(len(rows)) if _are_peers(rows[place], rows[at], order)]
    match call.function:
        case "row_number":
            return at + 1
        case "rank":
            return peers[0] + 1
        case "dense_rank":
            before = range(1, peers[0] + 1)
            return 1 + sum(not _are_peers(rows[place], rows[place - 1], order) for place in before)
    in_frame = [rows[place][1] for place in _places(call.frame, rows, at, peers)]
    if call.call is not None:
        return aggregate(call.call, in_frame)
    assert call.argument is not None
    name = call.argument.id

    def values(places: Any) -> list[Value]:
        read = [row[name] for row in places]
        return [value for value in read if value is not None] if call.ignores_nulls else read

    otherwise = None if call.default is None else rows[at][1][call.default.id]
    match call.function:
        case "lag":
            if call.offset == 0:
                return rows[at][1][name]
            before_it = values(row for _, row in rows[:at])
            return before_it[-call.offset] if len(before_it) >= call.offset else otherwise
        case "lead":
            if call.offset == 0:
                return rows[at][1][name]
            after_it = values(row for _, row in rows[at + 1 :])
            return after_it[call.offset - 1] if len(after_it) >= call.offset else otherwise
        case "first_value" | "nth_value":
            read = values(in_frame)
            return read[call.offset - 1] if len(read) >= call.offset else None
        case "last_value":
            read = values(in_frame)
            return read[-1] if read else None
    raise AssertionError(f"{call.function} is no window function")


def _are_peers(one: Timed, two: Timed, order: Sequence[SortKey]) -> bool:
    return one[0] == two[0] and compare_rows(order, one[1], two[1]) == 0


def _places(frame: Frame, rows: Sequence[Timed], at: int, peers: Sequence[int]) -> list[int]:
    """The places of the rows of a frame, in order."""

    def is_within(place: int) -> bool:
        after_start = frame.start is None or _compare(place, frame.start) >= 0
        return after_start and (frame.end is None or _compare(place, frame.end) <= 0)

    def _compare(place: int, bound: int) -> int:
        """Negative if a row lies before a bound of the frame, positive if behind it."""
        if frame.unit == "rows":
            return place - (at + bound)
        if bound == 0:
            return 0 if place in peers else place - at
        return rows[place][0] - (rows[at][0] + bound)

    return [place for place in range(len(rows)) if is_within(place)]

"""Time zones over columns: the transitions of a zone as arrays, found once.

The rules are those of `zoneinfo`, which has the offset at an instant and not the instants at which it changes. These
are searched for, day by day where clocks were changed at will, else week by week. From 2037 on the rules of every zone
repeat with the calendar, after 400 years, which are whole weeks.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Instants: TypeAlias = npt.NDArray[np.int64]

_SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS: Final = ((1840, 1900, 7), (1900, 2040, 1), (2040, 2440, 7))  # from a year to a year by days
_CYCLE: Final = 146_097 * 86_400 * _SECOND  # 400 years
_LAST: Final = (datetime(2440, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def to_local(zone: str, instants: Instants) -> Instants:
    """The local times of instants, in microseconds since 1970."""
    starts, offsets = transitions(zone)
    folded = _folded(instants)
    local: Instants = instants + offsets[np.searchsorted(starts, folded, "right") - 1]
    return local


def to_utc(zone: str, local: Instants) -> Instants:
    """The instants of local times. A time that does not exist, since clocks are put forward, counts by the offset
    before; one that exists twice, since they are put back, by the offset after. So a new offset begins in local time
    when its clocks show it for the first time."""
    starts, offsets = transitions(zone)
    instants: Instants = local - offsets[np.searchsorted(starts + offsets, _folded(local), "right") - 1]
    return instants


def _folded(times: Instants) -> Instants:
    """Times after the table, moved back into it by whole cycles."""
    late = times >= _LAST
    return np.where(late, times - ((times - _LAST) // _CYCLE + 1) * _CYCLE, times) if late.any() else times


@cache
def transitions(zone: str) -> tuple[Instants, Instants]:
    """When the offset of a zone from UTC changes, and the offset from then on; the first is there from the start."""
    rules = ZoneInfo(zone)

    def offset(second: int) -> int:
        shift = datetime.fromtimestamp(second, rules).utcoffset()
        assert shift is not None, "a zone has an offset at every instant"
        return shift // timedelta(microseconds=1)

    seconds = [
        int((datetime(first, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) + day * 86_400
        for first, end, step in _STEPS
        for day in range(0, (datetime(end, 1, 1) - datetime(first, 1, 1)).days, step)
    ]
    before = offset(seconds[0])
    starts, offsets = [np.iinfo(np.int64).min // 2], [before]
    for begin, high in itertools.pairwise(seconds):
        low, after = begin, offset(high)
        while after != before:
            first, last = low, high  # the first change in between; there may be another one
            while last - first > 1:
                middle = (first + last) // 2
                first, last = (middle, last) if offset(middle) == before else (first, middle)
            before = offset(last)
            starts.append(last * _SECOND)
            offsets.append(before)
            low = last
    return np.array(starts, np.int64), np.array(offsets, np.int64)

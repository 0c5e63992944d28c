"""Instants and half-open intervals.

Time is int64 microseconds since the epoch (UTC); a chronon is one microsecond. An element is valid on
`[valid_from, valid_until)`; `FOREVER` as the end means that it never ends (NULL in results), `OPEN` that its end is not
known yet.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

Instant = int  # microseconds since the epoch

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

UNITS: Final[dict[str, int]] = {
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": MILLISECOND,
    "SECOND": SECOND,
    "MINUTE": MINUTE,
    "HOUR": HOUR,
    "DAY": DAY,
    "WEEK": WEEK,
}

# Units as people shorten them. A month has no fixed length, so m is a minute.
SHORT_UNITS: Final[dict[str, int]] = {
    **dict.fromkeys(("US", "µS", "USEC", "USECS"), MICROSECOND),
    **dict.fromkeys(("MS", "MSEC", "MSECS", "MILLI", "MILLIS"), MILLISECOND),
    **dict.fromkeys(("S", "SEC", "SECS"), SECOND),
    **dict.fromkeys(("M", "MIN", "MINS"), MINUTE),
    **dict.fromkeys(("H", "HR", "HRS"), HOUR),
    "D": DAY,
    "W": WEEK,
}

FOREVER: Final[Instant] = 2**63 - 1
OPEN: Final[Instant] = FOREVER - 1
BEFORE_ALL: Final[Instant] = -(2**63)

# A row with a time outside of these is rejected: such values are sentinels or wrong units, and one of them would push
# the watermark of its stream past every valid row. The bounds do not depend on a clock, so a replay agrees.
EARLIEST: Final[Instant] = -9_214_560_000 * SECOND  # 1678-01-01
LATEST: Final[Instant] = 9_214_646_400 * SECOND  # 2262-01-01
# Since when what was there before a query began counts as valid: before every row of a stream.
ALWAYS: Final[Instant] = EARLIEST - 1
# The instant of what a stream leaves behind when it has ended: after every row of a stream.
AFTER_ALL: Final[Instant] = LATEST
# An interval may end later than it may start: the end pushes nothing, and 9999-12-31 is a common word for "open".
LAST_END: Final[Instant] = 253_402_300_800 * SECOND  # 10000-01-01

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(moment: datetime | str | int) -> Instant:
    """Microseconds since the epoch of a datetime (naive means UTC), an ISO text, or microseconds themselves."""
    if isinstance(moment, bool):
        raise TypeError("an instant must be a datetime, an ISO 8601 text or microseconds, not a boolean")
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def unit_size(word: str) -> int | None:
    """The microseconds of a unit in singular or plural or shortened, in any case; None for anything else."""
    upper = word.upper().replace("Μ", "µ")  # the upper case of µ is a Greek letter
    return UNITS.get(upper) or UNITS.get(upper.removesuffix("S")) or SHORT_UNITS.get(upper)


def to_datetime(at: Instant) -> datetime:
    """The UTC datetime of an instant; only for instants that a datetime can hold."""
    return _EPOCH + timedelta(microseconds=at)


def show_instant(at: Instant) -> str:
    """An instant as text, for plans, messages and metrics."""
    if at >= FOREVER:
        return "forever"
    if at <= BEFORE_ALL:
        return "never"
    try:
        return to_datetime(at).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    except OverflowError:
        return f"{at}us"


def show_duration(span: int) -> str:
    """A duration in the largest unit that divides it, as in `10 MINUTES`."""
    for name, size in sorted(UNITS.items(), key=lambda unit: -unit[1]):
        if name != "WEEK" and span % size == 0 and span >= size:
            count = span // size
            return f"{count} {name}{'' if count == 1 else 'S'}"
    return f"{span} MICROSECONDS"


def round_up(span: int) -> int:
    """A duration of at least this length that reads well: a whole number of the largest unit of which it has two."""
    for size in (DAY, HOUR, MINUTE, SECOND, MILLISECOND):
        if span >= 2 * size:
            return -(-span // size) * size
    return span

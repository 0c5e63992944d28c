"""Update patterns: what is known of the end of an element when it is sent.

After Golab and Özsu, "Update-pattern-aware modeling and processing of continuous queries" (2005), sections 3 and 5.2,
with two corrections. A union of windows of different lengths is not first in first out, so it is weak. Grouping, which
they call weak because a new aggregate takes the place of the old one, is strict: here an element has an end, and that
of an aggregate is not known before the next one comes. So are count windows, which they leave out.

`planner/physical/operators.py` has the operators. A pattern is a promise about the elements that an edge really
carries. Where it cannot be seen from the operators alone it is not given, though it may hold by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from strandline.core.temporal import FOREVER

CHRONON: Final = 1


class UpdatePattern(Enum):
    """How the elements of an edge leave; the first that holds.

    MONOTONIC   they are valid for one instant, as the rows of a log, or they never end: nothing has to be taken back
    WEAKEST     the end is known when an element is sent, and elements end in the order in which they start
    WEAK        the end is known when an element is sent
    STRICT      what comes later may end it
    """

    MONOTONIC = "MON"
    WEAKEST = "WKS"
    WEAK = "WK"
    STRICT = "STR"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The pattern of an edge; and how long its elements are valid in microseconds, if all are valid equally long."""

    pattern: UpdatePattern
    duration_us: int | None = None


INSTANTS: Final = Lifetimes(UpdatePattern.MONOTONIC, CHRONON)
ENDLESS: Final = Lifetimes(UpdatePattern.MONOTONIC, FOREVER)
IN_ORDER: Final = Lifetimes(UpdatePattern.WEAKEST)
KNOWN: Final = Lifetimes(UpdatePattern.WEAK)
UNKNOWN: Final = Lifetimes(UpdatePattern.STRICT)


def lasting(duration_us: int) -> Lifetimes:
    """Elements that are all valid for so long."""
    return INSTANTS if duration_us == CHRONON else Lifetimes(UpdatePattern.WEAKEST, duration_us)


def windowed(source: Lifetimes, range_us: int | None, slide_us: int) -> Lifetimes:
    """Both ends of an element grow with its time, whatever is below. Rounded to the slide they move by the same amount
    if the range is a multiple of it."""
    if source == UNKNOWN:
        return UNKNOWN
    if range_us is None:
        return ENDLESS
    return lasting(range_us) if range_us % slide_us == 0 else IN_ORDER


def aligned(source: Lifetimes, granule_us: int) -> Lifetimes:
    """Both ends are rounded up, which keeps their order."""
    if source.duration_us is None or source == ENDLESS:
        return source
    return lasting(source.duration_us) if source.duration_us % granule_us == 0 else IN_ORDER


def merged(inputs: Sequence[Lifetimes]) -> Lifetimes:
    """Elements of all inputs: in order if all are valid equally long."""
    if inputs[0].duration_us is not None and all(each == inputs[0] for each in inputs):
        return inputs[0]
    return UNKNOWN if UNKNOWN in inputs else KNOWN


def meeting(inputs: Sequence[Lifetimes]) -> Lifetimes:
    """Parts of elements, valid while all of some are: they start later than these, and may end in any order."""
    if all(each == inputs[0] for each in inputs) and inputs[0].pattern is UpdatePattern.MONOTONIC:
        return inputs[0]
    return UNKNOWN if UNKNOWN in inputs else KNOWN

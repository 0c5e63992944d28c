"""The meaning of a change feed: the elements of its rows, one row after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from strandline.core.temporal import FOREVER, Instant
from strandline.logical.change_feed import SIGNS, ChangeFeed
from strandline.logical.expressions import Value
from strandline.logical.reference.interpreter import Element, bag


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """An accepted row: its time, its operation, and its other columns."""

    time: Instant
    op: str
    values: Mapping[str, Value]

    @property
    def sign(self) -> int:
        return SIGNS[self.op.lower()]


@dataclass(slots=True)
class FoldedFeed:
    """The elements of a feed, and the numbers of the rows that delete what is not there."""

    elements: list[Element] = field(default_factory=list)
    unmatched: list[int] = field(default_factory=list)


def fold_changes(rows: Sequence[ChangeRow], feed: ChangeFeed) -> FoldedFeed:
    """Elements begin with an insertion, and end with the deletion of an equal row or, with a key, with the next change
    of the key; `rows` are in order of arrival.

    Without a key, what happens to equal rows at one instant counts as a sum: if it is negative and fewer are there, the
    last deletions are unmatched. Of equal rows the oldest ends first. With a key the rows of an instant count in their
    order of arrival, and the last decides.

    A result begins with the first row of any stream. If that one makes no element, an element that is never valid
    stands for it.
    """
    folded = FoldedFeed()
    live: dict[str, list[Element]] = {}
    by_time = sorted(range(len(rows)), key=lambda number: rows[number].time)
    for time, numbers in groupby(by_time, key=lambda number: rows[number].time):
        (_fold_keys if feed.key else _fold_rows)(rows, feed, time, list(numbers), live, folded)
    folded.elements += [element for elements in live.values() for element in elements]
    if rows and min((e.time for e in folded.elements), default=FOREVER) > (first := rows[by_time[0]]).time:
        folded.elements.append(Element(first.time, first.values, first.time))
    return folded


def _fold_rows(
    rows: Sequence[ChangeRow],
    feed: ChangeFeed,
    time: Instant,
    numbers: list[int],
    live: dict[str, list[Element]],
    folded: FoldedFeed,
) -> None:
    for payload in dict.fromkeys(_identity(rows[number], feed) for number in numbers):
        mine = [number for number in numbers if _identity(rows[number], feed) == payload]
        elements = live.setdefault(payload, [])
        net = sum(rows[number].sign for number in mine)
        values = next((rows[number].values for number in mine if rows[number].sign > 0), {})
        elements += [Element(time, values, FOREVER) for _ in range(net)]
        missing = max(0, -net - len(elements))
        folded.elements += [Element(e.time, e.values, time) for e in elements[: max(0, -net)]]
        del elements[: max(0, -net)]
        deletions = [number for number in mine if rows[number].sign < 0]
        folded.unmatched += deletions[len(deletions) - missing :]


def _fold_keys(
    rows: Sequence[ChangeRow],
    feed: ChangeFeed,
    time: Instant,
    numbers: list[int],
    live: dict[str, list[Element]],
    folded: FoldedFeed,
) -> None:
    for key in dict.fromkeys(_identity(rows[number], feed) for number in numbers):
        before = live.get(key, [])
        after = before
        for number in (number for number in numbers if _identity(rows[number], feed) == key):
            if rows[number].sign > 0:
                after = [Element(time, rows[number].values, FOREVER)]
            elif after:
                after = []
            else:
                folded.unmatched.append(number)
        if [bag([tuple(e.values.values())]) for e in before] != [bag([tuple(e.values.values())]) for e in after]:
            folded.elements += [Element(e.time, e.values, time) for e in before]
            live[key] = after


def _identity(row: ChangeRow, feed: ChangeFeed) -> str:
    return str(bag([tuple(row.values[name] for name in feed.key or row.values)]))

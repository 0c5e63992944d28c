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
    fold = _fold_key if feed.key else _fold_row
    for time, group in groupby(by_time, key=lambda number: rows[number].time):
        numbers = list(group)
        for identity in dict.fromkeys(_identity(rows[number], feed) for number in numbers):
            mine = {number: rows[number] for number in numbers if _identity(rows[number], feed) == identity}
            live[identity] = fold(time, mine, live.get(identity, []), folded)
    folded.elements += [element for elements in live.values() for element in elements]
    if rows and min((e.time for e in folded.elements), default=FOREVER) > (first := rows[by_time[0]]).time:
        folded.elements.append(Element(first.time, first.values, first.time))
    return folded


def _fold_row(time: Instant, rows: Mapping[int, ChangeRow], before: list[Element], folded: FoldedFeed) -> list[Element]:
    """What is there after an instant, of rows that are all equal; ends are added to `folded`."""
    net = sum(row.sign for row in rows.values())
    if net >= 0:
        values = next((row.values for row in rows.values() if row.sign > 0), {})
        return before + [Element(time, values, FOREVER) for _ in range(net)]
    folded.elements += [Element(e.time, e.values, time) for e in before[:-net]]
    deletions = [number for number, row in rows.items() if row.sign < 0]
    folded.unmatched += deletions[len(deletions) - max(0, -net - len(before)) :]
    return before[-net:]


def _fold_key(time: Instant, rows: Mapping[int, ChangeRow], before: list[Element], folded: FoldedFeed) -> list[Element]:
    """The same of rows with one key."""
    after = before
    for number, row in rows.items():
        if row.sign > 0:
            after = [Element(time, row.values, FOREVER)]
        elif after:
            after = []
        else:
            folded.unmatched.append(number)
    contents = [[bag([tuple(e.values.values())]) for e in elements] for elements in (before, after)]
    if contents[0] == contents[1]:
        return before
    folded.elements += [Element(e.time, e.values, time) for e in before]
    return after


def _identity(row: ChangeRow, feed: ChangeFeed) -> str:
    return str(bag([tuple(row.values[name] for name in feed.key or row.values)]))

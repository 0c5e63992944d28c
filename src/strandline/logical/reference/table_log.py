"""The meaning of a table's log for a query: the elements of its changes, one change after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.core.temporal import FOREVER, Instant
from strandline.logical.expressions import Value
from strandline.logical.reference.interpreter import Element


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A row of a log: the insertion of a row, or the deletion of the one that was inserted at position `id`.

    `at` is its instant. `counts_from` is its instant for queries that begin later: a change by the clock counts then as
    if it had been made at the last given time before it, or always.
    """

    id: int
    values: Mapping[str, Value]
    is_end: bool
    at: Instant
    counts_from: Instant


def elements_of_log(changes: Iterable[LoggedChange], base: int) -> list[Element]:
    """Elements begin with the insertion of a row and end with its deletion; what is left never ends.

    `base` is the end of the log when the query began. Elements that are never valid are left out.
    """
    live: dict[int, Element] = {}
    ended: list[Element] = []
    for position, change in enumerate(changes):
        at = change.counts_from if position < base else change.at
        if change.is_end:
            begun = live.pop(change.id)
            ended += [Element(begun.time, begun.values, at)] if begun.time < at else []
        else:
            live[change.id] = Element(at, change.values, FOREVER)
    return [*ended, *live.values()]

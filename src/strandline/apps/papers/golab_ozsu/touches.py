"""Tuples that a strategy touches: what the paper's buffers and operators cost, by their sizes at every arrival.

- A **list** in order of arrival: inserting touches one tuple, a look at its head one, an end one. Where ends come in
  another order, finding them touches every tuple. A search by value finds its tuple halfway on average.
- **Partitions** by end, each in order of ends: inserting touches half of a partition, an end one tuple, a look at the
  head one; a search by value touches half of all.
- A **hash table** with ten slots, as many as there are partitions by default (the paper gives no number): inserting
  touches one tuple, a search half of a slot.

Operators probe as the paper's cost formulas say, whatever the strategy: a join reads all of the other input, a distinct
searches its output, a negation finds its counters by binary search. Strategies differ in what they store, in how they
find what ends, and in the negative tuples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.apps.papers.golab_ozsu.results import DistinctOutput, Elements, Negation, count_between
from strandline.apps.papers.golab_ozsu.trace import Integers

LAZY: Final = 0.05  # of a window, between two expirations of a state that may wait
SLOTS: Final = 10


def half(sizes: Integers) -> float:
    """Touches of successful searches in buffers of these sizes."""
    return float((sizes + 1).sum()) / 2


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """The time in which touches are counted, [begin, end), and the length of the windows."""

    begin: int
    end: int
    window: int

    def within(self, times: Integers) -> npt.NDArray[np.bool_]:
        return (times >= self.begin) & (times < self.end)

    def starting(self, rows: Elements) -> Elements:
        return rows.where(self.within(rows.start))

    def ending(self, rows: Elements) -> Elements:
        return rows.where(self.within(rows.end))

    @property
    def lazy(self) -> int:
        return max(1, int(self.window * LAZY))

    def lazy_runs(self) -> Integers:
        return np.arange(-(-self.begin // self.lazy), -(-self.end // self.lazy), dtype=np.int64) * self.lazy

    def lazy_count(self, rows: Elements, times: Integers) -> Integers:
        """Size of a buffer from which ended tuples are removed in lazy runs only."""
        return count_between(np.sort(rows.start), np.sort(rows.end), times, times // self.lazy * self.lazy)

    def mean_size(self, *buffers: Elements, lazy: bool = False) -> float:
        times = np.linspace(self.begin, self.end - 1, 200).astype(np.int64)
        sizes = (self.lazy_count(rows, times) if lazy else rows.count_at(times) for rows in buffers)
        return float(sum(size.mean() for size in sizes))

    # ---- windows and stateless operators -----------------------------------------------------------------------------

    def window_touches(self, *links: Elements) -> float:
        """Windows of the negative tuple approach: every tuple is inserted, ends, and looks for what ends."""
        return sum(2.0 * len(self.starting(link)) + len(self.ending(link)) for link in links)

    def filter_touches(self, link: Elements, negative: bool) -> float:
        return float(len(self.starting(link)) + (len(self.ending(link)) if negative else 0))

    # ---- results -----------------------------------------------------------------------------------------------------

    def view_in_hash(self, view: Elements) -> float:
        """Every result ends by a negative tuple."""
        return len(self.starting(view)) + self.search_hash(view, self.ending(view))

    def view_in_list(self, view: Elements, updates: Integers) -> float:
        """Every update reads all of it for what has ended."""
        return float(len(self.starting(view)) + view.count_at(updates[self.within(updates)]).sum())

    def view_in_partitions(self, view: Elements, updates: Integers, partitions: int) -> float:
        looks = int(self.within(updates).sum())
        return self.insert_in_partitions(view, view.end, partitions) + len(self.ending(view)) + looks

    def insert_in_partitions(self, rows: Elements, due: Integers, partitions: int) -> float:
        """Every tuple finds its place among those that are due in the same part of the window."""
        touches = 0.0
        for part in _groups(rows, due // max(1, self.window // partitions)):
            touches += half(part.count_at(self.starting(part).start))
        return touches

    def search_hash(self, rows: Elements, searched: Elements) -> float:
        """Searches for tuples of a hash table at their ends."""
        touches = 0.0
        for slot in range(SLOTS):
            times = searched.end[searched.key % SLOTS == slot]
            touches += half(rows.where(rows.key % SLOTS == slot).count_at(times - 1))
        return touches

    # ---- joins -------------------------------------------------------------------------------------------------------

    def join_negative(self, left: Elements, right: Elements) -> float:
        """Positive and negative tuples read the other input; negative ones search their own."""
        touches = 0.0
        for own, other in ((left, right), (right, left)):
            come, gone = self.starting(own), self.ending(own)
            touches += len(come) + other.count_at(come.start).sum() + other.count_at(gone.end).sum()
            touches += self.search_hash(own, gone)
        return touches

    def join_lists(self, left: Elements, right: Elements, in_order: bool = True) -> float:
        """Arrivals read the other input with what has ended since the last lazy run."""
        touches = 0.0
        for own, other in ((left, right), (right, left)):
            come = self.starting(own)
            touches += len(come) + self.lazy_count(other, come.start).sum()
            touches += len(self.ending(own)) if in_order else self.lazy_count(own, self.lazy_runs()).sum()
        return touches

    def join_shared(self, left: Elements, right: Elements) -> float:
        """The inputs are stored by the operators below."""
        pairs = ((left, right), (right, left))
        return float(sum(other.count_at(self.starting(own).start).sum() for own, other in pairs))

    # ---- duplicate elimination ---------------------------------------------------------------------------------------

    def _probe_output(self, rows: Elements, found: DistinctOutput) -> float:
        """An arrival searches its value in the output; in vain if it is new."""
        come = self.starting(rows).start
        fresh = self.starting(found.output.where(~found.replaces)).start
        return half(found.output.count_at(come)) + half(found.output.count_at(fresh)) - len(fresh)

    def distinct_negative(self, rows: Elements, found: DistinctOutput) -> float:
        """A negative tuple is removed from the input and searched in the output; if it was there, its slot of the
        input is read for another one."""
        gone, ended = self.ending(rows), self.ending(found.output)
        touches = len(self.starting(rows)) + self._probe_output(rows, found) + len(self.starting(found.output))
        touches += self.search_hash(rows, gone) + self.search_hash(found.output, gone)
        return touches + 2 * self.search_hash(rows, ended)

    def distinct_direct(self, rows: Elements, found: DistinctOutput) -> float:
        """An arrival reads the output for what has ended; for every ended tuple all of the input is read."""
        come, ended = self.starting(rows), self.ending(found.output)
        touches = len(come) + self._probe_output(rows, found) + len(self.starting(found.output))
        touches += found.output.count_at(come.start).sum() + self.lazy_count(rows, ended.end).sum()
        return float(touches + len(self.ending(rows)))

    def distinct_auxiliary(self, rows: Elements, found: DistinctOutput, partitions: int) -> float:
        """The operator δ*: a duplicate replaces the auxiliary tuple beside its output tuple, which follows when that
        ends. New values end last; those that follow find their place among the ends."""
        come, ended = self.starting(rows), self.ending(found.output)
        followers = found.output.where(found.replaces)
        touches = 2 * len(come) + self._probe_output(rows, found) + 2 * len(ended)
        width = max(1, self.window // partitions)
        for part in _groups(found.output, found.output.end // width):
            placed = self.starting(followers.where(followers.end // width == part.end[0] // width))
            touches += half(part.count_at(placed.start))
        return touches

    # ---- negation ----------------------------------------------------------------------------------------------------

    def _counters(self, left: Elements, right: Elements) -> float:
        """Counters of both inputs are found by binary search whenever a tuple comes or goes."""
        touches = 0.0
        for side in (left, right):
            updates = len(self.starting(side)) + len(self.ending(side))
            touches += updates * math.log2(max(2, len(np.unique(side.key))))
        return touches

    def negation_negative(self, left: Elements, right: Elements, found: Negation) -> float:
        touches = self._counters(left, right)
        for side in (left, right):
            touches += len(self.starting(side)) + self.search_hash(side, self.ending(side))
        probes = found.probes[self.within(found.probes)]
        return touches + half(left.count_at(probes) // SLOTS)

    def negation_direct(self, left: Elements, right: Elements, found: Negation, partitions: int | None = None) -> float:
        """Inputs are lists, the left one partitions if its ends are out of order. A probe searches the left input."""
        touches = self._counters(left, right)
        for side in (left, right):
            touches += 2 * len(self.starting(side)) + len(self.ending(side))
        if partitions is not None:
            touches += self.insert_in_partitions(left, left.end, partitions) - len(self.starting(left))
        return touches + half(left.count_at(found.probes[self.within(found.probes)]))

    def result_in_partitions(self, found: Negation, updates: Integers, partitions: int) -> float:
        """A result that ends early is searched in all partitions; the others end at the head."""
        ended, early = self.ending(found.result), self.ending(found.result.where(found.premature))
        touches = self.insert_in_partitions(found.result, found.due, partitions) + int(self.within(updates).sum())
        return touches + half(found.result.count_at(early.end - 1)) + len(ended) - len(early)


def _groups(rows: Elements, group: Integers) -> Iterator[Elements]:
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order])) + 1
    for part in np.split(order, bounds):
        if len(part):
            yield Elements(rows.key[part], rows.start[part], rows.end[part])

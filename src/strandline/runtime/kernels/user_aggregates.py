"""Merging states of user-defined aggregates: all of a segment into one (reduce), or each with all before it (scan).

The entries of a segment lie side by side, and the segments one after the other; none is empty. Neighbours are merged,
then the pairs, and so on, in all segments at once: so there are as many calls as the longest segment has bits, and the
work is that of one merge, or two, per entry. An entry is always merged with what follows it, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strandline.logical.udf import States
from strandline.runtime.kernels.batch import Index, Mask

Merge = Callable[[States, States], States]


def folded(states: States, sizes: Index, merge: Merge) -> States:
    """One state per segment: all of its entries merged, in order."""
    while sizes.max(initial=0) > 1:
        states, sizes = _Pairs.of(sizes).merged(states, merge), (sizes + 1) // 2
    return states


def running(states: States, sizes: Index, merge: Merge) -> States:
    """Each entry merged with all those before it in its segment."""
    if sizes.max(initial=0) <= 1:
        return states
    pairs = _Pairs.of(sizes)
    up_to_pair = running(pairs.merged(states, merge), (sizes + 1) // 2, merge)
    # A pair ends where its second entry does; the first entry follows the pair before, if there is one.
    follows = np.flatnonzero(pairs.is_first & pairs.has_second & (pairs.place > 0))
    begins = np.flatnonzero(pairs.is_first & pairs.has_second & (pairs.place == 0))
    following = up_to_pair.take(pairs.number[:0])
    if len(follows):
        following = merge(up_to_pair.take(pairs.number[follows] - 1), states.take(follows))
    where = pairs.number.copy()
    where[follows] = len(up_to_pair) + np.arange(len(follows))
    where[begins] = len(up_to_pair) + len(follows) + np.arange(len(begins))
    return up_to_pair.followed_by(following, states.take(begins)).take(where)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The entries of the segments two by two; of an odd number the last is a pair by itself."""

    place: Index  # of each entry in its segment
    number: Index  # of the pair of each entry
    is_first: Mask  # which entries begin a pair
    has_second: Mask  # which entries belong to a pair of two

    @staticmethod
    def of(sizes: Index) -> _Pairs:
        size = np.repeat(sizes, sizes)
        position = np.arange(len(size)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_first = position % 2 == 0
        return _Pairs(position, np.cumsum(is_first) - 1, is_first, ~is_first | (position + 1 < size))

    def merged(self, states: States, merge: Merge) -> States:
        """A state per pair."""
        first = np.flatnonzero(self.is_first & self.has_second)
        alone = np.flatnonzero(~self.has_second)
        pairs = merge(states.take(first), states.take(first + 1))
        if not len(alone):
            return pairs
        where = np.empty(len(first) + len(alone), np.int64)
        where[self.number[first]] = np.arange(len(first))
        where[self.number[alone]] = len(first) + np.arange(len(alone))
        return pairs.followed_by(states.take(alone)).take(where)

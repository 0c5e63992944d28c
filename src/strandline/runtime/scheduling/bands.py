"""Bands: the partial windows between neighbouring windows of several queries over one join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

SCHEDULED: Final = 16  # bands that are scheduled one by one at most; routing divides them among finer windows


@dataclass(frozen=True, slots=True)
class RoutedPairs:
    """Pairs in the order of their bands: the result of band i is the prefix `order[: ends[i]]`."""

    order: Ints
    ends: Ints

    def of_band(self, band: int) -> Ints:
        """The places of all pairs that belong to the window at the upper border of a band."""
        return self.order[: self.ends[band]]


@dataclass(frozen=True, slots=True)
class Bands:
    """Windows over one side of a join, ascending, each once, with the number of queries that use it.

    When the later row of a pair arrives, only the window over the other side counts, so each side has its own bands. A
    pair belongs to window w iff the distance of its times is less than w: an element is valid in [t, t + w).

        windows     w0      w1           w2
        distance  0 |-------)------------)
        band      0 : d < w0, 1 : w0 <= d < w1, 2 : w1 <= d < w2; 3 is in no window
    """

    windows: Ints
    queries: Ints

    @classmethod
    def of(cls, windows: Sequence[int] | Ints) -> Bands:
        """The bands of the windows of all queries, one entry per query, in any order."""
        borders, queries = np.unique(np.asarray(windows, dtype=np.int64), return_counts=True)
        if borders.size == 0 or borders[0] <= 0:
            raise AssertionError("a window is longer than nothing, and there is at least one")
        return cls(borders, queries.astype(np.int64))

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def widths(self) -> Ints:
        """Lengths of the partial windows."""
        return np.diff(self.windows, prepend=0)

    @property
    def widths_per_query(self) -> npt.NDArray[np.float64]:
        """For each band, the least width per completed query of the bands from it on, up to any later one.

        A wide band before a narrow one with many queries is worth as much as both together: bands are done in order.
        """
        width, queries = (np.concatenate(([0], np.cumsum(each))) for each in (self.widths, self.queries))
        sums = np.triu(width[None, 1:] - width[:-1, None]), np.triu(queries[None, 1:] - queries[:-1, None])
        quotients = np.divide(*sums, out=np.full(sums[0].shape, np.inf), where=sums[1] > 0)
        least: npt.NDArray[np.float64] = quotients.min(axis=1)
        return least

    def band_of(self, distance: Ints) -> Ints:
        """The band of each distance between the times of a pair; `len(self)` is beyond all windows."""
        return np.searchsorted(self.windows, distance, side="right")

    def band_of_window(self, windows: Sequence[int] | Ints) -> Ints:
        """The band that completes each of the windows: the query of band i reads bands 0 … i."""
        return np.searchsorted(self.windows, windows, side="left")

    def route(self, distance: Ints) -> RoutedPairs:
        """One stable sort by band; pairs beyond all windows come last, in no prefix."""
        band = self.band_of(distance).astype(np.uint16)  # few values: NumPy sorts small integers by radix
        ends = np.cumsum(np.bincount(band, minlength=len(self) + 1))[: len(self)]
        return RoutedPairs(np.argsort(band, kind="stable"), ends.astype(np.int64))

    def merge_narrow(self, most: int = SCHEDULED) -> Bands:
        """At most so many bands, by joining neighbours whose borders differ by the least factor; the smallest and the
        largest window stay borders."""
        windows, queries = self.windows.tolist(), self.queries.tolist()
        while len(windows) > max(most, 2):
            factors = [windows[i + 1] / windows[i] for i in range(1, len(windows) - 1)]
            at = 1 + int(np.argmin(factors))
            queries[at + 1] += queries[at]
            del windows[at], queries[at]
        return Bands(np.array(windows, dtype=np.int64), np.array(queries, dtype=np.int64))

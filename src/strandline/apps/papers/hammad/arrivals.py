"""Arrivals of two streams, and the pairs that new tuples make with older ones of the other stream.

Tuples arrive one by one at exponential intervals, or in bursts at one instant whose sizes are Pareto distributed. The
streams reach back for the largest window before the first new tuple. Values are uniform, so that a tuple matches a
share of those of the other stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.apps.papers.hammad.formulas import LARGEST
from strandline.core.temporal import SECOND
from strandline.runtime.scheduling.bands import Bands, Ints

SELECTIVITY: Final = 0.002
VALUES: Final = round(1 / SELECTIVITY)
LEFT, RIGHT = 0, 1
SLICE: Final = 4096  # tuples whose matches are routed at a time


@dataclass(frozen=True, slots=True)
class ArrivalModel:
    """Tuples per second of each stream, and the expected size of a burst; 1 is one tuple at a time."""

    rate: float
    burst: float = 1.0

    @property
    def shape(self) -> float:
        """α of the Pareto distribution with b = 1, whose mean α/(α - 1) is the expected size."""
        return self.burst / (self.burst - 1)

    def draw(self, random: np.random.Generator, until: float) -> Ints:
        """Microseconds of all arrivals of a stream, from the largest window before 0 on; bursts begin at rate λ/E."""
        span = until + LARGEST
        bursts = random.poisson(span * self.rate / self.burst)
        begin = np.sort(random.uniform(-LARGEST, until, bursts))
        at = np.floor(begin * SECOND).astype(np.int64)
        return at if self.burst == 1 else np.repeat(at, self._draw_sizes(random, bursts))

    def _draw_sizes(self, random: np.random.Generator, count: int) -> Ints:
        """Sizes rounded up or down at random, which keeps their mean."""
        sizes = 1 + random.pareto(self.shape, count)
        return np.floor(sizes + random.uniform(size=count)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ArrivedTuples:
    """New tuples of both streams in the order of arrival, and where their matches are.

    The first `measured` ones count; the others keep the server busy while those are processed. Tuples of a stream with
    one value are neighbours in `matched_at`, by time: those of tuple i are `begin[i] : end[i]`, and a backward scan
    begins at the end. `before` counts the tuples of the other stream that precede a new one.
    """

    model: ArrivalModel
    measured: int
    at: Ints
    side: Ints
    begin: Ints
    end: Ints
    matched_at: Ints
    matched_place: Ints  # of the same tuples in their stream
    streams: tuple[Ints, Ints]
    before: Ints

    def __len__(self) -> int:
        return len(self.at)

    def count_matches(self, bands: Bands) -> Ints:
        """Matches of each tuple in each band, routed by their distances."""
        counts = np.empty((len(self), len(bands) + 1), np.int64)
        for first in range(0, len(self), SLICE):
            rows = slice(first, first + SLICE)
            owner, place = _backward(self.begin[rows], self.end[rows])
            band = bands.band_of(self.at[rows][owner] - self.matched_at[place])
            found = np.bincount(owner * (len(bands) + 1) + band, minlength=counts[rows].size)
            counts[rows] = found.reshape(-1, len(bands) + 1)
        return np.ascontiguousarray(counts[:, : len(bands)])

    def count_scanned(self, bands: Bands) -> Ints:
        """Tuples of the other stream in each band of each tuple: those whose distance is less than the window."""
        met = np.empty((len(self), len(bands)), np.int64)
        for side in (LEFT, RIGHT):
            outer = self.side == side
            ends = np.searchsorted(self.streams[1 - side], self.at[outer][:, None] - bands.windows[None, :], "right")
            met[outer] = self.before[outer][:, None] - ends
        return np.diff(met, axis=1, prepend=0)

    def scan_positions(self) -> npt.NDArray[np.int32]:
        """For all matches, tuple after tuple: how many tuples a backward scan has met, the match included."""
        owner, place = _backward(self.begin, self.end)
        return (self.before[owner] - self.matched_place[place]).astype(np.int32)


def _backward(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The numbers of ranges, repeated, and their places from the last to the first."""
    counts = end - begin
    first = np.cumsum(counts) - counts
    return np.repeat(np.arange(len(counts)), counts), np.repeat(end - 1 + first, counts) - np.arange(counts.sum())


def generate_streams(model: ArrivalModel, measured: int, seed: int) -> ArrivedTuples:
    """The measured tuples of both streams together, and those that arrive while they wait."""
    # Bursts of expected size 5 make tuples wait for as long as half of the measured ones take to arrive.
    tuples = measured + round(measured * (0.02 + (model.burst - 1) / 4))
    random = np.random.default_rng((seed, round(model.rate), round(10 * model.burst)))
    seconds = 1.2 * tuples / (2 * model.rate) + 1
    streams = [model.draw(random, seconds) for _ in (LEFT, RIGHT)]
    while sum(int((stream >= 0).sum()) for stream in streams) < tuples:
        seconds *= 1.5
        streams = [model.draw(random, seconds) for _ in (LEFT, RIGHT)]
    values = [random.integers(0, VALUES, len(stream)) for stream in streams]
    return match_streams(model, (streams[LEFT], streams[RIGHT]), (values[LEFT], values[RIGHT]), tuples, measured)


def match_streams(
    model: ArrivalModel, streams: tuple[Ints, Ints], values: tuple[Ints, Ints], tuples: int, measured: int
) -> ArrivedTuples:
    """Each pair is made by its later tuple; of two at one instant, by the left one, which comes second."""
    at, value = np.concatenate(streams), np.concatenate(values)
    side = np.repeat([LEFT, RIGHT], [len(stream) for stream in streams])
    place = np.concatenate([np.arange(len(stream)) for stream in streams])
    # One number for side, value and time: the matches of a tuple are neighbours, in the order of time.
    origin, span = -LARGEST * SECOND, int(at.max()) + 2 * LARGEST * SECOND
    code = (side * VALUES + value) * span + at - origin
    by_code = np.argsort(code, kind="stable")
    codes = code[by_code]
    order = np.lexsort((place, -side, at))
    new = order[at[order] >= 0][:tuples]
    new_at, later = at[new], side[new] == LEFT
    looked_up = ((1 - side[new]) * VALUES + value[new]) * span - origin
    before = np.where(
        later, np.searchsorted(streams[RIGHT], new_at, "right"), np.searchsorted(streams[LEFT], new_at, "left")
    )
    return ArrivedTuples(
        model,
        measured,
        new_at,
        side[new],
        np.searchsorted(codes, looked_up + np.maximum(new_at - LARGEST * SECOND, origin - 1), "right"),
        np.searchsorted(codes, looked_up + new_at + later, "left"),
        at[by_code],
        place[by_code],
        streams,
        before,
    )

"""Figures 14.9 to 14.11: what a join of intervals spends on the order of ends, and on the order of its results.

Two streams of Poisson arrivals and windows of five seconds. An element that comes is put in order, probes the other
side, and is stored until it ends. The figures of the thesis are times; here the queues are followed, and comparisons
counted: a heap of n elements needs log₂ n to give its least, a list none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.apps.papers.engine_runs import RecordedStream
from strandline.apps.papers.golab_ozsu.results import Elements, join
from strandline.connectors.sources.poisson import PoissonProcess
from strandline.core.temporal import SECOND
from strandline.core.types import BIGINT

ELEMENTS: Final = 100_000  # of each stream
RATE: Final = 100  # per second
WINDOW: Final = 5 * SECOND
QUERY: Final = "SELECT a.k FROM a WINDOW(RANGE 5 SECONDS) AS a JOIN b WINDOW(RANGE 5 SECONDS) AS b ON a.k = b.k"


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """Means per arriving element: stored on a side, matches, queue sizes, and comparisons to keep an order."""

    stored: float
    matches: float
    input_queue: float
    output_queue: float
    list_comparisons: float  # of the ends, with a list
    heap_comparisons: float  # of the ends, with a priority queue
    input_comparisons: float  # of the start, with a queue at the input
    output_comparisons: float  # of the start, with a queue at the output


def numbers(values: int, elements: int, lowest: int = 1, seed: int = 1) -> tuple[RecordedStream, RecordedStream]:
    """Uniform numbers from `lowest` to `values`, at Poisson arrivals."""
    draw = np.random.Generator(np.random.PCG64(seed))
    made = []
    for number, name in enumerate(("a", "b")):
        at = np.floor(PoissonProcess(seed + 10 * number).arrivals(0, elements) * (SECOND / RATE)).astype(np.int64)
        made.append(RecordedStream.make(name, {"k": BIGINT}, {"k": draw.integers(lowest, values + 1, elements)}, at))
    return made[0], made[1]


def follow(left: RecordedStream, right: RecordedStream) -> JoinFigures:
    """Follow the queues of a join whose elements come in the order of time.

    An element may be joined, and a result sent, when neither side can bring an earlier one: when both have reached its
    time. So an arriving element finds those waiting that have come since the other side last brought one.
    """
    sides = [_elements(made) for made in (left, right)]
    end = min(int(part.start[-1]) for part in sides)  # then only one side goes on
    sides = [part.where(part.start <= end) for part in sides]
    start = np.concatenate([side.start for side in sides])
    side = np.repeat([0, 1], [len(part) for part in sides])
    order = np.lexsort((side, start))
    start, side = start[order], side[order]
    results = join(*sides)
    stored = np.where(side == 0, sides[1].count_at(start), sides[0].count_at(start))
    waiting = _run_lengths(side) - 1
    made = np.concatenate(([0], np.searchsorted(np.sort(results.start), start, "right")))  # results by an element
    place = np.arange(len(side))
    held = made[place] - made[place - waiting]
    matches = len(results) / len(start)
    return JoinFigures(
        float(stored.mean()),
        matches,
        float(waiting.mean()),
        float(held.mean()),
        1.0,
        1.0 + float(np.log2(stored + 1).mean()),
        1.0 + float(np.log2(waiting + 1).mean()),
        matches * (1.0 + float(np.log2(held + 1).mean())),
    )


def _elements(made: RecordedStream) -> Elements:
    start = made.instants
    return Elements(made.rows["k"].to_numpy(), start, start + WINDOW)


def _run_lengths(side: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many elements up to here come from the same side without one of the other between."""
    place = np.arange(len(side))
    begins = np.flatnonzero(np.diff(side, prepend=-1))
    return place - begins[np.searchsorted(begins, place, "right") - 1] + 1

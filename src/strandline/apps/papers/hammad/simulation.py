"""One server that runs the tasks of a shared window join, tuple by tuple, in the order of a policy.

A task is a new tuple that meets one band, and is not interrupted. The policy's ranks and the release rule are those of
`runtime/scheduling`. Response time of a result = its release to a query less the arrival of its later tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from strandline.apps.papers.hammad.arrivals import ArrivedTuples
from strandline.core.temporal import SECOND
from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.scheduling.bands import Bands, Ints
from strandline.runtime.scheduling.release import Floats, ReleaseMode, release_bounds

BOTH_MODES: Final = (ReleaseMode.AT_COMPLETION, ReleaseMode.AS_SCANNED)

# How each algorithm of the paper releases: LWO has one tuple at a time, SWF holds a tuple's results until its window is
# done, Greedy does not.
PAPER_MODE: Final = {
    "LWO": ReleaseMode.AS_SCANNED,
    "SWF": ReleaseMode.AT_COMPLETION,
    "Greedy": ReleaseMode.AS_SCANNED,
    "rate": ReleaseMode.AS_SCANNED,
}


class JoinMethod(StrEnum):
    """What a task costs: a hash join its matches, nested loops every tuple of the band."""

    HASH = "hash"
    NESTED_LOOPS = "nested loops"


@dataclass(frozen=True, slots=True)
class BandWork:
    """Units of work and matches of every tuple and band.

    `produced[first[i] + n]` is the number of units after which tuple i has made its result n.
    """

    tuples: ArrivedTuples
    bands: Bands
    units: Ints
    matches: Ints
    first: Ints
    produced: npt.NDArray[np.int32]

    @classmethod
    def of(cls, tuples: ArrivedTuples, windows: tuple[int, ...], method: JoinMethod) -> BandWork:
        bands = Bands.of([window * SECOND for window in windows])
        matches, counts = tuples.count_matches(bands), tuples.end - tuples.begin
        match method:
            case JoinMethod.HASH:  # a unit per match
                each = np.arange(1, counts.max(initial=0) + 1, dtype=np.int32)
                return cls(tuples, bands, matches, matches, np.zeros_like(counts), each)
            case JoinMethod.NESTED_LOOPS:
                units, first = tuples.count_scanned(bands), np.cumsum(counts) - counts
                return cls(tuples, bands, units, matches, first, tuples.scan_positions())

    def unit_seconds(self, utilisation: float) -> float:
        """Seconds of a unit, so that the work of all tuples takes this share of the time in which they arrive.

        The mean of a few thousand Pareto sizes may be far from the expected one, so the rates do not tell the load.
        """
        return utilisation * float(self.tuples.at[-1]) / SECOND / float(max(self.units.sum(), 1))


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """Begin and end of every task, in seconds; the most tuples that waited or ran at a time, and the most results that
    were held, by mode of release. `outlasts` its arrivals if no new tuple came in the end: response times are then too
    small."""

    begin: Floats
    end: Floats
    waiting: int
    held: dict[ReleaseMode, int]
    outlasts: bool


@dataclass(frozen=True, slots=True)
class ResponseTimes:
    """Seconds of results by window, average and maximum, and the number of results."""

    average: Floats
    maximum: Floats
    results: Ints


def schedule(work: BandWork, ranks: Ints, unit_seconds: float) -> ScheduledRun:
    """Run tasks until all measured tuples are done; `ranks` are those of `rank_tasks`."""
    begin, end, sizes = np.full(work.units.shape, np.inf), np.full(work.units.shape, np.inf), np.zeros(3, np.int64)
    costs: Floats = work.units * np.float64(unit_seconds)
    measured = work.tuples.measured
    _run_tasks(measured, work.tuples.at / SECOND, costs, work.matches, ranks, begin, end, sizes)
    held = {mode: int(size) for mode, size in zip(BOTH_MODES, sizes[1:], strict=True)}
    outlasts = bool(end[:measured].max(initial=0.0) > work.tuples.at[-1] / SECOND)
    return ScheduledRun(begin[:measured], end[:measured], int(sizes[0]), held, outlasts)


def measure(work: BandWork, run: ScheduledRun, unit_seconds: float, mode: ReleaseMode) -> ResponseTimes:
    """Response times of the results of all measured tuples."""
    count, measured = len(work.bands), work.tuples.measured
    total, most, results = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
    units = work.units[:measured]
    # A result is made at this instant plus its units: within a band a tuple is not interrupted.
    origin = run.begin - (np.cumsum(units, axis=1) - units) * unit_seconds
    arrival, bounds = work.tuples.at[:measured] / SECOND, release_bounds(mode, run.end)
    matches = work.matches[:measured]
    _add_responses(arrival, work.first, work.produced, matches, origin, bounds, unit_seconds, total, most, results)
    return ResponseTimes(total / np.maximum(results, 1), most, results)


@compiled("void(i8, f8[::1], f8[:,::1], i8[:,::1], i8[:,::1], f8[:,::1], f8[:,::1], i8[::1])", True, writes=(5, 6, 7))
def _run_tasks(
    measured: int, arrival: Floats, cost: Floats, matches: Ints, ranks: Ints, begin: Floats, end: Floats, sizes: Ints
) -> None:
    """Each band is done in the order of the tuples: `done` has how many of them, and those up to the band before
    wait."""
    tuples, bands = cost.shape
    done = np.zeros(bands, np.int64)
    made = np.zeros(tuples, np.int64)
    now, arrived, held_complete, held_scanned = 0.0, 0, 0, 0
    last = bands - 1
    while done[last] < measured:
        while arrived < tuples and arrival[arrived] <= now:
            arrived += 1
        sizes[0] = max(sizes[0], arrived - done[last])
        chosen, least = -1, 0
        ready = arrived
        for band in range(bands):
            if done[band] < ready and (chosen < 0 or ranks[done[band], band] < least):
                chosen, least = band, ranks[done[band], band]
            ready = done[band]
        if chosen < 0:
            now = arrival[arrived]
            continue
        row = done[chosen]
        begin[row, chosen] = now
        now += cost[row, chosen]
        end[row, chosen] = now
        made[row] += matches[row, chosen]
        held_complete += matches[row, chosen]
        if row != done[last]:  # the oldest tuple of all passes its results on at once
            held_scanned += matches[row, chosen]
        sizes[1], sizes[2] = max(sizes[1], held_complete), max(sizes[2], held_scanned)
        done[chosen] += 1
        if chosen == last:
            held_complete -= made[row]
            if row + 1 < tuples:
                held_scanned -= made[row + 1]


@compiled(
    "void(f8[::1], i8[::1], i4[::1], i8[:,::1], f8[:,::1], f8[:,::1], f8, f8[::1], f8[::1], i8[::1])",
    True,
    writes=(7, 8, 9),
)
def _add_responses(
    arrival: Floats,
    first: Ints,
    produced: npt.NDArray[np.int32],
    matches: Ints,
    origin: Floats,
    bounds: Floats,
    unit: float,
    total: Floats,
    most: Floats,
    results: Ints,
) -> None:
    """Add the response times of all results, by window: a result is released when made, or at its bound if later."""
    tuples, bands = matches.shape
    for row in range(tuples):
        start = first[row]
        count = 0
        sum_made, first_made, last_made = 0.0, 0.0, 0.0  # instants at which the results so far were made
        for window in range(bands):
            for place in range(start + count, start + count + matches[row, window]):
                last_made = origin[row, window] + produced[place] * unit
                sum_made += last_made
                if place == start:
                    first_made = last_made
            count += matches[row, window]
            if count == 0:
                continue
            bound = bounds[row, window]
            if bound >= last_made:
                released = count * bound
            elif bound <= first_made:
                released = sum_made
            else:
                released, place = 0.0, start
                for band in range(window + 1):
                    for _ in range(matches[row, band]):
                        released += max(bound, origin[row, band] + produced[place] * unit)
                        place += 1
            total[window] += released - count * arrival[row]
            most[window] = max(most[window], max(bound, last_made) - arrival[row])
            results[window] += count

"""Policy of state segments: LSM compaction, its effect in the steady state, and when a probe goes by time, too.

Rows of a hashed log leave with their whole segment or when it is written again, so a log holds more rows than are
valid. Their number, the number of segments and the write amplification follow from the policy alone: `forecast_log`
simulates it with counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Size-tiered merging: this many neighbours of one tier become one segment of the next, so that a row is rewritten
# about log_FAN_IN(state / batch) times and the number of segments stays logarithmic.
FAN_IN = 4
SMALLEST_TIER_ROWS = 4096
# Merging happens in memory, and state may be larger than memory: segments of this size are left as they are.
LARGEST_MERGE_ROWS = 2_000_000
LARGEST_MERGE_BYTES = 96 * 2**20
# A probe by key alone is judged by its first pairs: if fewer than one of FEW_VALID is valid, the rest is looked up by
# key and time.
TRIAL_PAIRS = 2**16
FEW_VALID = 8
# To find a row of a keyed log by its key and to replace it takes as long as to read and write so many in a row.
LOOK_UP_COST = 4

# How the rows of a hashed log leave. fifo: their ends are in the order of their starts, so the oldest segment expires
# as a whole. calendar: they end in any order; when more than EXPIRED_SHARE of the log has expired, segments are written
# again without those rows.
StateStructure: TypeAlias = Literal["fifo", "calendar"]
EXPIRED_SHARE = 1 / 8

_CHANCE: Final = 0.02  # of a batch
_MAX_BATCHES: Final = 64  # of a validity that are simulated; a longer one is simulated in longer batches


def _tier(rows: int, smallest: int = SMALLEST_TIER_ROWS) -> int:
    return max(0, (max(rows, 1) // smallest).bit_length() // 2)


def largest_merge(rows: int, size: int) -> int:
    """How many rows may be merged at once, of a log with so many rows and bytes."""
    return min(LARGEST_MERGE_ROWS, LARGEST_MERGE_BYTES * rows // max(size, 1))


def merge_window(rows: Sequence[int], largest: int | None = None) -> slice | None:
    """The neighbours that are due to be merged, if any; `largest` is how many rows may be merged at once.

    A merged segment stays below a third of all rows: rows leave with their whole segment, so one huge segment would
    retain expired rows.
    """
    total, most = sum(rows), LARGEST_MERGE_ROWS if largest is None else largest
    for end in range(len(rows), FAN_IN - 1, -1):
        group = rows[end - FAN_IN : end]
        if sum(group) > most:
            continue
        if len({_tier(r) for r in group}) == 1 and (sum(group) * 3 <= total or _tier(max(group)) == 0):
            return slice(end - FAN_IN, end)
    return None


def merge_window_of_versions(rows: Sequence[int], largest: int) -> slice | None:
    """The same for a log whose rows leave by being replaced: a batch may change a single row of a large state, so the
    smallest tier is one row, and a segment belongs to the tier of the largest one after it."""
    tiers = list(accumulate((_tier(r, 1) for r in reversed(rows)), max))[::-1]
    for end in range(len(rows), FAN_IN - 1, -1):
        group = slice(end - FAN_IN, end)
        if sum(rows[group]) <= largest and len(set(tiers[group])) == 1:
            return group
    return None


def segments_to_clean(rows: Sequence[int], expired: Sequence[int]) -> list[int]:
    """The segments of a calendar to write again, so that at most EXPIRED_SHARE of what remains has expired: those with
    the largest expired share first, since it costs the rows that are written, and gains the others."""
    total, gone, chosen = sum(rows), sum(expired), list[int]()
    for number in sorted(range(len(rows)), key=lambda n: -expired[n] / max(rows[n], 1)):
        if gone <= EXPIRED_SHARE * total:
            break
        chosen.append(number)
        total, gone = total - expired[number], gone - expired[number]
    return chosen


@dataclass(frozen=True, slots=True)
class LogForecast:
    """A hashed log in the steady state: rows, segments, and how many rows a batch rewrites."""

    rows: float
    segments: float
    rewritten: float


def forecast_log(per_batch: float, batches: float, spread: bool) -> LogForecast:
    """Simulate a log that gets `per_batch` rows per batch, each valid for the given number of batches: all equally long
    or, if `spread`, between not at all and twice as long."""
    if per_batch <= 0 or batches <= 0:
        return LogForecast(0.0, 0.0, 0.0)
    per_batch, batches = float(f"{per_batch:.3g}"), float(f"{batches:.3g}")
    longest = 2 * batches if spread else batches
    coarse = max(1.0, longest / _MAX_BATCHES)
    per_batch, longest = per_batch * coarse, longest / coarse
    late = _simulate_log(per_batch, longest, coarse, spread, True)
    if abs(longest - round(longest)) > _CHANCE:
        return late
    # Rows end just when a batch does: whether their segment lives through another batch is a matter of chance.
    soon = _simulate_log(per_batch, longest, coarse, spread, False)
    both = zip(astuple(late), astuple(soon), strict=True)
    return LogForecast(*((one + two) / 2 for one, two in both))


@lru_cache(maxsize=4096)
def _simulate_log(per_batch: float, longest: float, coarse: float, spread: bool, late: bool) -> LogForecast:
    """The forecast for batches that stand for `coarse` shorter ones each."""
    simulation = _LogSimulation(per_batch, longest, spread, late)
    warm, counted = int(2 * longest) + 2, int(longest) + 8
    steps = [simulation.step(now) for now in range(warm + counted)][warm:]
    rows, segments, rewritten = map(float, np.mean(steps, axis=0))
    # In shorter batches each row is rewritten in the lower tiers first.
    more = per_batch * np.log(coarse) / np.log(FAN_IN) if per_batch < LARGEST_MERGE_ROWS else 0.0
    return LogForecast(rows, segments + FAN_IN / 2 * np.log(coarse) / np.log(FAN_IN), (rewritten + more) / coarse)


class _LogSimulation:
    """Segments as the batches that their rows came in, and how many of each were still there when they were written."""

    def __init__(self, per_batch: float, longest: float, spread: bool, late: bool) -> None:
        self.per_batch, self.longest, self.spread = per_batch, longest, spread
        self.behind = 1e-6 if late else -1e-6  # how far the progress is behind the end of a batch
        self.segments: list[tuple[NDArray[np.float64], float]] = []

    def step(self, now: int) -> tuple[float, int, float]:
        """One batch, which ends at `now`; rows came half a batch ago on average."""
        self.segments = [s for s in self.segments if s[0][-1] + 0.5 + self.longest + self.behind > now]
        rewritten = 0.0
        born = np.array([now - 0.5])
        if self.longest > 0.5:
            self.segments.append((born, self._alive(born, now)))
        while (window := merge_window([round(rows) for _, rows in self.segments])) is not None:
            born = np.concatenate([batches for batches, _ in self.segments[window]])
            born = born[born + 0.5 + self.longest + self.behind > now]
            rows = self._alive(born, now)
            rewritten += rows
            self.segments[window] = [(born, rows)] if len(born) else []
        if self.spread:
            rewritten += self._clean(now)
        return sum(rows for _, rows in self.segments), len(self.segments), rewritten

    def _clean(self, now: int) -> float:
        """Write the segments again of which enough has expired; gives the rows that are written."""
        alive = [self._alive(born, now) for born, _ in self.segments]
        expired = [round(rows - left) for (_, rows), left in zip(self.segments, alive, strict=True)]
        chosen = segments_to_clean([round(rows) for _, rows in self.segments], expired)
        for number in chosen:
            self.segments[number] = (self.segments[number][0], alive[number])
        return sum(alive[number] for number in chosen)

    def _alive(self, born: NDArray[np.float64], now: int) -> float:
        """Number of valid rows of some batches, each batch spread evenly over its time."""
        age = now - born
        share = 1 - age / self.longest if self.spread else self.longest - age + 0.5
        return float(np.clip(share, 0.0, 1.0).sum() * self.per_batch)

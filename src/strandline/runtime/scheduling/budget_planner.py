"""How much work a batch may do, so that it takes about as long as it should: decided by the driver, in units.

The time of a batch is taken to be a part that does not depend on the work of joins, and so much for each unit. Both
are fitted to the batches so far, the latest of which count most. Where all work fits, a batch has no budget: then
nothing waits, and joins do what they do without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.runtime.scheduling.budget import UNLIMITED, WorkBudget, WorkReport

UNIT_SECONDS: Final = 1.5e-9  # of a unit, until batches tell: a unit is a nanosecond by the prices, on another machine
DECAY: Final = 0.9  # of what a batch tells, from one batch to the next
LEAST: Final = 0.25  # of the target for joins at least, however long the rest of a batch takes


@dataclass(slots=True)
class BatchTimes:
    """The seconds of batches by the units of work in them: decayed sums of a linear regression."""

    count: float = 0.0
    units: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    slope: float | None = None  # seconds of a unit, when batches differed last

    def add(self, units: float, seconds: float) -> None:
        self.count = self.count * DECAY + 1
        self.units = self.units * DECAY + units
        self.seconds = self.seconds * DECAY + seconds
        self.squares = self.squares * DECAY + units * units
        self.products = self.products * DECAY + units * seconds
        spread = self.count * self.squares - self.units**2
        if spread > 0.1 * self.units**2:
            self.slope = (self.count * self.products - self.units * self.seconds) / spread

    @property
    def per_unit(self) -> float:
        """Seconds of a unit. Of batches that are alike only the ratio is known, and it has the fixed part in it."""
        if not self.units:
            return UNIT_SECONDS
        ratio = self.seconds / self.units
        return ratio if self.slope is None else min(max(self.slope, ratio / 100), ratio)

    @property
    def fixed(self) -> float:
        """Seconds of a batch without any work of joins."""
        return max(0.0, (self.seconds - self.per_unit * self.units) / self.count) if self.count else 0.0


class BudgetPlanner:
    """Decides on the budgets of the batches of a pipeline. `target` is how many seconds a batch should take at most;
    None lets each batch do all its work."""

    def __init__(self, target: float | None = None, policy: str = "Greedy") -> None:
        self.target, self.policy = target, policy
        self.times = BatchTimes()
        self._has_work = False  # whether work was left before the batch that was decided on
        self._rows = 0  # that it brings
        self._per_row = 0.0  # units of a row, in batches that do all their work

    def decide(self, rows: int, parts: int, *, has_work: bool) -> WorkBudget:
        """The budget of a batch that brings so many rows, for each of the joins in each shard: `parts` in all.
        `has_work` if some was left before it."""
        self._rows, self._has_work = rows, has_work
        if self.target is None or not parts:
            return UNLIMITED
        times = self.times
        if times.count and not has_work and times.fixed + rows * self._per_row * times.per_unit <= self.target:
            return UNLIMITED
        seconds = max(self.target - times.fixed, LEAST * self.target)
        return WorkBudget(max(1, int(seconds / times.per_unit / parts)), self.policy)

    def observe(self, work: WorkReport, seconds: float) -> None:
        """Note what the joins did in a batch, and how long it took."""
        if not self._has_work and not work.left and self._rows:  # all the work of its rows, and no other
            self._per_row += (work.spent / self._rows - self._per_row) * (1 - DECAY if self._per_row else 1)
        if work.spent:
            self.times.add(work.spent, seconds)

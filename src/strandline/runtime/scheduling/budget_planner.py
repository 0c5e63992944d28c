"""How much work a batch may do, so that it takes about as long as it should: decided by the driver, in units.

The time of a batch is taken to be a part that does not depend on the work of joins, and so much for each unit. Both
are fitted to the batches so far, the latest of which count most. Where all work fits, a batch has no budget: then
nothing waits, and joins do what they do without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from strandline.core.temporal import Instant
from strandline.planner.cardinality import StatisticsByStream
from strandline.planner.physical.plan import Pipeline
from strandline.planner.physical.running_groups import Chart
from strandline.planner.physical.window_uses import count_shared_joins
from strandline.planner.prices import Prices
from strandline.planner.progress_charts import chart_groups
from strandline.runtime.scheduling.budget import UNLIMITED, GroupInput, WorkBudget, WorkReport
from strandline.runtime.scheduling.strategies import WaitingInput, take_turns

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
    None lets each batch do all its work. Fragments put off input with a `strategy` only; what they cost is estimated
    with `statistics` and `prices`."""

    def __init__(
        self,
        target: float | None = None,
        policy: str = "Greedy",
        strategy: str | None = None,
        statistics: StatisticsByStream = MappingProxyType({}),
        prices: Prices | None = None,
    ) -> None:
        self.target, self.policy, self.strategy = target, policy, strategy
        self._statistics, self._prices = statistics, prices
        self._scheduled: Pipeline | None = None  # the one whose fragments put off input
        self._charts: Mapping[str, Chart] = {}  # of its groups
        self._inputs: dict[str, GroupInput] = {}  # in the last batch
        self._per_source_row: dict[str, float] = {}  # rows that come to a group for a row of the sources
        self._turn = 0
        self.times = BatchTimes()
        self._has_work = False  # whether work was left before the batch that was decided on
        self._rows = 0  # that it brings
        self._per_row = 0.0  # units of a row, in batches that do all their work

    def decide_on(self, pipeline: Pipeline, rows: int, *, has_work: bool) -> WorkBudget:
        """The budget of a batch of a pipeline that brings so many rows. `has_work` if some was left before it."""
        self._rows = rows
        is_scheduled = self._schedules(pipeline, has_work=has_work)
        # All fragments together are one part, as each join is.
        parts = (count_shared_joins(pipeline) + is_scheduled) * pipeline.shards
        budget = self.decide(rows, parts, has_work=has_work)
        if not is_scheduled:
            return budget
        units = None if budget.units is None else budget.units * pipeline.shards
        return replace(budget, fragments=self._schedule(units, rows))

    def _schedules(self, pipeline: Pipeline, *, has_work: bool) -> bool:
        """Whether fragments may put off input. What they have put off before the graph was changed, or before a
        restart, is done first: operators that run together from then on may differ in how far they are."""
        if self.strategy is None or self.target is None:
            return False
        if pipeline is not self._scheduled and not has_work:
            self._scheduled, self._inputs, self._per_source_row = pipeline, {}, {}
            self._charts = chart_groups(pipeline, self._statistics, self._prices)
        return pipeline is self._scheduled and bool(self._charts)

    def _schedule(self, units: int | None, rows: int) -> dict[str, Instant]:
        """Up to when groups take their input within so many units, those that do not take all. A group of which
        nothing is known yet takes all."""
        if units is None:
            return {}
        self._turn += 1
        groups = [
            WaitingInput(
                name,
                self._charts[name],
                (number - self._turn) % len(self._inputs),
                known.reach,
                known.waiting,
                math.ceil(rows * self._per_source_row.get(name, 0.0)),
            )
            for number, (name, known) in enumerate(sorted(self._inputs.items()))
        ]
        take_turns(self.strategy or "fifo", groups, units)
        return {group.name: group.reach for group in groups if not group.is_over}

    def decide(self, rows: int, parts: int, *, has_work: bool) -> WorkBudget:
        """The same for each part of what may wait: a join, or all fragments, in a shard."""
        self._rows, self._has_work = rows, has_work
        if self.target is None or not parts:
            return UNLIMITED
        times = self.times
        if times.count and not has_work and times.fixed + rows * self._per_row * times.per_unit <= self.target:
            return UNLIMITED
        seconds = max(self.target - times.fixed, LEAST * self.target)
        return WorkBudget(max(1, int(seconds / times.per_unit / parts)), self.policy)

    def observe(self, work: WorkReport, seconds: float) -> None:
        """Note what was done in a batch, and how long it took."""
        spent = work.spent
        for name, own in work.fragments.items():
            if name not in self._charts:
                continue
            spent += own.taken * self._charts[name].cost
            if self._rows:
                before = self._inputs.get(name, GroupInput(own.reach))
                share = (own.taken + own.left - before.left) / self._rows
                known = self._per_source_row.get(name, share)
                self._per_source_row[name] = known + (share - known) * (1 - DECAY)
            self._inputs[name] = own
        if not self._has_work and not work.left and self._rows:  # all the work of its rows, and no other
            self._per_row += (spent / self._rows - self._per_row) * (1 - DECAY if self._per_row else 1)
        if spent:
            self.times.add(spent, seconds)

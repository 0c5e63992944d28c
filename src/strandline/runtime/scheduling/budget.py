"""Work budgets: how much of the waiting work of shared window joins a batch does, in units of the cost model.

A unit is a nanosecond by the prices of the cost model, counted as work is done: what is counted follows from the data
alone, so that a batch which runs again stops at the same task. How long a unit takes is measured by the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from strandline.core.temporal import Instant
from strandline.runtime.scheduling.policies import POLICIES

CHUNK_ROWS: Final = 8192  # new rows of a side that wait together: fewer cost more than they bring, more delay others

PROBE: Final = 56  # a row that probes a segment
CANDIDATE: Final = 13  # a pair that is compared
RESULT: Final = 300  # a pair that is made, routed and sent
TASK: Final = 100_000  # a chunk that meets a segment, however few rows both have


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """How many units of work each shared window join does in a batch, in each shard; None for all of it. The policy is
    the order of what is done."""

    units: int | None = None
    policy: str = "Greedy"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WorkBudget:
        """The budget of `to_json`; another content raises ValueError, TypeError or KeyError."""
        budget = WorkBudget(**data)
        if budget.policy not in POLICIES or not (budget.units is None or type(budget.units) is int):
            raise ValueError("no budget")
        return budget


UNLIMITED: Final = WorkBudget()


@dataclass(slots=True)
class WorkReport:
    """What shared window joins did in a batch: units that were spent, rows that wait, and for the queries that wait for
    them up to when their results are complete."""

    spent: int = 0
    left: int = 0
    reaches: dict[str, Instant] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def merge(self, other: WorkReport) -> WorkReport:
        """The report of two shards."""
        reaches = dict(self.reaches)
        for query, reach in other.reaches.items():
            reaches[query] = min(reach, reaches.get(query, reach))
        return WorkReport(self.spent + other.spent, self.left + other.left, reaches)

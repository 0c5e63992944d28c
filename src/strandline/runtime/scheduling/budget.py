"""Work budgets: how much waiting work of shared joins and of fragments a batch does, in units of the cost model.

A unit is a nanosecond by the prices of the cost model, counted as work is done: what is counted follows from the data
alone, so that a batch which runs again stops at the same task. How long a unit takes is measured by the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

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
    the order of what is done.

    `fragments` is up to when groups of fragments take their input, by the first fragment of each; those without an
    instant take all of it. None if no fragment has put off input, or may."""

    units: int | None = None
    policy: str = "Greedy"
    fragments: Mapping[str, Instant] | None = None

    def to_json(self) -> dict[str, Any]:
        fragments = {} if self.fragments is None else {"fragments": dict(self.fragments)}
        return {"units": self.units, "policy": self.policy, **fragments}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WorkBudget:
        """The budget of `to_json`; another content raises ValueError, TypeError or KeyError."""
        budget = WorkBudget(**data)
        whole = [*([] if budget.units is None else [budget.units]), *(budget.fragments or {}).values()]
        if budget.policy not in POLICIES or any(type(number) is not int for number in whole):
            raise ValueError("no budget")
        return budget


UNLIMITED: Final = WorkBudget()


class GroupInput(NamedTuple):
    """The input of a group of fragments in a batch: up to when it was taken, how many rows that were, and those that
    wait: so many before an instant, and not before the one in front of it."""

    reach: Instant
    taken: int = 0
    waiting: Sequence[tuple[Instant, int]] = ()

    @property
    def left(self) -> int:
        return sum(rows for _, rows in self.waiting)

    def merge(self, other: GroupInput) -> GroupInput:
        """The input in two shards."""
        return GroupInput(
            min(self.reach, other.reach), self.taken + other.taken, sorted([*self.waiting, *other.waiting])
        )


@dataclass(slots=True)
class WorkReport:
    """What shared window joins and fragments did in a batch: units that joins have spent, rows that wait, and for the
    queries that wait for them up to when their results are complete; the input of groups of fragments."""

    spent: int = 0
    left: int = 0
    reaches: dict[str, Instant] = field(default_factory=dict)
    fragments: dict[str, GroupInput] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WorkReport:
        groups = {
            name: GroupInput(reach, taken, [(until, rows) for until, rows in waiting])
            for name, (reach, taken, waiting) in data["fragments"].items()
        }
        return WorkReport(data["spent"], data["left"], data["reaches"], groups)

    def merge(self, other: WorkReport) -> WorkReport:
        """The report of two shards."""
        reaches = dict(self.reaches)
        for query, reach in other.reaches.items():
            reaches[query] = min(reach, reaches.get(query, reach))
        groups = dict(self.fragments)
        for name, group in other.fragments.items():
            groups[name] = group if name not in groups else groups[name].merge(group)
        return WorkReport(self.spent + other.spent, self.left + other.left, reaches, groups)

"""Strategies of fragments: the order in which groups of fragments take the input that waits in front of them.

A group takes its input in the order of time, a part at a turn. Of all groups with waiting input the one with the least
key has the next turn, until the units of the batch are spent. FIFO and round robin are the usual ones, Chain is that of
Babcock, Babu, Datar and Motwani.

    waiting        a ......      b ..        costs 1 and 10
    fifo           whatever is oldest, of a and b
    round-robin    a, b, a, b, a, …
    chain          a, until nothing of it waits, then b
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from strandline.core.temporal import Instant
from strandline.planner.physical.running_groups import Chart


@dataclass(slots=True)
class WaitingInput:
    """The input that waits in front of a group: parts that each have so many rows before an instant, and the rows that
    the batch will bring. `place` is that of the group among all, from the one on that begins."""

    name: str
    chart: Chart
    place: int
    reach: Instant  # up to when it was taken
    parts: Sequence[tuple[Instant, int]]
    coming: int = 0
    turns: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the group takes all that waits, and all that comes."""
        return self.turns > len(self.parts) or (self.turns == len(self.parts) and not self.coming)

    @property
    def cost(self) -> int:
        """What the next part costs."""
        return self.chart.cost * (self.parts[self.turns][1] if self.turns < len(self.parts) else self.coming)

    def take(self) -> None:
        """Take the next part."""
        if self.turns < len(self.parts):
            self.reach = self.parts[self.turns][0]
        self.turns += 1


StrategyName: TypeAlias = Literal["fifo", "round-robin", "chain"]
TurnKey: TypeAlias = Callable[[WaitingInput], tuple[Any, ...]]


def oldest_first(waiting: WaitingInput) -> tuple[Any, ...]:
    """FIFO: the group whose oldest input is the oldest of all."""
    return waiting.reach, waiting.place


def one_after_the_other(waiting: WaitingInput) -> tuple[Any, ...]:
    """Round robin: each group has a turn, then each has the next. Another one begins in each batch."""
    return waiting.turns, waiting.place


def steepest_first(waiting: WaitingInput) -> tuple[Any, ...]:
    """Chain: the group that frees most memory for its work, by its progress chart; at a tie the oldest input."""
    return -waiting.chart.slope, waiting.reach, waiting.place


STRATEGIES: Final[dict[str, TurnKey]] = {
    "fifo": oldest_first,
    "round-robin": one_after_the_other,
    "chain": steepest_first,
}


def take_turns(strategy: str, groups: Sequence[WaitingInput], units: int) -> int:
    """Let groups take their input in the order of a strategy until so many units are spent, and one turn at least if
    something waits. Gives what was spent.

    What comes cannot be divided, so it is taken if all of it fits; else it waits, and is divided in the next batch.
    """
    key, spent = STRATEGIES[strategy], 0
    turns = [(*key(group), number) for number, group in enumerate(groups) if not group.is_over]
    heapq.heapify(turns)
    while turns and (spent < units or not spent):
        group = groups[turns[0][-1]]
        waits = group.turns < len(group.parts)
        if waits or spent + group.cost <= units:
            spent += group.cost
            group.take()
            if not group.is_over:
                heapq.heapreplace(turns, (*key(group), turns[0][-1]))
                continue
        heapq.heappop(turns)
    return spent

"""Selections in sequence on a stream: their best order, cost, and output under overload.

Ayad and Naughton, section 4.1. A selection is worth doing early if it is cheap for what it drops: the rank cost / (1 -
selectivity), lowest first, gives the cheapest order. If even that is too much, the best is to drop rows at the source,
and from the cheapest order: rows dropped later have been paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Seconds of work per row, and the share of rows that pass."""

    cost: float
    selectivity: float

    @property
    def rank(self) -> float:
        return self.cost / (1.0 - self.selectivity) if self.selectivity < 1.0 else float("inf")


def in_best_order(selections: Sequence[Selection]) -> list[Selection]:
    """The order of the smallest load."""
    return sorted(selections, key=lambda item: item.rank)


def load(rate: float, selections: Sequence[Selection]) -> float:
    """Seconds of work per second, eq. (12) to (14), in the order given."""
    work = 0.0
    for selection in selections:
        work += rate * selection.cost
        rate *= selection.selectivity
    return work


def kept_share(rate: float, selections: Sequence[Selection], capacity: float = 1.0) -> float:
    """Sampling rate of the stream at its source, eq. (16)."""
    needed = load(rate, selections)
    return 1.0 if needed <= capacity else capacity / needed

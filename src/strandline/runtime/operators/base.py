"""Operator contract: a step over a time slice, with state between slices.

The contract. A slice of a stream is all of its elements that start in `[previous until, until)`, in any order. Given
one slice of each input up to the same `until`, `step` returns the slice of the output up to `until`. So the output is
complete up to `until` too, and cutting the input differently only cuts the output differently.

In the form of changes, the slice has an element whose end is not known yet with the end `OPEN`. When it ends, the slice
of that instant has it again, with its end: an element of a slice that starts before the slice replaces the one that was
sent without an end.

Array code sorts by what it needs, so slices are not kept sorted by start; operators that need the order of arrival
follow the reorder buffer directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.scheduling.budget import UNLIMITED, WorkBudget
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import HashedLog, HeldRows, SortedLog, State
from strandline.shedding.sampler import RateHistory


@dataclass(frozen=True, slots=True)
class Watermark:
    """Watermark of the inputs, the start of the first element of any of them, and the sampling rates of each stream.

    `announces`: everything that is open is sent again, to a sink that has lost it with its process. `was_over`: all
    inputs had ended with the slice before, so that there is nothing to do; other queries of the pipeline go on. `below`
    is how far the input has come of an operator that holds back what runs ahead. `budget` is how much of its work an
    operator does that can put it off.
    """

    time: Instant
    origin: Instant = FOREVER
    rate_history: Mapping[str, RateHistory] = field(default_factory=dict)
    announces: bool = False
    was_over: bool = False
    below: Instant = BEFORE_ALL
    budget: WorkBudget = UNLIMITED


class Stateful:
    """State between slices: rows in `logs`, by the name that they have in checkpoints, and for some the watermark."""

    logs: Mapping[str, SortedLog | HashedLog | KeyedLog | HeldRows] = MappingProxyType({})
    watermark: Instant | None = None

    def restore(self, state: State) -> None:
        """Continue from a saved state; a fresh start is an empty state."""
        for name, log in self.logs.items():
            log.segments = list(state.segments.get(name, ()))
        if self.watermark is not None:
            self.watermark = state.numbers.get("progress", BEFORE_ALL)

    def save(self) -> State:
        numbers = {} if self.watermark is None else {"progress": self.watermark}
        return State(numbers, {name: log.segments for name, log in self.logs.items()})


class Operator(Stateful, ABC):
    """A running operator. One that is not timed takes less than to read the clock, which counts with the next one."""

    is_timed: ClassVar[bool] = True

    @abstractmethod
    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        """Consume a slice of each input, produce the slice of the output."""

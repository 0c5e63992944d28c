"""Reaches of operators: up to when their output is complete where work is put off below them.

An operator goes by the least reach of what it reads. What it has of other inputs beyond that is held back in front of
it, as part of its state, and so is what comes from an exchange, whose senders have reaches of their own.

    route   reach 5   ──┐
                        ⋈   goes by 5: of s it takes [3, 5), and [5, 9) waits
    s       until 9   ──┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from strandline.core.temporal import Instant
from strandline.planner.physical.plan import Input
from strandline.runtime.kernels.batch import Batch
from strandline.runtime.operators.base import Operator, Watermark
from strandline.runtime.operators.reorder import ReorderOperator
from strandline.runtime.operators.routed_pairs import RoutedBatch, RouteOperator
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from strandline.runtime.state.segments import Segment, State

_HELD: Final = "held "  # the name of what is held back of an input, in the state of an operator
_BEHIND: Final = "behind"  # a number in the state of one that was behind its watermark


class Reaches:
    """The reaches of the operators of some fragments in one step; `inputs` are the places of what each reads: a port or
    the number of an operator."""

    def __init__(self, operators: Sequence[Operator], inputs: Sequence[Sequence[Input | int]]) -> None:
        self._operators, self._inputs = operators, inputs
        self.joins = [operator for operator in operators if isinstance(operator, SharedWindowJoinOperator)]
        self.by_number: dict[int, Instant] = {}
        self.ports: Mapping[str, Instant] = {}
        self._held: dict[tuple[int, int], ReorderOperator] = {}
        self._behind: set[int] = set()  # operators that were behind their watermark, also without anything held back

    @property
    def is_active(self) -> bool:
        """Whether the step does anything beside what new rows bring: some work was put off before it."""
        return bool(self.ports or self._held or self._behind) or any(join.has_work for join in self.joins)

    def take(
        self, number: int, reached: Watermark, inputs: list[Batch], done: Sequence[Batch]
    ) -> tuple[Watermark, list[Batch]]:
        """The watermark by which an operator goes, and its inputs up to there."""
        operator, places = self._operators[number], self._inputs[number]
        known = [self._reach_of(place) for place in places]
        least = min([reached.time, *(reach for reach in known if reach is not None)])
        if isinstance(operator, SharedWindowJoinOperator):
            if any(reach is not None for reach in known):  # what waited in front of it before it was shared
                self.by_number[number] = least
                return replace(reached, time=least, was_over=False), inputs
            return replace(reached, was_over=reached.was_over and not operator.has_work), inputs
        if isinstance(operator, RouteOperator):
            span = _span_of(operator, done, places)
            if span is None and known == [None]:
                return reached, inputs
            self.by_number[number] = least if span is None else min(least, span[1])
            return replace(reached, was_over=False), inputs
        was_behind = number in self._behind or any((number, side) in self._held for side in range(len(places)))
        self._behind.discard(number)
        if not was_behind and all(reach is None for reach in known):
            return reached, inputs
        self.by_number[number] = least
        if least < reached.time and any(isinstance(place, Input) for place in places):
            self._behind.add(number)
        for side, (place, reach) in enumerate(zip(places, known, strict=True)):
            comes_from_exchange = isinstance(place, Input) and reach is not None
            is_ahead = len(places) > 1 and (reached.time if reach is None else reach) > least
            if comes_from_exchange or is_ahead or (number, side) in self._held:
                inputs[side] = self._hold_back(number, side, inputs[side], least)
        return replace(reached, time=least, was_over=False), inputs

    def _reach_of(self, place: Input | int) -> Instant | None:
        return self.by_number.get(place) if isinstance(place, int) else self.ports.get(place.name)

    def _hold_back(self, number: int, side: int, batch: Batch, until: Instant) -> Batch:
        buffer = self._held.setdefault((number, side), ReorderOperator())
        released = buffer.step([batch], Watermark(until))
        if not buffer.waiting.segments:
            del self._held[number, side]
        return released

    def restore(self, number: int, state: State) -> State:
        """Take what is held back in front of an operator out of its state."""
        if _BEHIND in state.numbers:
            self._behind.add(number)
            state = State({name: value for name, value in state.numbers.items() if name != _BEHIND}, state.segments)
        own = {name: segments for name, segments in state.segments.items() if not name.startswith(_HELD)}
        for name in state.segments.keys() - own.keys():
            buffer = self._held[number, int(name.removeprefix(_HELD))] = ReorderOperator()
            buffer.waiting.segments = list(state.segments[name])
        return state if len(own) == len(state.segments) else State(state.numbers, own)

    def save(self, number: int, state: State) -> State:
        """The state of an operator with what is held back in front of it."""
        held = {f"{_HELD}{side}": b.waiting.segments for (owner, side), b in self._held.items() if owner == number}
        behind = {_BEHIND: 1} if number in self._behind else {}
        return State({**state.numbers, **behind}, {**state.segments, **held}) if held or behind else state


def held_back(state: State, side: int) -> Sequence[Segment]:
    """What is held back of an input, in the state of an operator."""
    return state.segments.get(f"{_HELD}{side}", ())


def _span_of(
    route: RouteOperator, done: Sequence[Batch], places: Sequence[Input | int]
) -> tuple[Instant, Instant] | None:
    """The span of the pairs that a route takes in this step; None if it takes all there are."""
    (place,) = places
    routed = done[place] if isinstance(place, int) else None
    spans = routed.routing.spans if isinstance(routed, RoutedBatch) else None
    return None if spans is None else spans[route.bounds]

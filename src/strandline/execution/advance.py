"""How far the sources are read, batch by batch: decided once, in the driver's process, and then remembered.

A decision holds everything that a batch needs to be the same when it runs again: how far each source was read, where
the reading was divided among tasks, and whether a silent source counted as idle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from strandline.execution.sources.base import Source
from strandline.temporal import SECOND


@dataclass(frozen=True, slots=True)
class Position:
    """Where a source stands after a batch; `cuts` are the positions at which the batch was divided among tasks."""

    at: int = 0
    idle: bool = False
    ended: bool = False
    cuts: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Position:
        return Position(data["at"], data["idle"], data["ended"], tuple(data["cuts"]))


Positions: TypeAlias = dict[str, Position]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads of a source in a batch: from `start` to `end`, of a batch that begins at `begin`."""

    stream: str
    number: int
    begin: int
    start: int
    end: int
    idle: bool
    ended: bool


def pieces(before: Mapping[str, Position], after: Mapping[str, Position]) -> list[Piece]:
    """The tasks of a batch, at least one per source: a heartbeat needs a sender even if nothing has come."""
    found: list[Piece] = []
    for stream, end in after.items():
        begin = before[stream].at
        for number, (start, stop) in enumerate(pairwise([begin, *end.cuts, end.at])):
            found.append(Piece(stream, number, begin, start, stop, end.idle, end.ended))
    return found


class Advance:
    """Looks at the sources and decides on the next batch."""

    def __init__(self, sources: Mapping[str, Source], batch_rows: int, tasks: int) -> None:
        self.sources = sources
        self.batch_rows = batch_rows
        self.tasks_per_source = max(1, tasks // max(1, len(sources)))
        self._last_rows = dict.fromkeys(sources, time.monotonic())

    def beginning(self) -> Positions:
        return dict.fromkeys(self.sources, Position())

    def next(self, before: Mapping[str, Position]) -> Positions:
        """The positions after the next batch; the same as before if there is nothing new."""
        after = {name: self._next(name, source, before[name]) for name, source in self.sources.items()}
        if after == before:
            return after
        # A source of which nothing is read has one piece, an empty one.
        return {n: replace(p, cuts=()) if p.at == before[n].at else p for n, p in after.items()}

    def _next(self, name: str, source: Source, before: Position) -> Position:
        if before.ended:
            return before
        at, ended = source.advance(before.at, self.batch_rows)
        now = time.monotonic()
        if at > before.at:
            self._last_rows[name] = now
            return Position(at, False, ended, source.cuts(before.at, at, self.tasks_per_source))
        patience = source.stream.idle_after_us
        idle = patience is not None and not ended and now - self._last_rows[name] >= patience / SECOND
        return replace(before, idle=idle, ended=ended)

"""Offset planning: how far each batch reads the sources, decided once, in the driver, and persisted.

An offset has everything that makes a replayed batch identical: the position in each source, the input splits, whether a
source counted as idle, the arrival time of rows without a time column, and the requested metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from strandline.connectors.sources.base import Source
from strandline.connectors.sources.clock import SteadyClock
from strandline.core.durable import digest
from strandline.core.temporal import SECOND, Instant
from strandline.runtime.checkpoint.records import RecordReference
from strandline.runtime.edge_metrics import Wish
from strandline.shedding.controller import Shedder
from strandline.shedding.sampler import Shares, shares_from

TICK_US = SECOND  # interval of watermark updates of an arrival-time stream while nothing arrives


@dataclass(frozen=True, slots=True)
class Position:
    """Offset in a source after a batch; `cuts` are the split points of the batch.

    `arrived` is the time of the batch by the driver's clock, where the stream goes by that: later in every batch.
    `shares` are the sampling rates of the queries in the batch. `seal` is the digest of the source's own log up to
    here, if it has one.
    """

    at: int = 0
    idle: bool = False
    ended: bool = False
    cuts: tuple[int, ...] = ()
    arrived: Instant = 0
    shares: Shares = ()
    seal: str = ""
    measure: Wish = field(default=(), compare=False)  # it is no reason for a batch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Position:
        lists = {"cuts": tuple(data["cuts"]), "measure": tuple(data["measure"]), "shares": shares_from(data["shares"])}
        return Position(**{**data, **lists})


Positions: TypeAlias = dict[str, Position]

OFFSET_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Offset:
    """Offset of a batch: its number plus one, the position in each source, the record that it continues, a checksum."""

    n: int
    positions: Positions
    after: RecordReference = field(default_factory=RecordReference)

    @property
    def batch(self) -> int:
        return self.n - 1

    def to_json(self) -> dict[str, Any]:
        sources = {name: position.to_json() for name, position in self.positions.items()}
        body = {"format": OFFSET_FORMAT, "n": self.n, "sources": sources, "after": self.after.to_json()}
        return {**body, "check": checksum_of(body)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Offset:
        """The offset of `to_json`; a ValueError for a damaged one."""
        try:
            body = {name: value for name, value in data.items() if name != "check"}
            if body["format"] != OFFSET_FORMAT or data["check"] != checksum_of(body):
                raise ValueError("the offset was changed")
            positions = {name: Position.from_json(position) for name, position in data["sources"].items()}
            return Offset(data["n"], positions, RecordReference.from_json(data["after"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not an offset") from error


def checksum_of(body: Mapping[str, Any]) -> str:
    return digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Piece:
    """Input split: what one task reads of a source, from `start` to `end`, of a batch that begins at `begin`."""

    stream: str
    number: int
    begin: int
    start: int
    end: int
    idle: bool
    ended: bool
    arrived: Instant = 0
    shares: Shares = ()
    measure: Wish = ()


def pieces(before: Mapping[str, Position], after: Mapping[str, Position]) -> list[Piece]:
    """Input splits of a batch, at least one per source: a source status needs a sender even without new rows."""
    found: list[Piece] = []
    for stream, end in after.items():
        begin = before[stream].at
        for number, (start, stop) in enumerate(pairwise([begin, *end.cuts, end.at])):
            about = (end.idle, end.ended, end.arrived, end.shares, end.measure)
            found.append(Piece(stream, number, begin, start, stop, *about))
    return found


class Advance:
    """Offset planner: polls the sources and plans the next batch."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        batch_rows: int,
        tasks: int,
        clock: Callable[[], Instant] | None = None,
        shedder: Shedder | None = None,
        wish: Callable[[], Wish] = tuple,
    ) -> None:
        self.sources = sources
        self.clock = clock or SteadyClock()
        self.shedder = shedder
        self.wish = wish  # metrics that a batch is asked to collect
        self.batch_rows = batch_rows
        self.tasks_per_source = max(1, tasks // max(1, len(sources)))
        self._last_rows = dict.fromkeys(sources, time.monotonic())
        self.rows_left: int | None = None  # about how many were not in a batch yet when the last one was decided on
        try:
            for source in sources.values():
                source.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the planning."""
        for source in self.sources.values():
            source.close()

    def beginning(self) -> Positions:
        return dict.fromkeys(self.sources, Position())

    def next(self, before: Mapping[str, Position]) -> Positions:
        """The positions after the next batch; the same as before if there is nothing new."""
        if self.shedder is not None and self.shedder.waits(time.monotonic()):
            return dict(before)
        after = {name: self._next(name, source, before[name]) for name, source in self.sources.items()}
        left = {name: source.rows_left(before[name].at) for name, source in self.sources.items()}
        known = [rows for rows in left.values() if rows is not None]
        self.rows_left = sum(known) if known else None
        if self.shedder is not None:
            self.shedder.look(time.monotonic(), left)
        if after == before:
            return after
        if self.shedder is not None:
            shares = self.shedder.decide(time.monotonic())
            after = {n: replace(p, shares=shares.get(n, ())) for n, p in after.items()}
        # A source without new rows has one empty split.
        after = {n: replace(p, cuts=()) if p.at == before[n].at else p for n, p in after.items()}
        wish = self.wish()
        return {name: replace(position, measure=wish) for name, position in after.items()}

    def _next(self, name: str, source: Source, before: Position) -> Position:
        if before.ended:
            return before
        most = self.batch_rows if self.shedder is None else int(self.shedder.most_rows(name))
        at, ended = source.advance(before.at, most)
        cuts = source.cuts(before.at, at, self.tasks_per_source) if at > before.at else ()
        seal = source.seal(at) if at > before.at else before.seal
        if source.stream.time_column is None:
            return self._by_arrival(before, Position(at, False, ended, cuts, seal=seal))
        seconds = time.monotonic()
        if source.brings_rows(before.at, at):
            self._last_rows[name] = seconds
            return Position(at, False, ended, cuts, seal=seal)
        if at > before.at:
            return replace(before, at=at, ended=ended, cuts=(), seal=seal)
        patience = source.stream.idle_after_us
        idle = patience is not None and not ended and seconds - self._last_rows[name] >= patience / SECOND
        return replace(before, idle=idle, ended=ended)

    def _by_arrival(self, before: Position, after: Position) -> Position:
        """Arrival time of a batch of rows without a time column.

        It grows from batch to batch, also where the clock is set back. Nothing can arrive earlier than now, so an idle
        stream advances the watermark from time to time.
        """
        if isinstance(self.clock, SteadyClock):
            self.clock.go_on_from(before.arrived)  # it may have been set back between two runs
        arrived = max(self.clock(), before.arrived + 1)
        something = after.at > before.at or after.ended
        return replace(after, arrived=arrived) if something or arrived - before.arrived >= TICK_US else before

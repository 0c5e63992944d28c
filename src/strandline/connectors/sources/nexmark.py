"""NEXMark source: persons, auctions and bids of the generator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import NoneType
from typing import Final

import polars as pl

from strandline.connectors.sources.auctions import EPOCH, KINDS, PER_EPOCH, SHUFFLE, EventSequence, events_of
from strandline.connectors.sources.base import Chunk, SourceArguments
from strandline.connectors.sources.clock import ClockedSource
from strandline.connectors.sources.conversion import conform, converts_always
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import BEFORE_ALL, SECOND, Instant, instant
from strandline.logical.catalog import BaseStream, ConnectorCall, SourceSchema
from strandline.runtime.kernels.columns import polars_type

AT_ONCE: Final = 2**18  # events: their columns stay near the processor
PIECE_ROWS: Final = 50_000  # fewer are not worth a task of their own


class NexmarkSource(ClockedSource):
    """`nexmark('bid', events => 100000, rate => 10000, seed => 0, start => '2015-07-15 00:00:00', pace => false,
    disorder => 1)`; the other kinds are 'person' and 'auction'.

    The three streams of equal options are parts of one sequence of events. A position counts events of all kinds, so
    the streams advance together and a join of two of them waits for neither.
    """

    traits = Traits(True, True, True, "an event is a function of its number and the seed")
    shares_log = True

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = SourceArguments(stream.source)
        kind = arguments.positional(0, "a kind of event: nexmark('person'), nexmark('auction') or nexmark('bid')")
        if not isinstance(kind, str) or kind not in KINDS:
            raise arguments.error(f"the kind of nexmark() must be one of {', '.join(map(repr, KINDS))}, not {kind!r}")
        self.kind = kind
        self.total = arguments.option("events", (int, NoneType), 100000)
        rate = arguments.option("rate", (int, float, str), 10000)
        seed = arguments.option("seed", int, 0)
        self._start = arguments.option("start", (str, NoneType), "2015-07-15 00:00:00")
        self.pace = arguments.option("pace", bool, False)
        disorder = arguments.option("disorder", int, 1)
        arguments.done(most=1)
        if (self.total is not None and self.total < 0) or disorder < 1:
            raise arguments.error("events of nexmark() must be at least 0, its disorder at least 1")
        if disorder > 1 and disorder % SHUFFLE == 0:
            raise arguments.error(f"disorder of nexmark() must not be a multiple of {SHUFFLE}")
        try:
            per_second = Fraction(str(rate))
            at = 0 if self._start is None else instant(self._start)
        except (ValueError, ZeroDivisionError) as error:
            raise arguments.error(f"invalid option of nexmark(): {error}") from None
        if per_second <= 0:
            raise arguments.error("the rate of nexmark() must be greater than 0")
        self._sequence = EventSequence(seed, per_second, at, disorder)

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema:
        """All columns of the kind, in order of time as far as the disorder allows."""
        source = cls(BaseStream("", (), call, None), None)
        columns = tuple((name, kind) for name, (kind, _) in KINDS[source.kind].items())
        return SourceSchema(columns, "date_time", source._sequence.disorder_us, source._sequence.rate_of(source.kind))

    def check(self, span: Span | None) -> None:
        for name, _ in self.stream.columns:
            if name not in KINDS[self.kind]:
                raise SourceArguments(self.stream.source, span).error(
                    f'nexmark() has no column "{name}"; a {self.kind} has {", ".join(KINDS[self.kind])}'
                )

    @property
    def sequence(self) -> EventSequence:
        return self._sequence if self._start is not None else replace(self._sequence, start=self.began)

    def rows_by(self, elapsed_us: int) -> int:
        return int(Fraction(elapsed_us, SECOND) * self._sequence.rate)

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        for begin in range(start, end, AT_ONCE):
            stop = min(begin + AT_ONCE, end)
            every = [name for name, _ in self.stream.columns]
            names = [name for name in every if name in columns or name in self.stream.time_columns]
            chunk = self._made(begin, stop, names or every[:1])
            yield replace(chunk, whole=lambda b=begin, s=stop, e=every: self._made(b, s, e).rows)  # type: ignore[misc]

    def _made(self, begin: int, end: int, columns: list[str]) -> Chunk:
        rows = events_of(self.sequence, self.kind, begin, end)
        made = {name: pl.Series(name, KINDS[self.kind][name][1](rows)) for name in columns}
        return conform(pl.DataFrame(made), self.stream, f"nexmark of {self.stream.name}", begin + 1)

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        kinds = KINDS[self.kind]
        if self.stream.time_column not in ("date_time", None):
            return ()  # by another column the rows have no order
        if not all(converts_always(polars_type(kinds[name][0]), kind) for name, kind in self.stream.columns):
            return ()
        tasks = min(tasks, self.count_rows(start, end) // PIECE_ROWS)
        return tuple(start + (end - start) * task // tasks for task in range(1, tasks))

    def count_rows(self, start: int, end: int) -> int:
        return (end - start) * PER_EPOCH[self.kind] // EPOCH

    def latest(self, start: int, end: int) -> Instant:
        # The last events hold a whole group and an epoch: all before are older.
        tail = max(start, end - 2 * (self._sequence.disorder + EPOCH))
        event = events_of(self.sequence, self.kind, tail, end).event
        return int(self.sequence.time(event).max()) if len(event) else BEFORE_ALL

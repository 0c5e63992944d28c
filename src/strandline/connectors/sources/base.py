"""Source contract, and the registry of sources.

A source counts its input in positions 0, 1, 2, … On the driver, `advance` returns the present end of the input; on a
worker, `read` returns the rows between two positions, always the same. Positions go through Spark's offset log, so a
replay reads exactly what was read before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import polars as pl

from strandline.connectors.arguments import CallArguments
from strandline.connectors.traits import Traits, is_foreign, load_plugins
from strandline.core.errors import SourceError, Span, at_place
from strandline.core.notices import Notice
from strandline.core.security.allow import Allow, Reach, secrets_in
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.logical.catalog import BaseStream, ConnectorCall, SourceSchema, StreamStatistics
from strandline.runtime.kernels.batch import FROM, times

REJECT_SCHEMA = {"place": pl.String(), "row": pl.Int64(), "reason": pl.String(), "content": pl.String()}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in order of arrival: well-formed ones under their declared names with `@from`, and rejected ones.

    The rows of a stream with intervals have `@until` as well, those of a stream by arrival have neither.

    Where a source left out unread columns, `whole` gets the same rows with all of them. `promise` is a watermark of the
    source: nothing that follows has a time before it.

    The rows of a source with partitions are all of one, which `partition` names: they are in order among themselves.

    `read` is how many rows and bad units the source counted itself, before it converted anything; None where it counts
    nothing of its own. `reached`, where rows were rejected together though their times could be read, is the latest of
    these: what follows is late as if they had come.
    """

    rows: pl.DataFrame
    rejected: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=REJECT_SCHEMA))
    whole: Callable[[], pl.DataFrame] | None = None
    promise: Instant = BEFORE_ALL
    partition: str | None = None
    read: int | None = None
    reached: Instant = BEFORE_ALL

    @property
    def count(self) -> int:
        """Number of rows and bad units of the chunk."""
        return self.rows.height + self.rejected.height if self.read is None else self.read

    @property
    def latest(self) -> Instant:
        """The latest time of its rows, and of those that count as if they had come."""
        return max(self.reached, int(times(self.rows, FROM).max(initial=BEFORE_ALL)))


class Source(ABC):
    """Input of one declared stream. `directory` is for its own log; None in memory."""

    traits: ClassVar[Traits]
    # True where one reader at a time may have it open, and gets what comes from then on: what came before is gone.
    is_live: ClassVar[bool] = False
    # True if all of its log stays, and a position means the same to whoever reads from it: then readers share the log.
    shares_log: ClassVar[bool] = False

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        self.stream = stream
        self.directory = directory

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        """Schema that the source provides itself, so that a declaration may omit the columns. None here."""
        return None

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        """Files and hosts that the source reads from, for the check of `allow`."""
        return []

    @abstractmethod
    def check(self, span: Span | None) -> None:
        """Complain about arguments that cannot work, before anything starts."""

    def remarks(self) -> Sequence[Notice]:
        """What a user should hear of the input as it is now, though it can be read."""
        return ()

    def statistics(self) -> StreamStatistics:
        """What the planner may take from the source, where the declaration says nothing."""
        return StreamStatistics()

    def identity(self) -> dict[str, object]:
        """Identity of the input for the checkpoint. Without paths of the machine, addresses and secrets, so that data
        may move and passwords may change."""
        call = self.stream.source
        return {"function": call.function, "arguments": list(call.arguments), "options": dict(call.options)}

    def seal(self, position: int) -> str:
        """Digest of the source's own log up to a position, kept in the offset. Empty where there is no log: then
        positions never change their meaning."""
        return ""

    def verify(self, position: int, seal: str) -> None:  # noqa: B027
        """Check that the log of the source up to a position matches `seal`, by reading it again; raises
        `checkpoint-damaged` if not. On the driver before a restart; nothing is changed."""

    def resume(self, position: int) -> None:  # noqa: B027
        """Resume after a verified position: the rest of the log belongs to no batch, and is dropped."""

    def check_seal(self, position: int, seal: str) -> None:  # noqa: B027
        """Cheap form of `verify` in a worker, for every batch: verified parts are not read again."""

    def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Called once before the first `advance` of a run, in the driver's process: a receiver opens its door here."""

    def close(self) -> None:  # noqa: B027
        """Called when the run is over."""

    @abstractmethod
    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        """End of the next read from `position`, at about `limit_rows` rows, and whether the input ends there."""

    @abstractmethod
    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        """The rows between two positions, with at least the given columns."""

    def rows_left(self, position: int) -> int | None:
        """Approximate rows after a position, for display; None if unknown. Called right after `advance`, on the
        driver."""
        return None

    def split_points(self, start: int, end: int, tasks: int) -> tuple[int, ...]:
        """Split points between two positions. None here: `latest` must be able to decide, from the earlier splits only,
        which rows of the later ones are late."""
        return ()

    def latest(self, start: int, end: int) -> Instant:
        """Latest time of a well-formed row between two positions; called only where there are split points."""
        raise AssertionError(f"{type(self).__name__} has no split points")

    def latest_by_reading(self, start: int, end: int) -> bool:
        """True if `latest` parses everything between two positions: then the tasks of a batch report their latest
        times to each other (`runtime/split_times.py`), and it is called only for those that do not."""
        return False

    def count_rows(self, start: int, end: int) -> int:
        """About how many rows lie between two positions, on the driver."""
        return end - start

    def partitions(self, end: int) -> Mapping[str, bool] | None:
        """Partitions of the source in the batch that ends at a position, and whether each is idle, so that the
        watermark ignores it. None where rows are in one order. Fixed with the position.

        Where a source has partitions, split points lie between them: each task reads whole partitions, and `latest` is
        not called.
        """
        return None

    def brings_rows(self, start: int, end: int) -> bool:
        """True if there are rows between two positions; else only the partitions changed."""
        return end > start


def split_evenly(rows: Sequence[int], start: int, end: int, tasks: int, least: int) -> tuple[int, ...]:
    """Positions that split entries with these numbers of rows into parts of about equal size, of at least so many
    rows."""
    ends = np.cumsum(rows)
    tasks = min(tasks, int(ends[-1]) // least) if len(ends) else 0
    cuts = start + 1 + np.searchsorted(ends, ends[-1] * np.arange(1, tasks) / tasks) if tasks > 1 else ()
    return tuple(sorted({int(cut) for cut in cuts if start < cut < end}))


class SourceArguments(CallArguments):
    """The arguments of a source function."""

    error_class = SourceError
    error_code = "source-argument"
    error_hint = "docs/language.md lists the sources and their options."


# Our sources by the name that users write, which is that of their module; imported when a stream has one.
OURS: Final = {
    "file": "FileSource",
    "rows": "RowsSource",
    "rate": "RateSource",
    "events": "EventsSource",
    "dataframe": "DataFrameSource",
    "kafka": "KafkaSource",
    "socket": "SocketSource",
    "http": "HttpSource",
    "nexmark": "NexmarkSource",
}


def known_sources() -> dict[str, type[Source]]:
    """The sources by the name that users write: ours, and those of installed packages."""
    return {**load_plugins("strandline.sources"), **{name: _import_ours(name) for name in OURS}}


def _import_table_source() -> type[Source]:
    source: type[Source] = import_module("strandline.connectors.tables.source").TableSource
    return source


def _import_ours(name: str) -> type[Source]:
    source: type[Source] = getattr(import_module(f"strandline.connectors.sources.{name}"), OURS[name])
    return source


def open_source(stream: BaseStream, directory: Path | None = None, span: Span | None = None) -> Source:
    kind = _source_class(stream.source, span) if stream.table is None else _import_table_source()
    with at_place(span):
        return kind(stream, directory)


def is_live(stream: BaseStream) -> bool:
    """Whether a stream cannot be read again from its beginning by another reader."""
    # Sources of other packages may lack newer attributes.
    return stream.table is None and bool(getattr(_source_class(stream.source, None), "is_live", False))


def shares_log(stream: BaseStream) -> bool:
    """Whether readers of a stream at different positions share its log."""
    return stream.table is None and bool(getattr(_source_class(stream.source, None), "shares_log", False))


def confine_source(call: ConnectorCall, allow: Allow | None, span: Span | None = None) -> None:
    """Reject a source with resources that are not allowed, before it is created."""
    if allow is None:
        return
    kind = _source_class(call, span)
    allow.check(call.function, is_foreign(kind), secrets_in([*call.arguments, *call.options.values()]), span)
    reaches = getattr(kind, "reaches", None)  # sources of other packages may lack newer attributes
    with at_place(span):
        allow.check(call.function, is_foreign(kind), () if reaches is None else reaches(call), span)


def source_schema(call: ConnectorCall, span: Span | None = None) -> SourceSchema | None:
    """Schema that a source provides itself, if it does."""
    kind = _source_class(call, span)
    with at_place(span):
        return kind.knows(call)


def _source_class(call: ConnectorCall, span: Span | None) -> type[Source]:
    name = call.function.lower()
    if name in OURS:
        return _import_ours(name)
    foreign: dict[str, type[Source]] = load_plugins("strandline.sources")
    if name not in foreign:
        raise SourceError(
            f'unknown source "{call.function}"',
            code="unknown-source",
            hint=f"Sources are {', '.join(sorted({*OURS, *foreign}))}.",
            span=span,
        )
    return foreign[name]

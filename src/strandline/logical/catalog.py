"""Catalog: declared streams, views and functions, their statistics and dependants."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeAlias

from strandline.core.errors import CatalogError, Span
from strandline.core.notices import Notice, NoticeLog
from strandline.core.security.allow import Allow
from strandline.core.security.secret import Secret
from strandline.core.types import Type
from strandline.logical.change_feed import ChangeFeed

if TYPE_CHECKING:
    from strandline.logical.expressions import Value
    from strandline.logical.plan import Plan
    from strandline.logical.udf import Definition

SYSTEM = "sys."  # prefix of the system tables
ONE_ROW = "#one_row"  # what a SELECT without FROM reads: a row without columns

Argument: TypeAlias = str | int | float | bool | Secret | list["Argument"] | None
# Hidden column of every stream: the number of source rows that a row represents after sampling.
WEIGHT: Final = "@weight"


@dataclass(frozen=True, slots=True)
class ConnectorCall:
    """`fn(...)` of a source or a sink as the user wrote it: the function, its positional and its named arguments."""

    function: str
    arguments: tuple[Argument, ...] = ()
    options: Mapping[str, Argument] = field(default_factory=dict)
    allow: Allow | None = field(default=None, compare=False, repr=False)  # for files that turn up later


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """Schema that a source provides itself: columns, the time among them, and its out-of-orderness.

    One that was read from data says of what: `place` is where the columns are from, and `basis` what they are known by.
    `times` are the columns that may be the time where it is not clear which is, `options` what else the data needs, as
    options of the source, and `remarks` what a user should hear of it.
    """

    columns: tuple[tuple[str, Type], ...]
    time_column: str | None
    disorder_us: int = 0
    rate: float | None = None  # rows per second
    place: str = ""
    basis: str = ""
    times: tuple[str, ...] = ()
    options: Mapping[str, Argument] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class Feeding(Protocol):
    """A running feeder, which writes the rows of a stream into a journal."""

    def check(self) -> None:
        """Raise the error of a failed feeder."""

    def acknowledge(self, position: int) -> None:
        """Acknowledge the rows before `position`."""

    def stop(self) -> None: ...


class Feed(Protocol):
    """Declaration of a feeder: an object of this process brings rows into a directory while a query runs."""

    def start(self, directory: Path) -> Feeding: ...


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Statistics for the planner. Results do not depend on them.

    Rows per second, distinct values by column; of rows that bring their intervals the mean length in seconds; the
    measured selectivities of filters over the stream, by their text. `steady` if rows come at constant distances.
    `batch_seconds` is by how much stream time a batch advances.
    """

    rate: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    length: float | None = None
    selectivities: Mapping[str, float] = field(default_factory=dict)
    steady: bool = False
    batch_seconds: float | None = None

    def over(self, other: StreamStatistics) -> StreamStatistics:
        """These statistics, completed from the other."""
        return StreamStatistics(
            self.rate or other.rate,
            {**other.values, **self.values},
            self.length or other.length,
            {**other.selectivities, **self.selectivities},
            self.steady or other.steady,
            self.batch_seconds or other.batch_seconds,
        )


@dataclass(frozen=True, slots=True)
class BadInputPolicy:
    """Bad-input policy: rejected rows are skipped, or stop the queries once there are more than `most_rows` or, of all
    that were read, than `most_share`."""

    stops: bool = False
    most_rows: int | None = None
    most_share: float | None = None

    def __str__(self) -> str:
        if not self.stops:
            return "skip"
        if self.most_share is not None:
            return f"stop after {self.most_share * 100:g} percent"
        return f"stop after {self.most_rows:,} rows" if self.most_rows else "stop"


_INTERVAL: Final = ("valid_from", "valid_until")  # every row has them

# changing: by statements or a feed, in recorded time; constant: frozen when a query starts; temporal: with periods.
TableKind: TypeAlias = Literal["changing", "constant", "temporal"]


@dataclass(frozen=True, slots=True)
class BaseStream:
    """A stream that comes from outside: its columns, its source and the promise about its order.

    A row is valid for the instant of its time column or, where there is an end column, from the one until the other.
    Without a time column it is valid for the instant at which it arrives. The rows of one with `changes` say when
    others begin and end. `feed` stays in this process: other processes get the stream without it, and read what it has
    brought. One with `table` is the input of a table: its rows are elements already, and it holds no query back.

    `reader_of` is the name of the stream that this one reads from its beginning, beside those that read it already; its
    name is a mark in plans, and no declaration has it. It is empty for streams themselves. The reader of a table has in
    `base` the end of its log when the queries were added that read it, which see changes from there on at their times.
    """

    word: ClassVar[str] = "stream"
    name: str
    columns: tuple[tuple[str, Type], ...]
    source: ConnectorCall
    time_column: str | None
    disorder_us: int = 0
    idle_after_us: int | None = None
    end_column: str | None = None
    statistics: StreamStatistics = field(default_factory=StreamStatistics)
    feed: Feed | None = field(default=None, compare=False, repr=False)
    bad_input: BadInputPolicy = BadInputPolicy()
    changes: ChangeFeed | None = None
    table: TableKind | None = None
    source_statistics: StreamStatistics = field(
        default_factory=StreamStatistics, compare=False
    )  # what the source knows
    reader_of: str = field(default="", metadata={"unless default": True})
    base: int = field(default=-1, metadata={"unless default": True})

    @property
    def declared_name(self) -> str:
        """The name by which the stream is declared."""
        return self.reader_of or self.name

    @property
    def follows(self) -> bool:
        """Whether it follows another reader of the stream, to become level with it. Those of tables stay apart."""
        return self.reader_of != "" and self.table is None

    @property
    def queried_columns(self) -> tuple[tuple[str, Type], ...]:
        """Columns that queries see. The operation and the time of a change are not columns of the row that it changes:
        which of equal rows ends must not make a difference."""
        if self.changes is None:
            return self.columns
        hidden = (self.changes.op_column, self.time_column)
        return tuple(column for column in self.columns if column[0] not in hidden)

    @property
    def has_intervals(self) -> bool:
        return self.end_column is not None or self.table is not None

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Columns that define the validity of a row."""
        return tuple(name for name in (self.time_column, self.end_column) if name is not None)

    def column_type(self, name: str) -> Type:
        return dict(self.columns)[name]


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """A query with a name; other queries read it like a stream. A view is one that never runs by itself, a materialized
    view one that runs from its declaration on, and whose content, with the past of `keep_us`, can be read at once.

    A derived stream that is read is inlined, so the plan shows base streams only. `reads` keeps the names of the
    streams and views that the query itself reads.
    """

    name: str
    plan: Plan
    text: str
    reads: frozenset[str]
    is_view: bool = False
    shedding: float | None = None  # the share of rows that it may lose when it runs
    is_materialized: bool = False
    keep_us: int | None = None
    notices: tuple[Notice, ...] = field(default=(), compare=False)  # of its statement
    start: Literal["now", "earliest"] | None = None  # where it begins in streams that others read

    @property
    def word(self) -> str:
        if self.is_materialized:
            return "materialized view"
        return "view" if self.is_view else "stream"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: a history of changes in recorded time, whose content at t queries see at t (docs/decisions/0027).

    It is changed by statements, or has a `source`; of a change feed `columns` are without the operation and the time.
    `feed` brings the rows of an object of this process. `required` are the columns that are NOT NULL, outside the key;
    `defaults` has values for columns that a statement omits. With a `time_column` changes take effect at the time of
    their row; a temporal table has rows with periods, from `time_column` until `end_column`. Its log is in `directory`.
    """

    word: ClassVar[str] = "table"
    name: str
    columns: tuple[tuple[str, Type], ...]
    key: tuple[str, ...] = ()
    kind: TableKind = "changing"
    retroactive: bool = True
    source: ConnectorCall | None = None
    time_column: str | None = None
    end_column: str | None = None
    disorder_us: int = 0
    idle_after_us: int | None = None
    changes: ChangeFeed | None = None
    keep_us: int | None = None
    directory: str = ""
    source_columns: tuple[tuple[str, Type], ...] = ()  # of its source, where the rows of that have further ones
    required: tuple[str, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=dict)
    feed: Feed | None = field(default=None, compare=False, repr=False)

    @property
    def input(self) -> BaseStream:
        """The stream of its changes, as pipelines read it."""
        call, start, end = ConnectorCall("table", (self.directory,)), self.time_column, self.end_column
        if self.kind != "temporal":
            start = end = None
        return BaseStream(self.name, self.columns, call, start, end_column=end, table=self.kind)

    @property
    def origin(self) -> BaseStream:
        """The stream of the rows of its source."""
        assert self.source is not None, "statements change the table"
        return BaseStream(
            self.name,
            self.source_columns or self.columns,
            self.source,
            self.time_column,
            self.disorder_us,
            self.idle_after_us,
            self.end_column,
            feed=self.feed,
            changes=self.changes,
        )

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns in which rows differ. Those of a temporal table may be equal in the key at different times."""
        return () if self.kind == "temporal" else self.key

    @property
    def queried_columns(self) -> tuple[tuple[str, Type], ...]:
        """Columns that queries see. Times that are named like the interval of a row are that interval."""
        hidden = [name for name in (self.time_column, self.end_column) if name and name.lower() in _INTERVAL]
        return tuple(column for column in self.columns if column[0] not in hidden)

    def column_type(self, name: str) -> Type:
        return dict(self.columns)[name]


Stream: TypeAlias = BaseStream | DerivedStream | Table


@dataclass(frozen=True, slots=True)
class DependentQuery:
    """A query that runs, or that a script is going to run, with the names in its FROM."""

    word: ClassVar[str] = "running query"
    name: str
    reads: frozenset[str]
    pipeline: str = ""  # by SET PIPELINE


Dependant: TypeAlias = DerivedStream | DependentQuery


class Catalog:
    """The streams, and the functions and aggregates of the user's, by name.

    Names are case-insensitive, as SQL's are, and streams keep the user's spelling for display.
    """

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self.functions: dict[str, Definition] = {}
        self.allow: Allow | None = None  # resources that statements may access; None for all
        self.notices = NoticeLog()  # what users should hear of statements and queries
        self.measured: dict[str, StreamStatistics] = {}  # measured statistics of base streams, by folded name

    def statistics(self) -> dict[str, StreamStatistics]:
        """Statistics of each base stream: declared, else measured, else what its source knows."""
        nothing = StreamStatistics()
        base = (stream for stream in self if isinstance(stream, BaseStream))
        return {
            s.name: s.statistics.over(self.measured.get(s.name.lower(), nothing)).over(s.source_statistics)
            for s in base
        }

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._streams

    def get(self, name: str, span: Span | None = None) -> Stream:
        stream = self._streams.get(name.lower())
        if stream is None and name.lower().startswith(SYSTEM):
            message = f'"{name}" is a system table, which only a plain SELECT can read'
            hint = "Run the SELECT on its own, without CREATE or EXPLAIN."
            raise CatalogError(message, code="system-table", hint=hint, span=span)
        if stream is None:
            near = difflib.get_close_matches(name.lower(), self._streams, n=1)
            if near:
                hint = f'Did you mean "{self._streams[near[0]].name}"?'
            else:
                hint = "Declare it first: CREATE STREAM name (columns) SOURCE … ORDERED BY column."
            raise CatalogError(f'stream "{name}" does not exist', code="unknown-stream", hint=hint, span=span)
        return stream

    def add(self, stream: Stream, span: Span | None = None) -> None:
        if stream.name.lower().startswith(SYSTEM):
            message = f'the name "{stream.name}" is reserved for system tables'
            hint = "Names that begin with sys. are reserved; choose another name."
            raise CatalogError(message, code="system-table", hint=hint, span=span)
        self.refuse_taken(stream.name, span)
        self._streams[stream.name.lower()] = stream

    def forget(self, stream: Stream) -> None:
        """Remove what is going to be declared again, whatever reads it: plans have what they need of it."""
        del self._streams[stream.name.lower()]
        self.measured.pop(stream.name.lower(), None)

    def refuse_taken(self, name: str, span: Span | None = None) -> None:
        """Refuse a name that something has already."""
        existing = self._streams.get(name.lower())
        if existing is not None:
            message = f'{existing.word} "{existing.name}" already exists'
            hint = f"Choose another name, or DROP {existing.word.upper()} {existing.name} first."
            raise CatalogError(message, code="stream-exists", hint=hint, span=span)

    def add_function(self, function: Definition) -> None:
        if function.name in self.functions:
            raise CatalogError(
                f"function {function.name} already exists", code="function-exists", hint="Choose another name."
            )
        self.functions[function.name] = function

    def replace_view(
        self, view: DerivedStream, running: Sequence[DependentQuery] = (), span: Span | None = None
    ) -> None:
        """Replace a view that nothing reads."""
        existing = self._streams.get(view.name.lower())
        if not (isinstance(existing, DerivedStream) and existing.is_view):
            self.add(view, span)
            return
        if view.name.lower() in _folded(view.reads):
            message = f'view "{view.name}" cannot refer to itself'
            hint = "REPLACE removes the old view: write its query into the new one."
            raise CatalogError(message, code="recursive-query", hint=hint, span=span)
        self._refuse_dependants(existing, running, f"DROP VIEW {existing.name} CASCADE, then CREATE VIEW.", span)
        self._streams[view.name.lower()] = view

    def drop(
        self, name: str, span: Span | None = None, *, cascade: bool = False, running: Sequence[DependentQuery] = ()
    ) -> list[Stream]:
        """Remove a stream or view, with `cascade` also its dependants; a running query is never removed.

        All or nothing: returns the removed ones.
        """
        stream = self.get(name, span)
        dependants = [reader for level in self.dependants(stream, running) for reader in level]
        if not cascade or any(isinstance(dependant, DependentQuery) for dependant in dependants):
            hint = f"Drop them first, or together: DROP {stream.word.upper()} {stream.name} CASCADE."
            self._refuse_dependants(stream, running, hint, span)
        gone: list[Stream] = [stream, *(dependant for dependant in dependants if isinstance(dependant, DerivedStream))]
        for dependant in gone:
            del self._streams[dependant.name.lower()]
            self.measured.pop(dependant.name.lower(), None)
        return gone

    def dependants(self, stream: Stream, running: Sequence[DependentQuery] = ()) -> list[list[Dependant]]:
        """Dependants of a stream: direct ones first, then those of these, and so on."""
        remaining: list[Dependant] = [*(s for s in self if isinstance(s, DerivedStream) and s is not stream), *running]
        levels: list[list[Dependant]] = []
        names = {stream.name.lower()}
        while level := [dependant for dependant in remaining if names & _folded(dependant.reads)]:
            levels.append(level)
            remaining = [dependant for dependant in remaining if dependant not in level]
            names = {dependant.name.lower() for dependant in level if isinstance(dependant, DerivedStream)}
        return levels

    def _refuse_dependants(
        self, stream: Stream, running: Sequence[DependentQuery], hint: str, span: Span | None
    ) -> None:
        direct, *further = self.dependants(stream, running) or [[]]
        if not direct:
            return
        through = [dependant for level in further for dependant in level]
        runs = any(isinstance(dependant, DependentQuery) for dependant in (*direct, *through))
        raise CatalogError(
            f'cannot drop {stream.word} "{stream.name}": it is read by {_listed(direct)}',
            code="stream-in-use",
            detail=f"Indirectly, it is also read by {_listed(through)}." if through else None,
            hint="Stop the running queries first." if runs else hint,
            span=span,
        )


def _listed(dependants: Iterable[Dependant]) -> str:
    return ", ".join(f'{dependant.word} "{dependant.name}"' for dependant in dependants)


def _folded(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}

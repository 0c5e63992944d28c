"""The logical algebra: what a query means, as an inert tree of stream operators.

Every node maps logical streams to a logical stream; `reference/interpreter.py` is the executable meaning. Columns have
ids that are unique in the whole plan, so that a rule can move an operator without renumbering anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from strandline.core.errors import Span
from strandline.core.temporal import Instant
from strandline.core.types import Column
from strandline.logical.catalog import TableKind
from strandline.logical.change_feed import ChangeFeed
from strandline.logical.expressions import AggregateCall, Expression, SortKey, WindowCall

Outputs: TypeAlias = tuple[tuple[Column, Expression], ...]
Aggregates: TypeAlias = tuple[tuple[Column, AggregateCall], ...]
WindowCalls: TypeAlias = tuple[tuple[Column, WindowCall], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A base stream: each element is valid for the single instant of its timestamp (a chronon stream) or, with
    `intervals`, for an interval that it brings along. The intervals of a stream with `changes` end when it says so.

    `columns` are the stream's declared columns, in order, under the ids of this use; rules may narrow them. `table` is
    the kind of a table: each of its rows is valid from its insertion until its deletion. `key` are the ids of its
    PRIMARY KEY. The elements of a stream see a table that is not `retroactive` as it was when they came: a Lookup. With
    `at` it is read at that instant only: its rows at `at` are valid always.
    """

    stream: str
    alias: str
    columns: tuple[Column, ...]
    intervals: bool = False
    changes: ChangeFeed | None = None
    table: TableKind | None = None
    key: tuple[str, ...] = ()
    retroactive: bool = True
    at: Instant | None = None

    @property
    def constant(self) -> bool:
        return self.table == "constant"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Keep each element of a chronon stream valid for `range_us`; the window moves every `slide_us`.

    At instant t the window holds the elements with T - range <= s < T, T = floor((t + 1) / slide) * slide.
    `slide_us = 1` (a chronon) is the sliding window: s <= t < s + range. Without a range elements never leave: s < T.
    With an offset, 0 <= offset < slide, T = floor((t + 1 - offset) / slide) * slide + offset.
    """

    range_us: int | None
    slide_us: int
    source: Plan
    offset_us: int = 0


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Keep the last `rows` elements of a chronon stream, or of each partition of it; moves every `slide` elements.

    Of the first c elements of a partition up to an instant, in order of time and then of arrival, the window holds
    those with T - rows < index <= T, T = floor(c / slide) * slide. Where a plan combines rows, the arrival order within
    an instant is undefined: they are ordered by their values, column by column.
    """

    partition: tuple[str, ...]
    rows: int
    slide: int
    source: Plan


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Keep the elements of a chronon stream, or of each partition of it, for as long as their session lasts.

    A session continues while no `gap_us` pass between one element and the next. At instant t the window holds the
    elements up to t that are joined to t by a chain of elements, each less than the gap after the one before, and the
    last less than the gap before t.
    """

    partition: tuple[str, ...]
    gap_us: int
    source: Plan


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The elements with the bounds of the time window that was finished last: `start` and `end` of [T - range, T),
    T = floor((t + 1) / slide) * slide.

    Windows that are `cumulative` begin together for each range: [floor((T - 1) / range) * range, T). An element that is
    valid when a window ends goes on with the bounds of that window. An offset moves all windows, as in TimeWindow.
    """

    range_us: int
    slide_us: int
    cumulative: bool
    start: Column
    end: Column
    source: Plan
    offset_us: int = 0


@dataclass(frozen=True, slots=True)
class Granularity:
    """Coarsen time: the snapshot at t is that at floor(t / granule) * granule."""

    granule_us: int
    source: Plan


@dataclass(frozen=True, slots=True)
class Changes:
    """Elements inserted (`insert`) or deleted (`delete`) since the instant before, valid for one instant."""

    kind: ChangeKind
    source: Plan


ALL_ROWS: Final = 10**9  # the limit of what is only put into an order


@dataclass(frozen=True, slots=True)
class TopRows:
    """The first `limit` rows in an order, or of each partition, and all that are level with the last of them.

    A statement that is executed at once may have one without an order at its top: any `limit` rows.
    """

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int
    source: Plan


@dataclass(frozen=True, slots=True)
class Rank:
    """The elements with their RANK() in an order, overall or per partition: one more than the number of elements before
    them. With a `limit` only ranks up to it."""

    rank_column: Column
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    source: Plan


@dataclass(frozen=True, slots=True)
class Over:
    """Each row of a chronon stream with window functions over the rows of its partition so far: by time, then by
    `order`, then by the values of the columns `ties`, and rows that are still level in order of arrival.

    A row is valid at its own instant. If it `waits` for rows after it, at that of the last of them; what still waits
    when the stream has ended comes at AFTER_ALL, without them. `per_instant`, the rows are all those of one instant.
    """

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    ties: tuple[str, ...]
    calls: WindowCalls
    waits: int
    per_instant: bool
    source: Plan


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the elements whose payload satisfies `predicate` (true; not false, not unknown)."""

    predicate: Expression
    source: Plan


@dataclass(frozen=True, slots=True)
class Map:
    """Compute the output columns of each element from its payload; validity stays."""

    outputs: Outputs
    source: Plan


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One element per instant and group with the aggregates over the group; the groups are the distinct `keys`.

    Without keys there is one group, and it has a value (COUNT 0, others NULL) also when nothing is valid.
    Keys are ids of columns of the source; they stay columns of the output.
    """

    keys: tuple[str, ...]
    aggregates: Aggregates
    source: Plan


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each payload at most once per instant."""

    source: Plan


@dataclass(frozen=True, slots=True)
class Join:
    """Pair the elements that are valid together and satisfy `predicate` (None: all, the Cartesian product)."""

    predicate: Expression | None
    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """As Join; and the unmatched elements of the left, with NULL for the right; if `full`, those of the right, too."""

    full: bool
    predicate: Expression
    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """The elements of the left while they have a match on the right; if `anti`, while they have none."""

    anti: bool
    predicate: Expression | None
    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class MarkJoin:
    """The elements of the left with a further column that is true while they have a match on the right."""

    mark: Column
    predicate: Expression | None
    left: Plan
    right: Plan


LookupKind: TypeAlias = Literal["inner", "left", "semi", "anti", "mark"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Each element x of the source with the rows of the table at ts(x), for as long as x is valid.

    inner, left   x with each row that satisfies `predicate`; for left, with NULL if there is none
    semi, anti    x if a row does, or if none does
    mark          x with the column `mark`, which says whether one does

    ts is the time of the row itself, not the start of its interval: that of a Scan, also below Filter, Map, windows
    and Union; of a pair the later one; of a Lookup that of its source (`properties/row_time.py`). Later changes of the
    table do not concern x: the table is not retroactive.
    """

    kind: LookupKind
    mark: Column | None
    predicate: Expression | None
    source: Plan
    table: Plan


ApplyKind: TypeAlias = Literal["semi", "anti", "mark", "single"]


@dataclass(frozen=True, slots=True)
class Apply:
    """A subquery, also called a dependent join: the right is evaluated for each element l of the left. Its outer
    references, columns of the left that its expressions read, are the values of l then.

    semi, anti   l while a row of the right satisfies `value`, or while none does
    mark         l with a `column` that says whether one does
    single       l with a `column` that has the `value` over l and the row of the right, which has at most one; or NULL

    No `value` is TRUE. The binder makes these nodes, and `logical/decorrelate.py` replaces them by joins.
    """

    kind: ApplyKind
    column: Column | None
    value: Expression | None
    left: Plan
    right: Plan
    span: Span = field(compare=False)


ChangeKind: TypeAlias = Literal["insert", "delete"]
SetKind: TypeAlias = Literal["except all", "except", "except strict", "intersect all", "intersect", "union max"]


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Each payload with the multiplicity of its kind, given that it is valid l times in `left` and r times in `right`:

    except all      l - r, if that is more than 0         except          once if l > 0 and r = 0
    intersect all   the smaller of l and r                intersect       once if l > 0 and r > 0
    union max       the larger of l and r                 except strict   l times if r = 0, else not at all

    Column i of the output is column i of both. NULL equals NULL here, as in SQL.
    """

    kind: SetKind
    columns: tuple[Column, ...]
    left: Plan
    right: Plan


@dataclass(frozen=True, slots=True)
class Union:
    """All elements of all sources (UNION ALL). Column i of the output is column i of every source."""

    columns: tuple[Column, ...]
    sources: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each element once for every element of its array, in the column `array`, with the same validity.

    `element` is the column that it adds, and `ordinal`, if it is asked for, that of the position in the array, from 1.
    An array that is NULL or has no elements makes the element vanish, or with `outer` stay with NULL in both columns.
    """

    element: Column
    array: str
    ordinal: Column | None
    outer: bool
    source: Plan

    @property
    def added(self) -> tuple[Column, ...]:
        return (self.element,) if self.ordinal is None else (self.element, self.ordinal)


WindowPlan: TypeAlias = TimeWindow | CountWindow | SessionWindow | Granularity
UnaryPlan: TypeAlias = (
    WindowPlan | WindowBounds | Changes | TopRows | Rank | Over | Filter | Map | Aggregate | Distinct | Unnest
)
BinaryPlan: TypeAlias = Join | OuterJoin | SemiJoin | MarkJoin | Apply | SetOperation
PredicatePlan: TypeAlias = Filter | Join | OuterJoin | SemiJoin | MarkJoin | Lookup
Plan: TypeAlias = Scan | UnaryPlan | BinaryPlan | Lookup | Union

"""Physical plans: algorithms, partitioning, and fragments that run without further exchange.

A pipeline is what one group of queries needs from sources to sinks. Its fragments are ordered in stages: stage 0 reads
and prepares the sources, every later stage follows an exchange by shard. A fragment is a tree of physical operators
whose leaves are ports; its route is the target of its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

from strandline.core.identity_cache import cached_by_identity, cached_by_identity_of_parts
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Column, Schema
from strandline.logical.catalog import BaseStream
from strandline.logical.expressions import ColumnRef, Expression, SortKey
from strandline.logical.plan import Aggregates, ChangeKind, LookupKind, Outputs, WindowCalls
from strandline.planner.compaction import StateStructure

# How an operator sends an element whose end it does not know: as intervals, in every batch the one up to the watermark;
# as changes, once without an end, and again with its end when that is known.
StreamForm: TypeAlias = Literal["intervals", "changes"]
InputForms: TypeAlias = tuple[StreamForm, StreamForm]  # of the left side and the right
# A field that came later than its node: with its default it is no part of the identity of a plan.
UNLESS_DEFAULT: Final = MappingProxyType({"unless default": True})
DERIVED: Final = MappingProxyType({"derived": True})  # a field that follows from the others
BOTH_INTERVALS: Final[InputForms] = ("intervals", "intervals")


@dataclass(frozen=True, slots=True)
class Input:
    """Input of a fragment: rows of a source (stage 0) or the output of an exchange. The rows of a table have the `form`
    of changes; what comes from an exchange has that of its sender."""

    tag: ClassVar[str] = "Input"
    name: str
    columns: Schema
    form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class Filter:
    tag: ClassVar[str] = "Filter"
    predicate: Expression
    source: Node


@dataclass(frozen=True, slots=True)
class Project:
    tag: ClassVar[str] = "Project"
    outputs: Outputs
    source: Node


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each element once for every element of an array."""

    tag: ClassVar[str] = "Unnest"
    element: Column
    array: str
    ordinal: Column | None
    outer: bool
    source: Node


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Time window: from timestamps to intervals."""

    tag: ClassVar[str] = "TimeWindow"
    range_us: int | None
    slide_us: int
    source: Node
    offset_us: int = field(default=0, metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Count window: the last rows of each partition; those of one instant in order of arrival or `by_value`."""

    tag: ClassVar[str] = "CountWindow"
    partition: tuple[str, ...]
    rows: int
    slide: int
    by_value: bool
    source: Node
    form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Session window: the rows of the open session of each partition."""

    tag: ClassVar[str] = "SessionWindow"
    partition: tuple[str, ...]
    gap_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class AlignTime:
    """Granularity: both ends of each interval to the next border of a granule."""

    tag: ClassVar[str] = "AlignTime"
    granule_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The bounds of the window that was finished last, as columns; elements are cut where a window ends."""

    tag: ClassVar[str] = "WindowBounds"
    range_us: int
    slide_us: int
    cumulative: bool
    start: Column
    end: Column
    source: Node
    offset_us: int = field(default=0, metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """Insertions or deletions at each instant, however the intervals are cut."""

    tag: ClassVar[str] = "ChangeStream"
    kind: ChangeKind
    source: Node
    input_form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class InsertStream:
    """Insertions where elements never end: each element when it begins."""

    tag: ClassVar[str] = "InsertStream"
    source: Node


@dataclass(frozen=True, slots=True)
class TopK:
    """The first rows in an order, by sweeping over the instants at which something changes."""

    tag: ClassVar[str] = "TopK"
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int
    source: Node


@dataclass(frozen=True, slots=True)
class Rank:
    """Rows with their ranks in an order, by sweeping over the instants at which something changes."""

    tag: ClassVar[str] = "Rank"
    rank_column: Column
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    source: Node


@dataclass(frozen=True, slots=True)
class OverRange:
    """Rows with aggregates over frames by time: those of their partition from `start_us` before them, or from the first
    on, to `end_us` before them."""

    tag: ClassVar[str] = "OverRange"
    partition: tuple[str, ...]
    start_us: int | None
    end_us: int
    aggregates: Aggregates
    source: Node


@dataclass(frozen=True, slots=True)
class OverRows:
    """Rows with window functions that go by the order of the rows of their partition: by time, `order`, the columns
    `ties` and arrival. They come when as many later rows have as they wait for."""

    tag: ClassVar[str] = "OverRows"
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    ties: tuple[str, ...]
    calls: WindowCalls
    waits: int
    per_instant: bool
    source: Node


@dataclass(frozen=True, slots=True)
class TopKPrefilter:
    """Rows before their window, without those that can never be among the first in it."""

    tag: ClassVar[str] = "TopKPrefilter"
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int
    range_us: int | None
    slide_us: int
    source: Node
    offset_us: int = field(default=0, metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Reorder buffer: hold back elements, or changes, beyond the watermark; release ordered slices.

    Above what runs ahead, `below` are the streams by whose watermark everything below goes, and `above` those by which
    the buffer goes, and what reads it.
    """

    tag: ClassVar[str] = "Reorder"
    source: Node
    form: StreamForm = "intervals"
    below: tuple[str, ...] = field(default=(), metadata=UNLESS_DEFAULT)
    above: tuple[str, ...] = field(default=(), metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class HoldOpen:
    """Changes as they come; elements without an end are kept, so that they can be announced again."""

    tag: ClassVar[str] = "HoldOpen"
    source: Node


SideStructures: TypeAlias = tuple[StateStructure, StateStructure]  # of the state of both sides of a join


@dataclass(frozen=True, slots=True)
class HashJoin:
    """Hash join on equal keys and a further condition; without keys a nested loop over all pairs. If all elements of a
    side end before the watermark, so do the pairs, whatever the form of the other side."""

    tag: ClassVar[str] = "HashJoin"
    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left: Node
    right: Node
    structures: SideStructures = ("fifo", "fifo")
    input_forms: InputForms = BOTH_INTERVALS
    form: StreamForm = "intervals"


WindowExtent: TypeAlias = tuple[int | None, int, int]  # range, slide and offset of a time window
POINTS: Final[WindowExtent] = (1, 1, 0)  # of a stream without a window: each row for its instant
NO_WINDOW: Final[WindowExtent] = (0, 1, 0)  # of a use that is gone


@dataclass(frozen=True, slots=True)
class WindowUse:
    """A use of a shared window join: the windows over both sides, and the selections of rows, by digest; "" is every
    row that the join had when it began."""

    left: WindowExtent
    right: WindowExtent
    selections: tuple[str, str] = ("", "")

    @property
    def is_gone(self) -> bool:
        """Whether it only holds the place of its class of selections: no query has it any more."""
        return NO_WINDOW in (self.left, self.right)


@dataclass(frozen=True, slots=True)
class SharedWindowJoin:
    """Hash join of the rows of two streams, once for several windows over them: rows come with their timestamps and
    are kept for the largest window of any use. `Route` takes the pairs of a use out of its output.

    Bit i of the words is set for a row that the selections of the i-th class of uses let through; a side without a
    word has what all of them let through. `uses` are those of the routes that read it: they are no part of its
    identity, so that its state serves others, too. Where a use is gone, one without windows keeps the bit of its class.
    """

    tag: ClassVar[str] = "SharedWindowJoin"
    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left_word: ColumnRef | None
    right_word: ColumnRef | None
    left: Node
    right: Node
    uses: tuple[WindowUse, ...] = field(metadata=DERIVED, compare=False)


@dataclass(frozen=True, slots=True)
class Route:
    """The pairs of one use of a shared window join, valid while both rows are in their windows. Where a window slides
    by more than an instant a pair may start later than the slice: a reorder buffer follows. Of a query that came while
    the join ran, both rows have times from `since` on."""

    tag: ClassVar[str] = "Route"
    use: WindowUse
    outputs: tuple[tuple[Column, ColumnRef], ...]
    source: Node
    since: Instant = field(default=BEFORE_ALL, metadata=UNLESS_DEFAULT)


MatchKind: TypeAlias = Literal["left", "full", "semi", "anti", "mark"]


@dataclass(frozen=True, slots=True)
class OuterHashJoin:
    """Outer, semi, anti or mark join."""

    tag: ClassVar[str] = "OuterHashJoin"
    kind: MatchKind
    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left: Node
    right: Node
    mark: Column | None = None  # for "mark": the column that is true for a match
    form: StreamForm = "intervals"  # of the unmatched elements; of all where an input has the form of changes
    structures: SideStructures = ("fifo", "fifo")
    input_forms: InputForms = BOTH_INTERVALS


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Look-up join: each element of the left with those of the right that are valid when it begins, for as long as it
    is valid. What begins must be what came: the left is not cut."""

    tag: ClassVar[str] = "LookupJoin"
    kind: LookupKind
    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left: Node
    right: Node
    mark: Column | None = None
    structures: SideStructures = ("fifo", "fifo")
    input_forms: InputForms = BOTH_INTERVALS
    form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class IncrementalAggregate:
    """Aggregate by sweeping over the instants at which something changes; where many elements end at the same instants,
    by `panes`: the state has the sums of those of a group that end together, not the elements. It `coalesces` if
    neighbouring results of a group that are equal are sent as one."""

    tag: ClassVar[str] = "IncrementalAggregate"
    keys: tuple[str, ...]
    aggregates: Aggregates
    source: Node
    form: StreamForm = "intervals"
    panes: bool = False
    coalesces: bool = False
    input_form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class Distinct:
    """Duplicate elimination; it has the form of its input, and counts duplicates in that of changes."""

    tag: ClassVar[str] = "Distinct"
    source: Node
    form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Adjacent elements of equal payload as one: as changes, over all batches; as intervals, up to the watermark, or
    with `longest_us` over batches until they are that long."""

    tag: ClassVar[str] = "Coalesce"
    source: Node
    form: StreamForm = "intervals"
    longest_us: int | None = None


@dataclass(frozen=True, slots=True)
class FoldChanges:
    """The elements of a change feed: each begins with an insertion and ends with the deletion of an equal row or, with
    a key, with the next change of the key."""

    tag: ClassVar[str] = "FoldChanges"
    stream: str
    op_column: str
    key: tuple[str, ...]
    source: Node
    form: StreamForm = "intervals"


@dataclass(frozen=True, slots=True)
class AsChanges:
    """Intervals in the form of changes: an element that outlasts the watermark comes without its end, and again with it
    when it ends. Over a time window this is the window of positive and negative elements."""

    tag: ClassVar[str] = "AsChanges"
    source: Node


@dataclass(frozen=True, slots=True)
class AsIntervals:
    """Changes as intervals: an element without an end is cut at the watermark, in every slice."""

    tag: ClassVar[str] = "AsIntervals"
    source: Node


@dataclass(frozen=True, slots=True)
class FirstOccurrence:
    """Each element with copies of some values that are NULL except at their first occurrence for these keys: among
    elements that never end, those are the DISTINCT values."""

    tag: ClassVar[str] = "FirstOccurrence"
    keys: tuple[str, ...]
    values: tuple[tuple[Column, str], ...]  # the copy, and its original
    source: Node


@dataclass(frozen=True, slots=True)
class UnionAll:
    tag: ClassVar[str] = "UnionAll"
    columns: Schema
    sources: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Each element with multiplicity `copies`."""

    tag: ClassVar[str] = "Repeat"
    copies: Expression
    source: Node


@dataclass(frozen=True, slots=True)
class Split:
    """Split elements into intervals of at most `length_us`; `repeats` is how many of them the window above holds, by
    time or `by_rows`."""

    tag: ClassVar[str] = "Split"
    length_us: int
    repeats: int
    source: Node
    by_rows: bool = False


@dataclass(frozen=True, slots=True)
class SamplingRate:
    """Results with the sampling rate of the rows behind them: the product over the streams of their mean rates over the
    window (range in microseconds; None without an end, 0 for the instant alone)."""

    tag: ClassVar[str] = "SamplingRate"
    column: Column
    query: str
    windows: tuple[tuple[str, int | None], ...]
    source: Node


@dataclass(frozen=True, slots=True)
class Exchange:
    """Move elements to the shard where they are needed; only between fragments, never within one."""

    tag: ClassVar[str] = "Exchange"
    mode: Mode
    keys: tuple[str, ...]
    source: Node


# hash: by the hash of the key columns; spread: round robin, for work that any shard can do; all: a copy for every
# shard; one: everything to shard 0.
Mode: TypeAlias = Literal["hash", "spread", "all", "one"]

WindowNode: TypeAlias = TimeWindow | CountWindow | SessionWindow | AlignTime | WindowBounds | Split
ChangeNode: TypeAlias = ChangeStream | InsertStream
OrderNode: TypeAlias = TopK | Rank | OverRange | OverRows | TopKPrefilter | Reorder
JoinNode: TypeAlias = HashJoin | OuterHashJoin | LookupJoin
SharedNode: TypeAlias = SharedWindowJoin | Route
GroupNode: TypeAlias = IncrementalAggregate | Distinct | FirstOccurrence | FoldChanges
FormNode: TypeAlias = Coalesce | AsChanges | AsIntervals | HoldOpen
RowNode: TypeAlias = Filter | Project | Unnest | UnionAll | Repeat | SamplingRate
Node: TypeAlias = (
    Input | Exchange | RowNode | WindowNode | ChangeNode | OrderNode | JoinNode | SharedNode | GroupNode | FormNode
)


@dataclass(frozen=True, slots=True)
class ExchangeTo:
    """The output goes to a port of a later fragment, by shard."""

    port: str
    stage: int
    mode: Mode
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultOf:
    """The output is the result of a query."""

    query: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tree of operators that runs once per shard, and the target of its output.

    `streams` are those by whose watermark its result goes: those of its query, or the ones below it if it runs ahead
    for several queries (`ahead.py`). `everywhere` is false if it runs in shard 0 only. `operators` are the ids of the
    operators in the order of `numbered`, by which they find their state: one that several fragments of a stage have
    runs once, for all of them. `queries` are those whose results need it. `since` is the first instant whose rows it
    takes.
    """

    id: str
    queries: tuple[str, ...]
    stage: int
    root: Node
    route: ExchangeTo | ResultOf
    streams: frozenset[str]
    everywhere: bool
    operators: tuple[str, ...] = field(default=(), metadata=DERIVED, compare=False)
    since: Instant = field(default=BEFORE_ALL, metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query of the pipeline: its name, its result columns, and the streams that drive its progress.

    Its result is over the rows with a time from `since` on.
    """

    name: str
    columns: Schema
    streams: frozenset[str]
    since: Instant = field(default=BEFORE_ALL, metadata=UNLESS_DEFAULT)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that runs together: streams, fragments in stage order, queries."""

    streams: tuple[BaseStream, ...]
    fragments: tuple[Fragment, ...]
    queries: tuple[QueryPlan, ...]
    shards: int

    @property
    def stages(self) -> int:
        return max((f.stage for f in self.fragments), default=0)

    def at(self, stage: int) -> tuple[Fragment, ...]:
        return tuple(f for f in self.fragments if f.stage == stage)


# Operators that pass an element on with its whole interval. Others emit what is final, batch by batch: count windows,
# sessions, groups and matches of an element change with later input.
_KEEPS_ELEMENTS: Final[tuple[type, ...]] = (
    Input,
    Filter,
    Project,
    TimeWindow,
    AlignTime,
    HashJoin,
    SharedWindowJoin,
    Route,
    LookupJoin,
    UnionAll,
    Exchange,
    Reorder,
    OverRange,
    OverRows,
    Unnest,
)


def fragments_of(pipeline: Pipeline, query: str) -> list[Fragment]:
    """The fragments that a query's result comes from, those that others read first."""
    feeders, results = _routes(pipeline)
    found: dict[str, Fragment] = {}

    def visit(fragment: Fragment) -> None:
        for port in ports(fragment.root):
            if port.name in feeders and feeders[port.name].id not in found:
                visit(feeders[port.name])
        found[fragment.id] = fragment

    for fragment in results.get(query, ()):
        visit(fragment)
    return list(found.values())


@cached_by_identity  # each of a thousand queries asks for its own
def _routes(pipeline: Pipeline) -> tuple[Mapping[str, Fragment], Mapping[str, Sequence[Fragment]]]:
    """The fragments of a pipeline that others read, by port, and those that send the results, by query."""
    feeders: dict[str, Fragment] = {}
    results: dict[str, list[Fragment]] = {}
    for fragment in pipeline.fragments:
        if isinstance(fragment.route, ExchangeTo):
            feeders[fragment.route.port] = fragment
        else:
            results.setdefault(fragment.route.query, []).append(fragment)
    return feeders, results


def has_whole_elements(pipeline: Pipeline, query: str) -> bool:
    """True if no element of a query's result is emitted in several intervals, whatever the batches."""
    roots = [fragment.root for fragment in fragments_of(pipeline, query)]
    return all(isinstance(node, _KEEPS_ELEMENTS) for root in roots for node in numbered(root))


def numbered(*roots: Node) -> list[Node]:
    """The operators of a fragment, each after those that it reads; equal parts of the tree are one operator."""
    return list(numbers(*roots))


def numbers(*roots: Node) -> dict[Node, int]:
    """The same with their numbers. Looking up a node hashes the whole tree below it."""
    numbering: dict[Node, int] = {}
    visited: set[int] = set()

    def visit(node: Node) -> None:
        if isinstance(node, Input) or id(node) in visited:
            return
        visited.add(id(node))
        for source in sources(node):
            visit(source)
        numbering.setdefault(node, len(numbering))

    for root in roots:
        visit(root)
    return numbering


@cached_by_identity_of_parts
def operators_of(root: Node) -> Sequence[tuple[Node, Sequence[Input | int]]]:
    """The operators of a fragment in the order of their numbers, each with where its inputs come from: a port, or the
    operator of that number."""
    numbering = numbers(root)
    return tuple(
        (node, tuple(source if isinstance(source, Input) else numbering[source] for source in sources(node)))
        for node in numbering
    )


def sources(node: Node) -> tuple[Node, ...]:
    """The inputs of a physical operator."""
    match node:
        case Input():
            return ()
        case HashJoin() | OuterHashJoin() | LookupJoin() | SharedWindowJoin():
            return (node.left, node.right)
        case UnionAll():
            return node.sources
        case _:
            return (node.source,)


def with_sources(node: Node, inputs: tuple[Node, ...]) -> Node:
    """A physical operator over other inputs."""
    match node:
        case HashJoin() | OuterHashJoin() | LookupJoin() | SharedWindowJoin():
            return replace(node, left=inputs[0], right=inputs[1])
        case UnionAll():
            return replace(node, sources=inputs)
        case Input():
            return node
        case _:
            return replace(node, source=inputs[0])


def schema(node: Node) -> Schema:
    """The columns of the elements that a physical operator produces."""
    match node:
        case Input(_, columns) | UnionAll(columns, _):
            return columns
        case Project(outputs, _) | Route(_, outputs, _):
            return tuple(column for column, _ in outputs)
        case Unnest(element, _, ordinal, _, source):
            return (*schema(source), element, *(() if ordinal is None else (ordinal,)))
        case OuterHashJoin("semi" | "anti" | "mark") | LookupJoin("semi" | "anti" | "mark"):
            return schema(node.left) + (() if node.mark is None else (node.mark,))
        case HashJoin() | OuterHashJoin() | LookupJoin() | SharedWindowJoin():
            return schema(node.left) + schema(node.right)
        case WindowBounds(start=start, end=end):
            return (*schema(node.source), start, end)
        case FirstOccurrence(_, values, source):
            return (*schema(source), *(column for column, _ in values))
        case FoldChanges(_, op_column, _, source):
            return tuple(column for column in schema(source) if column.id != op_column)
        case Rank(column, _, _, _, source) | SamplingRate(column, _, _, source):
            return (*schema(source), column)
        case OverRange(aggregates=aggregates, source=source):
            return (*schema(source), *(column for column, _ in aggregates))
        case OverRows(calls=calls, source=source):
            return (*schema(source), *(column for column, _ in calls))
        case IncrementalAggregate(keys, aggregates, source):
            by_id = {c.id: c for c in schema(source)}
            return (*(by_id[key] for key in keys), *(column for column, _ in aggregates))
        case _:
            return schema(node.source)


def ports(node: Node) -> tuple[Input, ...]:
    """The leaves of a fragment, left to right."""
    if isinstance(node, Input):
        return (node,)
    return tuple(port for source in sources(node) for port in ports(source))

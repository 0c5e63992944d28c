"""Physical plans: which algorithm, partitioned how, cut into fragments that run without further exchange.

A pipeline is what one group of queries needs from sources to sinks. Its fragments are ordered in stages: stage 0 reads
and prepares the sources, every later stage follows an exchange by bucket. A fragment is a tree of physical operators
whose leaves are ports; its route says where its output goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from strandline.algebra.expressions import AggregateCall, ColumnRef, Expression, SortKey
from strandline.algebra.operators import ChangeKind
from strandline.catalog import BaseStream
from strandline.types import Column, Schema


@dataclass(frozen=True, slots=True)
class Port:
    """Where elements enter a fragment: rows of a source (stage 0) or what an exchange delivers."""

    name: str
    columns: Schema


@dataclass(frozen=True, slots=True)
class Select:
    """Filter."""

    predicate: Expression
    source: Node


@dataclass(frozen=True, slots=True)
class Project:
    """Map."""

    outputs: tuple[tuple[Column, Expression], ...]
    source: Node


@dataclass(frozen=True, slots=True)
class ExtendValidity:
    """Time window: from timestamps to intervals."""

    range_us: int | None
    slide_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class LastRows:
    """Count window: the last rows of each partition; those of one instant in order of arrival or `by_value`."""

    partition: tuple[str, ...]
    rows: int
    slide: int
    by_value: bool
    source: Node


@dataclass(frozen=True, slots=True)
class LastSession:
    """Session window: the rows of the session that goes on, of each partition."""

    partition: tuple[str, ...]
    gap_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class RoundUp:
    """Granularity: both ends of each interval to the next border of a granule."""

    granule_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class NetChanges:
    """What comes or goes at each instant, whatever way the intervals are cut."""

    kind: ChangeKind
    source: Node


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What comes at each instant, where nothing ever goes: each element when it begins."""

    source: Node


@dataclass(frozen=True, slots=True)
class SweepTop:
    """The first rows in an order, by sweeping over the instants at which something changes."""

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int
    source: Node


@dataclass(frozen=True, slots=True)
class SweepRank:
    """Rows with their places in an order, by sweeping over the instants at which something changes."""

    place: Column
    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    source: Node


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Rows before their window, without those that can never be among the first in it."""

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    limit: int
    range_us: int | None
    slide_us: int
    source: Node


@dataclass(frozen=True, slots=True)
class Reorder:
    """Hold back what lies beyond the progress; release ordered slices."""

    source: Node


@dataclass(frozen=True, slots=True)
class SymmetricJoin:
    """Join on equal keys (hash look-up) and a further condition; without keys all pairs are looked at."""

    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left: Node
    right: Node


MatchKind: TypeAlias = Literal["left", "full", "semi", "anti", "mark"]


@dataclass(frozen=True, slots=True)
class MatchJoin:
    """A join that also looks at elements without a partner: outer, semi and anti."""

    kind: MatchKind
    left_keys: tuple[ColumnRef, ...]
    right_keys: tuple[ColumnRef, ...]
    condition: Expression | None
    left: Node
    right: Node
    mark: Column | None = None  # for "mark": the column that says whether there is a partner


@dataclass(frozen=True, slots=True)
class SweepAggregate:
    """Aggregate by sweeping over the instants at which something changes."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[Column, AggregateCall], ...]
    source: Node


@dataclass(frozen=True, slots=True)
class RemoveDuplicates:
    """Duplicate elimination."""

    source: Node


@dataclass(frozen=True, slots=True)
class FirstValues:
    """Each element with copies of some values that are NULL unless they come for the first time for these keys: among
    elements that never end, those are the values that count once."""

    keys: tuple[str, ...]
    values: tuple[tuple[Column, str], ...]  # the copy, and of what
    source: Node


@dataclass(frozen=True, slots=True)
class Merge:
    """Union."""

    columns: Schema
    sources: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Each element as often as `copies` says."""

    copies: Expression
    source: Node


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Join touching pieces of equal payload."""

    source: Node


@dataclass(frozen=True, slots=True)
class Split:
    """Cut elements into pieces of at most `length_us`; `repeats` is how many of them the window above holds."""

    length_us: int
    repeats: int
    source: Node


@dataclass(frozen=True, slots=True)
class KeptShare:
    """Results with the share of the rows behind them that drop boxes kept: the product over the streams that are read,
    of each its mean over the window (range in microseconds; None without an end, 0 for the instant alone)."""

    column: Column
    query: str
    windows: tuple[tuple[str, int | None], ...]
    source: Node


@dataclass(frozen=True, slots=True)
class Exchange:
    """Bring elements to the bucket where they are needed; only between fragments, never inside one."""

    mode: Mode
    keys: tuple[str, ...]
    source: Node


# hash: by the hash of the key columns; spread: evenly, for work that any bucket can do;
# all: a copy for every bucket; one: everything to bucket 0.
Mode: TypeAlias = Literal["hash", "spread", "all", "one"]

Node: TypeAlias = (
    Port
    | Select
    | Project
    | ExtendValidity
    | LastRows
    | LastSession
    | RoundUp
    | NetChanges
    | Arrivals
    | SweepTop
    | SweepRank
    | FirstRows
    | Reorder
    | SymmetricJoin
    | MatchJoin
    | SweepAggregate
    | RemoveDuplicates
    | FirstValues
    | Merge
    | Repeat
    | Coalesce
    | Split
    | KeptShare
    | Exchange
)


@dataclass(frozen=True, slots=True)
class ToPort:
    """The output goes to a port of a later fragment, by bucket."""

    port: str
    stage: int
    mode: Mode
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToQuery:
    """The output is the answer of a query."""

    query: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tree of operators that runs in one place per bucket, and where its output goes.

    `streams` are the base streams below it: its progress is the smallest of theirs. `everywhere` is false if it runs
    in bucket 0 only.
    """

    id: str
    query: str
    stage: int
    root: Node
    route: ToPort | ToQuery
    streams: frozenset[str]
    everywhere: bool


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query of the pipeline: its name, its result columns, and the streams that drive its progress."""

    name: str
    columns: Schema
    streams: frozenset[str]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that runs together: streams, fragments in stage order, queries."""

    streams: tuple[BaseStream, ...]
    fragments: tuple[Fragment, ...]
    queries: tuple[QueryPlan, ...]
    buckets: int

    @property
    def stages(self) -> int:
        return max(f.stage for f in self.fragments)

    def at(self, stage: int) -> tuple[Fragment, ...]:
        return tuple(f for f in self.fragments if f.stage == stage)


# Operators that pass an element on with all of its interval at once. Others tell as much of it as is sure, batch by
# batch: the last rows, sessions, groups and partners of an element change with what comes.
_WHOLE = (Port, Select, Project, ExtendValidity, RoundUp, SymmetricJoin, Merge, Exchange, Reorder)


def has_whole_elements(pipeline: Pipeline, query: str) -> bool:
    """Whether no element of a query's answer comes in pieces, however its streams are cut into batches."""
    roots = [fragment.root for fragment in pipeline.fragments if fragment.query == query]
    return all(isinstance(node, _WHOLE) for root in roots for node in numbered(root))


def numbered(root: Node) -> list[Node]:
    """The operators of a fragment, each after those that it reads; equal parts of the tree are one operator."""
    return list(numbers(root))


def numbers(root: Node) -> dict[Node, int]:
    """The same with their numbers. To look a node up is to look at the whole tree below it."""
    found: dict[Node, int] = {}

    def visit(node: Node) -> None:
        if isinstance(node, Port) or node in found:
            return
        for source in sources(node):
            visit(source)
        found[node] = len(found)

    visit(root)
    return found


def sources(node: Node) -> tuple[Node, ...]:
    """The inputs of a physical operator."""
    match node:
        case Port():
            return ()
        case SymmetricJoin() | MatchJoin():
            return (node.left, node.right)
        case Merge():
            return node.sources
        case _:
            return (node.source,)


def schema(node: Node) -> Schema:
    """The columns of the elements that a physical operator produces."""
    match node:
        case Port(_, columns) | Merge(columns, _):
            return columns
        case Project(outputs, _):
            return tuple(column for column, _ in outputs)
        case MatchJoin("semi" | "anti" | "mark"):
            return schema(node.left) + (() if node.mark is None else (node.mark,))
        case SymmetricJoin() | MatchJoin():
            return schema(node.left) + schema(node.right)
        case FirstValues(_, values, source):
            return (*schema(source), *(column for column, _ in values))
        case SweepRank(place, _, _, _, source) | KeptShare(place, _, _, source):
            return (*schema(source), place)
        case SweepAggregate(keys, aggregates, source):
            by_id = {c.id: c for c in schema(source)}
            return (*(by_id[key] for key in keys), *(column for column, _ in aggregates))
        case _:
            return schema(node.source)


def ports(node: Node) -> tuple[Port, ...]:
    """The leaves of a fragment, left to right."""
    if isinstance(node, Port):
        return (node,)
    return tuple(port for source in sources(node) for port in ports(source))

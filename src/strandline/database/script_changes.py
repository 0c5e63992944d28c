"""How a script differs from the checkpoints of its earlier runs, and where its queries go.

    kept       the checkpoint has it as it is: its state, its positions and its results go on
    new        it is added to the graph that reads one of its streams, or gets a pipeline of its own
    changed    its plan, a stream, a function or its sink is another: it is dropped, and added as a new one
    failed     it had failed, and the graph goes on without it
    gone       the script does not have it any more

A stream that a kept query reads goes on. Queries that are added read it again from its beginning, or begin now where
that cannot be. Other streams begin again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import count
from pathlib import Path
from typing import Final, Literal

from strandline.connectors.sinks import Parquet, Sink
from strandline.connectors.sources.base import is_live
from strandline.core.durable import encode_name, query_directory
from strandline.core.errors import CheckpointError
from strandline.core.table import TextTable
from strandline.database.database import Database
from strandline.database.replacement import AddedQuery, Replacement
from strandline.database.statements import BoundQuery
from strandline.logical.catalog import BaseStream
from strandline.logical.tree import streams_read, tables_read
from strandline.runtime.checkpoint.identity import StoredGraph, stored_graphs
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.checkpoint.versions import FailedQuery, GraphQuery, Start

Change = Literal["new", "changed", "failed", "gone"]
MOST_LINES: Final = 20  # of the difference of one query
_BEGINS: Final[Mapping[Start, str]] = {"now": "now", "beginning": "from the beginning"}


@dataclass(frozen=True, slots=True)
class QueryChange:
    """A query that is not as the checkpoint has it: its line in the script, from when on it has rows if it is added,
    what is to be said of it, what differs, and why an update cannot make the change, if it cannot."""

    name: str
    change: Change
    line: int | None = None
    begins: str = ""
    remark: str = ""
    difference: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class PlacedQueries:
    """Queries that run in one pipeline, the directory of its checkpoint (None for a temporary one), and how its graph
    changes before."""

    directory: Path | None
    queries: list[BoundQuery]
    replacement: Replacement | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the queries of a script go, and what has changed since its checkpoints were written."""

    groups: list[PlacedQueries]
    changes: list[QueryChange] = field(default_factory=list)
    unchanged: int = 0

    @property
    def has_changed(self) -> bool:
        """Whether it needs an update; queries that have failed may stay away."""
        return any(change.change != "failed" for change in self.changes)

    def table(self) -> TextTable:
        """The changes, a query per line."""
        rows = [
            (c.name, c.change, "" if c.line is None else f"line {c.line}", "" if c.refusal else c.begins, _remark(c))
            for c in self.changes
        ]
        return TextTable.text(("query", "change", "place", "begins", "remark"), rows)

    def check(self, *, update: bool) -> None:
        """Refuse a script that has changed without an update, and an update that cannot be made."""
        refused = [change for change in self.changes if change.refusal and change.change != "failed"]
        if update and refused:
            raise CheckpointError(
                f"{refused[0].name} cannot be updated: {refused[0].refusal}",
                code="update-refused",
                detail="\n".join(f"{change.name}: {change.refusal}" for change in refused[1:]) or None,
                hint="Give the query another name, or start over with --fresh, which deletes the old results. "
                "Nothing was changed.",
            )
        if not update and self.has_changed:
            fresh = "--fresh starts over, and deletes the old results. Nothing was changed."
            raise CheckpointError(
                f"the script has changed since its checkpoint was written: {self._counts()}",
                code="script-changed",
                detail="\n".join(line for change in self.changes for line in _lines(change)) or None,
                hint=f"Run it with --update: the other queries go on with their state; {fresh}"
                if not refused
                else f"{', '.join(change.name for change in refused)} cannot be updated; {fresh}",
            )

    def _counts(self) -> str:
        numbers = {kind: sum(change.change == kind for change in self.changes) for kind in ("new", "changed", "gone")}
        return ", ".join(
            f"{number} {kind}" for kind, number in {**numbers, "unchanged": self.unchanged}.items() if number
        )


def _remark(change: QueryChange) -> str:
    """What is to be said of a change, in a list."""
    verb = "added again" if change.change == "failed" else "updated"
    return f"{change.remark}; it cannot be {verb}: {change.refusal}" if change.refusal else change.remark


def _lines(change: QueryChange) -> Iterator[str]:
    if change.difference:
        yield f"{change.name} has changed:"
        yield from (f"  {line}" for line in change.difference[:MOST_LINES])
        if len(change.difference) > MOST_LINES:
            yield f"  … and {len(change.difference) - MOST_LINES:,} more lines"


@dataclass(slots=True)
class _Graph:
    """The graph of a checkpoint, and what the script makes of it."""

    stored: StoredGraph
    kept: list[BoundQuery] = field(default_factory=list)
    again: list[BoundQuery] = field(default_factory=list)  # changed, or failed earlier
    new: list[BoundQuery] = field(default_factory=list)
    ended: frozenset[str] | None = None  # streams that have ended; None if it has not had a batch
    once: frozenset[str] = frozenset()  # queries that cannot, or are not to, read again what others have read

    @property
    def going_on(self) -> frozenset[str]:
        """The streams whose positions go on: a query reads them that is kept."""
        return frozenset[str]().union(*(streams_of(query) for query in self.kept))

    @property
    def streams(self) -> frozenset[str]:
        """The streams that it reads with its new queries."""
        return self.stored.streams.union(*(streams_of(query) for query in (*self.again, *self.new)))

    def is_near(self, query: BoundQuery) -> bool:
        """Whether a query belongs to it: it reads one of its streams or, with a name, is to run in its pipeline."""
        is_own = query.pipeline == self.stored.pipeline
        return is_own and (query.pipeline != "" or bool(streams_of(query) & self.streams))

    def former(self, name: str) -> GraphQuery | FailedQuery | None:
        """The query that it has or had under a name."""
        queries = (query for query in self.stored.queries if query.name == name)
        return next(queries, next((each for each in self.stored.failed if each.query.name == name), None))

    def gone(self, names: set[str]) -> list[str]:
        """The queries that a script with queries of these names does not have any more."""
        return [query.name for query in self.stored.queries if query.name not in names]

    def start(self, query: BoundQuery) -> Start:
        """Where a query begins that is added."""
        has_begun = self.ended is not None and bool(streams_of(query) & self.going_on)
        return "now" if has_begun and query.name in self.once else "beginning"

    def refuses(self, query: BoundQuery) -> str:
        """Why a query cannot be added; empty if it can."""
        if query.pipeline != self.stored.pipeline:
            return "a query is not moved to another pipeline"
        if query.shedding is not None or any(other.shedding is not None for other in self.kept):
            return "queries whose rows may be dropped are not added to one another"
        if self.start(query) == "now" and streams_of(query) <= self.going_on & (self.ended or frozenset()):
            return f"{' and '.join(sorted(streams_of(query)))} ended before it would begin"
        return ""


def streams_of(query: BoundQuery) -> frozenset[str]:
    """The streams that a query reads, without tables."""
    return frozenset(streams_read(query.plan) - tables_read(query.plan))


def place_queries(
    database: Database, queries: Sequence[BoundQuery], root: Path | None, out: Path | None, sink: Sink | None
) -> Placement:
    """Compare the queries of a script with the checkpoints below a directory, and say where they go. Results go to
    `out`, or to `sink`, where a query has none of its own."""
    queries = [replace(q, sink=q.sink or sink_of(q.name, out, sink) or database.memory) for q in queries]
    if root is None:
        return Placement([PlacedQueries(None, group) for group in connected_groups(queries)])
    stored = list(stored_graphs(root))
    names = {query.name for query in queries}
    graphs = [_Graph(graph) for graph in stored if names & graph.names]
    described = {query.name: database.describe(query) for query in queries} if graphs else {}
    without_graph = [query for query in queries if not _find_home(query, graphs, described)]
    once = frozenset(query.name for query in queries if _reads_once(database, query))
    for graph in graphs:
        graph.ended, graph.once = _ended_streams(graph.stored.checkpoint), once
    alone = _join_graphs(without_graph, graphs)
    changes = [change for query in queries if (change := _change_of(query, graphs, described)) is not None]
    refused = {change.name for change in changes if change.refusal}
    groups = [_place(database, graph, refused, out, sink) for graph in graphs]
    taken = {graph.checkpoint for graph in stored}
    for group in connected_groups(alone):
        directory = _free_directory(root, group[0], taken)
        taken.add(directory)
        groups.append(PlacedQueries(directory, group))
    changes += [QueryChange(name, "gone", remark="what it has written stays") for g in graphs for name in g.gone(names)]
    return Placement(groups, changes, sum(len(graph.kept) for graph in graphs))


def _reads_once(database: Database, query: BoundQuery) -> bool:
    """Whether a query begins now in streams that others have read: it says so, a source cannot be read again, or rows
    have the time of their arrival, which would be another one."""
    streams = [database.catalog.get(name) for name in streams_of(query) if name in database.catalog]
    bases = [stream for stream in streams if isinstance(stream, BaseStream)]
    return query.start == "now" or any(is_live(stream) or stream.time_column is None for stream in bases)


def _find_home(query: BoundQuery, graphs: Sequence[_Graph], described: Mapping[str, GraphQuery]) -> bool:
    """Add a query to the graph that has or had one of its name; false if none did."""
    homes = [graph for graph in graphs if graph.former(query.name) is not None]
    if not homes:
        return False
    identity = described[query.name].identity
    for graph in homes:
        if graph.stored.identities.get(query.name) == identity and graph.stored.pipeline == query.pipeline:
            graph.kept.append(query)
            return True
    homes[0].again.append(query)
    return True


def _join_graphs(queries: Sequence[BoundQuery], graphs: Sequence[_Graph]) -> list[BoundQuery]:
    """Add queries to the graphs that read most of their streams; returns those that no graph can take."""
    left, before = list(queries), -1
    while before != len(left):  # one that was added may have brought a stream of another
        before, waiting, left = len(left), left, []
        for query in waiting:
            if (graph := _best_graph(query, graphs)) is None:
                left.append(query)
            else:
                graph.new.append(query)
    return left


def _best_graph(query: BoundQuery, graphs: Sequence[_Graph]) -> _Graph | None:
    streams = streams_of(query)
    able = [graph for graph in graphs if graph.is_near(query) and not graph.refuses(query)]
    return max(able, key=lambda graph: len(streams & graph.streams), default=None)


def _place(
    database: Database, graph: _Graph, refused: Collection[str], out: Path | None, sink: Sink | None
) -> PlacedQueries:
    """The queries of a graph, and how it changes; those that are refused stay away."""
    running = {query.name: query for query in graph.stored.queries}
    dropped = [name for name in running if name not in {query.name for query in graph.kept}]
    again = [query for query in graph.again if query.name not in refused]
    added = [AddedQuery(query, graph.start(query), replaces=True) for query in again]
    moves = {query.name for query in graph.new if query.sink is not None and query.sink.moves_former}
    added += [AddedQuery(query, graph.start(query), replaces=query.name in moves) for query in graph.new]
    if not dropped and not added:
        return PlacedQueries(graph.stored.checkpoint, graph.kept)
    sinks = {name: database.former_sink(running[name], sink_of(name, out, sink)) for name in dropped}
    return PlacedQueries(graph.stored.checkpoint, graph.kept, Replacement(sinks, added))


def _change_of(query: BoundQuery, graphs: Sequence[_Graph], described: Mapping[str, GraphQuery]) -> QueryChange | None:
    """How a query of the script differs from what is stored; None if it does not, or has nothing to do with it."""
    line = _line_of(query)
    for graph in graphs:
        if query in graph.kept:
            return None
        if query in graph.new:
            return QueryChange(query.name, "new", line, _BEGINS[graph.start(query)])
        if query in graph.again:
            return _change_again(query, graph, described[query.name], line)
    if any(graph.is_near(query) for graph in graphs):
        return QueryChange(query.name, "new", line, _BEGINS["beginning"], "in a pipeline of its own")
    return None


def _change_again(query: BoundQuery, graph: _Graph, now: GraphQuery, line: int | None) -> QueryChange:
    """The change of a query that is not as its graph has it, or that has failed."""
    former, sink = graph.former(query.name), query.sink
    assert former is not None and sink is not None, "its graph has or had it, and it has a sink"
    before = former.query if isinstance(former, FailedQuery) else former
    is_same = before.identity == now.identity
    refusal, begins = graph.refuses(query), _BEGINS[graph.start(query)]
    stays = sink.identity is not None and sink.identity == before.sink and not sink.moves_former
    if not refusal and stays and not (is_same and sink.bears_gaps):
        refusal = f"{sink.display_location} has results of it as it was"
    if isinstance(former, FailedQuery) and is_same:
        return QueryChange(query.name, "failed", line, begins, former.message, refusal=refusal)
    remark, difference = ("its pipeline", ()) if is_same else _difference(before, now)
    return QueryChange(query.name, "changed", line, begins, remark, difference, refusal)


def _difference(before: GraphQuery, now: GraphQuery) -> tuple[str, tuple[str, ...]]:
    """What differs between two queries of a name, in a few words, and by lines."""
    words: list[str] = []
    lines: list[str] = []
    if before.text.split() != now.text.split():
        words.append("its statement")
        lines += _changed_lines(before.text, now.text)
    for name in sorted({*before.declarations, *now.declarations}):
        old, new = before.declarations.get(name, ""), now.declarations.get(name, "")
        if old != new:
            words.append(name)
            lines += [f"{name}:", *(f"  {sign} {text}" for sign, text in (("-", old), ("+", new)) if text)]
    return ", ".join(words) or "a view that it reads", tuple(lines)


def _changed_lines(before: str, now: str) -> Iterator[str]:
    """The lines of a statement that differ; how they are indented is no difference."""
    old, new = ([line.strip() for line in text.splitlines() if line.strip()] for text in (before, now))
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from (f"- {line}" for line in old[a:b])
            yield from (f"+ {line}" for line in new[c:d])


def _line_of(query: BoundQuery) -> int | None:
    """The line of the script where a query begins."""
    if query.statement is None:
        return None
    span = query.statement.span
    return span.text.count("\n", 0, span.start) + 1


def _ended_streams(checkpoint: Path) -> frozenset[str] | None:
    """The streams that have ended after the last batch of a checkpoint; None if there was none."""
    records = BatchRecords(checkpoint)
    if not (listed := records.listed()):
        return None
    statuses = records.require(listed[-1].batch)[0].statuses
    return frozenset(name for name, status in statuses.items() if status["ended"])


def _free_directory(root: Path, first: BoundQuery, taken: set[Path]) -> Path:
    """A directory for the checkpoint of queries that begin together, by the name of the first. Another graph may have
    begun with a query of that name."""
    names = (first.name if number == 1 else f"{first.name} {number}" for number in count(1))
    return next(path for path in (query_directory(root, each, first.pipeline) for each in names) if path not in taken)


def sink_of(query: str, out: Path | None, sink: Sink | None) -> Sink | None:
    """Where the results of a query go that has no sink of its own."""
    return Parquet(out / encode_name(query)) if out is not None else sink


def connected_groups(queries: Sequence[BoundQuery]) -> list[list[BoundQuery]]:
    """Queries that share a stream, directly or through others, belong into one pipeline: they read it once. A pipeline
    with a name has its own queries, all of them."""
    named: dict[str, list[BoundQuery]] = {}
    for query in queries:
        named.setdefault(query.pipeline, []).append(query)
    return [*_connected(named.pop("", [])), *named.values()]


def _connected(queries: Sequence[BoundQuery]) -> list[list[BoundQuery]]:
    """Queries by the streams that they share, directly or through others."""
    groups: list[tuple[frozenset[str], list[BoundQuery]]] = []
    for query in queries:
        streams = streams_of(query)  # a table is read once per query in any case
        touching = [group for group in groups if group[0] & streams]
        merged = streams.union(*(group[0] for group in touching)), [q for group in touching for q in group[1]] + [query]
        groups = [group for group in groups if group not in touching] + [merged]
    return [group for _, group in groups]

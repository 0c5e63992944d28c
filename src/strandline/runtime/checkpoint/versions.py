"""Versions of a graph in a checkpoint: the operators that run, and the queries that read them (docs/decisions/0030).

    graph/v000000017.json    version 17: its plan, its queries, and the digest of version 16

A version is written, and synced, before an offset names it. Nothing is planned again: a restart and the workers read
what runs from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from strandline.core import durable
from strandline.core.errors import damaged
from strandline.core.security.allow import Allow
from strandline.logical.catalog import BaseStream
from strandline.logical.udf import Definition
from strandline.planner.physical.plan import Pipeline, numbered
from strandline.planner.physical.plan_json import decode_pipeline, encode_pipeline

DIRECTORY: Final = "graph"
KIND: Final = durable.DocumentKind("graph", 1)
SOURCE: Final = "source:"  # before the name of a stream, where it stands beside operators
Kept = TypeVar("Kept")
Start: TypeAlias = Literal["together", "now", "beginning"]
_NAME: Final = re.compile(r"v(\d{9})\.json")


@dataclass(frozen=True, slots=True)
class VersionReference:
    """Reference to a version by an offset. Number -1 is that of no version: before the first batch."""

    number: int = -1
    digest: str = durable.START

    def to_json(self) -> list[Any]:
        return [self.number, self.digest]

    @staticmethod
    def from_json(data: Sequence[Any]) -> VersionReference:
        number, digest = data
        return VersionReference(int(number), str(digest))

    def to_facts(self) -> dict[str, Any]:
        """As the facts of a message."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """A query of a graph. Names may be used again, `number` is not; `began` is the first version that has it, `batch`
    the first batch that may have run with that.

    `start` is how it began: together with others, now, or from the beginning beside queries that had begun.

    `identity` is a digest of the query, its streams, its functions and its sink, as they are declared; `text` is its
    statement, and `sink` the identity of the sink. `declarations` are the streams, functions and the sink in words.
    `scope` is what its operators must have in common with others to be shared, of a query that reads by readers of its
    own. One that `replaces` has the place of an earlier query of its name, whose results are moved away.
    """

    name: str
    number: int = 0
    began: int = 0
    batch: int = 0
    identity: str = ""
    text: str = ""
    sink: str | None = None
    start: Start = "together"
    scope: str = ""
    declarations: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class FailedQuery:
    """A query that a graph had until it failed, and the error that it failed with."""

    query: GraphQuery
    code: str
    message: str

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> FailedQuery:
        return FailedQuery(GraphQuery(**data["query"]), str(data["code"]), str(data["message"]))


@dataclass(frozen=True, slots=True)
class GraphVersion:
    """A version: all operators that run, and the queries that read them.

    `since` has the version with which each operator began, by id, and each source, by `source:name`: what is stored of
    one from before is not its state. `batch` is the first batch that may run with the version. Numbers of queries and
    fragments are given once; `next_query` and `next_fragment` are the next free ones. `name` is that of the graph, the
    same in all versions: files beside those of other pipelines have it. `moved` has for operators of queries that were
    taken over, and of joins that became shared, the version that did so, and the id that they had before; for that id
    too, if it was not the first one. `failed` are the queries that it lost.
    """

    number: int
    pipeline: Pipeline
    queries: tuple[GraphQuery, ...]
    since: Mapping[str, int]
    batch: int = 0
    next_query: int = 0
    next_fragment: int = 1
    name: str = ""
    moved: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    failed: tuple[FailedQuery, ...] = ()

    @staticmethod
    def first(pipeline: Pipeline, queries: Sequence[GraphQuery] = ()) -> GraphVersion:
        """The version that a graph begins with."""
        given = queries or [GraphQuery(query.name) for query in pipeline.queries]
        numbered_queries = tuple(replace(query, number=number) for number, query in enumerate(given))
        begin = dict.fromkeys(parts_of(pipeline), 0)
        name = given[0].name if given else ""
        return GraphVersion(0, pipeline, numbered_queries, begin, 0, len(given), len(pipeline.fragments) + 1, name)

    def following(
        self,
        pipeline: Pipeline,
        queries: Sequence[GraphQuery],
        batch: int,
        moved: Mapping[str, str] = MappingProxyType({}),
        *,
        remaining: Pipeline | None = None,
        failed: Sequence[FailedQuery] | None = None,
    ) -> GraphVersion:
        """The version after this one; `moved` has the ids that operators had up to now, by those that they have. What
        `remaining` lacks was given up: where the version has an equal part, that begins again."""
        number = self.number + 1
        going_on = set(parts_of(self.pipeline if remaining is None else remaining))
        known = {part: begun for part, begun in self.since.items() if part in going_on}
        since = {part: known.get(moved.get(part, part), number) for part in parts_of(pipeline)}
        moves = {part: (number, before) for part, before in moved.items()}
        moves |= {part: self.moved[part] for part in (since.keys() & going_on & self.moved.keys()) - moves.keys()}
        pending = [before for _, before in moves.values()]
        while pending:  # what was moved twice may have a state from before both
            if (earlier := self.moved.get(before := pending.pop())) is not None and before not in moves:
                moves[before] = earlier
                pending.append(earlier[1])
        moves = dict(sorted(moves.items()))
        next_query = max([self.next_query, *(query.number + 1 for query in queries)])
        next_fragment = max([self.next_fragment, *(int(fragment.id[1:]) + 1 for fragment in pipeline.fragments)])
        given = next_query, next_fragment, self.name, moves, self.failed if failed is None else tuple(failed)
        return GraphVersion(number, pipeline, tuple(queries), since, batch, *given)

    def has_begun(self, part: str, version: int) -> bool:
        """Whether an operator or a source was in an earlier version, without a gap up to this one."""
        return part in self.since and self.since[part] <= version

    def positions_of(self, positions: Mapping[str, Kept], version: int) -> dict[str, Kept]:
        """What an earlier version had of the sources of this one, by stream: one that was gone in between begins
        again."""
        return {name: at for name, at in positions.items() if self.has_begun(f"{SOURCE}{name}", version)}

    def states_of(self, states: Mapping[str, Kept], version: int) -> dict[str, Kept]:
        """What an earlier version had of the operators of this one, by id."""
        known = {name: self._stored_as(name, version) for name in self.since if self.has_begun(name, version)}
        return {name: states[stored] for name, stored in known.items() if stored in states}

    def _stored_as(self, operator: str, version: int) -> str:
        """The id that an operator had in an earlier version."""
        while operator in self.moved and version < self.moved[operator][0]:
            operator = self.moved[operator][1]
        return operator

    def queries_since(self, version: int) -> frozenset[str]:
        """The names of the queries that an earlier version had as well."""
        return frozenset(query.name for query in self.queries if query.began <= version)

    @property
    def first_batches(self) -> dict[str, int]:
        """The first batch of each query that was added, by name: results of earlier ones are of another query."""
        return {query.name: query.batch for query in self.queries if query.batch}

    def query(self, name: str) -> GraphQuery:
        return next(query for query in self.queries if query.name == name)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "name": self.name,
            "batch": self.batch,
            "next": [self.next_query, self.next_fragment],
            "queries": [asdict(query) for query in self.queries],
            "failed": [asdict(failed) for failed in self.failed],
            "since": dict(self.since),
            **({"moved": {part: list(move) for part, move in self.moved.items()}} if self.moved else {}),
            "pipeline": encode_pipeline(self.pipeline),
        }


def parts_of(pipeline: Pipeline) -> Iterator[str]:
    """What has a beginning: operators by their ids, and sources."""
    for fragment in pipeline.fragments:
        yield from fragment.operators
    for stream in pipeline.streams:
        yield f"{SOURCE}{stream.name}"


@dataclass(frozen=True, slots=True)
class Declared:
    """What a stored plan takes from the process that reads it: functions by name, streams by name, the confinement."""

    functions: Mapping[str, Definition] = field(default_factory=dict)
    streams: Mapping[str, BaseStream] = field(default_factory=dict)
    allow: Allow | None = None

    def stream_of(self, stored: BaseStream) -> BaseStream:
        """A stream of a stored plan as it is declared here; a second reader of one keeps its name."""
        declared = self.streams.get(stored.declared_name)
        if declared is None:
            return stored
        return replace(declared, name=stored.name, reader_of=stored.reader_of, base=stored.base)


def declarations(streams: Iterable[BaseStream]) -> dict[str, BaseStream]:
    """The declared streams among those that a plan reads, or that second readers read, by name."""
    return {s.declared_name: replace(s, name=s.declared_name, reader_of="", base=-1) for s in streams}


class GraphVersions:
    """The versions in a checkpoint."""

    def __init__(self, checkpoint: Path, *, sync: bool = True) -> None:
        self.directory = checkpoint / DIRECTORY
        self._sync = sync

    def path(self, number: int) -> Path:
        return self.directory / f"v{number:09d}.json"

    def write(self, version: GraphVersion, before: VersionReference) -> VersionReference:
        """Write a version; an offset may name it when this returns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        body = {**version.to_json(), "before": before.digest}
        digest = durable.write_document(self.path(version.number), KIND, body, sync=self._sync)
        if self._sync:
            durable.sync_directory(self.directory)
            durable.sync_directory(self.directory.parent)
        return VersionReference(version.number, digest)

    def read(self, reference: VersionReference, declared: Declared) -> GraphVersion:
        """The version that an offset names, which must be the one that it meant."""
        return self._decode(reference.number, self._read(reference.number, reference.digest)[0], declared)

    def numbers(self) -> list[int]:
        """The versions that are there."""
        if not self.directory.is_dir():
            return []
        matches = (_NAME.fullmatch(name) for name in os.listdir(self.directory))
        return sorted(int(match[1]) for match in matches if match is not None)

    def newest(self, named: VersionReference) -> VersionReference | None:
        """The newest version, which follows the one that the last offset names; None if none was written yet."""
        numbers = self.numbers()
        if named.number < 0:
            if not numbers:
                return None
            named = VersionReference(0, self._read(0, None)[1])
        else:
            self._read(named.number, named.digest)
        for number in range(named.number + 1, max(numbers, default=-1) + 1):
            body, digest = self._read(number, None)
            if body["before"] != named.digest:
                raise damaged(self.path(number))
            named = VersionReference(number, digest)
        return named

    def forget(self, number: int) -> None:
        """Remove the versions before one: no offset that is still there names them."""
        for old in self.numbers():
            if old < number:
                self.path(old).unlink(missing_ok=True)

    def summary(self, number: int) -> dict[str, Any]:
        """A version as it is stored, without its plan being read."""
        return self._read(number, None)[0]

    def _read(self, number: int, expected: str | None) -> tuple[dict[str, Any], str]:
        path = self.path(number)
        body, digest = durable.read_with_digest(path, KIND, expected)
        if not isinstance(body, dict) or body.get("number") != number or not isinstance(body.get("before"), str):
            raise damaged(path)
        return body, digest

    def _decode(self, number: int, body: Mapping[str, Any], declared: Declared) -> GraphVersion:
        path = self.path(number)
        calls = {name: stream.source for name, stream in declared.streams.items()}
        try:
            stored = body["pipeline"]
            pipeline = decode_pipeline(stored, declared.functions, path=path, allow=declared.allow, declared=calls)
            queries = tuple(GraphQuery(**query) for query in body["queries"])
            next_query, next_fragment = body["next"]
            since = {str(part): int(begin) for part, begin in body["since"].items()}
            # Where a stream is, and who feeds it, is a matter of the process: a checkpoint may be moved with its files.
            pipeline = replace(pipeline, streams=tuple(map(declared.stream_of, pipeline.streams)))
            moved = {str(part): (int(at), str(old)) for part, (at, old) in body.get("moved", {}).items()}
            failed = tuple(FailedQuery.from_json(each) for each in body.get("failed", []))
            given = next_query, next_fragment, str(body["name"]), moved, failed
            version = GraphVersion(number, pipeline, queries, since, int(body["batch"]), *given)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise damaged(path) from None
        _check(version, path)
        return version


def _check(version: GraphVersion, path: Path) -> None:
    """Refuse a version that does not fit itself."""
    names = [query.name for query in version.queries]
    fits = names == [query.name for query in version.pipeline.queries]
    fits &= set(version.since) == set(parts_of(version.pipeline))
    fits &= version.moved.keys() <= version.since.keys() | {old for _, old in version.moved.values()}
    fits &= all(len(f.operators) == len(numbered(f.root)) for f in version.pipeline.fragments)
    if not fits:
        raise damaged(path)

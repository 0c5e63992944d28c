"""Identity of a checkpoint: the queries it belongs to, and the lease of its single writer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.connectors.sinks.base import Sink
from strandline.connectors.sources.base import open_source
from strandline.core import durable
from strandline.core.errors import CheckpointError, damaged
from strandline.core.lease import LEASE, LOCK, Lease
from strandline.core.temporary import temporary_directory
from strandline.logical.udf import user_functions
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.fingerprint import fingerprint_plan
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.difference import describe_declarations, show_difference
from strandline.runtime.checkpoint.records import DIRECTORY as RECORDS
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.checkpoint.spark_log import SPARK
from strandline.runtime.checkpoint.versions import SOURCE, FailedQuery, GraphQuery, GraphVersions

IDENTITY: Final = "queries.json"
KIND: Final = durable.DocumentKind("identity", 9)


class Checkpoint:
    """The directory with Spark's logs, our state and the identity of the queries that they belong to.

    Opening one makes this run its writer, or refuses.
    """

    def __init__(self, path: Path, is_temporary: bool = False, take_over: bool = False) -> None:
        self.path, self._identity = path, path / IDENTITY
        self.is_temporary = is_temporary
        self._claimed: dict[str, Any] = {}
        self._refuse_foreign()
        epochs = [reference.epoch for reference in BatchRecords(path).listed()]
        with _naming(path):
            self.lease = Lease.acquire(path, take_over=take_over, after_epoch=max(epochs, default=0))
            durable.remove_temporary_files(path)
        self.fresh = not self._identity.exists()

    @staticmethod
    def temporary() -> Checkpoint:
        return Checkpoint(temporary_directory("checkpoint"), is_temporary=True)

    def _refuse_foreign(self) -> None:
        """Refuse a directory that is neither empty nor a checkpoint; a start that failed half-way left only a lease."""
        try:
            names = set(os.listdir(self.path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise unwritable(self.path, error) from None
        if IDENTITY in names:
            return
        if {SPARK, RECORDS} & names:
            raise damaged(self._identity)
        if any(name not in (LOCK, LEASE) and not name.startswith(".") for name in names):
            raise CheckpointError(
                f"{self.path} is not empty and not a checkpoint of strandline",
                code="checkpoint-foreign",
                hint="Choose an empty or new directory. Nothing was changed.",
            )

    def shards(self) -> int | None:
        """Number of shards of the state; a restart must use the same."""
        return None if self.fresh else int(read_identity(self.path)["shards"])

    @property
    def has_graph(self) -> bool:
        """Whether it has a graph, which a restart goes on with, whatever was learned, calibrated or set since."""
        return bool(GraphVersions(self.path).numbers())

    @property
    def group(self) -> str:
        """The name that SET PIPELINE gave the pipeline of the checkpoint; empty for the default."""
        return str(self._claimed.get("pipeline", ""))

    @property
    def owner(self) -> str:
        """Unique name of the checkpoint, by which results elsewhere refer to their owner."""
        return str(self._claimed["id"])

    def recognise(
        self,
        pipeline: Pipeline,
        queries: Sequence[GraphQuery],
        sinks: Mapping[str, Sink],
        replaced: Collection[str] = (),
        group: str = "",
    ) -> None:
        """Make sure that the checkpoint belongs to these queries and their results, or is new. Changes nothing.

        `pipeline` is how the queries are described: as they are planned by the rules alone. `replaced` are queries that
        it may have beside them, by name: they are not going on. `group` is the name of SET PIPELINE for a new one.
        """
        if self.is_temporary:
            self._claimed = {"id": uuid.uuid4().hex, "pipeline": group}
            return
        declarations = describe_declarations(pipeline, _sink_identities(sinks), _functions(pipeline))
        if not self.fresh:
            recorded = read_identity(self.path)
            stored = self._identities()
            going_on = {name: identity for name, identity in stored.items() if name not in replaced}
            if going_on != {query.name: query.identity for query in queries}:
                raise CheckpointError(
                    f"the checkpoint {self.path} belongs to other queries",
                    code="checkpoint-foreign",
                    detail=show_difference(recorded, list(stored), pipeline, declarations),
                    hint="Start them as the checkpoint has them with db.recover(), or change them with `strandline run "
                    "--update`; or use another checkpoint. Nothing was changed.",
                )
            self._claimed = recorded
            return
        self._claimed = {
            "id": uuid.uuid4().hex,
            "shards": pipeline.shards,
            "pipeline": group,
            "queries": {query.name: query.identity for query in queries},  # those that it began with
            "plan": show_pipeline(pipeline),  # for people, as the declarations are
            "declarations": declarations,
        }

    def _identities(self) -> dict[str, str]:
        """The identities of the queries of the newest version, by name."""
        stored = read_stored_graph(self.path)
        assert stored is not None, "it has an identity"
        return stored.identities

    def claim(self) -> None:
        """Say in the checkpoint whose it is: the first file of it, there whole or not at all."""
        if not self.fresh or self.is_temporary:
            return
        with _naming(self.path):
            durable.write_document(self._identity, KIND, self._claimed)
            durable.sync_directory(self.path)
            durable.sync_directory(self.path.parent)

    def close(self) -> None:
        """Release the lease. A directory that never became a checkpoint is removed."""
        self.lease.release()
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        elif not self._identity.exists():
            with contextlib.suppress(OSError):
                for name in (LOCK, LEASE):
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()


def read_identity(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / IDENTITY
    with contextlib.suppress(OSError):
        if path.read_bytes().startswith(b"{"):  # as version 0.1 wrote it
            raise durable.other_format(path, "1", KIND.format)
    identity = durable.read_document(path, KIND)
    if not isinstance(identity, dict) or not {"id", "shards", "queries", "plan"} <= set(identity):
        raise damaged(path)
    return identity


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """The newest version of the graph of a checkpoint, as far as it is read without its plan: its queries, those that
    have failed, the streams that it reads, and the name that SET PIPELINE gave it. One that `has_begun` has a version;
    of another only the names and identities of its queries are known."""

    checkpoint: Path
    queries: tuple[GraphQuery, ...]
    failed: tuple[FailedQuery, ...] = ()
    streams: frozenset[str] = frozenset()
    pipeline: str = ""
    has_begun: bool = True

    @property
    def identities(self) -> dict[str, str]:
        """The identities of its queries, by name."""
        return {query.name: query.identity for query in self.queries}

    @property
    def names(self) -> set[str]:
        """The names of its queries, and of those that have failed."""
        return {query.name for query in self.queries} | {failed.query.name for failed in self.failed}


def read_stored_graph(checkpoint: Path) -> StoredGraph | None:
    """The newest version of a checkpoint, or the queries that it is for if it has none yet; None where there is no
    checkpoint."""
    if not (checkpoint / IDENTITY).exists():
        return None
    identity = read_identity(checkpoint)
    pipeline, versions = str(identity.get("pipeline", "")), GraphVersions(checkpoint)
    if not (numbers := versions.numbers()):
        queries = tuple(GraphQuery(name, identity=own) for name, own in identity["queries"].items())
        return StoredGraph(checkpoint, queries, pipeline=pipeline, has_begun=False)
    body = versions.summary(numbers[-1])
    try:
        queries = tuple(GraphQuery(**query) for query in body["queries"])
        failed = tuple(FailedQuery.from_json(each) for each in body.get("failed", []))
        streams = frozenset(part.removeprefix(SOURCE) for part in body["since"] if part.startswith(SOURCE))
    except (KeyError, TypeError, AttributeError):
        raise damaged(versions.path(numbers[-1])) from None
    return StoredGraph(checkpoint, queries, failed, streams, pipeline)


def stored_graphs(root: Path) -> Iterator[StoredGraph]:
    """The graphs of all checkpoints of a database, or of the runs of scripts, with those of named pipelines."""
    for place in (f"*/{IDENTITY}", f"{durable.PIPELINES}/*/*/{IDENTITY}"):
        for path in sorted(root.glob(place)):
            if (stored := read_stored_graph(path.parent)) is not None:
                yield stored


def identify_query(pipeline: Pipeline, sink: Sink) -> str:
    """The identity of a query that is planned by itself, by the rules alone: a digest of the plan, of what decides
    which rows its streams have, and of what of its sink is not a matter of place."""
    streams = [
        [s.name, [[name, str(kind)] for name, kind in s.columns], open_source(s).identity(), list(s.time_columns),
         s.disorder_us, s.idle_after_us, *([] if s.changes is None else [s.changes.op_column, *s.changes.key])]
        for s in pipeline.streams
    ]  # fmt: skip
    identity = {
        "plan": fingerprint_plan(pipeline),
        "streams": streams,
        "sink": sink.identity,
        "functions": _functions(pipeline),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()


def declarations_of(pipeline: Pipeline, query: str, sink: Sink) -> dict[str, str]:
    """What a query that is planned by itself goes by beside its statement, in words."""
    return describe_declarations(pipeline, _sink_identities({query: sink}), _functions(pipeline))


def _sink_identities(sinks: Mapping[str, Sink]) -> dict[str, str]:
    return {name: identity for name, sink in sinks.items() if (identity := sink.identity) is not None}


def _functions(pipeline: Pipeline) -> list[str]:
    """By name and types: what a function does may change, as long as it fits in."""
    return [str(function) for _, function in sorted(user_functions(pipeline).items())]


@contextlib.contextmanager
def _naming(path: Path) -> Any:
    """Turn errors of the file system into errors that name the checkpoint."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot write the checkpoint {path}",
        code="checkpoint-unwritable",
        detail=str(error),
        hint="Choose another directory with --checkpoint, or correct its permissions.",
    )


def indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())

"""Identity of a checkpoint: the queries it belongs to, and the lease of its single writer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from strandline.core.durable import (
    DocumentKind,
    other_format,
    read_document,
    remove_temporary_files,
    sync_directory,
    write_document,
)
from strandline.core.errors import CheckpointError, damaged
from strandline.core.lease import LEASE, LOCK, Lease
from strandline.core.temporary import temporary_directory
from strandline.logical.catalog import StreamStatistics
from strandline.logical.udf import user_functions
from strandline.planner.physical.fingerprint import fingerprint_plan
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.records import DIRECTORY as RECORDS
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.checkpoint.spark_log import SPARK

IDENTITY: Final = "queries.json"
KIND: Final = DocumentKind("identity", 3)


class Checkpoint:
    """The directory with Spark's logs, our state and the identity of the queries that they belong to.

    Opening one makes this run its writer, or refuses.
    """

    def __init__(self, path: Path, is_temporary: bool = False, take_over: bool = False) -> None:
        self.path = path
        self.is_temporary = is_temporary
        self._claimed: dict[str, Any] = {}
        self._noted: dict[str, Any] = {}
        self._refuse_foreign()
        epochs = [reference.epoch for reference in BatchRecords(path).listed()]
        with _naming(path):
            self.lease = Lease.acquire(path, take_over=take_over, after_epoch=max(epochs, default=0))
            remove_temporary_files(path)
        self.fresh = not self._identity.exists()

    @staticmethod
    def temporary() -> Checkpoint:
        return Checkpoint(temporary_directory("checkpoint"), is_temporary=True)

    @property
    def _identity(self) -> Path:
        return self.path / IDENTITY

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

    def _known(self) -> dict[str, Any]:
        return read_identity(self.path)

    def buckets(self) -> int | None:
        """Number of shards that the state was written with; a restart must use as many."""
        return None if self.fresh else int(self._known()["buckets"])

    def statistics(self) -> dict[str, StreamStatistics] | None:
        """The statistics that its plan was made with: a restart must make the same, whatever was learned since."""
        if self.fresh:
            return None
        made_with = self._known()["statistics"]
        return {name: StreamStatistics(known["rate"], known["values"]) for name, known in made_with.items()}

    def costs(self) -> dict[str, Any] | None:
        """The constants of the cost model that its plan was made with; None if it is new."""
        return None if self.fresh else self._known().get("costs")

    def limits(self) -> dict[str, float | None] | None:
        """The capacities that its plan was made for, by query; None if it is new."""
        return None if self.fresh else self._known().get("limits")

    def note(self, **facts: Any) -> None:
        """Save more values with the identity for a restart; no effect on a restart itself."""
        self._noted |= facts

    @property
    def owner(self) -> str:
        """Unique name of the checkpoint, by which results elsewhere refer to their owner."""
        return str(self._claimed["id"])

    def recognise(
        self,
        pipeline: Pipeline,
        plan: str,
        sources: Mapping[str, Mapping[str, object]],
        sinks: Mapping[str, str],
        made_with: Mapping[str, StreamStatistics],
    ) -> None:
        """Check that the checkpoint is empty or belongs to these queries and sinks. Changes nothing.

        `plan` is its text, for display. `sources` and `sinks` identify the input by stream and the output by query,
        apart from their location. `made_with` are the planning inputs, which a restart uses again.
        """
        fingerprint = _fingerprint(pipeline, sources, sinks)
        names = [query.name for query in pipeline.queries]
        if not self.fresh:
            known = self._known()
            if known["fingerprint"] != fingerprint:
                raise CheckpointError(
                    f"the checkpoint {self.path} belongs to other queries",
                    code="checkpoint-foreign",
                    detail=f"It was made for {', '.join(known['queries'])} with this plan:\n{indent(known['plan'])}",
                    hint="Use another --checkpoint or --out, or run the script that made it. Nothing was changed.",
                )
            self._claimed = known
            return
        own = {"id": uuid.uuid4().hex, "fingerprint": fingerprint}
        used = {s.name: asdict(made_with[s.name]) for s in pipeline.streams if s.name in made_with}
        self._claimed = {**own, "buckets": pipeline.buckets, "queries": names, "plan": plan, "statistics": used}

    def claim(self) -> None:
        """Write the identity: the first file of a checkpoint, created atomically."""
        if not self.fresh:
            return
        with _naming(self.path):
            write_document(self._identity, KIND, {**self._claimed, **self._noted})
            sync_directory(self.path)
            sync_directory(self.path.parent)

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
            raise other_format(path, "1", KIND.format)
    identity = read_document(path, KIND)
    if not isinstance(identity, dict) or not {"id", "fingerprint", "buckets", "queries", "plan"} <= set(identity):
        raise damaged(path)
    return identity


def _fingerprint(pipeline: Pipeline, sources: Mapping[str, Mapping[str, object]], sinks: Mapping[str, str]) -> str:
    """A digest of the queries and of the identities of their sources."""
    streams = [
        [s.name, [[name, str(kind)] for name, kind in s.columns], sources.get(s.name), list(s.time_columns),
         s.disorder_us, s.idle_after_us]
        for s in pipeline.streams
    ]  # fmt: skip
    # By name and types: the body of a function may change.
    functions = [str(function) for _, function in sorted(user_functions(pipeline).items())]
    identity = {"plan": fingerprint_plan(pipeline), "streams": streams, "sinks": dict(sinks), "functions": functions}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()


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

"""The graph of a pipeline while it runs: its newest version, which changes between batches only.

A batch runs with the version that its offset names. A change waits for the end of the batch that runs, if one does, and
the next batch waits for the change: so what the driver knows after the last batch is what a new version goes by.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from strandline.core.errors import QueryError
from strandline.runtime.checkpoint.versions import GraphVersion, GraphVersions, VersionReference

KEPT_BATCHES: Final = 120  # more than Spark keeps offsets of: any of them may run again after a repair


class LivingGraph:
    """The newest version of a graph, and whether a batch runs. `versions` is where it is stored; None for nowhere."""

    def __init__(
        self,
        version: GraphVersion,
        versions: GraphVersions | None = None,
        reference: VersionReference | None = None,
    ) -> None:
        self.version = version
        self.versions = versions
        self.reference = VersionReference(version.number) if reference is None else reference
        self.runs_batch = False  # whether one was planned that is not committed
        self._first_batches = {version.number: version.batch}
        if versions is not None:
            self._first_batches |= {n: int(versions.summary(n)["batch"]) for n in versions.numbers()}
        self._over = False
        self._changing = 0  # how many changes wait or are made
        self._counting = threading.Lock()
        self._free = threading.Condition()

    @property
    def is_over(self) -> bool:
        """Whether no batch follows."""
        return self._over

    @contextmanager
    def planning(self) -> Iterator[bool]:
        """Plan a batch, if the value is true: else the graph is being changed, and there is none yet."""
        # A batch that was planned before a restart, and Spark's first one, come before changes.
        if (self._changing and not self.runs_batch) or not self._free.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            self._free.release()

    def end_batch(self, batch: int) -> None:
        """A batch is committed: the graph may change."""
        with self._free:
            self.runs_batch = False
            self._free.notify_all()
        self._forget(batch)

    @contextmanager
    def changing(self, patience: float | None = None) -> Iterator[GraphVersion]:
        """Change the graph between two batches. `patience` is how many seconds the batch that runs may take for that;
        None for any time."""
        with self._counting:
            self._changing += 1
        try:
            with self._free:
                is_free = self._free.wait_for(lambda: self._over or not self.runs_batch, patience)
                if not is_free:
                    raise QueryError(
                        "the pipeline that the query is added to is busy with a batch",
                        code="pipeline-busy",
                        hint="Start the query again when the batch is over, or stop what holds it up.",
                    )
                if self._over:
                    raise QueryError(
                        "the pipeline of the query has ended",
                        code="pipeline-ended",
                        hint="Start the query again: it gets a pipeline of its own.",
                    )
                yield self.version
        finally:
            with self._counting:
                self._changing -= 1

    def publish(self, version: GraphVersion) -> None:
        """Store the next version: the next offset names it."""
        reference = VersionReference(version.number)
        if self.versions is not None:
            reference = self.versions.write(version, self.reference)
        self.version, self.reference = version, reference
        self._first_batches[version.number] = version.batch

    def end(self) -> None:
        """No batch follows: nothing can be changed any more."""
        self._over = True
        with self._free:
            self._free.notify_all()

    def _forget(self, batch: int) -> None:
        """Remove versions that no batch runs with again: the one after them is old enough."""
        numbers = sorted(self._first_batches)
        old = [n for n, after in pairwise(numbers) if self._first_batches[after] < batch - KEPT_BATCHES]
        for number in old:
            del self._first_batches[number]
        if old and self.versions is not None:
            self.versions.forget(old[-1] + 1)

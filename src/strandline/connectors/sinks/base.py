"""Sinks: the destination of a query's results, as the user declares it, and its writer.

A `Sink` is a declaration, the same in SQL and in Python. `open` makes a `SinkWriter` for one query. Before the first
batch, `validate` compares what lies at the destination with the checkpoint and changes nothing; `prepare` creates what
is missing there. Then `write` gets batch after batch.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

from strandline.connectors.arguments import CallArguments
from strandline.connectors.sinks.parquet_parts import ParquetTarget
from strandline.connectors.traits import Needs, Traits
from strandline.core.arguments import check_fields
from strandline.core.errors import SinkError
from strandline.core.security.allow import Allow, Reach
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Schema
from strandline.runtime.result import VALID_FROM, VALID_UNTIL


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Sink batch: perhaps no rows, but always the watermark of the result, and the one before the batch."""

    batch: int
    table: pa.Table
    complete_until: Instant
    begin: Instant = BEFORE_ALL


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Resume point of a query: its last committed batch; one more may already be in the sink.

    `owner` is the id of the checkpoint, which marks its output. `batch` is the last batch that was delivered and
    recorded, `last_result_batch` the last of them with rows; -1 is none. After a crash between both, `batch + 1` was
    delivered and not recorded, and is replayed. `epoch` counts the writers of the checkpoint. After a repair, the
    batches up to `replayed_until` run again as they were. `first` is the first batch of which the query may have
    results: not 0 where it was added to others. With `replaces` an earlier query of its name has left results, which
    are moved away.
    """

    owner: str
    fresh: bool
    batch: int
    last_result_batch: int
    epoch: int = 1
    replayed_until: int = -1
    first: int = 0
    replaces: bool = False

    def check(self, location: str, last_batch: int, *, expected: int | None = None) -> None:
        """Compare the last batch at a place with the last one of the checkpoint; the one after it may be there
        already."""
        expected = self.batch if expected is None else expected
        if last_batch > max(self.batch + 1, self.replayed_until):
            raise SinkError(
                f"{location} has results of batch {last_batch}, but the checkpoint ends with batch {self.batch}",
                code="results-ahead",
                hint="The checkpoint is older than the results. Restore the newer one, or start over at another "
                "location.",
            )
        if last_batch < expected:
            raise SinkError(
                f"{location} ends with batch {last_batch}, but the checkpoint is at batch {expected}",
                code="results-missing",
                hint="Put the missing results back, or start over at another location with a new checkpoint.",
            )


@dataclass(frozen=True, slots=True)
class KeptResults:
    """Results that a sink can read again. Where it has open elements as they were at some instant, the results are
    complete up to that one; None if the sink cannot tell."""

    tables: list[pa.Table]
    complete_until: Instant | None = None


class SinkArguments(CallArguments):
    """The arguments of a sink function."""

    error_class = SinkError
    error_code = "sink-argument"
    error_hint = "docs/connectors.md lists the sinks and their options."


class SinkWriter:
    """A sink at work for one query."""

    # Where tasks write the rows themselves, once prepared; then batches come without rows.
    target: ParquetTarget | None = None
    # Where the files of such a sink are, and whether their readers may take them away.
    directory: Path | None = None
    consumed: bool = False
    # Which elements the query sends: whether one may come in several intervals, and before its end is known.
    in_fragments: bool = False
    has_open_elements: bool = False
    # Set when the query is being stopped: a wait in `write` ends and raises `interruption()`.
    stopping: threading.Event
    # Since when the writer is writing a batch, by `time.monotonic`; None between batches.
    writing_since: float | None = None

    def __new__(cls, *arguments: object, **options: object) -> Self:
        # Here, so that a writer of another package need not call our constructor.
        writer = super().__new__(cls)
        writer.stopping = threading.Event()
        return writer

    def validate(self, resume_point: ResumePoint) -> None:
        """Reject a target whose content does not match the checkpoint. Nothing is changed."""

    def prepare(self, resume_point: ResumePoint) -> None:
        """Prepare the target, so that a problem shows before anything runs."""

    def write(self, sink_batch: SinkBatch) -> None:
        """Write a batch. It may have been written before."""

    def interrupt(self) -> None:
        """Interrupt a wait in `write`, from another thread: the query is being stopped. The batch runs again."""
        self.stopping.set()

    def interruption(self, location: str) -> SinkError:
        """Error that ends a wait for `location` when the query is stopped; it is not shown."""
        return SinkError(f"the query was stopped while it waited for {location}", code="sink-interrupted")

    def kept(self) -> KeptResults | None:
        """The result so far, if it can be read again in this process."""
        return None

    def close(self) -> None:
        """Release connections; written results stay."""


class Sink(ABC):
    """Declaration of a result target."""

    kind: ClassVar[str]  # the function that users write in SQL
    traits: ClassVar[Traits]
    needs: ClassVar[Needs | None] = None
    moves_former: ClassVar[bool] = False  # whether it moves away what an earlier query of the same name has written

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @abstractmethod
    def from_arguments(cls, arguments: SinkArguments) -> Self:
        """The sink that `CREATE SINK … INTO kind(arguments)` means."""

    @abstractmethod
    def open(self, query: str, columns: Schema) -> SinkWriter:
        """Ready to begin; nothing has been touched."""

    @property
    def location(self) -> str | None:
        """Location of the results; None if a restart cannot find them."""
        return None

    @property
    def takes_changes(self) -> bool:
        """True if the sink takes an element before its end is known, with the end `OPEN`, and again with its end.
        Others get an element when it ends, and from time to time what is open, cut at the watermark."""
        return False

    @property
    def identity(self) -> str | None:
        """Identity for the checkpoint: without paths of the machine, so that both may be moved together."""
        return self.location

    @property
    def bears_gaps(self) -> bool:
        """True if a query that had failed may go on writing here: elements that it has missed do no harm to others."""
        return True

    @property
    def display_location(self) -> str:
        """Location for display."""
        return self.location or self.kind

    def reaches(self) -> list[Reach]:
        """Files and hosts that the sink writes to, for the check of `allow`."""
        return []

    def confined(self, allow: Allow) -> Self:
        """The sink for confined SQL; differs where addresses turn up later."""
        return self

    @property
    def side_output_directory(self) -> Path | None:
        """Directory for side outputs, if this sink has one."""
        return None


def refuse_duplicates(names: list[str]) -> None:
    """Refuse columns of the same name. Names that differ only in case are one to many a database."""
    folded = [name.lower() for name in names]
    for name, lower in zip(names, folded, strict=True):
        if folded.count(lower) > 1:
            raise SinkError(
                f'duplicate column "{name}"',
                code="sink-columns",
                hint=f"{VALID_FROM}, {VALID_UNTIL} and row_id are added by sinks: rename yours with AS.",
            )

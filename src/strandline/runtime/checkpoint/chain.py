"""The chain of a checkpoint as its one writer continues it, batch by batch (docs/decisions/0012)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from strandline.core.durable import ChainedLog, digest, encode_name, sync_directory, sync_file
from strandline.core.lease import Lease
from strandline.runtime.checkpoint.records import BatchRecord, BatchRecords, RecordReference
from strandline.runtime.offsets import PipelineOffset

DELIVERED_LOG: Final = "delivered.log"
STATE: Final = "state"

OutputKind = Literal["result", "late", "rejected"]


@dataclass(frozen=True, slots=True)
class DeliveredFile:
    """A file as a batch has left it: a result of query `owner`, or late or rejected rows of stream `owner`.

    `rows` are those of the batch, `row_groups` those of the file: later batches may add to both. Its directory is not
    part of it: results may be moved with their checkpoint.
    """

    kind: OutputKind
    owner: str
    name: str
    size: int
    checksum: int
    rows: int
    row_groups: int


class CheckpointChain:
    """Hash chain of batch records: the newest one, and how the next one is appended.

    `head` is the newest record. A batch whose record is the newest may run again, if a crash came before Spark's
    commit: then its record is written again, after its predecessor. `last_offset` is the last one when the chain was
    opened, if there was one, and `is_committed` whether its batch was over for Spark.
    """

    def __init__(self, path: Path, lease: Lease) -> None:
        self.path, self.lease = path, lease
        self.last_offset: PipelineOffset | None = None
        self.is_committed = True
        self.unsynced: tuple[Path, ...] = ()  # entries of Spark's logs that a power cut has left empty
        self.head = RecordReference()
        self.record: BatchRecord | None = None
        self.records = BatchRecords(path)
        self.delivered = ChainedLog(path / DELIVERED_LOG)

    def before(self, batch: int) -> RecordReference:
        if self.head.batch == batch:
            assert self.record is not None
            return self.record.before
        assert self.head.batch == batch - 1, f"batch {batch} follows {self.head.batch}"
        return self.head

    def sync(self, batch: int, paths: Iterable[Path]) -> None:
        """Sync the files of a batch, and its offset, before any of it becomes visible."""
        logs = [self.path / "spark" / "offsets" / str(batch)]
        if self.record is None:
            logs.append(self.path / "spark" / "metadata")  # which never changes
        files = [path for path in logs if path.exists()] + list(paths)
        for path in files:
            sync_file(path)
        for directory in {path.parent for path in files}:
            sync_directory(directory)

    def commit(
        self,
        batch: int,
        state: Mapping[str, tuple[str, str]],
        files: Sequence[DeliveredFile],
        statuses: Mapping[str, Any],
        totals: Mapping[str, Any],
        version: int = 0,
    ) -> None:
        """Write the record of a batch, the last act of it."""
        self.lease.check()
        before = self.before(batch)
        count = self.delivered_before(before)
        if self.delivered.count > count:  # the batch runs again
            self.delivered.cut(count)
        self.delivered.append([astuple(file) for file in files])
        self.delivered.forget(count)
        record = BatchRecord(
            batch=batch,
            before=before,
            offset=digest_file(self.path / "spark" / "offsets" / str(batch)),
            metadata=digest_file(self.path / "spark" / "metadata"),
            state=dict(state),
            delivered=(self.delivered.count, self.delivered.last.digest),
            statuses=statuses,
            totals=totals,
            version=version,
        )
        self.head, self.record = self.records.write(record, self.lease.epoch), record

    def delivered_before(self, before: RecordReference) -> int:
        """Number of files delivered before a batch."""
        if before.batch < 0:
            return 0
        record = self.record if before == self.head and self.record is not None else self.records.read(before)
        return record.delivered[0]


def digest_file(path: Path) -> str:
    """The digest of a file of Spark's; empty where there is none, since the local engine has no log."""
    try:
        return digest(path.read_bytes())
    except FileNotFoundError:
        return ""


def source_directory(checkpoint: Path, stream: str) -> Path:
    return checkpoint / "sources" / encode_name(stream)


def state_directory(checkpoint: Path, shard: str) -> Path:
    """Directory of the state of a shard; `shard` is `stage/number` as records have it."""
    return checkpoint / STATE / shard

"""Batch records: what each batch has written, with digests; the links of the chain of a checkpoint.

A record is written last, when everything that it names is on disk. The offset of the next batch has its digest
(docs/decisions/0012). Its name has the epoch of the writer, so that a writer that was taken over replaces nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.core import durable
from strandline.core.errors import CheckpointError, damaged

DIRECTORY: Final = "batches"
KIND: Final = durable.DocumentKind("batch", 3)
RECORDS_KEPT: Final = 20  # as many as Spark keeps offsets
_CLEAN_EVERY: Final = 8
_NAME: Final = re.compile(r"(\d{9})-(\d{6})\.json")


@dataclass(frozen=True, slots=True)
class RecordReference:
    """Reference to a record by the next offset; batch -1 is the beginning."""

    batch: int = -1
    epoch: int = 0
    digest: str = durable.START

    @property
    def file_name(self) -> str:
        return f"{self.batch:09d}-{self.epoch:06d}.json"

    def to_json(self) -> list[Any]:
        return [self.batch, self.epoch, self.digest]

    @staticmethod
    def from_json(data: Sequence[Any]) -> RecordReference:
        batch, epoch, digest = data
        return RecordReference(int(batch), int(epoch), str(digest))


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Batch record: everything that a restart needs of a batch.

    `offset` and `metadata` are the digests of Spark's files, `state` the manifest and its digest by shard
    (`stage/shard`), `delivered` the number of lines of `delivered.log` and the digest of its chain. `statuses` and
    `totals` are those after the batch. `version` is that of the graph.
    """

    batch: int
    before: RecordReference
    offset: str
    metadata: str
    state: Mapping[str, tuple[str, str]]
    delivered: tuple[int, str]
    statuses: Mapping[str, Any]
    totals: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"before": self.before.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BatchRecord:
        count, digest = data["delivered"]
        converted = {
            "before": RecordReference.from_json(data["before"]),
            "state": {shard: (str(name), str(digest)) for shard, (name, digest) in data["state"].items()},
            "delivered": (int(count), str(digest)),
        }
        return BatchRecord(**{**data, **converted})


class BatchRecords:
    """The records of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self.directory = checkpoint / DIRECTORY

    def write(self, record: BatchRecord, epoch: int) -> RecordReference:
        """Write a record; it is on disk when this returns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        reference = RecordReference(record.batch, epoch)
        digest = durable.write_document(self.directory / reference.file_name, KIND, record.to_json())
        durable.sync_directory(self.directory)
        if record.batch % _CLEAN_EVERY == 0:
            self._clean(record.batch)
        return RecordReference(record.batch, epoch, digest)

    def read(self, reference: RecordReference) -> BatchRecord:
        """The record that an offset names, which must be the one that it meant."""
        return self._read(reference.file_name, reference.batch, reference.digest)[0]

    def listed(self) -> list[RecordReference]:
        """All records, by batch and epoch, without their digests."""
        if not self.directory.is_dir():
            return []
        matches = (_NAME.fullmatch(name) for name in os.listdir(self.directory))
        return sorted(
            (RecordReference(int(match[1]), int(match[2])) for match in matches if match is not None),
            key=lambda reference: (reference.batch, reference.epoch),
        )

    def newest(self, batch: int, epoch: int | None = None) -> tuple[BatchRecord, RecordReference] | None:
        """The record of a batch by its last writer, or by the last one up to an epoch; None if there is none."""
        own = [r for r in self.listed() if r.batch == batch and (epoch is None or r.epoch <= epoch)]
        if not own:
            return None
        record, digest = self._read(own[-1].file_name, batch, None)
        return record, RecordReference(batch, own[-1].epoch, digest)

    def require(self, batch: int, epoch: int | None = None) -> tuple[BatchRecord, RecordReference]:
        """The same of a batch that must have a record."""
        if (newest := self.newest(batch, epoch)) is None:
            raise self.missing(batch)
        return newest

    def missing(self, batch: int) -> CheckpointError:
        return damaged(self.directory / f"{batch:09d}-*.json")

    def path(self, reference: RecordReference) -> Path:
        return self.directory / reference.file_name

    def _read(self, name: str, batch: int, expected: str | None) -> tuple[BatchRecord, str]:
        path = self.directory / name
        body, digest = durable.read_with_digest(path, KIND, expected)
        try:
            record = BatchRecord.from_json(body)
        except (KeyError, TypeError, ValueError):
            raise damaged(path) from None
        if record.batch != batch:
            raise damaged(path)
        return record, digest

    def _clean(self, batch: int) -> None:
        for reference in self.listed():
            if reference.batch < batch - RECORDS_KEPT:
                self.path(reference).unlink(missing_ok=True)
        durable.remove_temporary_files(self.directory)

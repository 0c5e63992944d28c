"""Spark's offset and commit logs of a pipeline, read as plain files.

spark/metadata      the id of the streaming query
spark/offsets/12    a line with a version, a line with Spark's settings, and our offset of batch 12
spark/commits/12    a line with a version, and a line that says that batch 12 is over
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from strandline.core.durable import digest
from strandline.core.errors import damaged
from strandline.runtime.offsets import PipelineOffset

SPARK: Final = "spark"
_VERSION: Final = "v1"


class SparkLog:
    """The logs below a checkpoint. A file with unexpected content is reported as damaged."""

    COMMIT: Final = b'v1\n{"nextBatchWatermarkMs":0}'  # of a query without watermarks of Spark's

    def __init__(self, checkpoint: Path) -> None:
        self.metadata = checkpoint / SPARK / "metadata"
        self.offsets = checkpoint / SPARK / "offsets"
        self.commits = checkpoint / SPARK / "commits"

    def offset_batches(self) -> list[int]:
        return _numbers(self.offsets)

    def commit_batches(self) -> list[int]:
        return _numbers(self.commits)

    def read_offset(self, batch: int) -> tuple[PipelineOffset, str]:
        """Our offset of a batch, and the digest of the file."""
        path = self.offsets / str(batch)
        with _content(path) as content:
            version, settings, payload = content.decode().splitlines()
            offset = PipelineOffset.from_json(json.loads(payload), path)
            if version != _VERSION or not isinstance(json.loads(settings), dict) or offset.n != batch + 1:
                raise damaged(path)
            return offset, digest(content)

    def read_settings(self, batch: int) -> object:
        """The settings that Spark keeps with an offset, the same in all of them."""
        with _content(self.offsets / str(batch)) as content:
            return json.loads(content.splitlines()[1])["conf"]

    def check_commit(self, batch: int) -> None:
        path = self.commits / str(batch)
        with _content(path) as content:
            version, body = content.decode().splitlines()
            if version != _VERSION or not isinstance(json.loads(body), dict):
                raise damaged(path)

    def check_metadata(self) -> str:
        """The digest of the file with the id of the query."""
        with _content(self.metadata) as content:
            query_id = json.loads(content)["id"]
            if str(uuid.UUID(query_id)) != query_id:
                raise damaged(self.metadata)
            return digest(content)

    def remove_temporary_files(self) -> None:
        """Remove temporary files of interrupted writes of Spark."""
        for directory in (self.offsets, self.commits):
            for path in directory.glob(".*.tmp"):
                path.unlink(missing_ok=True)


@contextmanager
def _content(path: Path) -> Iterator[bytes]:
    """The content of a file; one that cannot be read, or has another form than the block expects, is damaged."""
    try:
        yield path.read_bytes()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise damaged(path) from None


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())
    except FileNotFoundError:
        return []


def is_empty(path: Path) -> bool:
    """True for a file without content, as a power cut leaves one that was never synced."""
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def remove_entry(path: Path) -> None:
    """Remove an entry of a log, with the checksum file that some of Spark's file systems add."""
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

"""Content of a materialized view: a result in memory that a restart finds again.

    <directory>/000000000000-000000000007.arrow    chunks of the batches 0 to 7: a digest, then an Arrow stream

A file has the batches from the end of the one before it, so that a missing one is noticed. Files of similar size become
one: there are few of them, and a row is written again as often as its file doubles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from strandline.connectors.sinks.base import ResumePoint, SinkBatch, SinkWriter
from strandline.connectors.sinks.memory import Memory
from strandline.connectors.traits import Traits
from strandline.core.durable import DIGEST_LENGTH, digest, read_file, sync_directory, write_file
from strandline.core.errors import damaged
from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.types import Schema
from strandline.runtime.result import result_schema
from strandline.runtime.result_buffer import ResultBuffer, concat_results

_NAME: Final = re.compile(r"(\d{12})-(\d{12})\.arrow")
_BEGIN: Final = b"begin"  # the watermark before a chunk, in the metadata of its batch
_SINCE: Final = b"since"  # from when on the past is retained, in the metadata of the file


@dataclass(frozen=True, slots=True)
class StoredView(Memory):
    """Keep the result in this process, as Memory does, and in a directory, for a restart."""

    kind: ClassVar[str] = "view"
    traits: ClassVar[Traits] = Traits(True, True, True, "in this process and in the checkpoint")

    directory: Path = Path()

    @property
    def location(self) -> str | None:
        return str(self.directory)

    @property
    def identity(self) -> str | None:
        return self.kind

    def open(self, query: str, columns: Schema) -> SinkWriter:
        return StoredViewWriter(self.directory, columns, self.keep, self.keep_us)


@dataclass(frozen=True, slots=True)
class _ChunkFile:
    """A file of chunks: the batches that it covers, and its size."""

    path: Path
    first: int
    last: int
    size: int


class StoredViewWriter(SinkWriter):
    """Writes the chunks of a view, and reads them after a restart."""

    def __init__(self, directory: Path, columns: Schema, limit: int | None, keep_us: int | None) -> None:
        self._directory, self._columns = directory, columns
        self._limit, self._keep_us = limit, keep_us
        self._files: list[_ChunkFile] = []

    def validate(self, resume_point: ResumePoint) -> None:
        files = _chunk_files(self._directory)
        if not resume_point.fresh:
            last, expected = (files[-1].last if files else -1), resume_point.last_result_batch
            resume_point.check(str(self._directory), last, expected=expected)

    def prepare(self, resume_point: ResumePoint) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for file in _chunk_files(self._directory):
            if resume_point.fresh or file.last > resume_point.batch:  # of another view, or its batch runs again
                file.path.unlink()
            else:
                self._files.append(file)
        sync_directory(self._directory)

    def restore(self, buffer: ResultBuffer) -> None:
        """Fill an empty buffer with what an earlier run has written."""
        for file in self._files:
            self._read(file, buffer)

    def write(self, sink_batch: SinkBatch) -> None:
        if not sink_batch.table.num_rows:
            return
        if self._files and self._files[-1].last >= sink_batch.batch:  # the batch runs once more
            self._files.pop().path.unlink()
        self._merge(sink_batch.begin)  # the files before this batch, which the checkpoint has recorded
        chunk = concat_results([sink_batch.table], self._columns).combine_chunks()
        self._write(sink_batch.batch, BEFORE_ALL, [chunk], [sink_batch.begin])

    def _merge(self, now: Instant) -> None:
        """Make the newest files one, as far as that at least doubles it."""
        count = 1
        while count < len(self._files) and self._files[-count - 1].size < 2 * sum(f.size for f in self._files[-count:]):
            count += 1
        if count == 1:
            return
        merged = self._files[-count:]
        buffer = ResultBuffer(self._columns, self._limit, keep_us=self._keep_us)
        for file in merged:
            self._read(file, buffer)
        if merged == self._files and buffer.exceeds_limit and now > BEFORE_ALL:
            buffer = buffer.trim(now)
        del self._files[-count:]
        self._write(merged[-1].last, buffer.since, buffer.tables, buffer.begins)
        for file in merged:
            file.path.unlink()

    def _write(self, last: int, since: Instant, tables: Sequence[pa.Table], begins: Sequence[Instant]) -> None:
        first = self._files[-1].last + 1 if self._files else 0
        out = pa.BufferOutputStream()
        schema = result_schema(self._columns).with_metadata({_SINCE: str(since)})
        with pa.ipc.new_stream(out, schema) as stream:
            for table, begin in zip(tables, begins, strict=True):
                for batch in table.to_batches():
                    stream.write_batch(batch, custom_metadata={_BEGIN: str(begin)})
        body = out.getvalue().to_pybytes()
        path = self._directory / f"{first:012d}-{last:012d}.arrow"
        write_file(path, digest(body).encode() + body)
        sync_directory(self._directory)
        self._files.append(_ChunkFile(path, first, last, len(body)))

    def _read(self, file: _ChunkFile, buffer: ResultBuffer) -> None:
        """Add the chunks of a file, which are compared with their digest."""
        data = memoryview(read_file(file.path))
        body = data[DIGEST_LENGTH:]
        if digest(body).encode() != bytes(data[:DIGEST_LENGTH]):
            raise damaged(file.path)
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            if not stream.schema.equals(result_schema(self._columns)):
                raise damaged(file.path)
            buffer.since = max(buffer.since, int(stream.schema.metadata[_SINCE]))
            while (chunk := _next_chunk(stream)) is not None:
                buffer.add([chunk[0]], chunk[1])


def _next_chunk(stream: pa.RecordBatchReader) -> tuple[pa.Table, Instant] | None:
    try:
        batch, metadata = stream.read_next_batch_with_custom_metadata()
    except StopIteration:
        return None
    return pa.Table.from_batches([batch]), int(metadata[_BEGIN])


def _chunk_files(directory: Path) -> list[_ChunkFile]:
    """The files of a view in order. One that has the batches of others replaces them: a crash came before they were
    removed. A gap is damage."""
    named = ((path, _NAME.fullmatch(path.name)) for path in directory.glob("*.arrow"))
    files = [_ChunkFile(path, int(m[1]), int(m[2]), path.stat().st_size) for path, m in named if m is not None]
    kept: list[_ChunkFile] = []
    for file in sorted(files, key=lambda file: (file.first, -file.last)):
        if kept and file.last <= kept[-1].last:
            file.path.unlink()
        elif file.first != (kept[-1].last + 1 if kept else 0):
            raise damaged(file.path)
        else:
            kept.append(file)
    return kept

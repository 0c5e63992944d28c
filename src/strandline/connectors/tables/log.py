"""Log of a table's changes: appended in groups, synced before it is acknowledged, read between positions.

A position is a number of rows. Blocks lie in files named by the position of their first row; a file is closed when it
has `SEGMENT_BYTES`. The file `head` has the end of the acknowledged blocks with the digest of the chain, and the
instant up to which the table may have promised to stay as it is. A gap up to the head is damage; what follows the head
was interrupted: whole blocks count, the rest is truncated.

One process writes (`TableLog`), any may read (`LogReader`).
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.tables import blocks, errors
from strandline.connectors.tables.blocks import Block, BlockFacts
from strandline.connectors.tables.content import stack_rows
from strandline.connectors.tables.segment import LogSegment
from strandline.core.durable import HeadFile, digest, sync_directory, write_all, write_file
from strandline.core.errors import damaged
from strandline.core.temporal import BEFORE_ALL, OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, gather, times

SEGMENT_BYTES: Final = 4 * 2**20
FEWEST_JOINED: Final = 16  # blocks of a file that is written again as one
HEAD: Final = "head"
_SEGMENT: Final = re.compile(r"(\d{15})\.log")


class TableHead(NamedTuple):
    """Head of a log: its end, the digest of the chain there, the file that has it and the length of that file; the
    instant of the last change, the instant that is reserved for promises, and where the retained log begins."""

    reach: int
    digest: str
    segment: int
    size: int
    last: Instant
    reserved: Instant
    first: int


def read_head(directory: Path) -> TableHead | None:
    """The head of a log as another process reads it; None if there is no log."""
    value = HeadFile(directory / HEAD).read()
    return None if value is None else TableHead(*value)


def first_digest(identity: str) -> str:
    """The digest before the first block: blocks of another table do not continue it."""
    return digest(identity.encode())


class LogReader:
    """The log of a table as any process reads it. Blocks are indexed as far as they were asked for, once, and compared
    with their digests when they are first read."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self.directory, self.schema = directory, schema
        self._segments: list[LogSegment] = []

    def read(self, start: int, end: int, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """The rows between two positions, file by file, with some columns or all. Work is proportional to the rows,
        after the blocks of their files were indexed."""
        if start >= end:
            return
        for segment in self._covering(start, end):
            batches = segment.rows_between(start, end, self.schema)
            if batches:
                yield _stack_batches(batches, columns)

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The same rows as mapped columns, block by block; those of many small blocks are copied together."""
        for segment in self._covering(start, end) if start < end else ():
            batches = segment.rows_between(start, end, self.schema)
            if len(batches) < FEWEST_JOINED:
                yield from batches
            else:
                yield from pa.Table.from_batches(batches).combine_chunks().to_batches()

    def gather(self, ids: Index, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Columns of the rows at some positions, which ascend, file by file; files without one are not looked at."""
        if not len(ids):
            return
        segments = self._covering(int(ids[0]), int(ids[-1]) + 1)
        bounds = np.searchsorted(ids, [segment.start for segment in segments[1:]])
        for segment, places in zip(segments, np.split(ids, bounds), strict=True):
            if len(places):
                low, high = int(places[0]), int(places[-1]) + 1
                rows = _stack_batches(segment.rows_between(low, high, self.schema), columns)
                yield rows if high - low == len(places) else gather(rows, places - low)

    def position_at(self, start: int, end: int, at: Instant) -> int:
        """The position between two others before which are the changes that take effect at an instant or earlier."""
        if start >= end:
            return end
        segments = self._covering(start, end)
        number = bisect_right(segments, at, key=lambda segment: segment.last_instant(end))
        if number == len(segments):
            return end
        block = segments[number].first_block_after(at)
        (rows,) = self.read(block.start, min(block.end, end), [FROM, UNTIL])
        until = times(rows, UNTIL)
        instants = np.where(until == OPEN, times(rows, FROM), until)
        return max(start, block.start + int(np.searchsorted(instants, at, side="right")))

    def chain_at(self, position: int) -> str:
        """The digest of the chain at a position, where a block ends; that of no chain if none does."""
        last = [block for block in self.blocks(position - 1, position) if block.end == position]
        return last[-1].digest if last else ""

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """The headers of the blocks between two positions."""
        for segment in self._covering(start, end):
            yield from segment.blocks_between(start, end)

    def _covering(self, start: int, end: int) -> list[LogSegment]:
        """The files with the rows between two positions, indexed so far."""
        inside = self._overlapping(start, end)
        if not inside or inside[0].start > start or not _reach(inside, end):
            self.list_files()
            inside = self._overlapping(start, end)
        if not inside or inside[0].start > start:
            first = self._segments[0].start if self._segments else 0
            if self._segments and first > start:
                raise errors.not_replayable(self.directory, start, first)
            raise damaged(segment_path(self.directory, start))
        for segment, after in zip(inside, [*(s.start for s in inside[1:]), end], strict=True):
            if segment.index_until(after) != after and (after < end or segment.end < end):
                raise damaged(segment.path, self.directory / HEAD)
        return inside

    def _overlapping(self, start: int, end: int) -> list[LogSegment]:
        ends = [*(segment.start for segment in self._segments[1:]), end]
        pairs = zip(self._segments, ends, strict=False)
        return [segment for segment, after in pairs if segment.start < end and after > start]

    def list_files(self) -> None:
        """See which files there are; what was indexed of them stays."""
        starts = segment_starts(self.directory)
        there = {segment.start: segment for segment in self._segments}
        self._segments = [
            there[start] if start in there else LogSegment(segment_path(self.directory, start), start)
            for start in starts
        ]


def _stack_batches(batches: Sequence[pa.RecordBatch], columns: Sequence[str] | None) -> pl.DataFrame:
    table = pa.Table.from_batches(batches)
    table = table if columns is None else table.select(columns)
    frame = pl.from_arrow(table if len(batches) == 1 else table.combine_chunks())
    assert isinstance(frame, pl.DataFrame), "a table becomes a frame"
    return frame


def _reach(segments: list[LogSegment], end: int) -> bool:
    """True if the last of some files has the rows up to a position."""
    return segments[-1].index_until(end) >= end


class TableLog:
    """The end of a log, where one process appends: all or nothing, on disk before `append` returns."""

    def __init__(self, directory: Path, schema: pa.Schema, identity: str) -> None:
        self.directory, self.schema, self.identity = directory, schema, identity
        self.reach = 0
        self.last: Instant = BEFORE_ALL
        self.reserved: Instant = BEFORE_ALL
        self.bytes = 0  # of the rows that are retained
        self.first = 0  # position of the base that the retained log begins with
        self.digest = first_digest(identity)
        self._head = HeadFile(directory / HEAD)
        self._segment, self._segment_digest = 0, self.digest
        self._size = 0
        self._recent: list[tuple[pl.DataFrame, BlockFacts]] = []  # of the file that is written to
        self._file: int | None = None
        self._is_broken = False

    def open(self, base: Block | None = None) -> list[Block]:
        """Resume after an earlier run, perhaps in the middle of a block; returns the blocks that are retained. `base`
        has the content before them, if the log has lost its beginning. Their rows are compared when they are read."""
        value = self._head.read()
        starts = segment_starts(self.directory)
        if value is None:
            if starts:
                raise damaged(self._head.path)
            self._begin_segment(0)
            return []
        head = TableHead(*value)
        self.first, self.reserved = head.first, head.reserved
        if base is not None:
            self.reach, self.digest, self.last = base.start, base.before, base.facts.last
        retained = self._recover([start for start in starts if start >= self.reach], head)
        self._open_segment(
            self._segment
        )  # the head is written with the next change: what is only opened stays as it is
        reader = LogReader(self.directory, self.schema)
        rows = list(reader.read(self._segment, self.reach))
        in_file = [block.facts for block in retained if block.start >= self._segment]
        if in_file:
            self._recent = [(rows[0] if rows else pl.DataFrame(), join_facts(in_file))]
        return retained

    def _recover(self, starts: list[int], head: TableHead) -> list[Block]:
        """Index the files, check the chain up to the head, and truncate what was interrupted after it."""
        retained: list[Block] = []
        for start in starts:
            path = segment_path(self.directory, start)
            if start != self.reach:
                raise damaged(segment_path(self.directory, self.reach), self._head.path)
            segment = LogSegment(path, start)
            self._segment, self._size, self._segment_digest = start, 0, self.digest
            for block in segment.all_blocks():
                continues = block.start == self.reach and block.before == self.digest
                if not continues or (block.end > head.reach and not segment.is_intact(block)):
                    break
                retained.append(block)
                self.bytes += block.size
                self.reach, self.digest, self.last = block.end, block.digest, block.facts.last
                self._size = block.file_end
                is_head = (self.reach, start, self._size) == (head.reach, head.segment, head.size)
                if is_head and self.digest != head.digest:
                    raise damaged(path, self._head.path)
            if start == head.segment and self._size < head.size:
                raise damaged(path, self._head.path)
            self._truncate(path, start == starts[-1])
        if self.reach < head.reach or head.segment not in starts:
            raise damaged(segment_path(self.directory, head.segment), self._head.path)
        return retained

    def _truncate(self, path: Path, is_last: bool) -> None:
        """Drop what follows the whole blocks of a file; only the last one can have been interrupted."""
        if path.stat().st_size == self._size:
            return
        if not is_last:
            raise damaged(path, self._head.path)
        os.truncate(path, self._size)

    def append(self, frame: pl.DataFrame, facts: BlockFacts) -> pa.RecordBatch | None:
        """Append a block; it is on disk, and so is the head, when this returns. After a failure the log is as it
        was. Returns the rows as they are mapped, where they alone would fill a file."""
        if self._file is None or self._is_broken:
            raise OSError("the log is closed")
        body = blocks.encode_rows(frame, self.schema)
        parts, own = blocks.encode_block(self.reach, frame.height, body, facts, self.digest)
        before = self.reach, self.digest, self.last, self._size
        try:
            for part in parts:
                write_all(self._file, part)
            os.fsync(self._file)
            self.reach, self.digest, self.last = self.reach + frame.height, own, facts.last
            self._size += sum(map(len, parts))
            self._write_head()
        except BaseException:
            self.reach, self.digest, self.last, self._size = before
            self._undo()
            raise
        self.bytes += body.size
        self._recent.append((frame, facts))
        mapped = self._map(before[3] + len(parts[0]), body.size) if body.size >= SEGMENT_BYTES else None
        if self._size >= SEGMENT_BYTES:
            self._end_segment()
        return mapped

    def _map(self, offset: int, size: int) -> pa.RecordBatch | None:
        """The rows that were just written at an offset of the file, whose digest this process has computed; None if
        they cannot be mapped, since they are on disk all the same."""
        try:
            file = pa.memory_map(str(segment_path(self.directory, self._segment)))
            file.seek(offset)
            return pa.ipc.read_record_batch(file.read_buffer(size), self.schema)
        except OSError:
            return None

    @property
    def begins_file(self) -> bool:
        """True if the next block is the first of its file."""
        return self._size == 0

    def _undo(self) -> None:
        """Remove what a failed append has written: another block would follow the rest of it."""
        self._is_broken = True  # unless both succeed: the head may name what is no longer there
        assert self._file is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._size)
            self._write_head()
            self._is_broken = False

    def _end_segment(self) -> None:
        """Begin the next file, and put the rows of this one, which are safe in their blocks, into one block: a log of
        many small statements is opened as fast as one of a few large ones."""
        start, before, recent = self._segment, self._segment_digest, self._recent
        self._begin_segment(self.reach)
        if len(recent) < FEWEST_JOINED:
            return
        rows = stack_rows([frame.select(self.schema.names) for frame, _ in recent if frame.height], {})
        assert rows.height == self.reach - start, "the rows of a file are known as long as it grows"
        facts = join_facts([facts for _, facts in recent])
        body = blocks.encode_rows(rows, self.schema)
        parts, _ = blocks.encode_block(start, rows.height, body, facts, before, self.digest)
        with contextlib.suppress(OSError):  # a full disk: the file stays as it is
            write_file(segment_path(self.directory, start), b"".join(parts))

    def reserve(self, until: Instant) -> None:
        """Promises up to an instant are on disk when this returns: after a crash no change comes before it."""
        before, self.reserved = self.reserved, until
        try:
            self._write_head()
        except BaseException:
            self.reserved = before
            raise

    def begin_at(self, first: int) -> None:
        """The retained log begins at a position, where a base is."""
        before, self.first = self.first, first
        try:
            self._write_head()
        except BaseException:
            self.first = before
            raise
        self.bytes = self.bytes * (self.reach - first) // max(self.reach - before, 1)

    def _write_head(self) -> None:
        values = (self.reach, self.digest, self._segment, self._size, self.last, self.reserved, self.first)
        self._head.write(TableHead(*values))

    def _begin_segment(self, start: int) -> None:
        self._open_segment(start)
        self._write_head()

    def _open_segment(self, start: int) -> None:
        """Later blocks go to the file that begins, or began, at a position."""
        if self._file is not None:
            os.close(self._file)
        if start != self._segment or not self._size:
            self._segment, self._size, self._segment_digest = start, 0, self.digest
        self._recent = []
        path = segment_path(self.directory, start)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync_directory(self.directory)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._head.close()


def join_facts(several: Sequence[BlockFacts]) -> BlockFacts:
    """What blocks one after the other say together."""
    marks = dict.fromkeys(mark for facts in several for mark in facts.marks)
    feeds = [facts.feed for facts in several if facts.feed is not None]
    return BlockFacts(several[-1].last, tuple(marks), feeds[-1] if feeds else None)


def segment_starts(directory: Path) -> list[int]:
    return sorted(int(match[1]) for name in os.listdir(directory) if (match := _SEGMENT.fullmatch(name)))


def segment_path(directory: Path, start: int) -> Path:
    return directory / f"{start:015d}.log"

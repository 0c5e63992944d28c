"""Log of received input that cannot be requested again: written to disk before it is acknowledged.

A position is a number of lines. The lines lie in files named by the number of their first line. Lines that came
together are a block: a head with their number, their size and their checksum, then the lines. The file `head` has the
end of the acknowledged blocks, and is on disk before the acknowledgement: a gap up to there is damage, and an
incomplete block after it was interrupted, and is truncated.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from strandline.connectors.sources.base import Chunk
from strandline.connectors.sources.json_lines import conform_lines
from strandline.core.durable import HeadFile, read_file, sync_directory, write_all
from strandline.core.errors import SourceError, damaged
from strandline.logical.catalog import BaseStream

SEGMENT_BYTES = 8 * 2**20
BATCHES_KEPT = 3  # Spark repeats at most the current batch; the others are a reserve
_BLOCK_HEAD = re.compile(rb"#(\d+) (\d+) ([0-9a-f]{8})\n")


class ReceivedHead(NamedTuple):
    """End of the acknowledged lines: their number, the last file and its length. `first` is the oldest needed file."""

    lines: int
    start: int
    size: int
    ended: bool
    first: int


class ReceivedLog:
    """Lines of one stream on disk. One process writes; any process may read lines with a position."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.written = 0  # lines in the file
        self.synced = 0  # lines that are safe on disk
        self._starts: list[int] = []
        self._file: int | None = None
        self._size = 0
        self._head = HeadFile(directory / "head")
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._recent_positions: deque[int] = deque(maxlen=BATCHES_KEPT)
        self.ended = False

    # In the driver's process: writing.

    def open(self) -> None:
        """Resume after an earlier run, perhaps in the middle of a block."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._head = HeadFile(self.directory / "head")
        size = self._look()
        if self._starts:
            os.truncate(self._path(self._starts[-1]), size)
        self._begin_segment()

    def check(self, position: int) -> None:
        """Check that all lines acknowledged from a position on are intact."""
        self._look()
        if self._starts and self._starts[0] > position:
            raise damaged(self._path(position))  # or one that begins before it
        if position > self.written:
            raise damaged(self.directory)

    def _look(self) -> int:
        """Scan the files; returns the length of the last file up to the end of its last complete block."""
        self._starts = self._found()
        value = self._head.read()
        if value is None:
            if self._starts:
                raise damaged(self._head.path)
            return 0
        head = ReceivedHead(*value)
        self.ended = head.ended
        self._starts = [start for start in self._starts if start >= head.first]  # an older one was about to be removed
        if not self._starts or self._starts[0] > head.first:
            raise damaged(self._path(head.first), self._head.path)
        size, lines = 0, head.first
        for number, start in enumerate(self._starts):
            if start != lines:  # the file before it has too many, or too few
                raise damaged(self._path(self._starts[number - 1]), self._head.path)
            data = read_file(self._path(start))
            size = 0
            for count, end, _ in _blocks(data):
                lines, size = lines + count, end
            is_last = number == len(self._starts) - 1
            acknowledged = len(data) if not is_last else head.size if start == head.start else 0
            if size < acknowledged:
                raise damaged(self._path(start), self._head.path)
        if lines < head.lines:
            raise damaged(self._path(head.start), self._head.path)
        self.written = self.synced = lines
        return size

    def _write_head(self, size: int) -> None:
        self._head.write(ReceivedHead(self.synced, self._starts[-1], size, self.ended, self._starts[0]))

    def close(self) -> None:
        with self._syncing, self._writing:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._head.close()

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; they are on disk when this returns. Empty lines are skipped.

        Concurrent appends share a flush (group commit).
        """
        lines = [line for line in lines if line.strip()]
        if not lines:
            return
        with self._writing:
            if self._file is None:
                raise OSError("the stream is closed")
            try:
                self._write(_block(lines))
            except OSError:
                # A full disk: the rest of a block would be taken for a part of the next one.
                os.truncate(self._path(self._starts[-1]), self._size)
                raise
            self.written += len(lines)
            mine = self.written
        with self._syncing:
            if self.synced < mine:
                self._flush()

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        write_all(self._file, data)
        self._size += len(data)

    def _flush(self) -> None:
        with self._writing:
            file, reached, size = self._file, self.written, self._size
            if file is None:
                raise OSError("the stream is closed")
        os.fsync(file)
        self.synced = reached
        self._write_head(size)
        if size >= SEGMENT_BYTES:
            with self._writing:
                self._begin_segment()

    def end(self) -> None:
        """End the stream, also for a restart."""
        with self._syncing:
            self.ended = True  # the head that follows the flush says so
            try:
                self._flush()
            except OSError:
                self.ended = False
                raise

    def _begin_segment(self) -> None:
        """Later lines go to a file of their own, so that the earlier ones can be read, and removed, as whole files."""
        if not self._starts or self.written > self._starts[-1]:
            self._starts.append(self.written)
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
        self.synced = self.written
        self._file = os.open(self._path(self._starts[-1]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._file).st_size
        sync_directory(self.directory)
        self._write_head(self._size)

    # Reading.

    def advance(self, position: int, limit: int) -> tuple[int, bool]:
        """End of the next read: whole files, if there are several. Files that no replay needs are removed."""
        if position not in self._recent_positions:
            self._recent_positions.append(position)
        with self._syncing, self._writing:
            if not self._starts:  # a process that does not receive, but reads the log
                self._look()
            ended = self.ended  # before the read: input before the end is on disk by then
            if self._file is not None and self.written > max(position, self._starts[-1]):
                self._begin_segment()
            if len(self._recent_positions) == BATCHES_KEPT:
                self._remove_before(min(self._recent_positions))
            ends = [end for end in self._ends() if end > position]
        if not ends:
            return position, ended
        reached = [end for end in ends if end - position <= limit]
        end = reached[-1] if reached else min(ends[0], position + limit)
        return end, ended and end == self.synced

    def _ends(self) -> list[int]:
        return [*self._starts[1:], self.synced]

    def waiting_bytes(self) -> int:
        """Bytes on disk that no batch has read."""
        with self._writing:
            asked = self._recent_positions[-1] if self._recent_positions else 0
            unread = [start for start, end in zip(self._starts, self._ends(), strict=True) if end > asked]
            return sum(os.path.getsize(self._path(start)) for start in unread)

    def _remove_before(self, position: int) -> None:
        old: list[int] = []
        while len(self._starts) > 1 and self._starts[1] <= position:
            old.append(self._starts.pop(0))
        if old and self._file is not None:
            self._write_head(self._size)
        for start in old:
            self._path(start).unlink(missing_ok=True)

    # In any process: reading.

    def read(self, start: int, end: int, stream: BaseStream, location: str) -> Iterator[Chunk]:
        if start == end:
            return
        starts = self._found()
        inside = [s for s, after in zip(starts, [*starts[1:], end], strict=True) if s < end and after > start]
        if not inside or inside[0] > start:
            raise SourceError(
                f'input of stream "{stream.name}" before line {inside[0] if inside else end} is no longer retained',
                code="not-replayable",
                detail=f"Lines from {start} on were requested; {self.directory} has no file with them.",
                hint="Lines are removed once their batches are committed. Start over with a new checkpoint.",
            )
        for first, after in zip(inside, [*inside[1:], end], strict=True):
            number = max(start, first)
            chosen = self._lines_of(first)[number - first : after - first]
            if number + len(chosen) < after:
                raise damaged(self._path(first))
            numbers = pl.int_range(number + 1, after + 1, eager=True)
            yield from conform_lines(b"\n".join(chosen), stream, location, numbers)

    def _lines_of(self, first: int) -> list[bytes]:
        """The lines of a file, as far as its blocks are whole."""
        return [line for _, _, lines in _blocks(read_file(self._path(first))) for line in lines.split(b"\n")]

    def _found(self) -> list[int]:
        names = self.directory.iterdir() if self.directory.exists() else ()
        return sorted(int(match[1]) for path in names if (match := re.fullmatch(r"(\d{15})\.jsonl", path.name)))

    def _path(self, first: int) -> Path:
        return self.directory / f"{first:015d}.jsonl"


def _block(lines: Sequence[bytes]) -> bytes:
    data = b"\n".join(lines)
    return b"#%d %d %08x\n%b\n" % (len(lines), len(data), zlib.crc32(data), data)


def _blocks(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The whole blocks at the beginning of a file: the number of lines, where it ends, and the lines of each."""
    at = 0
    while (head := _BLOCK_HEAD.match(data, at)) is not None:
        count, size = int(head[1]), int(head[2])
        begin, end = head.end(), head.end() + size + 1
        lines = data[begin : end - 1]
        if len(data) < end or data[end - 1] != ord("\n") or zlib.crc32(lines) != int(head[3], 16):
            return
        yield count, end, lines
        at = end

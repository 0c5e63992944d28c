"""Inbox of a reader that follows a result: what batches have brought and the reader has not taken yet.

Nothing is lost, and the query does not wait for its reader: what exceeds a number of rows waits in a temporary file.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa

from strandline.core.temporal import BEFORE_ALL, Instant
from strandline.core.temporary import temporary_directory
from strandline.runtime.result_buffer import ResultChunks

ROWS_IN_MEMORY: Final = 100_000
_ROWS_AT_ONCE: Final = 10_000  # about how many rows small batches are taken together


@dataclass(slots=True)
class _Entry:
    """Rows of a batch, in memory or at a place in the file, and the watermarks before and after it."""

    begin: Instant
    watermark: Instant
    rows: int = 0
    tables: Sequence[pa.Table] = ()
    place: tuple[int, int] | None = None


class ResultInbox:
    """A queue of batches between the thread that commits them and the one that reads."""

    def __init__(self, chunks: ResultChunks, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
        self.notify: Callable[[], None] = lambda: None  # called in the thread that commits, after each batch
        self._limit = rows_in_memory
        # What the result has already is shared with its buffer.
        self._entries = deque(_Entry(b, b, t.num_rows, [t]) for t, b in zip(chunks.tables, chunks.begins, strict=True))
        self._entries.append(_Entry(chunks.watermark, chunks.watermark))
        self._rows = 0  # of batches that came since, in memory
        self._changed = threading.Condition()
        self._file: IO[bytes] | None = None
        self._written = 0

    def put(self, tables: Sequence[pa.Table], begin: Instant, watermark: Instant) -> None:
        """Add what a batch has brought, which may be just a watermark."""
        rows = sum(table.num_rows for table in tables)
        with self._changed:
            last = self._entries[-1] if self._entries else None
            if not rows and last is not None and not last.rows:
                last.watermark = watermark
            else:
                entry = _Entry(begin, watermark, rows, [table for table in tables if table.num_rows])
                if rows and self._rows + rows > self._limit:
                    self._spill(entry)
                else:
                    self._rows += rows
                self._entries.append(entry)
            self._changed.notify_all()
        self.notify()

    def take(self, timeout: float) -> ResultChunks | None:
        """The next batches; None if there is none after `timeout` seconds."""
        with self._changed:
            if not self._entries:
                self._changed.wait(timeout)
            tables, begins, watermark, rows = list[pa.Table](), list[Instant](), BEFORE_ALL, 0
            if not self._entries:
                return None
            while self._entries and rows < _ROWS_AT_ONCE:
                entry = self._entries.popleft()
                loaded = self._load(entry)
                tables += loaded
                begins += [entry.begin] * len(loaded)
                watermark, rows = entry.watermark, rows + entry.rows
            if not self._entries:
                self._rows, self._written = 0, 0  # the file is written from its beginning again
            return ResultChunks(tables, begins, watermark, 0, BEFORE_ALL, reset=False)

    def close(self) -> None:
        with self._changed:
            self._entries.clear()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _spill(self, entry: _Entry) -> None:
        if self._file is None:
            path = temporary_directory("inbox") / "batches.arrow"
            self._file = path.open("w+b")
            path.unlink()  # it ends with this process, however that ends
            path.parent.rmdir()
        whole = pa.concat_tables(entry.tables)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, whole.schema) as writer:
            writer.write_table(whole)
        content = stream.getvalue()
        self._file.seek(self._written)
        self._file.write(content)
        entry.tables, entry.place = (), (self._written, content.size)
        self._written += content.size

    def _load(self, entry: _Entry) -> Sequence[pa.Table]:
        if entry.place is None:
            return entry.tables
        assert self._file is not None, "it has been written there"
        self._file.seek(entry.place[0])
        with pa.ipc.open_stream(pa.py_buffer(self._file.read(entry.place[1]))) as reader:
            return [reader.read_all()]

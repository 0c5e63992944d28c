"""A file of a table's log: mapped, and indexed block by block as far as it was asked for."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from strandline.connectors.tables.blocks import Block, decode_block, decode_rows, has_whole_body
from strandline.core.errors import damaged
from strandline.core.temporal import Instant


class LogSegment:
    """The blocks of a file by position. The file may grow; what has been indexed stays."""

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.start = path, start
        self.end = start  # position after the last indexed block
        self._blocks: list[Block] = []
        self._starts: list[int] = []
        self._compared = bytearray()  # per block: were its rows compared with their digest?
        self._offset = 0
        self._data = memoryview(b"")
        self._inode = 0

    def index_until(self, position: int) -> int:
        """Index blocks until one reaches a position, or no whole one follows; returns the position reached."""
        while self.end < position and self._index_next():
            pass
        return self.end

    def all_blocks(self) -> Iterator[Block]:
        """The blocks one after the other, as long as they are whole."""
        number = 0
        while number < len(self._blocks) or self._index_next():
            yield self._blocks[number]
            number += 1

    def blocks_between(self, start: int, end: int) -> list[Block]:
        """The indexed blocks with rows between two positions."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, end - 1)
        return [block for block in self._blocks[first:last] if block.end > start]

    def rows_between(self, start: int, end: int, schema: pa.Schema) -> list[pa.RecordBatch]:
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, end - 1)
        batches: list[pa.RecordBatch] = []
        for number in range(first, last):
            block = self._blocks[number]
            if block.end <= start or not block.rows:
                continue
            if not self._compared[number]:
                if not self.is_intact(block):
                    raise damaged(self.path)
                self._compared[number] = 1
            batch = decode_rows(self._data, block, schema)
            low, high = max(start, block.start), min(end, block.end)
            whole = high - low == block.rows
            batches.append(batch if whole else batch.slice(low - block.start, high - low))
        return batches

    def last_instant(self, end: int) -> Instant:
        """When the last change before a position takes effect, of those in this file."""
        return self._blocks[bisect_right(self._starts, end - 1) - 1].facts.last

    def first_block_after(self, at: Instant) -> Block:
        """The first block with a change after an instant."""
        return self._blocks[bisect_right(self._blocks, at, key=lambda block: block.facts.last)]

    def is_intact(self, block: Block) -> bool:
        self._map(block.file_end)
        return has_whole_body(self._data, block)

    def _index_next(self) -> bool:
        self._map(self._offset + 1)
        block = decode_block(self._data, self._offset)
        if block is None or block.file_end > len(self._data):
            self._map(len(self._data) + 1)
            block = decode_block(self._data, self._offset)
            if block is None or block.file_end > len(self._data):
                return False
        if block.start != self.end or (self._blocks and block.before != self._blocks[-1].digest):
            return False
        self._blocks.append(block)
        self._starts.append(block.start)
        self._compared.append(0)
        self.end, self._offset = block.end, block.file_end
        return True

    def _map(self, size: int) -> None:
        """Map the file again if it was mapped when it was shorter than this, and has grown, or was written again as one
        block: then what was indexed is at other places."""
        if size <= len(self._data):
            return
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if self._data and status.st_ino != self._inode:  # its number is not given again while it is mapped
                    self._forget()
                if status.st_size > len(self._data):
                    self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                    self._inode = status.st_ino
        except OSError:
            raise damaged(self.path) from None

    def _forget(self) -> None:
        self.end, self._offset, self._data = self.start, 0, memoryview(b"")
        self._blocks, self._starts, self._compared = [], [], bytearray()

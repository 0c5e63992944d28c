"""Blocks of a table's log: rows of changes with a header that ties them to their position and to the block before.

    <digest> [format, position, rows, bytes, digest of the rows, last instant, marks, feed, digest of the chain before]
    an Arrow record batch, without its schema, which is that of the table

The header is a line of a chained log (decision 0012), filled up with blanks so that the rows begin at a multiple of 64
bytes: a mapped file can be used as arrays. A block that was made of several has one value more, the digest of the chain
after the last of them: the chain goes on as if they were still there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.core.durable import DIGEST_LENGTH, digest
from strandline.core.temporal import Instant
from strandline.core.types import Type, arrow_type
from strandline.runtime.kernels.batch import FROM, UNTIL

FORMAT: Final = 1
ALIGNMENT: Final = 64
MOST_HEADER_BYTES: Final = 2**24  # a longer line is no header
ID = "@id"
# Start and end of an element for a query that begins after the change: a change by the clock counts as if it had been
# made at the last given time before it, or always.
SINCE, CEASED = "@since", "@ceased"


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What a block says beside its rows: the instant of its last change, the marks of statements, and how far a feed
    has been read."""

    last: Instant
    marks: tuple[str, ...] = ()
    feed: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a log: the position of its first row, the number of rows, where they lie in the file, and the digest
    of the chain up to it."""

    start: int
    rows: int
    body: int  # offset of the rows in the file
    size: int  # bytes of the rows
    body_digest: str
    facts: BlockFacts
    before: str
    digest: str

    @property
    def end(self) -> int:
        return self.start + self.rows

    @property
    def file_end(self) -> int:
        """Offset after the block in the file."""
        return self.body + padded(self.size)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def log_schema(columns: Sequence[tuple[str, Type]]) -> pa.Schema:
    """The columns of a log: the payload, the position of the insertion, the interval, and the interval for queries that
    begin later."""
    payload = [pa.field(name, arrow_type(kind)) for name, kind in columns]
    numbers = [pa.field(name, pa.int64()) for name in (ID, FROM, UNTIL, SINCE, CEASED)]
    return pa.schema([*payload, *numbers])


def encode_rows(frame: pl.DataFrame, schema: pa.Schema) -> pa.Buffer:
    """Rows as one Arrow record batch."""
    columns = [frame.get_column(name).to_arrow() for name in schema.names]
    typed = [
        column.cast(kind) if column.type != kind else column for column, kind in zip(columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(typed, schema=schema).serialize()


def encode_block(
    start: int, rows: int, body: pa.Buffer, facts: BlockFacts, before: str, after: str | None = None
) -> tuple[list[bytes | memoryview], str]:
    """The bytes of a block, and the digest of the chain up to it: `after`, if it is made of several."""
    own_digest = digest(memoryview(body))
    values = [FORMAT, start, rows, body.size, own_digest, facts.last, facts.marks, facts.feed, before]
    values += [] if after is None else [after]
    content = json.dumps(values, separators=(",", ":")).encode()
    own = digest(content)
    length = padded(DIGEST_LENGTH + 1 + len(content) + 1)
    header = own.encode() + b" " + content.ljust(length - DIGEST_LENGTH - 2) + b"\n"
    return [header, memoryview(body), b"\n" * (padded(body.size) - body.size)], after or own


def decode_block(data: memoryview, offset: int) -> Block | None:
    """The block whose header begins at an offset; None if there is no whole header. The rows are not looked at."""
    line = _line(data, offset)
    if line is None:
        return None
    own, _, content = line.partition(b" ")
    content = content.rstrip(b" ")
    if own != digest(content).encode():
        return None
    values = json.loads(content)
    if len(values) not in (9, 10) or values[0] != FORMAT:
        return None
    _, start, rows, size, body_digest, last, marks, feed, before, *after = values
    body = offset + len(line) + 1
    return Block(
        start,
        rows,
        body,
        size,
        body_digest,
        BlockFacts(last, tuple(marks), feed),
        before,
        after[0] if after else own.decode(),
    )


def _line(data: memoryview, offset: int) -> bytes | None:
    """The header line at an offset, without its end; None if no line ends there as a header does."""
    span = 4 * ALIGNMENT
    while span <= MOST_HEADER_BYTES:
        piece = bytes(data[offset : offset + span])
        end = piece.find(b"\n")
        if end >= 0:
            return piece[:end] if (end + 1) % ALIGNMENT == 0 else None
        if len(piece) < span:
            return None
        span *= 8
    return None


def has_whole_body(data: memoryview, block: Block) -> bool:
    """True if the rows of a block are there, and are those that its header names."""
    body = data[block.body : block.body + block.size]
    return len(data) >= block.file_end and digest(body) == block.body_digest


def decode_rows(data: memoryview, block: Block, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a block whose digest was compared, without a copy."""
    return pa.ipc.read_record_batch(pa.py_buffer(data[block.body : block.body + block.size]), schema)

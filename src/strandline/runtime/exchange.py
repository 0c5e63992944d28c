"""Exchange format: a few large messages per shard, each a header and Arrow data.

One row of an exchange is `(shard, data)`. `data` is a JSON header that lists the messages, then their Arrow streams,
one after the other. The JVM moves these values and never sees a tuple.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.types import Schema


@dataclass(frozen=True, slots=True)
class Message:
    """Elements or metadata in transit between stages.

    `kind` is "port" (elements for the port `name` of a fragment of `stage`), "watermark" (status of stream `name`),
    "version" (that of the graph, number and digest), "budget" (how much waiting work the batch does), "reach"
    (up to when what goes to the port `name` is complete), or
    something for the driver, stage `DRIVER`: "result" of query `name`, "routed" (results of several queries), "late"
    and "rejected" rows of stream `name`, "failed" (why query `name` has), "unmatched" ones that were accepted before
    they proved to delete nothing,
    "file" (a result that was written to its staged file), "open" (how many of its elements are open, and the staged
    file of them, if all were announced), "operators" (what they did, and how much they keep), "work" (what was done and
    put off within a budget), "measured" (what was found on the edges, where metrics are requested).
    """

    kind: str
    name: str
    stage: int
    sender: int = 0  # which sender: gives messages an order that does not depend on the network
    facts: dict[str, Any] = field(default_factory=dict)
    table: pa.Table | None = None

    @property
    def frame(self) -> pl.DataFrame:
        assert self.table is not None, f"message {self.kind} {self.name} carries rows"
        return pl.DataFrame(self.table)


DRIVER = 1_000_000
# Values below this size travel inside the row even where larger ones go through a file.
INLINE_BYTES = 64 * 1024
_LENGTH = struct.Struct("<q")


def encode(messages: Iterable[Message], spool: Path | None = None) -> bytes:
    """Encode messages as one value. With a `spool`, large tables go into that file and the value refers to them.

    Workers that share a file system pass tables to each other through its cache, mapped and never copied; what Spark
    moves are the references.
    """
    listed = list(messages)
    tables = [message.table for message in listed if message.table is not None]
    if spool is None or sum(table.nbytes for table in tables) < INLINE_BYTES:
        blobs = [_to_ipc(table) for table in tables]
        return b"".join((_head(listed, [blob.size for blob in blobs], None), *blobs))
    spool.parent.mkdir(parents=True, exist_ok=True)
    temporary = spool.with_name(f".{spool.name}.{os.getpid()}")
    with pa.OSFile(str(temporary), "wb") as file:  # not by way of memory, which would have to be found first
        ends = [_write(table, file) for table in tables]
    os.replace(temporary, spool)
    return _head(listed, np.diff(ends, prepend=0).tolist(), spool)


def _head(messages: Sequence[Message], sizes: Sequence[int], spool: Path | None) -> bytes:
    left = iter(sizes)
    entries = [
        {name: getattr(message, name) for name in ("kind", "name", "stage", "sender", "facts")}
        | {"size": -1 if message.table is None else next(left)}
        for message in messages
    ]
    head = json.dumps({"spool": None if spool is None else str(spool), "messages": entries}).encode()
    return _LENGTH.pack(len(head)) + head


def decode(data: pa.Buffer | bytes) -> list[Message]:
    """The messages of a value; their tables point into `data`, or into the mapped spool file."""
    buffer = pa.py_buffer(data) if isinstance(data, bytes) else data
    (length,) = _LENGTH.unpack(buffer.slice(0, _LENGTH.size).to_pybytes())
    header = json.loads(buffer.slice(_LENGTH.size, length).to_pybytes())
    at = _LENGTH.size + length
    if header["spool"] is not None:
        buffer, at = pa.memory_map(header["spool"]).read_buffer(), 0
    messages: list[Message] = []
    for entry in header["messages"]:
        size = entry.pop("size")
        table = None
        if size >= 0:
            table = pa.ipc.open_stream(buffer.slice(at, size)).read_all()
            at += size
        messages.append(Message(table=table, **entry))
    return messages


def to_table(frame: pl.DataFrame) -> pa.Table:
    """A frame as an Arrow table of types that every reader supports (no string views)."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _to_ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return sink.getvalue()


def _write(table: pa.Table, sink: pa.NativeFile) -> int:
    """A table as an Arrow stream; returns where it ends."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    end: int = sink.tell()
    return end


class ResultWriter(Protocol):
    """Turns the result of a query in a task into messages for the driver: with the rows, or with the name of the file
    that now has them. `sent` are the columns of the queries whose rows are sent."""

    sent: Mapping[str, Schema]

    def __call__(self, query: str, frame: pl.DataFrame, announced: bool) -> list[Message]:
        """The messages with the elements of a query; `announced` if these are all that are open."""

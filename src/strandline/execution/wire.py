"""What travels between stages: a few large messages per bucket, each a header and Arrow data.

One row of an exchange is `(bucket, data)`. `data` is a JSON header that lists the messages, then their Arrow streams,
one after the other. The JVM moves these values and never sees a tuple.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Message:
    """Elements or facts on their way.

    `kind` is "port" (elements for the port `name` of a fragment of `stage`), "heartbeat" (of stream `name`), or
    something for the driver, stage `DRIVER`: "answer" of query `name`, "late" and "rejected" rows of stream `name`,
    "file" (an answer that was written where it belongs), "operators" (what they did, and how much they keep).
    """

    kind: str
    name: str
    stage: int
    origin: int = 0  # which sender: gives messages an order that does not depend on the network
    facts: dict[str, Any] = field(default_factory=dict)
    table: pa.Table | None = None

    @property
    def frame(self) -> pl.DataFrame:
        assert self.table is not None, f"message {self.kind} {self.name} carries rows"
        frame = pl.from_arrow(self.table, rechunk=True)
        assert isinstance(frame, pl.DataFrame)
        return frame


DRIVER = 1_000_000
# Values below this size travel inside the row even where larger ones go through a file.
INLINE_BYTES = 64 * 1024
_LENGTH = struct.Struct("<q")


def encode(messages: Iterable[Message], spool: Path | None = None) -> bytes:
    """The messages as one value. With a `spool`, large tables go into that file and the value only says where.

    Workers that share a file system pass tables to each other through its cache, mapped and never copied; what Spark
    moves are the references.
    """
    header: list[dict[str, Any]] = []
    blobs: list[pa.Buffer] = []
    for message in messages:
        blob = _to_ipc(message.table) if message.table is not None else None
        header.append(
            {
                "kind": message.kind,
                "name": message.name,
                "stage": message.stage,
                "origin": message.origin,
                "facts": message.facts,
                "size": -1 if blob is None else blob.size,
            }
        )
        if blob is not None:
            blobs.append(blob)
    spooled = spool is not None and sum(blob.size for blob in blobs) >= INLINE_BYTES
    head = json.dumps({"spool": str(spool) if spooled else None, "messages": header}).encode()
    if not spooled:
        return b"".join((_LENGTH.pack(len(head)), head, *blobs))
    assert spool is not None
    spool.parent.mkdir(parents=True, exist_ok=True)
    temporary = spool.with_name(f".{spool.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.writelines(memoryview(blob) for blob in blobs)
    os.replace(temporary, spool)
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
    """A frame as Arrow, in types that every reader knows (no string views)."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _to_ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()

"""Mapped files of this process: data that may be larger than memory.

Pages of a mapped file are not anonymous memory: the system writes them back and takes them, and reads them again when
they are used. The files here have no name once they are mapped, so that no other process reads them and none is left
behind; what must outlive the process, and is compared with its checksum, is in files of its own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.core.durable import write_all

_Number = TypeVar("_Number", bound=np.generic)


def mapped_zeros(directory: Path, length: int, kind: type[_Number]) -> npt.NDArray[_Number]:
    """An array of zeros in a mapped file of its own in a directory; the file goes with the array. Where the disk has no
    room the array is in memory: a page without a place on disk would end the process later."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, length * np.dtype(kind).itemsize)
            return np.frombuffer(mmap.mmap(file.fileno(), 0), kind)
    except OSError:
        return np.zeros(length, kind)


def map_table(table: pa.Table, directory: Path, *, text_views: bool = True) -> pa.Table:
    """A table whose columns are those of a mapped file of its own in a directory, each in one piece. Where the disk has
    no room they are in memory."""
    try:
        with _passing_file(directory) as path:
            write_table(table, path, text_views=text_views)
            return pa.ipc.open_file(pa.memory_map(str(path)).read_buffer()).read_all()
    except OSError:
        return copy_table(table)


def copy_table(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own: a slice keeps what it was cut from."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=max(table.num_rows, 1))
    return pa.ipc.open_file(sink.getvalue()).read_all()


def write_table(table: pa.Table, path: Path, *, text_views: bool = True) -> tuple[int, int]:
    """Write an Arrow file with one record batch, whose columns are arrays when it is mapped, also texts: these are
    written as views, which need not be converted when they are read. Returns its size and its CRC-32."""
    if text_views:
        table = table.cast(pa.schema([_with_views(field, table) for field in table.schema]))
    table = table.combine_chunks()
    with open(path, "wb", buffering=0) as file:
        written = _Checksummed(file.fileno())
        # Buffer by buffer, not by way of a whole file in memory.
        with pa.PythonFile(written, "w") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=max(table.num_rows, 1))
    return written.size, written.checksum


class _Checksummed:
    """An open file, as Arrow writes to it, with the checksum of what was written."""

    closed = False

    def __init__(self, file: int) -> None:
        self.file, self.size, self.checksum = file, 0, 0

    def write(self, data: memoryview) -> None:
        view = memoryview(data)
        write_all(self.file, view)
        self.size += view.nbytes
        self.checksum = zlib.crc32(view, self.checksum)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True


_LONGEST_VIEWED = 2**31 - 1  # bytes of the texts of a column that views can refer to


def _with_views(field: pa.Field, table: pa.Table) -> pa.Field:
    is_short = table.column(field.name).nbytes <= _LONGEST_VIEWED
    return field.with_type(pa.string_view()) if pa.types.is_large_string(field.type) and is_short else field


@contextlib.contextmanager
def _passing_file(directory: Path) -> Iterator[Path]:
    """A path that is free again afterwards. After a crash the file is removed as one of an interrupted write."""
    path = directory / f".mapped.{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)

"""Durable files for restarts: written atomically, synced before anything refers to them, verified when read.

    write_file       bytes under a name, by write, sync and rename
    write_document   a JSON value with its kind, its format and its checksum in front
    ChainedLog       an append-only log; every line has a digest over itself and all lines before it
    HeadFile         the head of an append-only directory or file, small and rewritten in place

A checksum finds what was altered. A chain finds what is missing, doubled, or old: a reference to a file has its digest,
and the last digest is in Spark's offset log (docs/decisions/0012).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.core.errors import CheckpointError, damaged

DIGEST_LENGTH: Final = 32  # hexadecimal digits
START: Final = "0" * DIGEST_LENGTH  # the digest before the first line of a chain
_LONGEST_NAME: Final = 120  # characters of a file name for a user-defined name
_BLOCK: Final = 2**20
PIPELINES: Final = "pipelines"  # a directory of a database, with the checkpoints of pipelines by their names
OTHER_DIRECTORIES: Final = frozenset(
    {"events", "pipelines", "tables", "views"}
)  # of a database, beside those of its queries


# Names


def encode_name(name: str) -> str:
    """Encode a user-defined name as a file name: never a path, never hidden, unique.

    Letters, digits, `-`, `_` and inner dots stay; everything else, and a dot or underscore in front, becomes `%` and
    its bytes in hexadecimal. A long name is cut and gets its digest as a suffix.
    """
    encoded = "".join(
        character
        if character.isalnum() or character == "-" or (character in "._" and position > 0)
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for position, character in enumerate(name)
    )
    if encoded and len(encoded.encode()) <= _LONGEST_NAME:
        return encoded
    short = encoded.encode()[: _LONGEST_NAME - 40].decode(errors="ignore")
    return f"{short}%~{digest(name.encode('utf-8', 'surrogatepass'))}"


def query_directory(root: Path, name: str, pipeline: str = "") -> Path:
    """Directory for the checkpoint of a query, whatever its name: beside those of events, tables and views; that of a
    pipeline with a name is below it."""
    if pipeline:
        root = root / PIPELINES / encode_name(pipeline)
    encoded = encode_name(name)
    if encoded.lower() in OTHER_DIRECTORIES:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return root / encoded


# Whole files


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def checksum_file(path: Path) -> int:
    """The CRC-32 of a file's content."""
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum


def write_file(path: Path, data: bytes | memoryview, *, sync: bool = True) -> None:
    """Write a file so that it is there whole or not at all; with `sync` it is on disk when this returns, and so is its
    name once the directory is synced."""
    with replacing(path) as temporary, open(temporary, "wb", buffering=0) as file:
        write_all(file.fileno(), data)
        if sync:
            os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose file gets the name `path` when it was written, and is removed if that failed."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_file(path: Path) -> bytes:
    """The content of a file that must be there."""
    try:
        return path.read_bytes()
    except OSError:
        raise damaged(path) from None


def write_all(file: int, data: bytes | bytearray | memoryview) -> None:
    """Write to an open file; the system may take less than all at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def sync_directory(directory: Path) -> None:
    """Make the names of a directory durable."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """Make the content of a file durable, whatever process wrote it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Documents


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """Kind of a file, and the format that this version reads and writes."""

    name: str
    format: int


def write_document(path: Path, kind: DocumentKind, body: Any, *, sync: bool = True) -> str:
    """Write a JSON value with its kind, format and checksum in front; returns the digest by which others name it."""
    content = json.dumps(body, separators=(",", ":")).encode()
    own = digest(content)
    write_file(path, f"strandline {kind.name} {kind.format} {own}\n".encode() + content + b"\n", sync=sync)
    return own


def read_document(path: Path, kind: DocumentKind, expected: str | None = None) -> Any:
    """The JSON value of a document; `expected` is its required digest. Raises an error for a damaged one."""
    return read_with_digest(path, kind, expected)[0]


def read_with_digest(path: Path, kind: DocumentKind, expected: str | None = None) -> tuple[Any, str]:
    head, _, content = read_file(path).partition(b"\n")
    words = head.decode(errors="replace").split(" ")
    if len(words) != 4 or words[:2] != ["strandline", kind.name]:
        raise damaged(path)
    if words[2] != str(kind.format):
        raise other_format(path, words[2], kind.format)
    own = digest(content.removesuffix(b"\n"))
    if not content.endswith(b"\n") or own != words[3] or (expected is not None and own != expected):
        raise damaged(path)
    return json.loads(content), own


def other_format(path: Path, actual: str, expected: int) -> CheckpointError:
    return CheckpointError(
        f"{path} has format {actual}, this version of strandline reads format {expected}",
        code="checkpoint-version",
        hint="Finish the query with the version of strandline that began it, or start over with a new checkpoint.",
    )


# Chained logs


@dataclass(frozen=True, slots=True)
class LogLine:
    """An entry of a chained log, the digest of the chain up to it, and where its line ends in the file."""

    entry: Any
    digest: str
    end: int


class ChainedLog:
    """An append-only log of JSON values in one file.

    A line is the digest of the chain and the value. One process appends; others read what has been appended since their
    last read. Lines after the last recorded digest are uncommitted, and are truncated before the log is continued
    (`cut`): a crash may have left them, or half of them. `lines` has the entries, except those evicted to save memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forgotten = 0
        self.lines: list[LogLine] = []
        self._base = LogLine(None, START, 0)  # the last evicted line

    def resume(self, count: int, line: LogLine) -> None:
        """Resume after a verified line of the file, the last of the first `count`."""
        self.forgotten, self._base, self.lines = count, line, []

    @property
    def count(self) -> int:
        return self.forgotten + len(self.lines)

    @property
    def last(self) -> LogLine:
        return self.lines[-1] if self.lines else self._base

    def digest_at(self, count: int) -> str:
        """Digest of the chain after this many entries."""
        return (self._base if count == self.forgotten else self.lines[count - self.forgotten - 1]).digest

    def read(self) -> None:
        """Read the lines after the known ones; stops at the first one that does not continue the chain."""
        self.lines += scan_chain(self.path, self.last)

    def verify(self, count: int, expected: str) -> None:
        """Check that the first `count` entries have the recorded digest."""
        if self.count < count:
            self.read()
        if self.count < count or self.digest_at(count) != expected:
            raise damaged(self.path)

    def cut(self, count: int) -> None:
        """Drop all but the first entries, which are known, from the file."""
        del self.lines[count - self.forgotten :]
        if self.path.exists() and self.path.stat().st_size != self.last.end:
            with open(self.path, "r+b") as file:
                file.truncate(self.last.end)
                os.fsync(file.fileno())

    def drop(self, count: int) -> None:
        """Drop all but the first entries from memory; the file is cut by the next `append`."""
        del self.lines[count - self.forgotten :]

    def forget(self, count: int) -> None:
        """Keep the first entries in the file only."""
        if count > self.forgotten:
            self._base = self.lines[count - self.forgotten - 1]
            del self.lines[: count - self.forgotten]
            self.forgotten = count

    def append(self, entries: Sequence[Any]) -> None:
        """Append entries; they are on disk when this returns. Work is proportional to the new entries."""
        if not entries:
            return
        previous, end, added = self.last.digest, self.last.end, list[LogLine]()
        data = bytearray()
        for entry in entries:
            content = json.dumps(entry, separators=(",", ":"))
            previous = digest(f"{previous}{content}".encode())
            data += f"{previous} {content}\n".encode()
            added.append(LogLine(entry, previous, end + len(data)))
        is_new = not self.path.exists()
        if is_new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:
            if file.tell() != end:  # half a line of a write that failed
                file.truncate(end)
            write_all(file.fileno(), data)
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self.path.parent)
        self.lines += added


def scan_chain(path: Path, after: LogLine | None = None) -> Iterator[LogLine]:
    """The lines of a chained log, one by one; ends with the first one that does not continue the chain."""
    previous, end = (START, 0) if after is None else (after.digest, after.end)
    try:
        with open(path, "rb") as file:
            file.seek(end)
            for line in file:
                own, _, content = line.partition(b" ")
                previous = digest(previous.encode() + content[:-1])
                if not line.endswith(b"\n") or own != previous.encode():
                    return
                end += len(line)
                yield LogLine(json.loads(content), previous, end)
    except FileNotFoundError:
        return
    except OSError:
        raise damaged(path) from None


# Heads


class HeadFile:
    """A small JSON value that is rewritten in place: the head of what one process appends to and acknowledges.

    It is there twice, each copy with a number and a checksum in a sector of its own: a crash in the middle of a write
    leaves one of them, and damage of one is no loss. A write is one `pwrite` and one sync; the size does not change.
    """

    _COPY: Final = 512

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        self._file: int | None = None

    def read(self) -> Any:
        """The value; None if nothing has been written. Raises if the file cannot be trusted."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            raise damaged(self.path) from None
        copies = [copy for start in (0, self._COPY) if (copy := _slot(data[start : start + self._COPY])) is not None]
        if len(data) != 2 * self._COPY or not copies:
            raise damaged(self.path)
        self._number, value = max(copies, key=lambda copy: copy[0])
        return value

    def write(self, value: Any) -> None:
        """Replace the value; it is on disk when this returns."""
        if self._file is None:
            self.read()
        body = json.dumps([self._number + 1, value], separators=(",", ":"))
        copy = f"{digest(body.encode())} {body}".encode().ljust(self._COPY - 1) + b"\n"
        assert len(copy) == self._COPY, "a head fits into a block"
        if self._file is None:
            self._open(copy)
        assert self._file is not None
        os.pwrite(self._file, copy + copy, 0)
        os.fsync(self._file)
        self._number += 1

    def _open(self, first: bytes) -> None:
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, first + first)  # never half a file
            sync_directory(self.path.parent)
        self._file = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _slot(data: bytes) -> tuple[int, Any] | None:
    own, _, body = data.rstrip(b" \n").partition(b" ")
    if own != digest(body).encode():
        return None
    number, value = json.loads(body)
    return number, value


def remove_temporary_files(directory: Path, names: Iterable[str] | None = None) -> None:
    """Remove temporary files of interrupted writes in a directory: hidden files with the name that `write_file`
    gives."""
    for name in os.listdir(directory) if names is None else names:
        if name.startswith(".") and len(name.rpartition(".")[2]) == 32:
            with contextlib.suppress(OSError):
                (directory / name).unlink()

"""What sources have in common that wait for others to send: an address, lines out of bytes, and a limit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from strandline.catalog import Argument, BaseStream
from strandline.errors import SourceError
from strandline.execution.sources.base import Arguments, Chunk
from strandline.execution.sources.received import Received
from strandline.temporary import temporary_directory

LONGEST_LINE = 16 * 2**20
SHOWN_OF_LONG_LINE = 1_000


def address_of(arguments: Arguments) -> tuple[str, int]:
    """The host and the port of `'host:port'`; a port alone is one of this machine."""
    function = arguments.call.function
    text = str(arguments.positional(0, f"an address, as in {function}('localhost:9999')"))
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise arguments.error(f"'{text}' is not an address; write {function}('localhost:9999')")
    return host.strip("[]") or "127.0.0.1", int(port)


def address_taken(host: str, port: int, error: OSError) -> SourceError:
    return SourceError(
        f"nobody can be let in at {host}:{port}: {error.strerror or error}",
        code="address-unusable",
        hint="Another query or program may wait there already; stop it, or choose another port.",
    )


class Receiver:
    """What a source has received, and what went wrong while it was filled."""

    def __init__(self, stream: BaseStream, directory: Path | None, end_marker: Argument, most_bytes: Argument) -> None:
        assert isinstance(most_bytes, int)
        self.stream = stream
        self._in_memory = directory is None
        self._temporary: Path | None = None
        self.received = Received(directory / "received" if directory is not None else Path())
        self.end_marker = str(end_marker).encode() if end_marker is not None else None
        self.most_bytes = most_bytes  # what may wait on disk; who sends must wait then
        self.failure: Exception | None = None

    def open(self) -> None:
        if self._in_memory:
            self._temporary = temporary_directory("received")
            self.received.directory = self._temporary
        self.received.open()

    def close(self) -> None:
        self.received.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def is_full(self) -> bool:
        """Whether as much waits to be read as may wait."""
        return self.received.waiting_bytes() >= self.most_bytes

    def take(self, lines: list[bytes]) -> int:
        """Keep lines up to the one that ends the stream; how many they were."""
        stripped = [line.strip() for line in lines]
        ends = self.end_marker is not None and self.end_marker in stripped
        if ends:
            stripped = stripped[: stripped.index(self.end_marker)]  # type: ignore[arg-type]
        self.received.append(stripped)
        if ends:
            self.received.end()
        return sum(1 for line in stripped if line)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        if self.failure is not None:
            if isinstance(self.failure, SourceError):
                raise self.failure
            raise SourceError(
                f'stream "{self.stream.name}" cannot take in what it is sent: {self.failure}',
                code="receiver-failed",
                hint=f"Look at {self.received.directory}: is there room, and may it be written?",
            )
        return self.received.advance(position, limit_rows)

    def read(self, start: int, end: int) -> Iterator[Chunk]:
        place = f"{self.stream.source.function} of {self.stream.name}"
        yield from self.received.read(start, end, self.stream, place)


class LineBuffer:
    """Cuts what comes in into lines. Of a line without end only the beginning is kept, which nobody takes for JSON."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skips = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes."""
        if b"\n" not in data:
            return self._without_end(data)
        first, *others = data.split(b"\n")
        lines = [] if self._skips else [bytes(self._rest + first)]
        self._skips = False
        self._rest = bytearray(others.pop())
        return lines + others

    def _without_end(self, data: bytes) -> list[bytes]:
        if self._skips:
            return []
        self._rest += data
        if len(self._rest) <= LONGEST_LINE:
            return []
        self._skips = True
        return [bytes(self.last()[:SHOWN_OF_LONG_LINE])]

    def last(self) -> bytes:
        """What came after the last line break."""
        rest, self._rest = bytes(self._rest), bytearray()
        return b"" if self._skips and not rest else rest

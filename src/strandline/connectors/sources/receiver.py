"""Common part of sources that receive: an address, a log of lines, and a backlog limit."""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from strandline.connectors.sources.base import Chunk, Source, SourceArguments
from strandline.connectors.sources.received_log import ReceivedLog
from strandline.core.errors import SourceError, Span
from strandline.core.security.allow import Host, Reach
from strandline.core.security.secret import Secret
from strandline.core.temporary import temporary_directory
from strandline.logical.catalog import BaseStream, ConnectorCall

LONGEST_LINE = 16 * 2**20
SHOWN_OF_LONG_LINE = 1_000
GLANCE_SECONDS = 0.2  # poll interval of a waiting thread for a stop


def address_of(arguments: SourceArguments) -> tuple[str, int]:
    """Host and port of `'host:port'`; a port alone is on this machine."""
    function = arguments.call.function
    text = str(arguments.positional(0, f"an address, as in {function}('localhost:9999')"))
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise arguments.error(f"invalid address '{text}'; write {function}('localhost:9999')")
    return host.strip("[]") or "127.0.0.1", int(port)


def require_token_for_remote(function: str, host: str, token: Secret | None, span: Span | None) -> None:
    """Refuse to listen where other machines can connect without a token."""
    if token is None and not all(map(_is_loopback, _addresses(host) or [""])):
        raise SourceError(
            f"{function}() listens on {host or 'all interfaces'}, which other machines can reach, without a token",
            code="token-required",
            hint=f"Write {function}('127.0.0.1:…') for this machine alone, or add token => secret('env:NAME').",
            span=span,
        )


def _addresses(host: str) -> list[str]:
    """The addresses of a host; none if there is no such host."""
    try:
        return [str(where[4][0]) for where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def accept_connections(
    listener: socket.socket, is_over: Callable[[], bool], handle: Callable[[socket.socket], None]
) -> None:
    """Accept connections until closed; an error of one of them does not end the loop."""
    while not is_over():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:
            if listener.fileno() < 0:
                return  # closed
            time.sleep(GLANCE_SECONDS)  # too many open files, or a client that has disconnected
            continue
        handle(connection)


def stop_listening(listener: socket.socket) -> None:
    """Free the port immediately. A thread in accept() keeps a closed socket until its next poll, and the next query at
    this address would be refused."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


class ReceivingSource(Source):
    is_live = True

    """A source at an address. Its threads write what they receive to a log, and leave their failure for `advance`."""

    def __init__(self, stream: BaseStream, directory: Path | None, arguments: SourceArguments) -> None:
        super().__init__(stream, directory)
        self.function = stream.source.function.lower()
        self.host, self.port = address_of(arguments)
        self.token = arguments.secret(arguments.option("token", (str, Secret), None), "token")
        self.max_connections: int = arguments.option("max_connections", int, 256)
        # Limit of unread bytes on disk; senders must wait beyond it.
        self.max_backlog: int = arguments.option("max_backlog", int, 1_073_741_824)
        end_marker = arguments.option("end_marker", str, None)
        arguments.done(most=1)
        self.end_marker = None if end_marker is None else end_marker.encode()
        self.received = ReceivedLog(directory / "received" if directory is not None else Path())
        self.failure: Exception | None = None
        self.expected_token: bytes | None = None  # what clients must send
        self._temporary: Path | None = None

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        return [Host(*address_of(SourceArguments(call)))]  # whether it connects or listens there

    def identity(self) -> dict[str, object]:
        return {"function": self.function}  # the address and the token do not determine the rows

    def check(self, span: Span | None) -> None:
        if self.max_connections < 1:
            arguments = SourceArguments(self.stream.source, span)
            raise arguments.error(f"max_connections of {self.function}() must be at least 1")

    # On the driver: receiving.

    def open(self) -> None:
        if self.directory is None:
            self.received.directory = self._temporary = temporary_directory("received")
        self.received.open()

    def listen(self) -> socket.socket:
        """A socket that waits for connections at the address; the system chooses the port if it is 0."""
        self.expected_token = None if self.token is None else self.token.reveal().encode()
        try:
            places = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            # A name may have addresses of both families; clients with only one mostly have IPv4.
            family, _, _, _, where = min(places, key=lambda address: address[0] != socket.AF_INET)
            # Checked again for the address itself: the name may resolve differently by now.
            require_token_for_remote(self.function, str(where[0]), self.token, None)
            listener = socket.create_server((str(where[0]), self.port), family=family, reuse_port=False, backlog=128)
        except (OSError, UnicodeError) as error:
            raise SourceError(
                f"cannot listen on {self.host}:{self.port}: {getattr(error, 'strerror', None) or error}",
                code="address-unusable",
                hint="Another process may be listening there; stop it, or choose another port.",
            ) from None
        listener.settimeout(GLANCE_SECONDS)
        self.port = listener.getsockname()[1]
        return listener

    def close(self) -> None:
        self.received.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def is_full(self) -> bool:
        """True if the backlog has reached its limit."""
        return self.received.waiting_bytes() >= self.max_backlog

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

    def verify(self, position: int, seal: str) -> None:
        """Check that the unread input is intact."""
        if self.directory is not None:
            self.received.check(position)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        if self.failure is not None:
            if isinstance(self.failure, SourceError):
                raise self.failure
            raise SourceError(
                f'stream "{self.stream.name}" cannot store its input: {self.failure}',
                code="receiver-failed",
                hint=f"Check the free space and the permissions of {self.received.directory}.",
            )
        return self.received.advance(position, limit_rows)

    # On a worker.

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        location = f"{self.stream.source.function} of {self.stream.name}"
        yield from self.received.read(start, end, self.stream, location)


class LineBuffer:
    """Splits input into lines. Of an overlong line only the beginning is kept, which is not valid JSON."""

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
        """Input after the last line break."""
        remaining, self._rest = bytes(self._rest), bytearray()
        return b"" if self._skips and not remaining else remaining

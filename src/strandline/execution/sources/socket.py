"""JSON lines over TCP: from a server that we connect to, or from whoever connects to us."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from strandline.catalog import BaseStream
from strandline.errors import SourceError, Span
from strandline.execution.sources.base import Arguments, Chunk, Source
from strandline.execution.sources.receiving import LineBuffer, Receiver, address_of, address_taken
from strandline.plugins import Traits

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.5
GLANCE_SECONDS = 0.2  # how often a thread that waits looks whether it should stop
RECEIVE_BYTES = 2**20


class SocketSource(Source):
    """`socket('host:port', listen => false, reconnect => false, end_marker => NULL, max_backlog => 1073741824)`.

    Connects to a server and reads JSON lines until it hangs up; with `listen => true` others connect to us, as many as
    like. TCP has no word for "taken", so a sender does not know what was lost with a process that died.
    """

    traits = Traits(
        replayable=False,
        ordered=True,
        idempotent=False,
        note="what is on disk is read again; what the process had not yet written is lost when it dies",
    )

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = Arguments(stream)
        self.host, self.port = address_of(arguments)
        self.listens = bool(arguments.option("listen", bool, False))
        self.reconnects = bool(arguments.option("reconnect", bool, False))
        marker = arguments.option("end_marker", str, None)
        backlog = arguments.option("max_backlog", int, 1_073_741_824)
        arguments.done(most=1)
        self.receiver = Receiver(stream, directory, marker, backlog)
        self._closing = threading.Event()
        self._door: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def identity(self) -> dict[str, object]:
        return {"function": "socket"}

    def check(self, span: Span | None) -> None:
        arguments = Arguments(self.stream, span)
        address_of(arguments)
        if self.listens and self.reconnects:
            raise arguments.error("socket() either listens or connects; reconnect does not go with listen")
        if not self.listens and self.port == 0:
            raise arguments.error("port 0 is none that socket() can connect to")

    # On the driver: receiving.

    def open(self) -> None:
        self.receiver.open()
        if self.receiver.received.ended:
            return
        if self.listens:
            self._door = self._listen()
            self._start(self._welcome)
        else:
            connection = None if self.reconnects else self._connect()
            self._start(self._pull, connection)

    def close(self) -> None:
        self._closing.set()
        if self._door is not None:
            self._door.close()
        for thread in self._threads:
            thread.join()
        self.receiver.close()

    def _start(self, work: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="strandline-socket", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> socket.socket:
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            door = socket.create_server((self.host, self.port), family=family, reuse_port=False)
        except OSError as error:
            raise address_taken(self.host, self.port, error) from None
        door.settimeout(GLANCE_SECONDS)
        self.port = door.getsockname()[1]
        return door

    def _connect(self) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), timeout=CONNECT_SECONDS)
        except OSError as error:
            raise SourceError(
                f'stream "{self.stream.name}" cannot connect to {self.host}:{self.port}: {error.strerror or error}',
                code="connection-refused",
                hint="Start the server first, write reconnect => true to keep trying, or listen => true to be the "
                "server.",
            ) from None

    def _welcome(self) -> None:
        assert self._door is not None
        while not self._over:
            try:
                connection, _ = self._door.accept()
            except TimeoutError:
                continue
            except OSError:
                break  # closed
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._start(self._take_all, connection)
        self._door.close()

    def _pull(self, connection: socket.socket | None) -> None:
        while not self._over:
            if connection is None:
                with contextlib.suppress(SourceError):
                    connection = self._connect()
            whole = connection is not None and self._take_all(connection)
            connection = None
            if not self.reconnects and not self._over:
                self._hung_up(whole)
            self._closing.wait(0 if self._over else RETRY_SECONDS)

    def _hung_up(self, whole: bool) -> None:
        if whole:
            self.receiver.received.end()
            return
        self.receiver.failure = SourceError(
            f'the connection of stream "{self.stream.name}" to {self.host}:{self.port} broke off',
            code="connection-lost",
            hint="Start again to go on with what comes then, or write reconnect => true.",
        )

    @property
    def _over(self) -> bool:
        return self._closing.is_set() or self.receiver.received.ended or self.receiver.failure is not None

    def _take_all(self, connection: socket.socket) -> bool:
        """Everything that a connection brings, until one of both ends is closed; whether the other end said so."""
        buffer = LineBuffer()
        connection.settimeout(GLANCE_SECONDS)
        try:
            with connection:
                while not self._over:
                    if self.receiver.is_full:
                        self._closing.wait(GLANCE_SECONDS)  # who sends will notice that nobody reads
                        continue
                    try:
                        data = connection.recv(RECEIVE_BYTES)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        self.receiver.take([buffer.last()])
                        return False
                    if not data:
                        self.receiver.take([buffer.last()])
                        return True
                    self.receiver.take(buffer.feed(data))
        except Exception as error:  # the disk: the query must hear of it
            self.receiver.failure = error
        return False

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        return self.receiver.advance(position, limit_rows)

    # On a worker: reading what the driver wrote.

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        yield from self.receiver.read(start, end)

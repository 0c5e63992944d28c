"""Socket source: JSON lines over TCP, as client or server."""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.sources.receiver import (
    GLANCE_SECONDS,
    LineBuffer,
    ReceivingSource,
    accept_connections,
    require_token_for_remote,
    stop_listening,
)
from strandline.connectors.traits import Traits
from strandline.core.errors import SourceError, Span
from strandline.core.log import INFO, INPUT, log_event
from strandline.logical.catalog import BaseStream

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.5
TOKEN_SECONDS = 10.0  # for the first line of a connection, where it must be the token
LONGEST_TOKEN = 4096
RECEIVE_BYTES = 2**20


class SocketSource(ReceivingSource):
    """`socket('host:port', listen => false, reconnect => false, end_marker => NULL, max_backlog => 1073741824)`.

    Connects to a server and reads JSON lines until it hangs up; with `listen => true` others connect to us, up to
    `max_connections` at a time, and with `token` the first line of each must be that text. TCP has no acknowledgement
    of the application, so a sender does not learn what was lost with a process that died.
    """

    traits = Traits(
        replayable=False,
        ordered=True,
        idempotent=False,
        note="input on disk is replayed; input that the process had not yet written is lost when it dies",
    )

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        arguments = SourceArguments(stream.source)
        self.listens: bool = arguments.option("listen", bool, False)
        self.reconnects: bool = arguments.option("reconnect", bool, False)
        super().__init__(stream, directory, arguments)
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        if self.listens and self.reconnects:
            raise arguments.error("reconnect of socket() cannot be combined with listen")
        if not self.listens and self.port == 0:
            raise arguments.error("socket() cannot connect to port 0")
        if not self.listens and self.token is not None:
            raise arguments.error("token of socket() needs listen => true")
        super().check(span)
        if self.listens:
            require_token_for_remote("socket", self.host, self.token, span)

    def open(self) -> None:
        super().open()
        if self.received.ended:
            return
        if self.listens:
            self._listener = self.listen()
            self._start(self._accept_connections)
        else:
            connection = None if self.reconnects else self._connect()
            self._start(self._pull, connection)

    def close(self) -> None:
        self._closing.set()
        if self._listener is not None:
            stop_listening(self._listener)
        for thread in self._threads:
            thread.join()
        super().close()

    def _start(self, work: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="strandline-socket", daemon=True)
        self._threads.append(thread)
        thread.start()

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

    def _accept_connections(self) -> None:
        assert self._listener is not None
        accept_connections(self._listener, lambda: self._over, self._accept_connection)
        stop_listening(self._listener)

    def _accept_connection(self, connection: socket.socket) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) > self.max_connections:  # one of them is the calling thread
            connection.close()
        else:
            self._start(self._take_from_client, connection)

    def _take_from_client(self, connection: socket.socket) -> None:
        """Read all input of a client, after its token where one is required."""
        received = b""
        if self.expected_token is not None:
            first = self._first_line(connection)
            if first is None or not hmac.compare_digest(first[0], self.expected_token):
                connection.close()
                return
            received = first[1]
        self._take_all(connection, received)

    def _first_line(self, connection: socket.socket) -> tuple[bytes, bytes] | None:
        """First line of a connection and the input after it; None if it does not come in time."""
        deadline = time.monotonic() + TOKEN_SECONDS
        data = b""
        while b"\n" not in data:
            left = deadline - time.monotonic()
            if left <= 0 or self._over or len(data) > LONGEST_TOKEN:
                return None
            connection.settimeout(min(left, GLANCE_SECONDS))
            try:
                more = connection.recv(LONGEST_TOKEN)
            except TimeoutError:
                continue
            except OSError:
                return None
            if not more:
                return None
            data += more
        line, _, remaining = data.partition(b"\n")
        return line.removesuffix(b"\r"), remaining

    def _pull(self, connection: socket.socket | None) -> None:
        while not self._over:
            if connection is None:
                with contextlib.suppress(SourceError):
                    connection = self._connect()
                    log_event(INPUT, INFO, "source connected", stream=self.stream.name, host=f"{self.host}:{self.port}")
            closed_by_peer = connection is not None and self._take_all(connection)
            connection = None
            if not self.reconnects and not self._over:
                self._hung_up(closed_by_peer)
            self._closing.wait(0 if self._over else RETRY_SECONDS)

    def _hung_up(self, closed_by_peer: bool) -> None:
        if closed_by_peer:
            self.received.end()
            return
        self.failure = SourceError(
            f'the connection of stream "{self.stream.name}" to {self.host}:{self.port} was lost',
            code="connection-lost",
            hint="Restart the query to resume with new input, or write reconnect => true.",
        )

    @property
    def _over(self) -> bool:
        return self._closing.is_set() or self.received.ended or self.failure is not None

    def _take_all(self, connection: socket.socket, received: bytes = b"") -> bool:
        """All input of a connection after `received`, until either end closes; returns whether the other end did."""
        buffer = LineBuffer()
        connection.settimeout(GLANCE_SECONDS)
        try:
            with connection:
                self.take(buffer.feed(received))
                while not self._over:
                    if self.is_full:
                        self._closing.wait(GLANCE_SECONDS)  # nothing is received: TCP makes the sender wait
                        continue
                    try:
                        data = connection.recv(RECEIVE_BYTES)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        self.take([buffer.last()])
                        return False
                    if not data:
                        self.take([buffer.last()])
                        return True
                    self.take(buffer.feed(data))
        except Exception as error:  # the disk: the query must hear of it
            self.failure = error
        return False

"""HTTP source: a small server that accepts rows by POST, acknowledged once they are on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.connectors.sources.base import Chunk, Source, SourceArguments
from strandline.connectors.sources.receiver import Receiver, address_of, address_reached, listen, refuse_open_door
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.security.allow import Reach
from strandline.core.security.secret import Secret
from strandline.logical.catalog import BaseStream, SourceCall

if TYPE_CHECKING:
    from strandline.connectors.sources.http_requests import Server


class HttpSource(Source):
    """`http('host:port', path => '/', token => NULL, max_body => 16777216, max_backlog => 1073741824, …)`.

    `POST` brings JSON lines or, as `application/json`, an object or an array of objects. The response 200 means that
    all of them are on disk. A client without a response must send again, perhaps twice.
    """

    traits = Traits(
        replayable=True,
        ordered=True,
        idempotent=False,
        note="200 only after the rows are on disk; a client without a response sends again, perhaps duplicates",
    )

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = SourceArguments(stream)
        self.host, self.port = address_of(arguments)
        self.path = str(arguments.option("path", str, "/"))
        token = arguments.option("token", (str, Secret), None)
        max_body = arguments.option("max_body", int, 16_777_216)
        marker = arguments.option("end_marker", str, None)
        backlog = arguments.option("max_backlog", int, 1_073_741_824)
        connections = arguments.option("max_connections", int, 256)
        arguments.done(most=1)
        assert isinstance(max_body, int) and isinstance(connections, int)
        self.token, self.max_body, self.max_connections = arguments.secret(token, "token"), max_body, connections
        self.receiver = Receiver(stream, directory, marker, backlog)
        self._server: Server | None = None

    @classmethod
    def reaches(cls, call: SourceCall) -> list[Reach]:
        return address_reached(call)

    def identity(self) -> dict[str, object]:
        return {"function": "http"}  # the address and the token do not determine the rows

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream, span)
        address_of(arguments)
        refuse_open_door("http", self.host, self.token, span)
        if self.max_connections < 1:
            raise arguments.error("max_connections of http() must be at least 1")
        if not self.path.startswith("/"):
            raise arguments.error(f"path of http() must begin with a slash: '/{self.path}'")

    # On the driver: receiving.

    def open(self) -> None:
        from strandline.connectors.sources.http_requests import (  # a web server is expensive to import
            ListenerOptions,
            Server,
        )

        token = None if self.token is None else self.token.reveal()
        self.receiver.open()
        listener = listen("http", self.host, self.port, self.token)
        self.port = listener.getsockname()[1]
        self._server = Server(
            listener, ListenerOptions(self.receiver, self.path, token, self.max_body, self.max_connections)
        )
        threading.Thread(target=self._server.serve, name="strandline-http", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.receiver.close()

    def verify(self, position: int, seal: str) -> None:
        self.receiver.verify(position)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        return self.receiver.advance(position, limit_rows)

    # On a worker.

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        yield from self.receiver.read(start, end)

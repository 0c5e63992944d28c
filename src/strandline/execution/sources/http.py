"""Web hooks: a small server of our own that takes rows by POST, and says so only when they are on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.catalog import BaseStream
from strandline.errors import Span
from strandline.execution.sources.base import Arguments, Chunk, Source
from strandline.execution.sources.receiving import Receiver, address_of, address_taken
from strandline.plugins import Traits

if TYPE_CHECKING:
    from strandline.execution.sources.hooks import Server


class HttpSource(Source):
    """`http('host:port', path => '/', token => NULL, max_body => 16777216, max_backlog => 1073741824, …)`.

    `POST` brings JSON lines or, as `application/json`, an object or an array of objects. The answer 200 means that all
    of them are on disk. A client that got no answer must send again, and may so send twice.
    """

    traits = Traits(
        replayable=True,
        ordered=True,
        idempotent=False,
        note="200 only after the rows are on disk; who got no answer sends again, perhaps rows that were kept",
    )

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = Arguments(stream)
        self.host, self.port = address_of(arguments)
        self.path = str(arguments.option("path", str, "/"))
        token = arguments.option("token", str, None)
        max_body = arguments.option("max_body", int, 16_777_216)
        marker = arguments.option("end_marker", str, None)
        backlog = arguments.option("max_backlog", int, 1_073_741_824)
        arguments.done(most=1)
        assert isinstance(max_body, int)
        self.token, self.max_body = None if token is None else str(token), max_body
        self.receiver = Receiver(stream, directory, marker, backlog)
        self._server: Server | None = None

    def identity(self) -> dict[str, object]:
        return {"function": "http"}  # where it listens, and who may come in, decides nothing about what was taken

    def check(self, span: Span | None) -> None:
        arguments = Arguments(self.stream, span)
        address_of(arguments)
        if not self.path.startswith("/"):
            raise arguments.error(f"path of http() must begin with a slash: '/{self.path}'")

    # On the driver: receiving.

    def open(self) -> None:
        from strandline.execution.sources.hooks import Door, Server  # a web server is much to load for who needs none

        self.receiver.open()
        try:
            self._server = Server((self.host, self.port), Door(self.receiver, self.path, self.token, self.max_body))
        except OSError as error:
            raise address_taken(self.host, self.port, error) from None
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="strandline-http", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.receiver.close()

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        return self.receiver.advance(position, limit_rows)

    # On a worker: reading what the driver wrote.

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        yield from self.receiver.read(start, end)

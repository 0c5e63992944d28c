"""HTTP source: a small server that accepts rows by POST, acknowledged once they are on disk."""

from __future__ import annotations

import threading
from pathlib import Path

from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.sources.http_requests import Server
from strandline.connectors.sources.receiver import ReceivingSource, require_token_for_remote
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.logical.catalog import BaseStream


class HttpSource(ReceivingSource):
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
        arguments = SourceArguments(stream.source)
        self.path: str = arguments.option("path", str, "/")
        self.max_body: int = arguments.option("max_body", int, 16_777_216)
        super().__init__(stream, directory, arguments)
        self._server: Server | None = None

    def check(self, span: Span | None) -> None:
        require_token_for_remote("http", self.host, self.token, span)
        super().check(span)
        if not self.path.startswith("/"):
            arguments = SourceArguments(self.stream.source, span)
            raise arguments.error(f"path of http() must begin with a slash: '/{self.path}'")

    def open(self) -> None:
        super().open()
        self._server = Server(self.listen(), self)
        threading.Thread(target=self._server.serve, name="strandline-http", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        super().close()

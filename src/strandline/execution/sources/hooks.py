"""The web server behind `http`: who may come in, and what a body means."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from strandline.execution.sources.receiving import Receiver

SILENT_SECONDS = 30.0  # a client that says nothing for so long is hung up on
_SPACE = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Door:
    """Where rows are taken, from whom, how many at a time, and who keeps them."""

    receiver: Receiver
    path: str
    token: str | None
    max_body: int


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], door: Door) -> None:
        self.door = door
        super().__init__(address, Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone away before its answer is no news: what it sent is kept, or was never whole."""


class Refused(Exception):
    """A request that is answered with something else than 200."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "strandline"
    timeout = SILENT_SECONDS
    server: Server

    def do_POST(self) -> None:
        try:
            self._admit()
            lines = rows_in(self._body(), self.headers.get_content_type())
            self._answer(HTTPStatus.OK, {"rows": self.server.door.receiver.take(lines)})
        except Refused as refused:
            self._answer(refused.status, {"error": str(refused)}, refused.headers)
        except OSError as error:
            if not isinstance(error, ConnectionError | TimeoutError):
                self.server.door.receiver.failure = error
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"the rows cannot be kept: {error}"})

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "rows are sent by POST"}, {"Allow": "POST"})

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_GET

    def _admit(self) -> None:
        door = self.server.door
        if urlsplit(self.path).path != door.path:
            raise Refused(HTTPStatus.NOT_FOUND, f"rows are taken at {door.path}")
        if door.token is not None:
            shown = self.headers.get("Authorization", "")
            if not hmac.compare_digest(shown.encode(), f"Bearer {door.token}".encode()):
                raise Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", WWW_Authenticate="Bearer")
        if door.receiver.received.ended:
            raise Refused(HTTPStatus.GONE, "the stream has ended")
        if door.receiver.is_full:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many rows wait to be read", Retry_After="1")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "say how long the body is: Content-Length")
        if int(length) > self.server.door.max_body:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {self.server.door.max_body} bytes at a time")
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as it is, without Content-Encoding")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the body broke off")
        return body

    def _answer(self, status: HTTPStatus, content: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != HTTPStatus.OK:
            self.send_header("Connection", "close")  # the body may be unread, so nothing can follow it
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A web server's chatter has no place on the user's screen."""


def rows_in(body: bytes, content_type: str) -> list[bytes]:
    """The rows of a body as lines. What calls itself JSON is one or more values, an array meaning its parts; all else
    is lines, and whether they are JSON is found when they are read."""
    if content_type != "application/json":
        return body.split(b"\n")
    try:
        text = body.decode().strip()
        whole = text.removeprefix("[").removesuffix("]") if text.startswith("[") and text.endswith("]") else text
        return [part.replace("\n", " ").replace("\r", " ").encode() for part in _values(whole)]
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None


def _values(text: str) -> Iterator[str]:
    """JSON values as they are written, one after the other; what they mean is read later, by array code."""
    scan = json.JSONDecoder().raw_decode
    space = _SPACE.match(text)
    at = space.end() if space else 0
    while at < len(text):
        _, end = scan(text, at)
        yield text[at:end]
        space = _SPACE.match(text, end)
        at = space.end() if space else end

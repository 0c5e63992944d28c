"""Web server of `http`: connections, requests and bodies.

Requests are read by strict rules (RFC 9112): ambiguous requests are rejected with 400. A request that is delimited
otherwise than by one Content-Length is not read at all, so nothing can be smuggled in behind it. Everything is bounded:
connections, the size of a head and of a body, and the time for each of them.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from strandline.connectors.sources.receiver import accept_connections, stop_listening

if TYPE_CHECKING:
    from strandline.connectors.sources.http import HttpSource

MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 100
IDLE_SECONDS = 30.0  # between two requests of a connection
HEAD_SECONDS = 10.0  # for all of a head
BODY_SECONDS = 10.0  # for a body, and more by its length:
SLOWEST_BYTES_PER_SECOND = 16 * 1024
RESPONSE_SECONDS = 10.0  # timeout for sending a response
MAX_REJECTED = 64  # connections beyond the limit that may still read why they are rejected
LINGER_SECONDS = 1.0  # for the client to read a refusal before its unread body breaks the connection
_RECEIVE_BYTES = 256 * 1024

_SPACE = re.compile(r"[\s,]*")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(r"[0-9]{1,15}")


class RequestRefused(Exception):
    """A request with another response than 200."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Server:
    """Accepts connections until it is closed, each in a thread."""

    def __init__(self, listener: socket.socket, source: HttpSource) -> None:
        self.source = source
        self._listener = listener
        self._closing = threading.Event()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._rejected: deque[tuple[float, socket.socket]] = deque()  # and until when they may read why

    def serve(self) -> None:
        accept_connections(self._listener, self._is_over, self._accept_connection)
        self._close_rejected(math.inf)

    def _is_over(self) -> bool:
        self._close_rejected(time.monotonic())
        return self._closing.is_set()

    def _close_rejected(self, now: float) -> None:
        """Close the rejected connections that have had the time to read why."""
        while self._rejected and (self._rejected[0][0] <= now or len(self._rejected) > MAX_REJECTED):
            self._rejected.popleft()[1].close()

    def _accept_connection(self, connection: socket.socket) -> None:
        with self._lock:
            is_full = len(self._connections) >= self.source.max_connections or self._closing.is_set()
            if not is_full:
                self._connections.add(connection)
        if is_full:
            self._reject_connection(connection)
            return
        threading.Thread(target=self._serve_one, args=(connection,), name="strandline-http-client", daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            ClientConnection(connection, self.source).run()
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _reject_connection(self, connection: socket.socket) -> None:
        """Send 503 to an excess connection. Closing it immediately would break it before the response is read."""
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            refusal = {"error": "too many connections"}
            connection.sendall(response_bytes(HTTPStatus.SERVICE_UNAVAILABLE, refusal, {"Retry-After": "1"}))
            connection.shutdown(socket.SHUT_WR)
        self._rejected.append((time.monotonic() + LINGER_SECONDS, connection))

    def close(self) -> None:
        self._closing.set()
        stop_listening(self._listener)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: str
    path: str
    is_latest: bool  # HTTP/1.1, not 1.0
    headers: dict[str, list[str]]  # by name in lower case

    def header(self, name: str, default: str = "") -> str:
        """Value of a header that occurs at most once."""
        values = self.headers.get(name, [])
        if len(values) > 1:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"duplicate {name}")
        return values[0] if values else default

    @property
    def length(self) -> int:
        """Length of the body; rejected where it is ambiguous."""
        lengths = self.headers.get("content-length", [])
        if "transfer-encoding" in self.headers:
            if lengths:
                raise RequestRefused(HTTPStatus.BAD_REQUEST, "Content-Length beside Transfer-Encoding")
            raise RequestRefused(
                HTTPStatus.NOT_IMPLEMENTED, "send the body with Content-Length, without Transfer-Encoding"
            )
        if len(lengths) > 1:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "duplicate Content-Length")
        if lengths and not _LENGTH.fullmatch(lengths[0]):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        if not lengths:
            raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, "send Content-Length")
        return int(lengths[0])

    @property
    def content_type(self) -> str:
        return self.header("content-type", "text/plain").partition(";")[0].strip().lower()

    @property
    def stays(self) -> bool:
        """True if the client keeps the connection open."""
        words = {word.strip().lower() for value in self.headers.get("connection", []) for word in value.split(",")}
        return "close" not in words if self.is_latest else "keep-alive" in words


def parse_head(head: bytes) -> Request:
    """The head of a request without the empty line at its end."""
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")
    if line[3] != b"1":
        raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "use HTTP/1.1")
    if len(lines) > MAX_HEADERS:
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {MAX_HEADERS} headers")
    headers: dict[str, list[str]] = {}
    for text in lines:
        # A folded line, a bare line break, a blank before the colon: none of these match.
        header = _HEADER.fullmatch(text)
        if header is None:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "invalid header")
        headers.setdefault(header[1].decode().lower(), []).append(header[2].decode("latin-1").rstrip(" \t"))
    try:
        path = urlsplit(line[2].decode()).path
    except ValueError:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "invalid path") from None
    request = Request(line[1].decode(), path, line[4] != b"0", headers)
    if request.is_latest and len(headers.get("host", [])) != 1:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "a request must have one Host")
    return request


class ClientConnection:
    """The requests of one connection, one after the other."""

    def __init__(self, connection: socket.socket, source: HttpSource) -> None:
        self._connection, self._source = connection, source
        self._buffer = bytearray()

    def run(self) -> None:
        """Serve requests until either end closes. A client may disconnect: its rows are stored, or were incomplete."""
        with contextlib.suppress(OSError):
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._serve():
                pass

    def _serve(self) -> bool:
        """Serve one request; returns whether another may follow."""
        try:
            head = self._head()
            if head is None:
                return False
            request = parse_head(head)
            rows = self._take(request)
        except RequestRefused as refused:
            self._refuse(refused)
            return False
        self._send(response_bytes(HTTPStatus.OK, {"rows": rows}, closes=not request.stays))
        return request.stays

    def _take(self, request: Request) -> int:
        """The number of rows of a request, once they are on disk."""
        length = self._admit(request)
        expects = request.header("expect").lower()
        if expects not in ("", "100-continue"):
            raise RequestRefused(HTTPStatus.EXPECTATION_FAILED, "only 100-continue can be expected")
        if expects and len(self._buffer) < length:
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        lines = rows_in(self._body(length), request.content_type)
        try:
            return self._source.take(lines)
        except OSError as error:
            self._source.failure = error
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"cannot store the rows: {error}") from None

    def _admit(self, request: Request) -> int:
        """The length of the body of a request that may be taken."""
        source = self._source
        length = request.length if request.method == "POST" else 0
        if request.path != source.path:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"send rows to {source.path}")
        if request.method != "POST":
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "send rows by POST", Allow="POST")
        if source.expected_token is not None:
            shown = request.header("authorization").encode("latin-1")
            if not hmac.compare_digest(shown, b"Bearer " + source.expected_token):
                raise RequestRefused(
                    HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", WWW_Authenticate="Bearer"
                )
        elif "origin" in request.headers:
            # A page in a browser on this machine reaches this address, too, wherever the page comes from.
            raise RequestRefused(HTTPStatus.FORBIDDEN, "requests from web pages need a token")
        if source.received.ended:
            raise RequestRefused(HTTPStatus.GONE, "the stream has ended")
        if source.is_full:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many rows are waiting", Retry_After="1")
        if length > source.max_body:
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {source.max_body} bytes at a time")
        if request.header("content-encoding", "identity").lower() != "identity":
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as it is, without Content-Encoding")
        return length

    def _head(self) -> bytes | None:
        """Lines of the next head; None if the client has closed."""
        deadline = time.monotonic() + IDLE_SECONDS
        if not self._buffer and not self._receive(deadline):
            return None
        deadline = time.monotonic() + HEAD_SECONDS
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                break
            if not self._receive(deadline):
                raise ConnectionError("the head was lost")
        if end < 0 or end > MAX_HEAD_BYTES:
            raise RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {MAX_HEAD_BYTES} bytes of headers"
            )
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    def _body(self, length: int) -> bytes:
        deadline = time.monotonic() + BODY_SECONDS + length / SLOWEST_BYTES_PER_SECOND
        while len(self._buffer) < length:
            if not self._receive(deadline):
                raise ConnectionError("the body was lost")
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _receive(self, deadline: float) -> bool:
        """Receive the next bytes; false at the end. Raises TimeoutError at the deadline, however many bytes came."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client is too slow")
        self._connection.settimeout(left)
        data = self._connection.recv(_RECEIVE_BYTES)
        self._buffer += data
        return bool(data)

    def _send(self, data: bytes) -> None:
        self._connection.settimeout(RESPONSE_SECONDS)
        self._connection.sendall(data)

    def _refuse(self, refused: RequestRefused) -> None:
        """Respond and close: the rest of the connection cannot be trusted to be a request."""
        self._send(response_bytes(refused.status, {"error": str(refused)}, refused.headers))
        self._connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_SECONDS
        taken = 0
        while taken <= self._source.max_body and self._receive(deadline):
            taken += len(self._buffer)
            self._buffer.clear()


def response_bytes(
    status: HTTPStatus, content: object, headers: dict[str, str] | None = None, closes: bool = True
) -> bytes:
    """A response in wire format."""
    body = json.dumps(content).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
        *(["Connection: close"] if closes else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


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
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None


def _values(text: str) -> Iterator[str]:
    """JSON values as written, one after the other; array code parses them later."""
    scan = json.JSONDecoder().raw_decode
    space = _SPACE.match(text)
    at = space.end() if space else 0
    while at < len(text):
        _, end = scan(text, at)
        yield text[at:end]
        space = _SPACE.match(text, end)
        at = space.end() if space else end

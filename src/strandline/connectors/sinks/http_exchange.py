"""One HTTP request with an overall deadline, and a bounded response.

Every wait, from name resolution to the last byte of the response, is limited by the deadline, also for a receiver that
sends a byte now and then.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

MAX_RESPONSE_BYTES: Final = 64 * 1024
_WAIT_SECONDS: Final = 0.25  # poll interval of a name resolution for an interrupt
_URL_SIGNS: Final = "%/:=&?~#+!$,;'@()*[]"


class Interrupted(Exception):
    """The exchange was interrupted."""


@dataclass(frozen=True, slots=True)
class Address:
    """Target of a request: the parts of a URL that HTTP needs, without credentials."""

    scheme: str
    host: str
    port: int
    target: str  # path and query

    @staticmethod
    def parse(url: str) -> Address:
        """Parse a URL. Raises ValueError, without parts of the URL in its text."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            if ":" not in host:  # not an IPv6 address
                host = host.encode("idna").decode()
        except ValueError:
            raise ValueError("it cannot be read") from None
        if parts.scheme not in ("http", "https"):
            raise ValueError("it begins with neither http:// nor https://")
        if not host or any(sign <= " " or sign in "\x7f\\" for sign in url):
            raise ValueError("it has no host" if not host else "it has blanks, control characters or backslashes")
        target = urlunsplit(("", "", quote(parts.path or "/", _URL_SIGNS), quote(parts.query, _URL_SIGNS), ""))
        return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), target)

    def follow(self, location: str | None) -> Address | None:
        """The target of a redirection; None if its location is missing or not an HTTP URL."""
        try:
            return Address.parse(urljoin(f"{self}{self.target}", location or "no location:"))
        except ValueError:
            return None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host.lower(), self.port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Response:
    """The beginning of a response."""

    status: int
    reason: str
    location: str | None
    retry_after: str


class HttpExchange:
    """A request and its response; for one use."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline  # of time.monotonic()
        self._is_interrupted = False
        self._socket: socket.socket | None = None

    def left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Interrupted if self._is_interrupted else TimeoutError("the exchange timed out")
        return left

    def interrupt(self, grace_seconds: float) -> None:
        """Abort after this time, wherever the exchange is; called from another thread."""
        self._is_interrupted = True
        self._deadline = min(self._deadline, time.monotonic() + grace_seconds)
        timer = threading.Timer(grace_seconds, self._shut)
        timer.daemon = True
        timer.start()

    def post(self, address: Address, body: bytes, headers: Mapping[str, str]) -> Response:
        """Send a body. Raises OSError without a response in time."""
        connection = http.client.HTTPConnection(address.host, address.port)
        try:
            connection.sock = _DeadlineSocket(self._connect(address), self)
            connection.request("POST", address.target, body, dict(headers))
            response = connection.getresponse()
            result = Response(
                response.status,
                response.reason[:100],
                response.getheader("Location"),
                response.getheader("Retry-After", ""),
            )
            # The status is enough. The rest is read as far as it is short and in time.
            with contextlib.suppress(OSError, http.client.HTTPException, Interrupted):
                response.read(MAX_RESPONSE_BYTES)
            return result
        except http.client.HTTPException as error:
            raise ConnectionError(f"the response is not HTTP: {type(error).__name__}") from None
        except OSError:
            self.left()  # an interrupt shows itself as a connection that broke
            raise
        finally:
            self._shut()
            connection.close()
            if self._socket is not None:
                self._socket.close()

    def _shut(self) -> None:
        """Interrupt a wait on the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not that of ssl, which first forgets the encryption: another thread may be sending.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _connect(self, address: Address) -> socket.socket:
        problem: OSError = OSError(f"cannot resolve {address.host}")
        for family, kind, protocol, _, where in self._look_up(address):
            made = socket.socket(family, kind, protocol)
            self._socket = made
            try:
                made.settimeout(self.left())
                made.connect(where)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if address.scheme == "https":
                    made.settimeout(self.left())
                    made = ssl.create_default_context().wrap_socket(made, server_hostname=address.host)
                    self._socket = made
                return made
            except OSError as error:
                made.close()
                problem = error
        self.left()
        raise problem

    def _look_up(self, address: Address) -> list[tuple[Any, ...]]:
        """Addresses of a host. The system's resolver has no deadline, so it runs in a thread."""
        addresses: list[tuple[Any, ...]] = []
        problems: list[OSError] = []

        def ask() -> None:
            try:
                addresses.extend(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
            except OSError as error:
                problems.append(error)

        thread = threading.Thread(target=ask, name="strandline-look-up", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(min(self.left(), _WAIT_SECONDS))
        if problems:
            raise problems[0]
        return addresses


class _DeadlineSocket(io.RawIOBase):
    """A socket for http.client, and the file that it reads the response from; its waits end at the deadline."""

    def __init__(self, made: socket.socket, exchange: HttpExchange) -> None:
        self._made, self._exchange = made, exchange

    def sendall(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            self._made.settimeout(self._exchange.left())
            view = view[self._made.send(view) :]

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._made.settimeout(self._exchange.left())
        return self._made.recv_into(buffer)

    def close(self) -> None:
        """The exchange closes the socket at its end: the response may still be read."""

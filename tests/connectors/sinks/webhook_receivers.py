"""Receivers of webhooks that misbehave, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answering = Callable[[socket.socket], None]


@dataclass
class Receiver:
    """Takes requests one by one; what it answers is a function of the connection."""

    port: int
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


def read_request(connection: socket.socket) -> tuple[str, dict[str, str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        got = connection.recv(65536)
        if not got:
            raise ConnectionError
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    while len(body) < int(headers.get("Content-Length", 0)):
        body += connection.recv(65536)
    return first, headers, body


@contextmanager
def receiving(*answers: bytes | Answering) -> Iterator[Receiver]:
    """A receiver that gives these answers in turn, the last of them for ever."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        receiver = Receiver(door.getsockname()[1])
        door.settimeout(0.05)

        def serve() -> None:
            while not stopped.is_set():
                with suppress(OSError):
                    connection, _ = door.accept()
                    threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(30)
                receiver.requests.append(read_request(connection))
                answer = answers[min(len(receiver.requests), len(answers)) - 1]
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield receiver
        stopped.set()
        thread.join()


def status(line: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {line}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


OK = status("200 OK")


def redirect(code: int, location: str) -> bytes:
    return status(f"{code} Elsewhere", f"Location: {location}")


def drip(data: bytes, every: float = 0.05) -> Answering:
    def send(connection: socket.socket) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(every)

    return send

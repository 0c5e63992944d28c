"""Requests that are malformed on purpose, clients that drip or crowd in, and doors that must not stand open."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline as sl
from source_testing import declared, free_port, wait_for
from strandline.connectors.sources import http_requests as hooks
from strandline.connectors.sources import receiver as receiving
from strandline.connectors.sources import socket as sockets
from strandline.connectors.sources.http import HttpSource
from strandline.connectors.sources.socket import SocketSource
from strandline.core.errors import StrandlineError

ROW = b'{"k": 1, "ts": 1}'
FRAMED = b"Content-Length: %d\r\n\r\n" % len(ROW) + ROW


@pytest.fixture
def source(tmp_path: Path) -> Iterator[HttpSource]:
    made = declared("(k INT, ts BIGINT)", "http('0', max_body => 100000, max_connections => 4)", directory=tmp_path)
    assert isinstance(made, HttpSource)
    made.open()
    yield made
    made.close()


def connect(source: HttpSource) -> socket.socket:
    return socket.create_connection(("127.0.0.1", source.port), timeout=20)


def everything(connection: socket.socket) -> bytes:
    data = b""
    while got := connection.recv(65536):
        data += got
    return data


def send(source: HttpSource, request: bytes) -> bytes:
    """All that comes back until the server hangs up, or until we do after all answers."""
    with connect(source) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return everything(connection)


def statuses(answers: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+)", answers)]


def post(headers: bytes, body: bytes = ROW, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return line + b"\r\nHost: h\r\n" + headers + b"\r\n\r\n" + body


MALFORMED = {
    "length and chunked": (post(b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\nPOST / HTTP/1.1"), 400),
    "chunked and length": (post(b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"0\r\n\r\n"), 400),
    "chunked": (post(b"Transfer-Encoding: chunked", b"11\r\n" + ROW + b"\r\n0\r\n\r\n"), 501),
    "another encoding": (post(b"Transfer-Encoding: xchunked"), 501),
    "two equal lengths": (post(b"Content-Length: 17\r\nContent-Length: 17"), 400),
    "two lengths": (post(b"Content-Length: 17\r\nContent-Length: 0"), 400),
    "a list of lengths": (post(b"Content-Length: 17, 17"), 400),
    "a signed length": (post(b"Content-Length: +17"), 400),
    "a negative length": (post(b"Content-Length: -1"), 400),
    "a length with blanks": (post(b"Content-Length: 1 7"), 400),
    "a length in hex": (post(b"Content-Length: 0x11"), 400),
    "a length of other digits": (post("Content-Length: ١٧".encode()), 400),
    "a length with underscores": (post(b"Content-Length: 1_7"), 400),
    "an empty length": (post(b"Content-Length:"), 400),
    "a length beyond measure": (post(b"Content-Length: " + b"9" * 30), 400),
    "no length": (post(b"X: y"), 411),
    "a folded header": (post(b"X: a\r\n b\r\nContent-Length: 17"), 400),
    "a bare line feed": (post(b"X: a\nContent-Length: 17"), 400),
    "a bare carriage return": (post(b"X: a\rContent-Length: 17\r\nContent-Length: 17"), 400),
    "only line feeds": (b"POST / HTTP/1.1\nHost: h\nContent-Length: 17\n\n" + ROW + b"\r\n\r\n", 400),
    "a blank before the colon": (post(b"Content-Length : 17"), 400),
    "a header without a colon": (post(b"Content-Length"), 400),
    "a NUL in a header": (post(b"X: \0\r\nContent-Length: 17"), 400),
    "no host": (b"POST / HTTP/1.1\r\n" + FRAMED, 400),
    "two hosts": (post(b"Host: other\r\nContent-Length: 17"), 400),
    "two blanks in the line": (post(b"Content-Length: 17", line=b"POST  / HTTP/1.1"), 400),
    "no version": (post(b"Content-Length: 17", line=b"POST /"), 400),
    "another version": (post(b"Content-Length: 17", line=b"POST / HTTP/2.0"), 505),
    "a small http": (post(b"Content-Length: 17", line=b"POST / http/1.1"), 400),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "too many headers": (post(b"X: y\r\n" * 101 + b"Content-Length: 17"), 431),
    "too long a header": (post(b"X: " + b"y" * 20_000), 431),
    "a head without end": (b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 4000, 431),
    "an odd expectation": (post(b"Expect: 200-ok\r\nContent-Length: 17"), 417),
    "two authorizations": (post(b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\nContent-Length: 17"), 400),
    "a page of the web": (post(b"Origin: https://evil.example\r\nContent-Length: 17"), 403),
    "too much": (post(b"Content-Length: 100001"), 413),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_can_be_understood_in_two_ways_is_refused(source: HttpSource, case: str) -> None:
    request, status = MALFORMED[case]
    smuggled = b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED
    answers = send(source, request + smuggled)
    assert statuses(answers) == [status], "one answer, and nothing of what follows is taken for a request"
    assert b"Connection: close" in answers
    assert source.received.synced == 0


def test_requests_may_follow_each_other_without_waiting(source: HttpSource) -> None:
    one = b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED
    assert statuses(send(source, one * 5)) == [200] * 5
    assert statuses(send(source, post(b"Connection: close\r\n" + FRAMED[:18]) + one)) == [200]
    assert statuses(send(source, b"POST / HTTP/1.0\r\n" + FRAMED + one)) == [200], "1.0 closes unless asked to stay"


def test_a_client_may_ask_before_it_sends(source: HttpSource) -> None:
    with connect(source) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 17\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(ROW)
        assert statuses(connection.recv(1000)) == [200]
    with connect(source) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 999999\r\n\r\n")
        assert statuses(connection.recv(1000)) == [413], "before the body"


# ---- time and number -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "body"])
def test_a_dripping_client_is_hung_up_on(source: HttpSource, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(hooks, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(hooks, "BODY_SECONDS", 0.5)
    began = time.monotonic()
    with connect(source) as connection, pytest.raises(OSError):
        connection.sendall(b"POST / HTTP/1.1\r\n" + (b"Host: h\r\n" + FRAMED[:-17] if where == "body" else b""))
        while time.monotonic() - began < 10:
            connection.sendall(b"X")
            time.sleep(0.04 if where == "head" else 0.1)
    assert time.monotonic() - began < 3.0
    assert source.received.synced == 0


def test_a_large_body_gets_more_time(source: HttpSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(hooks, "SLOWEST_BYTES_PER_SECOND", 50_000)
    row = ROW + b" " * 40_000
    with connect(source) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(row))
        for first in range(0, len(row), 10_000):
            connection.sendall(row[first : first + 10_000])
            time.sleep(0.12)  # 0.6 s in all; 0.9 s may be
        assert statuses(connection.recv(1000)) == [200]


def test_a_silent_connection_is_closed(source: HttpSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "IDLE_SECONDS", 0.3)
    with connect(source) as connection:
        assert everything(connection) == b""
    with connect(source) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED)
        assert statuses(everything(connection)) == [200], "also after a request"


def test_one_too_many_hears_503_at_once(source: HttpSource) -> None:
    crowd = [connect(source) for _ in range(4)]
    time.sleep(0.3)
    began = time.monotonic()
    for _ in range(30):  # a client that has sent its request before it reads hears it, too
        assert statuses(send(source, b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED)) == [503]
    assert time.monotonic() - began < 3.0
    assert [source._server is not None and len(source._server._connections)] == [4]
    crowd.pop().close()
    wait_for(lambda: statuses(send(source, b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED)) == [200])
    for connection in crowd:
        connection.close()


def test_closing_the_source_hangs_up_on_all(source: HttpSource) -> None:
    with connect(source) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\n" + FRAMED)
        assert statuses(connection.recv(1000)) == [200]
        source.close()
        assert everything(connection) == b""


def test_many_clients_through_few_doors_lose_nothing(source: HttpSource) -> None:
    """Those who hear 503 come again; every row that was acknowledged is there once."""
    acknowledged = []

    def work(client: int) -> None:
        for number in range(20):
            while True:
                connection = http.client.HTTPConnection("127.0.0.1", source.port, timeout=20)
                try:
                    connection.request("POST", "/", json.dumps({"k": client * 100 + number, "ts": 1}))
                    if connection.getresponse().status == 200:
                        acknowledged.append(client * 100 + number)
                        break
                except OSError:
                    pass
                finally:
                    connection.close()
                time.sleep(0.005)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end, _ = source.advance(0, 10**6)
    rows = [row for chunk in source.read(0, end, frozenset({"k", "ts"})) for row in chunk.rows["k"]]
    assert sorted(rows) == sorted(acknowledged) and len(rows) == 200


# ---- who may come in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "no-such-host.invalid", "255.255.255.255"])
@pytest.mark.parametrize("call", ["http('{}:0')", "socket('{}:0', listen => true)"])
def test_other_interfaces_need_a_token(host: str, call: str) -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError) as caught:
        database.sql(f"CREATE STREAM s (k INT, ts BIGINT) SOURCE {call.format(host)} ORDERED BY ts")
    assert caught.value.code == "token-required" and caught.value.span is not None


def test_a_name_with_one_address_of_another_interface_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_addresses", lambda host: ["127.0.0.1", "192.0.2.7"])
    with pytest.raises(StrandlineError, match="token"):
        receiving.require_token_for_remote("http", "both", None, None)


@pytest.mark.parametrize("host", ["", "127.0.0.1:", "localhost:", "[::1]:", "127.9.9.9:"])
def test_this_machine_needs_none(host: str) -> None:
    with sl.connect(engine="local") as database:
        database.sql(f"CREATE STREAM s (k INT, ts BIGINT) SOURCE http('{host}{free_port()}') ORDERED BY ts")


def test_with_a_token_all_interfaces_are_open_to_who_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    port = free_port()
    with sl.connect(engine="local") as database:
        database.sql(
            f"CREATE STREAM s (k INT, ts BIGINT) SOURCE http('0.0.0.0:{port}', token => secret('env:HOOK_TOKEN'))"
            " ORDERED BY ts"
        )
        database.sql("SELECT k FROM s")
        for token, status in (("s3cret", 200), ("s3cre", 401), ("s3crets", 401), ("ä", 401)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", "/", ROW, {"Authorization": f"Bearer {token}"})
            assert connection.getresponse().status == status
            connection.close()
        assert "secret('env:HOOK_TOKEN')" in str(database.sql("DESCRIBE s"))


def test_an_empty_token_is_none() -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError, match="non-empty"):
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE http('0.0.0.0:0', token => '') ORDERED BY ts")


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketSource]:
    monkeypatch.setattr(sockets, "TOKEN_SECONDS", 0.5)
    call = "socket('0.0.0.0:0', listen => true, token => 's3cret', max_connections => 3)"
    made = declared("(k INT, ts BIGINT)", call)
    assert isinstance(made, SocketSource)
    made.open()
    yield made
    made.close()


def tcp(source: SocketSource) -> socket.socket:
    return socket.create_connection(("127.0.0.1", source.port), timeout=20)


def is_hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_socket_with_a_token_takes_rows_after_it(guarded: SocketSource) -> None:
    with tcp(guarded) as good:
        good.sendall(b"s3c")
        time.sleep(0.05)
        good.sendall(b"ret\r\n" + ROW + b"\n" + ROW[:5])
        good.sendall(ROW[5:] + b"\n")
        wait_for(lambda: guarded.received.synced == 2)


@pytest.mark.parametrize("first", [b"wrong\n", ROW + b"\n", b"s3cret\x00\n", b"\n", b"S3CRET\n", b"x" * 10_000])
def test_a_socket_hangs_up_on_who_does_not_know_the_token(guarded: SocketSource, first: bytes) -> None:
    with tcp(guarded) as bad:
        bad.sendall(first)
        with contextlib.suppress(ConnectionError):  # already hung up
            bad.sendall(ROW + b"\n")
        assert is_hung_up(bad)
    assert guarded.received.synced == 0


def test_a_socket_does_not_wait_for_a_token_that_drips(guarded: SocketSource) -> None:
    began = time.monotonic()
    with tcp(guarded) as slow, pytest.raises(OSError):
        while time.monotonic() - began < 10:
            slow.sendall(b"s")
            time.sleep(0.1)
    assert time.monotonic() - began < 3.0


def test_a_socket_has_room_for_so_many(guarded: SocketSource) -> None:
    crowd = [tcp(guarded) for _ in range(3)]
    for connection in crowd:
        connection.sendall(b"s3cret\n")
    time.sleep(0.3)
    with tcp(guarded) as late:
        assert is_hung_up(late)
    crowd.pop().close()

    def comes_in() -> bool:
        with tcp(guarded) as another:
            another.sendall(b"s3cret\n" + ROW + b"\n")
            time.sleep(0.1)
        return guarded.received.synced > 0

    wait_for(comes_in)
    for connection in crowd:
        connection.close()


def test_a_token_goes_with_listening() -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError, match="needs listen"):
        database.sql("CREATE STREAM s (k INT, ts BIGINT) SOURCE socket('127.0.0.1:1', token => 'x') ORDERED BY ts")

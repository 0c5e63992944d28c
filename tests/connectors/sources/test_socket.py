"""JSON lines over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

import strandline as sl
from source_testing import declared, free_port, wait_for
from strandline.connectors.sources import receiver as receiving
from strandline.connectors.sources.receiver import LineBuffer
from strandline.connectors.sources.socket import SocketSource
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query


def lines(numbers: Iterable[int]) -> bytes:
    return b"".join(json.dumps({"k": n % 3, "ts": n}).encode() + b"\n" for n in numbers)


@contextmanager
def server(*contents: bytes) -> Iterator[int]:
    """Sends each content to one connection after the other, and hangs up; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            for content in contents:
                connection, _ = door.accept()
                with connection:
                    connection.sendall(content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield door.getsockname()[1]


def ask(database: Database, port: int, options: str = "", query: str = "SELECT k, ts FROM s") -> Query:
    database.sql("DROP STREAM IF EXISTS s")
    database.sql(
        f"CREATE STREAM s (k INT, ts BIGINT) SOURCE socket('127.0.0.1:{port}'{options})"
        " ORDERED BY ts WITHIN 5 MICROSECONDS"
    )
    found = database.sql(query)
    assert isinstance(found, Query)
    return found


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", batch_rows=100) as found:
        yield found


def test_lines_until_the_server_hangs_up(database: Database) -> None:
    content = lines(range(250)) + b"nonsense\n" + b'{"k": "x", "ts": 250}\n' + b'{"k": 1, "ts": 251}'
    with server(content) as port:
        query = ask(database, port)
        assert query.await_end(20)
    assert sorted(row["ts"] for row in query.results().to_pylist()) == [*range(250), 251], "also the unfinished line"
    rejected = [(row["row"], row["reason"]) for row in query.rejected("s").to_pylist()]
    assert sorted(rejected) == [(251, "not a JSON object"), (252, "k: 'x' is not INT")]
    assert query.rejected("s").to_pylist()[0]["place"] == "socket of s"


def test_nobody_there(database: Database) -> None:
    with pytest.raises(StrandlineError) as caught:
        ask(database, free_port())
    assert caught.value.code == "connection-refused"
    assert "listen => true" in (caught.value.hint or "")


def test_reconnecting_goes_on_after_a_hang_up_and_waits_for_who_is_not_there_yet(database: Database) -> None:
    port = free_port()
    query = ask(database, port, ", reconnect => true, end_marker => 'END'")
    with socket.create_server(("127.0.0.1", port)) as door:
        for content in (lines(range(10)), lines(range(10, 20)) + b"END\n"):
            connection, _ = door.accept()
            with connection:
                connection.sendall(content)
    assert query.await_end(20)
    assert query.results().num_rows == 20


def test_a_connection_that_breaks_off_is_an_error_and_no_end(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        query = ask(database, door.getsockname()[1])
        connection, _ = door.accept()
        connection.sendall(lines(range(10)))
        wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()  # a reset, not a good-bye
        with pytest.raises(StrandlineError) as caught:
            query.await_end(20)
    assert caught.value.code == "connection-lost"


def test_many_may_connect_to_us(database: Database) -> None:
    port = free_port()
    query = ask(database, port, ", listen => true, end_marker => 'END'")
    first = socket.create_connection(("127.0.0.1", port))
    second = socket.create_connection(("127.0.0.1", port))
    first.sendall(lines(range(5)))
    second.sendall(lines(range(3)) + b'{"k": 7, ')
    second.sendall(b'"ts": 4}\n')
    wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 9)
    first.close()
    second.sendall(lines([5]) + b"END\n" + lines([6]))
    assert query.await_end(20)
    assert sum(query.metrics()["rows_in"].values()) == 10, "nothing after the end"
    second.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_port_that_is_taken(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door, pytest.raises(StrandlineError) as caught:
        ask(database, door.getsockname()[1], ", listen => true")
    assert caught.value.code == "address-unusable"


def test_the_port_is_free_when_the_query_is_stopped(database: Database) -> None:
    port = free_port()
    for _ in range(3):
        query = ask(database, port, ", listen => true")
        socket.create_connection(("127.0.0.1", port)).close()
        query.stop()
    for _ in range(3):  # without a client: the thread that accepts is asleep
        ask(database, port, ", listen => true").stop()


def test_who_sends_faster_than_we_read_must_wait() -> None:
    port = free_port()
    source = declared("(k INT, ts BIGINT)", f"socket('{port}', listen => true, max_backlog => 200000)")
    assert isinstance(source, SocketSource)
    source.open()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            while True:
                connection.sendall(lines(range(1000)))
        kept = source.received.synced
        assert source.is_full
        end, _ = source.advance(0, 10**9)
        source.advance(end, 10**9)  # so those are read
        connection.settimeout(20)
        wait_for(lambda: source.received.synced > kept)
    source.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("socket()", "needs an address"),
        ("socket('localhost')", "invalid address"),
        ("socket('localhost:99999')", "invalid address"),
        ("socket('a:1', format => 'x')", "no option format"),
        ("socket('a:1', listen => 1)", "option listen"),
        ("socket('a:1', listen => true, reconnect => true)", "cannot be combined with listen"),
    ],
)
def test_arguments_that_cannot_work(database: Database, call: str, words: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        database.sql(f"CREATE STREAM s (k INT, ts BIGINT) SOURCE {call} ORDERED BY ts")
    assert caught.value.code == "source-argument" and words in caught.value.message
    assert caught.value.span is not None


def test_lines_out_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"one\ntwo\n\nthree"
    for cut in range(len(text) + 1):
        buffer = LineBuffer()
        assert [*buffer.feed(text[:cut]), *buffer.feed(text[cut:]), buffer.last()] == [b"one", b"two", b"", b"three"]
    monkeypatch.setattr(receiving, "LONGEST_LINE", 10)
    buffer = LineBuffer()
    found = [line for piece in (b"a" * 9, b"b" * 9, b"c" * 9, b"\nnext\n") for line in buffer.feed(piece)]
    assert found == [b"a" * 9 + b"b" * 9, b"next"], "once, however long it goes on"

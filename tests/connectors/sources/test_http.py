"""Web hooks: real requests to the server of our own."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from source_testing import declared, free_port, wait_for
from strandline.connectors.sources import http_requests as hooks
from strandline.connectors.sources.http import HttpSource
from strandline.connectors.sources.http_requests import RequestRefused, rows_in
from strandline.connectors.sources.received_log import ReceivedLog
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query

LINES = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


def post(port: int, body: Any, headers: dict[str, str] | None = None, path: str = "/", method: str = "POST") -> Any:
    """The status and the content of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


@pytest.fixture
def database() -> Iterator[Database]:
    with sl.connect(engine="local", batch_rows=100) as found:
        yield found


def ask(database: Database, port: int, options: str = "") -> Query:
    database.sql(
        f"CREATE STREAM s (k INT, v DOUBLE, ts BIGINT) SOURCE http('127.0.0.1:{port}', end_marker => 'END'{options})"
        " ORDERED BY ts WITHIN 5 MICROSECONDS"
    )
    found = database.sql("SELECT k, v, ts FROM s")
    assert isinstance(found, Query)
    return found


def test_rows_come_as_lines_as_an_object_and_as_an_array(database: Database) -> None:
    port = free_port()
    query = ask(database, port)
    assert post(port, b'{"k": 1, "v": 0.5, "ts": 1}\n{"k": 2, "ts": 2}\n', LINES) == (200, {"rows": 2})
    assert post(port, json.dumps({"k": 3, "v": 1e300, "ts": 3}, indent=2), JSON) == (200, {"rows": 1})
    assert post(port, json.dumps([{"k": 4, "ts": 4}, {"k": 5, "ts": 5}], indent=1), JSON) == (200, {"rows": 2})
    assert post(port, b"") == (200, {"rows": 0})
    assert post(port, b"broken\n" + b'{"k": "six", "ts": 6}\n{"k": 7, "ts": 7}') == (200, {"rows": 3})
    assert post(port, b"END\n") == (200, {"rows": 0})
    assert query.await_end(20)
    rows = {(row["k"], row["v"], row["ts"]) for row in query.results().to_pylist()}
    assert rows == {(1, 0.5, 1), (2, None, 2), (3, 1e300, 3), (4, None, 4), (5, None, 5), (7, None, 7)}
    rejected = {(row["row"], row["reason"]) for row in query.rejected("s").to_pylist()}
    assert rejected == {(6, "not a JSON object"), (7, "k: 'six' is not INT")}


def test_what_is_refused_says_why(database: Database) -> None:
    port = free_port()
    ask(database, port, ", path => '/in', token => 'secret', max_body => 100")
    ours = {"Authorization": "Bearer secret"}
    assert post(port, b"{}", ours, "/out")[0] == 404
    assert post(port, b"{}", None, "/in")[0] == 401
    assert post(port, b"{}", {"Authorization": "Bearer other"}, "/in")[0] == 401
    assert post(port, b"x" * 101, ours, "/in") == (413, {"error": "at most 100 bytes at a time"})
    assert post(port, b"{", ours | JSON, "/in")[0] == 400
    assert post(port, iter([b"{}"]), ours | {"Transfer-Encoding": "chunked"}, "/in")[0] == 501
    assert post(port, b"{}", ours | {"Content-Encoding": "gzip"}, "/in")[0] == 415
    assert post(port, None, ours, "/in", "GET")[0] == 405
    assert post(port, b'{"ts": 1}', ours, "/in?from=here") == (200, {"rows": 1})
    assert post(port, b"END", ours, "/in")[0] == 200
    with contextlib.suppress(OSError):  # the query may have ended, and its port with it
        assert post(port, b"{}", ours, "/in")[0] == 410


def test_the_port_is_free_when_the_query_is_stopped(database: Database) -> None:
    port = free_port()
    ask(database, port).stop()
    for _ in range(3):
        database.sql("SELECT * FROM s").stop()


def test_one_connection_serves_many_requests(database: Database) -> None:
    port = free_port()
    query = ask(database, port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for n in range(20):
        connection.request("POST", "/", json.dumps({"k": n, "ts": n}), JSON)
        assert json.loads(connection.getresponse().read()) == {"rows": 1}
    connection.close()
    wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 20)


def test_many_clients_at_once(database: Database) -> None:
    port = free_port()
    query = ask(database, port)
    failures: list[object] = []

    def send(client: int) -> None:
        for n in range(10):
            answer = post(port, json.dumps([{"k": client, "ts": 1} for _ in range(n)]), JSON)
            if answer != (200, {"rows": n}):
                failures.append(answer)

    clients = [threading.Thread(target=send, args=(client,)) for client in range(6)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert not failures
    wait_for(lambda: sum(query.metrics()["rows_in"].values()) == 6 * 45)


def test_the_answer_comes_after_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When 200 is said, another process finds the rows; when the disk is full, nobody says 200."""
    source = declared("(k INT, ts BIGINT)", "http('0')", directory=tmp_path)
    assert isinstance(source, HttpSource)
    source.open()
    order: list[str] = []
    real = ReceivedLog._flush
    monkeypatch.setattr(ReceivedLog, "_flush", lambda self: (real(self), order.append("disk")))
    answer = hooks.response_bytes
    monkeypatch.setattr(hooks, "response_bytes", lambda *a, **k: (order.append("answer"), answer(*a, **k))[1])
    assert post(source.port, b'{"k": 1, "ts": 1}') == (200, {"rows": 1})
    assert order == ["disk", "answer"]
    [file] = tmp_path.rglob("*.jsonl")
    assert file.read_bytes().endswith(b'\n{"k": 1, "ts": 1}\n')

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ReceivedLog, "_write", full)
    assert post(source.port, b'{"k": 2, "ts": 2}')[0] == 503
    with pytest.raises(StrandlineError) as caught:
        source.advance(0, 10)
    assert caught.value.code == "receiver-failed" and "No space" in caught.value.message
    source.close()


def test_a_client_is_asked_to_wait_when_too_much_waits(tmp_path: Path) -> None:
    source = declared("(k INT, ts BIGINT)", "http('0', max_backlog => 1000)", directory=tmp_path)
    assert isinstance(source, HttpSource)
    source.open()
    body = b'{"k": 1, "ts": 1}\n' * 60
    assert post(source.port, body)[0] == 200
    assert post(source.port, body) == (503, {"error": "too many rows are waiting"})
    end, _ = source.advance(0, 1000)
    source.advance(end, 1000)
    assert post(source.port, body)[0] == 200
    source.close()


def test_a_port_that_is_taken(database: Database) -> None:
    port = free_port()
    ask(database, port)
    with sl.connect(engine="local") as other, pytest.raises(StrandlineError) as caught:
        ask(other, port)
    assert caught.value.code == "address-unusable"


def test_a_path_needs_its_slash(database: Database) -> None:
    with pytest.raises(StrandlineError) as caught:
        ask(database, 1, ", path => 'in'")
    assert caught.value.code == "source-argument" and caught.value.span is not None


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b"", []),
        (b" \n", []),
        (b"[]", []),
        (b'{"a": [1, {"b": "x,\\n]"}]}', [b'{"a": [1, {"b": "x,\\n]"}]}']),
        (b'[{"a": 1.10},\r\n {"a":\n12345678901234567890123}]', [b'{"a": 1.10}', b'{"a": 12345678901234567890123}']),
        (b'{"a": 1}\n{"a": 2}\n', [b'{"a": 1}', b'{"a": 2}']),
        (b'[[1], "x", null]', [b"[1]", b'"x"', b"null"]),
        ('["ä"]'.encode(), ['"ä"'.encode()]),
    ],
)
def test_json_values_keep_their_writing(body: bytes, rows: list[bytes]) -> None:
    assert rows_in(body, "application/json") == rows


@pytest.mark.parametrize("body", [b"{", b"[1", b"1]", b"nope", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused):
        rows_in(body, "application/json")

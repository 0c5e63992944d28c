"""Webhooks whose receivers redirect, drip, flood or hang, over real sockets."""

from __future__ import annotations

import base64
import resource
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from webhook_receivers import OK, drip, read_request, receiving, redirect, status

import strandline as sl
from strandline.connectors.sinks import ResumePoint, Sink, SinkBatch, SinkWriter, webhook
from strandline.connectors.sinks.http_exchange import Address, Response
from strandline.core.errors import SinkError, StrandlineError
from strandline.core.temporal import to_datetime
from strandline.core.types import BIGINT, Column

COLUMNS = (Column("n", "n", BIGINT),)
INSTANT = pa.timestamp("us", tz="UTC")
BATCH = SinkBatch(
    0,
    pa.table(
        {
            "n": pa.array([1, 2], pa.int64()),
            "valid_from": pa.array(map(to_datetime, range(2)), INSTANT),
            "valid_until": pa.array([None] * 2, INSTANT),
        }
    ),
    1_000_000,
)


def opened(sink: Sink, query: str = "q") -> SinkWriter:
    writer = sink.open(query, COLUMNS)
    writer.prepare(ResumePoint("me", True, -1, -1))
    return writer


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_FIRST_PAUSE", 0.01)


def hook(url: str, **options: Any) -> sl.Webhook:
    return sl.Webhook(url, **{"attempts": 1, "timeout": 5.0, **options})


# ---- redirections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirection_is_refused_and_never_counts_as_delivered(code: int) -> None:
    with receiving(OK) as other, receiving(redirect(code, other.url)) as first:
        with pytest.raises(SinkError) as caught:
            opened(hook(first.url, attempts=3)).write(BATCH)
        assert caught.value.code == "webhook-redirect"
        assert len(first.requests) == 1 and not other.requests


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirection_that_is_followed_keeps_method_body_and_key_but_no_credentials(code: int) -> None:
    headers = {"X-Mine": "mine", "Cookie": "c=1"}
    with receiving(OK) as other, receiving(redirect(code, other.url)) as first:
        opened(hook(first.url, redirects=1, token="t0ken", headers=headers)).write(BATCH)
        [(line, sent, body)], [(other_line, other_sent, other_body)] = first.requests, other.requests
    assert line == other_line == "POST /hook HTTP/1.1" and body == other_body and b'"n":1' in body.replace(b" ", b"")
    assert sent["Authorization"] == "Bearer t0ken" and sent["X-Mine"] == "mine" and sent["Cookie"] == "c=1"
    assert other_sent["Idempotency-Key"] == sent["Idempotency-Key"]
    assert not {"Authorization", "X-Mine", "Cookie"} & set(other_sent)


def test_credentials_stay_on_their_host() -> None:
    with receiving(redirect(307, "/there"), OK) as receiver:
        opened(hook(receiver.url.replace("//", "//me:s%40fe@"), redirects=1)).write(BATCH)
    basic = f"Basic {base64.b64encode(b'me:s@fe').decode()}"
    assert [(line, sent["Authorization"]) for line, sent, _ in receiver.requests] == [
        ("POST /hook HTTP/1.1", basic),
        ("POST /there HTTP/1.1", basic),
    ]


def test_credentials_do_not_come_back_by_way_of_another_host() -> None:
    """first → other → first: what comes by way of the other is the other's choice."""
    first_answers = [b"", OK]
    with receiving(lambda c: c.sendall(first_answers.pop(0))) as first, receiving(redirect(307, first.url)) as other:
        first_answers[0] = redirect(307, other.url)
        opened(hook(first.url, redirects=2, token="t")).write(BATCH)
    assert ["Authorization" in sent for _, sent, _ in (*first.requests, *other.requests)] == [True, False, False]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("ftp://127.0.0.1/x", "not an HTTP URL"),
        ("", "missing"),
        ("http://[bad/", "not an HTTP URL"),
        ("file:///etc/passwd", "not an HTTP URL"),
    ],
)
def test_redirections_that_lead_nowhere(location: str, reason: str) -> None:
    with receiving(redirect(302, location)) as first, pytest.raises(SinkError) as caught:
        opened(hook(first.url, redirects=3)).write(BATCH)
    assert caught.value.code == "webhook-redirect" and reason in (caught.value.detail or "")


def test_a_circle_ends() -> None:
    with receiving(redirect(308, "/hook")) as receiver, pytest.raises(SinkError) as caught:
        opened(hook(receiver.url, redirects=4)).write(BATCH)
    assert caught.value.code == "webhook-redirect" and len(receiver.requests) == 5


def test_redirections_keep_to_allowed_hosts_and_to_https() -> None:
    with receiving(OK) as other, receiving(redirect(307, other.url)) as first:
        confined = hook(first.url, redirects=1).confined(sl.Allow(hosts=(f"127.0.0.1:{first.port}",)))
        with pytest.raises(SinkError, match="not allowed") as caught:
            opened(confined).write(BATCH)
        assert caught.value.code == "webhook-redirect" and not other.requests
    writer: Any = opened(hook("https://a.example/x", redirects=1))
    answer = Response(307, "", "http://a.example/x", "")
    with pytest.raises(SinkError, match="from https to http"):
        writer._following(Address.parse("https://a.example/x"), answer)


# ---- answers without end, or without haste ---------------------------------------------------------------------------


def test_three_gigabytes_of_answer_are_not_read() -> None:
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000000\r\n\r\n")
        block = b"x" * 2**20
        for _ in range(3000):
            connection.sendall(block)
            sent += len(block)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with receiving(flood) as receiver:
        opened(hook(receiver.url)).write(BATCH)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(receiver.requests) == 1, "delivered by the first attempt"
    assert sent < 50 * 2**20 and grown < 50_000, f"{sent} bytes sent, {grown} KB more memory"


@pytest.mark.parametrize("what", ["headers", "status line", "informational answers", "a chunked body"])
def test_a_dripping_receiver_does_not_defeat_the_timeout(what: str) -> None:
    answers = {
        "headers": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000,
        "status line": b"HTTP/1.1 200 " + b"x" * 10_000,
        "informational answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        "a chunked body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 10_000,
    }
    with receiving(drip(answers[what], 0.002)) as receiver:
        began = time.monotonic()
        writer = opened(hook(receiver.url, timeout=1.0))
        if what == "a chunked body":  # its status has said that it was taken
            writer.write(BATCH)
        else:
            with pytest.raises(SinkError, match="timed out"):
                writer.write(BATCH)
        assert 0.9 < time.monotonic() - began < 2.0


def test_a_receiver_that_does_not_read_is_given_up() -> None:
    big = SinkBatch(0, BATCH.table.take(pa.array([0] * 400_000)), 1_000_000)
    with socket.create_server(("127.0.0.1", 0)) as door:  # nobody accepts: what fits into buffers is all
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        began = time.monotonic()
        with pytest.raises(SinkError, match="time"):
            opened(hook(f"http://127.0.0.1:{door.getsockname()[1]}/", timeout=1.0, rows=400_000)).write(big)
    assert time.monotonic() - began < 8.0


def test_what_is_no_http_is_a_failure_without_a_trace() -> None:
    with receiving(b"SSH-2.0-OpenSSH_9.2\r\n" * 5) as receiver, pytest.raises(SinkError) as caught:
        opened(hook(receiver.url)).write(BATCH)
    assert caught.value.code == "sink-failed" and "not HTTP" in (caught.value.detail or "")


@pytest.mark.parametrize("code", [204, 201])
def test_other_successes_count(code: int) -> None:
    with receiving(status(f"{code} Fine")) as receiver:
        opened(hook(receiver.url)).write(BATCH)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("code", [300, 304, 101])
def test_what_is_neither_a_success_nor_a_redirection_is_none(code: int) -> None:
    with receiving(status(f"{code} Odd")) as receiver, pytest.raises(SinkError):
        opened(hook(receiver.url, timeout=1.0)).write(BATCH)


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key -out cert -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    (folder / "both").write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return folder / "both"


@contextmanager
def receiving_tls(certificate: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers over TLS, or never gets so far as to shake hands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    bodies: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            while True:
                with suppress(OSError):
                    plain, _ = door.accept()
                    with context.wrap_socket(plain, server_side=True) as connection:
                        bodies.append(read_request(connection)[2])
                        connection.sendall(OK)
                if door.fileno() < 0:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield door.getsockname()[1], bodies


def test_a_certificate_must_be_trusted_and_be_that_of_the_host(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving_tls(certificate) as (port, bodies):
        with pytest.raises(SinkError, match=r"(?i)certificate"):
            opened(hook(f"https://localhost:{port}/")).write(BATCH)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.parent / "cert"))
        with pytest.raises(SinkError, match=r"(?i)certificate"):
            opened(hook(f"https://127.0.0.1:{port}/")).write(BATCH)
        assert not bodies
        opened(hook(f"https://localhost:{port}/")).write(BATCH)
    assert len(bodies) == 1 and b'"rows"' in bodies[0]


def test_a_handshake_that_does_not_come_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        began = time.monotonic()
        with pytest.raises(SinkError, match="time"):
            opened(hook(f"https://localhost:{door.getsockname()[1]}/", timeout=1.0)).write(BATCH)
    assert time.monotonic() - began < 2.5


def test_a_name_that_does_not_resolve_is_a_failure() -> None:
    with pytest.raises(SinkError) as caught:
        opened(hook("http://no-such-host.invalid/", timeout=5.0)).write(BATCH)
    assert caught.value.code == "sink-failed"


# ---- stopping --------------------------------------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[Any]:
    with sl.connect(engine="local", batch_rows=1) as made:
        made.sql("CREATE STREAM s (k VARCHAR, ts BIGINT) SOURCE rows(('a', 0), ('b', 1)) ORDERED BY ts")
        yield made


def stopped_within(query: Any, seconds: float) -> None:
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < seconds
    assert query.state == "stopped"


def test_a_query_that_waits_to_try_again_stops_at_once(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_FIRST_PAUSE", 30.0)
    with receiving(status("503 Later")) as receiver:
        query = database.sql(f"CREATE SINK w INTO webhook('{receiver.url}') AS SELECT k FROM s")
        while not receiver.requests:
            time.sleep(0.01)
        time.sleep(0.1)
        stopped_within(query, 1.0)


def test_a_query_that_waits_for_an_answer_stops_soon(database: Any) -> None:
    with receiving(lambda connection: time.sleep(20)) as receiver:
        query = database.sql(f"CREATE SINK w INTO webhook('{receiver.url}', timeout => 60) AS SELECT k FROM s")
        while not receiver.requests:
            time.sleep(0.01)
        stopped_within(query, 2.5)


def test_a_request_that_is_nearly_over_is_let_through(database: Any) -> None:
    def slow(connection: socket.socket) -> None:
        time.sleep(0.4)
        connection.sendall(OK)
        heard.set()

    heard = threading.Event()
    with receiving(slow) as receiver:
        query = database.sql(f"CREATE SINK w INTO webhook('{receiver.url}') AS SELECT k FROM s")
        while not receiver.requests:
            time.sleep(0.01)
        stopped_within(query, 2.0)
        assert heard.wait(1)


# ---- secrets ---------------------------------------------------------------------------------------------------------


def test_a_password_in_the_url_is_sent_and_never_shown(database: Any) -> None:
    with receiving(status("400 No")) as receiver:
        url = receiver.url.replace("//", "//me:hunter2@")
        query = database.sql(f"CREATE SINK w INTO webhook('{url}', token => 'hunter2') AS SELECT k FROM s")
        with pytest.raises(StrandlineError) as caught:
            query.await_end(20)
        texts = [str(caught.value), str(database.sql("SHOW SINKS")), repr(query.sink), query.explain(), query.why()]
    assert receiver.requests[0][1]["Authorization"] == "Bearer hunter2"
    assert all("hunter2" not in text for text in texts)
    assert f"http://me:***@127.0.0.1:{receiver.port}/hook" in texts[1]


def test_secrets_come_from_the_environment_and_from_files(
    database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("X-Key: k3y\n")
    with receiving(OK) as receiver:
        monkeypatch.setenv("HOOK_URL", receiver.url)
        monkeypatch.setenv("HOOK_TOKEN", "t0ken")
        query = database.sql(
            "CREATE SINK w INTO webhook(secret('env:HOOK_URL'), token => secret('env:HOOK_TOKEN'),"
            f" headers => (secret('file:{tmp_path / 'key'}'), 'X-Plain: yes')) AS SELECT k FROM s"
        )
        assert query.await_end(20)
        assert "secret('env:HOOK_URL')" in str(database.sql("SHOW SINKS"))
    sent = receiver.requests[0][1]
    assert (sent["Authorization"], sent["X-Key"], sent["X-Plain"]) == ("Bearer t0ken", "k3y", "yes")


def test_a_secret_that_is_missing_is_named(database: Any) -> None:
    with pytest.raises(StrandlineError) as caught:
        database.sql(
            "CREATE SINK w INTO webhook('http://127.0.0.1:1/', token => secret('env:NO_SUCH')) AS SELECT k FROM s"
        )
    assert caught.value.code == "secret-missing" and "NO_SUCH" in str(caught.value)


# ---- names and headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\r\nX-Evil: 1", "naïve ☃", "a\x00b", "x" * 2000])
def test_a_name_cannot_break_a_header(name: str) -> None:
    with receiving(OK) as receiver:
        opened(hook(receiver.url), name).write(BATCH)
    [(_, sent, _)] = receiver.requests
    assert "X-Evil" not in sent and sent["Idempotency-Key"].isascii()


@pytest.mark.parametrize(
    "header", ["Host: other", "Content-Length: 5", "transfer-encoding: chunked", "X: a\r\nY: b", "no colon", "Ü: x"]
)
def test_headers_that_cannot_be(database: Any, header: str) -> None:
    with pytest.raises(StrandlineError) as caught:
        database.sql(f"CREATE SINK w INTO webhook('http://h/', headers => ('{header}')) AS SELECT k FROM s")
    assert caught.value.code == "sink-argument"

"""Answers as messages: a web address with a real server behind it, and Kafka through the library's own mock broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

import strandline as sl
from strandline.connectors.sinks import ResumePoint, Sink, SinkBatch, SinkWriter, webhook
from strandline.connectors.sinks.kafka import BATCHES
from strandline.core.errors import SinkError
from strandline.core.temporal import to_datetime
from strandline.core.types import BIGINT, VARCHAR, Column

COLUMNS = (Column("k", "k", VARCHAR), Column("n", "n", BIGINT))
INSTANT = pa.timestamp("us", tz="UTC")


def batch(number: int, rows: int = 3) -> SinkBatch:
    columns = {
        "k": pa.array([f"k{n % 2}" for n in range(rows)], pa.large_string()),
        "n": pa.array([100 * number + n for n in range(rows)], pa.int64()),
        "valid_from": pa.array(map(to_datetime, range(rows)), INSTANT),
        "valid_until": pa.array([None] * rows, INSTANT),
    }
    return SinkBatch(number, pa.table(columns), 1_000_000)


def opened(sink: Sink, last: int = -1) -> SinkWriter:
    writer = sink.open("q", COLUMNS)
    resume_point = ResumePoint("me", last < 0, last, last)
    writer.validate(resume_point)
    writer.prepare(resume_point)
    return writer


# ---- webhook ---------------------------------------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """Remembers what comes; answers with the codes it is told, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes: list[int] = []
        self.heard: list[tuple[dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.heard]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append((dict(self.headers), body))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook, "_FIRST_PAUSE", 0.01)
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def test_batches_are_posted_with_their_key(receiver: Receiver) -> None:
    writer = opened(sl.Webhook(receiver.url, rows=2, headers={"X-Mine": "yes"}))
    writer.write(batch(0))
    writer.write(batch(1, rows=0))
    writer.write(batch(0))
    assert receiver.keys == ["me-q-0-1", "me-q-0-2"] * 2
    headers, body = receiver.heard[0]
    assert headers["X-Mine"] == "yes" and headers["Content-Type"] == "application/json"
    assert body == {
        "query": "q",
        "batch": 0,
        "part": 1,
        "parts": 2,
        "complete_until": "1970-01-01T00:00:01.000000Z",
        "rows": [
            {"k": "k0", "n": 0, "valid_from": "1970-01-01T00:00:00.000000Z", "valid_until": None},
            {"k": "k1", "n": 1, "valid_from": "1970-01-01T00:00:00.000001Z", "valid_until": None},
        ],
    }


def test_a_request_that_fails_is_sent_again_with_the_same_key(receiver: Receiver) -> None:
    receiver.codes = [503, 429, 500]
    opened(sl.Webhook(receiver.url)).write(batch(7))
    assert receiver.keys == ["me-q-7-1"] * 4


def test_a_receiver_that_refuses_ends_the_query(receiver: Receiver) -> None:
    receiver.codes = [400]
    with pytest.raises(SinkError, match="After 1 attempts the response was 400") as caught:
        opened(sl.Webhook(receiver.url)).write(batch(0))
    assert caught.value.code == "sink-failed"
    receiver.codes = [500] * 3
    with pytest.raises(SinkError, match="After 3 attempts the response was 500"):
        opened(sl.Webhook(receiver.url, attempts=3)).write(batch(0))


def test_nobody_there(receiver: Receiver) -> None:
    with pytest.raises(SinkError, match="refused"):
        opened(sl.Webhook("http://127.0.0.1:9/", attempts=2)).write(batch(0))


def test_a_query_into_a_webhook(receiver: Receiver) -> None:
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql("CREATE STREAM s (k VARCHAR, ts BIGINT) SOURCE rows(('a', 0), ('b', 1)) ORDERED BY ts")
        database.sql(f"CREATE SINK w INTO webhook('{receiver.url}', headers => ('X-Mine: a:b')) AS SELECT k FROM s")
        assert database.queries[0].await_end(30)
    assert [row["k"] for _, body in receiver.heard for row in body["rows"]] == ["a", "b"]
    assert receiver.heard[0][0]["X-Mine"] == "a:b"


# ---- Kafka -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Brokers inside of the library. They know transactions that are committed, and nothing of isolation."""
    holder = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2})
    holder.list_topics(BATCHES, timeout=10)  # naming a topic makes it
    yield ",".join(f"{each.host}:{each.port}" for each in holder.list_topics(timeout=10).brokers.values())
    del holder


def messages(servers: str, topic: str) -> list[tuple[str | None, dict[str, Any]]]:
    """All messages of a topic, in the order of each partition."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, "log_level": 2}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed"})
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, number, beginning) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        key = message.key()
        found.append((None if key is None else key.decode(), json.loads(message.value() or b"")))
    consumer.close()
    return found


def test_batches_are_sent_once_however_often_they_come(servers: str) -> None:
    sink = sl.Kafka(servers, "once", key="k")
    writer = opened(sink)
    writer.write(batch(0))
    writer.write(batch(1, rows=0))
    writer.close()
    writer = opened(sink, -1)  # the checkpoint does not know of batch 0 yet
    writer.write(batch(0))
    writer.write(batch(1))
    writer.write(batch(1))
    writer.close()
    found = messages(servers, "once")
    assert sorted(body["n"] for _, body in found) == [0, 1, 2, 100, 101, 102]
    assert all(key == body["k"] for key, body in found)
    assert [body["n"] for key, body in found if key == "k0"] == [0, 2, 100, 102], "a key keeps its order"
    assert found[0][1].keys() == {"k", "n", "valid_from", "valid_until"}
    marks = [body["batch"] for key, body in messages(servers, BATCHES) if key == "strandline-me-q"]
    assert marks == [0, 1]


def test_the_checkpoint_must_fit_the_topic(servers: str) -> None:
    sink = sl.Kafka(servers, "fit")

    def open_for(owner: str, last: int) -> SinkWriter:
        writer = sink.open("fit", COLUMNS)
        resume_point = ResumePoint(owner, last < 0, last, last)
        writer.validate(resume_point)
        writer.prepare(resume_point)
        return writer

    writer = open_for("one", -1)
    for number in range(3):
        writer.write(batch(number))
    for last, code in ((0, "results-ahead"), (3, "results-missing")):
        with pytest.raises(SinkError) as caught:
            open_for("one", last)
        assert caught.value.code == code
    open_for("one", 1)
    open_for("another", -1)


def test_without_transactions_a_batch_may_come_again(servers: str) -> None:
    writer = opened(sl.Kafka(servers, "often", transactional=False))
    writer.write(batch(0))
    writer.write(batch(0))
    assert len(messages(servers, "often")) == 6


def test_a_query_into_kafka(servers: str) -> None:
    with sl.connect(engine="local", batch_rows=1) as database:
        database.sql("CREATE STREAM s (k VARCHAR, ts BIGINT) SOURCE rows(('a', 0), (NULL, 1)) ORDERED BY ts")
        settings = "settings => ('linger.ms=0', 'client.id=me')"
        into = f"kafka('{servers}', topic => 'sql', key => 'k', {settings})"
        query = database.sql(f"CREATE SINK w INTO {into} AS SELECT k FROM s")
        assert query.await_end(60)
        with pytest.raises(SinkError, match='message key "x" is not a column'):
            database.sql(f"CREATE SINK x INTO kafka('{servers}', 'sql', key => 'x') AS SELECT k FROM s")
    assert sorted((key or "", body["k"]) for key, body in messages(servers, "sql")) == [("", None), ("a", "a")]

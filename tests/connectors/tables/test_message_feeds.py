"""Topics, events and requests as sources of tables."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from feed_testing import at, connect, content, declared, history

from kafka_broker import Broker
from source_testing import free_port, wait_for
from strandline.core.errors import StrandlineError
from strandline.database.database import Database


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


def test_a_message_without_content_deletes_the_row_of_its_key(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("customers", 2)
    source = f"SOURCE kafka('{broker.servers}', topic => '{topic}')"
    declared = f"CREATE TABLE c (id INT PRIMARY KEY, city VARCHAR) {source}"
    broker.send(topic, 0, [{"id": 1, "city": "a"}], key=b"1")
    broker.send(topic, 1, [{"id": 2, "city": "b"}, {"id": 2, "city": "c"}], key=b"2")
    broker.send(topic, 1, [{"id": 4, "city": "d"}], key=b'{"id": 4}')
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declared)
        wait_for(lambda: content(db, "c") == [(1, "a"), (2, "c"), (4, "d")])
        broker.send(topic, 0, [None], key=b"1")
        broker.send(topic, 1, [None], key=b'{"id": 4}')
        broker.send(topic, 1, [None], key=b"99")
        wait_for(lambda: content(db, "c") == [(2, "c")])
        broker.send(topic, 0, [None, b"no object"], key=None)
        wait_for(lambda: db.tables.feeders()["c"].feed.position.rejected == 2)
    broker.send(topic, 0, [{"id": 1, "city": "again"}], key=b"1")
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declared)
        wait_for(lambda: content(db, "c") == [(1, "again"), (2, "c")])
        assert db.tables.feeders()["c"].feed.position.rejected == 2


def test_the_key_of_a_message_may_be_the_key_of_the_table(broker: Broker) -> None:
    topic = broker.create("by-key", 1)
    for key, value in ((b"x", {"v": 1}), (b"y", {"v": 2}), (b"x", None), (b"y", {"v": 3})):
        broker.send(topic, 0, [value], key=key)
    with connect() as db:
        source = f"SOURCE kafka('{broker.servers}', topic => '{topic}', until => 'latest') CONSTANT"
        db.sql(f"CREATE TABLE c (kafka_key VARCHAR PRIMARY KEY, v INT) {source}")
        assert content(db, "c") == [("y", 3)]


def _message(k: int, v: str, second: int) -> dict[str, object]:
    return {"k": k, "v": v, "ts": f"2024-01-01 00:00:{second}"}


def test_partitions_with_times_of_their_own(broker: Broker) -> None:
    #  partition 0   10      14      18
    #  partition 1       12      13        the slower one decides
    topic = broker.create("dated", 2)
    broker.send(topic, 0, [_message(1, "a", 10), _message(1, "b", 14), _message(1, "c", 18)])
    broker.send(topic, 1, [_message(2, "d", 12), _message(2, "e", 13)])
    with connect() as db:
        source = f"SOURCE kafka('{broker.servers}', topic => '{topic}')"
        db.sql(f"CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR, ts TIMESTAMP) {source} ORDERED BY ts IDLE AFTER 1 HOUR")
        wait_for(lambda: [row[:2] for row in content(db, "t")] == [(1, "a"), (2, "d")])
        store = db.tables.store(declared(db, "t"))
        assert store.promise(at(60))[1] == at(13)
        broker.send(topic, 1, [_message(2, "f", 20)])
        wait_for(lambda: [row[:2] for row in content(db, "t")] == [(1, "b"), (2, "e")])
        wait_for(lambda: store.promise(at(60))[1] == at(18))  # right after the rows are there


def test_events_feed_a_table(tmp_path: Path) -> None:
    for number in range(2):
        with connect(tmp_path / "checkpoint") as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) SOURCE events()")
            db.append("t", [(number, "a"), (7, f"b{number}")])
            wait_for(lambda n=number: (7, f"b{n}") in content(db, "t"))  # type: ignore[misc]
    with connect(tmp_path / "checkpoint") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) SOURCE events()")
        assert content(db, "t") == [(0, "a"), (1, "a"), (7, "b1")]
        assert len(history(db, "t")) == 4


def test_a_statement_cannot_change_a_table_with_a_source(tmp_path: Path) -> None:
    with connect() as db:
        db.sql("CREATE TABLE t (k INT) SOURCE events()")
        with pytest.raises(StrandlineError):
            db.sql("INSERT INTO t VALUES (1)")


def feed_of_events(db: Database, within: str) -> None:
    columns = "(op VARCHAR, k INT, v VARCHAR, ts TIMESTAMP, PRIMARY KEY (k))"
    db.sql(f"CREATE TABLE t {columns} SOURCE events() CHANGES IN op ORDERED BY ts {within}")


def moment(second: float) -> str:
    return f"2024-01-01 00:00:{second:09.6f}"


def test_an_active_feed_holds_queries_back_and_a_silent_one_does_not() -> None:
    with connect() as db:
        feed_of_events(db, "WITHIN 2 SECONDS IDLE AFTER 1 SECOND")
        db.sql("CREATE STREAM s (k INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        query = db.sql("SELECT s.k, t.v FROM s JOIN t ON s.k = t.k", name="q")
        db.append("t", [("insert", 1, "a", moment(10)), ("insert", 1, "b", moment(12))])
        db.append("s", [(1, moment(9)), (1, moment(11)), (1, moment(12.5)), (1, moment(14)), (1, moment(30))])
        store = db.tables.store(declared(db, "t"))
        assert store.promise(at(60))[1] <= at(10)
        wait_for(lambda: [row["v"] for row in query.results().to_pylist()] == ["a", "b", "b"], 10)
        late = db.tables.feeders()["t"].feed.position.late
        db.append("t", [("u", 1, "c", moment(13))])  # the queries were at 30 meanwhile
        wait_for(lambda: content(db, "t") == [(1, "c")])
        assert db.tables.feeders()["t"].feed.position.late == late + 1
        assert history(db, "t")[-1][2] >= at(29)


def test_rows_that_wait_outlive_the_program(tmp_path: Path) -> None:
    lines = [
        ("insert", 1, "a", 10),
        ("insert", 2, "b", 13),
        ("u", 1, "c", 12),
        ("insert", 3, "d", 15),
        ("delete", 2, "", 14),
    ]
    expected = [
        (1, "a", at(10), at(12)),
        (1, "c", at(12), None),
        (2, "b", at(13), at(14)),
        (3, "d", at(15), None),
    ]
    for cut in range(1, len(lines)):
        directory = tmp_path / f"checkpoint{cut}"
        for part, read in ((lines[:cut], cut), (lines[cut:], len(lines))):
            with connect(directory) as db:
                feed_of_events(db, "WITHIN 4 SECONDS IDLE AFTER 1 HOUR")
                db.append("t", [(*line[:3], moment(line[3])) for line in part])
                wait_for(lambda n=read: db.tables.feeders()["t"].feed.position.read >= n)  # type: ignore[misc]
        with connect(directory) as db:
            feed_of_events(db, "WITHIN 4 SECONDS IDLE AFTER 1 HOUR")
            db.end("t")
            wait_for(lambda: db.tables.feeders()["t"].status.state == "ended")
            assert history(db, "t") == expected
            assert db.tables.feeders()["t"].feed.position.late == 0


def test_requests_feed_a_table(tmp_path: Path) -> None:
    for number in range(2):
        port = free_port()
        with connect(tmp_path / "checkpoint") as db:
            db.sql(f"CREATE TABLE t (k INT PRIMARY KEY, v INT) SOURCE http('127.0.0.1:{port}')")
            body = json.dumps([{"k": 1, "v": number}, {"k": 2 + number, "v": 0}])
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/", body.encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as response:
                assert response.status == 200
            wait_for(lambda n=number: (1, n) in content(db, "t"))  # type: ignore[misc]
            assert len(history(db, "t")) == 2 + 2 * number

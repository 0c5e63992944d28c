"""Sinks that wait: for a lock, a server that is gone or silent, a file that is locked. Real servers, real processes."""

from __future__ import annotations

import logging
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import psycopg
import pytest
from sink_databases import File, Server

import strandline as sl
from source_testing import wait_for
from strandline.core.errors import SinkError
from strandline.database.database import Database
from strandline.database.query import Query
from support import heed_interrupts

STREAM = "CREATE STREAM s (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 200) ORDERED BY ts"
ENDING = "CREATE STREAM s (value BIGINT, ts TIMESTAMP) SOURCE rate(rows_per_second => 500, total => 1500) ORDERED BY ts"
ALL_ROWS = "SELECT value FROM s WINDOW(RANGE UNBOUNDED)"  # a snapshot that keeps every row
STOP_SECONDS = 5.0


def stop_in_time(query: Query) -> None:
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < STOP_SECONDS
    assert query.state == "stopped"


@contextmanager
def locked(dsn: str, table: str) -> Iterator[None]:
    """Another session holds the table."""
    with psycopg.connect(dsn) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


@contextmanager
def running(stream: str, sink: Any, text: str = "SELECT value FROM s") -> Iterator[tuple[Database, Query]]:
    with sl.connect(engine="local", batch_rows=100) as database:
        database.sql(stream)
        query = database.sql(text, sink=sink)
        wait_for(lambda: query.metrics()["batches"] >= 2)
        yield database, query


def values(location: Server | File) -> list[int]:
    return [row[0] for row in location.rows("SELECT value FROM t ORDER BY value")]


def test_a_lock_of_somebody_else_is_told_and_a_stop_does_not_wait_for_it(postgresql: Server) -> None:
    with running(STREAM, postgresql.sink("t")) as (_, query), locked(postgresql.dsn, "t"):
        wait_for(lambda: query.waiting_for is not None)
        assert query.state == "running"
        assert query.metrics()["waiting_for"].startswith(f"the sink of {query.name} for ")
        assert query.why().startswith(f"{query.name} waits for the sink")
        stop_in_time(query)
    found = values(postgresql)
    assert found == list(range(len(found))), "a batch that was interrupted left something behind"


def test_a_lock_that_is_held_for_long_only_delays(postgresql: Server, caplog: pytest.LogCaptureFixture) -> None:
    with running(ENDING, postgresql.sink("t")) as (_, query):
        with locked(postgresql.dsn, "t"):
            time.sleep(11)  # twice as long as a statement waits
        assert query.await_end(60)
    assert values(postgresql) == list(range(1500))
    assert [r.name for r in caplog.records if "sink locked" in r.getMessage()] == ["strandline.sink"]


def test_ctrl_c_does_not_wait_for_a_lock(postgresql: Server, tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    script.write_text(f"{STREAM};\nCREATE SINK q INTO {postgresql.call('t')} AS SELECT value FROM s;")
    command = [sys.executable, "-m", "strandline", "run", str(script), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--engine", "local", "--log", str(tmp_path / "log")],
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for(lambda: _has_rows(postgresql))
        with locked(postgresql.dsn, "t"):
            time.sleep(1.0)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=20)
            assert time.monotonic() - began < STOP_SECONDS
    finally:
        process.kill()
    assert process.returncode == 130
    out = tmp_path / "out"
    refusal = "stopped; the local engine cannot resume"
    assert said == f"{refusal}: remove {out} to start again, or use --engine spark\n"
    log = (tmp_path / "log").read_text().splitlines()
    assert " INFO    strandline.engine: query started name=q engine=local checkpoint=" in log[0]
    assert " INFO    strandline.engine: query stopped name=q last_batch=" in log[-1]


def _has_rows(location: Server) -> bool:
    with suppress(psycopg.Error):
        return bool(location.rows("SELECT 1 FROM t LIMIT 1"))
    return False


def test_a_connection_that_is_cut_in_a_batch_is_made_again(postgresql: Server) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    with running(ENDING, postgresql.sink("t", "snapshot"), ALL_ROWS) as (_, query):
        with psycopg.connect(postgresql.dsn, autocommit=True) as killer, locked(postgresql.dsn, "t"):
            wait_for(lambda: killer.execute(cut, (killer.info.dbname,)).fetchall())
        assert query.await_end(60)
    assert values(postgresql) == list(range(1500))


class Proxy:
    """A server in between, on a Unix socket, that can fall silent, or swallow the answer to a COMMIT and hang up."""

    def __init__(self, directory: Path, target: str) -> None:
        self.dsn = f"host={directory} {target.partition(' ')[2]}"
        self._target = f"{target.partition(' ')[0].removeprefix('host=')}/.s.PGSQL.5432"
        self.silent = threading.Event()
        self.swallow = threading.Event()
        self.swallowed = 0
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(f"{directory}/.s.PGSQL.5432")
        self._door.listen()
        threading.Thread(target=self._welcome, daemon=True).start()

    def _welcome(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                commits = threading.Event()
                for pair in ((client, server), (server, client)):
                    about = (*pair, pair[0] is client, commits)
                    threading.Thread(target=self._pass_on, args=about, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, asks: bool, commits: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.silent.is_set():
                    time.sleep(0.05)
                if asks and self.swallow.is_set() and b"COMMIT" in data:
                    self.swallow.clear()
                    commits.set()
                if not asks and commits.is_set():  # the server has committed
                    self.swallowed += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.silent.clear()
        self._door.close()


@pytest.fixture
def proxy(postgresql: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    found = Proxy(tmp_path_factory.mktemp("p"), postgresql.dsn)
    yield found
    found.close()


@pytest.mark.parametrize("shows", ["elements", "snapshot"])
def test_a_commit_without_an_answer_counts_once(postgresql: Server, proxy: Proxy, shows: str) -> None:
    with running(ENDING, Server(proxy.dsn).sink("t", shows), ALL_ROWS) as (_, query):
        for number in range(1, 4):
            proxy.swallow.set()
            wait_for(lambda wanted=number: proxy.swallowed == wanted, 30)  # type: ignore[misc]
        assert query.await_end(60)
    assert values(postgresql) == list(range(1500))


def test_a_server_that_falls_silent_is_left(proxy: Proxy) -> None:
    with running(STREAM, Server(proxy.dsn).sink("t")) as (_, query):
        proxy.silent.set()
        wait_for(lambda: query.waiting_for is not None)
        stop_in_time(query)


def test_a_server_that_does_not_come_back_ends_the_query_by_name(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("strandline.connectors.sinks.sql_table._FIRST_PAUSE", 0.05)
    (tmp_path / "p").mkdir()
    proxy = Proxy(tmp_path / "p", postgresql.dsn)
    with running(STREAM, Server(proxy.dsn).sink("t")) as (_, query):
        proxy.close()
        (tmp_path / "p" / ".s.PGSQL.5432").unlink()
        proxy.swallow.set()  # hangs up on whoever commits
        with pytest.raises(SinkError) as caught:
            query.await_end(30)
    assert caught.value.code == "sink-failed"
    assert "after 6 attempts" in (caught.value.detail or "")
    told = [record.getMessage() for record in caplog.records if record.name == "strandline.sink"]
    assert len(told) == 5 and "attempt=6 attempts=6" in told[-1]


def test_a_locked_file_is_told_and_a_stop_does_not_wait_for_it(tmp_path: Path) -> None:
    location = File(tmp_path / "t.db")
    with (
        running(STREAM, location.sink("t")) as (_, query),
        sqlite3.connect(location.path, isolation_level=None) as other,
    ):
        wait_for(lambda: _begin(other))
        wait_for(lambda: query.waiting_for is not None)
        stop_in_time(query)
        other.execute("ROLLBACK")
    found = values(location)
    assert found == list(range(len(found)))


def _begin(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.OperationalError):
        connection.execute("BEGIN EXCLUSIVE")
        return True
    return False


def test_a_locked_file_only_delays(tmp_path: Path) -> None:
    location = File(tmp_path / "t.db")
    with running(ENDING, location.sink("t")) as (_, query):
        with sqlite3.connect(location.path, isolation_level=None) as other:
            wait_for(lambda: _begin(other))
            time.sleep(1.0)
            other.execute("ROLLBACK")
        assert query.await_end(60)
    assert values(location) == list(range(1500))


def test_what_cannot_be_interrupted_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()

    def hang(*_: object) -> None:
        free.wait(60)

    with sl.connect(engine="local") as database, caplog.at_level(logging.WARNING, "strandline"):
        database.sql(STREAM)
        query = database.sql("SELECT value FROM s", sink=sl.Callback(hang))
        wait_for(lambda: query.waiting_for is not None)
        began = time.monotonic()
        query.stop()
        assert time.monotonic() - began < STOP_SECONDS
        assert query.state == "stopped"
        assert any("left behind" in record.getMessage() for record in caplog.records)
        free.set()


def test_a_broker_that_is_gone_does_not_hold_up_a_stop() -> None:
    settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2}
    brokers = [confluent_kafka.Producer(settings)]  # they go with their holder
    brokers[0].list_topics("strandline_batches", timeout=10)  # naming a topic makes it
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers[0].list_topics(timeout=10).brokers.values())
    with running(STREAM, sl.Kafka(servers, "t")) as (_, query):
        brokers.clear()
        wait_for(lambda: query.waiting_for is not None)
        stop_in_time(query)


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_on_spark_does_not_wait_for_a_lock_and_the_restart_is_exact(postgresql: Server, tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    stream = ENDING.replace("total => 1500", "total => 8000")
    script.write_text(f"{stream};\nCREATE SINK q INTO {postgresql.call('t')} AS SELECT value FROM s;")
    command = [sys.executable, "-m", "strandline", "run", str(script), "--out", str(tmp_path / "out")]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, preexec_fn=heed_interrupts, **options)
    try:
        wait_for(lambda: _has_rows(postgresql), 120)
        with locked(postgresql.dsn, "t"):
            time.sleep(1.0)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
            seconds = time.monotonic() - began
    finally:
        process.kill()
    assert process.returncode == 130
    assert said == "stopped; run the same command again to resume\n"
    assert seconds < STOP_SECONDS
    before = values(postgresql)
    assert before == list(range(len(before))) and len(before) < 8000
    done = subprocess.run(command, timeout=120, **options)
    assert done.returncode == 0, done.stdout
    assert values(postgresql) == list(range(8000))

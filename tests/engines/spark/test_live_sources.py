"""Kafka, sockets and web hooks on Spark, also across kill -9."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from test_recovery import answer, kill_tree

import strandline as sl
from kafka_broker import Broker
from source_testing import free_port, wait_for
from strandline.connectors.sources import kafka
from strandline.database.database import Database

ROWS = 400


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    found = Broker()
    yield found
    found.close()


@pytest.mark.spark
def test_a_topic_that_several_tasks_read(
    spark_database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions at different speeds, some rows late in their own: as on the local engine, which reads in one task."""
    name = broker.create("tasks", 4)
    for partition, rows in enumerate((3_000, 2_500, 2_000, 1_500)):
        times = [n * 10 - (5_000 if n % 700 == 699 else 0) for n in range(rows)]
        broker.send(name, partition, [b'{"k": %d, "ts": %d}' % (n % 5, t) for n, t in enumerate(times)])
    monkeypatch.setattr(kafka, "TASK_ROWS", 1_000)
    answers = []
    for database in (spark_database, sl.connect(engine="local", batch_rows=2_000)):
        database.sql("DROP STREAM IF EXISTS tasks")
        database.sql(
            f"CREATE STREAM tasks (k INT, ts BIGINT, kafka_partition INT)"
            f" SOURCE kafka('{broker.servers}', topic => 'tasks', until => 'latest')"
            " ORDERED BY ts WITHIN 1 MILLISECOND"
        )
        query = database.sql(
            "SELECT k, kafka_partition AS p, COUNT(*) AS n FROM tasks [RANGE 1 MILLISECOND SLIDE 1 MILLISECOND]"
            " GROUP BY k, kafka_partition"
        )
        assert query.await_end(120)
        answers.append((query.results("polars"), query.metrics()["late"], query.metrics()["rows_in"]))
        query.stop()
    (ours, late, rows_in), (wanted, late_wanted, rows_in_wanted) = answers
    assert (late, rows_in) == (late_wanted, rows_in_wanted)
    assert late["tasks"] == 4 + 3 + 2 + 2
    order = ["k", "p", "valid_from"]
    assert ours.sort(order).equals(wanted.sort(order)) and ours.height > 20


@pytest.mark.spark
def test_a_socket_and_a_web_hook(spark_database: Database) -> None:
    ports = free_port(), free_port()
    spark_database.sql(f"""
        CREATE STREAM wire (n INT, ts BIGINT)
          SOURCE socket('127.0.0.1:{ports[0]}', listen => true, end_marker => 'END') ORDERED BY ts;
        CREATE STREAM hook (n INT, ts BIGINT)
          SOURCE http('127.0.0.1:{ports[1]}', end_marker => 'END') ORDERED BY ts;
    """)
    query = spark_database.sql(
        "SELECT n FROM wire [RANGE UNBOUNDED] INTERSECT SELECT n FROM hook [RANGE UNBOUNDED]", name="both"
    )
    lines = [b'{"n": %d, "ts": %d}\n' % (n, n) for n in range(100)]
    with socket.create_connection(("127.0.0.1", ports[0])) as connection:
        connection.sendall(b"".join(lines[:70]) + b"junk\n")
        assert post(ports[1], b"".join(lines[30:])) == {"rows": 70}
        wait_for(lambda: query.metrics()["rows_in"] == {"wire": 70, "hook": 70}, 60)
        connection.sendall(b"END\n")
    post(ports[1], b"END\n")
    assert query.await_end(60)
    assert sorted(row["n"] for row in query.results().to_pylist()) == list(range(30, 70))
    assert query.metrics()["rejected"] == {"wire": 1, "hook": 0}
    query.stop()


def post(port: int, body: bytes) -> object:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=20) as answered:
        return json.loads(answered.read())


# ---- killed ----------------------------------------------------------------------------------------------------------


def script(broker: Broker, wire: int, hook: int) -> str:
    return f"""
CREATE STREAM t (k INT, v BIGINT, ts BIGINT)
  SOURCE kafka('{broker.servers}', topic => 'killed', until => 'latest', max_rows => 150)
  ORDERED BY ts WITHIN 5 MICROSECONDS;
CREATE STREAM wire (n INT, ts BIGINT)
  SOURCE socket('127.0.0.1:{wire}', reconnect => true, end_marker => 'END') ORDERED BY ts;
CREATE STREAM hook (n INT, ts BIGINT) SOURCE http('127.0.0.1:{hook}', end_marker => 'END') ORDERED BY ts;
CREATE STREAM per_key AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t [RANGE 40 MICROSECONDS] GROUP BY k;
CREATE STREAM from_wire AS SELECT n, ts FROM wire;
CREATE STREAM from_hook AS SELECT DISTINCT n, ts FROM hook;
"""


class Wire(threading.Thread):
    """Sends lines to whoever connects, block by block; the next one when the one before lies on disk, since TCP does
    not tell what was taken."""

    def __init__(self, checkpoint: Path, pause: float) -> None:
        super().__init__(daemon=True)
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        self.checkpoint, self.pause = checkpoint, pause
        self.killing = threading.Lock()

    def kept(self) -> int:
        """The number of the last line on disk, plus one; files of lines that were read are gone."""
        numbers = [-1]
        for path in self.checkpoint.glob("*/sources/wire/received/*.jsonl"):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue
            # Between the lines are heads of blocks, and the last line may be half written.
            numbers += [int(found[1]) for line in lines if (found := re.fullmatch(rb'{"n": (\d+), .*}', line))]
        return max(numbers) + 1

    def run(self) -> None:
        sent = 0
        while sent <= ROWS:
            connection, _ = self.door.accept()
            with connection:
                try:
                    while sent < ROWS:
                        with self.killing:
                            sent = self._send(connection, sent)
                        time.sleep(self.pause)
                    connection.sendall(b"END\n")
                    return
                except OSError:
                    continue

    def _send(self, connection: socket.socket, sent: int) -> int:
        until = min(sent + 20, ROWS)
        connection.sendall(b"".join(b'{"n": %d, "ts": %d}\n' % (n, n) for n in range(sent, until)))
        deadline = time.monotonic() + 60
        while self.kept() < until:
            if has_hung_up(connection):  # killed before: what was sent is on no disk
                raise OSError("the reader is gone")
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return until


def has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection. The first send after that still succeeds."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def post_all(port: int, pause: float) -> None:
    """A client that sends again what was not answered."""
    for start in range(0, ROWS, 10):
        body = b"".join(b'{"n": %d, "ts": %d}\n' % (n, start) for n in range(start, start + 10))
        while True:
            try:
                assert post(port, body) == {"rows": 10}
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        time.sleep(pause)
    while True:
        try:
            post(port, b"END\n")
            return
        except urllib.error.HTTPError as error:
            assert error.code == 410, "the end was heard before"
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 15])
def test_killed_and_restarted_runs_give_the_same_answer(tmp_path: Path, kills: int) -> None:
    dice = random.Random(int(os.environ.get("STRANDLINE_SEED", 5)))
    broker = Broker()
    broker.create("killed", 3)
    for partition in range(3):
        rows = [
            {"k": n % 4, "v": n * partition, "ts": n * 10 + dice.randint(0, 9) - dice.choice((0, 0, 30))}
            for n in range(700)
        ]
        broker.send("killed", partition, rows)
    out, file, hook = tmp_path / "out", tmp_path / "script.sql", free_port()
    pause = 0.2 if kills == 1 else 2.0
    wire = Wire(out / ".strandline" / "checkpoint", pause)
    file.write_text(script(broker, wire.port, hook))
    wire.start()
    poster = threading.Thread(target=post_all, args=(hook, pause), daemon=True)
    poster.start()
    command = [sys.executable, "-m", "strandline", "run", str(file), "--out", str(out), "--batch-rows", "200"]
    for _ in range(kills):
        process = subprocess.Popen(command, start_new_session=True)
        before = marks(out)
        try:
            wait_for(lambda was=before, run=process: changed(was, marks(out)) or run.poll() is not None, 300)  # type: ignore[misc]
            time.sleep(dice.random())
            wire.killing.acquire(timeout=60)  # what has left the sender is on disk: only that can be asked for
        finally:
            kill_tree(process)
            wire.killing.release()
    done = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    poster.join(60)
    wanted = tmp_path / "expected"
    only = tmp_path / "topic.sql"
    only.write_text("\n".join(part + ";" for part in file.read_text().split(";") if " t " in part))
    subprocess.run([*command[:4], str(only), "--out", str(wanted), "--engine", "local"], check=True, timeout=120)
    assert answer(out, "per_key").equals(answer(wanted, "per_key")) and answer(wanted, "per_key").height > 1000
    assert late_rows(out).equals(late_rows(wanted)) and late_rows(wanted).height > 50
    assert sorted(pq.read_table(out / "from_wire")["n"].to_pylist()) == list(range(ROWS)), "each line once"
    assert sorted(set(pq.read_table(out / "from_hook")["n"].to_pylist())) == list(range(ROWS)), "nothing is lost"
    broker.close()


def marks(out: Path) -> dict[str, str]:
    """The newest batch record of each pipeline."""
    newest = {path.parent: path for path in sorted(out.glob(".strandline/checkpoint/*/batches/*.json"))}
    return {str(directory): path.read_text() for directory, path in newest.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> bool:
    """Whether all three pipelines have come on, or have ended."""
    ended = [text for text in after.values() if '"ended":true' in text]
    return len(after) == 3 and sum(before.get(k) != text for k, text in after.items()) + len(ended) >= 3


def late_rows(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "_late" / "t" / "*.parquet").sort("k", "v", "ts")

"""kill -9 in the midst of the commits of a feed: after the restart the table has every change once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import psycopg
import pytest
from feed_testing import connect, content, declared, history
from self_killing_feed import MOMENTS

from kafka_broker import Broker
from support import LONG

KILLS = 20 if LONG else 2
PROGRAM = Path(__file__).with_name("self_killing_feed.py")


def run(moment: str, count: int, checkpoint: Path, declaration: str) -> bool:
    """Whether the program was killed."""
    command = [sys.executable, str(PROGRAM), moment, str(count), str(checkpoint), declaration]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def kill_often(
    checkpoint: Path,
    declaration: str,
    seed: int,
    change: Callable[[int], None] = lambda number: None,
    most_commits: int = 4,
) -> int:
    """Kill the program several times, with changes at the origin in between; then let it come to its end. `change` gets
    the number of the run; returns how many there were."""
    dice = random.Random(seed)
    moments = [moment for moment in MOMENTS if "wait" not in moment or "ORDERED BY" in declaration]
    killed = runs = 0
    while killed < KILLS:
        assert runs < 2 * KILLS, "it does not come to these moments"
        change(runs)
        killed += run(dice.choice(moments), dice.randint(1, most_commits), checkpoint, declaration)
        runs += 1
    run("never", 0, checkpoint, declaration)
    return runs


def test_files(tmp_path: Path) -> None:
    for number in range(10 * KILLS):
        lines = "".join(f"{number * 10 + row},{row % 3}\n" for row in range(10))
        (tmp_path / f"{number:04}.csv").write_text(f"a,b\n{lines}x,1\n")
    declaration = f"CREATE TABLE t (a INT, b INT) SOURCE file('{tmp_path}/*.csv')"
    kill_often(tmp_path / "checkpoint", declaration, 1)
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declaration)
        assert content(db, "t") == [(n, n % 10 % 3) for n in range(100 * KILLS)]
        position = db.tables.feeders()["t"].feed.position
        assert (position.rejected, position.read) == (10 * KILLS, 110 * KILLS)
        rejected = pl.read_parquet(Path(declared(db, "t").directory) / "rejected" / "*.parquet")
        assert rejected.height == 10 * KILLS


def test_a_change_feed_with_times(tmp_path: Path) -> None:
    dice = random.Random(3)
    for number in range(10 * KILLS):
        lines = []
        for row in range(10):
            second = number * 10 + row + dice.randrange(-6, 6)
            time = f"2024-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" if second >= 0 else ""
            lines.append(f"{dice.choice(('insert', 'u', 'delete'))},{dice.randrange(8)},{number}-{row},{time}\n")
        (tmp_path / f"{number:04}.csv").write_text("op,k,v,ts\n" + "".join(lines))
    columns = "(op VARCHAR, k INT, v VARCHAR, ts TIMESTAMP, PRIMARY KEY (k))"
    source = f"SOURCE file('{tmp_path}/*.csv') CHANGES IN op ORDERED BY ts WITHIN 5 SECONDS IDLE AFTER 1 HOUR"
    declaration = f"CREATE TABLE t {columns} {source}"
    kill_often(tmp_path / "killed", declaration, 2)
    run("never", 0, tmp_path / "whole", declaration)
    found = []
    for name in ("killed", "whole"):
        with connect(tmp_path / name) as db:
            db.sql(declaration)
            position = db.tables.feeders()["t"].feed.position
            found.append((history(db, "t"), position.late, position.rejected))
    assert found[0] == found[1]
    assert found[0][1] > 0 and len(found[0][0]) > 20 * KILLS


def test_a_topic(tmp_path: Path) -> None:
    broker = Broker()
    try:
        topic = broker.create("killed", 2)
        dice = random.Random(4)
        rows: dict[int, str] = {}

        def change(number: int) -> None:
            for count in range(60):
                key = dice.randrange(20)
                partition = key % 2
                if dice.random() < 0.3:
                    rows.pop(key, None)
                    broker.send(topic, partition, [None], key=str(key).encode())
                else:
                    rows[key] = f"{number}-{count}"
                    broker.send(topic, partition, [{"k": key, "v": rows[key]}], key=str(key).encode())

        source = f"SOURCE kafka('{broker.servers}', topic => '{topic}')"
        declaration = f"CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) {source}"
        runs = kill_often(tmp_path / "checkpoint", declaration, 5, change)
        with connect(tmp_path / "checkpoint") as db:
            db.sql(declaration)
            assert content(db, "t") == sorted(rows.items())
            assert db.tables.feeders()["t"].feed.position.read == 60 * runs
    finally:
        broker.close()


Statements = Callable[..., list[Any]]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "sqlite, version"])
def test_a_database(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    execute: Statements
    if kind.startswith("sqlite"):
        path = tmp_path / "origin.db"
        connection = sqlite3.connect(path, isolation_level=None)
        call = f"sqlite('{path}', table => 't'"
        execute = lambda text: connection.execute(text).fetchall()  # noqa: E731
    else:
        dsn = request.getfixturevalue("dsn")
        other = psycopg.connect(dsn, autocommit=True)
        call = f"postgresql('{dsn}', table => 't'"
        execute = lambda text: (rows := other.execute(text)).description and rows.fetchall()  # type: ignore # noqa: E731
    execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT, n INTEGER)")
    by_version = kind.endswith("version")
    dice = random.Random(6)

    def change(number: int) -> None:
        for count in range(5):
            key, text = dice.randrange(30), f"{number}-{count}"
            upsert = f"INSERT INTO t VALUES ({key}, '{text}', {number})"
            execute(f"{upsert} ON CONFLICT (k) DO UPDATE SET v = excluded.v, n = excluded.n")
            if not by_version:
                execute(f"DELETE FROM t WHERE k = {dice.randrange(30)}")

    option = ", version => 'n'" if by_version else ""
    declaration = f"CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) SOURCE {call}{option}, every => '10 milliseconds')"
    kill_often(tmp_path / "checkpoint", declaration, 7, change, most_commits=1)
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declaration)
        assert content(db, "t") == sorted(map(tuple, execute("SELECT k, v FROM t")))
        assert len({row[0] for row in content(db, "t")}) == len(content(db, "t")) > 3


def test_delta(tmp_path: Path) -> None:
    path = tmp_path / "delta"
    dice = random.Random(8)
    origin: list[tuple[int, str]] = []

    def change(number: int) -> None:
        new = [(dice.randrange(100), f"{number}-{n}") for n in range(5)]
        frame = pl.DataFrame(new, schema={"k": pl.Int64(), "v": pl.String()}, orient="row")
        deltalake.write_deltalake(str(path), frame.to_arrow(), mode="append")
        origin.extend(new)
        if number % 2:
            gone = dice.choice(origin)[0]
            deltalake.DeltaTable(str(path)).delete(f"k = {gone}")
            origin[:] = [row for row in origin if row[0] != gone]

    declaration = f"CREATE TABLE t (k BIGINT, v VARCHAR) SOURCE delta('{path}', every => '10 milliseconds')"
    kill_often(tmp_path / "checkpoint", declaration, 9, change, most_commits=1)
    with connect(tmp_path / "checkpoint") as db:
        db.sql(declaration)
        assert content(db, "t") == sorted(origin)

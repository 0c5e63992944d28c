"""Statements that change a table while queries on Spark read it, killed again and again: `make kill N=200`.

A process runs two queries over a stream of files and a table: one sees the table as it is at every instant, one as it
was when each row came. Meanwhile four threads change the table, two by SQL and two by calls, and write down each
statement before it starts and after it returned. All processes are killed at random moments, also while Spark starts.

In the end every statement that returned must be there once, every other one as a whole or not at all, and the results
must be those of the definition over the files and the recorded history of the table.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

HERE: Final = Path(__file__).parent
if not __package__:
    sys.path.insert(0, str(HERE.parent))

import strandline as sl  # noqa: E402
from attack.process_kinds import kill_family  # noqa: E402
from strandline.connectors.tables.store import find_open_table  # noqa: E402
from strandline.core.temporal import OPEN, SECOND  # noqa: E402
from strandline.database.database import Database  # noqa: E402
from strandline.runtime.kernels.changes import coalesce  # noqa: E402

WRITERS: Final = 4
KEYS: Final = 2 * WRITERS  # writer w changes the keys 2w and 2w + 1, in one statement
RANGE_S: Final = 2
ROWS_PER_FILE: Final = 40
FILES_PER_SECOND: Final = 4

SCRIPT: Final = f"""
CREATE STREAM s (k INT, n BIGINT, ts BIGINT) SOURCE file('{{directory}}/in/*.csv', follow => true) ORDERED BY ts;
CREATE TABLE t (k INT, v BIGINT, text VARCHAR, PRIMARY KEY (k));
INSERT INTO t VALUES {", ".join(f"({key}, 0, 'first')" for key in range(KEYS))} ON CONFLICT (k) DO NOTHING;
"""
QUERIES: Final = {
    "joined": f"SELECT s.k, s.n, t.v FROM s WINDOW(RANGE {RANGE_S} SECONDS) JOIN t ON s.k = t.k",
    "looked_up": "SELECT s.k, s.n, t.v FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k",
}


# ---- the process that is killed --------------------------------------------------------------------------------------


def change(database: Database, writer: int, value: int) -> None:
    """One statement over both keys of a writer."""
    keys = (2 * writer, 2 * writer + 1)
    text = "x" * (value % 50)
    rows = ", ".join(f"({key}, {value}, '{text}')" for key in keys)
    match writer:
        case 0:
            database.sql(f"UPDATE t SET v = {value}, text = '{text}' WHERE k IN {keys}")
        case 1:
            database.sql(f"INSERT INTO t VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = excluded.v")
        case _:
            database.upsert("t", pl.DataFrame({"k": keys, "v": [value] * 2, "text": [text] * 2}))


def run(directory: Path, writes: bool) -> None:
    said = (directory / "said").open("a", buffering=1)
    saying = threading.Lock()

    def say(*words: object) -> None:
        with saying:
            said.write(" ".join(map(str, words)) + "\n")

    def write(writer: int) -> None:
        value = database.sql(f"SELECT v FROM t WHERE k = {2 * writer}").table["v"][0].as_py()
        try:
            while True:
                value += 1
                say("try", writer, value)
                change(database, writer, value)
                say("done", writer, value)
                time.sleep(0.02)
        except sl.StrandlineError as error:
            say("error", error)

    database = sl.connect(checkpoint=directory / "db", shards=2)
    database.sql(SCRIPT.format(directory=directory))
    threads = [
        threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(WRITERS if writes else 0)
    ]
    has_run = (directory / "ready").exists()
    if has_run:  # else the history of the table begins with the queries
        for thread in threads:
            thread.start()
    queries = [
        database.sql(text, name=name, sink=sl.Parquet(directory / "out" / name)) for name, text in QUERIES.items()
    ]
    if not has_run:
        while any(query.heartbeats()["t"].rows < KEYS for query in queries):
            time.sleep(0.02)
        (directory / "ready").touch()
        for thread in threads:
            thread.start()
    for query in queries:
        while not query.await_end(1.0):
            query.check()
    database.close()


# ---- the one that kills ----------------------------------------------------------------------------------------------


class Generator(threading.Thread):
    """Writes files of rows with the times at which they are written; the end, once it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory, self.over = directory, threading.Event()

    def run(self) -> None:
        number, last = 0, 0
        while not self.over.is_set():
            lines = ["k,n,ts"]
            for row in range(ROWS_PER_FILE):
                last = max(last + 1, time.time_ns() // 1000)
                lines.append(f"{row % (KEYS + 1)},{number * ROWS_PER_FILE + row},{last}")
            temporary = self.directory / f".{number}"
            temporary.write_text("\n".join(lines) + "\n")
            os.replace(temporary, self.directory / f"{number:09d}.csv")
            number += 1
            self.over.wait(1 / FILES_PER_SECOND)
        (self.directory / "_END").touch()


def start(directory: Path, log: Any, *, writes: bool) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--run",
        str(directory),
        *(["--writes"] if writes else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(sl.__file__).parent.parent)}
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True, start_new_session=True)


def kill_again_and_again(directory: Path, kills: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    (directory / "in").mkdir(parents=True)
    generator = Generator(directory / "in")
    generator.start()
    flaws: list[str] = []
    with (directory / "log").open("w") as log:
        for number in range(kills):
            process = start(directory, log, writes=True)
            deadline = time.monotonic() + 120
            while not (directory / "ready").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(dice.uniform(0.5, 12.0))
            if process.poll() is not None:
                flaws.append(f"run {number} ended with {process.returncode}: {(directory / 'log').read_text()[-800:]}")
                break
            kill_family(process)
            if (number + 1) % 20 == 0:
                print(f"  {number + 1} kills", flush=True)
        time.sleep(1)
        generator.over.set()
        generator.join()
        if not flaws:
            process = start(directory, log, writes=False)
            try:
                if process.wait(600) != 0:
                    flaws.append(f"exit code {process.returncode}: {(directory / 'log').read_text()[-800:]}")
            except subprocess.TimeoutExpired:
                flaws.append("the run has not ended ten minutes after its input")
            finally:
                kill_family(process)
    return flaws


# ---- the judge -------------------------------------------------------------------------------------------------------


def history_of(directory: Path) -> pl.DataFrame:
    """The rows that the table had: k, v, and from when until when."""
    with sl.connect(engine="local", checkpoint=directory / "db") as database:
        database.sql(SCRIPT.format(directory=directory).split(";", 1)[1].split(";", 1)[0])
        return find_open_table(directory / "db" / "tables" / "t").history().sort("k", "@from", "@until")


def judge_statements(history: pl.DataFrame, said: str) -> tuple[list[str], int]:
    """What is wrong with the statements, and how many returned."""
    lines = [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]
    counts = Counter(line[0] for line in lines)
    flaws = [" ".join(line) for line in lines if line[0] == "error"][:3]
    if counts["done"] < WRITERS:
        flaws.append("no statements")
    for writer in range(WRITERS):
        mine = {kind: [int(line[2]) for line in lines if line[:2] == [kind, str(writer)]] for kind in ("try", "done")}
        if len(set(mine["done"])) != len(mine["done"]):
            flaws.append(f"writer {writer}: a statement was executed twice")
        versions = [
            history.filter(pl.col("k") == key).select("v", "@from", "@until") for key in (2 * writer, 2 * writer + 1)
        ]
        if not versions[0].select("v", "@from", "@until").slice(1).equals(versions[1].slice(1)):
            flaws.append(f"writer {writer}: a statement is there in part")
        values = versions[0].get_column("v").to_list()
        if values != list(range(len(values))):
            flaws.append(f"writer {writer}: a statement is missing, or there twice")
        if not max(mine["done"], default=0) <= values[-1] <= max(mine["try"], default=0):
            flaws.append(f"writer {writer}: {values[-1]} after {mine['done'][-1:]} and {mine['try'][-1:]}")
        if versions[0].get_column("@until").to_list()[:-1] != versions[0].get_column("@from").to_list()[1:]:
            flaws.append(f"writer {writer}: two versions at one instant, or none")
    return flaws, counts["done"]


def judge_results(directory: Path, history: pl.DataFrame) -> tuple[list[str], dict[str, int]]:
    """What differs from the definition: elements by query that are missing or too many."""
    rows = pl.concat([pl.read_csv(file) for file in sorted((directory / "in").glob("*.csv"))])
    pairs = pl.concat([_pairs(rows.filter(pl.col("k") == key), history, key) for key in range(KEYS)])
    is_valid = (pl.col("since") <= pl.col("ts")) & (pl.col("ts") < pl.col("until"))
    begin, end = pl.max_horizontal("ts", "since"), pl.min_horizontal(pl.col("ts") + RANGE_S * SECOND, "until")
    wanted = {
        "joined": pairs.with_columns(begin.alias("@from"), end.alias("@until")),
        "looked_up": pairs.filter(is_valid).with_columns(pl.col("ts").alias("@from"), pl.col("ts").alias("@until") + 1),
    }
    flaws: list[str] = []
    counts: dict[str, int] = {}
    for name, elements in wanted.items():
        expected = elements.filter(pl.col("@from") < pl.col("@until")).select("k", "n", "v", "@from", "@until")
        found = pl.read_parquet(str(directory / "out" / name / "*.parquet")).select(
            pl.col("k").cast(pl.Int64),
            "n",
            "v",
            pl.col("valid_from").dt.epoch("us").alias("@from"),
            pl.col("valid_until").dt.epoch("us").fill_null(OPEN).alias("@until"),
        )
        payload, order = ["k", "n", "v"], ["k", "n", "v", "@from", "@until"]
        one, two = (coalesce(frame, payload).select(order) for frame in (expected, found))
        missing, extra = one.join(two, on=order, how="anti"), two.join(one, on=order, how="anti")
        if missing.height or extra.height or one.height != two.height:
            flaws.append(
                f"{name}: {missing.height} missing, {extra.height} too many: {missing.head(3)} {extra.head(3)}"
            )
        counts[name] = one.height
    return flaws, counts


def _pairs(rows: pl.DataFrame, history: pl.DataFrame, key: int) -> pl.DataFrame:
    """The rows of a key, each with the versions of the key that are valid while the row is; versions touch."""
    versions = history.filter(pl.col("k") == key)
    since = versions.get_column("@from").to_numpy().copy()
    since[0] = 0  # what was there when the queries began was there always
    ts = rows.get_column("ts").to_numpy()
    first = np.searchsorted(since, ts, side="right") - 1
    last = np.searchsorted(since, ts + RANGE_S * SECOND, side="left")
    count = last - first
    row = np.repeat(np.arange(len(ts)), count)
    version = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    return rows[row].with_columns(
        versions.get_column("v")[version],
        pl.Series("since", since[version]),
        versions.get_column("@until")[version].alias("until"),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--writes", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        run(options.run, options.writes)
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="strandline-kill-") as name:
        directory = Path(name)
        flaws = kill_again_and_again(directory, options.kills, options.seed)
        history = history_of(directory)
        wrong, returned = judge_statements(history, (directory / "said").read_text())
        flaws += wrong
        counts: dict[str, int] = {}
        if not flaws:
            flaws, counts = judge_results(directory, history)
    for label, value in {
        "kills": f"{options.kills} in {(time.monotonic() - began) / 60:.1f} minutes",
        "statements that returned": f"{returned:,}",
        "versions of rows": f"{history.height:,}",
        "result elements": ", ".join(f"{name} {count:,}" for name, count in counts.items()),
        "verdict": "exact" if not flaws else "; ".join(flaws),
    }.items():
        print(f"{label:40} {value}")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())

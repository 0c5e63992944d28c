"""`run --update` on Spark: kept queries lose and double nothing, with kill -9 at each moment of an update."""

from __future__ import annotations

import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.core.temporal import BEFORE_ALL
from strandline.runtime.checkpoint.examine import examine
from strandline.runtime.checkpoint.identity import read_stored_graph
from strandline.runtime.kernels.changes import coalesce

PROGRAM = Path(__file__).with_name("killed_update.py")
FILES, ROWS = 24, 20
LONG = bool(os.environ.get("STRANDLINE_LONG"))

STREAM = """CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP)
  SOURCE file('{directory}/in/*.parquet', follow => true) ORDERED BY ts;
"""
TABLE = """CREATE TABLE names (k BIGINT PRIMARY KEY, name VARCHAR);
INSERT INTO names VALUES (0, 'none'), (1, 'one'), (2, 'two');
"""
QUERIES = {
    "every": "SELECT k, v FROM s",
    "sums": "SELECT k, count(*) AS n, sum(v) AS t FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k",
    "swapped": "SELECT k, max(v) AS m FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k",
    "odd": "SELECT v FROM s WHERE v % 2 = 1",
    "looked": "SELECT v, name FROM s JOIN names ON s.k = names.k WHERE v > 50",
}
CHANGED = {
    "every": QUERIES["every"],
    "added": "SELECT k, count(*) AS n, sum(v) AS t FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k",
    "sums": QUERIES["sums"],
    "swapped": "SELECT k, min(v) AS m FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k",
    "looked": "SELECT v, name FROM s JOIN names ON s.k = names.k WHERE v < 50",
    "named": "SELECT name, count(*) AS n FROM s WINDOW(RANGE 3 SECONDS) JOIN names ON s.k = names.k GROUP BY name",
}
NOW = ("added", "named")


def start_of(name: str) -> str:
    return " STARTING NOW" if name in NOW else ""


def script(directory: Path, queries: dict[str, str]) -> str:
    texts = [f"CREATE STREAM {name} AS {text}{start_of(name)};\n" for name, text in queries.items()]
    return STREAM.format(directory=directory) + TABLE + "".join(texts)


def write_input(directory: Path, first: int, last: int) -> None:
    (directory / "in").mkdir(exist_ok=True)
    for number in range(first, last):
        draw = np.random.default_rng(number)
        time_of = 1_700_000_000_000_000 + number * 1_000_000 + np.sort(draw.integers(0, 1_000_000, ROWS))
        columns = {"k": draw.integers(0, 4, ROWS), "v": draw.integers(0, 100, ROWS)}
        table = pa.table({**columns, "ts": pa.array(time_of).cast(pa.timestamp("us"))})
        pq.write_table(table, directory / "in" / f"{number:04d}.parquet")


def run(directory: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(directory), name, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)


def rows_given(directory: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((directory / "in").glob("*.parquet"))])


def answer(directory: Path) -> pl.DataFrame:
    frame = pl.from_arrow(pq.read_table(directory))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us"))
    payload = [c for c in frame.columns if not c.startswith("@")]
    return coalesce(frame, payload).sort([*payload, "@from", "@until"])


def alone(directory: Path, text: str, since: int) -> pl.DataFrame:
    """The result of a query over the rows from an instant on, by the local engine."""
    rows = rows_given(directory)
    times = np.asarray(rows["ts"].cast(pa.int64()))
    place = directory / "alone"
    shutil.rmtree(place, ignore_errors=True)
    with sl.connect(engine="local") as db:
        db.sql("CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
        for statement in TABLE.split(";")[:2]:
            db.sql(statement)
        query = db.sql(f"CREATE SINK q INTO parquet('{place}') AS {text}")
        db.append("s", rows.filter(pa.array(times >= since)))
        db.end("s")
        assert query.await_end(60)
    return answer(place)


def stored_set(directory: Path) -> set[str]:
    stored = read_stored_graph(directory / "out/.strandline/checkpoint/every")
    assert stored is not None
    return {f"{query.name} {query.text.partition(' AS ')[2]}" for query in stored.queries}


def as_set(queries: dict[str, str]) -> set[str]:
    return {f"{name} {text}{start_of(name)}" for name, text in queries.items()}


def judge(directory: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Each query has what it has alone, over the rows from its beginning on; one that is gone a part of that."""
    assert done.returncode == 0, done.stderr
    begins: dict[str, Any] = ast.literal_eval(done.stdout.partition("ended ")[2])
    assert begins.keys() == CHANGED.keys()
    assert all(begins[name] > 1_700_000_000_000_000 if name in NOW else begins[name] == BEFORE_ALL for name in begins)
    for name, text in CHANGED.items():
        actual, expected = answer(directory / "out" / name), alone(directory, text, begins[name])
        assert actual.height and actual.equals(expected), name
    assert sl.read(directory / "out/_former/swapped/1").num_rows
    examined = examine(directory / "out/.strandline/checkpoint/every")
    assert not examined.problems and set(examined.queries) == CHANGED.keys()
    odd = Counter(pq.read_table(directory / "out/odd")["v"].to_pylist())
    given = [v for v in rows_given(directory)["v"].to_pylist() if v % 2]
    assert odd == Counter(given[: odd.total()])


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the script as it was, killed in its fourth batch."""
    directory = tmp_path_factory.mktemp("interrupted")
    write_input(directory, 0, 12)
    (directory / "old.sql").write_text(script(directory, QUERIES))
    (directory / "new.sql").write_text(script(directory, CHANGED))
    assert run(directory, "old.sql", "third batch").returncode == -9
    assert stored_set(directory) == as_set(QUERIES)
    write_input(directory, 12, FILES)
    (directory / "in" / "_END").touch()
    return directory


MOMENTS = ["repeated batch", "before", "version", "aside", "first batch"]


@pytest.mark.spark
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_a_script_is_updated(tmp_path: Path, interrupted: Path, moment: str) -> None:
    if moment != "version" and not LONG:
        pytest.skip("a long run: STRANDLINE_LONG=1")
    directory = tmp_path
    for name in ("out", "tables"):
        shutil.copytree(interrupted / name, directory / name)
    # The scripts read where they were written: inputs are shared by all moments.
    for name in ("in", "old.sql", "new.sql"):
        (directory / name).symlink_to(interrupted / name)
    killed = run(directory, "new.sql", "--update", moment)
    assert killed.returncode == -9, killed.stderr
    is_old = moment in ("repeated batch", "before")
    assert stored_set(directory) == as_set(QUERIES if is_old else CHANGED)
    # A script that the checkpoint does not have is refused without --update, the other one is not.
    refused = run(directory, "new.sql" if is_old else "old.sql")
    assert refused.returncode == 1 and "script-changed" in refused.stderr
    judge(directory, run(directory, "new.sql", *(["--update"] if is_old else [])))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a long run: STRANDLINE_LONG=1")
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_moment_of_an_update(tmp_path: Path, interrupted: Path, seed: int) -> None:
    draw = random.Random(seed)
    for name in ("out", "tables"):
        shutil.copytree(interrupted / name, tmp_path / name)
    for name in ("in", "old.sql", "new.sql"):
        (tmp_path / name).symlink_to(interrupted / name)
    for _ in range(2):
        command = [sys.executable, str(PROGRAM), str(tmp_path), "new.sql", "--update"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        time.sleep(draw.uniform(2, 14))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert stored_set(tmp_path) in (as_set(QUERIES), as_set(CHANGED))
    judge(tmp_path, run(tmp_path, "new.sql", "--update"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a long run: STRANDLINE_LONG=1")
def test_a_failed_query_and_one_over_another_stream_are_added_again(tmp_path: Path) -> None:
    write_input(tmp_path, 0, 12)
    declared = STREAM.format(directory=tmp_path)
    other = declared.replace("STREAM s", "STREAM u")
    queries = "CREATE STREAM every AS SELECT k, v FROM s;\nCREATE STREAM bad AS SELECT picky(v) AS v FROM s;\n"
    queries += "CREATE STREAM others AS SELECT v FROM u;\n"
    gone = """CREATE STREAM gone AS SELECT s.v FROM s WINDOW(RANGE 1 SECOND), u WINDOW(RANGE 1 SECOND)
      WHERE s.ts = u.ts;\n"""
    (tmp_path / "old.sql").write_text(declared + other + gone + queries)
    (tmp_path / "new.sql").write_text(declared + other.replace("ts;", "ts WITHIN 1 SECOND;") + queries)
    os.environ["PICKY"] = "1"
    try:
        assert run(tmp_path, "old.sql", "third batch").returncode == -9
    finally:
        del os.environ["PICKY"]
    stored = read_stored_graph(tmp_path / "out/.strandline/checkpoint/gone")
    assert stored is not None and [failed.query.name for failed in stored.failed] == ["bad"]
    write_input(tmp_path, 12, FILES)
    (tmp_path / "in" / "_END").touch()
    done = run(tmp_path, "new.sql", "--update")
    assert done.returncode == 0, done.stderr
    begins: dict[str, Any] = ast.literal_eval(done.stdout.partition("ended ")[2])
    assert set(begins.values()) == {BEFORE_ALL}  # what others have read is read again
    assert answer(tmp_path / "out/every").equals(alone(tmp_path, "SELECT k, v FROM s", BEFORE_ALL))
    assert answer(tmp_path / "out/others").equals(alone(tmp_path, "SELECT v FROM s", BEFORE_ALL))
    assert answer(tmp_path / "out/bad").equals(alone(tmp_path, "SELECT v FROM s", begins["bad"]))
    again = run(tmp_path, "new.sql")
    assert again.returncode == 0 and "script-changed" not in again.stderr, again.stderr

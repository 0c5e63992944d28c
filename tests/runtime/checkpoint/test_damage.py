"""Checkpoints of real runs on Spark, damaged in every way: refused by name before anything runs, or exact."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.runtime.checkpoint.examine import examine
from strandline.runtime.checkpoint.repair import repair
from strandline.runtime.kernels.changes import coalesce

pytestmark = pytest.mark.spark

STREAM = """CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP)
  SOURCE file('{inputs}/*.csv') ORDERED BY ts WITHIN 1 SECOND"""
QUERY = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s WINDOW(RANGE 3 SECONDS) GROUP BY k"
FILES, ROWS = 12, 60
DAMAGES = ("deleted", "truncated", "emptied", "flipped", "stale", "doubled")


def write_input(directory: Path) -> None:
    """Files of which each has a late row and one that is malformed."""
    directory.mkdir()
    for number in range(FILES):
        lines = ["k,v,ts"]
        for row in range(ROWS):
            second = number * 6 + row / 10
            lines.append(f"{row % 5},{row},2024-01-01 00:{int(second) // 60:02d}:{second % 60:06.3f}")
        lines.insert(30, "x,1,2024-01-01 00:00:01")
        lines.append("1,1,2023-12-31 00:00:00")
        (directory / f"{number:02d}.csv").write_text("\n".join(lines) + "\n")


def start(database: Database, directory: Path, inputs: Path) -> Query:
    db = sl.connect(spark=database.spark, checkpoint=directory / "c", batch_rows=1, shards=2)
    db.sql(STREAM.format(inputs=inputs))
    return db.sql(QUERY, name="q", sink=sl.Parquet(directory / "out" / "q"))


def results(directory: Path) -> pl.DataFrame:
    frame = pl.from_arrow(pq.read_table(directory / "out" / "q"))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    frame = frame.with_columns(pl.col("@from", "@until").dt.epoch("us"), pl.col("total").cast(pl.Int64))
    frame = frame.with_columns(pl.col("@until").fill_null(2**63 - 1))
    return coalesce(frame, ["k", "n", "total"]).sort(["k", "@from", "@until"])


def side_rows(directory: Path) -> tuple[int, int]:
    kinds = ("_late", "_rejected")
    return tuple(pq.read_table(directory / "out" / kind / "s").num_rows for kind in kinds)


@pytest.fixture(scope="module")
def runs(spark_database: Database, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A finished run, and moments of the same run: copies of its directory while it was stopped."""
    base = tmp_path_factory.mktemp("damage")
    live = base / "live"
    write_input(base / "in")
    moments: list[Path] = []
    for batches in (3, 3, 2):
        while True:
            query = start(spark_database, live, base / "in")
            while query.metrics()["batches"] < batches and query.is_running:
                time.sleep(0.01)
            query.stop()
            if len(moments) < 2 or is_between_batches(live):
                break
            shutil.rmtree(live)
            shutil.copytree(moments[-1], live)
        moments.append(base / f"moment{len(moments)}")
        shutil.copytree(live, moments[-1])
    assert start(spark_database, live, base / "in").await_end(60)
    assert results(live).height > 50 and side_rows(live) == (FILES, FILES)
    return live, moments


def is_between_batches(directory: Path) -> bool:
    """Whether a run was stopped between two batches before its end, so that it goes on from its newest state."""
    committed = newest(directory, "spark/commits/[0-9]*").name
    return newest(directory, "spark/offsets/[0-9]*").name == committed and int(committed) < FILES - 1


def files_of(moment: Path) -> list[Path]:
    """Every file that a restart reads."""
    ignored = ("lock", "lease.json", "flow.json", "statistics.json")
    found = [p for top in ("c", "out") for p in (moment / top).rglob("*") if p.is_file() and p.name not in ignored]
    return sorted(path.relative_to(moment) for path in found)


def damage_file(kind: str, file: Path, earlier: Path, dice: random.Random) -> bool:
    """Damage a file; whether there is anything to see."""
    content = file.read_bytes()
    match kind:
        case "deleted":
            file.unlink()
        case "truncated" if len(content) > 1:
            file.write_bytes(content[: dice.randrange(1, len(content))])
        case "emptied" if content:
            file.write_bytes(b"")
        case "flipped" if content:
            at = dice.randrange(len(content))
            file.write_bytes(content[:at] + bytes([content[at] ^ (1 << dice.randrange(8))]) + content[at + 1 :])
        case "stale" if earlier.exists() and earlier.read_bytes() != content:
            file.write_bytes(earlier.read_bytes())
        case "doubled" if content:
            file.write_bytes(content + content)
        case _:
            return False
    return True


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("lease.json", "lock", "statistics.json")
    }


REFUSED = {"checkpoint-damaged", "results-missing", "results-damaged", "checkpoint-version"}


def verdict(spark_database: Database, directory: Path, inputs: Path, expected: pl.DataFrame, file: Path) -> str:
    before = contents(directory)
    try:
        query = start(spark_database, directory, inputs)
    except StrandlineError as error:
        assert error.code in REFUSED, f"{file}: {error}"
        assert contents(directory) == before, f"{file}: something was changed"
        return f"refused {error.code}"
    try:
        assert query.await_end(60), f"{file}: it hangs"
    finally:
        query.stop()
    assert results(directory).equals(expected), f"{file}: wrong results"
    assert side_rows(directory) == (FILES, FILES), f"{file}: wrong late or rejected rows"
    return "exact"


def test_damage_of_any_file_is_refused_or_harmless(
    spark_database: Database, runs: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    live, moments = runs
    expected = results(live)
    dice = random.Random(int(os.environ.get("DAMAGE_SEED", "7")))
    trials = [(m, f, d) for m in (1, 2) for f in files_of(moments[m]) for d in DAMAGES]
    dice.shuffle(trials)
    outcomes: dict[str, int] = {}
    for number, (moment, file, kind) in enumerate(trials[: int(os.environ.get("DAMAGE_TRIALS", "40"))]):
        directory = tmp_path / f"trial{number}"
        shutil.copytree(moments[moment], directory)
        if not damage_file(kind, directory / file, moments[moment - 1] / file, dice):
            continue
        outcome = verdict(spark_database, directory, live.parent / "in", expected, Path(f"{kind} {file}"))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(directory)
    print(outcomes)
    assert sum(outcomes.values()) > 20


def newest(directory: Path, pattern: str) -> Path:
    return sorted((directory / "c" / "q").glob(pattern), key=lambda path: path.name.zfill(30))[-1]


def newest_segment(directory: Path) -> Path:
    """A segment of the newest version of the state."""
    return newest(directory, "state/1/*/s*.arrow")


@pytest.mark.parametrize(
    "choose",
    [
        lambda directory: newest(directory, "batches/*.json"),
        lambda directory: newest(directory, "state/1/0/v*.json"),
        newest_segment,
        lambda directory: newest(directory, "spark/offsets/[0-9]*"),
        lambda directory: newest(directory, "spark/commits/[0-9]*"),
    ],
    ids=["record", "manifest", "segment", "offset", "commit"],
)
def test_a_damaged_checkpoint_is_examined_and_repaired(
    spark_database: Database, runs: tuple[Path, list[Path]], tmp_path: Path, choose: Callable[[Path], Path]
) -> None:
    live, moments = runs
    directory = tmp_path / "copy"
    shutil.copytree(moments[2], directory)
    checkpoint = directory / "c" / "q"
    assert examine(checkpoint).problems == [], "a run that was stopped is whole"
    file = choose(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content[:-1])
    examination = examine(checkpoint)
    assert any(file.name in problem.error.message for problem in examination.problems), examination
    assert examination.last_intact_batch is not None and examination.last_intact_batch >= examination.last_batch - 2
    with pytest.raises(StrandlineError) as caught:
        start(spark_database, directory, live.parent / "in")
    assert caught.value.code in REFUSED
    done = repair(checkpoint)
    assert (
        done.batch == examination.last_intact_batch
        and done.moved
        and all(str(directory) in name for name in done.moved)
    )
    assert examine(checkpoint).problems == []
    query = start(spark_database, directory, live.parent / "in")
    assert query.await_end(60)
    query.stop()
    assert results(directory).equals(results(live)) and side_rows(directory) == side_rows(live)
    assert not (checkpoint / "replay").exists()
    assert not repair(checkpoint).is_needed


@pytest.mark.parametrize("owner", ["q", "_late/s"], ids=["result", "late"])
def test_a_damaged_file_of_many_batches_is_put_back(
    spark_database: Database, runs: tuple[Path, list[Path]], tmp_path: Path, owner: str
) -> None:
    """The batches in it are more than a checkpoint can go back."""
    live, moments = runs
    directory = tmp_path / "copy"
    shutil.copytree(moments[2], directory)
    checkpoint = directory / "c" / "q"
    file = sorted((directory / "out" / owner).glob("part-*.parquet"))[-1]
    content = file.read_bytes()
    file.write_bytes(content[:-1])  # without its footer there is no version of it
    assert any(file.name in problem.error.message for problem in examine(checkpoint).problems)
    with pytest.raises(StrandlineError) as caught:
        start(spark_database, directory, live.parent / "in")
    assert caught.value.code == "results-damaged"
    with pytest.raises(StrandlineError) as caught:
        repair(checkpoint)
    assert caught.value.code == "repair-impossible" and "--forget-results" in (caught.value.hint or "")
    file.write_bytes(content)
    query = start(spark_database, directory, live.parent / "in")
    assert query.await_end(60)
    query.stop()
    assert results(directory).equals(results(live)) and side_rows(directory) == side_rows(live)


def test_results_that_are_gone_for_good_can_be_given_up(
    spark_database: Database, runs: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    live, moments = runs
    directory = tmp_path / "copy"
    shutil.copytree(moments[2], directory)
    first = sorted((directory / "out" / "q").glob("part-*.parquet"))[0]
    lost = pq.read_table(first).num_rows
    first.unlink()
    done = repair(directory / "c" / "q", forget_results=True)
    assert done.forgotten == [str(first)]
    query = start(spark_database, directory, live.parent / "in")
    assert query.await_end(60)
    query.stop()
    total = pq.read_table(live / "out" / "q").num_rows
    assert pq.read_table(directory / "out" / "q").num_rows == total - lost

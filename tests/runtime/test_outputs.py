"""Files that several batches share: every row once at any moment, whatever runs again, crashes or is rolled back."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connectors.sinks.parquet_join import join_parquet, read_version, sum_part
from strandline.connectors.sinks.parquet_parts import StagedFile, write_parquet
from strandline.planner.physical.plan import Pipeline, QueryPlan
from strandline.runtime import outputs
from strandline.runtime.batch_report import BatchReport
from strandline.runtime.checkpoint.chain import DeliveredFile
from strandline.runtime.outputs import OutputDirectories, OutputFiles
from support import examples

PIPELINE = Pipeline((), (), (QueryPlan("q", (), frozenset()),), 2)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Writer:
    """A process that writes the batches of one query, and what a checkpoint would record of it."""

    def __init__(self, directory: Path, consumed: bool = False) -> None:
        self.result, self.staging = directory / "q", directory / "staging"
        self.result.mkdir(parents=True)
        self.staging.mkdir()
        self.consumed = frozenset({"q"} if consumed else ())
        self.clock = Clock()
        self.log: list[list[DeliveredFile]] = []  # by batch, as far as it was recorded
        self.start()

    def start(self) -> None:
        self.files = OutputFiles(PIPELINE, OutputDirectories({"q": self.result}, None, self.consumed), self.clock)
        entries = [file for batch in self.log for file in batch]
        if self.log:
            self.files.resume(entries, len(entries) - len(self.log[-1]), len(self.log) - 1)

    def publish(self, batch: int, parts: Sequence[int]) -> list[DeliveredFile]:
        report = BatchReport(batch)
        for number, rows in enumerate(parts):
            path = self.staging / f"q-{batch}-{number}.staged"
            write_parquet(pa.table({"batch": [batch] * rows, "n": pa.array(range(rows), pa.int64())}), path)
            report.staged.setdefault("q", []).append(StagedFile(str(path), rows, sum_part(path)))
        return self.files.publish(report)

    def commit(self, batch: int, parts: Sequence[int]) -> None:
        self.log[batch:] = [self.publish(batch, parts)]

    def rows(self) -> dict[int, int]:
        """How many rows of each batch a plain reader sees."""
        if not list(self.result.glob("*.parquet")):
            return {}
        query = f"SELECT batch, count(*) FROM read_parquet('{self.result}/*.parquet') GROUP BY batch"
        counts = dict(duckdb.execute(query).fetchall())
        assert sum(counts.values()) == pq.read_table(self.result).num_rows
        return counts

    def recorded(self) -> list[DeliveredFile]:
        """The newest entry of every file."""
        return list({file.name: file for batch in self.log for file in batch}.values())


PARTS = st.lists(st.integers(1, 30), max_size=2)
STEPS = st.tuples(PARTS, st.sampled_from(["on", "again", "crash", "crash recorded", "minute"]))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=12), st.booleans())
def test_every_row_is_in_the_files_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[int], str]], consumed: bool
) -> None:
    writer = Writer(tmp_path_factory.mktemp("files"), consumed)
    expected: dict[int, int] = {}
    for batch, (parts, event) in enumerate(steps):
        if event == "minute":
            writer.clock.seconds += outputs.MAX_SECONDS
        if event == "crash":  # between the file and its record
            writer.publish(batch, parts)
            writer.start()
        if sum(parts):
            expected[batch] = sum(parts)
        writer.commit(batch, parts)
        assert writer.rows() == expected
        if event == "again":
            writer.commit(batch, parts)
            assert writer.rows() == expected
        if event == "crash recorded":  # after its record and before Spark's commit
            writer.start()
            writer.commit(batch, parts)
            assert writer.rows() == expected
        for file in writer.recorded():
            assert (writer.result / file.name).stat().st_size == file.size
            assert outputs.version_of(file, writer.result / file.name) is not None


def test_a_minute_of_small_batches_is_one_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for batch in range(1_300):
        writer.commit(batch, [2, 1])
        writer.clock.seconds += 0.1
    files = sorted(writer.result.glob("*.parquet"))
    assert len(files) == 3, "130 seconds"
    assert writer.rows() == dict.fromkeys(range(1_300), 3)


def test_large_batches_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_BYTES", 1_000)
    writer = Writer(tmp_path)
    for batch in range(5):
        writer.commit(batch, [2_000])
    assert len(list(writer.result.glob("*.parquet"))) == 5


def test_a_file_that_a_reader_has_removed_does_not_come_back(tmp_path: Path) -> None:
    writer = Writer(tmp_path, consumed=True)
    writer.commit(0, [3])
    for path in writer.result.glob("*.parquet"):
        path.unlink()
    writer.commit(1, [4])
    assert writer.rows() == {1: 4}


def test_the_version_after_each_batch_can_be_read_from_a_later_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    copies: list[Path] = []
    for batch in range(6):
        writer.commit(batch, [5, 7])
        copies.append(tmp_path / f"{batch}.copy")
        shutil.copy(next(writer.result.glob("*.parquet")), copies[-1])
    (path,) = writer.result.glob("*.parquet")
    for batch, copy in enumerate(copies):
        (file,) = writer.log[batch]
        version = outputs.version_of(file, path)
        assert version is not None
        assert version.rows == 12 * (batch + 1)
        restored = tmp_path / "restored.parquet"
        shutil.copy(path, restored)
        outputs.restore_version(restored, version)
        assert restored.read_bytes() == copy.read_bytes()


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "text"])
def test_a_damaged_file_has_no_version(tmp_path: Path, damage: str) -> None:
    writer = Writer(tmp_path)
    for batch in range(4):
        writer.commit(batch, [40])
    (path,) = writer.result.glob("*.parquet")
    content = bytearray(path.read_bytes())
    match damage:
        case "flip":
            content[20] ^= 1
        case "truncate":
            del content[-30:]
        case "empty":
            content.clear()
        case _:
            content = bytearray(b"not a Parquet file PAR1")
    path.write_bytes(content)
    assert all(outputs.version_of(file, path) is None for batch in writer.log for file in batch)


def test_a_footer_that_was_read_before_fits_the_later_version(tmp_path: Path) -> None:
    """A reader may read the footer, and the pages later, by name."""
    writer = Writer(tmp_path)
    writer.commit(0, [10])
    (path,) = writer.result.glob("*.parquet")
    footer = pq.read_metadata(path)
    writer.commit(1, [10])
    table: Any = pq.ParquetFile(path, metadata=footer).read()
    assert table["batch"].to_pylist() == [0] * 10


def test_the_footer_of_another_writer_is_written_as_it_was(tmp_path: Path) -> None:
    """So a file that has one part is the same as a version and as a file."""
    path = tmp_path / "part"
    write_parquet(pa.table({"a": range(100), "b": [str(n) for n in range(100)]}), path)
    content = path.read_bytes()
    join_parquet([(path, sum_part(path))])
    assert path.read_bytes() == content
    version = read_version(path, 1)
    assert version is not None
    assert version.sums == sum_part(path)

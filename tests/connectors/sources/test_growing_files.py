"""Files that grow, are rotated, cut off, replaced, changed or removed: nothing twice, nothing lost in silence."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.connectors.sources.base import open_source
from strandline.connectors.sources.file import FileSource
from strandline.connectors.sources.files import checks, planning, tracking
from strandline.core.errors import CheckpointError, SourceError
from strandline.sql import ast
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.parser.statements import parse_one

FOLLOW = ", follow => true"


class Reader:
    """Reads a stream step by step, as a run does, and remembers what came."""

    def __init__(self, pattern: Path | str, options: str = FOLLOW, directory: Path | None = None) -> None:
        text = f"CREATE STREAM s (k INT, ts BIGINT) SOURCE file('{pattern}'{options}) ORDERED BY ts"
        statement = parse_one(text)
        assert isinstance(statement, ast.CreateStream)
        self.stream = bind_create_stream(statement)
        self.directory = directory
        self.source = self.open()
        self.position = 0
        self.ended = False
        self.keys: list[int] = []
        self.rejected: list[tuple[str, int, str]] = []
        self.read = 0

    def open(self) -> FileSource:
        source = open_source(self.stream, self.directory)
        assert isinstance(source, FileSource)
        return source

    def step(self, limit: int = 1_000_000) -> list[int]:
        """One batch; the keys that it brought."""
        if self.source._tracker is not None:
            self.source._tracker._next_look = 0.0
        end, self.ended = self.source.advance(self.position, limit)
        keys = self.take(end)
        self.position = end
        return keys

    def take(self, end: int) -> list[int]:
        keys: list[int] = []
        for chunk in self.source.read(self.position, end, frozenset(("k", "ts"))):
            keys += chunk.rows["k"].to_list()
            self.rejected += [(Path(p).name, r, why) for p, r, why, _ in chunk.rejected.rows()]
            assert chunk.count == chunk.rows.height + chunk.rejected.height
            self.read += chunk.count
        self.keys += keys
        return keys

    def restart(self) -> None:
        """As after a crash: what is known is what is in the log up to the position."""
        seal = self.source.seal(self.position)
        self.source = self.open()
        self.source.verify(self.position, seal)
        self.source.resume(self.position)

    @property
    def reasons(self) -> list[str]:
        return [why for _, _, why in self.rejected]


def lines(*numbers: int) -> str:
    return "".join(f"{n},{n}\n" for n in numbers)


@pytest.fixture(autouse=True)
def settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "SETTLE_SECONDS", 0.0)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_grows_is_read_on(tmp_path: Path, restarts: bool) -> None:
    log = tmp_path / "app.csv"
    log.write_text("k,ts\n" + lines(1, 2))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert reader.step() == [1, 2]
    for n in range(3, 8):
        with log.open("a") as file:
            file.write(lines(n))
        if restarts:
            reader.restart()
        assert reader.step() == [n]
        assert reader.step() == []
    assert not reader.rejected


def test_an_incomplete_last_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("k,")
    reader = Reader(tmp_path / "*.csv")
    assert reader.step() == []
    log.write_text("k,ts\r")
    assert reader.step() == []
    for text, keys in (("\n1,1\n2,", [1]), ("2", []), ("\r", []), ("\n3,3\n4,4", [2, 3])):
        with log.open("a", newline="") as file:
            file.write(text)
        assert reader.step() == keys
    (tmp_path / "_END").touch()
    assert reader.step() == [4] and reader.ended
    assert not reader.rejected


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_is_rotated_by_renaming(tmp_path: Path, pattern: str, restarts: bool) -> None:
    log, rotated = tmp_path / "app.log", tmp_path / "app.log.1"
    log.write_text(lines(1, 2))
    reader = Reader(tmp_path / pattern, FOLLOW + ", format => 'csv', header => false", tmp_path / "log")
    assert reader.step() == [1, 2]
    with log.open("a") as file:
        file.write(lines(3))
    log.rename(rotated)
    log.write_text(lines(5, 6))
    if restarts:
        reader.restart()
    assert reader.step() == [3, 5, 6]
    with rotated.open("a") as file:  # who has it open still writes to it
        file.write(lines(4))
    if restarts:
        reader.restart()
    with log.open("a") as file:
        file.write(lines(7))
    assert sorted(reader.step()) == [4, 7]
    assert reader.step() == []
    assert not reader.rejected


def test_the_tail_of_a_rotated_log_is_read_though_its_line_has_no_end(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text(lines(1) + "2,2")
    reader = Reader(log, FOLLOW + ", format => 'csv', header => false")
    assert reader.step() == [1]
    log.rename(tmp_path / "app.log.1")
    log.write_text(lines(3))
    assert sorted(reader.step() + reader.step()) == [2, 3]
    assert not reader.rejected


def test_a_log_that_is_copied_and_cut_off_begins_again(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("k,ts\n" + lines(1, 2, 3))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert reader.step() == [1, 2, 3]
    with log.open("r+") as file:
        file.truncate(0)
        file.write("k,ts\n" + lines(4))
    assert reader.step() == [4]
    assert len(reader.reasons) == 1 and "truncated to 9 bytes after 17 were read" in reader.reasons[0]
    reader.restart()
    with log.open("a") as file:
        file.write(lines(5))
    assert reader.step() == [5]


def test_a_file_of_the_same_name_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "app.csv"
    path.write_text("k,ts\n" + lines(1, 2))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert reader.step() == [1, 2]
    other = tmp_path / "other.tmp"
    other.write_text("k,ts\n" + lines(7, 8, 9))
    os.replace(other, path)
    assert reader.step() == [7, 8, 9]
    assert not reader.rejected
    reader.restart()
    assert reader.step() == []


def test_the_unread_rest_of_a_file_that_is_replaced_is_named(tmp_path: Path) -> None:
    path = tmp_path / "app.csv"
    path.write_text("k,ts\n" + lines(1) + "2,")
    reader = Reader(tmp_path / "*.csv")
    assert reader.step() == [1]
    other = tmp_path / "other.tmp"
    other.write_text("k,ts\n" + lines(7))
    os.replace(other, path)
    assert reader.step() == [7]
    assert reader.reasons == ["the file was removed or replaced before its last 2 bytes were read"]


def test_content_that_changes_before_the_position_is_named_and_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "app.csv"
    path.write_text("k,ts\n" + lines(1, 2, 3))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert reader.step() == [1, 2, 3]
    with path.open("r+") as file:
        file.write("k,ts\n" + lines(9, 8, 7, 6))
    assert reader.step() == []
    assert len(reader.reasons) == 1 and "changed before byte 17" in reader.reasons[0]
    reader.restart()
    with path.open("a") as file:
        file.write(lines(5))
    assert reader.step() == [5]
    assert len(reader.reasons) == 1


def test_files_that_were_read_may_go_and_files_that_were_not_are_named(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("k,ts\n" + lines(ord(name)))
    reader = Reader(tmp_path / "*.csv")
    assert reader.step(1) == [97]
    (tmp_path / "a.csv").unlink()
    (tmp_path / "b.csv").unlink()
    assert reader.step() + reader.step() == [99]
    assert reader.rejected == [("b.csv", 1, "the file was removed or replaced before it was read")]


def test_a_file_with_another_header_is_read_when_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    (tmp_path / "a.csv").write_text("k,ts\n" + lines(1))
    path.write_text("key,ts\n" + lines(2))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert reader.step() == [1]
    assert reader.reasons == ["column k is missing; the file has key, ts"]
    assert reader.step() == []
    reader.restart()
    assert reader.step() == []
    path.write_text("k,ts\n" + lines(2, 3))
    assert reader.step() == [2, 3]
    path.unlink()
    (tmp_path / "c.csv").write_text("k,ts\n" + lines(4))
    assert reader.step() == [4]
    assert len(reader.rejected) == 1


def parquet(path: Path, *numbers: int) -> None:
    table = pa.table({"k": pa.array(numbers, pa.int32()), "ts": pa.array(numbers, pa.int64())})
    pq.write_table(table, path, row_group_size=2)


def test_a_parquet_file_is_read_once_and_waits_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "SETTLE_SECONDS", 60.0)
    parquet(tmp_path / "whole", 1, 2, 3)
    data = (tmp_path / "whole").read_bytes()
    path = tmp_path / "a.parquet"
    path.write_bytes(data[:100])
    reader = Reader(tmp_path / "*.parquet", directory=tmp_path / "log")
    assert reader.step() == []
    path.write_bytes(data)
    assert reader.step() == [1, 2, 3]
    os.utime(path)
    path.rename(tmp_path / "b.parquet")
    assert reader.step() == []
    reader.restart()
    assert reader.step() == []
    parquet(tmp_path / "b.parquet", 7, 8, 9, 10, 11)
    assert reader.step() == []
    assert reader.reasons == ["the file was changed after it was read; it is not read again"]


def test_a_compressed_file_that_breaks_off_waits_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "SETTLE_SECONDS", 60.0)
    data = gzip.compress(("k,ts\n" + lines(1, 2, 3)).encode())
    path = tmp_path / "a.csv.gz"
    path.write_bytes(data[:20])
    reader = Reader(tmp_path / "*.gz", directory=tmp_path / "log")
    assert reader.step() == []
    path.write_bytes(data)
    assert reader.step() == [1, 2, 3]
    reader.restart()
    assert reader.step() == []
    (tmp_path / "b.csv.gz").write_bytes(data[:-9])
    (tmp_path / "_END").touch()
    assert len(reader.step()) < 4 and reader.ended
    assert len(reader.reasons) == 1 and "truncated after" in reader.reasons[0]


def test_without_follow_files_are_read_as_they_were_at_the_start(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("k,ts\n" + lines(ord(name), 2 * ord(name)))
    reader = Reader(tmp_path / "*.csv", "", tmp_path / "log")
    assert reader.step(1) == [97, 194]
    with (tmp_path / "b.csv").open("a") as file:
        file.write(lines(0))
    (tmp_path / "c.csv").write_text("k,ts\n" + lines(0))
    (tmp_path / "d.csv").unlink()
    (tmp_path / "e.csv").write_text("k,ts\n" + lines(0))
    reader.restart()
    while not reader.ended:
        reader.step(1)
    assert reader.keys == [97, 194, 98, 196]
    assert [(name, why[:15]) for name, _, why in reader.rejected] == [
        ("c.csv", "the file has sh"),
        ("d.csv", "the file is no "),
    ]


def test_a_batch_that_cannot_be_read_as_it_was_planned_stops(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("k,ts\n" + lines(1, 2))
    reader = Reader(path, "", tmp_path / "log")
    end, _ = reader.source.advance(0, 10)
    path.write_text("k,ts\n" + lines(1, 3))
    with pytest.raises(SourceError) as caught:
        reader.take(end)
    assert caught.value.code == "file-changed"
    path.write_text("k,ts\n" + lines(1, 2))
    assert reader.take(end) == [1, 2]


def test_a_checkpoint_and_its_input_may_move(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "a.csv").write_text("k,ts\n" + lines(1, 2))
    parquet(old / "b.parquet", 3, 4, 5)
    for pattern in ("*.csv", "*.parquet"):
        reader = Reader(old / pattern, directory=tmp_path / pattern[2:])
        reader.step(2)
        new.mkdir(exist_ok=True)
        for path in old.iterdir():
            (new / path.name).write_bytes(path.read_bytes())
        with (new / "a.csv").open("a") as file:
            file.write(lines(9))
        moved = Reader(new / pattern, directory=tmp_path / pattern[2:])
        moved.position, moved.keys = reader.position, reader.keys
        assert moved.source.identity() == reader.source.identity()
        moved.source.verify(moved.position, reader.source.seal(reader.position))
        moved.source.resume(moved.position)
        moved.step()
        assert moved.keys == ([1, 2, 9] if pattern == "*.csv" else [3, 4, 5])
        assert not moved.rejected


def test_a_log_that_says_something_else_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n" + lines(1, 2))
    reader = Reader(tmp_path / "a.csv", "", tmp_path / "log")
    reader.step()
    seal = reader.source.seal(reader.position)
    path = tmp_path / "log" / "units.log"
    whole = path.read_bytes()
    for damaged in (whole.replace(b'"rows":2', b'"rows":3'), whole[:-10], b"", whole.splitlines(True)[1]):
        path.write_bytes(damaged)
        for check in (reader.open().verify, reader.open().check_seal):
            with pytest.raises(CheckpointError) as caught:
                check(reader.position, seal)
            assert caught.value.code == "checkpoint-damaged"
        assert path.read_bytes() == damaged
    path.write_bytes(whole + whole.splitlines(True)[-1] + b"half a li")
    reader.open().verify(reader.position, seal)
    again = reader.open()
    again.verify(reader.position, seal)
    again.resume(reader.position)
    assert path.read_bytes() == whole


def test_a_worker_notices_that_the_log_was_cut_and_continued_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n" + lines(1))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    reader.step()
    first = reader.position
    seal = reader.source.seal(first)
    (tmp_path / "b.csv").write_text("k,ts\n" + lines(2))
    reader.step()
    worker = reader.open()
    chunks = list(worker.read(0, reader.position, frozenset("k")))
    assert [k for chunk in chunks for k in chunk.rows["k"]] == [1, 2]
    (tmp_path / "b.csv").unlink()
    again = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    again.position = first
    again.source.verify(first, seal)
    again.source.resume(first)
    (tmp_path / "c.csv").write_text("k,ts\n" + lines(3))
    again.step()
    worker = reader.open()
    chunks = list(worker.read(0, again.position, frozenset("k")))
    assert [k for chunk in chunks for k in chunk.rows["k"]] == [1, 3]


@pytest.mark.parametrize("seed", range(12))
def test_any_history_of_a_log_is_read_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends in pieces, rotations, restarts and batches of all sizes in random order."""
    chance = random.Random(seed)
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", chance.choice((16, 64, 16 * 2**20)))
    log = tmp_path / "app.log"
    reader = Reader(tmp_path / "app.log*", FOLLOW + ", format => 'csv', header => false", tmp_path / "log")
    written, rest, rotations = 0, "", 0
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1 | 2:
                count = chance.randrange(1, 30)
                text = rest + lines(*range(written, written + count))
                written += count
                cut = len(text) - chance.choice((0, 0, 1, 3))
                text, rest = text[:cut], text[cut:]
                with log.open("a") as file:
                    file.write(text)
            case 3:
                reader.step(chance.choice((1, 5, 1_000)))
            case 4:
                reader.restart()
            case 5 if log.exists() and not rest:
                rotations += 1
                log.rename(tmp_path / f"app.log.{rotations}")
    with log.open("a") as file:
        file.write(rest)
    (tmp_path / "_END").touch()
    while not reader.ended:
        reader.step(chance.choice((1, 5, 1_000)))
    assert sorted(reader.keys) == list(range(written))
    assert not reader.rejected


def test_looking_at_many_files_takes_time_for_the_new_ones_only(tmp_path: Path) -> None:
    for n in range(400):
        (tmp_path / f"{n:05d}.csv").write_text("k,ts\n" + lines(n))
    reader = Reader(tmp_path / "*.csv", directory=tmp_path / "log")
    assert len(reader.step()) == 400
    opened: list[str] = []
    original = planning.plan_file

    def counted(file: planning.InputFile, *rest: object) -> object:
        opened.append(file.path)
        return original(file, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "plan_file", counted)
        size = (tmp_path / "log" / "units.log").stat().st_size
        reader.step()
        (tmp_path / "new.csv").write_text("k,ts\n" + lines(7))
        assert reader.step() == [7]
        reader.restart()
        assert reader.step() == []
    assert opened == ["new.csv"]
    assert (tmp_path / "log" / "units.log").stat().st_size < size + 500
    assert checks.FILES_CHECKED < 400

"""What a receiver has taken: kept before anybody hears of it, read again by position, gone when nobody can ask."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.connectors.sources import received_log as received_module
from strandline.connectors.sources.received_log import BATCHES_KEPT, ReceivedLog
from strandline.core.errors import StrandlineError
from strandline.core.types import BIGINT
from strandline.logical.catalog import BaseStream, ConnectorCall

STREAM = BaseStream("s", (("n", BIGINT),), ConnectorCall("socket"), "n")


def line(number: int) -> bytes:
    return b'{"n": %d}' % number


def numbers(received: ReceivedLog, start: int, end: int) -> list[int]:
    return [n for chunk in received.read(start, end, STREAM, "here") for n in chunk.rows["n"].to_list()]


@pytest.fixture
def received(tmp_path: Path) -> Iterator[ReceivedLog]:
    found = ReceivedLog(tmp_path / "received")
    found.open()
    yield found
    found.close()


def again(received: ReceivedLog) -> ReceivedLog:
    """Another process goes on, without a word from the first."""
    os.close(received._file or 0)
    received._file = None
    found = ReceivedLog(received.directory)
    found.open()
    return found


def test_positions_count_lines_and_mean_the_same_after_a_restart(received: ReceivedLog) -> None:
    received.append([line(0), b"", line(1)])
    assert received.advance(0, 100) == (2, False)
    received.append([line(2)])
    received.append([line(3)])
    other = again(received)
    assert other.advance(2, 100) == (4, False)
    assert [numbers(other, *span) for span in ((0, 4), (1, 3), (3, 4), (2, 2))] == [[0, 1, 2, 3], [1, 2], [3], []]
    other.append([line(4)])
    assert other.advance(4, 100) == (5, False) and numbers(other, 3, 5) == [3, 4]
    other.close()


def torn(received: ReceivedLog, cut: int) -> None:
    """A block whose writing was interrupted: nobody heard that it was taken."""
    [file] = received.directory.glob("*.jsonl")
    block = received_module._block([line(1), line(2)])
    with open(file, "ab") as out:
        out.write(block[: len(block) - cut])


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_block_that_was_not_written_to_its_end_was_never_taken(received: ReceivedLog, cut: int) -> None:
    received.append([line(0)])
    torn(received, cut)
    other = again(received)
    assert other.advance(0, 100) == (1, False), "the second block is two lines or none"
    other.append([line(7)])
    assert other.advance(1, 100) == (2, False) and numbers(other, 0, 2) == [0, 7]
    other.close()


@pytest.mark.parametrize("cut", range(1, 20))
def test_also_where_it_was_the_first_of_its_file(received: ReceivedLog, cut: int) -> None:
    torn(received, cut)
    other = again(received)
    assert other.advance(0, 100) == (0, False)
    other.append([line(7)])
    assert other.advance(0, 100) == (1, False) and numbers(other, 0, 1) == [7]
    other.close()


def test_a_whole_block_that_was_not_acknowledged_is_kept(received: ReceivedLog) -> None:
    received.append([line(0)])
    torn(received, 0)
    other = again(received)
    assert other.advance(0, 100) == (3, False) and numbers(other, 0, 3) == [0, 1, 2]
    other.close()


def truncate(directory: Path) -> None:
    file = max(directory.glob("*.jsonl"), key=lambda path: (path.stat().st_size > 0, path.name))
    os.truncate(file, file.stat().st_size - 1)


def flip(directory: Path) -> None:
    file = min(directory.glob("*.jsonl"))
    file.write_bytes(file.read_bytes().replace(b'"n": 0', b'"n": 8'))


def remove_file(directory: Path) -> None:
    min(directory.glob("*.jsonl")).unlink()


def remove_head(directory: Path) -> None:
    (directory / "head").unlink()


def empty_head(directory: Path) -> None:
    (directory / "head").write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip, remove_file, remove_head, empty_head])
@pytest.mark.parametrize("read", [0, 2])
def test_what_was_acknowledged_and_is_not_there_any_more_is_damage(
    received: ReceivedLog, damage: Callable[[Path], None], read: int
) -> None:
    received.append([line(0), line(1)])
    if read:
        received.advance(0, 10)  # later lines go to another file
    received.append([line(2)])
    received.close()
    damage(received.directory)
    checks: list[Callable[[ReceivedLog], None]] = [lambda other: other.check(0)]
    if (damage, read) != (remove_file, 2):  # what was read is removed by and by, so opening alone does not miss it
        checks.append(lambda other: other.open())
    for verify in checks:
        with pytest.raises(StrandlineError) as caught:
            verify(ReceivedLog(received.directory))
        assert caught.value.code == "checkpoint-damaged"


def test_a_limit_is_kept_also_within_a_file(received: ReceivedLog) -> None:
    received.append([line(n) for n in range(10)])
    assert received.advance(0, 4) == (4, False)
    assert received.advance(4, 4) == (8, False)
    assert received.advance(8, 4) == (10, False)
    assert numbers(received, 4, 8) == [4, 5, 6, 7]


def test_what_nobody_can_ask_for_again_is_removed(received: ReceivedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    position, most = 0, 0
    for batch in range(50):
        received.append([line(batch)] * 100)
        position, _ = received.advance(position, 1000)
        most = max(most, len(list(received.directory.glob("*.jsonl"))))
    assert most <= BATCHES_KEPT + 2
    assert numbers(received, 4800, 5000) == [48] * 100 + [49] * 100, "the batch under way and the one before"
    with pytest.raises(StrandlineError) as caught:
        numbers(received, 0, 100)
    assert caught.value.code == "not-replayable"


def test_files_have_a_largest_size(received: ReceivedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_module, "SEGMENT_BYTES", 1000)
    for n in range(300):
        received.append([line(n)])
    files = list(received.directory.glob("*.jsonl"))
    assert len(files) > 2 and max(file.stat().st_size for file in files) < 1100
    assert received.waiting_bytes() == sum(file.stat().st_size for file in files)
    assert received.advance(0, 1000) == (300, False) and numbers(received, 0, 300) == list(range(300))
    assert received.advance(300, 1000) == (300, False) and received.waiting_bytes() == 0


def test_many_may_write_at_once(received: ReceivedLog) -> None:
    def write(writer: int) -> None:
        for n in range(50):
            received.append([line(1000 * writer + n)])

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for writer in writers:
        writer.start()
    position, found = 0, []
    while any(writer.is_alive() for writer in writers) or position < received.written:
        end, _ = received.advance(position, 70)
        found += numbers(received, position, end)
        position = end
    assert sorted(found) == sorted(1000 * writer + n for writer in range(8) for n in range(50))
    for number in range(8):
        assert [n for n in found if n // 1000 == number] == [1000 * number + n for n in range(50)], "each in order"


def test_the_end_is_remembered(received: ReceivedLog) -> None:
    received.append([line(0), line(1)])
    received.end()
    assert received.advance(0, 1) == (1, False) and received.advance(1, 1) == (2, True)
    other = again(received)
    assert other.ended and other.advance(2, 1) == (2, True)
    other.close()


def test_a_damaged_file_is_noticed(received: ReceivedLog) -> None:
    received.append([line(0), line(1)])
    end, _ = received.advance(0, 10)
    os.truncate(received.directory / "000000000000000.jsonl", 9)
    with pytest.raises(StrandlineError) as caught:
        numbers(received, 0, end)
    assert caught.value.code == "checkpoint-damaged"

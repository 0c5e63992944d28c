"""The past of a table: a read at an instant begins with an image, and looks at a bounded part of the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import polars as pl
import pytest
from table_model import Hand, K, TableModel, equal, frame, number, rows_of, table_in

from strandline.connectors.tables import images
from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.log import LogReader
from strandline.connectors.tables.statements import DeleteRows, InsertRows, TableStatement
from strandline.connectors.tables.store import TableStore, open_table
from strandline.core.errors import QueryError
from strandline.core.temporal import OPEN

FEWEST = 40
Row: TypeAlias = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 6_000)
    monkeypatch.setattr(images, "FEWEST_CHANGES", FEWEST)
    monkeypatch.setattr("os.fsync", lambda file: None)  # no machine stops here


def change(store: TableStore, model: TableModel, draw: Random, clock: Hand, count: int) -> None:
    for _ in range(count):
        clock.at += draw.choice([1, 10])
        statement: TableStatement = InsertRows(
            frame(*((draw.randrange(15), draw.randrange(9), "x") for _ in range(draw.randrange(1, 4)))), "update"
        )
        if draw.random() < 0.2:
            statement = DeleteRows(equal(K, number(draw.randrange(15))))
        model.apply(statement, store.commit(statement).at)
        store.content()  # has its turn after what follows a statement
        if store._upkeep is not None:
            store._upkeep.join()


def check(store: TableStore, model: TableModel, since: int = 0) -> None:
    for at in model.past:
        for instant in (at - 1, at, at + 1):
            if instant >= since:
                assert rows_of(store.content_at(instant)) == model.at(instant)


@pytest.mark.parametrize("keep", [None, 400])
def test_every_instant_is_read_from_its_image(keep: int | None, tmp_path: Path) -> None:
    draw, model, clock = Random(str(keep)), TableModel(), Hand()
    table = table_in(tmp_path / "t", keep_us=keep)
    for _ in range(3):
        store = open_table(table, clock)
        change(store, model, draw, clock, 80)
        check(store, model, store.retained_since)
        store.close()
    positions = images.image_positions(tmp_path / "t")
    assert len(positions) >= 3
    assert set(positions) <= {int(path.stem) for path in (tmp_path / "t").glob("*.log")}, "where a file begins"
    store = open_table(table, clock)
    assert store.retained_since > 0 if keep else store.retained_since < 0
    assert images.image_positions(tmp_path / "t")[0] > store._log.first
    check(store, model, store.retained_since)
    store.close()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many changes each read of the log looks at, from now on."""
    counts: list[int] = []
    read = LogReader.read

    def counted(self: LogReader, start: int, end: int, *more: Any) -> Iterator[pl.DataFrame]:
        counts.append(max(0, end - start))
        return read(self, start, end, *more)

    monkeypatch.setattr(LogReader, "read", counted)
    return counts


def test_a_read_looks_at_a_bounded_part_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, model, clock = Random(1), TableModel(), Hand()
    store = open_table(table_in(tmp_path / "t"), clock)
    change(store, model, draw, clock, 600)
    counts = count_reads(monkeypatch)
    in_file = max(int(b.stem) - int(a.stem) for a, b in pairwise(sorted((tmp_path / "t").glob("*.log"))))
    for at in list(model.past)[::20]:
        counts.clear()
        assert rows_of(store.content_at(at)) == model.at(at)
        # One block to find the position, and what follows the image: it comes with the first file after enough changes.
        assert sum(counts) <= FEWEST + 3 * in_file < store.reach / 3
    store.close()


def between(history: list[Row], since: int, until: int) -> list[Row]:
    """The rows of a history that are valid in [since, until), as it was known before `until`."""
    ends = [(*row, start, OPEN if end >= until else end) for *row, start, end in history if start < until]
    return [row for row in ends if row[-1] > since]


@pytest.mark.parametrize("keep", [None, 400])
def test_the_history_between_two_instants_is_a_part_of_the_whole(keep: int | None, tmp_path: Path) -> None:
    draw, model, clock = Random(f"history {keep}"), TableModel(), Hand()
    store = open_table(table_in(tmp_path / "t", keep_us=keep), clock)
    change(store, model, draw, clock, 160)
    whole, first = store.history().rows(), max(store.retained_since, min(model.past) - 3)
    for at in (at for at in model.past if at >= first):
        assert sorted(row[:3] for row in whole if row[-2] <= at < row[-1]) == sorted(model.at(at))
    for _ in range(300):
        since = draw.randrange(first, clock.at + 9)
        until = since + draw.choice((1, 2, 15, 100, 10_000))
        assert store.history(since, until).rows() == between(whole, since, until)
        assert store.history(since).rows() == between(whole, since, OPEN)
        assert store.history(until=until).rows() == between(whole, store.retained_since, until)
    for bounds in ((first - 9, None), (None, first), (first - 9, clock.at)) if keep else ():
        with pytest.raises(QueryError, match="no longer kept"):
            store.history(*bounds)
    store.close()


def test_a_history_between_two_instants_reads_a_bounded_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, model, clock = Random(2), TableModel(), Hand()
    store = open_table(table_in(tmp_path / "t"), clock)
    change(store, model, draw, clock, 600)
    counts = count_reads(monkeypatch)
    in_file = max(int(b.stem) - int(a.stem) for a, b in pairwise(sorted((tmp_path / "t").glob("*.log"))))
    whole = store.history().rows()
    assert sum(counts) == store.reach
    for at in list(model.past)[::20]:
        counts.clear()
        assert store.history(at, at + 20).rows() == between(whole, at, at + 20)
        # A block for each of the two positions, what follows the image, and at most 20 changes of 3 rows.
        assert sum(counts) <= FEWEST + 4 * in_file + 120 < store.reach / 2
    store.close()


@pytest.mark.parametrize("damage", ["gone", "cut", "altered", "of another table"])
def test_an_image_can_be_done_without(damage: str, tmp_path: Path) -> None:
    draw, model, clock = Random(damage), TableModel(), Hand()
    store = open_table(table_in(tmp_path / "t"), clock)
    change(store, model, draw, clock, 200)
    store.close()
    other = open_table(table_in(tmp_path / "other"), Hand())
    other.close()
    assert len(images.image_positions(tmp_path / "t")) >= 3
    for position in images.image_positions(tmp_path / "t"):
        path = images.image_path(tmp_path / "t", position)
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "altered":
            path.write_bytes(data[:-70] + b"\x07" + data[-69:])
        else:  # intact, but of a log with another chain
            images.write_image(tmp_path / "t", images.ContentImage(position, store._content.live_ids()[:1], "0" * 64))
    store = open_table(table_in(tmp_path / "t"), clock)
    check(store, model)
    store.close()


def test_images_behind_the_end_of_a_log_are_removed(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t"), Hand())
    store.commit(InsertRows(frame((1, 1, "a"))))
    store.close()
    images.write_image(tmp_path / "t", images.ContentImage(500, store._content.live_ids(), "0" * 64))
    open_table(table_in(tmp_path / "t"), Hand()).close()
    assert images.image_positions(tmp_path / "t") == []

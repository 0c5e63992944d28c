"""Sorted runs and their merge, and journals of numbered batches: without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from strandline.connectors.sources import sorted_runs as runs
from strandline.connectors.sources.dataframe import DataFrameSource
from strandline.connectors.sources.journal import Journal
from strandline.core.errors import SourceError
from strandline.core.types import BIGINT, INT
from strandline.logical.catalog import BaseStream, ConnectorCall

COLUMNS = (("t", BIGINT), ("n", INT))


@pytest.mark.parametrize("rows", [1, 5, 400])
@pytest.mark.parametrize("piece_rows", [1, 7, 1000])
def test_merged_runs_are_the_sorted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, piece_rows: int
) -> None:
    monkeypatch.setattr(runs, "RUN_ROWS", 23)
    dice = random.Random(rows * piece_rows)
    given = [(dice.choice([None, *range(30)]), number) for number in range(rows)]
    batches = [
        pa.record_batch({"t": pa.array([t for t, _ in part], pa.int64()), "n": pa.array([n for _, n in part])})
        for part in (given[at : at + 10] for at in range(0, rows, 10))
    ]
    written = list(runs.write_runs(batches, tmp_path, COLUMNS, "t"))
    assert sum(count for _, count in written) == rows and len(written) == -(-rows // 30)
    pieces = list(runs.merged([tmp_path / name for name, _ in written], "t", piece_rows))
    found = [row for piece in pieces for row in zip(*piece.to_pydict().values(), strict=True)]
    assert found == sorted(given, key=lambda row: -1 if row[0] is None else row[0]), "stable, and without a time first"
    if piece_rows == 7 and rows == 400:
        assert len(pieces) > 10
    assert all(piece.schema == pieces[0].schema for piece in pieces)


def tables(*counts: int) -> Iterator[pa.Table]:
    yield from (pl.DataFrame({"t": range(count), "n": [0] * count}).to_arrow() for count in counts)


def test_a_batch_is_one_entry_and_has_its_number(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", may_be_truncated=True)
    assert journal.last_batch == -1
    journal.append_batch(0, 5, tables(3, 2))
    journal.append_batch(1, 0, ())
    journal.append_batch(2, 4, tables(4))
    reader = Journal(tmp_path / "j", may_be_truncated=True)
    reader.refresh()
    assert (reader.reach, reader.last_batch) == (9, 2)
    read = [x for _, part in reader.between(2, 7) if isinstance(part, pa.Table) for x in part["t"].to_pylist()]
    assert read == [2, 0, 1, 0, 1]


def test_what_was_read_is_forgotten_and_asking_for_it_is_refused(tmp_path: Path) -> None:
    writer = Journal(tmp_path / "rows", may_be_truncated=True)
    for number in range(6):
        writer.append_batch(number, 2, tables(2))
    source = DataFrameSource(BaseStream("s", COLUMNS, ConnectorCall("dataframe"), "t"), tmp_path)

    class Quiet:
        def check(self) -> None: ...
        def acknowledge(self, position: int) -> None: ...
        def stop(self) -> None: ...

    source._feeding = Quiet()
    position = 0
    for _ in range(5):
        position, ended = source.advance(position, 2)
        assert not ended
    assert len(list((tmp_path / "rows").glob("*.batch.*"))) == 4, (
        "the batches of the last three questions, and what follows"
    )
    again = DataFrameSource(source.stream, tmp_path)  # a worker
    [chunk] = again.read(4, 6, frozenset("tn"))
    assert chunk.rows["t"].to_list() == [0, 1]
    with pytest.raises(SourceError, match="no longer retained"):
        list(again.read(0, 2, frozenset("tn")))
    restarted = Journal(tmp_path / "rows", may_be_truncated=True)
    restarted.refresh()
    assert (restarted.reach, restarted.last_batch) == (12, 5)
    writer.close()
    assert source.advance(position, 100) == (12, True)

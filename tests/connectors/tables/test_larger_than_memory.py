"""Joins with a table whose content, batches and state are in mapped files: the small version of the program."""

from __future__ import annotations

from pathlib import Path

import larger_than_memory as program
import polars as pl
import pyarrow as pa
import pytest

import strandline
from strandline.connectors.tables import chunks
from strandline.connectors.tables import log as table_log
from strandline.core.mapped import map_table
from strandline.runtime import table_offsets
from strandline.runtime.state import spill

ROWS = 3_000


@pytest.mark.parametrize("kind", ["lookup", "retroactive"])
def test_joins_with_a_mapped_table_are_those_of_the_definition(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped_rows: list[int] = []

    def count_rows(table: pa.Table, directory: Path) -> pa.Table:
        mapped_rows.append(table.num_rows)
        return map_table(table, directory)

    for module, name in ((table_log, "SEGMENT_BYTES"), (chunks, "MAPPED_BYTES"), (spill, "SPILL_BYTES")):
        monkeypatch.setattr(module, name, 20_000)
    monkeypatch.setattr(table_offsets, "BATCH_BYTES", 100_000)  # the table comes in several batches
    monkeypatch.setattr(spill, "map_table", count_rows)
    for name, value in (("CALL_ROWS", 500), ("STREAM_ROWS", 2_000), ("CHANGED", 300)):
        monkeypatch.setattr(program, name, value)
    program.stream_rows(ROWS).write_parquet(tmp_path / "stream.parquet")
    with strandline.connect(engine="local", checkpoint=str(tmp_path / "db")) as database:
        database.sql(program.TABLE)
        probe = program.MemoryProbe()
        program.fill(database, ROWS, probe)
        results = program.join(database, kind, tmp_path / "stream.parquet", probe)
    program.check(kind, ROWS, pl.DataFrame(pa.concat_tables(results)))
    assert sum(mapped_rows) >= ROWS
    assert max(mapped_rows) < ROWS

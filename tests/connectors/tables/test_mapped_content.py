"""The content of a large table is mapped: of a row, only its mark is in memory. `larger_than_memory.py` measures it."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from table_model import Hand, K, call, frame, number, rows_of, table_in

from strandline.connectors.tables import chunks, key_index
from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.statements import DeleteRows, InsertRows
from strandline.connectors.tables.store import TableStore, open_table

ROWS = 2_000


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no machine stops here
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 10_000)
    monkeypatch.setattr(chunks, "MAPPED_BYTES", 10_000)
    monkeypatch.setattr(key_index, "_MAPPED_BITS", 11)


def anonymous_bytes(store: TableStore) -> int:
    """Bytes of the rows and of the key index that are not in pages of a file."""
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    bounds = [[int(bound, 16) for bound in line[0].split("-")] for line in lines if line[4] != "0"]
    content = store._content
    assert content._index is not None
    parts = [(array.ctypes.data, array.nbytes) for array in (content._index._hashes, content._index._ids)]
    total = 0
    for chunk in content._chunks:
        if chunk._mapped is None:
            total += int(chunk.frame.estimated_size())
        else:
            buffers = (buffer for column in chunk._mapped.columns for buffer in column.buffers())
            parts += [(buffer.address, buffer.size) for buffer in buffers if buffer is not None]
    return total + sum(size for begin, size in parts if not any(low <= begin < high for low, high in bounds))


def test_large_chunks_and_the_key_index_are_in_files(tmp_path: Path) -> None:
    table, clock = table_in(tmp_path / "t"), Hand()
    store = open_table(table, clock)
    rows = {k: (k, k % 7, f"a text that belongs to {k}") for k in range(ROWS)}
    for begin in range(0, ROWS, 400):
        store.commit(InsertRows(frame(*(rows[k] for k in range(begin, begin + 400)))))
    assert anonymous_bytes(store) == 0
    for k in range(0, ROWS, 5):  # chunk by chunk: small ones stay in memory until they are merged
        rows[k] = (k, -1, "replaced")
        store.commit(InsertRows(frame(rows[k]), "update"))
    store.commit(DeleteRows(call("<", K, number(700))))
    rows = {k: row for k, row in rows.items() if k >= 700}
    whole = pl.DataFrame(list(rows.values()), orient="row").estimated_size()
    for _ in range(2):
        assert sorted(rows_of(store.content())) == sorted(rows.values())
        assert anonymous_bytes(store) < whole / 3
        store.close()
        store = open_table(table, clock)
    store.close()

"""Mapped files: the same values, no file left behind, and memory instead where the disk has no room."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from strandline.core import mapped
from strandline.core.durable import write_all
from strandline.core.mapped import copy_table, map_table, mapped_zeros

TABLE = pa.table(
    {
        "k": pa.array([3, None, 1]),
        "s": pa.array(["a text that is longer than a view", None, ""], pa.large_string()),
    }
)


def mapped_ranges() -> list[tuple[int, int]]:
    """The addresses that are those of files: mapped for reading, or shared."""
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    bounds = (line[0].split("-") for line in lines if line[4] != "0")
    return [(int(begin, 16), int(end, 16)) for begin, end in bounds]


def is_mapped(address: int) -> bool:
    return any(begin <= address < end for begin, end in mapped_ranges())


@pytest.mark.parametrize("text_views", [True, False])
def test_a_table_is_the_same_in_a_file_without_a_name(text_views: bool, tmp_path: Path) -> None:
    table = map_table(pa.concat_tables([TABLE, TABLE.slice(1)]), tmp_path, text_views=text_views)
    assert not list(tmp_path.iterdir())
    assert pl.DataFrame(table).equals(pl.concat([pl.DataFrame(TABLE), pl.DataFrame(TABLE)[1:]]))
    buffers = [buffer for column in table.columns for buffer in column.chunk(0).buffers() if buffer and buffer.size]
    assert table.column("k").num_chunks == 1
    assert buffers
    assert all(is_mapped(buffer.address) for buffer in buffers)


def test_zeros_are_mapped_and_can_be_written(tmp_path: Path) -> None:
    zeros = mapped_zeros(tmp_path, 5_000, np.int64)
    assert not list(tmp_path.iterdir())
    assert zeros.shape == (5_000,)
    assert not zeros.any()
    assert is_mapped(zeros.ctypes.data)
    zeros[:] = 7
    assert zeros.sum() == 35_000


def test_a_copy_does_not_keep_what_it_was_cut_from() -> None:
    long = pa.table({"s": pa.array([str(number) * 20 for number in range(10_000)], pa.large_string())})
    copied = copy_table(long.slice(5_000, 2))
    assert copied.equals(long.slice(5_000, 2))
    assert copied.get_total_buffer_size() < 1_000


def test_a_full_disk_leaves_what_would_be_mapped_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(file: int, data: bytes | bytearray | memoryview) -> None:
        write_all(file, memoryview(data)[: len(data) // 2])
        raise OSError(28, "No space left on device")

    def reserve_nothing(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped, "write_all", write_half)
    monkeypatch.setattr(os, "posix_fallocate", reserve_nothing)
    assert map_table(TABLE, tmp_path).equals(TABLE)
    assert mapped_zeros(tmp_path, 10, np.uint64).tolist() == [0] * 10
    assert not list(tmp_path.iterdir())

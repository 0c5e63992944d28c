"""Page headers of Parquet files: sound files pass, however they were written, and what is not possible is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.connectors.sources.files.footers import read_footer, read_row_groups_of
from strandline.connectors.sources.files.page_headers import check_pages

ROWS = 3_000
COLUMNS = {"k", "v", "s", "a.b", "of", "o"}

FORMS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionary": {"use_dictionary": True},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 500, "write_batch_size": 50},
    "no statistics": {"write_statistics": False},
    "indexes and checksums": {"write_page_index": True, "write_page_checksum": True},
}


def write(path: Path, **how: Any) -> None:
    draw = np.random.default_rng(1)
    texts = [None if n % 7 == 0 else f"text {n % 50}" for n in range(ROWS)]
    table = pa.table({
        "k": draw.integers(0, 9, ROWS),
        "v": draw.random(ROWS),
        "s": texts,
        "a.b": pa.array([None] * ROWS, pa.int64()),
        "of": [{"x": n, "y": None} for n in range(ROWS)],
        "o": pa.array([[1] * (n % 3) for n in range(ROWS)]),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=1_000, **how)


@pytest.mark.parametrize("form", FORMS)
def test_sound_files_pass(form: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", **FORMS[form])
    check_pages(str(tmp_path / "a.parquet"), range(3), COLUMNS)


def test_a_file_without_rows_passes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    groups = pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups
    check_pages(str(tmp_path / "a.parquet"), range(groups), {"k"})


def test_any_bit_may_be_another(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1, 2], "s": ["x", "y"]}), path)
    data, refused = path.read_bytes(), 0
    end = 4 + sum(pq.ParquetFile(path).metadata.row_group(0).column(n).total_compressed_size for n in (0, 1))
    for place in range(4, end):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            # Another name each time: what is known of a file goes by its name, size and time.
            damaged = tmp_path / f"{place}-{bit}.parquet"
            damaged.write_bytes(changed)
            try:
                check_pages(str(damaged), range(1), {"k", "s"})
            except ValueError:
                refused += 1
            damaged.unlink()
    assert refused > 100


def test_any_bit_of_the_footer_may_be_another(tmp_path: Path) -> None:
    """A footer is parsed here: over damaged statistics of sizes Arrow ends the process."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1, 2], "s": ["x", "y"]}), path)
    data, refused = path.read_bytes(), 0
    begin = len(data) - 8 - len(read_footer(str(path)))
    for place in range(begin, len(data) - 8):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            damaged = tmp_path / f"{place}-{bit}.parquet"
            damaged.write_bytes(changed)
            try:
                read_row_groups_of(str(damaged))
            except ValueError:
                refused += 1
            damaged.unlink()
    assert refused > 100


def test_a_negative_number_of_values_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1, 2]}), path, use_dictionary=False, compression="none", write_statistics=False)
    data = path.read_bytes()
    # Field 5, a struct; in it field 1, an i32: 2, of which the last bit of the form is the sign.
    assert data.count(b"\x2c\x15\x04") == 1
    path.write_bytes(data.replace(b"\x2c\x15\x04", b"\x2c\x15\x05"))
    with pytest.raises(ValueError, match="page header"):
        check_pages(str(path), range(1), {"k"})

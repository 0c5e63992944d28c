"""Whatever type a Parquet file declares, and however it is encoded, its rows are those that Arrow reads."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.connectors.sources.files.parquet import read_row_groups
from strandline.connectors.sources.files.units import FileUnit

COLUMNS = {
    "small": pa.array([1, None, 3, 4], pa.int8()),
    "unsigned": pa.array([1, 2**63, None, 4], pa.uint64()),
    "real": pa.array([1.5, None, float("nan"), -0.0], pa.float32()),
    "nanoseconds": pa.array([1, None, 3, 4], pa.timestamp("ns")),
    "seconds": pa.array([1, None, 3, 4], pa.timestamp("s")),
    "zoned": pa.array([1, None, 3, 4], pa.timestamp("us", "Europe/Berlin")),
    "day": pa.array([1, None, 3, 4], pa.date32()),
    "day_in_milliseconds": pa.array([0, None, 86_400_000, 0], pa.date64()),
    "amount": pa.array([Decimal("1.20"), None, Decimal("-3.40"), Decimal(0)], pa.decimal128(10, 2)),
    "category": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "text": pa.array(["x", None, "", "ü"]),
    "flag": pa.array([True, None, False, True]),
    "nothing": pa.nulls(4),
    "several": pa.array([[1], None, [], [2, 3]]),
}
ENCODINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "int96": {"use_deprecated_int96_timestamps": True},
    "second pages": {"data_page_version": "2.0", "compression": "zstd"},
    "no hints": {"store_schema": False},
    "no dictionary": {"use_dictionary": False},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_unit_is_read_as_arrow_reads_it(column: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    table = pa.table({column: COLUMNS[column], "other": pa.array([Decimal(1)] * 4, pa.decimal256(50, 2))})
    pq.write_table(table, path, row_group_size=3, **ENCODINGS[encoding])
    for group, (row, rows) in enumerate([(1, 3), (4, 1)]):
        unit = FileUnit(path.name, group, group + 1, row, rows, "parquet")
        by_arrow: Any = pl.from_arrow(pq.ParquetFile(path).read_row_group(group, columns=[column]))
        read = read_row_groups(str(path), unit, [column])
        assert read.schema == by_arrow.schema
        assert read.equals(by_arrow)

"""Parquet files joined without reading a row, as every reader sees them."""

from __future__ import annotations

import zlib
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connectors.sinks.parquet_join import combine_crc, join_parquet, sum_part
from strandline.connectors.sinks.parquet_parts import write_parquet
from support import examples

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(max_size=12),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.lists(st.integers(0, 5), max_size=3),
        st.none() | st.booleans(),
    ),
    max_size=8,
)


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    kinds = (pa.int64(), pa.large_string(), pa.float64(), pa.large_list(pa.int64()), pa.bool_())
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip("abcde", arrays, strict=True)))


@settings(max_examples=examples(60))
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_a_joined_file_has_the_rows_of_its_parts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[object, ...]]]
) -> None:
    directory = tmp_path_factory.mktemp("join")
    paths = []
    for number, rows in enumerate(parts):
        paths.append(directory / f"{number}.part")
        write_parquet(table(rows), paths[-1])
    target = paths[0]
    joined = join_parquet([(path, sum_part(path)) for path in paths])
    content = target.read_bytes()
    assert (joined.sums.size, joined.sums.checksum) == (len(content), zlib.crc32(content))
    expected = pa.concat_tables(map(table, parts))
    assert pq.read_table(target).equals(expected)
    assert pl.read_parquet(target).equals(pl.DataFrame(expected))
    assert duckdb.execute(f"SELECT * FROM read_parquet('{target}')").fetchall() == [
        tuple(row.values()) for row in expected.to_pylist()
    ]
    assert pq.ParquetFile(target).metadata.num_rows == expected.num_rows


def test_many_row_groups_and_dictionaries_are_joined(tmp_path: Path) -> None:
    parts = []
    for number in range(20):
        rows = pa.table({"k": [f"text {i % 7}" for i in range(1000)], "n": range(number, number + 1000)})
        pq.write_table(rows, tmp_path / f"{number}", row_group_size=100, write_page_index=True)
        parts.append(tmp_path / f"{number}")
    expected = pa.concat_tables(pq.read_table(part) for part in parts)
    join_parquet([(part, sum_part(part)) for part in parts])
    assert pq.read_table(parts[0]).equals(expected)
    some = pq.read_table(parts[0], filters=[("n", "==", 1010)])
    assert some.num_rows == expected.filter(pa.compute.equal(expected["n"], 1010)).num_rows
    assert duckdb.execute(f"SELECT sum(n) FROM read_parquet('{parts[0]}')").fetchall() == [
        (sum(expected["n"].to_pylist()),)
    ]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_checksum_of_two_sequences_follows_from_theirs(first: bytes, second: bytes) -> None:
    assert combine_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)

"""Numbers of CSV that Arrow parses are those that a cast of their texts gives, or none; units are read side by side."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.sources.base import Chunk
from strandline.connectors.sources.files import csv_rows, planning
from strandline.connectors.sources.files.parallel import in_parallel
from strandline.connectors.sources.files.planning import FileOptions
from strandline.core.types import BIGINT, DOUBLE, INT, Type
from strandline.logical.catalog import BaseStream, ConnectorCall
from support import examples

NUMBERS = st.one_of(
    st.text("0123456789.+-eE ", max_size=8),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["0x10", "0X1f", "nan", "NaN", "-nan", "inf", "-Infinity", "1e400", "-1e400", "1e-400", "007", "1_0", "", '""',
         "2147483647", "2147483648", "9223372036854775808", "-9223372036854775808", "+5", " 5", "5 ", "\t5", "1.", ".5",
         "1.e3", "e3", "-", "+", ".", "1e", "1e+", "--1", "0.1000000000000000055511151231257827021181583404541015625"]
    ),
)  # fmt: skip


def rows_of(data: bytes, kind: Type, typed: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    stream = BaseStream("s", (("n", kind),), ConnectorCall("file", ("a.csv",)), None)
    with monkeypatch.context() as patch:
        if not typed:
            patch.setattr(csv_rows, "_PARSED", {})
        chunks = list(csv_rows.read_csv(data, stream, ["n"], "a.csv", 1, FileOptions(stream)))
    rows = [row for chunk in chunks for row in chunk.rows["n"].to_list()]
    return [repr(value) for value in rows], [row for chunk in chunks for row in chunk.rejected.rows()]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=3), st.sampled_from([BIGINT, INT, DOUBLE]))
@example(["0x10"], BIGINT)
@example(["1e400"], DOUBLE)
def test_numbers_are_those_of_a_cast(texts: list[str], kind: Type) -> None:
    data = "".join(f"{text}\n" for text in texts).encode()
    with pytest.MonkeyPatch.context() as patch:
        assert rows_of(data, kind, True, patch) == rows_of(data, kind, False, patch)


def test_clean_numbers_are_parsed_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BaseStream("s", (("n", BIGINT), ("x", DOUBLE)), ConnectorCall("file", ("a.csv",)), None)
    monkeypatch.setattr(csv_rows, "_parse_or_halve", None)
    (chunk,) = csv_rows.read_csv(b"1,0.5\n2,\n", stream, ["n", "x"], "a.csv", 1, FileOptions(stream))
    assert isinstance(chunk, Chunk) and chunk.rows.rows() == [(1, 0.5), (2, None)]


def test_units_are_read_side_by_side_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 1_000)
    start = datetime(2024, 1, 1)
    lines = [f"{n},{start + timedelta(seconds=n)}" if n % 97 else f"x,{start}" for n in range(2_000)]
    (tmp_path / "a.csv").write_text("n,ts\n" + "\n".join(lines))
    answers = []
    for threads in (1, 4):
        monkeypatch.setattr("strandline.connectors.sources.files.parallel.cores", lambda threads=threads: threads)
        with sl.connect(engine="local") as db:
            db.sql(f"CREATE STREAM s (n INT, ts TIMESTAMP) SOURCE file('{tmp_path}/a.csv') ORDERED BY ts")
            query = db.sql("SELECT n FROM s")
            query.await_end()
            answers.append((query.results("polars").rows(), query.rejected("s", "polars").rows()))
            assert query.heartbeats["s"].late == 0 if isinstance(query.heartbeats, dict) else True
    assert answers[0] == answers[1] and len(answers[0][1]) == 21


def test_results_keep_their_order() -> None:
    assert list(in_parallel(lambda part: part * 2, range(50), 4)) == list(range(0, 100, 2))

    def fail(part: int) -> int:
        if part == 3:
            raise ValueError(part)
        return part

    taken: list[int] = []
    with pytest.raises(ValueError, match="3"):
        taken.extend(in_parallel(fail, range(10), 2))
    assert pl.Series(taken).is_sorted()

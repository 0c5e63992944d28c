"""What is bad in a file is set aside, row by row, row group by row group or as a file; everything else is applied."""

from __future__ import annotations

import gzip
import io
import os
import random
import stat
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_files import COLUMNS, KINDS, ROWS, balanced, csv_bytes, damage, json_bytes, moment, parquet_bytes, read_all

import strandline as sl
from strandline.connectors.sources.conversion import conform
from strandline.connectors.sources.files import planning, records
from strandline.connectors.sources.files.content import FileFormat
from strandline.connectors.sources.files.planning import FileOptions
from strandline.connectors.sources.files.records import split
from strandline.connectors.sources.files.units import FileUnit
from strandline.connectors.sources.json_lines import conform_lines
from strandline.core.errors import ParseError, SourceError
from strandline.core.types import INT, TIMESTAMP, VARCHAR
from strandline.database.database import Database
from strandline.database.query import Query
from strandline.logical.catalog import BadInputPolicy, BaseStream, ConnectorCall
from strandline.runtime.bad_input import check_bad_input
from strandline.runtime.watermark import SourceStatus, check_balance

ROUNDS = 24 if not os.environ.get("STRANDLINE_LONG") else 1_000  # of eight damaged files each


def reasons(query: Query) -> list[tuple[int, str]]:
    return sorted((row["row"], row["reason"]) for row in query.rejected("s").to_pylist())


def keys(query: Query) -> list[int]:
    return sorted(query.results()["k"].to_pylist())


def test_rows_are_rejected_behind_a_chunk_without_any() -> None:
    stream = BaseStream("s", (("k", INT),), ConnectorCall("file", ("x",)), None)
    chunks = [pl.DataFrame({"k": texts}) for texts in (["1", "2"], ["x"], ["3", "y"])]
    rejected = conform(pl.concat(chunks), stream, "there", 1).rejected
    assert rejected["row"].to_list() == [3, 5]
    assert rejected["reason"].to_list() == ["k: 'x' is not INT", "k: 'y' is not INT"]


# Random damage


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damaged_files_cost_what_is_damaged_and_no_more(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    sound = set(chance.sample(range(12), 4))
    for number in range(12):
        data = KINDS[kind](1_000 * number)
        (tmp_path / f"{number:02d}.{kind}").write_bytes(data if number in sound else damage(data, chance))
    query = read_all(tmp_path / f"*.{kind}")
    counts = balanced(query)
    applied = Counter(query.results()["k"].to_pylist())
    assert all(applied[1_000 * number + row] for number in sound for row in range(ROWS))
    assert not {Path(row["place"]).name for row in query.rejected("s").to_pylist()} & {f"{n:02d}.{kind}" for n in sound}
    # However the content is cut into units and batches, the same rows are applied and the same are rejected.
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", chance.choice((100, 700)))
    monkeypatch.setattr(planning, "STREAM_UNIT_BYTES", chance.choice((100, 700)))
    again = read_all(tmp_path / f"*.{kind}", batch_rows=chance.choice((10, 100)))
    assert balanced(again) == counts
    assert reasons(again) == reasons(query)
    assert Counter(map(str, again.results().to_pylist())) == Counter(map(str, query.results().to_pylist()))


ODD_LINES = [
    b'{"k": 1, "v": "a", "ts": "2024-01-01"}',
    b'{"k": 2, "v": "\\ud800", "ts": "2024-01-01"}',
    b'{"k": 3, "v": "\\udc00\\ud800", "ts": "2024-01-01"}',
    b'{"k": 4, "v": "\\ud83d\\ude00", "ts": "2024-01-01"}',
    b'{"k": 5, "v": "\\\\ud800", "ts": "2024-01-01"}',
    b'{"k": 6, "v": "\xff", "ts": "2024-01-01"}',
    b'{"k": 7, "v": [1, {"a": 2}], "ts": "2024-01-01"}',
    b'{"k": [8], "v": "a", "ts": "2024-01-01"}',
    b'{"k": 9, "v": "a", "ts": "2024-01-01"} x',
    b'{"k": 10, "v": "a", "ts": "2024-01-01"}{"k": 10}',
    b'{"k": 11, "v": NaN, "ts": "2024-01-01"}',
    b'{"k": 12, "v": 1e400, "ts": "2024-01-01"}',
    b'{"k": 13, "v": ' + b"9" * 5_000 + b', "ts": "2024-01-01"}',
    b'{"k": 14, "v": ' + b"[" * 300 + b"]" * 300 + b', "ts": "2024-01-01"}',
    b'{"k": 15, "more": ' + b"[" * 3_000 + b"]" * 3_000 + b', "ts": "2024-01-01"}',
    b'{"k": 16, "v": "a\tb", "ts": "2024-01-01"}',
    b'{"k": 17, "v": "a", "ts": "2024-01-01"}\x00',
    b'\xef\xbb\xbf{"k": 18, "v": "a", "ts": "2024-01-01"}',
    b'{"k": 19, "v": "a", "v": "b", "ts": "2024-01-01"}',
    b'{"k": 20, "v": "a", "ts": "2024-01-01"}\r',
    b"",
    b"   ",
    b"null",
    b'"{}"',
    b"{}",
    b"[]",
    b'{"k": 21, "v": "\\u12", "ts": "2024-01-01"}',
    b'{"k": 22, "v": "\\UD800", "ts": "2024-01-01"}',
    b'{"k": 23, "\\ud800": "a", "v": "b", "ts": "2024-01-01"}',
    b'{"k": 24, "v": "\\ud83d\\u0041", "ts": "2024-01-01"}',
    b"\x0c{}",
    b"{'k': 25}",
    b'{"k": 26, "ts": "2024-01-01",}',
]


def test_whether_a_line_is_accepted_depends_on_that_line_alone() -> None:
    stream = BaseStream("s", (("k", INT), ("v", VARCHAR), ("ts", TIMESTAMP)), ConnectorCall("file"), "ts")

    def verdicts(lines: list[bytes]) -> list[object]:
        """What becomes of each line: its row, or why it is none."""
        found: dict[int, object] = {}
        numbers = pl.int_range(len(lines), eager=True)
        for chunk in conform_lines(b"\n".join(lines), stream, "x", numbers):
            for _, row, reason, content in chunk.rejected.rows():
                found[row] = (reason, content)
            rows.extend(chunk.rows.rows())
            assert chunk.count == chunk.rows.height + chunk.rejected.height
        return [found.get(n) for n in range(len(lines))]

    rows: list[tuple[object, ...]] = []
    alone = {}
    for line in ODD_LINES:
        rows.clear()
        alone[line] = (verdicts([line])[0], list(rows))
    chance = random.Random(12)
    for _ in range(200 if not os.environ.get("STRANDLINE_LONG") else 20_000):
        group = [chance.choice(ODD_LINES) for _ in range(chance.choice((1, 2, 3, 9, 40)))]
        rows.clear()
        assert verdicts(group) == [alone[line][0] for line in group]
        assert rows == [row for line in group for row in alone[line][1]]
    accepted = {line for line in ODD_LINES if alone[line][0] is None}
    assert ODD_LINES[0] in accepted and ODD_LINES[3] in accepted and ODD_LINES[4] in accepted
    assert not accepted & {ODD_LINES[1], ODD_LINES[2], ODD_LINES[5], ODD_LINES[7], ODD_LINES[8]}


def test_records_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    stream = BaseStream("s", (), ConnectorCall("file"), None)
    for _ in range(1_500):
        field_end = chance.choice((b",", b";"))
        pieces = (b"a", b"bb", b",", field_end, b"\n", b"\n", b"\r", b"\r\n", b'"', b'"', b'""')
        data = b"".join(chance.choice(pieces) for _ in range(40))
        longest = chance.choice((3, 10, 1_000))
        monkeypatch.setattr(records, "QUOTED_SPAN", chance.choice((6, 2**20)))
        for delimiter in (field_end.decode(), None):
            whole = split(data, delimiter, longest, final=True)
            assert whole.end == len(data)
            block = chance.choice((1, 2, 7, 30))
            facts = FileUnit("f", row=1, kind="json" if delimiter is None else "csv")
            options = FileOptions(stream, max_line=longest, delimiter=delimiter or ",")
            units = list(planning._scan(io.BytesIO(data), facts, FileFormat(), options, True, block))
            assert [unit.begin for unit in units[1:]] == [unit.end for unit in units[:-1]]
            assert [unit.row for unit in units[1:]] == [unit.row + unit.rows for unit in units[:-1]]
            assert units[-1].end == len(data) and sum(unit.rows for unit in units) == len(whole)
            ends = [0]
            for unit in units:
                part = data[unit.begin : unit.end]
                inner = split(part, delimiter, longest, final=True)
                if unit.problem is None:
                    ends += (inner.ends + unit.begin).tolist()
                else:
                    ends.append(unit.end)
            assert ends[1:] == whole.ends.tolist(), data


# One by one


def write(path: Path, *lines: str) -> Path:
    path.write_text("k,v,ts\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("beginning", [b"\x1f\x8b", b"(\xb5/\xfd", b"\x78\x9c", gzip.compress(b'{"k": 3}', mtime=0)])
def test_lines_are_not_decompressed(tmp_path: Path, beginning: bytes) -> None:
    """Polars takes what begins like a compressed file for one."""
    stream = BaseStream("s", (("k", INT),), ConnectorCall("file"), None)
    data = beginning.replace(b"\n", b"") + b'\n{"k": 1}'
    chunks = list(conform_lines(data, stream, "x", pl.int_range(2, eager=True)))
    assert [row for chunk in chunks for row in chunk.rows.get_column("k").to_list()] == [1]
    assert sum(chunk.rejected.height for chunk in chunks) == 1


def test_bytes_that_are_no_text_cost_their_row(tmp_path: Path) -> None:
    data = csv_bytes(0).replace(b"t30", b"t\xff\xfe30")
    (tmp_path / "a.csv").write_bytes(data)
    query = read_all(tmp_path / "a.csv")
    assert keys(query) == [k for k in range(ROWS) if k != 30]
    (row,) = query.rejected("s").to_pylist()
    assert (row["row"], row["reason"]) == (32, "not text in the encoding of the file")
    assert row["content"] == f"30,t\\xff\\xfe30,{moment(30)}"
    (tmp_path / "b.jsonl").write_bytes(json_bytes(0).replace(b"text \\u00e9 7", b"\xc3(", 1))
    query = read_all(tmp_path / "b.jsonl")
    assert keys(query) == [k for k in range(ROWS) if k != 7]
    assert reasons(query) == [(8, "not UTF-8")]


def test_a_quote_that_is_never_closed_costs_its_line(tmp_path: Path) -> None:
    lines = [f"{k},text,{moment(k)}" for k in range(40)]
    lines[3] = f'3,"two\nlines, and ""quotes""",{moment(3)}'
    lines[20] = f'20,"open,{moment(20)}'
    lines[25] = f'25,5" pipe,{moment(25)}'
    query = read_all(write(tmp_path / "a.csv", *lines))
    assert keys(query) == [k for k in range(40) if k != 20]
    assert reasons(query) == [(22, "a quote that is never closed")]
    texts = {row["k"]: row["v"] for row in query.results().to_pylist()}
    assert texts[3] == 'two\nlines, and "quotes"' and texts[25] == '5" pipe'


def test_a_quoted_text_may_go_over_lines_for_a_megabyte(tmp_path: Path) -> None:
    short, long = "x" * 99 + "\n", "y" * 99 + "\n"
    lines = [
        f'0,"{short * 10_000}",{moment(0)}',
        f'1,"{long * 10_600}",{moment(1)}',
        f"2,text,{moment(2)}",
    ]
    query = read_all(write(tmp_path / "a.csv", *lines))
    assert keys(query) == [0, 2]
    counts = balanced(query)
    assert counts["rejected"] == 10_601 and reasons(query)[0] == (3, "a quote that is never closed")


def test_rows_with_too_few_or_too_many_fields_go_aside(tmp_path: Path) -> None:
    lines = [f"{k},a,{moment(k)}" for k in range(6)]
    lines[1], lines[4] = "1,a", f"4,a,{moment(4)},more"
    query = read_all(write(tmp_path / "a.csv", *lines, "", ""))
    assert keys(query) == [0, 2, 3, 5]
    assert reasons(query) == [(3, "2 fields instead of 3"), (6, "4 fields instead of 3")]


def test_a_line_of_a_hundred_megabytes_is_passed_over(tmp_path: Path) -> None:
    for name, before, after in (
        ("a.csv", f"k,v,ts\n0,a,{moment(0)}\n", f"\n1,a,{moment(1)}\n"),
        ("a.jsonl", f'{{"k": 0, "ts": "{moment(0)}"}}\n', f'\n{{"k": 1, "ts": "{moment(1)}"}}\n'),
    ):
        with (tmp_path / name).open("wb") as file:
            file.write(before.encode())
            for _ in range(100):
                file.write(b"x" * 2**20)
            file.write(after.encode())
        query = read_all(tmp_path / name)
        assert keys(query) == [0, 1]
        (row,) = query.rejected("s").to_pylist()
        assert row["reason"] == "a line of more than 16,777,216 bytes" and row["content"] == "x" * 1_000
        assert row["row"] == (3 if name == "a.csv" else 2)


def test_max_line_is_an_option(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"0,{'a' * 50},{moment(0)}", f"1,{'a' * 51},{moment(1)}")
    longest = len(f"0,{'a' * 50},{moment(0)}")
    query = read_all(path, options=f", max_line => {longest}")
    assert keys(query) == [0] and reasons(query) == [(3, f"a line of more than {longest} bytes")]
    with pytest.raises(SourceError, match="max_line"):
        read_all(path, options=", max_line => 0")


def damaged_parquet(path: Path, at: int) -> None:
    data = bytearray(parquet_bytes(0))
    data[at : at + 12] = b"\xff" * 12
    path.write_bytes(data)


def test_a_damaged_page_costs_its_row_group(tmp_path: Path) -> None:
    damaged_parquet(tmp_path / "a.parquet", 4)
    query = read_all(tmp_path / "a.parquet")
    assert keys(query) == list(range(20, ROWS))
    (row,) = query.rejected("s").to_pylist()
    assert row["row"] == 1 and row["reason"].startswith("row group 0 with 20 rows cannot be read: ")


def test_which_rows_are_late_does_not_depend_on_a_damaged_row_group(tmp_path: Path) -> None:
    """The times of a row group that is rejected count, whoever reads the one before: a task that only looks at the
    times, or one that reads everything."""
    table = pa.table(
        {
            "k": pa.array([1, 2, 3, 4], pa.int32()),
            "v": ["a" * 50, "b" * 50, "c" * 50, "d" * 50],
            "ts": pa.array([100, 900, 200, 950], pa.timestamp("s")).cast(pa.timestamp("us")),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1, compression="none", use_dictionary=False)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"b" * 50, b"\xff" * 50))
    results = []
    for tasks in (1, 4):
        with pytest.MonkeyPatch.context() as patch, sl.connect(engine="local") as database:
            patch.setattr("strandline.connectors.sources.file.TASK_ROWS", 1)
            patch.setattr("strandline.runtime.offsets.OffsetPlanner.tasks_per_source", tasks, raising=False)
            database.sql(f"CREATE STREAM s {COLUMNS} SOURCE file('{path}') ORDERED BY ts")
            query: Query = database.sql("SELECT k, v FROM s")
            query.await_end(60)
            results.append((keys(query), query.late("s")["k"].to_pylist(), balanced(query)))
    assert results[0] == results[1] == ([1, 4], [3], {"read": 4, "applied": 2, "late": 1, "rejected": 1})


def test_values_of_other_shapes_go_aside(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array([[1], None, [2, 3]]),
            "v": pa.array([{"a": 1}, {"a": 2}, None]),
            "ts": pa.array([0, 1, 2], pa.timestamp("us")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    query = read_all(tmp_path / "a.parquet")
    assert balanced(query) == {"read": 3, "applied": 0, "late": 0, "rejected": 3}
    assert reasons(query)[0] == (1, "k: '{\"k\":[1]}' is not INT")
    binary = table.set_column(0, "k", pa.array([b"\xff", b"1", None])).set_column(
        1, "v", pa.array([b"\xfe", None, b"a"])
    )
    pq.write_table(binary, tmp_path / "b.parquet")
    assert balanced(read_all(tmp_path / "b.parquet"))["rejected"] == 3
    (tmp_path / "c.jsonl").write_text('{"k": [1], "ts": "2024-01-01"}\n{"k": {"a": 1}, "ts": "2024-01-01"}\n')
    assert balanced(read_all(tmp_path / "c.jsonl"))["rejected"] == 2


@pytest.mark.parametrize(
    "times",
    [
        pa.array([2**62, 0], pa.timestamp("ms")),
        pa.array([-(2**62), 0], pa.timestamp("ns")),
        pa.array([2**31 - 1, 0], pa.date32()),
        pa.array([float("nan"), 0.0], pa.float64()),
        pa.array([None, 0], pa.int64()),
        pa.array([2**63, 0], pa.uint64()),
    ],
    ids=str,
)
@pytest.mark.parametrize("declared", ["TIMESTAMP", "DATE", "BIGINT"])
def test_times_out_of_range_go_aside(times: pa.Array, declared: str, tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "ts": times})
    pq.write_table(table, tmp_path / "a.parquet", version="2.6")
    query = read_all(tmp_path / "a.parquet", columns=f"(k INT, v VARCHAR, ts {declared})")
    assert balanced(query)["read"] == 2
    assert 1 not in keys(query) or str(times.type) == "timestamp[ns]"


def test_columns_that_are_there_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"k,v,k,ts\n1,a,2,{moment(0)}\n")
    write(tmp_path / "b.csv", f"3,a,{moment(0)}")
    (tmp_path / "c.csv").write_text(f"k,more,v,more,ts\n4,,a,,{moment(0)}\n")
    query = read_all(tmp_path / "*.csv")
    assert keys(query) == [3, 4] and reasons(query) == [(1, "column k occurs 2 times")]
    fields = [("k", pa.int32()), ("v", pa.string()), ("v", pa.string()), ("ts", pa.timestamp("us"))]
    table = pa.Table.from_arrays(
        [pa.array([1], pa.int32()), ["a"], ["b"], pa.array([0], fields[3][1])], schema=pa.schema(fields)
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(parquet_bytes(0))
    query = read_all(tmp_path / "*.parquet")
    assert len(keys(query)) == ROWS and reasons(query) == [(1, "column v occurs 2 times")]


def test_a_column_that_all_files_lack_is_a_mistake_of_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n1,2024-01-01\n")
    (tmp_path / "b.csv").write_text("k,ts\n1,2024-01-01\n")
    with pytest.raises(SourceError, match='column "v" of stream "s" is not in') as caught:
        read_all(tmp_path / "*.csv")
    assert caught.value.code == "missing-column" and caught.value.hint == "The file has k, ts."
    write(tmp_path / "c.csv", f"1,a,{moment(0)}")
    query = read_all(tmp_path / "*.csv")
    assert keys(query) == [1] and balanced(query)["rejected"] == 2


def test_things_that_are_no_files(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", f"1,a,{moment(0)}")
    (tmp_path / "b.csv").symlink_to(tmp_path / "nowhere.csv")
    (tmp_path / "c.csv").mkdir()
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "e.csv")
    (tmp_path / "f.csv").touch()
    (tmp_path / "g.csv").write_text("k,v,ts\n")
    (tmp_path / "h.csv").write_text("k,v,ts")
    query = read_all(tmp_path / "*.csv")
    assert keys(query) == [1]
    places = {Path(row["place"]).name: row["reason"] for row in query.rejected("s").to_pylist()}
    assert set(places) == {"b.csv", "c.csv", "e.csv"}
    assert places["c.csv"] == "this is a directory" and places["e.csv"] == "this is no regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", f"1,a,{moment(0)}")
    write(tmp_path / "b.csv", f"2,a,{moment(0)}").chmod(stat.S_IWUSR)
    query = read_all(tmp_path / "*.csv")
    assert keys(query) == [1] and balanced(query)["rejected"] == 1


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """Arrow aborts over some fields of a column that do not go together, such as histograms of another length."""
    data = bytearray(parquet_bytes(0))
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in range(begin, len(data) - 8, 7):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        (tmp_path / f"{at:06d}.parquet").write_bytes(changed)
    query = read_all(tmp_path / "*.parquet")
    assert balanced(query)["rejected"] > 0


def test_a_footer_that_lies_is_not_believed(tmp_path: Path) -> None:
    data = parquet_bytes(0)
    (tmp_path / "a.parquet").write_bytes(data[:4] + data[700:])  # pages beyond the end of the file
    (tmp_path / "b.parquet").write_bytes(parquet_bytes(100))
    query = read_all(tmp_path / "*.parquet")
    assert set(range(100, 100 + ROWS)) <= set(keys(query))
    assert balanced(query)["rejected"] >= 1


def test_corrupt_compressed_files_are_rejected_and_cut_off_ones_read_as_far_as_they_go(tmp_path: Path) -> None:
    whole = gzip.compress(csv_bytes(0), mtime=0)
    corrupt = bytearray(gzip.compress(csv_bytes(100), compresslevel=0, mtime=0))
    corrupt[500] ^= 1  # a stored block: only the checksum at the end tells
    (tmp_path / "a.csv.gz").write_bytes(corrupt)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(csv_bytes(200), compresslevel=0, mtime=0)[:-700])
    (tmp_path / "c.csv.gz").write_bytes(whole + b"garbage")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(csv_bytes(300), mtime=0) + b"\0" * 512)
    (tmp_path / "e.csv.gz").touch()
    query = read_all(tmp_path / "*.gz")
    found = keys(query)
    assert [k for k in found if k < 100] == list(range(ROWS))
    assert not [k for k in found if 100 <= k < 200]
    assert [k for k in found if 200 <= k < 300][:30] == list(range(200, 230))
    assert [k for k in found if k >= 300] == list(range(300, 300 + ROWS))
    why = {Path(row["place"]).name: row["reason"] for row in query.rejected("s").to_pylist() if row["row"] != 50}
    assert "damaged" in why["a.csv.gz"] and "truncated" in why["b.csv.gz"] and "trailing data" in why["c.csv.gz"]
    assert not {"d.csv.gz", "e.csv.gz"} & set(why)


# Stopping


def stopping(tmp_path: Path, clause: str, bad: int, good: int = 300) -> Query:
    lines = [f"{k},a,{moment(k % 3000)}" for k in range(good)]
    step = max(1, good // max(bad, 1))
    for n in range(bad):
        lines[n * step] = "x" + lines[n * step]
    write(tmp_path / "a.csv", *lines)
    with sl.connect(engine="local", batch_rows=50) as database:
        database.sql(f"CREATE STREAM s {COLUMNS} SOURCE file('{tmp_path}/a.csv') ORDERED BY ts WITHIN 1 DAY {clause}")
        query: Query = database.sql("SELECT k, v FROM s")
        query.await_end(60)
        return query


@pytest.mark.parametrize(
    ("clause", "bad", "stops"),
    [
        ("", 5, False),
        ("ON BAD INPUT SKIP", 5, False),
        ("ON BAD INPUT STOP", 0, False),
        ("ON BAD INPUT STOP", 1, True),
        ("ON BAD INPUT STOP AFTER 4", 4, False),
        ("ON BAD INPUT STOP AFTER 4 ROWS", 5, True),
        ("ON BAD INPUT STOP AFTER 1 PERCENT", 3, False),
        ("ON BAD INPUT STOP AFTER 1 PERCENT", 4, True),
    ],
)
def test_bad_input_stops_where_it_is_told_to(tmp_path: Path, clause: str, bad: int, stops: bool) -> None:
    if not stops:
        query = stopping(tmp_path, clause, bad)
        assert balanced(query)["rejected"] == bad
        return
    with pytest.raises(SourceError) as caught:
        stopping(tmp_path, clause, bad)
    assert caught.value.code == "bad-input"
    assert caught.value.detail is not None and "a.csv, row 2: k: 'x0' is not INT" in caught.value.detail


def test_a_restart_decides_alike_and_another_clause_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"1,a,{moment(0)}", f"x,a,{moment(1)}", f"3,a,{moment(2)}")

    def run(clause: str) -> Query:
        with sl.connect(engine="local", checkpoint=tmp_path / "checkpoint") as database:
            database.sql(f"CREATE STREAM s {COLUMNS} SOURCE file('{path}') ORDERED BY ts {clause}")
            query: Query = database.sql("SELECT k, v FROM s", sink=sl.Parquet(tmp_path / "out"), name="q")
            query.await_end(60)
            return query

    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            run("ON BAD INPUT STOP")
        assert caught.value.code == "bad-input"
    assert balanced(run("ON BAD INPUT SKIP")) == {"read": 3, "applied": 2, "late": 0, "rejected": 1}
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == [1, 3]


def test_a_share_needs_a_hundred_rows() -> None:
    stream = BaseStream(
        "s", (("k", INT),), ConnectorCall("file"), None, bad_input=BadInputPolicy(True, most_share=0.01)
    )
    check_bad_input(stream, SourceStatus("s", rows=98, rejected=1, read=99))
    with pytest.raises(SourceError):
        check_bad_input(stream, SourceStatus("s", rows=98, rejected=2, read=100))
    check_bad_input(stream, SourceStatus("s", rows=198, rejected=2, read=200))


def test_rows_that_are_unaccounted_for_are_an_error() -> None:
    check_balance(SourceStatus("s", rows=5, late=2, rejected=1, read=8, dropped={"q": 5}))
    for status in (SourceStatus("s", rows=5, read=6), SourceStatus("s", rows=5, read=5, dropped={"q": 6})):
        with pytest.raises(AssertionError):
            check_balance(status)


@pytest.mark.parametrize(
    "clause", ["ON BAD", "ON BAD INPUT", "ON BAD INPUT STOP AFTER", "ON BAD INPUT STOP AFTER 101 PERCENT"]
)
def test_mistakes_in_the_clause_are_pointed_at(clause: str) -> None:
    with sl.connect(engine="local") as database, pytest.raises(ParseError) as caught:
        database.sql(f"CREATE STREAM s (k INT) SOURCE rows((1)) {clause}")
    assert caught.value.span is not None


@pytest.mark.spark
def test_spark_moves_former_what_the_local_engine_moves_former(tmp_path: Path, spark_database: Database) -> None:
    chance = random.Random(5)
    for number in range(20):
        kind = list(KINDS)[number % len(KINDS)]
        data = KINDS[kind](1_000 * number)
        (tmp_path / f"{number:02d}.{kind}").write_bytes(damage(data, chance) if number % 2 else data)
    local = read_all(tmp_path / "*")
    database = spark_database
    database.sql(f"CREATE STREAM s {COLUMNS} SOURCE file('{tmp_path}/*') ORDERED BY ts WITHIN 250000 DAYS")
    query: Query = database.sql("SELECT k, v FROM s")
    query.await_end(120)
    assert balanced(query) == balanced(local)
    assert keys(query) == keys(local)
    assert reasons(query) == reasons(local)
    database.sql("DROP STREAM s CASCADE")

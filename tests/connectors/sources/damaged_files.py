"""Damaged input, made from sound input by a seed: what the tests of bad files read."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from strandline.database.query import Query

COLUMNS = "(k INT, v VARCHAR, ts TIMESTAMP)"
ROWS = 60


def moment(number: int) -> str:
    return f"2024-01-01 00:{number // 60:02d}:{number % 60:02d}"


def csv_bytes(first: int, count: int = ROWS) -> bytes:
    lines = [
        f'{n},"text {n}",{moment(n - first)}' if n % 3 else f"{n},t{n},{moment(n - first)}"
        for n in numbers(first, count)
    ]
    return ("k,v,ts\n" + "\n".join(lines) + "\n").encode()


def json_bytes(first: int, count: int = ROWS) -> bytes:
    lines = [f'{{"k": {n}, "v": "text \\u00e9 {n}", "ts": "{moment(n - first)}"}}' for n in numbers(first, count)]
    return ("\n".join(lines) + "\n").encode()


def parquet_bytes(first: int, count: int = ROWS) -> bytes:
    table = pa.table(
        {
            "k": pa.array(numbers(first, count), pa.int32()),
            "v": [f"text {n}" for n in numbers(first, count)],
            "ts": pa.array([(n - first) * 1_000_000 for n in numbers(first, count)], pa.timestamp("us")),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=20, compression="snappy")
    return file.getvalue()


def zstd_bytes(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue())


def numbers(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


KINDS: dict[str, Callable[[int], bytes]] = {
    "csv": csv_bytes,
    "jsonl": json_bytes,
    "parquet": parquet_bytes,
    "csv.gz": lambda first: gzip.compress(csv_bytes(first), mtime=0),
    "jsonl.gz": lambda first: gzip.compress(json_bytes(first), mtime=0),
    "csv.zst": lambda first: zstd_bytes(csv_bytes(first)),
    "csv.bz2": lambda first: bz2.compress(csv_bytes(first)),
}


def damage(data: bytes, chance: random.Random) -> bytes:
    """One to four accidents, each of a kind that disks, networks and people have."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 2, 8, 64, 500)))
        match chance.randrange(12):
            case 0:
                data = data[:at]
            case 1:
                data = (
                    data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
                    if at < len(data)
                    else data
                )
            case 2:
                data = data[:at] + chance.randbytes(end - at) + data[end:]
            case 3:
                data = data[:at] + b"\0" * (end - at) + data[end:]
            case 4:
                data = data[:at] + data[end:]
            case 5:
                data = data[:end] + data[at:]
            case 6:
                data = (
                    data[:at]
                    + chance.choice((b'"', b"\n", b"\r", b",", b"\xff\xfe", b"\\ud800", b"{", b"}"))
                    + data[at:]
                )
            case 7:
                data = data[at:]
            case 8:
                data = data.replace(b"\n", chance.choice((b"\r", b"\r\n", b"\n\n")))
            case 9:
                data += chance.randbytes(chance.randrange(40))
            case 10:
                data = (
                    data[:at] + chance.choice((b"[1, 2]", b"1e999", b"null", b"9" * 400, "\u2028".encode())) + data[at:]
                )
            case 11:
                data = b"" if chance.random() < 0.2 else data[: at // 2] + data[at // 2 + 1 :]
    return data


def read_all(pattern: Path | str, batch_rows: int = 10_000, options: str = "", columns: str = COLUMNS) -> Query:
    """Everything that files have, without windows: an answer row for each accepted row."""
    with sl.connect(engine="local", batch_rows=batch_rows) as database:
        database.sql(f"CREATE STREAM s {columns} SOURCE file('{pattern}'{options}) ORDERED BY ts WITHIN 250000 DAYS")
        query: Query = database.sql("SELECT k, v FROM s")
        query.await_end(120)
        return query


def balanced(query: Query) -> dict[str, int]:
    """The counts of the stream, after a look at whether they add up."""
    metrics = query.metrics()
    counts = {name: metrics[name]["s"] for name in ("read", "applied", "late", "rejected")}
    assert counts["read"] == counts["applied"] + counts["late"] + counts["rejected"], counts
    assert query.rejected("s").num_rows == counts["rejected"]
    return counts

"""Kinds of trials with damaged input: the bad unit is set aside and counted, and everything else goes on.

A trial is a directory of small files, half of them damaged, read on the local engine. The law of balance, *rows read =
applied + late + rejected (+ dropped)*, is asserted from what the query says of itself, and against its results; rows of
files that were not damaged must all be there, once, as they are.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from attack.kind import Kind
from attack.verdict import Verdict, has_trace
from attack.world import World, watched_screen
from strandline.core.errors import StrandlineError
from strandline.database.query import Query

FILES: Final = 40
ROWS: Final = 4
Row: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[bytes, random.Random], bytes]

_SUFFIX: Final = {
    "csv": "csv",
    "csv.gz": "csv.gz",
    "csv.zst": "csv.zst",
    "csv.bz2": "csv.bz2",
    "json": "jsonl",
    "json.gz": "jsonl.gz",
    "json.zst": "jsonl.zst",
    "parquet": "parquet",
}


def _rows(number: int) -> list[Row]:
    return [
        {"id": number * 100 + i, "v": i / 4, "s": f"text {number}", "ts": 1_000_000 * (number * ROWS + i)}
        for i in range(ROWS)
    ]


def encode(rows: list[Row], form: str) -> bytes:
    """Rows as a file of a format, before it is compressed."""
    if form.startswith("csv"):
        lines = ["id,v,s,ts", *(",".join(str(value) for value in row.values()) for row in rows)]
        return ("\n".join(lines) + "\n").encode()
    if form.startswith("json"):
        return ("\n".join(map(json.dumps, rows)) + "\n").encode()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
    return sink.getvalue()


def compress(data: bytes, form: str) -> bytes:
    match form.partition(".")[2]:
        case "gz":
            return gzip.compress(data, mtime=0)
        case "zst":
            compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
            return compressed
        case "bz2":
            return bz2.compress(data)
    return data


# ---- damage to bytes -------------------------------------------------------------------------------------------------


def flip_bits(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut_end(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def cut_begin(data: bytes, dice: random.Random) -> bytes:
    return data[dice.randrange(1, len(data)) :]


def overwrite(data: bytes, dice: random.Random) -> bytes:
    begin = dice.randrange(len(data))
    junk = dice.randbytes(dice.randrange(1, 12))
    return data[:begin] + junk + data[begin + len(junk) :]


def insert_junk(data: bytes, dice: random.Random) -> bytes:
    begin = dice.randrange(len(data) + 1)
    return data[:begin] + dice.randbytes(dice.randrange(1, 12)) + data[begin:]


def zero_end(data: bytes, dice: random.Random) -> bytes:
    keep = dice.randrange(len(data))
    return data[:keep] + bytes(len(data) - keep)


def repeat(data: bytes, dice: random.Random) -> bytes:
    return data + data


def nothing(data: bytes, dice: random.Random) -> bytes:
    return b""


def only_junk(data: bytes, dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(1, 300))


BYTES: Final[dict[str, Change]] = {
    "bits flipped": flip_bits,
    "end cut off": cut_end,
    "beginning cut off": cut_begin,
    "overwritten": overwrite,
    "junk inserted": insert_junk,
    "end zeroed": zero_end,
    "repeated": repeat,
    "empty": nothing,
    "only junk": only_junk,
}


# ---- damage to text --------------------------------------------------------------------------------------------------


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")


def _edit_line(data: bytes, dice: random.Random, edit: Callable[[bytes], bytes]) -> bytes:
    """Change one line of the content, not the header."""
    lines = _lines(data)
    first = 1 if lines[0].startswith(b"id,") else 0
    number = dice.randrange(first, len(lines) - 1)
    lines[number] = edit(lines[number])
    return b"\n".join(lines)


def _cells(*values: bytes) -> Change:
    """Another value in a cell of CSV or in a field of JSON."""

    def change(data: bytes, dice: random.Random) -> bytes:
        value = dice.choice(values)

        def edit(line: bytes) -> bytes:
            if line.startswith(b"{"):
                fields = line[1:-1].split(b", ")
                at = dice.randrange(len(fields))
                fields[at] = fields[at].partition(b": ")[0] + b": " + value
                return b"{" + b", ".join(fields) + b"}"
            cells = line.split(b",")
            cells[dice.randrange(len(cells))] = value
            return b",".join(cells)

        return _edit_line(data, dice, edit)

    return change


def _whole(change: Callable[[str], bytes]) -> Change:
    return lambda data, dice: change(data.decode())


def _line(edit: Callable[[bytes], bytes]) -> Change:
    return lambda data, dice: _edit_line(data, dice, edit)


# Damage after which all other lines must still be applied.
ROW_DAMAGE: Final[dict[str, Change]] = {
    "bad value": _cells(
        b"[1,2]", b"two", b"99999999999999999999", b"1e999", b"{}", b"true", b'"\\ud800"', b"NaN", b"-"
    ),
    "invalid UTF-8": _cells(b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"),
    "time out of range": _cells(b"9223372036854775808", b"-9223372036854775809", b"9223372036854775807"),
    "fields missing": _line(lambda line: line[: len(line) // 2]),
    "fields too many": _line(lambda line: line + b",1,2,3"),
    "NUL in a row": _line(lambda line: line[:3] + b"\0" + line[3:]),
    "empty line": _line(lambda line: b""),
    "escape characters": _cells(b'"\x1b[2J\x1b]0;x\x07"', b"%s%n{0.__class__}", b"=cmd|' /C calc'!A0"),
}
FILE_DAMAGE: Final[dict[str, Change]] = {
    "UTF-16": _whole(lambda text: text.encode("utf-16")),
    "byte order mark": _whole(lambda text: b"\xef\xbb\xbf" + text.encode()),
    "CR line ends": _whole(lambda text: text.replace("\n", "\r").encode()),
    "CRLF line ends": _whole(lambda text: text.replace("\n", "\r\n").encode()),
    "quote not closed": _line(lambda line: line.replace(b"text", b'"text', 1)),
    "other header": _whole(lambda text: text.replace("id", "key", 1).encode()),
    "duplicate column": _whole(lambda text: text.replace("v", "id", 1).encode()),
    "columns in another order": _whole(lambda text: "\n".join(reversed(text.splitlines())).encode()),
    "long line": lambda data, dice: data + b"x" * 300_000 + b"\n",
}
LOSSLESS: Final = frozenset({"byte order mark", "CRLF line ends"})  # every row is still there


# ---- trials ----------------------------------------------------------------------------------------------------------


def _other_types(rows: list[Row], dice: random.Random) -> pa.Table:
    """A Parquet file whose columns have other types, names or number."""
    table = pa.Table.from_pylist(rows)
    name = dice.choice(table.column_names)
    at = table.column_names.index(name)
    match dice.randrange(4):
        case 0:
            return table.set_column(at, name, pa.array([[1, 2]] * len(rows)))
        case 1:
            return table.drop_columns([name])
        case 2:
            return table.set_column(at, name, pa.array(["two"] * len(rows)))
    return table.set_column(at, name, pa.array([2**63 - 1] * len(rows)))


class Directory:
    """The files of a trial, and which rows must come out of them."""

    def __init__(self, path: Path, form: str, damage: str, dice: random.Random) -> None:
        self.path, self.form = path, form
        self.sure: list[Row] = []  # rows of files that are whole, and of lines that are
        self.damaged = 0
        self.speaking: list[int] = []  # damaged files that have rows all the same: some word of them must come out
        for number in range(FILES):
            rows = _rows(number)
            data = encode(rows, form)
            if dice.random() < 0.5:
                self.damaged += 1
                data = self._damage(data, rows, damage, dice)
            else:
                self.sure += rows
                data = compress(data, form)
            (path / f"{number:03d}.{_SUFFIX[form]}").write_bytes(data)

    def _damage(self, data: bytes, rows: list[Row], damage: str, dice: random.Random) -> bytes:
        if damage in BYTES:
            return BYTES[damage](compress(data, self.form), dice)
        if damage == "other types":
            sink = io.BytesIO()
            pq.write_table(_other_types(rows, dice), sink)
            return sink.getvalue()
        change = ROW_DAMAGE.get(damage) or FILE_DAMAGE[damage]
        changed = change(data, dice)
        if damage in ROW_DAMAGE:
            left = set(_lines(changed))
            lines = dict(zip(_lines(data)[1 if self.form.startswith("csv") else 0 :], rows, strict=False))
            self.sure += [row for line, row in lines.items() if line in left]
        elif damage in LOSSLESS:
            self.sure += rows
        else:
            self.speaking.append(rows[0]["id"] // 100)
        return compress(changed, self.form)


def damage_input(form: str, damage: str) -> Callable[[World, random.Random], Verdict]:
    def trial(world: World, dice: random.Random) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="strandline-input-", dir="/dev/shm") as name:
            directory = Directory(Path(name), form, damage, dice)
            with watched_screen() as screen:
                verdict = _read(directory, dice)
            if not verdict.is_violation and has_trace(screen()):
                verdict = Verdict("trace", screen()[-300:])
        return Verdict(verdict.name, f"{form}, {damage}: {verdict.note}", directory.damaged)

    return trial


def _read(directory: Directory, dice: random.Random) -> Verdict:
    batch_rows = dice.choice((3, 50, 1000))
    try:
        with sl.connect(engine="local", batch_rows=batch_rows, shards=dice.choice((1, 2))) as database:
            database.sql(
                "CREATE STREAM t (id BIGINT, v DOUBLE, s VARCHAR, ts BIGINT)"
                f" SOURCE file('{directory.path}/*.{_SUFFIX[directory.form]}') ORDERED BY ts WITHIN 100 DAYS"
            )
            query = database.sql("SELECT id, v, s, ts FROM t")
            if not query.await_end(60):
                return Verdict("hang", str(query.metrics()))
            return _balance(query, directory)
    except StrandlineError as error:
        text = " ".join(error.render().split())[:300]
        if error.code == "source-argument" and "format" in error.message:
            return Verdict("skipped", f"files of {directory.form} are not read")
        return Verdict("internal" if error.code in ("query-failed", "internal") else "misnamed", text)
    except Exception as error:
        return Verdict("internal", f"{type(error).__name__}: {error}"[:300])


def _balance(query: Query, directory: Directory) -> Verdict:
    metrics = query.metrics()
    applied, late, rejected = metrics["rows_in"]["t"], metrics["late"]["t"], metrics["rejected"]["t"]
    results = query.results().to_pylist()
    if applied != len(results):
        return Verdict("wrong", f"{applied} rows applied, {len(results)} rows in the results")
    if (late, rejected) != (len(query.late("t")), len(query.rejected("t"))):
        return Verdict("wrong", f"{late} late and {rejected} rejected rows are counted, others are kept")
    read = metrics.get("read", {}).get("t")  # earlier versions do not say it
    if read is not None and read != applied + late + rejected + metrics["dropped"]["t"]:
        return Verdict("wrong", f"{read} rows read, {applied} applied, {late} late, {rejected} rejected")
    there = Counter((row["id"], row["v"], row["s"], row["ts"]) for row in results)
    there.update((row["id"], row["v"], row["s"], row["ts"]) for row in query.late("t").to_pylist())
    missing = [row for row in directory.sure if there[tuple(row.values())] < 1]
    if missing:
        return Verdict("wrong", f"{len(missing)} sound rows are missing, {missing[0]} among them")
    heard = {row["id"] // 100 for row in results if row["id"] is not None}
    heard |= {
        int(number) for row in query.rejected("t").to_pylist() for number in re.findall(r"/(\d{3})\.", row["place"])
    }
    silent = [number for number in directory.speaking if number not in heard]
    if silent:
        return Verdict("wrong", f"rows of {len(silent)} files are neither applied nor rejected")
    return Verdict("exact")


def _kinds() -> list[Kind]:
    made = []
    for form in _SUFFIX:
        damages = [*BYTES]
        if form.startswith(("csv", "json")):
            damages += [*ROW_DAMAGE, *FILE_DAMAGE]
        if form.startswith("json"):
            damages = [d for d in damages if d not in ("columns in another order", "fields too many")]
        if form == "parquet":
            damages += ["other types"]
        trials = 12 if form in ("csv", "json", "parquet") else 6
        made += [Kind(f"input/{form}/{damage}", damage_input(form, damage), trials, "local") for damage in damages]
    return made


KINDS: Final = _kinds()

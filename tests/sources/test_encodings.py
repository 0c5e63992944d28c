"""Encodings, byte order marks, line ends and compressions: the same rows, however they are written down."""

from __future__ import annotations

import bz2
import codecs
import gzip
import itertools
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import balanced, moment, read_all, zstd_bytes

from strandline.connectors.sources.files import planning
from strandline.connectors.sources.files.content import DamagedContent, FileFormat, open_content
from strandline.core.errors import SourceError

TEXTS = ["plain", "Grüße", "naïve", "straße"]
ROWS = [(n, text, moment(n)) for n, text in enumerate(TEXTS * 5)]


def csv_text(rows: list[tuple[int, str, str]] = ROWS, end: str = "\n", header: bool = True) -> str:
    return end.join([*(["k,v,ts"] if header else []), *(f"{k},{v},{t}" for k, v, t in rows)]) + end


def json_text(end: str = "\n") -> str:
    return "".join(f'{{"k": {k}, "v": "{v}", "ts": "{t}"}}{end}' for k, v, t in ROWS)


def rows(pattern: Path, options: str = "", batch_rows: int = 10_000) -> list[tuple[int, str]]:
    query = read_all(pattern, batch_rows, options)
    assert balanced(query)["rejected"] == 0, query.rejected("s").to_pylist()
    return sorted((row["k"], row["v"]) for row in query.results().to_pylist())


EXPECTED = [(k, v) for k, v, _ in ROWS]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "latin-1", "cp1252", "iso-8859-15", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_declared_encoding_is_read(encoding: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 50)
    monkeypatch.setattr(planning, "STREAM_UNIT_BYTES", 50)
    text = csv_text() if kind == "csv" else json_text()
    (tmp_path / f"a.{kind}").write_bytes(text.encode(encoding))
    assert rows(tmp_path / f"a.{kind}", f", encoding => '{encoding}'", batch_rows=3) == EXPECTED


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"])
def test_encodings_with_several_bytes_keep_their_lines(encoding: str, tmp_path: Path) -> None:
    text = csv_text([(n, f"漢{n}", moment(n)) for n in range(50)])
    data = text.encode(encoding)
    (tmp_path / "a.csv").write_bytes(data)
    assert rows(tmp_path / "a.csv", f", encoding => '{encoding}'") == [(n, f"漢{n}") for n in range(50)]
    broken = data.replace("漢7,".encode(encoding), b"\xff\xff7,")
    (tmp_path / "a.csv").write_bytes(broken)
    query = read_all(tmp_path / "a.csv", options=f", encoding => '{encoding}'")
    assert balanced(query) == {"read": 50, "applied": 49, "late": 0, "rejected": 1}


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz"])
def test_a_byte_order_mark_tells_the_encoding(mark: bytes, encoding: str, kind: str, tmp_path: Path) -> None:
    data = mark + (json_text() if kind == "jsonl" else csv_text()).encode(encoding)
    (tmp_path / f"a.{kind}").write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    assert rows(tmp_path / f"a.{kind}") == EXPECTED


def test_utf_16_without_a_mark_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(csv_text().encode("utf-16-le"))
    (tmp_path / "b.csv").write_text(csv_text())
    query = read_all(tmp_path / "*.csv")
    assert len(query.results()) == len(ROWS)
    (row,) = query.rejected("s").to_pylist()
    assert "write encoding => 'utf-16'" in row["reason"]


def test_half_a_character_of_utf_16_costs_its_line(tmp_path: Path) -> None:
    lone = csv_text().replace("5,Grüße", "5,@").encode("utf-16-le").replace("@".encode("utf-16-le"), b"\x00\xd8")
    (tmp_path / "a.csv").write_bytes(lone + b"x")
    query = read_all(tmp_path / "a.csv", options=", encoding => 'utf-16-le'")
    assert [row["row"] for row in query.rejected("s").to_pylist()] == [7, 22]
    assert balanced(query)["applied"] == len(ROWS) - 1


def test_encodings_that_are_not_known_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_text())
    for name in ("nonsense", "base64", "rot13", "utf-7", "unicode_escape", "idna", "cp037"):
        with pytest.raises(SourceError) as caught:
            read_all(tmp_path / "a.csv", options=f", encoding => '{name}'")
        assert caught.value.code == "source-argument"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("header", [True, False])
def test_line_ends(end: str, kind: str, header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = csv_text(end=end, header=header) if kind == "csv" else json_text(end)
    (tmp_path / f"a.{kind}").write_bytes(text.encode())
    (tmp_path / f"b.{kind}").write_bytes(text.removesuffix(end).encode())
    for size in (1, 37, 2**20):
        monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", size)
        options = "" if header else ", header => false"
        assert rows(tmp_path / f"*.{kind}", options, batch_rows=5) == sorted(EXPECTED * 2)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd_bytes, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("header", [True, False])
def test_compressed_files(suffix: str, header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = csv_text(header=header).encode()
    packed = COMPRESSIONS[suffix]
    middle = text.index(b"\n", len(text) // 2) + 1
    (tmp_path / f"a.csv.{suffix}").write_bytes(packed(text))
    (tmp_path / f"b.csv.{suffix}").write_bytes(packed(text[:middle]) + packed(text[middle:]))
    (tmp_path / f"c.csv.{suffix}").write_bytes(b"" if suffix == "gz" else packed(b""))
    (tmp_path / f"d.csv.{suffix}").write_bytes(packed(text[: text.index(b"\n") + 1] if header else b""))
    options = "" if header else ", header => false"
    for size in (1, 100, 2**20):
        monkeypatch.setattr(planning, "STREAM_UNIT_BYTES", size)
        assert rows(tmp_path / f"*.{suffix}", options, batch_rows=5) == sorted(EXPECTED * 2)
    query = read_all(tmp_path / f"a.csv.{suffix}", options=options)
    assert sorted(query.results()["k"].to_pylist()) == [k for k, _ in EXPECTED]


def test_compression_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(csv_text().encode()))
    assert rows(tmp_path / "a.csv", ", compression => 'gzip'") == EXPECTED
    (tmp_path / "b.csv.gz").write_text(csv_text())
    assert rows(tmp_path / "b.csv.gz", ", compression => 'none'") == EXPECTED
    with pytest.raises(SourceError, match="compression"):
        rows(tmp_path / "a.csv", ", compression => 'lzma'")


def test_rows_of_compressed_files_have_their_numbers(tmp_path: Path) -> None:
    text = csv_text() + "x,y,z\n"
    for suffix, packed in COMPRESSIONS.items():
        path = tmp_path / f"a.csv.{suffix}"
        path.write_bytes(packed(text.encode()))
        (row,) = read_all(path).rejected("s").to_pylist()
        assert row["row"] == len(ROWS) + 2


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_decompression_bomb_does_not_take_memory(suffix: str, tmp_path: Path) -> None:
    size = 200 * 2**20
    packed = COMPRESSIONS[suffix](b"k,v,ts\n" + b"\0" * size + f"\n1,a,{moment(0)}\n".encode())
    (tmp_path / f"a.csv.{suffix}").write_bytes(packed)
    tracemalloc.start()
    query = read_all(tmp_path / f"a.csv.{suffix}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert query.results()["k"].to_pylist() == [1]
    assert balanced(query)["rejected"] == 1
    assert peak < size


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_what_comes_before_the_end_of_a_stream_that_is_cut_off_is_read_to_the_last_byte(
    suffix: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    content = b"".join(b"%d,%d\n" % (n, chance.randrange(10**9)) for n in range(30_000))
    packed = COMPRESSIONS[suffix](content)
    path = tmp_path / "x"
    form = FileFormat({"gz": "gzip", "zst": "zstd", "bz2": "bz2"}[suffix])
    lengths = []
    for cut in sorted(chance.sample(range(len(packed)), 6)):
        path.write_bytes(packed[:cut])
        found = []
        with path.open("rb") as file, pytest.raises(DamagedContent) if cut else pytest.raises(StopIteration) as caught:
            stream = open_content(file, form, 0)
            for _ in itertools.count():
                data = stream.read(2**20)
                if not data:
                    raise StopIteration
                found.append(data)
        whole = b"".join(found)
        assert content.startswith(whole)
        assert not isinstance(caught.value, DamagedContent) or caught.value.rest_only
        lengths.append(len(whole))
    assert lengths == sorted(lengths)
    if suffix != "bz2":  # which gives whole blocks
        assert lengths[-1] > len(content) * 0.1

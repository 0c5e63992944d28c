"""Files that a restart reads: what is missing, doubled, torn or altered is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.durable import (
    ChainedLog,
    DocumentKind,
    HeadFile,
    encode_name,
    query_directory,
    read_document,
    scan_chain,
    write_document,
)
from strandline.core.errors import CheckpointError
from support import examples

KIND = DocumentKind("test", 3)


def code_of(error: pytest.ExceptionInfo[CheckpointError]) -> str:
    return error.value.code


# Names


@settings(max_examples=examples(300))
@given(st.text(alphabet=st.characters(), max_size=40) | st.text(alphabet="./\\\0_-aA%", max_size=12))
def test_a_name_is_one_file_name(name: str) -> None:
    encoded = encode_name(name)
    assert encoded and "/" not in encoded and "\0" not in encoded
    assert not encoded.startswith((".", "_"))
    assert len(encoded.encode()) < 200


@settings(max_examples=examples(300))
@given(st.lists(st.text(alphabet="./\\_-aA%~25\0é" + "x" * 5, max_size=300), unique=True, max_size=20))
def test_different_names_are_different_files(names: list[str]) -> None:
    assert len({encode_name(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["tables", "Views", "EVENTS"])
def test_a_query_may_be_called_as_another_directory_of_a_database(tmp_path: Path, name: str) -> None:
    directory = query_directory(tmp_path, name)
    assert directory.parent == tmp_path and directory.name.lower() != name.lower()
    assert query_directory(tmp_path, "q").name == "q"
    assert query_directory(tmp_path, name).name != encode_name(directory.name)


@pytest.mark.parametrize("name", ["per_key", "q1", "a-b", "v1.2", "Größe", "trades"])
def test_an_ordinary_name_stays(name: str) -> None:
    assert encode_name(name) == name


def test_long_names_that_begin_alike_are_told_apart() -> None:
    one, two = encode_name("x" * 500 + "1"), encode_name("x" * 500 + "2")
    assert one != two and len(one) < 130


# Documents


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    digest = write_document(tmp_path / "d", KIND, {"a": [1, "\ud800", None]})
    assert read_document(tmp_path / "d", KIND, digest) == {"a": [1, "\ud800", None]}


@pytest.mark.parametrize("kind", [DocumentKind("other", 3), DocumentKind("test", 4)])
def test_a_document_of_another_kind_or_format_is_refused(tmp_path: Path, kind: DocumentKind) -> None:
    write_document(tmp_path / "d", KIND, 1)
    with pytest.raises(CheckpointError) as error:
        read_document(tmp_path / "d", kind)
    assert code_of(error) == ("checkpoint-version" if kind.name == "test" else "checkpoint-damaged")


@settings(max_examples=examples(200))
@given(st.data())
def test_a_damaged_document_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("document") / "d"
    write_document(path, KIND, {"rows": 1234567, "name": "x"})
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        read_document(path, KIND)
    assert code_of(error) in ("checkpoint-damaged", "checkpoint-version")
    assert str(path) in error.value.message


# Chained logs


ENTRIES = st.lists(st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=2), min_size=1, max_size=8)


@settings(max_examples=examples(60))
@given(st.lists(ENTRIES, min_size=1, max_size=5), st.integers(0, 3))
def test_a_log_is_continued_by_its_next_writer(
    tmp_path_factory: pytest.TempPathFactory, appended: list[list[object]], forget: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    everything = [entry for entries in appended for entry in entries]
    for entries in appended:
        log = ChainedLog(path)
        log.read()
        log.forget(min(forget, log.count))
        log.append(entries)
    log = ChainedLog(path)
    log.verify(len(everything), [line.digest for line in scan_chain(path)][-1])
    assert [line.entry for line in log.lines] == json.loads(json.dumps(everything))


def test_what_nobody_has_kept_is_cut_off(tmp_path: Path) -> None:
    log = ChainedLog(tmp_path / "log")
    log.append([1, 2, 3])
    with open(log.path, "ab") as file:
        file.write(b"half a li")
    again = ChainedLog(log.path)
    again.verify(2, log.digest_at(2))
    again.cut(2)
    again.append(["new"])
    assert [line.entry for line in scan_chain(log.path)] == [1, 2, "new"]


@pytest.mark.parametrize("damage", ["deleted", "shorter", "doubled", "swapped", "altered", "emptied"])
def test_a_log_that_was_changed_is_refused(tmp_path: Path, damage: str) -> None:
    log = ChainedLog(tmp_path / "log")
    log.append([10, 20, 30, 40])
    lines = log.path.read_bytes().splitlines(keepends=True)
    changed = {
        "shorter": lines[:-1],
        "doubled": [*lines[:2], *lines[1:]],
        "swapped": [lines[0], lines[2], lines[1], lines[3]],
        "altered": [lines[0].replace(b"10", b"11"), *lines[1:]],
        "emptied": [],
    }
    if damage == "deleted":
        log.path.unlink()
    else:
        log.path.write_bytes(b"".join(changed[damage]))
    with pytest.raises(CheckpointError) as error:
        ChainedLog(log.path).verify(4, log.last.digest)
    assert code_of(error) == "checkpoint-damaged"


# Heads


def test_a_head_is_the_last_value_that_was_written(tmp_path: Path) -> None:
    head = HeadFile(tmp_path / "head")
    assert head.read() is None
    for value in range(5):
        head.write([value, "x" * value])
        assert HeadFile(head.path).read() == [value, "x" * value]
    head.close()
    again = HeadFile(head.path)
    again.read()
    again.write("more")
    assert HeadFile(head.path).read() == "more"


@pytest.mark.parametrize("copy", [0, 1])
def test_damage_of_one_copy_is_no_loss(tmp_path: Path, copy: int) -> None:
    head = HeadFile(tmp_path / "head")
    for value in (1, 2, 3):
        head.write(value)
    content = bytearray(head.path.read_bytes())
    content[512 * copy + 40] ^= 255
    head.path.write_bytes(content)
    assert HeadFile(head.path).read() == 3


def test_a_write_that_was_interrupted_leaves_one_of_both_values(tmp_path: Path) -> None:
    head = HeadFile(tmp_path / "head")
    head.write("before")
    before = head.path.read_bytes()
    head.write("after")
    after = head.path.read_bytes()
    head.path.write_bytes(after[:512] + before[512:])
    assert HeadFile(head.path).read() == "after"
    head.path.write_bytes(after[:38] + before[38:512] + before[512:])
    assert HeadFile(head.path).read() == "before"


@pytest.mark.parametrize("content", [b"", b"x" * 1024, b"\0" * 1024, b"x" * 100])
def test_a_head_that_says_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "head").write_bytes(content)
    with pytest.raises(CheckpointError):
        HeadFile(tmp_path / "head").read()

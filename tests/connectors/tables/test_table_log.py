"""The log of a table: what is damaged is refused by name, what was interrupted is truncated, readers read on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import polars as pl
import pytest
from table_model import COLUMNS, Hand, K, equal, frame, number, rows_of, table_in

from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.blocks import log_schema
from strandline.connectors.tables.log import LogReader, segment_starts
from strandline.connectors.tables.statements import DeleteRows, InsertRows
from strandline.connectors.tables.store import open_table
from strandline.core import durable
from strandline.core.errors import StrandlineError
from strandline.core.types import BIGINT, VARCHAR
from strandline.logical.catalog import Table


def fill(directory: Path, statements: int = 60, first: int = 0) -> None:
    store = open_table(table_in(directory), Hand())
    for n in range(first, first + statements):
        store.commit(InsertRows(frame((n, n, f"text {n}"))))
    store.close()


def content(directory: Path) -> Counter[tuple[object, ...]]:
    store = open_table(table_in(directory), Hand())
    try:
        return rows_of(store.content())
    finally:
        store.close()


def small_files(monkeypatch: pytest.MonkeyPatch, size: int = 6_000) -> None:
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", size)


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "blocks"])
def test_every_altered_byte_is_found_or_means_nothing(
    joined: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    if not joined:
        monkeypatch.setattr(table_log, "FEWEST_JOINED", 10**9)
    fill(tmp_path / "t", 40)
    expected = content(tmp_path / "t")
    draw, refused = Random(1), 0
    for path in sorted((tmp_path / "t").iterdir()):
        if path.name in ("lock", "lease.json") or not path.stat().st_size:
            continue
        whole = path.read_bytes()
        for at in [0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(12))]:
            shutil.copytree(tmp_path / "t", tmp_path / "copy")
            altered = bytearray(whole)
            altered[at] ^= 1 << draw.randrange(8)
            (tmp_path / "copy" / path.name).write_bytes(altered)
            try:
                assert content(tmp_path / "copy") == expected, (path.name, at)
            except StrandlineError as error:
                assert error.code in ("checkpoint-damaged", "checkpoint-version"), (path.name, at)
                refused += 1
            shutil.rmtree(tmp_path / "copy")
    assert refused > 20


def test_missing_truncated_and_swapped_files_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    fill(tmp_path / "t")
    fill(tmp_path / "other")
    files = [f"{start:015d}.log" for start in segment_starts(tmp_path / "t")]
    assert len(files) >= 4
    names = [*files[:-1], "head", "table.json"]

    def refusal() -> StrandlineError:
        with pytest.raises(StrandlineError) as error:
            content(tmp_path / "copy")
        assert error.value.code == "checkpoint-damaged"
        shutil.rmtree(tmp_path / "copy")
        return error.value

    for name in names:
        shutil.copytree(tmp_path / "t", tmp_path / "copy")
        (tmp_path / "copy" / name).unlink()
        assert name.split(".")[0] in str(refusal())
    for name in names:
        shutil.copytree(tmp_path / "t", tmp_path / "copy")
        os.truncate(tmp_path / "copy" / name, (tmp_path / "t" / name).stat().st_size // 2)
        refusal()
    for name in files[:-1]:  # of a table with the same rows
        shutil.copytree(tmp_path / "t", tmp_path / "copy")
        shutil.copy(tmp_path / "other" / name, tmp_path / "copy" / name)
        refusal()
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    shutil.copy(tmp_path / "t" / files[0], tmp_path / "copy" / files[1])
    refusal()


def test_what_follows_the_head_counts_if_it_is_whole(tmp_path: Path) -> None:
    fill(tmp_path / "t", 5)
    shutil.copytree(tmp_path / "t", tmp_path / "before")
    fill(tmp_path / "t", 1, first=5)
    expected = content(tmp_path / "t")
    name = "000000000000000.log"
    data, old = (tmp_path / "t" / name).read_bytes(), (tmp_path / "before" / name).read_bytes()
    assert data.startswith(old)
    for end in range(len(old), len(data) + 1, 37):
        shutil.copytree(tmp_path / "before", tmp_path / "copy")
        (tmp_path / "copy" / name).write_bytes(data[:end])
        assert len(content(tmp_path / "copy")) == 5
        fill(tmp_path / "copy", 1, first=5)  # goes on behind the last whole block
        assert content(tmp_path / "copy") == expected
        shutil.rmtree(tmp_path / "copy")
    shutil.copytree(tmp_path / "before", tmp_path / "copy")
    (tmp_path / "copy" / name).write_bytes(data[:-200] + bytes(200))  # its length was on disk, its end was not
    assert len(content(tmp_path / "copy")) == 5
    (tmp_path / "before" / name).write_bytes(data)
    assert content(tmp_path / "before") == expected


def test_a_full_disk_leaves_the_table_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_table(table_in(tmp_path / "t"), Hand())
    store.commit(InsertRows(frame((1, 1, "a"))))
    written = durable.write_all

    def write_half(file: int, data: bytes | bytearray | memoryview) -> None:
        written(file, memoryview(data)[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_log, "write_all", write_half)
    with pytest.raises(StrandlineError) as error:
        store.commit(InsertRows(frame((1, 5, "b"), (2, 2, "b")), "update"))
    assert error.value.code == "disk-full"
    assert store.content().select("k", "v", "s").rows() == [(1, 1, "a")]
    monkeypatch.setattr(table_log, "write_all", written)
    store.commit(InsertRows(frame((1, 7, "c"), (3, 3, "c")), "update"))
    store.commit(DeleteRows(equal(K, number(3))))
    expected = rows_of(store.content())
    store.close()
    assert content(tmp_path / "t") == expected == Counter([(1, 7, "c")])


def test_readers_read_between_any_positions_while_files_grow_and_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch, 20_000)
    store = open_table(table_in(tmp_path / "t"), Hand())
    reader, draw = LogReader(tmp_path / "t", log_schema(COLUMNS)), Random(2)
    for n in range(200):
        store.commit(InsertRows(frame((n % 50, n, f"text {n}")), "update"))
        if n % 7 == 0:
            start = draw.randrange(store.reach)
            end = draw.randrange(start, store.reach) + 1
            rows = pl.concat(reader.read(start, end))
            expected = pl.concat(LogReader(tmp_path / "t", log_schema(COLUMNS)).read(0, store.reach))
            assert rows.equals(expected.slice(start, end - start))
            inserted = expected.with_row_index("at").filter(pl.col("@until") == 2**63 - 2)
            assert (inserted.get_column("at").cast(pl.Int64) == inserted.get_column("@id")).all()
    assert len(segment_starts(tmp_path / "t")) > 3
    with pytest.raises(StrandlineError) as error:
        list(reader.read(0, store.reach + 1))
    assert error.value.code == "checkpoint-damaged"
    store.close()


def test_a_table_of_another_declaration_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "t", 1)
    for other in (
        Table("t", (("k", BIGINT), ("v", VARCHAR), ("s", VARCHAR)), ("k",), directory=str(tmp_path / "t")),
        table_in(tmp_path / "t", ("k", "s")),
        table_in(tmp_path / "t", kind="constant"),
    ):
        with pytest.raises(StrandlineError) as error:
            open_table(other)
        assert error.value.code == "table-changed"
    assert len(content(tmp_path / "t")) == 1


def test_a_second_process_is_refused_by_name_and_users_of_one_share(tmp_path: Path) -> None:
    one, two = open_table(table_in(tmp_path / "t")), open_table(table_in(tmp_path / "t"))
    assert one is two
    script = (
        "import sys; from pathlib import Path; from table_model import table_in\n"
        "from strandline.connectors.tables.store import open_table\n"
        "open_table(table_in(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "t")]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)

    refused = run()
    assert refused.returncode and "error[table-busy]" in refused.stderr
    assert 'table "t"' in refused.stderr and str(tmp_path / "t") in refused.stderr
    one.close()
    assert run().returncode, "the second user has it still"
    two.close()
    assert run().returncode == 0
    with pytest.raises(StrandlineError) as error:
        one.commit(InsertRows(frame((1, 1, "a"))))
    assert error.value.code == "table-closed"


def test_threads_see_each_other_and_share_blocks(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t"))
    errors: list[BaseException] = []

    def change(number_of_thread: int) -> None:
        try:
            for n in range(50):
                store.commit(InsertRows(frame((n, number_of_thread, None)), "update"))
                reach, promised = store.promise(0)
                assert reach <= store.reach and promised > 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=change, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    history = store.history()
    assert history.height == 300 and store.row_count == 50
    assert history.get_column("@from").n_unique() == 300, "every statement has an instant of its own"
    blocks = list(LogReader(tmp_path / "t", store.log_schema).blocks(0, store.reach))
    assert len(blocks) < 300, "statements share syncs"
    store.close()

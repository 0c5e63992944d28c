"""Instants of changes, promises, marks, and the past as far as it is kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from table_model import Hand, K, TableModel, check_store, equal, frame, number, rows_of, table_in

from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.log import LogReader, read_head, segment_starts
from strandline.connectors.tables.statements import DeleteRows, InsertRows, ReplaceContent
from strandline.connectors.tables.store import RESERVED_AHEAD, open_table
from strandline.core.errors import StrandlineError
from strandline.core.temporal import LATEST, SECOND


def refused(code: str) -> Any:
    return pytest.raises(StrandlineError, check=lambda error: error.code == code)


def test_the_clock_stamps_after_the_last_change_and_after_every_promise(tmp_path: Path) -> None:
    #   clock     100    100    90     90   ·          90
    #   change    100    101    102         500        501
    #   promise                        102       500
    clock = Hand(100)
    store = open_table(table_in(tmp_path / "t"), clock)

    def change(at: int | None = None) -> int:
        return store.commit(InsertRows(frame((1, 1, None)), "update"), at=at).at

    assert [change(), change()] == [100, 101]
    clock.at = 90
    assert change() == 102
    assert store.promise(0) == (store.reach, 90)
    assert store.promise(500) == (store.reach, 500)
    assert store.promise(0) == (store.reach, 500), "a promise holds"
    assert change() == 500
    assert change() == 501
    store.close()


def test_a_given_time_is_refused_before_the_last_change_and_before_a_promise(tmp_path: Path) -> None:
    clock = Hand(0)
    store = open_table(table_in(tmp_path / "t"), clock)
    store.commit(InsertRows(frame((1, 1, None))), at=1000)
    store.commit(InsertRows(frame((2, 1, None))), at=1000)
    with refused("change-too-old"):
        store.commit(InsertRows(frame((3, 1, None))), at=999)
    store.promise(2000)
    with refused("change-too-old"):
        store.commit(InsertRows(frame((3, 1, None))), at=1999)
    with refused("bad-instant"):
        store.commit(InsertRows(frame((3, 1, None))), at=LATEST)
    assert store.commit(InsertRows(frame((3, 1, None))), at=2000).at == 2000
    (log,) = store.read(0, store.reach)
    assert log.get_column("@since").to_list() == [1000, 1000, 2000]
    store.close()


def test_a_promise_is_on_disk_before_it_is_given(tmp_path: Path) -> None:
    clock = Hand(10 * SECOND)
    store = open_table(table_in(tmp_path / "t"), clock)
    _, promised = store.promise(0)
    head = read_head(tmp_path / "t")
    assert head is not None and head.reserved == promised + RESERVED_AHEAD
    clock.at += 5 * SECOND
    store.promise(0)
    assert read_head(tmp_path / "t") == head, "within the reserve nothing is written"
    store.close()
    head = read_head(tmp_path / "t")
    assert head is not None and head.reserved == 15 * SECOND, "after an orderly end nothing is reserved"
    clock.at = 0
    store = open_table(table_in(tmp_path / "t"), clock)
    assert store.commit(InsertRows(frame((1, 1, None)))).at == 15 * SECOND
    store.close()


def test_a_marked_statement_happens_once(tmp_path: Path) -> None:
    for run in range(3):
        store = open_table(table_in(tmp_path / "t", ()))
        first = store.commit(InsertRows(frame((1, 1, None))), mark="0 INSERT INTO t VALUES (1)")
        nothing = store.commit(DeleteRows(equal(K, number(7))), mark="1 DELETE FROM t WHERE k = 7")
        assert first.repeated == nothing.repeated == (run > 0)
        store.close()
    store = open_table(table_in(tmp_path / "t", ()))
    assert store.row_count == 1
    store.close()


def test_the_position_of_a_feed_is_that_of_its_last_change(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t"))
    assert store.feed_position is None
    store.commit(ReplaceContent(frame((1, 1, None))), feed="file 7")
    store.commit(ReplaceContent(frame((1, 1, None))), feed="file 8")
    store.close()
    store = open_table(table_in(tmp_path / "t"))
    assert store.feed_position == "file 8"
    store.close()


@pytest.mark.parametrize("key", [("k",), ()], ids=["key", "bag"])
def test_what_is_older_than_keep_is_folded_and_the_rest_is_as_before(
    key: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 8_000)
    clock, model = Hand(0), TableModel(key)
    table = table_in(tmp_path / "t", key, keep_us=100)
    store = open_table(table, clock)
    monkeypatch.setattr(store, "_begin_upkeep", lambda: None)
    folded = 0
    for n in range(150):
        clock.at += 3
        statement = (
            DeleteRows(equal(K, number(n % 11))) if n % 4 == 3 else InsertRows(frame((n % 13, n, "x")), "update")
        )
        mark = f"{n}" if n == 3 else None
        committed = store.commit(statement, mark=mark)
        model.apply(statement, committed.at)
        if n % 25 == 24:
            folded += store.fold()
            since = store.retained_since
            assert clock.at - since >= 100, "all that KEEP promises is there"
            kept = TableModel(key, model.rows, {at: rows for at, rows in model.past.items() if at > since})
            kept.past[since] = model.at(since)
            for at in list(kept.past):
                assert rows_of(store.content_at(at)) == model.at(at)
            with refused("no-longer-kept"):
                store.content_at(since - 1)
            store.close()
            store = open_table(table, clock)
            monkeypatch.setattr(store, "_begin_upkeep", lambda: None)
            assert rows_of(store.content()) == rows_of(frame(*model.rows))
    assert folded >= 2
    first = segment_starts(tmp_path / "t")[0]
    assert first > 0 and len(list((tmp_path / "t").glob("*.base"))) == 1
    with refused("not-replayable"):
        list(LogReader(tmp_path / "t", store.log_schema).read(first - 1, store.reach))
    assert store.commit(DeleteRows(), mark="3").repeated, "marks outlive the past"
    store.close()
    (tmp_path / "t" / f"{first:015d}.base").write_bytes(b"")
    with refused("checkpoint-damaged"):
        open_table(table)


def test_readers_and_statements_go_on_while_the_past_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 8_000)
    clock = Hand(0)
    store = open_table(table_in(tmp_path / "t", keep_us=50), clock)
    stop, errors = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                total = store.content().get_column("v").sum()
                assert total == 10 * (total // 10), "all ten rows change together"
                assert store.history().filter(pl.col("@until") > clock.at).height >= 10
        except BaseException as error:
            errors.append(error)

    store.commit(InsertRows(frame(*((k, 0, None) for k in range(10)))))
    thread = threading.Thread(target=read)
    thread.start()
    for n in range(1, 200):
        clock.at += 1
        store.commit(InsertRows(frame(*((k, n, None) for k in range(10))), "update"))
    stop.set()
    thread.join()
    store.close()
    assert not errors
    assert segment_starts(tmp_path / "t")[0] > 0, "files that were full have started it"


def test_the_history_of_many_changes_at_one_instant_is_what_was_there_at_last(tmp_path: Path) -> None:
    store, model = open_table(table_in(tmp_path / "t"), Hand(0)), TableModel()
    for statement in (
        InsertRows(frame((1, 1, "a"))),
        InsertRows(frame((1, 2, "b")), "update"),
        DeleteRows(),
        InsertRows(frame((1, 3, "c"))),
    ):
        store.commit(statement, at=1000)
        model.apply(statement, 1000)
    check_store(store, model)
    store.close()

"""Statements over tables: random ones with restarts against a slow twin, and the cases that matter, one by one."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest
from table_model import (
    NEW_K,
    NEW_S,
    NEW_V,
    Hand,
    K,
    RefusedError,
    Row,
    S,
    TableModel,
    V,
    call,
    check_store,
    equal,
    frame,
    number,
    plus,
    table_in,
    text,
)

from strandline.connectors.tables import chunks, groups, images, key_index
from strandline.connectors.tables import content as table_content
from strandline.connectors.tables import log as table_log
from strandline.connectors.tables.statements import (
    Assignments,
    DeleteRows,
    InsertRows,
    InsertValues,
    MergeBranch,
    MergeRows,
    ReplaceContent,
    TableStatement,
    UpdateRows,
)
from strandline.connectors.tables.store import open_table
from strandline.core.errors import StrandlineError
from strandline.core.types import BIGINT, BOOLEAN, TIMESTAMP
from strandline.logical.catalog import Table
from strandline.logical.expressions import Expression
from support import LONG


def draw_row(draw: Random) -> Row:
    key = None if draw.random() < 0.02 else draw.randrange(12)
    return key, draw.choice([None, draw.randrange(5)]), draw.choice([None, "", "a", "b"])


def draw_rows(draw: Random, most: int = 5) -> pl.DataFrame:
    return frame(*(draw_row(draw) for _ in range(draw.randrange(most + 1))))


def draw_predicate(draw: Random) -> Expression | None:
    return draw.choice(
        [
            None,
            equal(K, number(draw.randrange(12))),
            equal(number(draw.randrange(12)), K),
            call("in", K, number(draw.randrange(12)), number(draw.randrange(12))),
            call("and", equal(K, number(draw.randrange(12))), call(">", V, number(1))),
            call(">", V, number(draw.randrange(5))),
            equal(S, text("a")),
            call("and", equal(K, number(1)), equal(K, number(2))),
        ]
    )


UPSERTS: tuple[Assignments, ...] = (
    (("v", plus(V, NEW_V)),),
    (("s", NEW_S), ("v", K)),
    (("k", plus(K, number(1))),),
)
UPDATES: tuple[Assignments, ...] = (
    (("v", plus(V, number(1))),),
    (("s", text("z")), ("v", K)),
    (("k", plus(K, number(1))),),
)


def draw_statement(draw: Random) -> TableStatement:
    match draw.randrange(10):
        case 0 | 1:
            return InsertRows(draw_rows(draw, 2))
        case 2:
            return InsertRows(draw_rows(draw), "ignore")
        case 3:
            return InsertRows(draw_rows(draw), "update")
        case 4:
            values = tuple(draw_row(draw) for _ in range(draw.randrange(1, 4)))
            return InsertValues(values, draw.choice(["error", "ignore", "update"]))
        case 5:
            condition = draw.choice([None, call("<", V, NEW_V)])
            return InsertRows(draw_rows(draw), "update", draw.choice(UPSERTS), condition)
        case 6:
            return UpdateRows(draw.choice(UPDATES), draw_predicate(draw))
        case 7:
            predicate = draw_predicate(draw)
            return DeleteRows(predicate if predicate is not None or draw.random() < 0.1 else equal(K, number(3)))
        case 8:
            return draw_merge(draw)
        case _:
            return ReplaceContent(draw_rows(draw, 10))


def draw_merge(draw: Random) -> MergeRows:
    condition = draw.choice([equal(K, NEW_K), equal(NEW_V, V), call("<", K, NEW_V), equal(K, plus(NEW_K, number(1)))])
    update = MergeBranch(True, "update", draw.choice([(("v", NEW_V),), (("k", NEW_K), ("s", S))]))
    branches = (
        MergeBranch(True, draw.choice(["delete", "nothing"]), (), call(">", NEW_V, number(2))),
        draw.choice([update, MergeBranch(True, "delete")]),
        MergeBranch(
            False, draw.choice(["insert", "nothing"]), (("k", NEW_K), ("v", NEW_V)), call("<", NEW_K, number(6))
        ),
        MergeBranch(False, "insert", (("k", NEW_K), ("s", NEW_S))),
    )
    return MergeRows(draw_rows(draw, 3), condition, branches[: draw.randrange(1, 5)])


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no machine stops here


@pytest.mark.parametrize("seed", range(200 if LONG else 5))
@pytest.mark.parametrize(
    ("key", "required"),
    [(("k",), ()), (("k", "s"), ()), ((), ()), (("k",), ("v",)), ((), ("v", "s"))],
    ids=["key", "two", "bag", "key not null", "bag not null"],
)
def test_random_statements_and_restarts_are_those_of_the_model(
    seed: int, key: tuple[str, ...], required: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small files and chunks: restarts meet several of each, and joined ones; those of odd seeds are mapped.
    monkeypatch.setattr(table_log, "SEGMENT_BYTES", 400 if seed % 2 else 8_000)
    if seed % 2:
        monkeypatch.setattr(chunks, "MAPPED_BYTES", 400)
        monkeypatch.setattr(key_index, "_FEWEST_BITS", 3)
        monkeypatch.setattr(key_index, "_MAPPED_BITS", 4)
    monkeypatch.setattr(table_content, "CHUNK_ROWS", 8)
    monkeypatch.setattr(images, "FEWEST_CHANGES", 5)
    draw, clock = Random(f"{seed} {key}"), Hand()
    table, model = table_in(tmp_path / "t", key, required=required), TableModel(key, required=required)
    store = open_table(table, clock)
    try:
        for step in range(60):
            clock.at += draw.choice([0, 1, 5, -3])
            statement = draw_statement(draw)
            latest = max(model.past, default=0)
            given = draw.choice([None, None, latest, latest + 7]) if latest else None
            try:
                model.apply(statement, -1)
            except RefusedError as refused:
                before = store.reach
                with pytest.raises(StrandlineError) as error:
                    store.commit(statement, at=given)
                assert error.value.code == str(refused)
                assert store.reach == before
            else:
                after = model.past.pop(-1)
                committed = store.commit(statement, at=given)
                assert committed.position == store.reach
                if committed.inserted or committed.deleted:
                    assert committed.at == given if given is not None else committed.at > latest
                    model.past[committed.at] = after
                else:
                    assert after == model.at(latest)
            if step % 20 == 7:
                store.close()
                store = open_table(table, clock)
            if step % 6 == 0:
                check_store(store, model)
        check_store(store, model)
    finally:
        store.close()


@pytest.mark.parametrize("seed", range(60 if LONG else 2))
@pytest.mark.parametrize("on_conflict", ["error", "ignore", "update"])
def test_statements_of_a_group_are_those_one_after_the_other(seed: int, on_conflict: str, tmp_path: Path) -> None:
    # Insertions of a group are evaluated together where their keys differ; the effect is that of each alone.
    draw, model, clock = Random(seed), TableModel(("k",)), Hand()
    store = open_table(table_in(tmp_path / "t"), clock)
    store.close()
    together = groups.CommitRequest
    for _ in range(20):
        statements: list[TableStatement] = [
            InsertRows(draw_rows(draw, 2), on_conflict)  # type: ignore[arg-type]
            if draw.random() < 0.5
            else InsertValues(tuple(draw_row(draw) for _ in range(draw.randrange(1, 3))), on_conflict)  # type: ignore[arg-type]
            for _ in range(draw.randrange(1, 9))
        ]
        if draw.random() < 0.2:
            statements.insert(1, DeleteRows(equal(K, number(draw.randrange(12)))))
        requests = [together(statement) for statement in statements]
        store = open_table(table_in(tmp_path / "t"), clock)
        store._enqueue(*requests)
        for request, statement in zip(requests, statements, strict=True):
            request.done.wait()
            try:
                model.apply(statement, -1)
            except RefusedError as refused:
                assert isinstance(request.error, StrandlineError) and request.error.code == str(refused)
                continue
            after = model.past.pop(-1)
            assert request.result is not None
            if request.result.inserted or request.result.deleted:
                model.past[request.result.at] = after
        assert len({r.result.at for r in requests if r.result and r.result.inserted}) == len(
            [r for r in requests if r.result and r.result.inserted]
        )
        check_store(store, model)
        store.close()


def test_a_group_with_null_where_there_must_be_a_value(tmp_path: Path) -> None:
    # Evaluated together one of them fails, evaluated alone the others do not.
    store = open_table(table_in(tmp_path / "t", required=("v",)))
    rows = [frame((1, 10, "a")), frame((2, None, "b")), frame((3, 30, "c"))]
    requests = [groups.CommitRequest(InsertRows(each, "update")) for each in rows]
    store._enqueue(*requests)
    for request in requests:
        request.done.wait()
    assert [getattr(request.error, "code", None) for request in requests] == [None, "null-value", None]
    assert sorted(store.content().get_column("k")) == [1, 3]
    store.close()


def test_a_table_is_declared_with_not_null_or_without(tmp_path: Path) -> None:
    open_table(table_in(tmp_path / "t", required=("v",))).close()
    with pytest.raises(StrandlineError) as error:
        open_table(table_in(tmp_path / "t"))
    assert error.value.code == "table-changed"
    assert "v BIGINT NOT NULL" in str(error.value)
    open_table(table_in(tmp_path / "t", required=("v",))).close()


def test_an_update_may_move_keys_through_each_other(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t"))
    store.commit(InsertRows(frame((1, 10, "a"), (2, 20, "b"), (3, 30, "c"))))
    store.commit(UpdateRows((("k", plus(K, number(1))),)))
    assert sorted(store.content().get_column("k")) == [2, 3, 4]
    with pytest.raises(StrandlineError, match="duplicate key") as error:
        store.commit(UpdateRows((("k", number(3)),), call(">", K, number(2), kind=BOOLEAN)))
    assert error.value.code == "duplicate-key"
    store.close()


def test_replacing_the_content_changes_only_what_differs(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t", ()))
    store.commit(InsertRows(frame((1, 1, "a"), (1, 1, "a"), (2, 2, None))))
    committed = store.commit(ReplaceContent(frame((2, 2, None), (1, 1, "a"), (3, 3, "c"))))
    assert (committed.inserted, committed.deleted) == (1, 1)
    committed = store.commit(ReplaceContent(frame((1, 1, "a"), (3, 3, "c"), (2, 2, None))))
    assert (committed.inserted, committed.deleted) == (0, 0)
    store.close()


def test_rows_of_other_types_are_converted_or_refused_as_a_whole(tmp_path: Path) -> None:
    store = open_table(table_in(tmp_path / "t"))
    store.commit(InsertRows(pl.DataFrame({"k": ["1"], "v": [2.0], "s": ["x"]})))
    assert store.content().select("k", "v", "s").rows() == [(1, 2, "x")]
    with pytest.raises(StrandlineError) as error:
        store.commit(InsertRows(pl.DataFrame({"k": ["7", "x"], "v": [2, 3], "s": ["x", "y"]})))
    assert error.value.code == "unfit-rows" and "row 2" in error.value.message
    assert store.row_count == 1
    store.close()


def test_keys_with_equal_hashes_are_different_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_content, "hash_rows", lambda frame, keys: np.full(frame.height, 7, np.uint64))
    table = table_in(tmp_path / "t", ("s",))
    store = open_table(table)
    store.commit(InsertRows(frame(*((n, n, f"key {n}") for n in range(40)))))
    store.commit(InsertRows(frame((7, 70, "key 7"), (99, 99, "key 99")), "update"))
    store.commit(DeleteRows(equal(S, text("key 8"))))
    assert store.find(pl.DataFrame({"s": ["key 7", "key 8", "key 99"]})).select("v").rows() == [(70,), (99,)]
    assert store.row_count == 40
    store.close()


def test_rows_of_a_temporal_table_may_share_a_key_at_different_times(tmp_path: Path) -> None:
    columns = (("k", BIGINT), ("a", TIMESTAMP), ("b", TIMESTAMP))
    table = Table("t", columns, ("k",), "temporal", time_column="a", end_column="b", directory=str(tmp_path / "t"))

    def rows(*periods: tuple[int, int, int | None]) -> pl.DataFrame:
        schema = {"k": pl.Int64(), "a": pl.Int64(), "b": pl.Int64()}
        frame = pl.DataFrame(list(periods), schema=schema, orient="row")
        return frame.with_columns(pl.col("a", "b").cast(pl.Datetime("us")))

    store = open_table(table)
    store.commit(InsertRows(rows((1, 0, 10), (1, 10, 20), (2, 5, None))))
    for refused in (rows((1, 9, 11)), rows((2, 100, 101)), rows((3, 0, 5), (3, 4, 6)), rows((1, -5, 100))):
        with pytest.raises(StrandlineError) as error:
            store.commit(InsertRows(refused))
        assert error.value.code == "duplicate-key"
    store.commit(InsertRows(rows((1, 20, 30), (2, 0, 5), (3, 0, 1), (3, 1, 2))))
    with pytest.raises(StrandlineError) as error:
        store.commit(ReplaceContent(rows((1, 0, 10), (1, 5, 7))))
    assert error.value.code == "duplicate-key"
    with pytest.raises(StrandlineError) as error:
        store.commit(InsertRows(rows((9, 0, 1)), "update"))
    assert error.value.code == "not-supported"
    assert store.row_count == 7
    store.close()

"""Change batches: the effect of all changes at once is that of one after the other."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

from strandline.connectors.tables.change_batch import ChangeBatch
from strandline.connectors.tables.periods import overlapping_rows
from strandline.connectors.tables.store import TableStore
from strandline.core.temporal import OPEN
from strandline.core.types import BIGINT, INT, VARCHAR
from strandline.logical.catalog import Table
from strandline.logical.change_feed import ChangeFeed
from support import LONG

Change = tuple[int, bool, tuple[Any, ...]]  # when, whether it is an insertion, and the row
SCHEMA = {"k": pl.Int32(), "v": pl.String()}


def one_after_the_other(changes: list[Change], keyed: bool) -> list[tuple[Any, ...]]:
    """The elements by the definition: k, v, start, end."""
    live: list[tuple[tuple[Any, ...], int]] = []
    ended: list[tuple[Any, ...]] = []
    for time, is_insertion, row in changes:
        same = [item for item in live if (item[0][0] == row[0] if keyed else item[0] == row)]
        if same and (keyed or not is_insertion):
            live.remove(same[0])
            if same[0][1] < time:
                ended.append((*same[0][0], same[0][1], time))
        if is_insertion:
            live.append((row, time))
    return in_order([*ended, *((*row, start, None) for row, start in live)])


def in_order(elements: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(elements, key=lambda row: tuple((value is None, value) for value in row))


def elements(store: TableStore) -> list[tuple[Any, ...]]:
    live: dict[int, tuple[Any, ...]] = {}
    ended: list[tuple[Any, ...]] = []
    last = None
    for position, row in enumerate(row for frame in store.read(0, store.reach) for row in frame.iter_rows(named=True)):
        instant = row["@from"] if row["@until"] == OPEN else row["@until"]
        assert last is None or instant >= last, "a log is in the order of its instants"
        last = instant
        if row["@until"] == OPEN:
            assert row["@id"] == position
            live[position] = (row["k"], row["v"], row["@from"])
        else:
            ended.append((*live.pop(row["@id"]), row["@until"]))
    return in_order([*ended, *((*row, None) for row in live.values())])


def draw(dice: Random, keyed: bool) -> list[Change]:
    times = sorted(dice.randrange(12) for _ in range(dice.randrange(25)))
    values = ("x", "y", None)
    keys = (1, 2, 3) if keyed else (1, 2, None)
    return [(time, dice.random() < 0.6, (dice.choice(keys), dice.choice(values))) for time in times]


@pytest.mark.parametrize("keyed", [True, False])
def test_all_at_once_is_one_after_the_other(tmp_path: Path, keyed: bool) -> None:
    for seed in range(1500 if LONG else 120):
        dice = Random(seed)
        changes = draw(dice, keyed)
        key = ("k",) if keyed else ()
        feed = None if keyed else ChangeFeed("op")
        columns = (("k", INT), ("v", VARCHAR))
        table = Table("t", columns, key, changes=feed, directory=str(tmp_path / f"{seed}"))
        store = TableStore(table)
        try:
            begin = 0
            while begin < len(changes):
                end = begin + dice.randrange(1, 9)
                while end < len(changes) and changes[end][0] == changes[end - 1][0]:
                    end += 1  # a feed brings all changes of an instant together
                part = changes[begin:end]
                rows = pl.DataFrame([row for _, _, row in part], schema=SCHEMA, orient="row")
                inserts = np.array([is_insertion for _, is_insertion, _ in part], np.bool_)
                store.commit(ChangeBatch(rows, inserts, np.array([time for time, _, _ in part], np.int64)))
                begin = end
            assert elements(store) == one_after_the_other(changes, keyed), f"seed {seed}"
            expected = in_order([row[:2] for row in elements(store) if row[3] is None])
            assert in_order(store.content().select("k", "v").rows()) == expected
        finally:
            store.close()
        again = TableStore(table)
        assert in_order(again.content().select("k", "v").rows()) == expected
        again.close()


def test_changes_of_the_clock_share_an_instant(tmp_path: Path) -> None:
    table = Table("t", (("k", INT), ("v", VARCHAR)), ("k",), directory=str(tmp_path))
    store = TableStore(table)
    rows = pl.DataFrame([(1, "a"), (2, "b"), (1, "c"), (2, None)], schema=SCHEMA, orient="row")
    done = store.commit(ChangeBatch(rows, np.array([True, True, True, False])))
    assert (done.inserted, done.deleted) == (1, 0)
    assert elements(store) == [(1, "c", done.at, None)]
    store.close()


def test_periods_of_a_key_must_not_overlap() -> None:
    for seed in range(300):
        dice = Random(seed)
        rows = []
        for _ in range(dice.randrange(12)):
            start = dice.randrange(20)
            rows.append((dice.randrange(3), start, dice.choice((None, start + dice.randrange(1, 8)))))
        schema = {"k": pl.Int32(), "a": pl.Int64(), "b": pl.Int64()}
        table = Table(
            "t", (("k", INT), ("a", BIGINT), ("b", BIGINT)), ("k",), "temporal", time_column="a", end_column="b"
        )
        overlaps = overlapping_rows(pl.DataFrame(rows, schema=schema, orient="row"), table)
        kept = [row for row, is_bad in zip(rows, overlaps.tolist(), strict=True) if not is_bad]
        for instant in range(30):
            valid = [k for k, a, b in kept if a <= instant and (b is None or instant < b)]
            assert len(valid) == len(set(valid)), f"seed {seed}"
        if len(kept) == len(rows):
            continue
        every = [[k for k, a, b in rows if a <= t and (b is None or t < b)] for t in range(30)]
        assert any(len(valid) != len(set(valid)) for valid in every), f"seed {seed}: rejected without a reason"

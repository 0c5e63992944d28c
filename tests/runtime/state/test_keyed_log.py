"""Rows by key that are replaced together, against a dictionary."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.planner import compaction
from strandline.runtime.state import keyed_log
from strandline.runtime.state.keyed_log import KeyedLog
from support import examples

KINDS = {"k": pl.String(), "x": pl.Float64(), "v": pl.Int64()}
KEY = ["k", "x"]
Key = tuple[str | None, float | None]

keys: st.SearchStrategy[Key] = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, 1.5, None]))
changes = st.dictionaries(keys, st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=5)


def frame(rows: dict[Key, list[int]]) -> pl.DataFrame:
    listed = [(*key, value) for key, values in rows.items() for value in values]
    return pl.DataFrame(listed, schema=KINDS, orient="row")


def found(rows: pl.DataFrame) -> dict[Key, list[int]]:
    by_key: dict[Key, list[int]] = {}
    for name, number, value in rows.select(list(KINDS)).rows():
        by_key.setdefault((name, number), []).append(value)
    return by_key


@pytest.mark.parametrize("cost", [0, compaction.LOOK_UP_COST])
@pytest.mark.parametrize("largest", [2_000_000, 6])
@settings(max_examples=examples(80))
@given(st.lists(changes, max_size=40))
def test_the_newest_rows_of_a_key_count(largest: int, cost: int, steps: list[dict[Key, list[int]]]) -> None:
    """Also where segments may not be merged beyond a few rows, and where all rows are read instead of some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "LARGEST_MERGE_ROWS", largest)
        patch.setattr(keyed_log, "LOOK_UP_COST", cost)
        log, expected = KeyedLog(KEY, KINDS), dict[Key, list[int]]()
        for step in steps:
            asked = pl.DataFrame(list(step), schema={name: KINDS[name] for name in KEY}, orient="row")
            old = log.find(asked)
            assert found(old) == {key: expected[key] for key in step if key in expected}, "in the order of old"
            if log.has_mostly(asked):
                old = log.all()
            log.replace(old, frame({**found(old), **step}))
            expected = {key: values for key, values in {**expected, **step}.items() if values}
            assert found(log.all()) == expected
            restored = KeyedLog(KEY, KINDS)
            restored.segments = log.segments
            assert found(restored.all()) == expected
        if largest > 6:
            live = sum(map(len, expected.values()))
            assert sum(segment.rows for segment in log.segments) <= 2 * live + 2, "most rows count"


def test_a_batch_writes_what_it_changes() -> None:
    """One row of a large state at a time: the large segment is never written again, small ones rarely."""
    log = KeyedLog(["k"], {"k": pl.Int64(), "v": pl.Int64()})
    many = 100_000
    log.replace(log.all(), pl.DataFrame({"k": np.arange(many), "v": np.zeros(many, np.int64)}))
    known, written, steps = {id(segment.stored) for segment in log.segments}, 0, 256
    for step in range(steps):
        key = pl.DataFrame({"k": [step * 7919 % many]})
        log.replace(log.find(key), key.with_columns(pl.lit(step, pl.Int64).alias("v")))
        written += sum(segment.rows for segment in log.segments if id(segment.stored) not in known)
        known |= {id(segment.stored) for segment in log.segments}
    assert written <= 5 * steps
    assert len(log.segments) <= 1 + 3 * 5
    assert log.all().height == many and log.all().filter(pl.col("v") > 0).height == steps - 1


def test_where_everything_changes_nothing_old_is_kept() -> None:
    log = KeyedLog([], {"v": pl.Int64()})
    for value in range(5):
        log.replace(log.all(), pl.DataFrame({"v": [value, value + 1]}))
        assert len(log.segments) == 1 and log.all()["v"].to_list() == [value, value + 1]
    log.replace(log.all(), pl.DataFrame({"v": []}, schema={"v": pl.Int64()}))
    assert log.segments == []


def test_rows_may_lack_columns_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    log = KeyedLog(["k"], {"k": pl.Int64()})
    log.replace(log.all(), pl.DataFrame({"k": [1, 2], "a": [5, 6]}))
    one = pl.DataFrame({"k": [2]})
    monkeypatch.setattr(keyed_log, "LOOK_UP_COST", 0)
    log.replace(log.find(one), pl.DataFrame({"k": [2], "b": [7]}))
    assert log.find(pl.DataFrame({"k": [1, 2]})).sort("k").rows(named=True) == [
        {"k": 1, "a": 5, "b": None},
        {"k": 2, "a": None, "b": 7},
    ]


def test_different_keys_of_one_hash_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_log, "hash_rows", lambda frame, key: np.zeros(frame.height, np.uint64))
    monkeypatch.setattr(keyed_log, "LOOK_UP_COST", 0)
    log = KeyedLog(KEY, KINDS)
    log.replace(log.all(), frame({("a", 0.0): [1, 2], ("b", 0.0): [3]}))
    asked = pl.DataFrame([("b", 0.0), ("c", 0.0)], schema={name: KINDS[name] for name in KEY}, orient="row")
    assert found(log.find(asked)) == {("b", 0.0): [3]}
    log.replace(log.find(asked), frame({("c", 0.0): [4]}))
    assert found(log.all()) == {("a", 0.0): [1, 2], ("c", 0.0): [4]}

"""Array kernels against the obvious loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.core.types import DOUBLE, VARCHAR, Type, decimal
from strandline.logical.reference.interpreter import bag
from strandline.logical.udf import States
from strandline.logical.values import compare
from strandline.runtime.kernels.columns import polars_type
from strandline.runtime.kernels.grouping import group_codes
from strandline.runtime.kernels.hashing import hash_column, hash_rows
from strandline.runtime.kernels.probing import latest_ends, overlaps
from strandline.runtime.kernels.ranking import RankOrder
from strandline.runtime.kernels.sweep import LOWEST, cover, lay_out, running_maxima, running_totals
from strandline.runtime.kernels.user_aggregates import folded, running
from support import ARRAYS, KINDS, any_decimal, examples, values

INSTANTS = st.integers(0, 8)


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 9), max_size=6))
def test_states_are_merged_in_order(sizes: list[int]) -> None:
    """Texts side by side: every state shows what it was merged from, and in which order."""
    texts = [chr(ord("a") + n % 26) for n in range(sum(sizes))]
    states = States((pa.array(texts, pa.large_string()),), is_single=True)
    segments = [texts[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(len(sizes))]

    def merge(one: States, two: States) -> States:
        assert len(one) == len(two) > 0, "nobody is called for nothing"
        return States(
            (pc.binary_join_element_wise(one.argument, two.argument, pa.scalar("", pa.large_string())),), is_single=True
        )

    sizes_of = np.array(sizes, np.int64)
    assert folded(states, sizes_of, merge).argument.to_pylist() == ["".join(segment) for segment in segments]
    assert running(states, sizes_of, merge).argument.to_pylist() == [
        "".join(segment[: n + 1]) for segment in segments for n in range(len(segment))
    ]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 2), INSTANTS, st.integers(-(2**40), 2**40)), max_size=20))
def test_events_are_laid_out_by_group_and_time(events: list[tuple[int, int, int]]) -> None:
    codes, time, change = (np.array([e[i] for e in events], dtype=np.int64) for i in range(3))
    by_time = np.argsort(time, kind="stable")
    run_of, code, instant, ends, last = lay_out(by_time, codes, time, 3, 100)
    runs = list(zip(code.tolist(), instant.tolist(), strict=True))
    assert sorted(runs) == sorted({(c, t) for c, t, _ in events})
    assert [runs[run] for run in run_of] == [events[event][:2] for event in by_time]
    later = [[u for d, u, _ in events if d == c and u > t] for c, t in runs]
    assert ends.tolist() == [min(some, default=100) for some in later]
    assert [run for run in last.tolist() if run >= 0] == [
        runs.index(max(run for run in runs if run[0] == c)) for c in sorted({c for c, _ in runs})
    ]
    totals = [sum(x for d, u, x in events if d == c and u <= t) for c, t in runs]
    assert running_totals(by_time, codes, run_of, 3, len(runs), change).tolist() == totals


ELEMENTS = st.lists(
    st.tuples(st.integers(0, 2), INSTANTS, st.integers(1, 9), st.none() | st.integers(-4, 4)), max_size=15
)


@settings(max_examples=examples(300))
@given(ELEMENTS, ELEMENTS, st.booleans())
def test_the_running_maximum_and_what_can_be_one_later(
    held: list[tuple[int, int, int, int | None]], entering: list[tuple[int, int, int, int | None]], by_window: bool
) -> None:
    """Elements are (group, start, duration, value). Those held began before; all may end in any order."""
    until = 6
    held = [(c, -1, t + d, 0 if v is None else v) for c, t, d, v in held]
    entering = [(c, min(t, until - 1), 3 if by_window else d, v) for c, t, d, v in entering]
    every = [*held, *entering]
    ends = np.array([t + d for _, t, d, _ in every], dtype=np.int64)
    # Each group has an event at the beginning, as one with carried totals has. No event is after the slice.
    events = [(c, 0) for c in range(3)] + [(c, t) for c, t, _, _ in entering]
    events += [(c, t + d) for c, t, d, _ in every if t + d < until]
    codes, time = (np.array([e[i] for e in events], dtype=np.int64) for i in range(2))
    by_time = np.argsort(time, kind="stable")
    run_of, code, instant, _, _ = lay_out(by_time, codes, time, 3, until)
    highest, kept = running_maxima(
        by_time,
        codes,
        time,
        run_of,
        3,
        len(code),
        np.array([c for c, _, _, _ in held], dtype=np.int64),
        3,
        np.array([v is not None for _, _, _, v in every], dtype=np.bool_),
        np.array([v or 0 for _, _, _, v in every], dtype=np.int64),
        ends,
        until,
    )

    def best(group: int, at: int, some: Sequence[tuple[int, int, int, int | None]]) -> int:
        return max((v for c, t, d, v in some if c == group and v is not None and t <= at < t + d), default=LOWEST)

    assert highest.tolist() == [best(c, t, every) for c, t in zip(code.tolist(), instant.tolist(), strict=True)]
    for group in range(3):
        for at in range(until, 20):
            assert best(group, at, [every[i] for i in kept]) == best(group, at, every)


@settings(max_examples=examples(120))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 9)), max_size=20),
    st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 9)), min_size=4, max_size=4),
    st.integers(10, 14),
)
def test_each_group_is_covered_once(
    rows: list[tuple[int, int, int]], before: list[tuple[int, int]], until: int
) -> None:
    """Instants from 0 on: sent until `sent` before, with earlier elements valid until `reach`."""
    rows += [(group, max(sent, 0), 0) for group, (sent, _) in enumerate(before)]  # more is due
    rows.sort(key=lambda row: row[:2])
    code, start, length = (np.array([r[i] for r in rows], dtype=np.int64) for i in range(3))
    sent = np.array([max(at, 0) for at, _ in before], dtype=np.int64)
    reach = sent + np.array([further for _, further in before], dtype=np.int64)
    begins_group = np.append(True, code[1:] != code[:-1])
    chosen, begins, ends, sent_after, reach_after = cover(begins_group, start, start + length, sent, reach, until)
    for group in range(4):
        mine = np.flatnonzero(code == group)
        valid = {t for row in mine for t in range(start[row], start[row] + length[row]) if t >= sent[group]}
        valid |= set(range(sent[group], reach[group]))
        pieces = [(b, e) for row, b, e in zip(chosen, begins, ends, strict=True) if code[row] == group]
        covered = [t for b, e in pieces for t in range(b, e)]
        assert len(covered) == len(set(covered)) and set(covered) <= valid
        assert {t for t in valid if t < until} <= set(covered) | set(range(sent[group]))
        assert all(b < until for b, _ in pieces)
        assert reach_after[group] == max(reach[group], *(start[mine] + length[mine]))
        assert set(range(until, reach_after[group])) <= set(covered) | set(range(sent_after[group], 99))


INTERVALS = st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(1, 99))


@settings(max_examples=examples(120))
@given(st.lists(INTERVALS, max_size=9), st.lists(INTERVALS, max_size=700), st.integers(1, 50))
def test_overlapping_intervals_of_a_key_are_found(
    probes: list[tuple[int, int, int]], stored: list[tuple[int, int, int]], limit: int
) -> None:
    stored.sort(key=lambda row: row[:2])
    keys, start, length = (np.array([row[i] for row in stored], dtype=np.int64) for i in range(3))
    own, own_start, own_length = (np.array([row[i] for row in probes], dtype=np.int64) for i in range(3))
    end, own_end = start + length, own_start + own_length
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < len(probes):
        rows, others, begin = overlaps(
            own.astype(np.uint64),
            own_start,
            own_end,
            keys.astype(np.uint64),
            start,
            end,
            latest_ends(end),
            begin,
            limit,
        )
        found += zip(rows.tolist(), others.tolist(), strict=True)
    assert found == [
        (one, two)
        for one in range(len(probes))
        for two in range(len(stored))
        if own[one] == keys[two] and start[two] < own_end[one] and own_start[one] < end[two]
    ]


@pytest.mark.parametrize("kind", [*KINDS, *ARRAYS, decimal(38, 38), decimal(5, 5)], ids=str)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_equal_keys_have_equal_codes_and_equal_hashes(kind: Type, data: st.DataObject) -> None:
    some = values(kind) if kind in (*KINDS, *ARRAYS) else st.none() | any_decimal(kind)
    rows = data.draw(st.lists(st.tuples(some, values(VARCHAR)), max_size=12))
    frame = pl.DataFrame(rows, schema={"a": polars_type(kind), "b": pl.String()}, orient="row")
    codes, representative = group_codes(frame, ["a", "b"])
    hashes = hash_rows(frame, ["a", "b"])
    keys = [str(bag([row])) for row in rows]
    for i in range(len(rows)):
        assert keys[representative[codes[i]]] == keys[i]
        for j in range(i):
            assert (codes[i] == codes[j]) == (hashes[i] == hashes[j]) == (keys[i] == keys[j])


@pytest.mark.parametrize("kind", [*KINDS, *ARRAYS], ids=str)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_ranks_are_in_the_order_of_the_values(kind: Type, data: st.DataObject) -> None:
    drawn = [value for value in data.draw(st.lists(values(kind), max_size=10)) if value is not None]
    ranks = RankOrder(pl.Series("a", drawn, dtype=polars_type(kind))).codes.tolist()
    for i, one in enumerate(drawn):
        for j, two in enumerate(drawn):
            assert (ranks[i] > ranks[j]) - (ranks[i] < ranks[j]) == compare(one, two), f"{one} and {two}"


@pytest.mark.parametrize("kind", [*KINDS, *ARRAYS], ids=str)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_a_hash_does_not_depend_on_how_the_column_lies_in_memory(kind: Type, data: st.DataObject) -> None:
    """The hash names the bucket of a key, and the same key must find it from any batch."""
    drawn = data.draw(st.lists(values(kind), min_size=1, max_size=10))
    column = pl.Series("a", drawn, dtype=polars_type(kind))
    alone = [int(hash_column(pl.Series("a", [value], dtype=polars_type(kind)))[0]) for value in drawn]
    cut = data.draw(st.integers(0, len(drawn)))
    chunks = pl.concat([column.slice(0, cut), column.slice(cut)], rechunk=False)
    assert hash_column(column).tolist() == hash_column(chunks).tolist() == alone
    assert hash_column(column.slice(cut)).tolist() == alone[cut:]


def test_hashes_are_the_same_for_ever() -> None:
    """They lie in checkpoints: a change here makes old state unreadable and needs a new format number."""
    frame = pl.DataFrame({"i": [1, None, -1], "s": ["a", "", "ä😀"], "d": [0.5, -0.0, float("nan")]})
    assert hash_rows(frame, ["i"]).tolist() == [10451216379200822465, 407704129109, 16490336266968443936]
    assert hash_rows(frame, ["s"]).tolist() == [3918140811610257722, 12035550249420947055, 9232167193457591361]
    lists = pl.DataFrame({"l": [[1, None], [], None, [2, 1]]})
    assert hash_rows(lists, ["l"]).tolist() == [
        14408332100661918192,
        12035550249420947055,
        407704129109,
        7333738972616260032,
    ]
    assert hash_rows(frame, ["d", "i"]).tolist() == [10158081661337328572, 13936451009131383409, 1553594315927167025]


def test_nan_and_zero_have_one_code() -> None:
    nan = float("inf") - float("inf")
    frame = pl.DataFrame({"x": [0.0, -0.0, float("nan"), nan, -nan, None]}, schema={"x": polars_type(DOUBLE)})
    assert group_codes(frame, ["x"])[0].tolist() == [0, 0, 1, 1, 1, 2]

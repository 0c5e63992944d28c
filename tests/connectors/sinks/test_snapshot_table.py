"""The step of a table that shows the current snapshot, against the meaning of a snapshot: the elements valid then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from strandline.connectors.sinks.snapshot import ROW, SnapshotChanges, SnapshotRows, last_instant, step
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN
from strandline.runtime.kernels.batch import FROM, UNTIL

PAYLOAD = ["c0", "c1"]
KINDS = {"c0": pl.String(), "c1": pl.Float64()}
TIMES = {FROM: pl.Int64(), UNTIL: pl.Int64()}

Element: TypeAlias = tuple[str | None, float | None, int, int]
Row: TypeAlias = tuple[str | None, float | None]


def elements(rows: Sequence[Element]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={**KINDS, **TIMES}, orient="row")


def nothing() -> SnapshotRows:
    row = {ROW: pl.Int64()}
    return SnapshotRows(
        pl.DataFrame(schema={**row, **KINDS, UNTIL: pl.Int64()}), pl.DataFrame(schema={**row, **KINDS, **TIMES}), 0
    )


class Tables:
    """What a database would hold, changed as it would be."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.ends: dict[int, int] = {}
        self.waiting: dict[int, tuple[object, ...]] = {}

    def apply(self, changes: SnapshotChanges) -> None:
        for row in changes.deleted.to_list():
            del self.rows[row], self.ends[row]
        for row in changes.continued.to_list():
            del self.ends[row]
        for row in changes.started.to_list():
            del self.waiting[row]
        for row, *payload in changes.inserted.rows():
            assert row not in self.rows
            self.rows[row] = (payload[0], payload[1])
        for row, until in changes.ends.rows():
            assert row not in self.ends
            self.ends[row] = until
        for row, *rest in changes.deferred.rows():
            assert row not in self.waiting
            self.waiting[row] = tuple(rest)


def counted(rows: Sequence[Row]) -> Counter[str]:
    return Counter(map(repr, rows))  # NaN is not itself, but its text is


payloads = st.sampled_from([("a", 1.0), ("a", float("nan")), (None, None)])  # few: equal ones are the difficult ones
spans = st.tuples(st.integers(0, 20), st.one_of(st.integers(1, 8), st.just(FOREVER)))
batches = st.lists(st.tuples(st.lists(st.tuples(payloads, spans), max_size=6), st.integers(0, 6)), max_size=8)


@given(batches)
def test_the_table_is_the_snapshot_after_every_batch(run: list[tuple[list[tuple[Row, tuple[int, int]]], int]]) -> None:
    live, tables, known, progress = nothing(), Tables(), [], 0
    opened: list[Element] = []
    for drawn, further in run:
        new = [(*row, start, FOREVER if size == FOREVER else start + size) for row, (start, size) in drawn]
        # Nothing is delivered twice, and nothing about a past that was complete.
        new = [each for each in new if each[2] >= progress]
        known += new
        before, begin, progress = dict(tables.rows), progress, progress + further
        at = last_instant(progress)
        # Elements with an odd start come without their end if it is not known yet, and again when it is.
        sent = [(*each[:3], OPEN) if each[2] % 2 and each[2] < progress <= each[3] else each for each in new]
        sent += [each for each in opened if each[3] < progress]
        opened = [each for each in opened if each[3] >= progress]
        opened += [each for each, way in zip(new, sent, strict=False) if way[3] == OPEN]
        live, changes = step(live, elements(sent), at, PAYLOAD, begin)
        tables.apply(changes)
        valid = [(each[0], each[1]) for each in known if each[2] <= at < each[3]]
        assert counted(list(tables.rows.values())) == counted(valid)
        assert set(tables.rows) == set(tables.ends)
        # Rows that are in both snapshots are not touched: only the difference comes and goes.
        old, now = counted(list(before.values())), counted(valid)
        assert changes.inserted.height == (now - old).total()
        assert counted([before[row] for row in changes.deleted.to_list()]) == old - now


def test_a_piece_that_goes_on_keeps_its_row() -> None:
    #   t     0    5    10
    #   a 1   [====)[====)
    #   b 1   [====)
    live, changes = step(nothing(), elements([("a", 1.0, 0, 5), ("b", 1.0, 0, 5)]), last_instant(5), PAYLOAD)
    assert changes.inserted.rows() == [(0, "a", 1.0), (1, "b", 1.0)]
    live, changes = step(live, elements([("a", 1.0, 5, 10)]), last_instant(10), PAYLOAD)
    assert changes.inserted.height == 0
    assert changes.deleted.to_list() == [1]
    assert changes.ends.rows() == [(0, 10)]


def test_equal_rows_are_taken_over_one_by_one() -> None:
    twice = [("a", 1.0, 0, 5), ("a", 1.0, 0, 5)]
    live, changes = step(nothing(), elements(twice), last_instant(5), PAYLOAD)
    live, changes = step(live, elements([("a", 1.0, 5, 9)] * 3), last_instant(9), PAYLOAD)
    assert changes.inserted.height == 1 and len(changes.deleted) == 0 and live.valid.height == 3
    live, changes = step(live, elements([("a", 1.0, 9, 12)]), last_instant(12), PAYLOAD)
    assert changes.inserted.height == 0 and len(changes.deleted) == 2 and live.valid.height == 1


def test_what_begins_later_waits() -> None:
    live, changes = step(nothing(), elements([("a", 1.0, 7, 9)]), last_instant(5), PAYLOAD)
    assert changes.inserted.height == 0 and changes.deferred.rows() == [(0, "a", 1.0, 7, 9)]
    live, changes = step(live, elements([]), last_instant(8), PAYLOAD)
    assert changes.inserted.rows() == [(0, "a", 1.0)] and changes.started.to_list() == [0]
    live, changes = step(live, elements([]), last_instant(10), PAYLOAD)
    assert changes.deleted.to_list() == [0]


def test_what_is_over_before_anybody_looks_is_never_shown() -> None:
    live, changes = step(nothing(), elements([("a", 1.0, 7, 9)]), last_instant(5), PAYLOAD)
    live, changes = step(live, elements([("b", 1.0, 6, 8)]), last_instant(20), PAYLOAD)
    assert changes.inserted.height == 0 and changes.started.to_list() == [0] and live.waiting.height == 0


def test_the_ends_of_time() -> None:
    assert last_instant(BEFORE_ALL) == BEFORE_ALL
    _, changes = step(nothing(), elements([("a", 1.0, 0, 9), ("b", 1.0, 0, FOREVER)]), last_instant(FOREVER), PAYLOAD)
    assert changes.inserted.rows() == [(1, "b", 1.0)]

"""The buffer above a part that runs ahead: a reader that sees less of time has both changes of an element."""

from __future__ import annotations

import polars as pl

from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.core.types import INT, Column
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.hold_back_changes import HoldBackChangesOperator

COLUMNS = (Column("k", "k", INT),)


def step(
    operator: HoldBackChangesOperator, rows: list[tuple[int, Instant, Instant]], below: Instant, own: Instant
) -> list[tuple[int, Instant, Instant]]:
    frame = pl.DataFrame(rows, {"k": pl.Int32, FROM: pl.Int64, UNTIL: pl.Int64}, orient="row")
    return operator.step([Batch(frame)], Watermark(own, below=below)).frame.rows()


def test_an_element_that_came_whole_begins_before_it_ends() -> None:
    operator = HoldBackChangesOperator(COLUMNS)
    assert step(operator, [(1, 2, 8)], below=10, own=5) == [(1, 2, OPEN)]
    assert step(operator, [], below=10, own=9) == [(1, 2, 8)]


def test_an_element_within_one_slice_of_the_reader_comes_once() -> None:
    operator = HoldBackChangesOperator(COLUMNS)
    assert step(operator, [(1, 2, 8)], below=10, own=0) == []
    assert step(operator, [], below=10, own=9) == [(1, 2, 8)]


def test_what_is_announced_again_is_not_taken_twice_also_after_a_restart() -> None:
    operator = HoldBackChangesOperator(COLUMNS)
    assert step(operator, [(1, 2, OPEN)], below=10, own=1) == []
    restored = HoldBackChangesOperator(COLUMNS)
    restored.restore(operator.save())
    assert step(restored, [(1, 2, OPEN), (2, 11, OPEN)], below=12, own=5) == [(1, 2, OPEN)]
    assert step(restored, [(1, 2, 13)], below=14, own=14) == [(2, 11, OPEN), (1, 2, 13)]


def test_what_the_end_of_its_streams_ends_waits_for_the_end_of_the_others() -> None:
    operator = HoldBackChangesOperator(COLUMNS)
    assert step(operator, [(1, 2, FOREVER)], below=FOREVER, own=5) == [(1, 2, OPEN)]
    assert step(operator, [], below=FOREVER, own=FOREVER) == [(1, 2, FOREVER)]

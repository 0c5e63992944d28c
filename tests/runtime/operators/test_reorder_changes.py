"""The reorder buffer of changes: what begins and ends at one instant was never there."""

from __future__ import annotations

import polars as pl

from strandline.core.temporal import OPEN, Instant
from strandline.core.types import INT, Column
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch
from strandline.runtime.operators.base import Watermark
from strandline.runtime.operators.reorder_changes import ReorderChangesOperator

COLUMNS = (Column("k", "k", INT),)


def changes(*rows: tuple[int, Instant, Instant]) -> list[Batch]:
    return [Batch(pl.DataFrame(rows, {"k": pl.Int32, FROM: pl.Int64, UNTIL: pl.Int64}, orient="row"))]


def test_an_element_that_ends_when_it_begins_is_not_sent() -> None:
    operator = ReorderChangesOperator(COLUMNS)
    inserted = operator.step(changes((1, 5, OPEN), (2, 5, OPEN)), Watermark(5))
    assert inserted.frame.is_empty()
    deleted = operator.step(changes((1, 5, 5)), Watermark(6))
    assert deleted.frame.rows() == [(2, 5, OPEN)]
    ended = operator.step(changes((2, 5, 6)), Watermark(7))
    assert ended.frame.rows() == [(2, 5, 6)]

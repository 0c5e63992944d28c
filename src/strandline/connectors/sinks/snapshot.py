"""Maintenance of a snapshot table: the rows to insert and delete as the watermark advances.

    rows   1  [=====)              at ──┐   ends before the instant: deleted
           2     [==============)       │   stays
           3  [====)[=======)           │   the fragment ends, an equal one begins: the row stays, its end moves
           4                     [==)   │   begins later: deferred

An element may come without an end, and again with its end, in the batch in which it ends: then a row of equal values
without an end gets it. Some results have intervals that end at the watermark even where nothing changes, and the next
batch continues them. So a row whose interval ends is matched with an arriving element of equal values; only the rest is
inserted or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from strandline.core.temporal import BEFORE_ALL, OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL

ROW = "@row"
_COPY = "@copy"


def last_instant(complete_until: Instant) -> Instant:
    """The instant whose snapshot is shown: the last before the watermark."""
    return max(complete_until - 1, BEFORE_ALL)


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """The elements that matter: those valid now, each with the row that shows it, and those that begin later."""

    valid: pl.DataFrame  # ROW, payload, UNTIL
    waiting: pl.DataFrame  # ROW, payload, FROM, UNTIL
    next_row: int


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """Changes of the tables by a batch."""

    inserted: pl.DataFrame  # ROW, payload
    deleted: pl.Series  # ROW
    ends: pl.DataFrame  # ROW, UNTIL: of rows that are new or continued
    continued: pl.Series  # rows that stay and get another end
    deferred: pl.DataFrame  # ROW, payload, FROM, UNTIL: elements to keep for later
    started: pl.Series  # ROW of elements that are no longer deferred


def step(
    live: SnapshotRows, new: pl.DataFrame, at: Instant, payload: Sequence[str], begin: Instant = BEFORE_ALL
) -> tuple[SnapshotRows, SnapshotChanges]:
    """Advance from the shown snapshot, with the elements of a batch (payload, FROM, UNTIL), to that at `at`; elements
    that start before `begin` were sent earlier, without an end."""
    sent_before = pl.col(FROM) < begin
    valid = _with_ends(live.valid, new.filter(sent_before & (pl.col(UNTIL) != OPEN)), payload)
    new = new.filter(~sent_before)
    numbers = pl.int_range(live.next_row, live.next_row + new.height, dtype=pl.Int64, eager=True).alias(ROW)
    new = new.with_columns(numbers)
    order = [ROW, *payload, FROM, UNTIL]
    later = pl.col(FROM) > at
    elements = pl.concat([live.waiting.select(order), new.select(order)]).filter(pl.col(UNTIL) > at)
    arriving = _numbered(elements.filter(~later), payload)
    leaving = _numbered(valid.filter(pl.col(UNTIL) <= at), payload)
    key = [*payload, _COPY]
    taken_over = leaving.select(*key, pl.col(ROW).alias("@old"))
    arriving = arriving.join(taken_over, on=key, how="left", nulls_equal=True, maintain_order="left")
    continued = arriving.filter(pl.col("@old").is_not_null()).with_columns(pl.col("@old").alias(ROW))
    inserted = arriving.filter(pl.col("@old").is_null())
    deleted = leaving.join(continued.select(ROW), on=ROW, how="anti").get_column(ROW)
    columns = [ROW, *payload, UNTIL]
    staying = valid.filter(pl.col(UNTIL) > at)
    after = SnapshotRows(
        pl.concat([staying.select(columns), continued.select(columns), inserted.select(columns)]),
        elements.filter(later),
        live.next_row + new.height,
    )
    changes = SnapshotChanges(
        inserted.select(ROW, *payload),
        deleted,
        pl.concat([inserted.select(ROW, UNTIL), continued.select(ROW, UNTIL)]),
        continued.get_column(ROW),
        new.filter((pl.col(UNTIL) > at) & later).select(order),
        live.waiting.filter(~later).get_column(ROW),
    )
    return after, changes


def _with_ends(valid: pl.DataFrame, ended: pl.DataFrame, payload: Sequence[str]) -> pl.DataFrame:
    """The rows that are shown; of those without an end, as many get one as elements of equal values have ended."""
    if not ended.height:
        return valid
    key = [*payload, _COPY]
    ends = _numbered(ended, payload).select(*key, pl.col(UNTIL).alias("@end"))
    is_open = pl.col(UNTIL) == OPEN
    concerned = valid.filter(is_open).join(ended.select(payload), on=list(payload), how="semi", nulls_equal=True)
    known = _numbered(concerned, payload).join(ends, on=key, how="inner", nulls_equal=True)
    known = known.select(ROW, *payload, pl.col("@end").alias(UNTIL))
    return pl.concat([valid.join(known.select(ROW), on=ROW, how="anti").select(known.columns), known])


def _numbered(frame: pl.DataFrame, payload: Sequence[str]) -> pl.DataFrame:
    """Equal rows distinguished by a number: a result is a bag."""
    return frame.with_columns(pl.int_range(pl.len()).over(list(payload)).alias(_COPY))

"""Changes with their instants and positions: the rows of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.connectors.tables.blocks import CEASED, ID, SINCE
from strandline.connectors.tables.content import RowChanges
from strandline.core.temporal import OPEN, Instant
from strandline.runtime.kernels.batch import FROM, UNTIL, Index, Times, gather


@dataclass(frozen=True, slots=True)
class StampedChanges:
    """Changes of some statements: for the content, with ids, and as rows of the log, in its order."""

    changes: RowChanges
    log_rows: pl.DataFrame


def stamp(changes: RowChanges, at: Instant, since: Instant, position: int) -> StampedChanges:
    """Changes of one statement, which share an instant: what ends comes before what begins. For queries that begin
    later they are made at `since`."""
    deleted, inserted = changes.deleted, changes.inserted
    ids = position + deleted.height + np.arange(inserted.height)
    begun = _begun(inserted, ids, np.full(inserted.height, at), since)
    both = (_log_rows(deleted, at, since), _log_rows(begun, OPEN, OPEN))
    parts = [rows for rows in both if rows.height]
    rows = parts[0] if len(parts) == 1 else pl.concat(parts) if parts else both[0]
    return StampedChanges(RowChanges(begun, deleted), rows)


def stamp_several(
    changes: RowChanges, deleted_by: Index, inserted_by: Index, instants: Times, since: Instant, position: int
) -> StampedChanges:
    """Changes of several statements that were evaluated together: each row has the number of its statement, and each
    statement its instant by the clock."""
    deleted, inserted = changes.deleted, changes.inserted
    order = np.argsort(np.concatenate([2 * deleted_by, 2 * inserted_by + 1]), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    begun = _begun(inserted, position + places[deleted.height :], instants[inserted_by], since)
    rows = _log_rows(begun, OPEN, OPEN)
    if deleted.height:
        ended = _log_rows(deleted, OPEN, since).with_columns(pl.Series(UNTIL, instants[deleted_by]))
        rows = pl.concat([ended, rows])
    return StampedChanges(RowChanges(begun, deleted), rows if _is_in_order(order) else gather(rows, order))


def join_log_rows(parts: Sequence[StampedChanges]) -> pl.DataFrame:
    frames = [part.log_rows for part in parts]
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _begun(inserted: pl.DataFrame, ids: Index, instants: Times, since: Instant) -> pl.DataFrame:
    return inserted.with_columns(pl.Series(ID, ids), pl.Series(FROM, instants), pl.lit(since, pl.Int64).alias(SINCE))


def _log_rows(rows: pl.DataFrame, until: Instant, ceased: Instant) -> pl.DataFrame:
    """Rows with columns in the order of the log."""
    ends = (pl.lit(until, pl.Int64).alias(UNTIL), pl.lit(ceased, pl.Int64).alias(CEASED))
    times = (ID, FROM, SINCE)
    return rows.with_columns(ends).select([name for name in rows.columns if name not in times], *times, UNTIL, CEASED)


def _is_in_order(order: Index) -> bool:
    return bool((order[1:] > order[:-1]).all())

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
    rows = _log_rows(deleted, np.full(deleted.height, at), since)
    return StampedChanges(RowChanges(begun, deleted), rows.vstack(_log_rows(begun, _open(begun), OPEN)))


def stamp_several(
    changes: RowChanges, inserted_by: Index, deleted_by: Index, instants: Times, since: Instant, position: int
) -> StampedChanges:
    """Changes of several statements that were evaluated together: each row has the number of its statement, and each
    statement its instant by the clock."""
    deleted, inserted = changes.deleted, changes.inserted
    order = np.argsort(np.concatenate([2 * deleted_by, 2 * inserted_by + 1]), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    begun = _begun(inserted, position + places[deleted.height :], instants[inserted_by], since)
    rows = _log_rows(deleted, instants[deleted_by], since).vstack(_log_rows(begun, _open(begun), OPEN))
    return StampedChanges(RowChanges(begun, deleted), rows if _is_in_order(order) else gather(rows, order))


def join_log_rows(parts: Sequence[StampedChanges]) -> pl.DataFrame:
    rows = parts[0].log_rows
    for part in parts[1:]:
        rows = rows.vstack(part.log_rows)
    return rows.rechunk()


def _begun(inserted: pl.DataFrame, ids: Index, instants: Times, since: Instant) -> pl.DataFrame:
    times = (pl.Series(ID, ids), pl.Series(FROM, instants), pl.Series(SINCE, np.full(inserted.height, since)))
    return pl.DataFrame([*inserted.get_columns(), *times])


def _open(rows: pl.DataFrame) -> Times:
    return np.full(rows.height, OPEN)


def _log_rows(rows: pl.DataFrame, until: Times, ceased: Instant) -> pl.DataFrame:
    ends = (pl.Series(UNTIL, until), pl.Series(CEASED, np.full(rows.height, ceased)))
    return pl.DataFrame([*rows.get_columns(), *ends])


def _is_in_order(order: Index) -> bool:
    return bool((order[1:] > order[:-1]).all())
